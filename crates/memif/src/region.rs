//! The memory shared with the peer.
//!
//! The peer may write any octet of it at any time, so no reference into it exists: rings are
//! accessed by atomic operations, and buffers are copied out before anything is decided by their
//! contents.
#![allow(unsafe_code, reason = "the mapping, and copies out of it and into it")]

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use fastlane_core::prefetch;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::settings::MAX_MEMORY;

/// File system type of a memfd without huge pages: `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

// Offsets and lengths have 32 bits and are added as `usize`.
const _: () =
    assert!(cfg!(target_pointer_width = "64"), "sums of offset and length would overflow");

/// A mapped memfd. The peer may write any octet of it at any time.
#[derive(Debug)]
pub(crate) struct Region {
    file: OwnedFd,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. It is accessed only by atomic
// operations and by copies, never by reference.
unsafe impl Send for Region {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region of `length` zeros that cannot shrink or grow.
    pub(crate) fn create(name: &str, length: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // Populate all pages now; otherwise a lane would take a page fault for each.
        Self::map(file, length, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps a region of `length` octets that the peer created.
    ///
    /// The file must be a memfd sealed against shrinking: a peer that truncates a mapped file kills
    /// every process that touches the mapping (SIGBUS). Huge pages are refused for the same reason,
    /// because touching a hole in them raises SIGBUS when no page is left. The checks are in this
    /// order because fcntl(2) fails at once on other files. An fstat(2) on a file of a FUSE file
    /// system would wait for the peer.
    ///
    /// # Errors
    /// Returns the reason to refuse the region.
    pub(crate) fn attach(file: OwnedFd, length: u64) -> Result<Self, &'static str> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| "the region is no memfd")?;
        if !seals.contains(SealFlags::SHRINK)
            && rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).is_err()
        {
            return Err("the region is not sealed against shrinking");
        }
        let system =
            rustix::fs::fstatfs(&file).map_err(|_| "the state of the region cannot be read")?;
        if system.f_type as i64 != TMPFS {
            return Err("the region is of huge pages");
        }
        let size =
            rustix::fs::fstat(&file).map_err(|_| "the state of the region cannot be read")?.st_size;
        if u64::try_from(size).unwrap_or(0) < length {
            return Err("the region is longer than its file");
        }
        if length == 0 || length > MAX_MEMORY {
            return Err("the region is too long, or empty");
        }
        Self::map(file, length as usize, MapFlags::SHARED)
            .map_err(|_| "the region cannot be mapped")
    }

    fn map(file: OwnedFd, length: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this
        // process.
        let start = unsafe {
            let hint = std::ptr::null_mut();
            rustix::mm::mmap(hint, length, protection, flags, &file, 0)?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { file, start, length })
    }

    /// Returns the number of octets mapped.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns a pointer to `length` octets at `offset`, valid while the region lives. Returns
    /// `None` if they are not all inside: offset and length come from the peer's descriptors, and
    /// this is the only check of them.
    #[inline]
    pub(crate) fn pointer(&self, offset: u32, length: u32) -> Option<NonNull<u8>> {
        let (offset, length) = (offset as usize, length as usize);
        // The sum cannot overflow: both have 32 bits.
        if offset + length > self.length {
            return None;
        }
        // SAFETY: the offset is inside the mapping, or one past its end.
        Some(unsafe { self.start.add(offset) })
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping created in `map`, which is unmapped
        // only here. Holders of pointers into it hold the region.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A buffer in the shared memory, as a descriptor names it. Not checked yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) region: u16,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// All regions shared with one peer.
#[derive(Debug, Default)]
pub(crate) struct Regions(pub(crate) Vec<Region>);

/// Buffer of a span that was checked: it lies inside the shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer<'r> {
    start: NonNull<u8>,
    span: Span,
    regions: PhantomData<&'r Regions>,
}

impl Regions {
    /// Returns the buffer of a span, or `None` if the span is not inside the shared memory.
    #[inline]
    pub(crate) fn buffer(&self, span: Span) -> Option<Buffer<'_>> {
        let start = self.0.get(usize::from(span.region))?.pointer(span.offset, span.length)?;
        Some(Buffer { start, span, regions: PhantomData })
    }

