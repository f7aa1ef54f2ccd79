//! Queues: the interface of a driver.

use std::os::fd::BorrowedFd;

use crate::{Burst, LossReader, Packet, Pool, PortId, RegionId, Run, Statistics};

/// Memory that a queue transmits from without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxMemory {
    /// Any memory: the queue copies the bytes or lends them.
    Any,
    /// The lane's pool.
    Pool,
    /// A region of the driver.
    Region(RegionId),
}

/// Result of [`Queue::transmit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of packets taken from the front of the slice. The queue has their frames or has
    /// released them.
    pub taken: usize,
    /// Number of these that will be sent. This port can never send the others: they are empty or
    /// too long, or have a checksum that cannot be completed.
    pub packets: usize,
    /// Number of bytes in `packets`.
    pub bytes: u64,
}

/// Use of a queue's room for arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Congestion {
    /// Less than a quarter of it is in use.
    #[default]
    None,
    /// More is in use, but less than at the last call.
    Falling,
    /// More is in use, and not less than at the last call: packets wait, and the device may soon
    /// drop some.
    Rising,
}

/// One queue of a port, owned by one lane. Everything that moves frames is a `Queue`: drivers, the
/// kernel peers, the decorators for tests.
///
/// An open queue neither allocates, locks, logs, waits nor returns errors; it counts failures. It
/// must not rely on the position of a packet in the slices that it is passed.
///
/// The main thread opens a queue and moves it into the thread of its lane, which alone calls it:
/// hence `Send`.
///
/// # Examples
/// A queue that transmits into nothing and receives nothing:
/// ```
/// use fastlane_core::{Burst, Packet, Pool, Queue, Sent, TxMemory};
///
/// struct Discard;
///
/// impl Queue for Discard {
///     fn receive(&mut self, _: &mut Burst, _: &mut Pool) {}
///
///     fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
///         let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
///         packets.iter_mut().for_each(|packet| pool.release(packet));
///         Sent { taken: packets.len(), packets: packets.len(), bytes }
///     }
///
///     fn tx_memory(&self) -> TxMemory {
///         TxMemory::Any
///     }
/// }
/// ```
pub trait Queue: Send {
    /// Appends packets that have arrived, at most [`Burst::room`]. Their port is the queue's.
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool);

    /// Returns the use of the room for arrivals. A lane asks after each [`receive`](Self::receive)
    /// that fills the burst. It reads memory only. A queue that cannot tell returns
    /// [`Congestion::None`].
    fn congestion(&mut self) -> Congestion {
        Congestion::None
    }

    /// Takes packets from the front of a run for sending, as many as there is space for. The
    /// packets of a run have the same port, flags and verdict, so what depends on these is decided
    /// once. It takes them out ([`take_frame`](crate::PacketOwnership::take_frame),
    /// [`take`](crate::PacketOwnership::take)) and completes partial checksums unless the device
    /// does. Packets need not leave before [`flush`](Self::flush).
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent;

    /// Takes packets for sending like [`transmit`](Self::transmit), of a burst that is one run. A
    /// queue that moves packets as they are, or passes them to C, need not take each of them out:
    /// it [forgets](Run::forget_first) all that it has taken.
    #[inline]
    fn transmit_run(&mut self, mut run: Run<'_>, pool: &mut Pool) -> Sent {
        self.transmit(&mut run, pool)
    }

    /// Sends everything that was taken and returns frames that have left to the pool. Returns true
    /// if packets are still in flight and another flush is needed; the lane does not sleep then.
    #[inline]
    fn flush(&mut self, pool: &mut Pool) -> bool {
        let _ = pool;
        false
    }

    /// Returns the memory that [`transmit`](Self::transmit) takes packets from. A lane copies other
    /// packets into packets from [`alloc_packet`](Self::alloc_packet) first. The result must never
    /// change.
    fn tx_memory(&self) -> TxMemory {
        TxMemory::Pool
    }

    /// Allocates a packet of `length` bytes with undefined content, in memory that this queue
    /// transmits from. Returns `None` if no frame is free or the packet does not fit.
    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        pool.alloc_copy(length, PortId(0))
    }

    /// Prepares the device to raise [`interrupt`](Self::interrupt) at the next arrival, because the
    /// lane is about to wait. Returns true if packets have arrived already; the lane does not wait
    /// then.
    fn arm(&mut self) -> bool {
        false
    }

    /// Returns the descriptor that becomes readable when a packet arrives, or `None` if the queue
    /// has no interrupt and must be polled.
    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns true if the queue receives only what the same lane has sent through it. The lane
    /// then waits without an [`interrupt`](Self::interrupt) of it, and asks [`arm`](Self::arm)
    /// whether packets are there. The result must never change.
    fn is_loop(&self) -> bool {
        false
    }

    /// Returns the losses that the queue itself has counted so far. It reads memory only: a lane
    /// calls it about ten times a second. Losses that the device or the kernel counts are those of
    /// [`loss_reader`](Self::loss_reader).
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Returns the reader of the losses below the queue, for the main thread, or `None` if there
    /// are none. No loss is counted both there and in [`statistics`](Self::statistics).
    fn loss_reader(&self) -> Option<LossReader> {
        None
    }

    /// Ends arrivals, because the lane is about to close the queue: afterwards
    /// [`receive`](Self::receive) returns what has arrived before, and whoever sends more counts it
    /// as lost. May wait. A queue whose arrivals others end, or that cannot end them, does nothing.
    fn end_arrivals(&mut self) {}

    /// Closes what the queue has open in the kernel or the device. The main thread calls it, and it
    /// may wait: the lane no longer has the queue. [`close`](Self::close) follows in the lane, and
    /// returns the frames without waiting. A queue that a running lane cannot lose needs none.
    fn disconnect(&mut self) {}

    /// Closes the queue. It receives and sends nothing afterwards, and returns all frames to the
    /// pool.
    fn close(&mut self, pool: &mut Pool) {
        let _ = pool;
    }
}
