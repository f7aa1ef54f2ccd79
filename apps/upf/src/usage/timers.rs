//! Evaluation times of sessions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::session::SessionIndex;

/// Heap of deadlines, at most one valid per session. Setting one and taking the earliest cost
/// logarithmic time; no operation visits all sessions.
///
/// Memory: 8 bytes per session index, and 16 per deadline.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Valid deadline of each session; 0 if none. Other heap entries are obsolete.
    set: Vec<u64>,
}

impl Timers {
    /// Creates an empty heap for `capacity` session indices.
    #[must_use]
    pub(super) fn new(capacity: u32) -> Self {
        Self { heap: BinaryHeap::new(), set: vec![0; capacity as usize] }
    }

    /// Replaces the deadline of a session. `None` removes it.
    pub(super) fn set(&mut self, session: SessionIndex, at: Option<u64>) {
        let Some(place) = self.set.get_mut(session.0 as usize) else { return };
        let at = at.map_or(0, |at| at.max(1));
        let is_new = at != 0 && *place != at;
        *place = at;
        if is_new {
            self.heap.push(Reverse((at, session.0)));
        }
        if self.heap.len() > 64 + 4 * self.set.len() {
            self.sweep();
        }
    }

    /// Moves the deadline of a session forward to `at`, if it is later or absent.
    pub(super) fn sooner(&mut self, session: SessionIndex, at: u64) {
        let set = self.set.get(session.0 as usize).copied().filter(|set| *set != 0);
        self.set(session, Some(set.map_or(at, |set| set.min(at))));
    }

    /// Takes a session whose deadline has passed.
    pub(super) fn take(&mut self, now: u64) -> Option<SessionIndex> {
        while let Some(&Reverse((at, session))) = self.heap.peek() {
            let place = self.set.get_mut(session as usize);
            let Some(place) = place.filter(|place| **place == at) else {
                self.heap.pop();
                continue;
            };
            if at > now {
                return None;
            }
            *place = 0;
            self.heap.pop();
            return Some(SessionIndex(session));
        }
        None
    }

    /// Returns the earliest deadline, or an earlier obsolete one.
    #[must_use]
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes obsolete entries.
    fn sweep(&mut self) {
        let set = &self.set;
        self.heap.retain(|Reverse((at, session))| set.get(*session as usize) == Some(at));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_session_is_taken_at_its_last_deadline_and_once(
            steps in prop::collection::vec((0..8u32, prop::option::of(1..100u64)), 1..200),
            now in 0..100u64,
        ) {
            let mut timers = Timers::new(8);
            let mut model = [None; 8];
            for (session, at) in steps {
                timers.set(SessionIndex(session), at);
                model[session as usize] = at;
            }
            let mut taken = Vec::new();
            while let Some(SessionIndex(session)) = timers.take(now) {
                prop_assert!(model[session as usize].is_some_and(|at| at <= now));
                taken.push((model[session as usize].take(), session));
            }
            prop_assert!(taken.is_sorted());
            prop_assert!(model.iter().flatten().all(|at| *at > now));
            prop_assert_eq!(timers.next(), model.iter().flatten().copied().min());
        }
    }

    #[test]
    fn old_deadlines_do_not_pile_up() {
        let mut timers = Timers::new(4);
        for at in 1..100_000 {
            timers.set(SessionIndex(1), Some(at));
        }
        assert!(timers.heap.len() < 200);
        assert_eq!((timers.take(u64::MAX), timers.take(u64::MAX)), (Some(SessionIndex(1)), None));
        timers.set(SessionIndex(9), Some(1)); // no such place
        assert_eq!(timers.take(u64::MAX), None);
    }
}
