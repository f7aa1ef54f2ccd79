//! Receive ring shared with the kernel: an array of slots that begin with a `struct tpacket2_hdr`,
//! whose status word says who owns the slot.
#![allow(unsafe_code, reason = "a ring shared with the kernel")]

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::socket::{RingRequest, Socket};
use crate::virtio;

/// Slot owner and properties of the frame: `TP_STATUS_*`.
const KERNEL: u32 = 0;
const USER: u32 = 1;
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// Length of `struct tpacket2_hdr` in bytes.
const HEADER: usize = 32;
/// Maximum offset of the Ethernet header in a slot: header, address, alignment, virtio header.
const OVERHEAD: u32 = 128;
/// Size of the blocks in which the kernel allocates a ring. Larger blocks are hard to get on a
/// machine with fragmented memory.
const BLOCK: u32 = 65536;
/// Minimum slot size, with which the smallest ring is one block.
const SMALLEST_SLOT: u32 = 1024;

/// Dimensions of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    slot: u32,
    frames: u32,
}

impl Geometry {
    /// Computes a ring of `frames` slots, a power of two from 64, for frames of up to `longest`
    /// bytes.
    pub(super) fn new(longest: u32, frames: u32) -> Self {
        let slot = (longest + OVERHEAD).next_power_of_two().max(SMALLEST_SLOT);
        Self { slot, frames }
    }

    /// Returns the size of the ring in bytes.
    pub(super) fn length(&self) -> usize {
        self.slot as usize * self.frames as usize
    }

    fn request(&self) -> RingRequest {
        let block_size = BLOCK.max(self.slot);
        let blocks = (self.length() / block_size as usize) as u32;
        RingRequest { block_size, blocks, frame_size: self.slot, frames: self.frames }
    }
}

/// Mapped ring of a socket. Slots and blocks are powers of two, so slots follow each other without
/// gaps.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    geometry: Geometry,
}

// SAFETY: the mapping belongs to the process, not to a thread, and only its owner accesses it.
unsafe impl Send for Ring {}

/// `struct tpacket2_hdr` after its status word.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    length: u32,
    captured: u32,
    mac: u16,
    net: u16,
    seconds: u32,
    nanoseconds: u32,
    vlan_tag: u16,
    vlan_type: u16,
}

/// A received frame in the ring.
pub(super) struct Received<'a> {
    /// Captured bytes from the Ethernet header on, without a VLAN tag that the kernel stripped.
    pub(super) bytes: &'a [u8],
    /// True if the whole frame was captured.
    pub(super) whole: bool,
    /// virtio header with the checksum state.
    pub(super) virtio: [u8; virtio::LENGTH],
    /// Stripped VLAN tag in wire format.
    pub(super) tag: Option<[u8; 4]>,
}

impl Ring {
    /// Creates the ring of a socket and maps it.
    #[cfg(test)]
    pub(super) fn new(socket: &Socket, geometry: Geometry) -> io::Result<Self> {
        Self::create(socket, geometry)?;
        Self::map(socket, geometry)
    }

    /// Creates the ring of a socket, to be mapped by this process or another one.
    pub(super) fn create(socket: &Socket, geometry: Geometry) -> io::Result<()> {
        socket.set_receive_ring(&geometry.request())
    }

