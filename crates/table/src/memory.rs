//! Shared memory: a memfd and its mapping.
#![allow(unsafe_code, reason = "the mapping")]

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};

use crate::claims::Mapping;

/// Size of a huge page, in bytes.
pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Smallest page of an architecture, in bytes.
const SMALLEST_PAGE: usize = 4096;

/// Memory that can be passed to another process as a file descriptor.
///
/// It is created sealed against shrinking and growing, and only sealed memory is attached. A peer
/// that could truncate it would kill every reader with SIGBUS (memfd_create(2), "File-sealing").
///
/// The compiler takes two mappings of one file for two memories. So a process-wide list
/// (`claims.rs`) ensures what a borrow cannot: the memory of a frame pool is mapped once, and a
/// table has one writer.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    length: usize,
    writable: bool,
    mapping: Mapping,
}

// SAFETY: the mapping belongs to the process, not to a thread. Its bytes are accessed either as
// atomics (`SharedWords`) or by pointers whose users make their own promises (core's pool).
unsafe impl Send for SharedMemory {}
// SAFETY: as above; `SharedMemory` itself never accesses the bytes.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Creates `length` bytes of zeroed memory. `name` only appears in `/proc/PID/maps`.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the memfd, its size or the mapping.
    pub fn create(name: &str, length: usize) -> io::Result<Self> {
        Self::create_with(name, length, MemfdFlags::empty())
    }

    /// Creates zeroed memory for random access. If it fills at least one huge page and enough are
    /// free (`/proc/sys/vm/nr_hugepages`), it uses huge pages of 2 MiB. Otherwise it uses small
    /// pages, which are collapsed as the table fills (`huge_pages.rs`). The length is rounded up to
    /// whole huge pages in both cases.
    ///
    /// # Errors
    /// Returns the errors of [`create`](Self::create).
    pub fn create_for_tables(name: &str, length: usize) -> io::Result<Self> {
        if length < HUGE_PAGE {
            return Self::create(name, length);
        }
        let length = length.next_multiple_of(HUGE_PAGE);
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let memory = Self::create_with(name, length, huge);
        // Populating shows here whether the huge pages exist, not later in a lane.
        if let Ok(memory) = memory
            && memory.advise(Advice::LinuxPopulateWrite).is_ok()
        {
            return Ok(memory);
        }
        let memory = Self::create(name, length)?;
        let _ = memory.advise(Advice::LinuxHugepage); // only a hint
        Ok(memory)
    }

    /// Creates memory on the heap: Miri has no memfd. Such memory cannot be attached.
    #[cfg(miri)]
    fn create_with(_name: &str, length: usize, _flags: MemfdFlags) -> io::Result<Self> {
        let layout = heap_layout(length);
        // SAFETY: the size is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let file = OwnedFd::from(std::fs::File::open("/dev/null")?);
        Self::mapped(file, start.cast(), length, true, Mapping::of_heap(start.addr()))
    }

    #[cfg(not(miri))]
    fn create_with(name: &str, length: usize, flags: MemfdFlags) -> io::Result<Self> {
        let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        if flags.contains(MemfdFlags::HUGETLB) {
            // The kernel aligns huge pages itself. It often has none; see `Area::map`.
            return Self::map_anywhere(file, length, true);
        }
        Self::map(file, length, true)
    }

    /// Gives the kernel an advice about the whole mapping.
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        // SAFETY: the advices passed here change no byte of the mapping, which `self` owns.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.length, advice)? };
        Ok(())
    }

    /// Returns the number of resident bytes in a huge page. Returns `None` if the memory does not
    /// contain the whole huge page.
    pub(crate) fn resident(&self, page: usize) -> Option<usize> {
        let start = self.huge_page(page)?;
        // One for each page: fewer are used if pages are larger.
        let mut resident = [0_u8; HUGE_PAGE / SMALLEST_PAGE];
        // SAFETY: the whole range is mapped, and the buffer has a byte for each page of it.
        let result = unsafe { libc::mincore(start.cast(), HUGE_PAGE, resident.as_mut_ptr()) };
        let pages = resident.iter().filter(|byte| **byte & 1 == 1).count();
        (result == 0).then(|| pages * page_size())
    }

    /// Maps the small pages of a huge page that are resident, for reading.
    pub(crate) fn map_huge_page(&self, page: usize) {
        let Some(start) = self.huge_page(page) else { return };
        // SAFETY: changes no byte of the mapping, which `self` owns.
        let _ = unsafe { rustix::mm::madvise(start.cast(), HUGE_PAGE, Advice::LinuxPopulateRead) };
    }

    /// Collapses small pages into a huge page, whatever the system's setting for transparent huge
    /// pages. Returns true on success. Needs Linux 6.1 and does nothing before. Other processes
    /// that map the memory get the huge page with their next access.
    pub(crate) fn make_huge_page(&self, page: usize) -> bool {
        /// `MADV_COLLAPSE` of madvise(2).
        const COLLAPSE: libc::c_int = 25;
        let Some(start) = self.huge_page(page) else { return false };
        // SAFETY: both calls change no byte of the mapping, which `self` owns. The kernel collapses
        // only pages that are mapped.
        unsafe {
            let _ = rustix::mm::madvise(start.cast(), page_size(), Advice::LinuxPopulateWrite);
            libc::madvise(start.cast(), HUGE_PAGE, COLLAPSE) == 0
        }
    }

    fn huge_page(&self, page: usize) -> Option<*mut u8> {
        if cfg!(miri) {
            return None;
        }
        let end = page.checked_add(1)?.checked_mul(HUGE_PAGE)?;
        // SAFETY: inside the mapping, checked by `end <= self.length`.
        (end <= self.length).then(|| unsafe { self.start.as_ptr().add(page * HUGE_PAGE) })
    }

    /// Maps memory that another process created, for reading.
    ///
    /// # Errors
    /// Returns an error if `file` is not sealed against shrinking, is empty, or cannot be mapped,
    /// and if it is the memory of a frame pool of this process.
    pub fn attach_read_only(file: OwnedFd) -> io::Result<Self> {
        Self::attach(file, false)
    }

    /// Maps memory that another process created, for reading and writing.
    ///
    /// # Errors
    /// Returns the errors of [`attach_read_only`](Self::attach_read_only), and an error if the
    /// descriptor is read-only.
    pub fn attach_writable(file: OwnedFd) -> io::Result<Self> {
        Self::attach(file, true)
    }

    fn attach(file: OwnedFd, writable: bool) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(io::Error::other("the shared memory is not sealed against shrinking"));
        }
        let length = usize::try_from(rustix::fs::fstat(&file)?.st_size)
            .map_err(|_| io::Error::other("the shared memory has a negative size"))?;
        Self::map(file, length, writable)
    }

    /// Maps the memory of a frame pool of this process again, for a test in which one process takes
    /// the part of the predecessor and of its successor.
    ///
    /// # Errors
    /// Returns the errors of [`attach_writable`](Self::attach_writable).
    ///
    /// # Safety
    /// The pools that had the memory, and their packets, are not used any more.
    pub unsafe fn attach_abandoned(file: OwnedFd) -> io::Result<Self> {
        Mapping::forget(&file)?;
        Self::attach(file, true)
    }

    /// Reserves the memory for the frames of a pool, for as long as it is mapped. Returns false if
    /// this process has mapped it more than once.
    #[must_use]
    pub fn reserve_for_frames(&self) -> bool {
        self.mapping.reserve_for_frames()
    }

    /// Returns the entry of the mapping in the list of this process.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Forbids new writable mappings of the memory and writes to its descriptor, for every process.
    /// The existing mapping stays writable (`F_SEAL_FUTURE_WRITE`).
    ///
    /// # Errors
    /// Returns an error if the kernel refuses the seal.
    pub fn forbid_other_writers(&self) -> io::Result<()> {
        if cfg!(miri) {
            return Ok(());
        }
        Ok(rustix::fs::fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE)?)
    }

    fn map(file: OwnedFd, length: usize, writable: bool) -> io::Result<Self> {
        if length < HUGE_PAGE {
            return Self::map_anywhere(file, length, writable);
        }
        let mapping = Mapping::new(&file)?;
        let start = Area::reserve(length)?.map(&file, length, protection(writable))?;
        Self::mapped(file, start, length, writable, mapping)
    }

    fn map_anywhere(file: OwnedFd, length: usize, writable: bool) -> io::Result<Self> {
        let mapping = Mapping::new(&file)?;
        let (hint, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this
        // process.
        let start =
            unsafe { rustix::mm::mmap(hint, length, protection(writable), flags, &file, 0)? };
        Self::mapped(file, start, length, writable, mapping)
    }

    fn mapped(
        file: OwnedFd,
        start: *mut c_void,
        length: usize,
        writable: bool,
        mapping: Mapping,
    ) -> io::Result<Self> {
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, start, length, writable, mapping })
    }

    /// Returns the first byte. It is page aligned and valid for [`len`](Self::len) bytes while
    /// `self` lives.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the size of the mapping, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns true if the mapping is empty, which the kernel never allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns true if this process may write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}

