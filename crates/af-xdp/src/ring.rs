//! The two ends of a ring shared with the kernel.
//!
//! Each ring has one producer and one consumer. Both count places from 0 on without bound, modulo
//! 2^32; a place lies at its number modulo the ring's size. The producer publishes its count with
//! release order after it has written the entries, the consumer after it has read them.
//!
//! What the other side wrote is not trusted: a count that would mean more entries than the ring has
//! is taken for none, and entries are read only at places inside.

use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel asks to be called (XDP_RING_NEED_WAKEUP).
const NEED_WAKEUP: u32 = 1;

/// The memory of a ring.
pub(crate) trait Memory {
    /// What lies in the places.
    type Entry: Copy;
    /// Places, a power of two.
    fn size(&self) -> u32;
    /// The producer's count.
    fn producer(&self) -> &AtomicU32;
    /// The consumer's count.
    fn consumer(&self) -> &AtomicU32;
    /// The kernel's flags.
    fn flags(&self) -> &AtomicU32;
    /// The entry at a place, modulo the size.
    fn read(&self, place: u32) -> Self::Entry;
    /// Overwrites the entry at a place, modulo the size.
    fn write(&mut self, place: u32, entry: Self::Entry);
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    /// Our count; the one in memory lags behind until [`submit`](Self::submit).
    head: u32,
    /// The consumer's count when it was last read.
    tail: u32,
}

impl<M: Memory> Producer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let head = memory.producer().load(Ordering::Relaxed);
        let tail = memory.consumer().load(Ordering::Acquire);
        Self { memory, head, tail }
    }

    /// Places that are free, at least `wanted` of them if there are as many.
    #[inline]
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let size = self.memory.size();
        if size - self.head.wrapping_sub(self.tail).min(size) < wanted {
            self.tail = self.memory.consumer().load(Ordering::Acquire);
        }
        size - self.head.wrapping_sub(self.tail).min(size)
    }

    /// Writes an entry; false, and nothing written, when the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: M::Entry) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        self.memory.write(self.head, entry);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Shows the consumer all entries written.
    #[inline]
    pub(crate) fn submit(&mut self) {
        self.memory.producer().store(self.head, Ordering::Release);
    }

    /// Entries that the consumer has not yet taken.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail).min(self.memory.size())
    }

    /// How many entries the consumer has taken since the ring was made, modulo 2^32.
    pub(crate) fn consumed(&self) -> u32 {
        self.memory.consumer().load(Ordering::Acquire)
    }

    /// For a successor: all entries that the consumer has not yet taken; `None` when there cannot
    /// be as many. The consumer may take some meanwhile.
    pub(crate) fn waiting(&mut self) -> Option<Vec<M::Entry>> {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        let count = self.head.wrapping_sub(self.tail);
        let entry = |place| self.memory.read(self.tail.wrapping_add(place));
        (count <= self.memory.size()).then(|| (0..count).map(entry).collect())
    }

    /// Whether the kernel sleeps until it is called.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// The end that reads.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Our count; the one in memory lags behind until [`release`](Self::release).
    tail: u32,
    /// The producer's count when it was last read.
    head: u32,
}

impl<M: Memory> Consumer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let tail = memory.consumer().load(Ordering::Relaxed);
        Self { memory, tail, head: tail }
    }

    /// Entries to be read, at least `wanted` if there are as many.
    #[inline]
    pub(crate) fn available(&mut self, wanted: u32) -> u32 {
        if self.head.wrapping_sub(self.tail) < wanted {
            self.head = self.memory.producer().load(Ordering::Acquire);
            if self.head.wrapping_sub(self.tail) > self.memory.size() {
                self.head = self.tail;
            }
        }
        self.head.wrapping_sub(self.tail)
    }

    /// Reads the next entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<M::Entry> {
        if self.available(1) == 0 {
            return None;
        }
        let entry = self.memory.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// How many entries the producer has shown since the ring was made, modulo 2^32.
    pub(crate) fn produced(&self) -> u32 {
        self.memory.producer().load(Ordering::Acquire)
    }

    /// For a successor: all entries that wait to be read, and will be; `None` when there cannot be
    /// as many.
    pub(crate) fn waiting(&mut self) -> Option<Vec<M::Entry>> {
        self.head = self.produced();
        let count = self.head.wrapping_sub(self.tail);
        let entry = |place| self.memory.read(self.tail.wrapping_add(place));
        (count <= self.memory.size()).then(|| (0..count).map(entry).collect())
    }

    /// For a successor: steps over all that wait to be read; returns what was
    /// [`produced`](Self::produced) then, or `None` when there cannot be as many.
    pub(crate) fn skip(&mut self) -> Option<u32> {
        self.head = self.produced();
        if self.head.wrapping_sub(self.tail) > self.memory.size() {
            return None;
        }
        self.tail = self.head;
        self.release();
        Some(self.tail)
    }

    /// Gives the producer back the places of all entries read.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
