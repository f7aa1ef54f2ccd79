//! Readings of the counters of sessions, and what was counted between two of them.

use crate::session::SessionIndex;
use crate::transactions::Counts;

/// Octets and packets of a session between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedPeriod {
    /// Time of the first reading, in nanoseconds of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// Octets and packets since then.
    pub counts: Counts,
}

/// Last reading of a session.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// UP SEID; 0 without a reading.
    seid: u64,
    /// Time in nanoseconds of `CLOCK_MONOTONIC`.
    at: u64,
    counters: Counts,
}

/// Last readings of all sessions. Memory: 48 octets for each session index up to the highest.
#[derive(Debug, Default)]
pub struct Readings {
    by_index: Vec<Reading>,
}

impl Readings {
    /// Replaces the reading of a session. Returns what was counted since the last one; `None`
    /// without one. `at` is the time in nanoseconds of `CLOCK_MONOTONIC`.
    pub fn read(
        &mut self,
        id: SessionIndex,
        seid: u64,
        at: u64,
        counters: Counts,
    ) -> Option<CountedPeriod> {
        let index = id.0 as usize;
        if index >= self.by_index.len() {
            self.by_index.resize(index + 1, Reading::default());
        }
        let next = Reading { seid, at, counters };
        let before = std::mem::replace(&mut self.by_index[index], next);
        (before.seid == seid && seid != 0).then(|| CountedPeriod {
            since: before.at,
            counts: std::array::from_fn(|i| counters[i].wrapping_sub(before.counters[i])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_session_at_the_same_index_begins_anew() {
        let mut readings = Readings::default();
        let id = SessionIndex(7);
        assert_eq!(readings.read(id, 1 << 32 | 7, 10, [5, 1, 0, 0]), None);
        let counted = readings.read(id, 1 << 32 | 7, 30, [9, 2, u64::MAX, 0]);
        assert_eq!(counted, Some(CountedPeriod { since: 10, counts: [4, 1, u64::MAX, 0] }));
        // Counters wrap, and are not zeroed when the session changes.
        assert_eq!(readings.read(id, 2 << 32 | 7, 40, [9, 2, 3, 0]), None);
        let counted = readings.read(id, 2 << 32 | 7, 50, [9, 2, 2, 0]);
        assert_eq!(counted, Some(CountedPeriod { since: 40, counts: [0, 0, u64::MAX, 0] }));
    }
}
