//! Steering: which frames of an interface are fast, and which stay in Linux.
//!
//! [`Rules`] is the list an author writes. It is judged in two places that must agree:
//! [`Rules::matches`] in Rust is the reference, and the eBPF programs in `bpf/steer.bpf.c`, which
//! [`Program`] loads and attaches, do the same inside the kernel. `tests/agreement.rs` compares
//! them over random rules and frames.
//!
//! With no rules every frame is fast. With rules a frame is fast when any rule matches, except that
//! an IP fragment never is (see [`Rules::matches`]).

mod adopt;
mod attach;
mod encode;
mod error;
mod key;
mod link;
mod matcher;
mod program;
mod rule;
mod tables;
mod trial;

pub use adopt::Kept;
pub use attach::XdpMode;
pub use error::ProgramError;
pub use key::{KeyField, Keyed, LaneKey};
pub use program::{Counts, MAX_QUEUES, Program, Settings};
pub use rule::{Field, MAX_RULES, PortRange, Prefix, Rule, RuleError, RuleFault, Rules};
pub use trial::{Entry, Trial};
