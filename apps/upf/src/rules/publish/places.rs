//! Numbers that are used again when every lane has passed a turn: places of blocks and networks,
//! lines of state.

use std::time::{Duration, Instant};

use fastlane::table::{Readers, Snapshot};

/// How long a lane is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long between two looks.
const PAUSE: Duration = Duration::from_micros(20);

/// Numbers of a range. A bit each, and a list of those that were given up lately.
#[derive(Debug)]
pub(super) struct Places {
    first: u32,
    count: u32,
    used: Vec<u64>,
    /// How many are free or will be.
    left: u32,
    /// Where the next one is looked for.
    cursor: u32,
    /// Given up since the snapshot.
    retired: Vec<u32>,
    /// Given up before it.
    waiting: Vec<u32>,
    since: Option<Snapshot>,
    /// Since when the lanes must have passed a turn at all.
    start: Option<Snapshot>,
}

impl Places {
    /// Those of `first..end`. Until the lanes have passed a turn none is given out: a lane may
    /// still use one that a process before this gave up.
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

    /// Whether a number is one of these.
    pub(super) fn has(&self, number: u32) -> bool {
        self.bit(number).is_some()
    }

    /// Says that a number is in use; false when it was already, or is none of these.
    pub(super) fn mark(&mut self, number: u32) -> bool {
        let Some((word, bit)) = self.bit(number) else { return false };
        let is_new = self.used[word] & bit == 0;
        self.used[word] |= bit;
        self.left -= u32::from(is_new);
        is_new
    }

    /// Whether a number is in use, or was lately.
    pub(super) fn is_used(&self, number: u32) -> bool {
        self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0)
    }

    /// How many can be had, those included that lanes may still use.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }

    /// Gives a number up that was in use, once.
    pub(super) fn retire(&mut self, number: u32) {
        if self.bit(number).is_some_and(|(word, bit)| self.used[word] & bit != 0) {
            self.retired.push(number);
            self.left += 1;
        }
    }

    /// Gives a number back that nothing has referred to.
    pub(super) fn untake(&mut self, number: u32) {
        if let Some((word, bit)) = self.bit(number) {
            self.left += u32::from(self.used[word] & bit != 0);
            self.used[word] &= !bit;
        }
    }

    /// Takes a number that no lane uses; none when all are in use, or a lane has not passed a turn
    /// for a second.
    pub(super) fn take(&mut self, readers: &Readers) -> Option<u32> {
        self.take_and(readers, &mut Vec::new())
    }

    /// The same; says which have become free meanwhile, as [`reclaim`](Self::reclaim).
    pub(super) fn take_and(&mut self, readers: &Readers, freed: &mut Vec<u32>) -> Option<u32> {
        let mut begun = None;
        while self.left > 0 {
            self.reclaim(readers, freed);
            if self.start.is_none()
                && let Some(number) = self.next()
            {
                self.mark(number);
                return Some(number);
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    /// Adds the numbers to `freed` that no lane uses any more, of those that were given up. Until
    /// then what they name must stay as it is: a lane may have begun to read it.
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

    /// A number that is not in use, from the cursor on.
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
