//! Prediction of gaps: what an adaptive lane learns from the time until packets arrive.
//!
//! An idle period lasts from the first turn without work to the next one with work. In a period
//! the lane takes up to three steps, in this order: [`Step::Poll`], [`Step::Gather`] and
//! [`Step::Wait`]. [`GapPredictor`] keeps an account for each of the first two and lets the lane
//! take a step only as long as it has paid.
//!
//! * A poll in vain is paid with what earlier polls have saved. So the lane polls in vain at most
//!   as often as with success, besides one period in [`PROBE_PERIODS`], in which it polls anyway.
//! * A nap is taken only after packets came soon enough to form a burst in it, and only as long as
//!   they do. A peer that waits for each reply sends one packet in a nap, however long it is.

/// Longest time that a lane polls in an idle period, in nanoseconds. It is about what it costs to
/// sleep and to be woken, so that polling at most doubles the cost of a period. It is longer than a
/// round trip on a fast link, so that a peer which waits for each reply finds the lane awake.
pub(super) const WAKE_UP: u64 = 8_000;
/// Length of a nap in which packets gather, in nanoseconds, and the delay that it may add. A lane
/// that naps predicts gaps of more than [`WAKE_UP`], so about twelve packets arrive at most. If the
/// rate rises, a receive ring of 1024 slots still holds the packets of a nap at 10 million a
/// second.
/// (Linux adds about 50 microseconds of timer slack unless the thread sets less, as lanes do.)
pub(super) const GATHER: u64 = 100_000;
/// Number of idle periods of which one measures the gap: the lane polls, does not nap, and waits.
pub(super) const PROBE_PERIODS: u32 = 32;
/// Upper bound of the savings of polling, in nanoseconds: eight polls in vain.
const MAX_SAVED: u64 = 8 * WAKE_UP;
/// Number of packets in a nap that make it as good as waiting for an interrupt. Fewer are a loss:
/// they were delayed, and saved no wake-up.
const BREAK_EVEN: i32 = 2;
/// Upper bound of the balance of naps, in packets.
const MAX_GATHERED: i32 = 8;
/// Balance of naps after too many that gathered nothing. Each short wait raises it by one. A peer
/// for which naps are wrong but whose packets come soon is thus delayed by less than 1 % of them.
const GATHERED_IN_VAIN: i32 = -128;

/// Step of an idle period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Polls again at once.
    Poll,
    /// Naps while packets gather.
    Gather,
    /// Waits for an interrupt.
    Wait,
}

/// Predictor of the next gap, and of the step that is the cheapest way to pass it.
#[derive(Debug, Default)]
pub(super) struct GapPredictor {
    /// Time that polls have saved and not yet spent, in nanoseconds.
    saved: u64,
    /// Balance of naps, in packets above [`BREAK_EVEN`].
    gathered: i32,
    /// Number of idle periods.
    periods: u32,
    polls: bool,
    gathers: bool,
}

impl GapPredictor {
    /// Begins an idle period. The lane can nap in it if `may_gather` is true.
    pub(super) fn begin(&mut self, may_gather: bool) {
        let is_probe = self.periods.is_multiple_of(PROBE_PERIODS);
        self.periods = self.periods.wrapping_add(1);
        self.polls = is_probe || self.saved > 0;
        self.gathers = may_gather && !is_probe && self.gathered > 0;
    }

    /// Returns true if polling is a step of this period.
    pub(super) fn polls(&self) -> bool {
        self.polls
    }

    /// Returns true if gathering is a step of this period.
    pub(super) fn gathers(&self) -> bool {
        self.gathers
    }

    /// Ends an idle period of `idle` nanoseconds, whose last step was `step`, with a turn that had
    /// `work`.
    pub(super) fn end(&mut self, step: Step, idle: u64, work: usize) {
        if step == Step::Poll {
            let gain = WAKE_UP.saturating_sub(idle);
            self.saved = (self.saved + gain).min(MAX_SAVED);
            return;
        }
        if self.polls {
            self.saved = self.saved.saturating_sub(WAKE_UP);
        }
        if self.gathers {
            let packets = if step == Step::Gather { work.min(MAX_GATHERED as usize) } else { 0 };
            self.gathered = (self.gathered + packets as i32 - BREAK_EVEN).min(MAX_GATHERED);
            if self.gathered <= 0 {
                self.gathered = GATHERED_IN_VAIN;
            }
        } else if idle < GATHER / 2 {
            self.gathered = (self.gathered + 1).min(MAX_GATHERED);
        } else {
            self.gathered = self.gathered.min(0);
        }
    }
}
