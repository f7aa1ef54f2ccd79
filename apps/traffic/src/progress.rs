//! What the lanes tell each other during a run.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Answers to the frames that one lane sent. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Answered {
    /// Frames that came back, from whichever lane saw them.
    count: AtomicU64,
    /// Frames sent at this time or before are given up, so they are no answers any more.
    given_up_at: AtomicU64,
}

/// What one lane has seen. On cache lines of its own; only that lane writes it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Seen {
    /// All frames of this program.
    arrivals: AtomicU64,
    /// Those received: intact, each once.
    received: AtomicU64,
}

/// The state of a run that the lanes share. Each number has one writer; only where the number of
/// outstanding packets is limited do lanes count answers for each other.
#[derive(Debug)]
pub struct Progress {
    answered: Box<[Answered]>,
    seen: Box<[Seen]>,
    /// Lanes that have not begun.
    absent: AtomicUsize,
    sending: AtomicUsize,
    /// Frames sent by the senders that are done.
    sent: AtomicU64,
    ending: AtomicBool,
    complete: AtomicBool,
}

impl Progress {
    /// A run of `lanes` lanes, of which `senders` send.
    #[must_use]
    pub fn new(lanes: usize, senders: usize) -> Self {
        Self {
            answered: (0..senders).map(|_| Answered::default()).collect(),
            seen: (0..lanes).map(|_| Seen::default()).collect(),
            absent: AtomicUsize::new(lanes),
            sending: AtomicUsize::new(senders),
            sent: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            complete: AtomicBool::new(false),
        }
    }

    /// A frame of `flow` that was sent at `sent` has come back. (Flows go round over the senders.)
    #[inline]
    pub fn answer(&self, flow: u16, sent: u64) {
        let senders = self.answered.len().max(1);
        let Some(answered) = self.answered.get(usize::from(flow) % senders) else { return };
        if sent > answered.given_up_at.load(Ordering::Relaxed) {
            answered.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many frames of this sender have come back and were not given up before.
    #[inline]
    pub(crate) fn answers(&self, sender: usize) -> u64 {
        self.answered[sender].count.load(Ordering::Relaxed)
    }

    /// The sender waits no longer for anything sent at `now` or before.
    pub(crate) fn give_up(&self, sender: usize, now: u64) {
        self.answered[sender].given_up_at.store(now, Ordering::Relaxed);
    }

    /// A lane is ready to receive.
    pub(crate) fn lane_has_begun(&self) {
        self.absent.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether all lanes are ready to receive.
    #[inline]
    pub(crate) fn all_have_begun(&self) -> bool {
        self.absent.load(Ordering::Relaxed) == 0
    }

    /// A sender has sent the last of its `packets`; true for the last one of all.
    pub(crate) fn sender_is_done(&self, packets: u64) -> bool {
        self.sent.fetch_add(packets, Ordering::Relaxed);
        self.sending.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether nothing is to be waited for any more: the run is complete, or all that was sent has
    /// been received.
    pub(crate) fn is_over(&self) -> bool {
        if !self.is_complete()
            && self.sending.load(Ordering::Acquire) == 0
            && self.received() >= self.sent.load(Ordering::Relaxed)
        {
            self.set_complete();
        }
        self.is_complete()
    }

    /// What the lane has seen so far.
    #[inline]
    pub(crate) fn publish(&self, lane: usize, arrivals: u64, received: u64) {
        self.seen[lane].arrivals.store(arrivals, Ordering::Relaxed);
        self.seen[lane].received.store(received, Ordering::Relaxed);
    }

    /// Frames of this program that have arrived at any lane.
    pub(crate) fn arrivals(&self) -> u64 {
        self.seen.iter().map(|seen| seen.arrivals.load(Ordering::Relaxed)).sum()
    }

    /// True when all lanes together have received `wanted` frames; to one of them, and once.
    pub(crate) fn has_received(&self, wanted: u64) -> bool {
        self.received() >= wanted && !self.ending.swap(true, Ordering::Relaxed)
    }

    fn received(&self) -> u64 {
        self.seen.iter().map(|seen| seen.received.load(Ordering::Relaxed)).sum()
    }

    /// The run has come to its end by itself.
    pub(crate) fn set_complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Whether the run came to its end, rather than being interrupted.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed)
    }
}
