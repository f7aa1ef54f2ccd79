//! State that the lanes share during a run.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Returned frames of one sender. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SenderProgress {
    /// Number of frames that came back, at any lane.
    count: AtomicU64,
    /// Frames sent at this time or earlier are given up and do not count any more.
    given_up_at: AtomicU64,
}

/// Received frames of one lane. On cache lines of its own; only that lane writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct LaneProgress {
    /// Number of all frames of this program.
    arrivals: AtomicU64,
    /// Number of frames received: intact, each counted once.
    received: AtomicU64,
}

/// State of a run that the lanes share. Each number has one writer, except when the number of
/// outstanding packets is limited: then any lane counts returned frames for their sender.
#[derive(Debug)]
pub struct Progress {
    answered: Box<[SenderProgress]>,
    received: Box<[LaneProgress]>,
    /// Number of lanes that have not started.
    absent: AtomicUsize,
    sending: AtomicUsize,
    /// Number of frames sent by the senders that have finished.
    sent: AtomicU64,
    ending: AtomicBool,
    complete: AtomicBool,
}

impl Progress {
    /// Creates the state of a run of `lanes` lanes, of which `senders` send.
    #[must_use]
    pub fn new(lanes: usize, senders: usize) -> Self {
        Self {
            answered: (0..senders).map(|_| SenderProgress::default()).collect(),
            received: (0..lanes).map(|_| LaneProgress::default()).collect(),
            absent: AtomicUsize::new(lanes),
            sending: AtomicUsize::new(senders),
            sent: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            complete: AtomicBool::new(false),
        }
    }

    /// Registers that a frame of `flow`, sent at `sent`, has come back. Flows are assigned to
    /// senders round robin.
    #[inline]
    pub fn answer(&self, flow: u16, sent: u64) {
        let senders = self.answered.len().max(1);
        let Some(answered) = self.answered.get(usize::from(flow) % senders) else { return };
        if sent > answered.given_up_at.load(Ordering::Relaxed) {
            answered.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of this sender's frames that came back before they were given up.
    #[inline]
    pub(crate) fn answers(&self, sender: usize) -> u64 {
        self.answered[sender].count.load(Ordering::Relaxed)
    }

    /// Gives up the frames that `sender` sent at `now` or earlier.
    pub(crate) fn give_up(&self, sender: usize, now: u64) {
        self.answered[sender].given_up_at.store(now, Ordering::Relaxed);
    }

    /// Registers that a lane is ready to receive.
    pub(crate) fn lane_has_begun(&self) {
        self.absent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if all lanes are ready to receive.
    #[inline]
    pub(crate) fn all_have_begun(&self) -> bool {
        self.absent.load(Ordering::Relaxed) == 0
    }

    /// Registers that a sender has finished after `packets` packets. Returns true for the last
    /// sender.
    pub(crate) fn sender_is_done(&self, packets: u64) -> bool {
        self.sent.fetch_add(packets, Ordering::Relaxed);
        self.sending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Returns true if the run is complete or all frames sent have been received.
    pub(crate) fn is_over(&self) -> bool {
        if !self.is_complete()
            && self.sending.load(Ordering::Acquire) == 0
            && self.received() >= self.sent.load(Ordering::Relaxed)
        {
            self.set_complete();
        }
        self.is_complete()
    }

    /// Publishes the arrivals and received frames of a lane.
    #[inline]
    pub(crate) fn publish(&self, lane: usize, arrivals: u64, received: u64) {
        self.received[lane].arrivals.store(arrivals, Ordering::Relaxed);
        self.received[lane].received.store(received, Ordering::Relaxed);
    }

    /// Returns the number of frames of this program that arrived at any lane.
    pub(crate) fn arrivals(&self) -> u64 {
        self.received.iter().map(|lane| lane.arrivals.load(Ordering::Relaxed)).sum()
    }

    /// Returns true if all lanes together have received `wanted` frames. It does so once, to one
    /// lane.
    pub(crate) fn has_received(&self, wanted: u64) -> bool {
        self.received() >= wanted && !self.ending.swap(true, Ordering::Relaxed)
    }

    fn received(&self) -> u64 {
        self.received.iter().map(|lane| lane.received.load(Ordering::Relaxed)).sum()
    }

    /// Marks the run as complete: it was not interrupted.
    pub(crate) fn set_complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Returns true if the run ended by itself, false if it was interrupted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }
}
