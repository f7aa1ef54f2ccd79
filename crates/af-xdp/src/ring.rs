//! The rings of a queue: the two ends of a ring shared with the kernel ([`Producer`] and
//! [`Consumer`]), its memory ([`Mapped`]), and the calls that make the kernel process rings.
//!
//! Each ring has one producer and one consumer. Both indices count from 0 on, modulo 2^32; an
//! entry's slot is its index modulo the ring's size. The producer publishes its index with release
//! order after it has written the entries, the consumer after it has read them.
//!
//! The indices of the other side are not trusted. One that implies more entries than the ring has
//! counts as no entries, and slots are always reduced modulo the size, so nothing outside of the
//! ring is read.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

mod mapped;

pub(crate) use mapped::{Descriptor, Mapped};

/// Flag with which the kernel asks for a wake-up call (XDP_RING_NEED_WAKEUP).
const NEED_WAKEUP: u32 = 1;

/// Memory of a ring. A trait, so that the tests run without a kernel.
pub(crate) trait Memory {
    /// Type of an entry.
    type Entry: Copy;
    /// Returns the number of slots, a power of two.
    fn size(&self) -> u32;
    /// Returns the producer's index.
    fn producer(&self) -> &AtomicU32;
    /// Returns the consumer's index.
    fn consumer(&self) -> &AtomicU32;
    /// Returns the kernel's flags.
    fn flags(&self) -> &AtomicU32;
    /// Reads the entry of an index, modulo the size.
    fn read(&self, index: u32) -> Self::Entry;
    /// Overwrites the entry of an index, modulo the size.
    fn write(&mut self, index: u32, entry: Self::Entry);
}

/// Writing end of a ring.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    /// Our index. The one in memory lags behind until [`submit`](Self::submit).
    head: u32,
    /// The consumer's index when it was last read.
    tail: u32,
}

impl<M: Memory> Producer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let head = memory.producer().load(Ordering::Relaxed);
        let tail = memory.consumer().load(Ordering::Acquire);
        Self { memory, head, tail }
    }

    /// Returns the number of free slots. Reads the consumer's index if fewer than `wanted` are
    /// known to be free.
    #[inline]
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let size = self.memory.size();
        if size - self.head.wrapping_sub(self.tail).min(size) < wanted {
            self.tail = self.memory.consumer().load(Ordering::Acquire);
        }
        size - self.head.wrapping_sub(self.tail).min(size)
    }

    /// Writes an entry. Returns false, and writes nothing, if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: M::Entry) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        self.memory.write(self.head, entry);
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Publishes all entries written so far.
    #[inline]
    pub(crate) fn submit(&mut self) {
        self.memory.producer().store(self.head, Ordering::Release);
    }

    /// Returns the number of entries that the consumer has not taken.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        self.head.wrapping_sub(self.tail).min(self.memory.size())
    }

    /// Returns the number of entries that the consumer has not taken and that `counts` selects.
    pub(crate) fn count_pending(&mut self, counts: impl Fn(&M::Entry) -> bool) -> u64 {
        let pending = self.pending();
        let first = self.head.wrapping_sub(pending);
        let entry = |index| self.memory.read(first.wrapping_add(index));
        (0..pending).map(entry).filter(counts).count() as u64
    }

    /// Returns the number of entries that the consumer has taken since the ring was created, modulo
    /// 2^32.
    pub(crate) fn consumed(&self) -> u32 {
        self.memory.consumer().load(Ordering::Acquire)
    }

    /// Returns all entries that the consumer has not taken, or `None` if the indices contradict the
    /// size. For a successor; the consumer may take some meanwhile.
    pub(crate) fn waiting(&mut self) -> Option<Vec<M::Entry>> {
        self.tail = self.memory.consumer().load(Ordering::Acquire);
        let count = self.head.wrapping_sub(self.tail);
        let entry = |index| self.memory.read(self.tail.wrapping_add(index));
        (count <= self.memory.size()).then(|| (0..count).map(entry).collect())
    }

    /// Returns true if the kernel waits for a wake-up call.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// Reading end of a ring.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Our index. The one in memory lags behind until [`release`](Self::release).
    tail: u32,
    /// The producer's index when it was last read.
    head: u32,
}

