//! What a lane has counted, and the clocks.

use crate::session::{Progress, Urr};
use crate::time::Now;
use crate::time::SECOND;

/// The line of state of a URR as it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Octets up, packets up, octets down, packets down; they only ever grow.
    pub counts: [u64; 4],
    /// The last packet that was counted: nanoseconds of `CLOCK_MONOTONIC`; 0: none.
    pub last: u64,
    /// Bits of [`event`](crate::rules::layout::state::event) that were raised under the rules in force.
    pub events: u64,
    /// The first packet under the rules in force, if a lane's message said so: nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub first: Option<u64>,
}

impl Meter {
    /// Whether an event was raised.
    #[must_use]
    pub const fn has(&self, event: u64) -> bool {
        self.events & event != 0
    }
}

impl Now {
    /// A moment of the monotonic clock on the wall clock.
    #[must_use]
    pub const fn real_of(self, monotonic: u64) -> u64 {
        let ago = self.monotonic.saturating_sub(monotonic);
        let ahead = monotonic.saturating_sub(self.monotonic);
        self.real.saturating_sub(ago).saturating_add(ahead)
    }

    /// A moment of the wall clock on the monotonic one.
    #[must_use]
    pub const fn monotonic_of(self, real: u64) -> u64 {
        let ago = self.real.saturating_sub(real);
        let ahead = real.saturating_sub(self.real);
        self.monotonic.saturating_sub(ago).saturating_add(ahead)
    }
}

/// So many seconds after a moment.
pub(super) const fn later(moment: u64, seconds: u32) -> u64 {
    moment.saturating_add(seconds as u64 * SECOND)
}

/// What was counted from one reading to a later one.
pub(super) fn between(before: [u64; 4], after: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|i| after[i].saturating_sub(before[i]))
}

impl Urr {
    /// Nanoseconds of use up to a moment, since the URR was created.
    pub(super) fn elapsed(&self, last: u64, at: u64) -> u64 {
        let Progress { running, elapsed, .. } = self.progress;
        if running == 0 {
            return elapsed;
        }
        let end = self.suspended_at(last).map_or(at, |end| end.min(at));
        elapsed.saturating_add(end.saturating_sub(running))
    }

    /// When the use of time ends, if no other packet comes and it is to end then.
    pub(super) fn suspended_at(&self, last: u64) -> Option<u64> {
        let seconds = self.inactivity_s?;
        Some(later(last.max(self.progress.running), seconds))
    }
}
