//! The memory shared with the peer.
#![allow(unsafe_code, reason = "the mapping, and copies out of it and into it")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::settings::MOST_MEMORY;

/// The file system behind a memfd without huge pages: `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

// Offsets and lengths of 32 bits are added as numbers of 64.
const _: () =
    assert!(cfg!(target_pointer_width = "64"), "sums of offset and length would overflow");

/// One memfd, mapped. The peer may write any octet of it at any time.
#[derive(Debug)]
pub(crate) struct Region {
    file: OwnedFd,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and its octets are reached only by
// atomic operations and by copies that never lend a reference to them.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes `length` octets of zeroes that nobody can shrink or grow.
    pub(crate) fn create(name: &str, length: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&file, length as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // All pages at once: later a lane would pay for each.
        Self::map(file, length, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// Maps `length` octets that the peer has made.
    ///
    /// They must be of a memfd that cannot shrink: who can truncate a mapped file can kill whoever
    /// has mapped it (SIGBUS). Huge pages are refused for the same reason: a hole punched into them
    /// is a SIGBUS when no page is left. Asked in this order nothing waits for a file system that a
    /// user serves.
    pub(crate) fn attach(file: OwnedFd, length: u64) -> Result<Self, &'static str> {
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| "the region is no memfd")?;
        if !seals.contains(SealFlags::SHRINK)
            && rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).is_err()
        {
            return Err("the region is not sealed against shrinking");
        }
        let system = rustix::fs::fstatfs(&file).map_err(|_| "the region cannot be asked")?;
        if system.f_type as i64 != TMPFS {
            return Err("the region is of huge pages");
        }
        let size = rustix::fs::fstat(&file).map_err(|_| "the region cannot be asked")?.st_size;
        if u64::try_from(size).unwrap_or(0) < length {
            return Err("the region is longer than its file");
        }
        if length == 0 || length > MOST_MEMORY {
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

    /// Octets mapped.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The first of `length` octets at `offset`, valid while the region lives; `None` when they are
    /// not all inside.
    #[inline]
    pub(crate) fn place(&self, offset: u32, length: u32) -> Option<NonNull<u8>> {
        let (offset, length) = (offset as usize, length as usize);
        // The sum cannot overflow: both are of 32 bits.
        if offset + length > self.length {
            return None;
        }
        // SAFETY: the place is inside the mapping, or one past its end.
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
        // SAFETY: start and length are those of the mapping made in `map`, unmapped only here; all
        // who have places in it hold the region.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A buffer in the shared memory, as a descriptor names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) region: u16,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// All memory shared with one peer.
#[derive(Debug, Default)]
pub(crate) struct Regions(pub(crate) Vec<Region>);

impl Regions {
    /// Copies `span` out of the shared memory; false, and nothing happens, when it is not inside or
    /// is not as long as `target`.
    #[inline]
    pub(crate) fn read(&self, span: Span, target: &mut [u8]) -> bool {
        let Some(source) = self.place(span).filter(|_| target.len() == span.length as usize) else {
            return false;
        };
        // SAFETY: `place` has checked that the span is inside its mapping, which `self` keeps. The
        // target is our own memory and as long. The peer may write meanwhile: then the octets are
        // any, and nobody has decided anything by them.
        unsafe { copy(source.as_ptr(), target.as_mut_ptr(), target.len()) };
        true
    }

    /// Copies `source` to the start of `span`; false, and nothing happens, when the span is not
    /// inside the shared memory or is shorter.
    #[inline]
    pub(crate) fn write(&self, span: Span, source: &[u8]) -> bool {
        let Some(target) = self.place(span).filter(|_| source.len() <= span.length as usize) else {
            return false;
        };
        // SAFETY: `place` has checked that the span, which is at least as long as the source, is
        // inside its mapping, which `self` keeps. The source is our own memory.
        unsafe { copy(source.as_ptr(), target.as_ptr(), source.len()) };
        true
    }

    /// Asks for a span to be fetched, if it is inside.
    #[inline]
    pub(crate) fn prefetch(&self, span: Span) {
        self.each_line(span, span.length, prefetch);
    }

    /// Asks for the first `length` octets of a span to be fetched, to be written.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, span: Span, length: usize) {
        self.each_line(span, span.length.min(length as u32), prefetch_to_write);
    }

    #[inline(always)]
    fn each_line(&self, span: Span, length: u32, ask: impl Fn(*const u8)) {
        if let Some(place) = self.place(span) {
            let lines = (0..length.min(MOST_PREFETCHED) as usize).step_by(64);
            lines.for_each(|line| ask(place.as_ptr().wrapping_add(line)));
        }
    }

    #[inline]
    fn place(&self, span: Span) -> Option<NonNull<u8>> {
        self.0.get(usize::from(span.region))?.place(span.offset, span.length)
    }
}

/// Asks for the cache line at `place` to be fetched, without touching it.
#[inline(always)]
fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// As [`prefetch`], with the right to write: else the first write asks the other core once more.
#[inline(always)]
fn prefetch_to_write(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing, whatever the address; processors without this one skip
    // it.
    unsafe {
        let place = place.addr(); // a number: nothing is reached by it
        std::arch::asm!("prefetchw [{}]", in(reg) place, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Octets of a frame that are asked for ahead, at most.
const MOST_PREFETCHED: u32 = 2048;

/// Up to here frames are copied in blocks of 64; beyond, the library's function is faster.
const SHORT: usize = 256;

/// Copies `length` octets. Most frames are short, and then the steps below are half as long as a
/// call of the library's function: blocks of a known size, the last of which ends where the frame
/// ends and overlaps the one before.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`], except that another process may write to one of the
/// two meanwhile.
#[inline(always)]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    /// `length` is from one block to two, or more with 64.
    #[inline(always)]
    unsafe fn blocks<const BLOCK: usize>(source: *const u8, target: *mut u8, length: usize) {
        // SAFETY: the caller says that `length` octets are there, and at least a block: each of
        // these ends before them or with them.
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
    // SAFETY: the caller says that `length` octets are there; each case has at least a block.
    unsafe {
        match length {
            SHORT.. => std::ptr::copy_nonoverlapping(source, target, length),
            64.. => blocks::<64>(source, target, length),
            32.. => blocks::<32>(source, target, length),
            16.. => blocks::<16>(source, target, length),
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

    #[test]
    fn every_length_is_copied_exactly() {
        let regions = regions(8192);
        let source: Vec<u8> = (0..2100u32).map(|number| (number % 251) as u8 + 1).collect();
        for length in 0..source.len() {
            let span = Span { region: 0, offset: 64, length: length as u32 };
            let whole = Span { region: 0, offset: 0, length: 2300 };
            assert!(regions.write(whole, &[0; 2300]));
            assert!(regions.write(span, &source[..length]));
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
            assert!(!regions.write(span, &target), "{span:?}");
            regions.prefetch(span);
        }
        assert!(!regions.read(Span { region: 0, offset: 0, length: u32::MAX }, &mut target));
        assert!(!regions.read(Span { region: 0, offset: 0, length: 99 }, &mut target));
        assert!(!regions.write(Span { region: 0, offset: 0, length: 99 }, &target));
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
