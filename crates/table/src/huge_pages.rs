//! Huge pages for growing tables. The pages of frames are in `populate.rs`.
//!
//! The TLB of a processor covers some megabytes of small pages. In a table of 100 MB each lookup
//! would therefore walk the page table; huge pages avoid that. Collapsing small pages into a huge
//! page blocks their readers for a millisecond or more. Other processes that map the memory get the
//! huge page with their next access. Therefore it happens before a lane has a reason to read there.
//! The parts that are always read get huge pages at creation; the rest gets them when the writer
//! first reaches a part that nobody has touched. No memory beyond that part is used.

use std::sync::Arc;

use crate::SharedMemory;
use crate::memory::HUGE_PAGE;

/// Minimum number of resident bytes of a huge page for which the others are added.
const MIN_RESIDENT: usize = HUGE_PAGE / 4 * 3;

impl SharedMemory {
    /// Collapses every 2 MiB of which at least three quarters are resident into a huge page. It is
    /// meant for a writer that has filled a table. Each huge page takes from 0.2 ms to some
    /// milliseconds, for which lanes that read it wait. Memory that is already in huge pages is
    /// left alone.
    pub fn collapse(&self) {
        let pages = 0..self.len() / HUGE_PAGE;
        let full =
            pages.filter(|page| self.resident(*page).is_some_and(|bytes| bytes >= MIN_RESIDENT));
        full.for_each(|page| {
            self.make_huge_page(page);
        });
    }

    /// Makes huge pages of all of a range of bytes if at least three quarters of it are resident.
    /// Pages that are partly outside the range are left alone.
    pub(crate) fn complete(&self, start: usize, end: usize) {
        let pages = start.div_ceil(HUGE_PAGE)..end / HUGE_PAGE;
        let resident: usize = pages.clone().filter_map(|page| self.resident(page)).sum();
        if resident >= pages.len() * MIN_RESIDENT {
            pages.for_each(|page| {
                self.make_huge_page(page);
            });
        }
    }

    /// Makes the huge pages that contain a range of bytes, resident or not.
    pub(crate) fn make_huge_range(&self, start: usize, end: usize) {
        (start / HUGE_PAGE..end.div_ceil(HUGE_PAGE)).for_each(|page| {
            self.make_huge_page(page);
        });
    }
}

/// Record of the huge pages that a writer has reached.
#[derive(Debug)]
pub(crate) struct HugePages {
    memory: Arc<SharedMemory>,
    visited: Vec<bool>,
}

impl HugePages {
    pub(crate) fn new(memory: &Arc<SharedMemory>) -> Self {
        Self { memory: Arc::clone(memory), visited: vec![false; memory.len() / HUGE_PAGE] }
    }

    /// Prepares memory that is about to be written and that no lane reads. Makes its huge page if
    /// no writer has touched the page before.
    #[inline]
    pub(crate) fn prepare<T>(&mut self, part: &[T]) {
        let start = part.as_ptr().addr().wrapping_sub(self.memory.start().addr().get());
        let last = start.wrapping_add(size_of_val(part)).wrapping_sub(1);
        for page in start / HUGE_PAGE..=last / HUGE_PAGE {
            if self.visited.get(page) == Some(&false) {
                self.make_huge(page);
            }
        }
    }

    #[cold]
    fn make_huge(&mut self, page: usize) {
        self.visited[page] = true;
        if self.memory.resident(page) == Some(0) {
            self.memory.make_huge_page(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::memory::page_size;
    use crate::shared_slice::SharedSlice;

    const WORDS: usize = HUGE_PAGE / 8;

    fn memory() -> (Arc<SharedMemory>, SharedSlice<AtomicU64>) {
        let memory = Arc::new(SharedMemory::create("pages", 4 * HUGE_PAGE + 4096).unwrap());
        let words = SharedSlice::new(&memory, 0, memory.len() / 8).unwrap();
        (memory, words)
    }

    #[test]
    fn what_nobody_has_touched_is_joined_and_the_rest_is_left() {
        let (memory, words) = memory();
        words[WORDS + 7].store(1, Ordering::Relaxed); // the second huge page is in use
        let mut huge_pages = HugePages::new(&memory);
        huge_pages.prepare(&words[10..20]);
        huge_pages.prepare(&words[WORDS + 10..WORDS + 20]);
        huge_pages.prepare(&words[3 * WORDS - 5..3 * WORDS + 5]);
        huge_pages.prepare(&words[4 * WORDS + 10..][..10]);
        assert_eq!(huge_pages.visited, [true; 4]);
        let resident: Vec<_> = (0..5).map(|page| memory.resident(page)).collect();
        // A kernel without MADV_COLLAPSE makes only the requested small page resident.
        assert!([page_size(), HUGE_PAGE].contains(&resident[0].unwrap()), "{resident:?}");
        assert_eq!(resident[1..], [Some(page_size()), resident[0], resident[0], None]);
        assert_eq!(words[WORDS + 7].load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_mostly_there_is_collapsed_and_keeps_what_is_in_it() {
        let (memory, words) = memory();
        let (enough, page_words) = (MIN_RESIDENT / page_size(), page_size() / 8);
        for (page, count) in [(0, enough), (1, enough - 1)] {
            for small in 0..count {
                words[page * WORDS + small * page_words].store(small as u64 + 1, Ordering::Relaxed);
            }
        }
        memory.collapse();
        assert!([MIN_RESIDENT, HUGE_PAGE].contains(&memory.resident(0).unwrap()));
        assert_eq!(memory.resident(1), Some(MIN_RESIDENT - page_size()));
        assert_eq!(memory.resident(2), Some(0));
        for small in 0..WORDS / page_words {
            let expected = if small < enough { small as u64 + 1 } else { 0 };
            assert_eq!(words[small * page_words].load(Ordering::Relaxed), expected);
        }
    }
}
