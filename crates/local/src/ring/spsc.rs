//! One direction of a ring: descriptors of lent packets, for one producer and one consumer.
//!
//! Who may read a lent packet is settled by two flags, as in Dekker's algorithm. The consumer says
//! that it reads and then looks whether the producer has closed; the producer closes and then looks
//! whether the consumer reads. In the single order of these four sequentially consistent accesses
//! one of them sees the other: either the consumer reads nothing any more, or the producer waits
//! until it has done. The indices count up without end; a place is an index modulo the length, a
//! power of two.
#![allow(unsafe_code, reason = "memory that two threads take turns with; each block says why")]

use std::cell::UnsafeCell;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fastlane_core::{Packet, PacketOwnership, Partial, PortId, RawVerdict};

use super::doorbell::Doorbell;

/// Where a lent packet lies, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    data: NonNull<u8>,
    length: u32,
    verdict: RawVerdict,
    port: PortId,
    labelled: bool,
    partial: Option<Partial>,
}

/// A packet as its receiver sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) verdict: RawVerdict,
    pub(super) port: PortId,
    pub(super) labelled: bool,
    pub(super) partial: Option<Partial>,
}

/// On a cache line of its own, and the neighbour that processors fetch along with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Shared {
    /// Descriptors that the producer has published; written by it only.
    produced: Padded<AtomicUsize>,
    /// Descriptors that the consumer is done with; written by it only.
    consumed: Padded<AtomicUsize>,
    /// The consumer is reading lent packets.
    reading: Padded<AtomicBool>,
    /// The producer takes its packets back. Never unset.
    producer_closed: Padded<AtomicBool>,
    /// The consumer reads no more. Never unset.
    consumer_closed: AtomicBool,
    /// The consumer's.
    doorbell: Arc<Doorbell>,
    places: Box<[UnsafeCell<Descriptor>]>,
}

// SAFETY: a place is written by the producer alone while its index is not below `produced`, and
// read by the consumer alone while it is between `consumed` and `produced`; the indices are passed
// on by release and acquire. `Producer` and `Consumer` exist once each and take `&mut self`. What
// the descriptors point to is lent as the module says.
unsafe impl Sync for Shared {}
// SAFETY: as above; a descriptor is not tied to a thread.
unsafe impl Send for Shared {}

/// The end that lends.
#[derive(Debug)]
pub(super) struct Producer {
    shared: Arc<Shared>,
    capacity: usize,
    /// Descriptors written, published or not.
    written: usize,
    /// `consumed` as last seen.
    consumed: usize,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Consumer {
    shared: Arc<Shared>,
    consumed: usize,
}

/// An empty direction for `capacity` packets, to a consumer who sleeps at `doorbell`.
pub(super) fn channel(capacity: usize, doorbell: &Arc<Doorbell>) -> (Producer, Consumer) {
    let empty = Descriptor {
        data: NonNull::dangling(),
        length: 0,
        verdict: RawVerdict::default(),
        port: PortId(0),
        labelled: false,
        partial: None,
    };
    let places = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(empty)).collect();
    let shared = Arc::new(Shared {
        produced: Padded::default(),
        consumed: Padded::default(),
        reading: Padded::default(),
        producer_closed: Padded::default(),
        consumer_closed: AtomicBool::new(false),
        doorbell: Arc::clone(doorbell),
        places,
    });
    let producer = Producer { shared: Arc::clone(&shared), capacity, written: 0, consumed: 0 };
    (producer, Consumer { shared, consumed: 0 })
}

impl Shared {
    #[inline]
    fn place(&self, index: usize) -> *mut Descriptor {
        self.places[index & (self.places.len() - 1)].get()
    }
}

impl Producer {
    /// The most packets that can be lent.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Packets that fit, as far as was last seen.
    #[inline]
    pub(super) fn space(&self) -> usize {
        self.capacity - self.written.wrapping_sub(self.consumed)
    }

