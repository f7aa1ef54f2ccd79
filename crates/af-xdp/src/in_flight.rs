//! The account of the frames that a queue has in flight: in one of its rings, or in the device.
//!
//! A frame of the pool that is larger than a page is several chunks of the UMEM, and a packet in it
//! takes one descriptor for each chunk that it spans (XDP_USE_SG, Linux 6.6). Only the first chunk
//! of each frame is lent for receiving, so the kernel continues a long packet in first chunks of
//! other frames.
#![allow(unsafe_code, reason = "frames come back from the kernel")]

use std::ops::RangeInclusive;

use fastlane_core::{Frame, Pool, PoolLayout};

use crate::frame_set::FrameSet;
use crate::ring::Descriptor;

/// Maximum number of frames that one queue may have in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameQuota {
    pub(crate) receive: usize,
    pub(crate) transmit: usize,
}

impl FrameQuota {
    /// Divides half of the pool for receiving, and a quarter for transmitting, among the queues of
    /// a lane.
    pub(crate) fn new(pool: &PoolLayout, queues: usize) -> Self {
        let part = |part: usize| (pool.frames() / part / queues.max(1)).max(1);
        Self { receive: part(2), transmit: part(4) }
    }
}

/// Frames of a pool that the kernel has from one queue: in a ring, or in the device.
///
/// A frame is reclaimed only if it was lent, and once, whatever the kernel writes into the rings.
/// When the socket is closed, all frames are reclaimed, including those that the kernel never
/// returned.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// One bit per frame.
    words: Vec<u64>,
    shift: u32,
    count: usize,
    /// Start of the pool's memory. It identifies the pool: pools do not share memory.
    start: usize,
}

impl InFlight {
    pub(crate) fn new(pool: &PoolLayout) -> Self {
        Self {
            words: vec![0; pool.frames().div_ceil(64)],
            shift: pool.frame_size().trailing_zeros(),
            count: 0,
            start: pool.start(),
        }
    }

    /// Takes over the frames in flight of a predecessor. They must have been out when the pool was
    /// adopted, and in no other account.
    pub(crate) fn inherit(&mut self, frames: &FrameSet) {
        self.words.copy_from_slice(&frames.words);
        self.count = frames.len();
    }

    /// Returns true if this is an account of frames of `pool`.
    #[inline]
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        pool.memory().start().as_ptr().addr() == self.start
    }

    /// Returns the number of frames in flight.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds a frame and returns its offset in the pool's memory. Returns `None`, and the frame is
    /// lost, if the frame is not of this pool.
    #[inline]
    pub(crate) fn lend(&mut self, pool: &Pool, frame: Frame) -> Option<u64> {
        let address = pool.lend(frame).filter(|_| self.is_of(pool))?;
        let (word, bit) = self.position(address);
        *self.words.get_mut(word)? |= bit;
        self.count += 1;
        Some(address)
    }

    /// Removes and returns the frame that contains `address`, or returns `None` if that frame is
    /// not in flight.
    #[inline]
    pub(crate) fn reclaim(&mut self, pool: &Pool, address: u64) -> Option<Frame> {
        let (word, bit) = self.position(address);
        let word = self.words.get_mut(word).filter(|word| **word & bit != 0)?;
        if pool.memory().start().as_ptr().addr() != self.start {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        // SAFETY: the bit was set. So the frame was lent by `lend` of this pool, or was out when
        // the pool was adopted (`inherit`), and has not been reclaimed since. The bit is clear now.
        unsafe { pool.reclaim(address) }
    }

    /// Returns all frames to the pool. The socket of the queue must be closed.
    pub(crate) fn reclaim_all(&mut self, pool: &mut Pool) {
        for index in 0..self.words.len() as u64 * 64 {
            if self.count == 0 {
                return;
            }
            if let Some(frame) = self.reclaim(pool, index << self.shift) {
                pool.give(frame);
            }
        }
    }

    /// Returns the index of the word, and the bit in it, of the frame that contains `address`.
    #[inline]
    fn position(&self, address: u64) -> (usize, u64) {
        let index = address >> self.shift;
        ((index / 64) as usize, 1 << (index % 64))
    }
}

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
    use fastlane_table::SharedMemory;

    use super::*;

    fn pool(frames: usize) -> Pool {
        let memory = SharedMemory::create("in-flight-test", frames * 2048).unwrap();
        Pool::new(memory, 2048, 192).unwrap()
    }

    #[test]
    fn a_frame_comes_back_once_and_only_if_lent() {
        let mut pool = pool(70);
        let mut in_flight = InFlight::new(&pool.layout());
        let frame = pool.take().unwrap();
        let address = in_flight.lend(&pool, frame).unwrap();
        assert!(in_flight.reclaim(&pool, address + 2048).is_none());
        assert!(in_flight.reclaim(&pool, u64::MAX).is_none());
        let frame = in_flight.reclaim(&pool, address + 300).unwrap();
        assert!(in_flight.reclaim(&pool, address).is_none());
        pool.give(frame);
        assert_eq!((pool.free(), in_flight.count()), (70, 0));
    }

    #[test]
    fn all_come_back_at_the_end() {
        let mut pool = pool(70);
        let mut in_flight = InFlight::new(&pool.layout());
        while let Some(frame) = pool.take() {
            assert!(in_flight.lend(&pool, frame).is_some());
        }
        assert_eq!((pool.free(), in_flight.count()), (0, 70));
        in_flight.reclaim_all(&mut pool);
        assert_eq!((pool.free(), in_flight.count()), (70, 0));
    }

    #[test]
    fn a_frame_of_another_pool_is_not_lent() {
        let (mut other, ours) = (pool(2), pool(2));
        let mut in_flight = InFlight::new(&ours.layout());
        assert!(in_flight.lend(&ours, other.take().unwrap()).is_none());
        assert_eq!(in_flight.count(), 0);
    }

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
