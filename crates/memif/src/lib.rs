//! Native memif: a port between two processes over memory that they share.
//!
//! The protocol is memif 2.0, which DPDK and VPP implement too. [`open`] creates a server or a
//! client; neither needs a privilege. A control thread of the port listens or connects, runs the
//! handshake and maps the memory. It hands each lane's [`MemifQueue`] its rings when a peer
//! connects, and the lane drops them when the peer disconnects, so nothing is unmapped that a lane
//! may touch.
//!
//! The peer is not trusted. Frames are copied into the lane's pool before anyone parses them, and a
//! descriptor is copied before it is checked. An invalid descriptor is dropped and counted; a peer
//! whose ring indices are impossible is disconnected. The peer may be killed at any instruction.
//!
//! Limits: the mode is Ethernet, and a port has a socket of its own. A server shares at most 1 GiB
//! with its client. It refuses memory in huge pages, because a hole in them can kill the process
//! that reads it (SIGBUS); a DPDK client uses them with `zero-copy=yes`, a VPP client without
//! `no-zero-copy`. Holes in other memory are filled at the cost of the process that touches them
//! (Linux, admin-guide/cgroup-v2, "Memory Ownership"). So where clients are not trusted, the memory
//! limit of a server must leave 1 GiB free for each port, and `vm.overcommit_memory` must not be 2.

mod agreement;
mod channel;
mod client;
mod connection;
mod control;
mod doorbell;
mod error;
mod established;
pub mod fuzz;
mod handshake;
mod layout;
mod link;
mod message;
mod queue;
mod receiver;
mod region;
mod ring;
mod server;
mod settings;
mod state;
mod transmitter;

pub use error::Error;
pub use link::{Link, open};
pub use queue::MemifQueue;
pub use settings::{Address, MemifSettings, Role};
pub use state::State;