    /// Writes where a packet lies; the caller keeps the packet until the consumer has read it.
    /// False when there is no space.
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
        // SAFETY: the index is not published, and what lay at this place `capacity` indices ago was
        // consumed, or there would be no space: nobody else looks at it.
        unsafe { self.shared.place(self.written).write(descriptor) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows all that was written to the consumer.
    #[inline]
    pub(super) fn publish(&self) {
        self.shared.produced.0.store(self.written, Ordering::Release);
    }

    /// Wakes the consumer, should it sleep, for what was published.
    #[inline]
    pub(super) fn ring(&self) {
        self.shared.doorbell.ring();
    }

    /// How many packets the consumer has not read yet. The others are the producer's again.
    #[inline]
    pub(super) fn unread(&mut self) -> usize {
        self.consumed = self.shared.consumed.0.load(Ordering::Acquire);
        self.written.wrapping_sub(self.consumed)
    }

    /// Whether the consumer has closed: it reads nothing from then on.
    #[inline]
    pub(super) fn is_consumer_gone(&self) -> bool {
        self.shared.consumer_closed.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.producer_closed.0.load(Ordering::Relaxed)
    }

    /// Revokes what was lent: when this returns the consumer reads nothing and never will.
    pub(super) fn close(&mut self) {
        self.shared.producer_closed.0.store(true, Ordering::SeqCst);
        while self.shared.reading.0.load(Ordering::SeqCst) {
            std::thread::yield_now(); // the other thread may need this core to get on
        }
    }

    /// After one end has closed: nothing is lent any more.
    pub(super) fn forget(&mut self) {
        self.written = self.consumed;
    }
}

impl Drop for Producer {
    /// Packets that are still lent are lost to their pool, which keeps their memory mapped; so the
    /// consumer need not be waited for.
    fn drop(&mut self) {
        self.shared.producer_closed.0.store(true, Ordering::SeqCst);
    }
}

/// Says that the consumer has done reading, also when it unwinds.
struct Reading<'a>(&'a AtomicBool);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Consumer {
    /// Whether something can be read.
    #[inline]
    pub(super) fn has_packets(&self) -> bool {
        self.produced() != self.consumed
    }

    /// How far the producer has written.
    #[inline]
    pub(super) fn produced(&self) -> usize {
        self.shared.produced.0.load(Ordering::Acquire)
    }

    /// Whether everything that was written [up to there](Self::produced) is read.
    pub(super) fn has_passed(&self, produced: usize) -> bool {
        produced.wrapping_sub(self.consumed).cast_signed() <= 0
    }

    /// The consumer will sleep; true when it should not, because something has arrived.
    pub(super) fn arm(&self) -> bool {
        self.shared.doorbell.arm();
        self.has_packets()
    }

    /// The consumer is awake.
    #[inline]
    pub(super) fn awake(&self) {
        self.shared.doorbell.disarm();
    }

    /// What becomes readable for a consumer that sleeps.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.shared.doorbell.event()
    }

    /// Shows at most `limit` packets to `take`, then gives them all back.
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
            // SAFETY: the index is between `consumed` and `produced`: written, and not written
            // again before `consumed` has passed it.
            let descriptor = unsafe { shared.place(self.consumed.wrapping_add(index)).read() };
            let Descriptor { data, length, verdict, port, labelled, partial } = descriptor;
            // SAFETY: the producer keeps this packet, untouched, until `consumed` has passed it or
            // it has closed and `reading` is unset; neither is before the end of this function.
            let bytes = unsafe { std::slice::from_raw_parts(data.as_ptr(), length as usize) };
            take(Passed { bytes, verdict, port, labelled, partial });
        }
        self.consumed = self.consumed.wrapping_add(count);
        shared.consumed.0.store(self.consumed, Ordering::Release);
        drop(reading);
    }

    /// Reads no more; what is lent goes back to the producer.
    pub(super) fn close(&mut self) {
        self.shared.consumer_closed.store(true, Ordering::Release);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}