/// Returns the layout of heap memory in the place of a mapping.
#[cfg(miri)]
fn heap_layout(length: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(length.max(1), 4096).expect("a length that fits")
}

/// Reserved address range in which a mapping can be aligned to a huge page.
struct Area {
    start: *mut c_void,
    length: usize,
    inside: *mut c_void,
}

impl Area {
    fn reserve(length: usize) -> io::Result<Self> {
        let length = length.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let (hint, flags) = (std::ptr::null_mut(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { rustix::mm::mmap_anonymous(hint, length, ProtFlags::empty(), flags)? };
        let before = start.addr().wrapping_neg() % HUGE_PAGE;
        Ok(Self { start, length, inside: start.wrapping_byte_add(before) })
    }

    /// Maps a file at the aligned address and releases the rest of the range.
    fn map(self, file: &OwnedFd, length: usize, protection: ProtFlags) -> io::Result<*mut c_void> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range was reserved for this mapping, so it aliases nothing.
        let start = unsafe { rustix::mm::mmap(self.inside, length, protection, flags, file, 0) };
        // If mmap fails, the kernel may have unmapped the range already, and another thread may
        // have mapped something there. So it is left alone.
        self.keep(length);
        Ok(start?)
    }

    /// Releases the range except `length` bytes from `inside` on, which belong to the mapping now.
    fn keep(self, length: usize) {
        let before = self.inside.addr() - self.start.addr();
        // A mapping ends at a page boundary.
        let kept = length.next_multiple_of(page_size());
        unmap(self.start, before);
        unmap(self.inside.wrapping_byte_add(kept), self.length.saturating_sub(before + kept));
    }
}

fn protection(writable: bool) -> ProtFlags {
    if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ }
}

