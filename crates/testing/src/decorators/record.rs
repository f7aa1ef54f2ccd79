//! Recording of frames.

use fastlane_core::Packet;

use super::{Direction, Note, Noting};

/// A recorded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Direction of the frame.
    pub direction: Direction,
    /// Bytes from the Ethernet header on.
    pub frame: Vec<u8>,
}

impl Note for Recorded {
    fn of(direction: Direction, packet: &Packet) -> Self {
        Self { direction, frame: packet.bytes().to_vec() }
    }
}

/// A queue that records a copy of every frame.
pub type Record = Noting<Recorded>;
