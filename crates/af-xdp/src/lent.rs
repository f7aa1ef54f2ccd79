//! The account of the frames that a queue has lent to the kernel.
#![allow(unsafe_code, reason = "frames come back from the kernel")]

use std::ptr::NonNull;

use fastlane_core::{Frame, Pool};

use crate::census::Frames;

/// Which frames of a pool the kernel has from one queue: in a ring, or on their way.
///
/// A frame comes back only if it was lent, and once, whatever the kernel says; and at the end all
/// come back, also those that the kernel never returned.
#[derive(Debug)]
pub(crate) struct Lent {
    /// One bit a frame.
    words: Vec<u64>,
    shift: u32,
    count: usize,
    /// Which pool it is: pools do not share memory.
    start: NonNull<u8>,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Send for Lent {}

impl Lent {
    pub(crate) fn new(pool: &Pool) -> Self {
        Self {
            words: vec![0; pool.frames().div_ceil(64)],
            shift: pool.frame_size().trailing_zeros(),
            count: 0,
            start: pool.memory().start(),
        }
    }

    /// Takes over the account of a predecessor: frames that were out when the pool was adopted, and
    /// are in nobody else's account.
    pub(crate) fn inherit(&mut self, frames: &Frames) {
        self.words.copy_from_slice(frames.words());
        self.count = frames.count();
    }

    /// Whether this is the account of that pool.
    #[inline]
    pub(crate) fn is_of(&self, pool: &Pool) -> bool {
        pool.memory().start() == self.start
    }

    /// How many frames are lent.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Lends a frame: returns where it begins in the pool's memory. `None`, and the frame is lost,
    /// when it is not of this pool.
    #[inline]
    pub(crate) fn lend(&mut self, pool: &Pool, frame: Frame) -> Option<u64> {
        let address = pool.lend(frame).filter(|_| self.is_of(pool))?;
        let (word, bit) = self.place(address);
        *self.words.get_mut(word)? |= bit;
        self.count += 1;
        Some(address)
    }

    /// Takes back the frame that `address` lies in, or `None` when it is not lent.
    #[inline]
    pub(crate) fn reclaim(&mut self, pool: &Pool, address: u64) -> Option<Frame> {
        let (word, bit) = self.place(address);
        let word = self.words.get_mut(word).filter(|word| **word & bit != 0)?;
        if pool.memory().start() != self.start {
            return None;
        }
        *word &= !bit;
        self.count -= 1;
        // SAFETY: the bit was set, so the frame was lent by `lend` of this pool, or was out when
        // the pool was adopted (`inherit`), and has not been reclaimed since; and now the bit is
        // clear.
        unsafe { pool.reclaim(address) }
    }

    /// Returns all frames to the pool. For a queue whose socket is closed.
    pub(crate) fn reclaim_all(&mut self, pool: &mut Pool) {
        for index in 0..self.words.len() as u64 * 64 {
            if let Some(frame) = self.reclaim(pool, index << self.shift) {
                pool.give(frame);
            }
        }
    }

    #[inline]
    fn place(&self, address: u64) -> (usize, u64) {
        let index = address >> self.shift;
        ((index / 64) as usize, 1 << (index % 64))
    }
}

#[cfg(test)]
mod tests {
    use fastlane_table::SharedMemory;

    use super::*;

    fn pool(frames: usize) -> Pool {
        let memory = SharedMemory::create("lent-test", frames * 2048).unwrap();
        Pool::new(memory, 2048, 192).unwrap()
    }

    #[test]
    fn a_frame_comes_back_once_and_only_if_lent() {
        let mut pool = pool(70);
        let mut lent = Lent::new(&pool);
        let frame = pool.take().unwrap();
        let address = lent.lend(&pool, frame).unwrap();
        assert!(lent.reclaim(&pool, address + 2048).is_none());
        assert!(lent.reclaim(&pool, u64::MAX).is_none());
        let frame = lent.reclaim(&pool, address + 300).unwrap();
        assert!(lent.reclaim(&pool, address).is_none());
        pool.give(frame);
        assert_eq!((pool.free(), lent.count()), (70, 0));
    }

    #[test]
    fn all_come_back_at_the_end() {
        let mut pool = pool(70);
        let mut lent = Lent::new(&pool);
        while let Some(frame) = pool.take() {
            assert!(lent.lend(&pool, frame).is_some());
        }
        assert_eq!((pool.free(), lent.count()), (0, 70));
        lent.reclaim_all(&mut pool);
        assert_eq!((pool.free(), lent.count()), (70, 0));
    }

    #[test]
    fn a_frame_of_another_pool_is_not_lent() {
        let (mut other, ours) = (pool(2), pool(2));
        let mut lent = Lent::new(&ours);
        assert!(lent.lend(&ours, other.take().unwrap()).is_none());
        assert_eq!(lent.count(), 0);
    }
}
