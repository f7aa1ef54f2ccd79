//! Pages before their first use: a lane that touches memory must not wait for the kernel to provide
//! it. Frame pools get huge pages here; tables, as they grow, in `huge_pages.rs`.

use std::io;

use rustix::mm::Advice;

use crate::SharedMemory;
use crate::memory::HUGE_PAGE;

/// Size of the pages that memory got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// Every whole 2 MiB is one huge page, or the memory is smaller than that.
    Huge,
    /// At least 2 MiB are in small pages: the kernel has no free huge page, or makes none.
    Small,
}

impl SharedMemory {
    /// Provides all pages of writable memory and maps them, in transparent huge pages where the
    /// kernel makes them. The bytes keep their values. The pages of new memory are those of the
    /// NUMA node on which the calling thread runs.
    ///
    /// # Errors
    /// Returns an error if the kernel has no memory, or if the memory is mapped read-only.
    pub fn populate(&self) -> io::Result<PageSize> {
        let huge = (0..self.len() / HUGE_PAGE).map(|page| self.make_huge_page(page));
        let all = huge.fold(true, |all, is_huge| all & is_huge);
        self.advise(Advice::LinuxPopulateWrite)?;
        Ok(if all { PageSize::Huge } else { PageSize::Small })
    }

    /// Maps memory that another mapping fills, for a lane that reads it. Memory of less than 2 MiB
    /// gets all its pages; of larger memory, what is resident is mapped, because a table may be
    /// created far larger than it ever becomes.
    pub fn map_resident(&self) {
        if self.len() < HUGE_PAGE {
            let _ = self.advise(Advice::LinuxPopulateRead); // a lane would do it page by page
            return;
        }
        let pages = 0..self.len() / HUGE_PAGE;
        pages
            .filter(|page| self.resident(*page).is_some_and(|bytes| bytes == HUGE_PAGE))
            .for_each(|page| self.map_huge_page(page));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::process_memory::page_faults;
    use crate::shared_slice::SharedSlice;

    /// Number of words in a small page.
    const PAGE_WORDS: usize = 4096 / 8;

    fn words(memory: &Arc<SharedMemory>) -> SharedSlice<AtomicU64> {
        SharedSlice::new(memory, 0, memory.len() / 8).unwrap()
    }

    /// Returns the page faults of writing one word of each small page.
    fn faults_of_writing(words: &[AtomicU64]) -> u64 {
        let before = page_faults();
        words.iter().step_by(PAGE_WORDS).for_each(|word| word.store(1, Ordering::Relaxed));
        page_faults() - before
    }

    #[test]
    fn populated_memory_is_written_without_a_page_fault() {
        // First: the first call may also map the pages of its code.
        let memory = Arc::new(SharedMemory::create("unpopulated", 16 * 4096).unwrap());
        assert!(faults_of_writing(&words(&memory)) >= 1, "faults are counted");
        for length in [8192, HUGE_PAGE + 8192, 4 * HUGE_PAGE] {
            let memory = Arc::new(SharedMemory::create("populated", length).unwrap());
            memory.populate().unwrap();
            assert_eq!(faults_of_writing(&words(&memory)), 0, "{length} bytes");
        }
    }

    #[test]
    fn populating_keeps_the_bytes_and_is_refused_where_they_are_read_only() {
        let memory = Arc::new(SharedMemory::create("kept", 2 * HUGE_PAGE).unwrap());
        let written = words(&memory);
        written[HUGE_PAGE / 8 + 5].store(7, Ordering::Relaxed);
        memory.populate().unwrap();
        assert_eq!(written[HUGE_PAGE / 8 + 5].load(Ordering::Relaxed), 7);
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        let reader = Arc::new(SharedMemory::attach_read_only(file).unwrap());
        assert!(reader.populate().is_err());
    }

    #[test]
    fn what_a_table_holds_is_read_without_a_page_fault() {
        for length in [64 * 4096, 3 * HUGE_PAGE] {
            let memory = Arc::new(SharedMemory::create("table", length).unwrap());
            memory.populate().unwrap();
            let file = memory.as_fd().try_clone_to_owned().unwrap();
            let reader = Arc::new(SharedMemory::attach_read_only(file).unwrap());
            reader.map_resident();
            let read = words(&reader);
            let before = page_faults();
            let sum: u64 =
                read.iter().step_by(PAGE_WORDS).map(|word| word.load(Ordering::Relaxed)).sum();
            assert_eq!((page_faults() - before, sum), (0, 0), "{length} bytes");
        }
    }
}
