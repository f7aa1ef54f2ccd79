//! Allocator of record ids that lanes may still use when they are freed.

use std::collections::VecDeque;

use fastlane_table::{Readers, Snapshot};

/// Allocates ids below a bound. A freed id is reused only after every lane has passed a turn: a
/// lane that read the id from an old record must not find a different record behind it.
#[derive(Debug)]
pub(super) struct IdAllocator {
    next: u32,
    end: u32,
    free: Vec<u32>,
    released: Vec<u32>,
    waiting: VecDeque<(Snapshot, Vec<u32>)>,
}

impl IdAllocator {
    /// Creates an allocator for the ids `start..end`.
    pub(super) fn new(start: u32, end: u32) -> Self {
        Self { next: start, end, free: Vec::new(), released: Vec::new(), waiting: VecDeque::new() }
    }

    /// Allocates an id; `None` if none is free yet.
    pub(super) fn take(&mut self, readers: &Readers) -> Option<u32> {
        if self.free.is_empty() {
            self.reclaim(readers);
        }
        self.free.pop().or_else(|| {
            let number = self.next;
            (number < self.end).then(|| {
                self.next += 1;
                number
            })
        })
    }

    /// Frees an id that no table refers to any more.
    pub(super) fn give(&mut self, number: u32) {
        self.released.push(number);
    }

    /// Returns true if freed ids wait for the lanes.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Starts the grace period of the ids freed since the last call.
    pub(super) fn seal(&mut self, readers: &Readers) {
        if !self.released.is_empty() {
            self.waiting.push_back((readers.snapshot(), std::mem::take(&mut self.released)));
        }
        self.reclaim(readers);
    }

    fn reclaim(&mut self, readers: &Readers) {
        while let Some((since, _)) = self.waiting.front_mut() {
            if !readers.passed(since) {
                break;
            }
            let passed = self.waiting.pop_front().map(|(_, numbers)| numbers);
            self.free.extend(passed.into_iter().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use fastlane_testing::sleeping_lane;

    use super::*;

    #[test]
    fn a_number_comes_again_after_it_was_sealed() {
        let (mut numbers, readers) = (IdAllocator::new(3, 5), sleeping_lane());
        assert_eq!((numbers.take(&readers), numbers.take(&readers)), (Some(3), Some(4)));
        assert_eq!(numbers.take(&readers), None);
        numbers.give(3);
        assert_eq!(numbers.take(&readers), None, "a table may hold it until it is sealed");
        numbers.seal(&readers);
        assert_eq!((numbers.take(&readers), numbers.take(&readers)), (Some(3), None));
    }
}
