//! Steering: selects the frames of an interface that the fast path takes; all others stay in Linux.
//!
//! [`Rules`] is the list that an author writes. Two implementations evaluate it and must agree.
//! [`Rules::matches`] in Rust is the reference. The eBPF programs in `bpf/steer.bpf.c`, which
//! [`Program`] loads and attaches, do the same in the kernel. `tests/agreement.rs` compares them
//! over random rules and frames. [`LaneKey`] assigns frames to lanes.
//!
//! Without rules every frame is claimed. With rules a frame is claimed if any rule matches, an IP
//! fragment only by rules for fragments (see [`Rules::matches`]).
//!
//! # The forms of a rule
//! | form | where | purpose |
//! |---|---|---|
//! | configuration entry | crate `fastlane`, `config` | parsed JSON |
//! | [`Rule`] | `rules.rs` | checked conditions |
//! | `RuleMatcher` | `rules/matcher.rs` | prepared comparison in Rust, for any frame |
//! | `PlainRule` | `rules/plain_ipv4.rs` | mask and value, for plain IPv4 frames |
//! | `EncodedRule` | `program.rs` | words for the eBPF map |
//! | `struct rule` | `bpf/steer.bpf.c` | the same words in C |
//!
//! # Examples
//! ```
//! use fastlane_steer::{Rule, Rules};
//!
//! let gtp_u = Rule { gtp_u: true, ..Rule::default() };
//! let rules = Rules::new(vec![gtp_u])?;
//! assert!(!rules.matches(&[0; 60])); // stays in Linux
//! assert!(Rules::default().matches(&[0; 60])); // without rules every frame is claimed
//! # Ok::<(), fastlane_steer::RuleError>(())
//! ```

mod array_reader;
mod attach;
mod error;
mod key;
pub mod link;
mod loaded;
mod pins;
mod program;
mod program_array;
mod rules;
mod settings;
mod test_run;

pub use array_reader::ArrayReader;
pub use attach::{has_tcx, link_ingress, link_xdp};
pub use error::ProgramError;
pub use key::{KeyField, Keyed, LaneKey};
pub use link::XdpMode;
pub use loaded::{program_link, program_links, program_name};
pub use pins::unpin;
pub use program::{MAX_QUEUES, Program, ProgramHandover};
pub use program_array::ProgramArray;
pub use rules::{Field, MAX_RULES, PortRange, Prefix, Rule, RuleError, RuleFault, Rules};
pub use settings::{Counts, Settings};
pub use test_run::{ProgramName, TestRunResult};
