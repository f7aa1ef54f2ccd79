//! Ring of descriptors of lent packets, for one producer and one consumer.
//!
//! Two flags decide whether the consumer may read a lent packet, as in Dekker's algorithm. The
//! consumer sets `reading` and then tests whether the producer has closed. The producer closes and
//! then tests `reading`. In the single order of these four sequentially consistent accesses one of
//! them sees the other: either the consumer reads nothing any more, or the producer waits until it
//! has finished. Indices increase without end; a slot is an index modulo the length, a power of
//! two.
#![allow(unsafe_code, reason = "memory that two threads use in turn; each block says why")]

use std::cell::UnsafeCell;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fastlane_core::{Packet, PacketOwnership, Partial, PortId, RawVerdict};

use super::doorbell::LaneDoorbell;

/// Descriptor of a lent packet.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    data: NonNull<u8>,
    length: u32,
    verdict: RawVerdict,
    port: PortId,
    labelled: bool,
    partial: Option<Partial>,
}

/// Packet as the receiver sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) verdict: RawVerdict,
    pub(super) port: PortId,
    pub(super) labelled: bool,
    pub(super) partial: Option<Partial>,
}

/// Value with a cache line of its own, and the adjacent line that processors prefetch with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared {
    /// Number of published descriptors; only the producer writes it.
    produced: Padded<AtomicUsize>,
    /// Number of consumed descriptors; only the consumer writes it.
    consumed: Padded<AtomicUsize>,
    /// True while the consumer reads lent packets.
    reading: Padded<AtomicBool>,
    /// True once the producer takes its packets back.
    producer_closed: Padded<AtomicBool>,
    /// True once the consumer reads no more.
    consumer_closed: AtomicBool,
    /// LaneDoorbell of the consumer.
    doorbell: Arc<LaneDoorbell>,
    slots: Box<[UnsafeCell<Descriptor>]>,
}

// SAFETY: only the producer writes a slot, while its index is not below `produced`. Only the
// consumer reads it, while it is between `consumed` and `produced`. The indices are stored with
// release and loaded with acquire. `Producer` and `Consumer` exist once each and take `&mut self`.
// The packets that descriptors point to are lent as the module describes.
unsafe impl Sync for Shared {}
// SAFETY: access is exclusive as for `Sync`, and a descriptor is not bound to a thread.
unsafe impl Send for Shared {}

/// End that lends packets.
#[derive(Debug)]
pub(super) struct Producer {
    shared: Arc<Shared>,
    capacity: usize,
    /// Number of descriptors written, published or not.
    written: usize,
    /// Last value read from `consumed`.
    consumed: usize,
}

/// End that reads packets.
#[derive(Debug)]
pub(super) struct Consumer {
    shared: Arc<Shared>,
    consumed: usize,
}

/// Creates an empty ring for `capacity` packets, whose consumer waits for `doorbell`.
pub(super) fn channel(capacity: usize, doorbell: &Arc<LaneDoorbell>) -> (Producer, Consumer) {
    let empty = Descriptor {
        data: NonNull::dangling(),
        length: 0,
        verdict: RawVerdict::default(),
        port: PortId(0),
        labelled: false,
        partial: None,
    };
    let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(empty)).collect();
    let shared = Arc::new(Shared {
        produced: Padded::default(),
        consumed: Padded::default(),
        reading: Padded::default(),
        producer_closed: Padded::default(),
        consumer_closed: AtomicBool::new(false),
        doorbell: Arc::clone(doorbell),
        slots,
    });
    let producer = Producer { shared: Arc::clone(&shared), capacity, written: 0, consumed: 0 };
    (producer, Consumer { shared, consumed: 0 })
}

impl Shared {
    #[inline]
    fn slot(&self, index: usize) -> *mut Descriptor {
        self.slots[index & (self.slots.len() - 1)].get()
    }
}

impl Producer {
    /// Returns the maximum number of lent packets.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of packets that fit, as of the last call of [`unread`](Self::unread).
    #[inline]
    pub(super) fn space(&self) -> usize {
        self.capacity - self.written.wrapping_sub(self.consumed)
    }