/// Use for which pages are provided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Populate {
    Read,
    Write,
}

/// Provides and maps the pages of an address range, which may have been unmapped meanwhile.
pub(crate) fn populate_range(range: &Range<usize>, populate: Populate) -> rustix::io::Result<()> {
    let advice = match populate {
        Populate::Read => Advice::LinuxPopulateRead,
        Populate::Write => Advice::LinuxPopulateWrite,
    };
    let start = ptr::without_provenance_mut(range.start);
    // SAFETY: the advices change no byte and no mapping, whatever is mapped there by now.
    unsafe { rustix::mm::madvise(start, range.len(), advice) }
}

/// Locks the pages of an address range that are resident, or become so.
pub(crate) fn lock_range(range: &Range<usize>) -> rustix::io::Result<()> {
    let start = ptr::without_provenance_mut(range.start);
    // SAFETY: locking changes no byte and no mapping, whatever is mapped there by now.
    unsafe { rustix::mm::mlock_with(start, range.len(), MlockFlags::ONFAULT) }
}

/// Gives blocks of the heap from 128 KiB on a mapping of their own, which ends when they are freed.
/// By default the limit of glibc grows with what is freed, so that the heap keeps it.
#[cfg(target_env = "gnu")]
pub(crate) fn map_large_blocks() {
    // SAFETY: mallopt has no precondition.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
}

