//! Native memif: a port between two processes, in memory that they share.
//!
//! The protocol is memif 2.0, which DPDK and VPP speak too: [`open`] makes a server or a client of
//! it, neither of which needs a privilege. A thread of the port's listens or connects, shakes hands
//! and maps the memory; each lane's [`MemifQueue`] gets its rings from there when a peer comes and
//! lets go of them when it goes, so that nothing is unmapped that a lane may touch.
//!
//! The peer is not trusted. Frames are copied into the lane's pool before anyone looks at them, and
//! a descriptor is copied before it is checked; what does not fit is dropped and counted, and a
//! peer whose rings cannot be is disconnected. It may be killed at any instruction.
//!
//! Limits: the mode is Ethernet; a port has a socket of its own; a server shares at most 1 GiB with
//! its client and refuses memory in huge pages, which a DPDK client has with `zero-copy=yes` and a
//! VPP client without `no-zero-copy`, because a hole in them can kill who reads it. Holes in other
//! memory are filled at the cost of who touches them (Linux, admin-guide/cgroup-v2, "Memory
//! Ownership"): where clients are not trusted, the memory limit of a server leaves as much free for
//! each port, and `vm.overcommit_memory` is not 2.

mod channel;
mod client;
mod connection;
mod control;
mod error;
pub mod fuzz;
mod handshake;
mod link;
mod live;
mod message;
mod queue;
mod receiver;
mod region;
mod ring;
mod server;
mod settings;
mod transmitter;

pub use error::Error;
pub use link::{Link, State, open};
pub use queue::MemifQueue;
pub use settings::{Address, MemifSettings, Role};
