//! Copies of the packets of a running application, for whoever attaches to its session.
//!
//! A [`Client`](crate::session::Client) sends a [`Request`] and gets [`Copies`]: a ring for each
//! lane in shared memory, which the lane fills and the client empties. A ring that is full is a
//! packet not captured, never a lane that waits. The capture ends with the connection.

use serde::{Deserialize, Serialize};

pub use fastlane_capture::{Event, Instruction, MAX_INSTRUCTIONS, Record};
pub use fastlane_local::pcap::pcapng;

mod captures;
mod stream;

pub(crate) use captures::Captures;
pub use stream::{CaptureStream, CapturedPacket, Damaged};

/// The fewest and the most bytes of a ring. A power of two.
pub const RING_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=1 << 28;
/// The most bytes of all rings of a capture.
pub const MOST_BYTES: usize = 1 << 30;

/// What is to be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Request {
    /// In these lanes; in all when there is none.
    pub lanes: Vec<usize>,
    /// Packets of these ports, by their places in the application's list; of all when there is
    /// none.
    pub ports: Vec<u16>,
    /// Packets that arrive.
    pub arriving: bool,
    /// Packets that leave.
    pub leaving: bool,
    /// Packets with one of these labels; with any when there is none. What Linux sends has none.
    pub labels: Vec<Label>,
    /// Packets that this program accepts: code, jump if true, jump if false, operand.
    pub program: Option<Vec<(u16, u8, u8, u32)>>,
    /// Of these each so many-th in each lane; 1 is all.
    pub sample: u64,
    /// The most bytes of each packet.
    pub snap_length: u32,
    /// Bytes of the ring of each lane, in [`RING_BYTES`].
    pub ring_bytes: usize,
}

impl Default for Request {
    /// Everything.
    fn default() -> Self {
        Self {
            lanes: vec![],
            ports: vec![],
            arriving: true,
            leaving: true,
            labels: vec![],
            program: None,
            sample: 1,
            snap_length: 1 << 18,
            ring_bytes: 8 << 20,
        }
    }
}

/// A label that a packet can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// It belongs to Linux.
    Kernel,
    /// Nobody needs it.
    Drop,
    /// Back out of its port.
    Reflect,
    /// Out of another port.
    Forward,
    /// Not yet: the lane keeps it.
    Hold,
    /// A word that means nothing; the packet is dropped.
    Invalid,
}

/// What the application answers: the lanes of the rings, in the order of the rings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct CaptureGrant {
    pub(crate) lanes: Vec<usize>,
}

#[cfg(test)]
mod tests;
