//! The account of the frames that a queue has in flight: in one of its rings, or in the device.
#![allow(unsafe_code, reason = "frames come back from the kernel")]

use fastlane_core::{Frame, Pool, PoolLayout};

/// Set of frames of one pool, by frame index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameSet {
    /// One bit per frame; the first frame is the lowest bit of the first word.
    words: Vec<u64>,
    frames: u32,
    shift: u32,
}

impl FrameSet {
    /// Creates the empty set for a pool of `frames` frames. `frame_size` is a power of two.
    pub(crate) fn empty(frames: u32, frame_size: usize) -> Self {
        let words = vec![0; frames.div_ceil(64) as usize];
        Self { words, frames, shift: frame_size.trailing_zeros() }
    }

    /// Returns the number of frames in the pool.
    pub(crate) fn pool_frames(&self) -> u32 {
        self.frames
    }

    /// Returns the size of a frame in bytes.
    pub(crate) fn frame_size(&self) -> usize {
        1 << self.shift
    }

    pub(crate) fn contains(&self, index: u32) -> bool {
        self.words.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Returns the number of frames in the set.
    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Adds the frames that contain the addresses. Returns false if an address is outside of the
    /// pool or its frame is already in the set.
    pub(crate) fn add_all(&mut self, addresses: impl Iterator<Item = u64>) -> bool {
        for address in addresses {
            let index = address >> self.shift;
            if index >= u64::from(self.frames) {
                return false;
            }
            let (word, bit) = (&mut self.words[(index / 64) as usize], 1 << (index % 64));
            if *word & bit != 0 {
                return false;
            }
            *word |= bit;
        }
        true
    }

    /// Adds the frames of `other`; returns false if the sets overlapped.
    pub(crate) fn add(&mut self, other: &Self) -> bool {
        let apart = self.words.iter().zip(&other.words).all(|(ours, theirs)| ours & theirs == 0);
        self.unite(other);
        apart
    }

    /// Adds the frames of `other`.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(ours, theirs)| *ours |= theirs);
    }
}

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

    #[test]
    fn a_frame_set_refuses_addresses_outside_and_frames_twice() {
        let mut frames = FrameSet::empty(70, 2048);
        assert!(frames.add_all([0, 2048 * 69 + 256, 2048 * 64].into_iter()));
        assert!(!frames.add_all([2048 * 69].into_iter()), "twice");
        for outside in [2048 * 70, u64::MAX] {
            assert!(!frames.clone().add_all([outside].into_iter()), "{outside}");
        }
        assert_eq!(frames.len(), 3);
        assert!(frames.contains(69) && frames.contains(0) && !frames.contains(1));
        assert!(!frames.contains(70) && !frames.contains(u32::MAX));
        let mut other = FrameSet::empty(70, 2048);
        assert!(other.add_all([2048].into_iter()));
        assert!(frames.add(&other) && !frames.add(&other));
        assert_eq!(frames.len(), 4);
    }
}
