//! A ring in shared memory: a header and descriptors.
//!
//! The client owns the memory and the buffers of every ring. In a ring to the server the client
//! puts frames at the head, and the server returns the buffers by the tail. In a ring to the client
//! the client offers empty buffers at the head, and the server fills them up to the tail.
//! (FDio/vpp, docs of libmemif, "Shared memory layout".)
#![allow(unsafe_code, reason = "the ring's words in shared memory")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::region::{Regions, Span};

/// Cookie at the start of each ring.
const COOKIE: u32 = 0x03e3_1f20;
/// Octets of the header: one cache line with the head, one with the tail.
const HEADER: usize = 128;
/// Octets of a descriptor.
const DESCRIPTOR: usize = 16;
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;

/// Descriptor flag: the frame continues in the next descriptor.
const NEXT: u16 = 1;
/// Ring flag: the receiver polls, so the sender must not ring the doorbell.
const INTERRUPT_MASKED: u16 = 1;

// A descriptor is read and written as two words of 64 bits.
const _: () = assert!(cfg!(target_endian = "little"), "descriptors are laid out for these");

/// Private copy of a descriptor. Checks and use refer to the same values, even if the peer changes
/// the descriptor in between (time of check to time of use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// The buffer, and the octets of it that are in use.
    pub(crate) span: Span,
    /// True if the frame continues in the next descriptor.
    pub(crate) more: bool,
}

/// Maximum number of descriptors of one frame. Without a limit a peer could chain every slot of a
/// ring into one frame again and again, and keep a lane in the loop.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// A violation of the protocol that no correct peer commits. The ring cannot be used any further,
/// so the queue drops its rings and the control thread disconnects the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

/// A ring in shared memory that the peer may write at any time.
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    size: u16,
    /// Keeps the memory mapped.
    regions: Arc<Regions>,
}

// SAFETY: a ring is accessed by atomic operations only, and the memory belongs to the process.
unsafe impl Send for Ring {}

/// Returns the length of a ring of `slots` slots in octets.
pub(crate) const fn ring_length(slots: usize) -> usize {
    HEADER + slots * DESCRIPTOR
}

impl Ring {
    /// Creates a view of the ring of `2^slots` descriptors at `offset` of a region. Returns `None`
    /// if it is not completely inside, or not aligned to eight octets. Everything else relies on
    /// this check: the peer chooses all four numbers.
    pub(crate) fn new(regions: Arc<Regions>, region: u16, offset: u32, slots: u8) -> Option<Self> {
        let size = 1u16.checked_shl(slots.into()).filter(|size| *size <= 1 << 14)?;
        let length = ring_length(size.into()) as u32;
        let start = regions.0.get(usize::from(region))?.pointer(offset, length)?;
        (start.addr().get() % 8 == 0).then_some(Self { start, size, regions })
    }

    /// Returns the regions of the ring and its buffers.
    #[inline]
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns the number of slots, a power of two.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Writes the cookie and empties the ring.
    pub(crate) fn initialize(&self) {
        self.cookie().store(COOKIE, Ordering::Relaxed);
        self.reset();
    }

    /// Empties the ring.
    pub(crate) fn reset(&self) {
        self.head().store(0, Ordering::Relaxed);
        self.tail().store(0, Ordering::Relaxed);
    }

    /// Returns true if the memory has the cookie of a ring.
    pub(crate) fn has_cookie(&self) -> bool {
        self.cookie().load(Ordering::Relaxed) == COOKIE
    }

    #[inline]
    pub(crate) fn head(&self) -> &AtomicU16 {
        self.word(HEAD)
    }

    #[inline]
    pub(crate) fn tail(&self) -> &AtomicU16 {
        self.word(TAIL)
    }

    /// Tells the sender whether to ring the doorbell.
    pub(crate) fn mask_interrupt(&self, masked: bool) {
        self.word(FLAGS).store(if masked { INTERRUPT_MASKED } else { 0 }, Ordering::SeqCst);
    }

    /// Returns true if the receiver polls, so that the doorbell must not be rung.
    #[inline]
    pub(crate) fn is_interrupt_masked(&self) -> bool {
        self.word(FLAGS).load(Ordering::SeqCst) & INTERRUPT_MASKED != 0
    }

