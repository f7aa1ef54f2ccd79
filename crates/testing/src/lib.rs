//! Test support of drivers and applications: a dev-dependency, never part of a program.
//!
//! * [`mod@conformance`]: the suite that every driver passes; a driver implements [`Rig`] and
//!   instantiates the suite with one line, [`conformance!`].
//! * [`corpus`]: committed corpora of the fuzz targets, replayed and compared.
//! * [`decorators`]: queues around queues that inject faults or record packets.
//! * [`lists`]: ports backed by lists of frames.
//! * [`memory_only`]: runs a function that must make no system call.
//! * [`namespace`]: network namespaces, veth pairs, raw sockets as peers.
//! * [`frames_of`]: frames of a capture file.
//! * [`sleeping_lane`], [`lanes_of`], [`guard`]: readers of tables that are written between turns.
//! * [`skip`]: skips a test that this machine cannot run, and fails unless that is allowed.

#![deny(unsafe_code)]

mod capture;
pub mod conformance;
pub mod corpus;
pub mod decorators;
mod frame;
pub mod lists;
mod losses;
mod memory_only;
pub mod namespace;
mod readers;
mod rig;
mod skip;

pub use capture::frames_of;
pub use frame::{Addresses, DEVICE_IP, PEER_IP, STRANGER_IP, Tag, UDP_PORT};
pub use losses::all_losses;
pub use memory_only::memory_only;
pub use readers::{guard, lanes_of, sleeping_lane};
pub use rig::{LaneRig, Peer, Rig, Spec};
pub use skip::skip;
