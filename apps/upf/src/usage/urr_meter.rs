//! Meter of a URR: its counters as read from a lane, and its time of use.

use crate::rules::layout::counter_slots::{
    DOWNLINK_OCTETS, DOWNLINK_PACKETS, EVENTS, LAST, UPLINK_OCTETS, UPLINK_PACKETS, WORDS, event,
};
use crate::rules::layout::message::SessionEvent;
use crate::session::{Progress, Urr};
use crate::time::SECOND;

/// Event bits in the word of events.
const EVENT_BITS: u64 = 0xFFFF;

/// Access to the state slots that lanes write.
pub trait StateSlots {
    /// Returns the words of a state slot; zeros if it does not exist.
    fn line(&self, line: u32) -> [u64; WORDS];
}

/// State slot of a URR as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Uplink octets, uplink packets, downlink octets, downlink packets; they never decrease.
    pub counts: [u64; 4],
    /// Time of the last counted packet, in nanoseconds of `CLOCK_MONOTONIC`; 0 if none.
    pub last: u64,
    /// Bits of [`event`](crate::rules::layout::counter_slots::event) raised under the current
    /// rules.
    pub events: u64,
    /// First packet under the current rules, if a lane message reported it, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub first: Option<u64>,
}

impl Meter {
    /// Returns true if an event was raised.
    #[must_use]
    pub const fn has(&self, event: u64) -> bool {
        self.events & event != 0
    }

    /// Creates a meter from the words of a state slot. Only events of this version count.
    #[must_use]
    pub fn of(words: [u64; WORDS], version: u64) -> Self {
        let is_of_now = words[EVENTS] >> 32 == version & 0xFFFF_FFFF;
        Self {
            counts: [UPLINK_OCTETS, UPLINK_PACKETS, DOWNLINK_OCTETS, DOWNLINK_PACKETS]
                .map(|word| words[word]),
            last: words[LAST],
            events: if is_of_now { words[EVENTS] & EVENT_BITS } else { 0 },
            first: None,
        }
    }

    /// Reads the meter of a URR.
    #[must_use]
    pub fn read<L: StateSlots + ?Sized>(lines: &L, urr: &Urr, version: u64) -> Self {
        Self::of(lines.line(urr.progress.line), version)
    }

    /// Adds the time of the first packet from a lane message about this slot.
    pub(super) fn told(self, line: u32, hint: Option<&SessionEvent>) -> Self {
        let is_start = |it: &&SessionEvent| it.line == line && it.events & event::START != 0;
        let first = hint.filter(is_start).map(|hint| hint.at);
        Self { first, ..self }
    }
}

/// Returns the time `seconds` after `moment`.
pub(super) const fn later(moment: u64, seconds: u32) -> u64 {
    moment.saturating_add(seconds as u64 * SECOND)
}

/// Returns the difference of two readings.
pub(super) fn between(before: [u64; 4], after: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|i| after[i].saturating_sub(before[i]))
}

impl Urr {
    /// Returns the time of use since the URR was created, up to `at`, in nanoseconds.
    pub(super) fn elapsed(&self, last: u64, at: u64) -> u64 {
        let Progress { running, elapsed, .. } = self.progress;
        if running == 0 {
            return elapsed;
        }
        let end = self.suspended_at(last).map_or(at, |end| end.min(at));
        elapsed.saturating_add(end.saturating_sub(running))
    }

    /// Returns the end of the time of use if no other packet arrives, if it is limited.
    pub(super) fn suspended_at(&self, last: u64) -> Option<u64> {
        let seconds = self.inactivity_s?;
        Some(later(last.max(self.progress.running), seconds))
    }
}
