//! Capture of the packets of a running lane.
//!
//! A [`Recorder`] observes the packets of a lane. A [`Capture`] reaches it through a
//! [`CaptureMailbox`], which costs the lane one load a turn. While a capture is active, the
//! recorder copies the packets of its [`Selection`] into a ring in shared memory, whose [`Record`]s
//! another process reads. The recorder neither allocates, locks nor waits: if the ring is full, the
//! packet is counted and not captured.
//!
//! A received packet is copied as it arrived, before the application sees it, and gets the verdict
//! of the application. A sent packet is copied as it leaves, with the result of sending it.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use fastlane_capture::{Capture, CaptureMailbox, Event, Record, Recorder, Selection};
//! use fastlane_core::{Lane, LaneConfig, Packet, Pool, Port, PortId, Verdict};
//! use fastlane_local::memory::Memory;
//! use fastlane_table::SharedMemory;
//! use fastlane_table::counters::Counters;
//! use fastlane_table::journal::{JournalReader, JournalWriter, size};
//!
//! let counters = Counters::create(1, 1)?;
//! let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
//! let queue = Memory::filled(PortId(0), &mut pool, 1, &[7; 60])?;
//! let port = Port {
//!     queues: vec![Box::new(queue)],
//!     kernel: None,
//!     filter: None,
//!     counters: counters.port(0, 0),
//! };
//! let config = LaneConfig::new(pool, vec![port], counters.lane(0));
//! let (burst, mailbox) = (config.burst, Arc::<CaptureMailbox>::default());
//! let mut lane = Lane::new(|_: &mut Packet| Verdict::Reflect, config);
//! lane.observe(Box::new(Recorder::new(Arc::clone(&mailbox), burst)));
//!
//! let memory = Arc::new(SharedMemory::create("capture", size(1 << 16))?);
//! let ring = JournalWriter::create(&memory, 0, 1 << 16)?;
//! let mut reader = JournalReader::attach(&memory, 0)?;
//! // The lane never frees memory: this thread keeps an `Arc` of the capture.
//! let capture = Arc::new(Capture { selection: Selection::default(), ring });
//! mailbox.put(Some(Arc::clone(&capture)));
//! lane.turn();
//! let mut bytes = Vec::new();
//! assert!(matches!(reader.next(&mut bytes), Ok(true)));
//! let record = Record::read(&bytes).expect("a whole record");
//! assert_eq!((record.event, record.bytes), (Event::Arrived, &[7; 60][..]));
//! # assert_eq!(lane.close(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use fastlane_core::{Mailbox, PortId, RawVerdict, Verdict};
use fastlane_table::journal::JournalWriter;

mod program;
mod record;
mod recorder;

pub use program::{Instruction, MAX_INSTRUCTIONS, Program, ProgramError};
pub use record::{Event, Record};
pub use recorder::Recorder;

/// Mailbox by which a recorder gets a capture; `None` ends it.
///
/// The lane drops its reference. The sender keeps an [`Arc`] of its own until it is the only one,
/// so that the lane frees no memory.
pub type CaptureMailbox = Mailbox<Option<Arc<Capture>>>;

/// Capture of one lane.
#[derive(Debug)]
pub struct Capture {
    /// Packets to capture.
    pub selection: Selection,
    /// Ring for the records, which no other capture may write.
    pub ring: JournalWriter,
}

/// Selection of packets.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Ports; all if empty.
    pub ports: Vec<PortId>,
    /// True to select packets that arrive.
    pub arriving: bool,
    /// True to select packets that leave.
    pub leaving: bool,
    /// Verdicts to select.
    pub verdicts: VerdictSet,
    /// Filter program.
    pub program: Option<Program>,
    /// Sampling: every `sample`th of the packets selected by the other fields; 0 and 1 select all.
    /// Packets that arrive are counted before they have a verdict.
    pub sample: u64,
    /// Maximum number of captured bytes of a packet.
    pub snap_length: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            arriving: true,
            leaving: true,
            verdicts: VerdictSet::ALL,
            program: None,
            sample: 1,
            snap_length: usize::MAX,
        }
    }
}

/// Set of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictSet(u8);

impl VerdictSet {
    /// Every verdict, and packets without one.
    pub const ALL: Self = Self(u8::MAX);
    /// No verdict.
    pub const NONE: Self = Self(0);
    /// The verdict `Kernel`.
    pub const KERNEL: Self = Self(1);
    /// The verdict `Drop`.
    pub const DROP: Self = Self(2);
    /// The verdict `Reflect`.
    pub const REFLECT: Self = Self(4);
    /// `Forward`, to any port.
    pub const FORWARD: Self = Self(8);
    /// Values without a meaning, which are dropped.
    pub const INVALID: Self = Self(16);
    /// `Hold`, under any key.
    pub const HOLD: Self = Self(32);

    /// Returns the union of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the set contains a verdict.
    #[inline]
    pub(crate) fn contains(self, verdict: RawVerdict) -> bool {
        let verdict = match verdict.verdict() {
            Some(Verdict::Kernel) => Self::KERNEL,
            Some(Verdict::Drop) => Self::DROP,
            Some(Verdict::Reflect) => Self::REFLECT,
            Some(Verdict::Forward(_)) => Self::FORWARD,
            Some(Verdict::Hold(_)) => Self::HOLD,
            None => Self::INVALID,
        };
        self.0 & verdict.0 != 0
    }
}

#[cfg(test)]
mod tests;
