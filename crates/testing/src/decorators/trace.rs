//! Says what passes.

use std::fmt;

use fastlane_core::{Packet, PortId, RawVerdict};

use super::{Direction, Note, Noting};

/// One packet that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which way.
    pub direction: Direction,
    /// Where it came from.
    pub port: PortId,
    /// Its length in bytes.
    pub length: usize,
    /// Its label when it passed.
    pub verdict: RawVerdict,
    /// As much of the Ethernet header as there was; zeros behind.
    pub ethernet: [u8; 14],
}

impl Note for Event {
    fn of(direction: Direction, packet: &Packet) -> Self {
        let mut ethernet = [0; 14];
        let length = packet.len().min(14);
        ethernet[..length].copy_from_slice(&packet.bytes()[..length]);
        let (port, verdict) = (packet.port(), packet.verdict());
        Self { direction, port, length: packet.len(), verdict, ethernet }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |at: usize| {
            self.ethernet[at..at + 6].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>()
        };
        let ethertype = u16::from_be_bytes([self.ethernet[12], self.ethernet[13]]);
        write!(
            f,
            "port {} {:?} {} > {} {ethertype:#06x} {} bytes",
            self.port.0,
            self.direction,
            address(6).join(":"),
            address(0).join(":"),
            self.length
        )
    }
}

/// A queue that notes what every packet was.
pub type Trace = Noting<Event>;