/// Does nothing: other C libraries do so by themselves, or cannot.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn map_large_blocks() {}

/// Returns the size of a small page, in bytes: 4096, or up to 65536 on arm64.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Unmaps a part of an [`Area`].
fn unmap(start: *mut c_void, length: usize) {
    if length > 0 {
        // SAFETY: the range was reserved by `Area::reserve` and nothing else was mapped there.
        let _ = unsafe { rustix::mm::munmap(start, length) };
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for SharedMemory {
    #[cfg(miri)]
    fn drop(&mut self) {
        // SAFETY: allocated in `create_with` with this layout, freed only here.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), heap_layout(self.length)) };
    }

    #[cfg(not(miri))]
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping made in `map`, unmapped only here.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsealed_memory_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("unsealed", flags).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let error = SharedMemory::attach_read_only(file).unwrap_err();
        assert!(error.to_string().contains("not sealed"), "{error}");
    }

    #[test]
    fn other_writers_are_kept_out() {
        let memory = SharedMemory::create("ours", 4096).unwrap();
        memory.forbid_other_writers().unwrap();
        let file = rustix::io::dup(&memory.file).unwrap();
        assert!(rustix::io::pwrite(&file, b"x", 0).is_err());
        assert!(SharedMemory::map(file, 4096, true).is_err());
        // SAFETY: inside the mapping, which nobody else uses.
        unsafe { memory.start().write(7) };
    }

    #[test]
    fn memory_for_tables_is_like_any_other() {
        for length in [4096, HUGE_PAGE + 4096] {
            let memory = SharedMemory::create_for_tables("table", length).unwrap();
            assert!(memory.len() >= length && memory.len() < length + HUGE_PAGE);
            assert!(rustix::fs::ftruncate(&memory.file, 0).is_err());
            // SAFETY: inside the mapping, which nobody else uses.
            unsafe { memory.start().add(length - 1).write(7) };
        }
    }

    #[test]
    fn large_mappings_begin_where_a_huge_page_can_and_leave_nothing_behind() {
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        for length in [HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 4096] {
            let memory = SharedMemory::create("aligned", length).unwrap();
            let file = rustix::io::dup(&memory.file).unwrap();
            let other = SharedMemory::attach_read_only(file).unwrap();
            for start in [memory.start().addr().get(), other.start().addr().get()] {
                assert_eq!(start % HUGE_PAGE, 0);
                let end = start + length.next_multiple_of(page_size());
                // Only the mapping itself remains of the reserved range.
                let line = format!("{start:08x}-{end:08x} ");
                assert!(maps().contains(&line), "{line}");
            }
        }
    }

    /// Checks that a mapping that fails for lack of huge pages leaves other threads' ranges alone.
    #[test]
    fn threads_that_make_tables_leave_each_others_mappings_alone() {
        let make = || {
            for round in 0..300_u32 {
                let length = HUGE_PAGE << (round % 3);
                let memory = SharedMemory::create_for_tables("threads", length).unwrap();
                let other = SharedMemory::create("threads", 8192).unwrap();
                for at in [memory.start(), other.start()] {
                    // SAFETY: inside the mapping, which nobody else uses.
                    unsafe { at.cast::<u32>().write_volatile(round) };
                }
            }
        };
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(make)));
        });
    }

    #[test]
    fn sealed_memory_cannot_shrink() {
        let memory = SharedMemory::create("sealed", 8192).unwrap();
        assert!(rustix::fs::ftruncate(&memory.file, 4096).is_err());
        assert_eq!(memory.len(), 8192);
    }
}
