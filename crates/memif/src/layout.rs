//! Layout of a client's memory: one region with the rings and their buffers.

use crate::region::Span;
use crate::ring::{Descriptor, Ring, ring_length};

/// Number and size of a client's rings, and their offsets in its one region. All rings come first,
/// those to the server before those to the client; then their buffers in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rings to the server.
    pub(crate) to_server: usize,
    /// Rings to the client.
    pub(crate) to_client: usize,
    /// Slots of a ring, as a power of two.
    pub(crate) slots: u8,
    /// Octets of a buffer.
    pub(crate) buffer_size: usize,
}

impl Layout {
    /// Returns the number of rings.
    pub(crate) fn rings(self) -> usize {
        self.to_server + self.to_client
    }

    /// Returns the distance between two rings, which begin at cache lines.
    fn ring_stride(self) -> usize {
        ring_length(1 << self.slots).next_multiple_of(64)
    }

    pub(crate) fn ring_offset(self, ring: usize) -> usize {
        ring * self.ring_stride()
    }

    /// Returns the offset of the buffers of a ring. The first buffer begins at a page.
    fn buffer_offset(self, ring: usize) -> usize {
        let rings = (self.rings() * self.ring_stride()).next_multiple_of(4096);
        rings + ((ring * self.buffer_size) << self.slots)
    }

    /// Returns the length of the region in octets.
    pub(crate) fn length(self) -> usize {
        self.buffer_offset(self.rings())
    }

    /// Returns the buffers of the ring to the server with this index.
    pub(crate) fn to_server(self, index: usize) -> Buffers {
        Buffers { start: self.buffer_offset(index) as u32, size: self.buffer_size as u32 }
    }

    /// Returns the buffers of the ring to the client with this index.
    pub(crate) fn to_client(self, index: usize) -> Buffers {
        self.to_server(self.to_server + index)
    }
}

/// Buffers of one ring of a client: one per slot, adjacent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// Offset of the first buffer in the region.
    pub(crate) start: u32,
    /// Octets of a buffer.
    pub(crate) size: u32,
}

impl Buffers {
    /// Index of the region with the client's rings and buffers.
    pub(crate) const REGION: u16 = 0;

    /// Returns the buffer of a slot.
    #[inline]
    pub(crate) fn span(self, slot: u16, ring: &Ring) -> Span {
        let offset = self.start + u32::from(slot & (ring.size() - 1)) * self.size;
        Span { region: Self::REGION, offset, length: self.size }
    }

    /// Returns the descriptor of the empty buffer of a slot.
    #[inline]
    pub(crate) fn empty_descriptor(self, slot: u16, ring: &Ring) -> Descriptor {
        Descriptor { span: self.span(slot, ring), more: false }
    }
}
