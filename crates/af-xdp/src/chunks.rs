//! Chunks of the UMEM: a frame of the pool that is larger than a page is several of them, and a
//! packet in it takes one descriptor for each chunk that it spans (XDP_USE_SG, Linux 6.6).
//!
//! Only the first chunk of each frame is lent for receiving, so the kernel continues a long packet
//! in first chunks of other frames.

use std::ops::RangeInclusive;

use crate::ring::Descriptor;

/// Frame sizes of pools that can be a UMEM, in bytes. 2048 is the kernel's smallest chunk.
pub(crate) const FRAME_SIZES: RangeInclusive<usize> = 2048..=65536;
/// XDP_PKT_CONTD of linux/if_xdp.h: the packet continues in the next descriptor.
const CONTINUED: u32 = 1;

/// Returns the size of a chunk in bytes, for frames of `frame_size` bytes: the kernel allows at
/// most a page (`xdp_umem_reg` in net/xdp/xdp_umem.c).
pub(crate) fn chunk_size(frame_size: usize) -> usize {
    frame_size.min(rustix::param::page_size())
}

/// Returns true if a packet in a frame of this size can take several chunks.
pub(crate) fn is_multi_buffer(frame_size: usize) -> bool {
    chunk_size(frame_size) < frame_size
}

/// Division of a pool's frames into chunks, with the chunks that each frame has in flight for
/// transmitting.
#[derive(Debug)]
pub(crate) struct Chunks {
    /// Binary logarithm of the size of a chunk, and of a frame.
    shift: u32,
    frame_shift: u32,
    /// Number of chunks in flight for each frame; empty if a frame is one chunk.
    sending: Vec<u8>,
}

impl Chunks {
    /// Divides a pool of `frames` frames. `frame_size` is a power of two.
    pub(crate) fn new(frames: usize, frame_size: usize) -> Self {
        Self {
            shift: chunk_size(frame_size).trailing_zeros(),
            frame_shift: frame_size.trailing_zeros(),
            sending: if is_multi_buffer(frame_size) { vec![0; frames] } else { vec![] },
        }
    }

    /// Returns the number of chunks of a frame.
    #[inline]
    pub(crate) fn per_frame(&self) -> usize {
        1 << (self.frame_shift - self.shift)
    }

    /// Returns the number of chunks that a packet spans.
    #[inline]
    pub(crate) fn spanned(&self, address: u64, length: usize) -> u32 {
        let size = 1 << self.shift;
        let offset = address as usize & (size - 1);
        ((offset + length + size - 1) >> self.shift) as u32
    }

    /// Returns the transmit descriptors of a packet, one for each chunk that it spans.
    #[inline]
    pub(crate) fn descriptors(
        &self,
        mut address: u64,
        mut left: usize,
    ) -> impl Iterator<Item = Descriptor> + use<> {
        let size = 1 << self.shift;
        std::iter::from_fn(move || {
            let room = size - (address as usize & (size - 1));
            let length = left.min(room);
            left -= length;
            let options = if left > 0 { CONTINUED } else { 0 };
            let descriptor = Descriptor { address, length: length as u32, options };
            address += length as u64;
            (length > 0).then_some(descriptor)
        })
    }

    /// Adds `count` chunks of the frame at `address` to those in flight.
    #[inline]
    pub(crate) fn lend(&mut self, address: u64, count: u32) {
        if let Some(sending) = self.sending.get_mut((address >> self.frame_shift) as usize) {
            *sending = sending.saturating_add(count as u8);
        }
    }

    /// Removes a chunk that was sent. Returns true if no other of its frame is in flight.
    #[inline]
    pub(crate) fn complete(&mut self, address: u64) -> bool {
        let Some(sending) = self.sending.get_mut((address >> self.frame_shift) as usize) else {
            return true;
        };
        *sending = sending.saturating_sub(1);
        *sending == 0
    }
}

impl Descriptor {
    /// Returns true if this is the last descriptor of its packet.
    #[inline]
    pub(crate) fn ends_packet(&self) -> bool {
        self.options & CONTINUED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(chunks: &Chunks, address: u64, length: usize) -> Vec<(u64, u32, bool)> {
        let all = chunks.descriptors(address, length);
        all.map(|it| (it.address, it.length, it.ends_packet())).collect()
    }

    #[test]
    fn a_packet_has_a_descriptor_for_each_chunk_that_it_spans() {
        let page = rustix::param::page_size();
        let (chunks, start) = (Chunks::new(4, 4 * page), 4 * page as u64 + 256);
        let (first, page) = (page - 256, page as u64);
        assert_eq!(chunks.per_frame(), 4);
        assert_eq!(lengths(&chunks, start, first), [(start, first as u32, true)]);
        let one_more = [(start, first as u32, false), (5 * page, 1, true)];
        assert_eq!(lengths(&chunks, start, first + 1), one_more);
        let all = lengths(&chunks, start, 4 * page as usize - 256);
        let rest = |chunk| (chunk * page, page as u32, chunk == 7);
        assert_eq!(all, [(start, first as u32, false), rest(5), rest(6), rest(7)]);
        for length in [1, first, first + 1, first + page as usize, 4 * page as usize - 256] {
            let count = lengths(&chunks, start, length).len();
            assert_eq!(chunks.spanned(start, length) as usize, count, "{length}");
        }
    }

    #[test]
    fn a_frame_is_back_with_its_last_chunk() {
        let page = rustix::param::page_size();
        let mut chunks = Chunks::new(2, 2 * page);
        chunks.lend(2 * page as u64, 2);
        assert!(!chunks.complete(2 * page as u64));
        assert!(chunks.complete(3 * page as u64));
        assert!(
            chunks.complete(3 * page as u64),
            "what is not in flight is for the account to say"
        );
        assert!(chunks.complete(u64::MAX), "nor an address outside");
        let mut single = Chunks::new(2, 2048);
        assert_eq!((single.per_frame(), single.spanned(192, 1500)), (1, 1));
        single.lend(0, 1);
        assert!(single.complete(0));
    }
}
