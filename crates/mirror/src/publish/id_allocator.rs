//! IdAllocator that lanes may still have in hand when they are given back.

use std::collections::VecDeque;

use fastlane_table::{Readers, Snapshot};

/// Hands out the numbers below a bound. One that was given back is handed out again when every lane
/// has passed a turn since: a lane that read it where it no longer stands must not find something
/// else behind it.
#[derive(Debug)]
pub(super) struct IdAllocator {
    next: u32,
    end: u32,
    free: Vec<u32>,
    given: Vec<u32>,
    waiting: VecDeque<(Snapshot, Vec<u32>)>,
}

impl IdAllocator {
    /// Those from `start` on and below `end`.
    pub(super) fn new(start: u32, end: u32) -> Self {
        Self { next: start, end, free: Vec::new(), given: Vec::new(), waiting: VecDeque::new() }
    }

    /// A number that nobody has; `None` when there is none yet.
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

    /// Gives a number back that no table holds any more.
    pub(super) fn give(&mut self, number: u32) {
        self.given.push(number);
    }

    /// Whether there are numbers that wait for the lanes.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What was given back begins to wait for the lanes.
    pub(super) fn seal(&mut self, readers: &Readers) {
        if !self.given.is_empty() {
            self.waiting.push_back((readers.snapshot(), std::mem::take(&mut self.given)));
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
    use super::*;

    #[test]
    fn a_number_comes_again_after_it_was_sealed() {
        let (mut numbers, readers) = (IdAllocator::new(3, 5), Readers::none());
        assert_eq!((numbers.take(&readers), numbers.take(&readers)), (Some(3), Some(4)));
        assert_eq!(numbers.take(&readers), None);
        numbers.give(3);
        assert_eq!(numbers.take(&readers), None, "a table may hold it until it is sealed");
        numbers.seal(&readers);
        assert_eq!((numbers.take(&readers), numbers.take(&readers)), (Some(3), None));
    }
}
