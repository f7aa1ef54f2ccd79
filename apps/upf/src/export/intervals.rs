//! Usage of sessions in equal periods.
//!
//! Each session is read once in a period, at a time that depends on its index: the work and the
//! lines are spread evenly. A session that used nothing has no line.

use crate::pfcp::sessions::Sessions;
use crate::time::{Now, SECOND};
use crate::transactions::{SessionIdentity, UsageRecord};
use crate::usage::{CountedPeriod, Readings};

/// Maximum number of session indices visited in one call, so that requests wait for few.
const VISITED: u32 = 16_384;

/// Periods of all sessions.
#[derive(Debug)]
pub(super) struct Intervals {
    /// Length of a period in nanoseconds.
    length: u64,
    /// Start of the current round, in nanoseconds of `CLOCK_MONOTONIC`.
    round: u64,
    /// Next session index to visit.
    next: u32,
    readings: Readings,
}

impl Intervals {
    /// Creates periods of this many seconds, which begin now.
    pub(super) fn new(seconds: u32, now: Now) -> Self {
        let length = u64::from(seconds.max(1)) * SECOND;
        Self { length, round: now.monotonic, next: 0, readings: Readings::default() }
    }

    /// Reads the counters of a session that has begun or that ends. Returns its usage since the
    /// last reading, unless there was none.
    pub(super) fn read(&mut self, record: &UsageRecord, now: Now) -> Option<CountedPeriod> {
        let SessionIdentity { index, seid, .. } = record.session;
        used(self.readings.read(index, seid, now.monotonic, record.counters))
    }

    /// Visits the sessions that are due by now, and appends those with usage. The first visit of a
    /// session that a former process has served only reads its counters.
    pub(super) fn advance(
        &mut self,
        sessions: &Sessions,
        now: Now,
        to: &mut Vec<(SessionIdentity, CountedPeriod)>,
    ) {
        let capacity = sessions.capacity();
        let elapsed = now.monotonic.saturating_sub(self.round).min(self.length);
        let due = u128::from(capacity) * u128::from(elapsed) / u128::from(self.length);
        let end = (due as u32).min(self.next.saturating_add(VISITED));
        for (id, seid) in sessions.seids_in(self.next..end) {
            let counters = sessions.published().counters(id.0);
            let period = used(self.readings.read(id, seid, now.monotonic, counters));
            let session = period.and_then(|period| Some((sessions.get(id)?, period)));
            to.extend(session.map(|(session, period)| (SessionIdentity::of(&session), period)));
        }
        self.next = self.next.max(end);
        if elapsed == self.length && self.next >= capacity {
            self.next = 0;
            // Periods that a slow round has missed are not made up for.
            let passed = now.monotonic.saturating_sub(self.round) / self.length * self.length;
            self.round = self.round.saturating_add(passed);
        }
    }
}

/// Returns a period in which something was counted.
fn used(period: Option<CountedPeriod>) -> Option<CountedPeriod> {
    period.filter(|period| period.counts != [0; 4])
}
