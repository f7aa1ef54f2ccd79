//! Copies of packets for whoever looks on, while a lane runs.
//!
//! A [`Capture`] reaches a lane through a [`CaptureMailbox`], which costs the lane one load a turn.
//! While there is one, the lane copies the packets that its [`Selection`] wants into a ring in
//! shared memory. It neither allocates, locks nor waits for it: when the ring is full, the packet
//! is not captured, and counted.
//!
//! What arrives is copied *as it arrived*, before the application sees it, and gets the label that
//! the application has given it. What leaves is copied as it leaves, with what became of it.

use std::sync::Arc;

use fastlane_table::journal::JournalWriter;

use crate::{Mailbox, PortId, RawVerdict, Verdict};

mod program;
mod record;
mod recorder;

pub use program::{Fault, Instruction, MOST_INSTRUCTIONS, Program};
pub use record::{Event, Record};
pub(crate) use recorder::{Departure, Recorder};

/// How a lane is told to capture, and by `None` to end it.
///
/// The lane drops what it is given: the giver keeps an [`Arc`] of its own until it is the only one,
/// so that the lane frees no memory.
pub type CaptureMailbox = Mailbox<Option<Arc<Capture>>>;

/// A capture of one lane.
#[derive(Debug)]
pub struct Capture {
    /// Which packets.
    pub selection: Selection,
    /// Where their copies go. No other capture may write there.
    pub ring: JournalWriter,
}

/// Which packets are captured.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Of these ports; of all when there is none.
    pub ports: Vec<PortId>,
    /// What arrives.
    pub arriving: bool,
    /// What leaves.
    pub leaving: bool,
    /// What has one of these labels.
    pub labels: Labels,
    /// What this program accepts.
    pub program: Option<Program>,
    /// Of what is selected so far only each `sample`th; 0 and 1 are all. (What arrives has no label
    /// yet when it is counted for this.)
    pub sample: u64,
    /// The most bytes of a packet.
    pub snap_length: usize,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            ports: Vec::new(),
            arriving: true,
            leaving: true,
            labels: Labels::ALL,
            program: None,
            sample: 1,
            snap_length: usize::MAX,
        }
    }
}

/// A set of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels(u8);

impl Labels {
    /// Every label, and none.
    pub const ALL: Self = Self(u8::MAX);
    /// No label.
    pub const NONE: Self = Self(0);
    /// `Kernel`.
    pub const KERNEL: Self = Self(1);
    /// `Drop`.
    pub const DROP: Self = Self(2);
    /// `Reflect`.
    pub const REFLECT: Self = Self(4);
    /// `Forward`, to whatever port.
    pub const FORWARD: Self = Self(8);
    /// What means nothing, and is dropped.
    pub const INVALID: Self = Self(16);
    /// `Hold`, under whatever key.
    pub const HOLD: Self = Self(32);

    /// Those of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a label is in the set.
    #[inline]
    pub(crate) fn contain(self, label: RawVerdict) -> bool {
        let label = match label.verdict() {
            Some(Verdict::Kernel) => Self::KERNEL,
            Some(Verdict::Drop) => Self::DROP,
            Some(Verdict::Reflect) => Self::REFLECT,
            Some(Verdict::Forward(_)) => Self::FORWARD,
            Some(Verdict::Hold(_)) => Self::HOLD,
            None => Self::INVALID,
        };
        self.0 & label.0 != 0
    }
}

#[cfg(test)]
mod tests;