impl<M: Memory> Consumer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let tail = memory.consumer().load(Ordering::Relaxed);
        Self { memory, tail, head: tail }
    }

    /// Returns the number of entries to be read. Reads the producer's index if fewer than `wanted`
    /// are known.
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

    /// Returns the number of entries to be read that `counts` selects.
    pub(crate) fn count_available(&mut self, counts: impl Fn(&M::Entry) -> bool) -> u64 {
        let available = self.available(u32::MAX);
        let entry = |index| self.memory.read(self.tail.wrapping_add(index));
        (0..available).map(entry).filter(counts).count() as u64
    }

    /// Removes and returns the next entry.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<M::Entry> {
        if self.available(1) == 0 {
            return None;
        }
        let entry = self.memory.read(self.tail);
        self.tail = self.tail.wrapping_add(1);
        Some(entry)
    }

    /// Returns the next entry if it is known to be there, without removing it.
    #[inline]
    pub(crate) fn peek(&self) -> Option<M::Entry> {
        (self.head != self.tail).then(|| self.memory.read(self.tail))
    }

    /// Returns the number of entries to be read, as of now.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        self.produced().wrapping_sub(self.tail)
    }

    /// Returns the number of entries that the producer has published since the ring was created,
    /// modulo 2^32.
    pub(crate) fn produced(&self) -> u32 {
        self.memory.producer().load(Ordering::Acquire)
    }

    /// Returns all entries that are to be read, without removing them, or `None` if the indices
    /// contradict the size. For a successor.
    pub(crate) fn waiting(&mut self) -> Option<Vec<M::Entry>> {
        self.head = self.produced();
        let count = self.head.wrapping_sub(self.tail);
        let entry = |index| self.memory.read(self.tail.wrapping_add(index));
        (count <= self.memory.size()).then(|| (0..count).map(entry).collect())
    }

    /// Removes all entries. Returns the number [`produced`](Self::produced) at that time, or `None`
    /// if the indices contradict the size. For a successor.
    pub(crate) fn skip(&mut self) -> Option<u32> {
        self.head = self.produced();
        if self.head.wrapping_sub(self.tail) > self.memory.size() {
            return None;
        }
        self.tail = self.head;
        self.release();
        Some(self.tail)
    }

    /// Returns the slots of all entries read to the producer.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store(self.tail, Ordering::Release);
    }
}

/// The four rings of a socket.
#[derive(Debug)]
pub(crate) struct Rings {
    /// Free frames for the kernel to receive into.
    pub(crate) fill: Producer<Mapped<u64>>,
    /// Frames that were sent.
    pub(crate) completion: Consumer<Mapped<u64>>,
    /// Frames that were received.
    pub(crate) receive: Consumer<Mapped<Descriptor>>,
    /// Frames to be sent.
    pub(crate) transmit: Producer<Mapped<Descriptor>>,
}

/// Result of a transmit wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxWakeup {
    /// The kernel processed the ring.
    Done,
    /// The ring has more frames than one call sends, or the kernel was short of a resource.
    Again,
    /// In copy mode: the device refused one frame, which is removed from the ring and lost (no
    /// carrier, or its queue is full). Otherwise like `Again`.
    Busy,
    /// The link is down or the interface was deleted.
    Down,
}

/// Makes the kernel process the transmit ring of a socket.
#[inline]
pub(crate) fn wake_tx(socket: impl AsFd) -> TxWakeup {
    match rustix::net::send(socket, &[], SendFlags::DONTWAIT) {
        Ok(_) => TxWakeup::Done,
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR) => TxWakeup::Again,
        Err(Errno::BUSY) => TxWakeup::Busy,
        Err(_) => TxWakeup::Down,
    }
}

/// Makes the kernel process the fill ring of a socket and, with busy polling, poll the device.
#[inline]
pub(crate) fn wake_rx(socket: impl AsFd) {
    // The call reads nothing; its result has no meaning.
    let _ = rustix::net::recv(socket, &mut [0_u8; 0], RecvFlags::DONTWAIT);
}

#[cfg(test)]
mod tests;