    /// Maps the ring of a socket, which was created with the same dimensions.
    pub(super) fn map(socket: &Socket, geometry: Geometry) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Populated at once, so that no lane ever waits for a page.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let (hint, length) = (std::ptr::null_mut(), geometry.length());
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this
        // process.
        let start =
            unsafe { rustix::mm::mmap(hint, length, protection, flags, socket.as_fd(), 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, geometry })
    }

    /// Returns the slot at a position; positions wrap at the number of slots.
    fn slot(&self, position: u32) -> NonNull<u8> {
        let number = position & (self.geometry.frames - 1);
        // SAFETY: the number is below that of the slots, so the slot is inside the mapping.
        unsafe { self.start.add(number as usize * self.geometry.slot as usize) }
    }

    /// Returns the status word of a slot.
    fn status(&self, slot: NonNull<u8>) -> &AtomicU32 {
        // SAFETY: every slot begins with this word, aligned to the page or to a power of two of at
        // least 1024; the kernel accesses it at the same time, atomically; it lives as `self` does.
        unsafe { AtomicU32::from_ptr(slot.cast().as_ptr()) }
    }

    /// Returns true if the kernel has filled the slot at a position.
    pub(super) fn has_received(&self, position: u32) -> bool {
        self.status(self.slot(position)).load(Ordering::Acquire) & USER != 0
    }

    /// Returns the frame at a position, if the kernel has filled the slot. It stays valid until
    /// [`give_back`](Self::give_back).
    #[inline]
    pub(super) fn received(&mut self, position: u32) -> Option<Received<'_>> {
        let slot = self.slot(position);
        let status = self.status(slot).load(Ordering::Acquire);
        if status & USER == 0 {
            return None;
        }
        // SAFETY: the header is inside the slot, and aligned behind the status word; the kernel
        // does not write to a slot that is ours.
        let header = unsafe { slot.add(4).cast::<Header>().read() };
        let size = self.geometry.slot as usize;
        let start = usize::from(header.mac).clamp(HEADER + virtio::LENGTH, size);
        let captured = (header.captured as usize).min(size - start);
        // SAFETY: both are inside the slot, as `start` and `captured` were just bounded by it, and
        // nobody writes to it before `give_back`, for which this borrow has to end.
        let (bytes, virtio) = unsafe {
            let bytes = std::slice::from_raw_parts(slot.add(start).as_ptr(), captured);
            (bytes, slot.add(start - virtio::LENGTH).cast::<[u8; virtio::LENGTH]>().read())
        };
        let whole = captured == header.length as usize;
        Some(Received { bytes, whole, virtio, tag: tag(status, &header) })
    }

    /// Returns a slot to the kernel. The caller must own it.
    #[inline]
    pub(super) fn give_back(&mut self, position: u32) {
        self.status(self.slot(position)).store(KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping of `new`, and what points into it borrows `self`.
        // A failure could only leave it mapped.
        unsafe {
            let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.geometry.length());
        }
    }
}

fn tag(status: u32, header: &Header) -> Option<[u8; 4]> {
    if status & VLAN_VALID == 0 {
        return None;
    }
    let kind = if status & VLAN_TPID_VALID == 0 { 0x8100 } else { header.vlan_type };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), header.vlan_tag.to_be_bytes());
    Some([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_blocks_without_gaps() {
        for (longest, frames) in [(64, 64), (1522, 2048), (9022, 1024), (65536, 64), (1900, 64)] {
            let geometry = Geometry::new(longest, frames);
            let RingRequest { block_size, blocks, frame_size, frames } = geometry.request();
            assert!(frame_size >= longest + OVERHEAD);
            assert_eq!(block_size % frame_size, 0);
            assert_eq!(block_size % 65536, 0);
            assert_eq!(block_size / frame_size * blocks, frames);
            assert_eq!(block_size as usize * blocks as usize, geometry.length());
        }
    }

    #[test]
    fn a_tag_that_was_taken_out_is_put_together() {
        let header = Header {
            length: 0,
            captured: 0,
            mac: 0,
            net: 0,
            seconds: 0,
            nanoseconds: 0,
            vlan_tag: 0x2064,
            vlan_type: 0x88a8,
        };
        assert_eq!(tag(USER, &header), None);
        assert_eq!(tag(VLAN_VALID, &header), Some([0x81, 0, 0x20, 0x64]));
        assert_eq!(tag(VLAN_VALID | VLAN_TPID_VALID, &header), Some([0x88, 0xa8, 0x20, 0x64]));
    }
}
