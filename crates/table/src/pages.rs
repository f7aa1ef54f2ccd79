//! Huge pages for tables, as they grow.
//!
//! A processor's own memory of where pages are covers some megabytes of small ones, so a table of a
//! hundred costs each lookup a walk of the page tables; of huge ones it covers more. Making a huge
//! page of small ones keeps whoever reads them waiting, for a millisecond or more, and then gives
//! it to all processes that have the memory mapped with their next access. So it is done before a
//! lane can have a reason to read there: at creation for what is read in any case, and for the rest
//! when the writer first comes to a part that nobody has touched. No more memory is used than that
//! part.

use std::sync::Arc;

use crate::SharedMemory;
use crate::memory::HUGE_PAGE;

/// Small pages of a huge one that must be there for the others to be added.
const MOST: usize = 384;

impl SharedMemory {
    /// Makes huge pages of all parts of which at least three quarters are in memory. For writers
    /// that have built a table: it takes from 0.2 ms to some ms for each 2 MiB, and lanes that read
    /// them meanwhile wait as long. Where they are huge already nothing happens.
    pub fn collapse(&self) {
        let pages = 0..self.len() / HUGE_PAGE;
        let full = pages.filter(|page| self.resident(*page).is_some_and(|count| count >= MOST));
        full.for_each(|page| self.join(page));
    }

    /// Makes huge pages of what holds a range of bytes, whether it is in memory or not.
    pub(crate) fn join_all(&self, start: usize, end: usize) {
        (start / HUGE_PAGE..end.div_ceil(HUGE_PAGE)).for_each(|page| self.join(page));
    }
}

/// Which huge pages of a memory a writer has come to.
#[derive(Debug)]
pub(crate) struct Growth {
    memory: Arc<SharedMemory>,
    known: Vec<bool>,
}

impl Growth {
    pub(crate) fn new(memory: &Arc<SharedMemory>) -> Self {
        Self { memory: Arc::clone(memory), known: vec![false; memory.len() / HUGE_PAGE] }
    }

    /// Some of the memory is about to be written that no lane reads: where it is the first in its
    /// huge page, by whatever writer, the page is made.
    #[inline]
    pub(crate) fn reach<T>(&mut self, part: &[T]) {
        let start = part.as_ptr().addr().wrapping_sub(self.memory.start().addr().get());
        let last = start.wrapping_add(size_of_val(part)).wrapping_sub(1);
        for page in [start / HUGE_PAGE, last / HUGE_PAGE] {
            if self.known.get(page) == Some(&false) {
                self.make(page);
            }
        }
    }

    #[cold]
    fn make(&mut self, page: usize) {
        self.known[page] = true;
        if self.memory.resident(page) == Some(0) {
            self.memory.join(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::raw::Run;

    const WORDS: usize = HUGE_PAGE / 8;

    fn memory() -> (Arc<SharedMemory>, Run<AtomicU64>) {
        let memory = Arc::new(SharedMemory::create("pages", 4 * HUGE_PAGE + 4096).unwrap());
        let words = Run::new(&memory, 0, memory.len() / 8).unwrap();
        (memory, words)
    }

    #[test]
    fn what_nobody_has_touched_is_joined_and_the_rest_is_left() {
        let (memory, words) = memory();
        words[WORDS + 7].store(1, Ordering::Relaxed); // the second is in use
        let mut growth = Growth::new(&memory);
        growth.reach(&words[10..20]);
        growth.reach(&words[WORDS + 10..WORDS + 20]);
        growth.reach(&words[3 * WORDS - 5..3 * WORDS + 5]);
        growth.reach(&words[4 * WORDS + 10..][..10]);
        assert_eq!(growth.known, [true; 4]);
        let resident: Vec<_> = (0..5).map(|page| memory.resident(page)).collect();
        // A kernel without MADV_COLLAPSE adds none to the one that is asked for.
        assert!([1, 512].contains(&resident[0].unwrap()), "{resident:?}");
        assert_eq!(resident[1..], [Some(1), resident[0], resident[0], None]);
        assert_eq!(words[WORDS + 7].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_mostly_there_is_collapsed_and_keeps_what_is_in_it() {
        let (memory, words) = memory();
        for (page, count) in [(0, MOST), (1, MOST - 1)] {
            for small in 0..count {
                words[page * WORDS + small * 512].store(small as u64 + 1, Ordering::Relaxed);
            }
        }
        memory.collapse();
        assert!([MOST, 512].contains(&memory.resident(0).unwrap()));
        assert_eq!(memory.resident(1), Some(MOST - 1));
        assert_eq!(memory.resident(2), Some(0));
        for small in 0..512 {
            let expected = if small < MOST { small as u64 + 1 } else { 0 };
            assert_eq!(words[small * 512].load(Ordering::Relaxed), expected);
        }
    }
}
