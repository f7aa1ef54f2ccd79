//! What the tests of the drivers share: a dev-dependency, never part of a program.
//!
//! * [`conformance`]: the suite that every driver passes; a driver implements [`Rig`] and writes
//!   one line, [`conformance!`].
//! * [`corpus`]: what is committed for the fuzz targets, replayed and kept up to date.
//! * [`decorators`]: queues around queues that lose, note or keep what passes.
//! * [`lists`]: ports that are lists of frames.
//! * [`namespace`]: network namespaces, veth pairs, raw sockets as peers.
//! * [`frames_of`]: the frames of a capture.
//! * [`skip`]: a test that this machine cannot run says so, by name, and fails unless that is
//!   allowed.

#![deny(unsafe_code)]

mod capture;
pub mod conformance;
pub mod corpus;
pub mod decorators;
mod frame;
pub mod lists;
pub mod namespace;
mod rig;
mod skip;

pub use capture::frames_of;
pub use frame::{Addresses, DEVICE_IP, PEER_IP, STRANGER_IP, Tag, UDP_PORT};
pub use rig::{LaneRig, Peer, Rig, Spec};
pub use skip::skip;
