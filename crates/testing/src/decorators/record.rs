//! Keeps every frame.

use fastlane_core::Packet;

use super::{Direction, Note, Noting};

/// A frame that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Which way.
    pub direction: Direction,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

impl Note for Recorded {
    fn of(direction: Direction, packet: &Packet) -> Self {
        Self { direction, frame: packet.bytes().to_vec() }
    }
}

/// A queue that keeps a copy of every frame.
pub type Record = Noting<Recorded>;