    /// Writes the descriptor of a packet, which the caller keeps until the consumer has read it.
    /// Returns false if there is no space.
    #[inline]
    pub(super) fn push(&mut self, packet: &Packet) -> bool {
        if self.space() == 0 {
            return false;
        }
        let descriptor = Descriptor {
            data: packet.data(),
            length: packet.len() as u32,
            verdict: packet.verdict(),
            port: packet.port(),
            labelled: packet.is_labelled(),
            partial: packet.partial_checksum(),
        };
        // SAFETY: the index is not published, and the descriptor that was in this slot before was
        // consumed, or there would be no space. So nothing else reads the slot.
        unsafe { self.shared.slot(self.written).write(descriptor) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes all written descriptors to the consumer.
    #[inline]
    pub(super) fn publish(&self) {
        self.shared.produced.0.store(self.written, Ordering::Release);
    }

    /// Wakes the consumer for the published packets, if it sleeps.
    #[inline]
    pub(super) fn ring(&self) {
        self.shared.doorbell.ring();
    }

    /// Does what [`ring`](Self::ring) does, behind a fence of the caller.
    #[inline]
    pub(super) fn wake(&self) {
        self.shared.doorbell.wake();
    }

    /// Returns the number of packets that the consumer has not read. The others belong to the
    /// producer again.
    #[inline]
    pub(super) fn unread(&mut self) -> usize {
        self.consumed = self.shared.consumed.0.load(Ordering::Acquire);
        self.written.wrapping_sub(self.consumed)
    }

    /// Returns true if the consumer has closed, after which it reads nothing.
    #[inline]
    pub(super) fn is_consumer_gone(&self) -> bool {
        self.shared.consumer_closed.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.producer_closed.0.load(Ordering::Relaxed)
    }

    /// Closes the ring. When this returns, the consumer reads nothing and never will.
    pub(super) fn close(&mut self) {
        self.shared.producer_closed.0.store(true, Ordering::SeqCst);
        while self.shared.reading.0.load(Ordering::SeqCst) {
            std::thread::yield_now(); // the other thread may need this core
        }
    }

    /// Resets the count of lent packets after one end has closed.
    pub(super) fn forget(&mut self) {
        self.written = self.consumed;
    }
}

impl Drop for Producer {
    /// Closes the ring without waiting for the consumer. Packets that are still lent are lost to
    /// their pool, which keeps their memory mapped.
    fn drop(&mut self) {
        self.shared.producer_closed.0.store(true, Ordering::SeqCst);
    }
}

/// Guard that clears the flag `reading`, also on unwinding.
struct Reading<'a>(&'a AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Consumer {
    /// Returns true if packets can be read.
    #[inline]
    pub(super) fn has_packets(&self) -> bool {
        self.produced() != self.consumed
    }

    /// Returns the number of descriptors that the producer has published.
    #[inline]
    pub(super) fn produced(&self) -> usize {
        self.shared.produced.0.load(Ordering::Acquire)
    }

    /// Returns true if all descriptors up to `produced`, a result of [`produced`](Self::produced),
    /// were read.
    pub(super) fn has_passed(&self, produced: usize) -> bool {
        produced.wrapping_sub(self.consumed).cast_signed() <= 0
    }

    /// Announces that the consumer is about to sleep. Returns true if packets have arrived, so that
    /// it must not.
    pub(super) fn arm(&self) -> bool {
        self.shared.doorbell.arm();
        self.has_packets()
    }

    /// Announces that the consumer is awake.
    #[inline]
    pub(super) fn awake(&self) {
        self.shared.doorbell.disarm();
    }

    /// Returns the descriptor that becomes readable for a sleeping consumer.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.shared.doorbell.event()
    }

    /// Calls `take` with at most `limit` packets, then returns all of them to the producer.
    #[inline]
    pub(super) fn read(&mut self, limit: usize, mut take: impl FnMut(Passed<'_>)) {
        let shared = &*self.shared;
        let produced = shared.produced.0.load(Ordering::Acquire);
        let count = produced.wrapping_sub(self.consumed).min(limit);
        if count == 0 {
            return;
        }
        shared.reading.0.store(true, Ordering::SeqCst);
        let reading = Reading(&shared.reading.0);
        if shared.producer_closed.0.load(Ordering::SeqCst)
            || shared.consumer_closed.load(Ordering::Relaxed)
        {
            return;
        }
        for index in 0..count {
            // SAFETY: the index is between `consumed` and `produced`, so the slot was written and
            // is not written again before `consumed` has passed it.
            let descriptor = unsafe { shared.slot(self.consumed.wrapping_add(index)).read() };
            let Descriptor { data, length, verdict, port, labelled, partial } = descriptor;
            // SAFETY: the producer keeps this packet unchanged until `consumed` has passed it, or
            // until it has closed and `reading` is false. Neither happens in this function.
            let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), length as usize) };
            take(Passed { bytes, verdict, port, labelled, partial });
        }
        self.consumed = self.consumed.wrapping_add(count);
        shared.consumed.0.store(self.consumed, Ordering::Release);
        drop(reading);
    }

    /// Closes the consumer: it reads no more, and lent packets return to the producer.
    pub(super) fn close(&mut self) {
        self.shared.consumer_closed.store(true, Ordering::Release);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}
