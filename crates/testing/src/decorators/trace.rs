//! Recording of packet metadata.

use std::fmt;

use fastlane_core::{Packet, PortId, RawVerdict};

use super::{Direction, Note, Noting};

/// Metadata of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Direction of the packet.
    pub direction: Direction,
    /// Port that has received the packet.
    pub port: PortId,
    /// Length in bytes.
    pub length: usize,
    /// Verdict of the packet.
    pub verdict: RawVerdict,
    /// Ethernet header, padded with zeros if the packet is shorter.
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

/// A queue that records the metadata of every packet.
pub type Trace = Noting<Event>;
