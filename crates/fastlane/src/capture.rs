//! Packet capture: copies of the packets of a running application for a client of its session.
//!
//! A [`Client`](crate::session::Client) sends a [`Request`] and receives a [`CaptureStream`]: one
//! ring per lane in shared memory, which the lane fills and the client empties. If a ring is full,
//! packets are not captured and counted as lost; the lane never waits. The capture ends with the
//! connection.
//!
//! # Examples
//! Counting the packets that arrive during one second:
//! ```no_run
//! use std::time::{Duration, Instant};
//!
//! use fastlane::capture::{Damaged, Request};
//! use fastlane::session;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = session::connect(&session::path("firewall"))?;
//! let mut stream = client.capture(&Request { leaving: false, ..Request::default() })?;
//! let (start, mut packets) = (Instant::now(), 0_u64);
//! while start.elapsed() < Duration::from_secs(1) {
//!     let read = stream.read::<Damaged>(false, |_packet| {
//!         packets += 1;
//!         Ok(())
//!     })?;
//!     if read == 0 {
//!         std::thread::sleep(Duration::from_millis(10));
//!     }
//! }
//! println!("{packets} packets, {} lost", stream.lost());
//! # Ok(())
//! # }
//! ```

use serde::{Deserialize, Serialize};

pub use fastlane_capture::{Event, Instruction, MAX_INSTRUCTIONS, Program, Record};
pub use fastlane_local::pcap::pcapng;

mod capture_file;
mod captures;
mod stream;

pub use capture_file::{CaptureFile, CaptureFileError, CaptureInterface};

pub(crate) use captures::Captures;
pub use stream::{CaptureStream, CapturedPacket, Damaged};

/// Allowed sizes of a ring in bytes; powers of two.
pub const RING_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=1 << 28;
/// Maximum size of all rings of a capture in bytes.
pub const MOST_BYTES: usize = 1 << 30;

/// Selection of packets to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Request {
    /// Lanes to capture in; empty for all.
    pub lanes: Vec<usize>,
    /// Ports to capture on, by their index in the application's list; empty for all.
    pub ports: Vec<u16>,
    /// True to capture received packets.
    pub arriving: bool,
    /// True to capture transmitted packets.
    pub leaving: bool,
    /// Verdicts to capture; empty for all. Packets from Linux have no verdict.
    pub labels: Vec<Label>,
    /// Classic BPF program that accepts packets: code, jump if true, jump if false, operand.
    pub program: Option<Vec<(u16, u8, u8, u32)>>,
    /// Sampling interval: every `sample`-th selected packet of each lane; 1 captures all.
    pub sample: u64,
    /// Maximum number of bytes captured per packet.
    pub snap_length: u32,
    /// Size of each lane's ring in bytes, within [`RING_BYTES`].
    pub ring_bytes: usize,
}

impl Default for Request {
    /// Selects every packet.
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

/// Verdict of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// Passed to Linux.
    Kernel,
    /// Dropped by the application.
    Drop,
    /// Transmitted on the port on which it arrived.
    Reflect,
    /// Transmitted on another port.
    Forward,
    /// Held by the lane.
    Hold,
    /// Invalid verdict; the packet is dropped.
    Invalid,
}

/// Reply to a capture request: the lanes of the rings, in the order of the rings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct CaptureGrant {
    pub(crate) lanes: Vec<usize>,
}

#[cfg(test)]
mod tests;
