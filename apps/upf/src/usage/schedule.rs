//! Schedule of evaluations: deadlines of sessions, and sessions whose reports wait for room because
//! their peer already has the maximum number of pending requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;

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
        let Some(slot) = self.set.get_mut(session.0 as usize) else { return };
        let at = at.map_or(0, |at| at.max(1));
        let is_new = at != 0 && *slot != at;
        *slot = at;
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
            let slot = self.set.get_mut(session as usize);
            let Some(slot) = slot.filter(|slot| **slot == at) else {
                self.heap.pop();
                continue;
            };
            if at > now {
                return None;
            }
            *slot = 0;
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

/// Waiting sessions by peer, in the order of their arrival, each once.
///
/// Memory: one bit per session index, and 4 octets per waiting session.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_peer: BTreeMap<SocketAddr, VecDeque<SessionIndex>>,
    is_in: Vec<u64>,
}

impl Parked {
    /// Creates an empty set for `capacity` session indices.
    pub(super) fn new(capacity: u32) -> Self {
        Self { by_peer: BTreeMap::new(), is_in: vec![0; capacity.div_ceil(64) as usize] }
    }

    /// Returns true if a session waits.
    pub(super) fn has(&self, id: SessionIndex) -> bool {
        let word = self.is_in.get(id.0 as usize / 64);
        word.is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }

    /// Adds a session that waits for room at a peer.
    pub(super) fn add(&mut self, peer: SocketAddr, id: SessionIndex) {
        if self.has(id) {
            return;
        }
        if let Some(word) = self.is_in.get_mut(id.0 as usize / 64) {
            *word |= 1 << (id.0 % 64);
            self.by_peer.entry(peer).or_default().push_back(id);
        }
    }

    /// Returns the next peer after `after`, or the first, with a waiting session and `has_room`.
    pub(super) fn next(
        &self,
        after: Option<SocketAddr>,
        has_room: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let all = || self.by_peer.keys().copied();
        let later = all().find(|peer| Some(*peer) > after && has_room(*peer));
        later.or_else(|| all().find(|peer| has_room(*peer)))
    }

    /// Takes the session that has waited longest for a peer.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<SessionIndex> {
        let waiting = self.by_peer.get_mut(&peer)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.by_peer.remove(&peer);
        }
        let word = id.and_then(|id| self.is_in.get_mut(id.0 as usize / 64));
        if let (Some(id), Some(word)) = (id, word) {
            *word &= !(1 << (id.0 % 64));
        }
        id
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
        timers.set(SessionIndex(9), Some(1)); // no such index
        assert_eq!(timers.take(u64::MAX), None);
    }

    #[test]
    fn peers_take_turns_and_each_session_is_there_once() {
        let mut parked = Parked::new(100);
        let peer = |host| SocketAddr::from(([10, 0, 0, host], 8805));
        for id in [5, 7, 5, 500, 9] {
            parked.add(peer(1), SessionIndex(id));
        }
        parked.add(peer(2), SessionIndex(6));
        parked.add(peer(2), SessionIndex(7));
        let mut taken = Vec::new();
        let mut last = None;
        while let Some(next) = parked.next(last, |_| true) {
            taken.push(parked.take(next).unwrap().0);
            last = Some(next);
        }
        assert_eq!(taken, [5, 6, 7, 9]);
        assert!((0..100).all(|id| !parked.has(SessionIndex(id))));
        parked.add(peer(1), SessionIndex(5));
        assert_eq!(parked.next(None, |other| other != peer(1)), None);
        assert_eq!(parked.take(peer(2)), None);
    }
}
