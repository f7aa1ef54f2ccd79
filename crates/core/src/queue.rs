//! What a driver is.

use std::os::fd::BorrowedFd;

use crate::{Burst, Home, Packet, Pool, PortId};

/// Which frames a queue sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Any: it copies the bytes out of them, or lends them.
    Any,
    /// Those of the lane's pool.
    Pool,
    /// Those of the memory that its driver keeps.
    Of(Home),
}

/// What a [`Queue::transmit`] did with the packets that it was shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets taken from the front of the slice: their frames are the queue's now, or are
    /// released.
    pub taken: usize,
    /// Of these, packets on their way. The rest could not be sent by this port at any time: empty,
    /// too long, or with a checksum that cannot be completed.
    pub packets: usize,
    /// Bytes in `packets`.
    pub bytes: u64,
}

/// Losses that a queue or the kernel below it has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Arrived while the pool had no free frame, and lost.
    pub no_frame: u64,
    /// Arrived longer than a frame, and lost.
    pub receive_length: u64,
    /// Lost below because the queue was full.
    pub device_full: u64,
    /// Lost below as invalid.
    pub device_invalid: u64,
    /// Handed over, but the device did not send it.
    pub transmit_error: u64,
    /// Times that the device had no frame to receive into (it may have kept the packet).
    pub device_no_frames: u64,
}

/// One queue of a port, owned by one lane. Everything that moves frames is a `Queue`: drivers, the
/// way into Linux, the decorators for tests.
///
/// After it is open a queue neither allocates, locks, logs nor fails; what goes wrong it counts. It
/// may not rely on a packet's place in the slices it is shown.
///
/// It is opened by the main thread and then moved into its lane's, which is the only one to call
/// it: hence `Send`. (A driver that holds pointers into its rings says why that is sound.)
pub trait Queue: Send {
    /// Appends packets that have arrived, at most [`Burst::room`]. Their port is the queue's.
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool);

    /// Takes packets for sending from the front of the slice, as many as there is space for. A
    /// packet that it takes must be taken out ([`Packet::take_frame`], [`Packet::take`]). Partial
    /// checksums are completed unless the device does it. Nothing need leave before
    /// [`flush`](Self::flush).
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent;

    /// Sends all that was taken, and returns to the pool what has left. True when something is
    /// still on its way and another flush is needed: the lane will not sleep then.
    fn flush(&mut self, pool: &mut Pool) -> bool;

    /// Which frames [`transmit`](Self::transmit) takes. A lane copies others into packets from
    /// [`blank`](Self::blank) first. The answer never changes.
    fn takes(&self) -> Takes {
        Takes::Pool
    }

    /// An empty packet, as far as its content goes, of `length` bytes in memory that this queue
    /// takes; `None` when there is no frame or it does not fit.
    fn blank(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        pool.blank(length, PortId(0))
    }

    /// The lane is about to wait for [`interrupt`](Self::interrupt): the device shall raise it for
    /// the next arrival. True when something has arrived already: then the lane does not wait.
    fn arm(&mut self) -> bool {
        false
    }

    /// What becomes readable when a packet arrives; `None` when nothing does and the lane must
    /// look.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;

    /// Whether nothing arrives but what the same lane has sent by it: then the lane waits without
    /// an [`interrupt`](Self::interrupt) of it, as [`arm`](Self::arm) says whether something is
    /// there. The answer never changes.
    fn is_loop(&self) -> bool {
        false
    }

    /// The losses so far. It may cost a system call; a lane asks about ten times a second.
    fn statistics(&mut self) -> Statistics;

    /// Ends the queue: no frame goes in or out any more, and all of them return to the pool.
    fn close(&mut self, pool: &mut Pool);
}
