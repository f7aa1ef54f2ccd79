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

/// The state of a run that all lanes write: relaxed counters, and none of them for each packet unless
/// the number of outstanding packets is limited.
#[derive(Debug)]
pub struct Progress {
    answered: Box<[Answered]>,
    sending: AtomicUsize,
    received: AtomicU64,
    ending: AtomicBool,
    complete: AtomicBool,
}

impl Progress {
    /// A run in which `senders` lanes send.
    #[must_use]
    pub fn new(senders: usize) -> Self {
        Self {
            answered: (0..senders).map(|_| Answered::default()).collect(),
            sending: AtomicUsize::new(senders),
            received: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            complete: AtomicBool::new(false),
        }
    }

    /// The sender of a flow.
    #[inline]
    fn of(&self, flow: u16) -> Option<&Answered> {
        self.answered.get(usize::from(flow) % self.answered.len().max(1))
    }

    /// A frame of `flow` that was sent at `sent` has come back.
    #[inline]
    pub fn answer(&self, flow: u16, sent: u64) {
        let Some(answered) = self.of(flow) else { return };
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

    /// A sender has sent its last; true for the last one of all.
    pub(crate) fn sender_is_done(&self) -> bool {
        self.sending.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// `packets` more have arrived; true when that makes `wanted`, once.
    pub(crate) fn arrived(&self, packets: u64, wanted: u64) -> bool {
        let received = self.received.fetch_add(packets, Ordering::Relaxed) + packets;
        received >= wanted && !self.ending.swap(true, Ordering::Relaxed)
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
