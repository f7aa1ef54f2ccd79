//! Free numbers of a table, in little memory.

use std::ops::Range;

/// Stack of numbers. Numbers that were never taken are kept as ranges, so that the list of a table
/// that is hardly used takes no memory for each of its numbers.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    singles: Vec<u32>,
    /// Not empty, each.
    ranges: Vec<Range<u32>>,
    /// Number of numbers in `ranges`.
    in_ranges: usize,
}

impl Numbers {
    /// Returns the numbers that are not used; the smallest one is taken first.
    pub(super) fn unused(used: &[bool]) -> Self {
        let mut numbers = Self::default();
        let mut end = used.len();
        while end > 0 {
            let start = used[..end].iter().rposition(|used| *used).map_or(0, |last| last + 1);
            if start < end {
                numbers.ranges.push(start as u32..end as u32);
                numbers.in_ranges += end - start;
            }
            end = start.saturating_sub(1);
        }
        numbers
    }

    pub(super) fn len(&self) -> usize {
        self.singles.len() + self.in_ranges
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, number: u32) {
        self.singles.push(number);
    }

    /// Takes a number that was taken before, or else one that never was.
    pub(super) fn pop(&mut self) -> Option<u32> {
        if let Some(number) = self.singles.pop() {
            return Some(number);
        }
        let range = self.ranges.last_mut()?;
        let number = range.start;
        range.start += 1;
        self.in_ranges -= 1;
        if range.start == range.end {
            self.ranges.pop();
        }
        Some(number)
    }

    /// Moves all numbers of `other` to this stack.
    pub(super) fn append(&mut self, other: &mut Self) {
        self.singles.append(&mut other.singles);
        self.ranges.append(&mut other.ranges);
        self.in_ranges += std::mem::take(&mut other.in_ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_leave_once_and_the_used_ones_never() {
        let used = [false, false, true, true, false, true, false];
        let mut numbers = Numbers::unused(&used);
        assert_eq!((numbers.len(), numbers.ranges.len()), (4, 3));
        assert_eq!(numbers.pop(), Some(0));
        numbers.push(0);
        numbers.push(5);
        let mut others = Numbers::unused(&[false; 0]);
        assert!(others.is_empty());
        others.append(&mut numbers);
        assert_eq!((numbers.len(), others.len()), (0, 5));
        let all: Vec<_> = std::iter::from_fn(|| others.pop()).collect();
        assert_eq!(all, [5, 0, 1, 4, 6]);
        assert_eq!((others.len(), others.pop(), numbers.pop()), (0, None, None));
    }

    #[test]
    fn a_table_that_is_not_used_has_one_range() {
        let [none, all] = [false, true].map(|used| Numbers::unused(&[used; 1000]));
        assert_eq!((none.len(), none.ranges.len()), (1000, 1));
        assert_eq!((all.len(), all.ranges.len()), (0, 0));
    }
}