    /// Copies `span` out of the shared memory. Returns false, without an effect, if the span is not
    /// inside or not as long as `target`.
    pub(crate) fn read(&self, span: Span, target: &mut [u8]) -> bool {
        self.buffer(span).is_some_and(|buffer| buffer.read(target))
    }
}

impl Buffer<'_> {
    /// Returns the span.
    #[inline]
    pub(crate) fn span(self) -> Span {
        self.span
    }

    /// Returns the length in octets.
    #[inline]
    pub(crate) fn len(self) -> usize {
        self.span.length as usize
    }

    /// Copies the buffer out of the shared memory. Returns false, without an effect, if it is not
    /// as long as `target`.
    #[inline]
    pub(crate) fn read(self, target: &mut [u8]) -> bool {
        if target.len() != self.len() {
            return false;
        }
        // SAFETY: `Regions::buffer` has checked that the span is inside its mapping, which the
        // regions keep. The target is our own memory of the same length. The peer may write during
        // the copy; then the octets are arbitrary, and nothing has been decided by them.
        unsafe { copy(self.start.as_ptr(), target.as_mut_ptr(), target.len()) };
        true
    }

    /// Copies `source` to the start of the buffer. Returns false, without an effect, if the buffer
    /// is shorter than the source.
    #[inline]
    pub(crate) fn write(self, source: &[u8]) -> bool {
        if source.len() > self.len() {
            return false;
        }
        // SAFETY: `Regions::buffer` has checked that the span, which is at least as long as the
        // source, is inside its mapping, which the regions keep. The source is our own memory.
        unsafe { copy(source.as_ptr(), self.start.as_ptr(), source.len()) };
        true
    }

    /// Prefetches the buffer for reading.
    #[inline]
    pub(crate) fn prefetch(self) {
        self.each_line(self.len(), prefetch);
    }

    /// Prefetches the first `length` octets of the buffer for writing.
    #[inline]
    pub(crate) fn prefetch_to_write(self, length: usize) {
        self.each_line(self.len().min(length), prefetch_to_write);
    }

    // The first line is prefetched even if the buffer is empty: most frames have but one.
    #[inline(always)]
    fn each_line(self, length: usize, prefetch: impl Fn(*const u8)) {
        let start = self.start.as_ptr().cast_const();
        prefetch(start);
        let mut line = 64;
        while line < length.min(MAX_PREFETCHED) {
            prefetch(start.wrapping_add(line));
            line += 64;
        }
    }
}

