//! Timers of a lane.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Pending timers of a lane, at most [`Timers::CAPACITY`].
#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Timers {
    /// Maximum number of timers: enough for one for each of many sessions. More belong in a timer
    /// wheel of the application.
    pub(crate) const CAPACITY: usize = 65536;

    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::with_capacity(Self::CAPACITY) }
    }

    /// Starts a timer. Returns false if too many are pending.
    pub(crate) fn start(&mut self, deadline: u64, key: u64) -> bool {
        let fits = self.heap.len() < Self::CAPACITY;
        if fits {
            self.heap.push(Reverse((deadline, key)));
        }
        fits
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Removes the earliest timer whose deadline is not after `now`, and returns its key.
    pub(crate) fn expired(&mut self, now: u64) -> Option<u64> {
        let Reverse((deadline, _)) = self.heap.peek()?;
        if *deadline > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, key))| key)
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((deadline, _))| *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_not_early() {
        let mut timers = Timers::new();
        for (deadline, key) in [(30, 3), (10, 1), (20, 2)] {
            assert!(timers.start(deadline, key));
        }
        assert_eq!(timers.next_deadline(), Some(10));
        assert_eq!(timers.expired(9), None);
        assert_eq!(timers.expired(20), Some(1));
        assert_eq!(timers.expired(20), Some(2));
        assert_eq!(timers.expired(20), None);
        assert_eq!(timers.expired(u64::MAX), Some(3));
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    fn too_many_timers_are_refused() {
        let mut timers = Timers::new();
        assert!((0..Timers::CAPACITY as u64).all(|key| timers.start(key, key)));
        assert!(!timers.start(0, 0));
    }
}