    /// Returns a private copy of the descriptor in a slot.
    #[inline]
    pub(crate) fn read_descriptor(&self, slot: u16) -> Descriptor {
        let [low, high] = self.words(slot);
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        let (flags, region, length) = (low as u16, (low >> 16) as u16, (low >> 32) as u32);
        let span = Span { region, offset: high as u32, length };
        Descriptor { span, more: flags & NEXT != 0 }
    }

    /// Writes the descriptor of a slot.
    #[inline]
    pub(crate) fn write_descriptor(&self, slot: u16, descriptor: Descriptor) {
        let Span { region, offset, length } = descriptor.span;
        let flags = if descriptor.more { NEXT } else { 0 };
        let [low, high] = self.words(slot);
        let word = u64::from(flags) | u64::from(region) << 16 | u64::from(length) << 32;
        low.store(word, Ordering::Relaxed);
        high.store(offset.into(), Ordering::Relaxed);
    }

    fn cookie(&self) -> &AtomicU32 {
        // SAFETY: `new` has checked that the header is inside the mapping, which `regions` keeps,
        // and aligned to eight. Access is atomic, so concurrent writes of the peer are harmless.
        unsafe { self.start.cast().as_ref() }
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset.is_multiple_of(2) && offset < HEADER);
        // SAFETY: as in `cookie`; all callers pass an offset of a word in the header.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    /// Returns the two words of a descriptor.
    #[inline]
    fn words(&self, slot: u16) -> [&AtomicU64; 2] {
        let index = usize::from(slot & (self.size - 1));
        // SAFETY: as in `cookie`; the index is below the size, and `new` has checked that all
        // descriptors are inside.
        unsafe {
            let low = self.start.add(HEADER + index * DESCRIPTOR).cast::<AtomicU64>();
            [low.as_ref(), low.add(1).as_ref()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    fn memory(length: usize) -> Arc<Regions> {
        Arc::new(Regions(vec![Region::create("memif-test", length).unwrap()]))
    }

    #[test]
    fn a_ring_is_inside_its_region() {
        let memory = memory(4096);
        let ring = |region, offset, slots| Ring::new(Arc::clone(&memory), region, offset, slots);
        assert_eq!(ring(0, 0, 7).unwrap().size(), 128);
        assert!(ring(0, 4096 - ring_length(2) as u32, 1).is_some());
        for (region, offset, slots) in
            [(1, 0, 1), (0, 0, 8), (0, 4096 - 152, 1), (0, 4, 1), (0, u32::MAX - 7, 1), (0, 0, 15)]
        {
            assert!(ring(region, offset, slots).is_none(), "{region} {offset} {slots}");
        }
        assert!(ring(0, 0, 255).is_none());
    }

    #[test]
    fn words_lie_where_others_look_for_them() {
        let memory = memory(4096);
        let ring = Ring::new(Arc::clone(&memory), 0, 64, 2).unwrap();
        assert!(!ring.has_cookie());
        ring.initialize();
        ring.mask_interrupt(true);
        ring.head().store(0x1234, Ordering::Relaxed);
        ring.tail().store(0x5678, Ordering::Relaxed);
        let span = Span { region: 0x0201, offset: 0x0807_0605, length: 0x0c0b_0a09 };
        ring.write_descriptor(5, Descriptor { span, more: true }); // the second of four
        let mut octets = [0; 256];
        assert!(memory.read(Span { region: 0, offset: 64, length: 256 }, &mut octets));
        assert_eq!(octets[..8], [0x20, 0x1f, 0xe3, 3, 1, 0, 0x34, 0x12]);
        assert_eq!(octets[64..66], [0x78, 0x56]);
        let descriptor = [1, 0, 1, 2, 9, 10, 11, 12, 5, 6, 7, 8, 0, 0, 0, 0];
        assert_eq!(octets[128 + 16..128 + 32], descriptor);
        assert_eq!(ring.read_descriptor(1), Descriptor { span, more: true });
        assert!(ring.has_cookie() && ring.is_interrupt_masked());
    }
}
