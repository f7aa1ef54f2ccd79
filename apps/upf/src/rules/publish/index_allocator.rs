//! Allocator of indices that are reused only after every lane has passed a turn: blocks, networks,
//! counter slots.

use std::time::{Duration, Instant};

use fastlane::table::{Readers, Snapshot};

/// Maximum wait for a lane.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Indices of a range: a bit set, and lists of those freed lately.
#[derive(Debug)]
pub(super) struct IndexAllocator {
    first: u32,
    count: u32,
    used: Vec<u64>,
    /// Number of free indices, including those that lanes may still use.
    left: u32,
    /// Start of the search for a free index.
    cursor: u32,
    /// Freed since the snapshot.
    retired: Vec<u32>,
    /// Freed before the snapshot.
    waiting: Vec<u32>,
    since: Option<Snapshot>,
    /// Snapshot of the start, after which all lanes must have passed a turn.
    start: Option<Snapshot>,
}

impl IndexAllocator {
    /// Creates an allocator of `first..end`. It allocates nothing until the lanes have passed a
    /// turn, since a lane may still use an index that a former process freed.
    pub(super) fn new(first: usize, end: usize, readers: &Readers) -> Self {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        let count = u32::try_from(end).unwrap_or(u32::MAX).saturating_sub(first);
        Self {
            first,
            count,
            used: vec![0; count.div_ceil(64) as usize],
            left: count,
            cursor: 0,
            retired: Vec::new(),
            waiting: Vec::new(),
            since: None,
            start: Some(readers.snapshot()),
        }
    }

    fn bit(&self, number: u32) -> Option<(usize, u64)> {
        let place = number.checked_sub(self.first).filter(|place| *place < self.count)?;
        Some((place as usize / 64, 1 << (place % 64)))
    }

    /// Returns true if an index is in the range.
    pub(super) fn has(&self, number: u32) -> bool {
        self.bit(number).is_some()
    }

    /// Marks an index as used; false if it is used already or out of range.
    pub(super) fn mark(&mut self, number: u32) -> bool {
        let Some((word, bit)) = self.bit(number) else { return false };
        let is_new = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.left -= u32::from(is_new);
        is_new
    }

    /// Returns true if an index is used or was used lately.
    pub(super) fn is_used(&self, number: u32) -> bool {
        self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0)
    }

    /// Returns the number of free indices, including those that lanes may still use.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }

    /// Frees a used index, once.
    pub(super) fn retire(&mut self, number: u32) {
        if self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0) {
            self.retired.push(number);
            self.left += 1;
        }
    }

    /// Frees an index that nothing has referred to, at once.
    pub(super) fn untake(&mut self, number: u32) {
        if let Some((word, bit)) = self.bit(number) {
            self.left += u32::from(self.used[word] & bit != 0);
            self.used[word] &= !bit;
        }
    }

    /// Allocates an index that no lane uses; `None` if all are used, or a lane has not passed a
    /// turn for a second.
    pub(super) fn take(&mut self, readers: &Readers) -> Option<u32> {
        self.take_and_reclaim(readers, &mut Vec::new())
    }

    /// Allocates an index and appends those that have become free to `freed`, like
    /// [`reclaim`](Self::reclaim).
    pub(super) fn take_and_reclaim(
        &mut self,
        readers: &Readers,
        freed: &mut Vec<u32>,
    ) -> Option<u32> {
        let mut begun = None;
        while self.left > 0 {
            self.reclaim(readers, freed);
            if self.start.is_none()
                && let Some(number) = self.next()
            {
                self.mark(number);
                return Some(number);
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > MAX_WAIT {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        None
    }

    /// Appends the freed indices that no lane uses any more to `freed`. Until then what they refer
    /// to must not change, since a lane may be reading it.
    pub(super) fn reclaim(&mut self, readers: &Readers, freed: &mut Vec<u32>) {
        if self.start.as_mut().is_some_and(|start| readers.passed(start)) {
            self.start = None;
        }
        loop {
            if let Some(since) = &mut self.since {
                if !readers.passed(since) {
                    return;
                }
                self.since = None;
                for number in std::mem::take(&mut self.waiting) {
                    if let Some((word, bit)) = self.bit(number) {
                        self.used[word] &= !bit;
                        freed.push(number);
                    }
                }
            }
            if self.retired.is_empty() {
                return;
            }
            std::mem::swap(&mut self.retired, &mut self.waiting);
            self.since = Some(readers.snapshot());
        }
    }

    /// Returns the next free index from the cursor on.
    fn next(&mut self) -> Option<u32> {
        let words = self.used.len();
        let start = self.cursor as usize / 64;
        for step in 0..=words {
            let word = (start + step) % words.max(1);
            let free = !self.used.get(word)?;
            if free == 0 {
                continue;
            }
            let place = word as u32 * 64 + free.trailing_zeros();
            if place < self.count {
                self.cursor = place;
                return Some(self.first + place);
            }
        }
        None
    }
}
