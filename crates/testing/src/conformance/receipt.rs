//! Record of the frames received at one end.

use std::ops::Range;

use crate::Tag;

/// Record of a range of frames: how often and in which order they arrived.
#[derive(Debug, Default)]
pub(super) struct Receipt {
    first: u32,
    times: Vec<u8>,
    last: Option<u32>,
    distinct: usize,
    pub(super) reordered: usize,
    pub(super) damaged: usize,
}

impl Receipt {
    pub(super) fn new(range: Range<u32>) -> Self {
        Self { first: range.start, times: vec![0; range.len()], ..Self::default() }
    }

    /// Records a frame or a datagram. Frames of other tests and earlier ranges are ignored.
    pub(super) fn record(&mut self, test: u32, bytes: &[u8]) {
        let Some((tag, rest)) = Tag::find(bytes).filter(|(tag, _)| tag.test == test) else {
            return;
        };
        let index = tag.sequence.checked_sub(self.first).map(|index| index as usize);
        let Some(times) = index.and_then(|index| self.times.get_mut(index)) else {
            return;
        };
        self.distinct += usize::from(*times == 0);
        *times = times.saturating_add(1);
        self.reordered += usize::from(self.last.is_some_and(|last| tag.sequence < last));
        self.damaged += usize::from(!tag.is_intact(rest));
        self.last = Some(tag.sequence);
    }

    /// Returns the number of distinct frames.
    pub(super) fn distinct(&self) -> usize {
        self.distinct
    }

    /// Returns the numbers of the frames that arrived exactly `times` times.
    pub(super) fn numbers_received(&self, times: u8) -> Vec<u32> {
        (self.first..).zip(&self.times).filter(|(_, t)| **t == times).map(|(n, _)| n).collect()
    }

    /// Returns the number of frames that arrived more than once.
    pub(super) fn duplicates(&self) -> usize {
        self.times.iter().filter(|times| **times > 1).count()
    }

    /// Asserts that every frame arrived once, intact and in order.
    #[track_caller]
    pub(super) fn assert_complete(&self, what: &str) {
        self.assert_each(1, what);
        assert_eq!(self.reordered, 0, "{what}: frames overtook others");
    }

    /// Asserts that every frame arrived `times` times and intact.
    #[track_caller]
    pub(super) fn assert_each(&self, times: u8, what: &str) {
        let wrong: Vec<_> =
            (self.first..).zip(&self.times).filter(|(_, t)| **t != times).take(20).collect();
        let arrived = self.distinct;
        let all = self.times.len();
        assert!(
            wrong.is_empty(),
            "{what}: {arrived} of {all} frames arrived; not {times} times each, the first ones \
             (number, times): {wrong:?}"
        );
        assert_eq!(self.damaged, 0, "{what}: damaged frames");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addresses;

    #[test]
    fn losses_duplicates_reorderings_and_damage_are_distinct() {
        let mut receipt = Receipt::new(10..15);
        let frame = |test, sequence| Tag { test, sequence }.frame(Addresses::default(), 80);
        for (test, sequence) in [(1, 10), (1, 12), (1, 11), (1, 12), (1, 9), (1, 15), (2, 13)] {
            receipt.record(test.min(1), &frame(test, sequence));
        }
        let mut damaged = frame(1, 14);
        damaged[70] ^= 0x80;
        receipt.record(1, &damaged);
        assert_eq!(receipt.distinct(), 4);
        assert_eq!(receipt.numbers_received(0), [13]);
        assert_eq!((receipt.duplicates(), receipt.reordered, receipt.damaged), (1, 1, 1));
    }
}
