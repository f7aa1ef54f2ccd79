//! Rings in memory that the kernel provides and writes.
#![allow(unsafe_code, reason = "rings shared with the kernel")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::XdpRingOffset;

use super::Memory;

/// Entry of an AF_XDP ring: plain integers.
///
/// # Safety
/// Every bit pattern must be a valid value of the type.
pub(crate) unsafe trait Entry: Copy {}

// SAFETY: every bit pattern is a valid integer.
unsafe impl Entry for u64 {}
// SAFETY: the descriptor consists of integers only, without padding.
unsafe impl Entry for Descriptor {}

/// Entry of a receive or transmit ring: `struct xdp_desc` in linux/if_xdp.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// Offset of the first byte in the UMEM.
    pub(crate) address: u64,
    /// Length of the frame in bytes.
    pub(crate) length: u32,
    /// Flags such as XDP_PKT_CONTD; 0 for a frame in one piece.
    pub(crate) options: u32,
}

/// Mapped ring of a socket.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    start: NonNull<u8>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    owned: PhantomData<T>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and this value is its only user.
unsafe impl<T: Entry> Send for Mapped<T> {}

impl<T: Entry> Mapped<T> {
    /// Maps the ring of `socket` that `page` (an XDP_PGOFF constant) names. `size` is its number of
    /// slots, and `offsets` are the ones that the kernel reported for it.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: &XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let bad = || io::Error::other("the kernel's ring layout is not one of Linux 6.1 or newer");
        let flags = offsets.flags.ok_or_else(bad)?;
        let entries_end =
            (size as usize).checked_mul(size_of::<T>()).map(|bytes| bytes as u64 + offsets.desc);
        let length = entries_end.filter(|end| *end < 1 << 32).ok_or_else(bad)?;
        let inside = |offset: u64| offset.is_multiple_of(4) && offset + 4 <= length;
        let aligned = offsets.desc.is_multiple_of(align_of::<T>() as u64);
        let all = inside(offsets.producer) && inside(offsets.consumer) && inside(flags);
        if !all || !aligned || !size.is_power_of_two() {
            return Err(bad());
        }
        let length = length as usize;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this
        // process.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            rustix::mm::mmap(ptr::null_mut(), length, protection, flags, socket, page)?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: all offsets were checked to be inside the mapping, which is `length` bytes long.
        let at = |offset: u64| unsafe { start.add(offset as usize) };
        Ok(Self {
            start,
            length,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(flags).cast(),
            entries: at(offsets.desc).cast(),
            size,
            owned: PhantomData,
        })
    }
}

impl<T> Mapped<T> {
    /// Returns true if the ring extends at least one page beyond this mapping.
    pub(crate) fn is_part(&self, socket: BorrowedFd<'_>, page: u64) -> bool {
        let length = self.length.next_multiple_of(rustix::param::page_size()) + 1;
        // SAFETY: as in `new`.
        let longer = unsafe {
            let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED);
            rustix::mm::mmap(ptr::null_mut(), length, protection, flags, socket, page)
        };
        // SAFETY: the mapping was just created, and nothing else has its address.
        longer.is_ok_and(|start| unsafe { rustix::mm::munmap(start, length) }.is_ok())
    }
}

impl<T: Entry> Memory for Mapped<T> {
    type Entry = T;

    #[inline]
    fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the index is inside the mapping and aligned (checked in `new`), and it is only
        // accessed atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.flags.as_ref() }
    }

    #[inline]
    fn read(&self, index: u32) -> T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: the slot is below the size, so the entry is inside the mapping and aligned
        // (checked in `new`). The read is volatile because the kernel may write at any time; any
        // value is valid.
        unsafe { self.entries.add(slot).read_volatile() }
    }

    #[inline]
    fn write(&mut self, index: u32, entry: T) {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: as in `read`; only the kernel reads what is written here.
        unsafe { self.entries.add(slot).write_volatile(entry) };
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping created in `new`, which is unmapped
        // only here.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
