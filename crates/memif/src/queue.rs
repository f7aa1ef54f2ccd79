//! One queue of a memif port.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};

use crate::connection::{Part, Post};
use crate::transmitter::Violation;

/// One queue of a memif port: a ring in each direction while a peer is connected that has them.
///
/// What is transmitted while there is none is taken and counted as
/// [`transmit_error`](Statistics::transmit_error), as on an interface that is down; so is what lies
/// unread in the ring when the peer goes. What the peer had sent before is still received. A frame
/// that arrives while the pool has none free stays in the ring.
#[derive(Debug)]
pub struct MemifQueue {
    post: Arc<Post>,
    number: usize,
    port: PortId,
    /// Whether there shall be interrupts.
    interrupt: bool,
    part: Option<Part>,
    statistics: Statistics,
    /// Something was sent since the last flush.
    sent: bool,
    /// The lane was about to wait: the peer rings for what it sends.
    armed: bool,
    closed: bool,
}

impl MemifQueue {
    pub(crate) fn new(post: Arc<Post>, number: usize, port: PortId, interrupt: bool) -> Self {
        Self {
            post,
            number,
            port,
            interrupt,
            part: None,
            statistics: Statistics::default(),
            sent: false,
            armed: false,
            closed: false,
        }
    }

    /// Takes the part of a new connection, if there is one.
    #[cold]
    fn connect(&mut self) -> bool {
        if !self.closed {
            self.part = self.post.arrivals.take();
        }
        self.part.is_some()
    }

    /// Lets go of the connection. The control thread unmaps the memory.
    #[cold]
    fn disconnect(&mut self) {
        if let Some(transmitter) = self.part.as_mut().and_then(|part| part.transmitter.as_mut()) {
            self.statistics.transmit_error += transmitter.unread();
        }
        self.part = None;
    }

    #[cold]
    fn accuse(&mut self, _: Violation) {
        if let Some(part) = &self.part {
            part.connection.accuse();
        }
        self.disconnect();
    }

    /// The lane waits no longer.
    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        if let Some(receiver) = self.part.as_ref().and_then(|part| part.receiver.as_ref()) {
            receiver.ring().mask(true);
        }
        self.post.acknowledge();
    }

    /// The connection is over: what had arrived is still received, then it is let go.
    #[cold]
    fn drain(&mut self) -> Result<(), Violation> {
        let Some(part) = &mut self.part else { return Ok(()) };
        let left = match &mut part.receiver {
            Some(receiver) => receiver.look_last().and_then(|()| receiver.arrived(0))?,
            None => 0,
        };
        if left == 0 {
            self.disconnect();
        }
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, burst: &mut Burst, pool: &mut Pool) -> Result<(), Violation> {
        if self.part.as_ref().is_some_and(|part| part.connection.has_ended()) {
            self.drain()?;
        }
        match self.part.as_mut().and_then(|part| part.receiver.as_mut()) {
            Some(receiver) => receiver.receive(burst, pool, self.port, &mut self.statistics),
            None => Ok(()),
        }
    }
}

impl Queue for MemifQueue {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if self.armed {
            self.disarm();
        }
        if self.part.is_none() && !self.connect() {
            return;
        }
        if let Err(violation) = self.try_receive(burst, pool) {
            self.accuse(violation);
        }
    }

    #[inline]
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let Some(transmitter) = self.part.as_mut().and_then(|part| part.transmitter.as_mut())
        else {
            lose(packets, pool, &mut sent);
            self.statistics.transmit_error += sent.packets as u64;
            return sent;
        };
        let result = transmitter.transmit(packets, pool, &mut sent);
        self.sent = true;
        if let Err(violation) = result {
            self.accuse(violation);
        }
        sent
    }

    #[inline]
    fn flush(&mut self, _: &mut Pool) -> bool {
        if std::mem::take(&mut self.sent)
            && let Some(part) = &self.part
            && let Some(transmitter) = &part.transmitter
        {
            // The peer allows the bell and then looks at the ring; we write the ring and then look
            // whether it may be rung. One of the two sees what the other did.
            fence(Ordering::SeqCst);
            if !transmitter.ring().is_masked() {
                part.connection.ring(self.number);
            }
        }
        false
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Any
    }

    fn arm(&mut self) -> bool {
        if !self.interrupt {
            return false;
        }
        self.armed = true;
        if self.part.is_none() {
            return self.connect();
        }
        let Some(part) = &mut self.part else { return false };
        if let Some(receiver) = &mut part.receiver {
            receiver.ring().mask(false);
            fence(Ordering::SeqCst);
            // A violation is found again by the next receive.
            if receiver.arrived(1) != Ok(0) {
                return true;
            }
        }
        part.connection.has_ended()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.then(|| self.post.interrupt.as_fd())
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    fn close(&mut self, _: &mut Pool) {
        // What lies in the ring is still the peer's to take, if there is one.
        if self.part.as_ref().is_some_and(|part| part.connection.has_ended()) {
            self.disconnect();
        }
        (self.part, self.closed) = (None, true);
    }
}

/// Takes packets that go nowhere.
#[cold]
fn lose(packets: &mut [Packet], pool: &mut Pool, sent: &mut Sent) {
    for packet in packets {
        if packet.len() > 0 && packet.complete_checksum() {
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
        }
        pool.release(packet);
        sent.taken += 1;
    }
}