/// Prefetches the cache line of an address in exclusive state. Otherwise the first write would cost
/// another round of cache coherence.
#[inline(always)]
fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no architectural effect, whatever the address. Processors without this
    // instruction ignore it.
    unsafe {
        let at = address.addr(); // an integer: `asm!` needs no pointer
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Maximum number of octets prefetched per frame.
const MAX_PREFETCHED: usize = 2048;

/// Length from which memcpy is faster than copies of fixed blocks, in octets.
const SHORT: usize = 256;

/// Copies `length` octets. Short frames are copied in blocks of a constant size, which takes half
/// as long as a call of memcpy. The last block ends where the frame ends and overlaps the one
/// before.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], except that another process may write to one of the
/// two during the copy.
#[inline(always)]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    /// Copies `length` octets, at least one block.
    #[inline(always)]
    unsafe fn blocks<const BLOCK: usize>(source: *const u8, target: *mut u8, length: usize) {
        // SAFETY: the caller guarantees `length` octets, at least a block. Each block ends before
        // their end or with it.
        unsafe {
            let last = length - BLOCK;
            let mut at = 0;
            while at < last {
                std::ptr::copy_nonoverlapping(source.add(at), target.add(at), BLOCK);
                at += BLOCK;
            }
            std::ptr::copy_nonoverlapping(source.add(last), target.add(last), BLOCK);
        }
    }
    /// Copies `length` octets, from one block to two.
    #[inline(always)]
    unsafe fn two<const BLOCK: usize>(source: *const u8, target: *mut u8, length: usize) {
        // SAFETY: the caller guarantees `length` octets, at least a block. The second block ends
        // with them.
        unsafe {
            let last = length - BLOCK;
            let first = source.cast::<[MaybeUninit<u8>; BLOCK]>().read();
            let second = source.add(last).cast::<[MaybeUninit<u8>; BLOCK]>().read();
            target.cast::<[MaybeUninit<u8>; BLOCK]>().write(first);
            target.add(last).cast::<[MaybeUninit<u8>; BLOCK]>().write(second);
        }
    }
    // SAFETY: the caller guarantees `length` octets, and each case has at least a block.
    unsafe {
        match length {
            SHORT.. => std::ptr::copy_nonoverlapping(source, target, length),
            64.. => blocks::<64>(source, target, length),
            32.. => two::<32>(source, target, length),
            16.. => two::<16>(source, target, length),
            _ => std::ptr::copy_nonoverlapping(source, target, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(length: usize) -> Regions {
        Regions(vec![Region::create("memif-test", length).unwrap()])
    }

    fn write(regions: &Regions, span: Span, source: &[u8]) -> bool {
        regions.buffer(span).is_some_and(|buffer| {
            buffer.prefetch_to_write(source.len());
            buffer.prefetch();
            buffer.write(source)
        })
    }

    #[test]
    fn every_length_is_copied_exactly() {
        let regions = regions(8192);
        let source: Vec<u8> = (0..2100u32).map(|number| (number % 251) as u8 + 1).collect();
        for length in 0..source.len() {
            let span = Span { region: 0, offset: 64, length: length as u32 };
            let whole = Span { region: 0, offset: 0, length: 2300 };
            assert!(write(&regions, whole, &[0; 2300]));
            assert!(write(&regions, span, &source[..length]));
            let mut around = vec![0; 2300];
            assert!(regions.read(whole, &mut around));
            assert_eq!(around[64..64 + length], source[..length]);
            assert!(around[..64].iter().chain(&around[64 + length..]).all(|octet| *octet == 0));
            let mut target = vec![0; length];
            assert!(regions.read(span, &mut target));
            assert_eq!(target, source[..length]);
        }
    }

    #[test]
    fn nothing_outside_is_reached() {
        let regions = regions(4096);
        let mut target = vec![7; 100];
        for (region, offset) in [(1, 0), (0, 3997), (0, 4096), (0, u32::MAX), (u16::MAX, 0)] {
            let span = Span { region, offset, length: 100 };
            assert!(!regions.read(span, &mut target), "{span:?}");
            assert!(regions.buffer(span).is_none(), "{span:?}");
        }
        assert!(!regions.read(Span { region: 0, offset: 0, length: u32::MAX }, &mut target));
        assert!(!regions.read(Span { region: 0, offset: 0, length: 99 }, &mut target));
        assert!(!write(&regions, Span { region: 0, offset: 0, length: 99 }, &target));
        assert!(target.iter().all(|octet| *octet == 7));
        assert!(regions.read(Span { region: 0, offset: 3996, length: 100 }, &mut target));
    }

    #[test]
    fn only_memory_that_cannot_shrink_is_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = || rustix::fs::memfd_create("memif-test", flags).unwrap();
        let sized = |size| {
            let file = file();
            rustix::fs::ftruncate(&file, size).unwrap();
            file
        };
        let region = Region::attach(sized(8192), 4096).unwrap();
        assert_eq!(region.len(), 4096);
        assert!(rustix::fs::ftruncate(&region, 0).is_err(), "it is sealed by us if need be");
        assert!(Region::attach(sized(4096), 4097).unwrap_err().contains("longer than its file"));
        assert!(Region::attach(sized(4096), 0).is_err());
        assert!(Region::attach(sized(2 << 30), 2 << 30).unwrap_err().contains("too long"));
        let locked = sized(4096);
        rustix::fs::fcntl_add_seals(&locked, SealFlags::SEAL).unwrap();
        assert!(Region::attach(locked, 4096).unwrap_err().contains("not sealed"));
        let pipe: OwnedFd = std::io::pipe().unwrap().0.into();
        assert!(Region::attach(pipe, 4096).unwrap_err().contains("no memfd"));
        let zero = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
        assert!(Region::attach(zero.into(), 4096).unwrap_err().contains("no memfd"));
    }
}
