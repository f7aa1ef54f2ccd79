//! A queue of a memif port, as a lane drives it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use fastlane_core::{Burst, Packet, Pool, PortId, Queue, Sent, Statistics, TxMemory};

use crate::connection::{QueueMailbox, QueueRings};
use crate::receiver::Receiver;
use crate::ring::Violation;

/// One queue of a memif port: a ring in each direction while a peer that has them is connected.
///
/// Without a peer, transmitted packets are taken and counted as
/// [`transmit_error`](Statistics::transmit_error), as on an interface that is down. So are frames
/// that lie unread in the ring when the peer disconnects. Frames that the peer had sent before are
/// still received. A frame that arrives while the pool is empty stays in the ring.
#[derive(Debug)]
pub struct MemifQueue {
    mailbox: Arc<QueueMailbox>,
    number: usize,
    port: PortId,
    /// True if the lane may wait for interrupts.
    interrupt: bool,
    rings: Option<QueueRings>,
    statistics: Statistics,
    /// True if frames were sent since the last flush.
    sent: bool,
    /// True if the lane was about to wait, so that the peer rings the doorbell.
    armed: bool,
    /// True if no frame and no connection may arrive any more, because the queue is about to close.
    ending: bool,
    closed: bool,
}

impl MemifQueue {
    pub(crate) fn new(
        mailbox: Arc<QueueMailbox>,
        number: usize,
        port: PortId,
        interrupt: bool,
    ) -> Self {
        Self {
            mailbox,
            number,
            port,
            interrupt,
            rings: None,
            statistics: Statistics::default(),
            sent: false,
            armed: false,
            ending: false,
            closed: false,
        }
    }

    /// Takes the rings of a new connection; returns true if there are any.
    #[cold]
    fn connect(&mut self) -> bool {
        if !self.closed && !self.ending {
            self.rings = self.mailbox.arrivals.take();
        }
        self.rings.is_some()
    }

    /// Drops the rings. The control thread unmaps their memory.
    #[cold]
    fn drop_rings(&mut self) {
        if let Some(transmitter) = self.rings.as_mut().and_then(|rings| rings.transmitter.as_mut())
        {
            self.statistics.transmit_error += transmitter.unread();
        }
        self.rings = None;
    }

    #[cold]
    fn report_violation(&mut self, _: Violation) {
        if let Some(rings) = &self.rings {
            rings.connection.report_violation();
        }
        self.drop_rings();
    }

    /// Ends a wait: masks the doorbell and consumes its events.
    #[cold]
    fn disarm(&mut self) {
        self.armed = false;
        if let Some(receiver) = self.rings.as_ref().and_then(|rings| rings.receiver.as_ref()) {
            receiver.ring().mask_interrupt(true);
        }
        self.mailbox.drain_events();
    }

    /// Receives the frames that had arrived before the connection ended, then drops the rings.
    #[cold]
    fn drain(&mut self) -> Result<(), Violation> {
        let Some(rings) = &mut self.rings else { return Ok(()) };
        let left = match &mut rings.receiver {
            Some(receiver) => receiver.freeze().and_then(|()| receiver.arrived(0))?,
            None => 0,
        };
        if left == 0 {
            self.drop_rings();
        }
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, burst: &mut Burst, pool: &mut Pool) -> Result<(), Violation> {
        if self.rings.as_ref().is_some_and(|rings| rings.connection.has_ended()) {
            self.drain()?;
        }
        match self.rings.as_mut().and_then(|rings| rings.receiver.as_mut()) {
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
        if self.rings.is_none() && !self.connect() {
            return;
        }
        if let Err(violation) = self.try_receive(burst, pool) {
            self.report_violation(violation);
        }
    }

    #[inline]
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        let Some(transmitter) = self.rings.as_mut().and_then(|rings| rings.transmitter.as_mut())
        else {
            drop_unconnected(packets, pool, &mut sent);
            self.statistics.transmit_error += sent.packets as u64;
            return sent;
        };
        let result = transmitter.transmit(packets, pool, &mut sent);
        self.sent = true;
        if let Err(violation) = result {
            self.report_violation(violation);
        }
        sent
    }

    #[inline]
    fn flush(&mut self, _: &mut Pool) -> bool {
        if std::mem::take(&mut self.sent)
            && let Some(rings) = &self.rings
            && let Some(transmitter) = &rings.transmitter
        {
            // Store-load ordering against the peer, which unmasks the doorbell and then reads the
            // ring. We have written the ring and now read the mask, so one of the two sees the
            // other's store.
            fence(Ordering::SeqCst);
            if !transmitter.ring().is_interrupt_masked() {
                rings.connection.ring(self.number);
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
        if self.rings.is_none() {
            return self.connect();
        }
        let Some(rings) = &mut self.rings else { return false };
        if let Some(receiver) = &mut rings.receiver {
            receiver.ring().mask_interrupt(false);
            fence(Ordering::SeqCst);
            // The next `receive` reports a violation.
            if receiver.arrived(1) != Ok(0) {
                return true;
            }
        }
        rings.connection.has_ended()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.interrupt.then(|| self.mailbox.interrupt.as_fd())
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }

    fn end_arrivals(&mut self) {
        self.ending = true;
        let receiver = self.rings.as_mut().and_then(|rings| rings.receiver.as_mut());
        if let Some(Err(violation)) = receiver.map(Receiver::freeze) {
            self.report_violation(violation);
        }
    }

    fn close(&mut self, _: &mut Pool) {
        self.disconnect(); // it holds no frames of the pool
    }

    fn disconnect(&mut self) {
        // Frames in the ring are still the peer's to read, while it is connected.
        if self.rings.as_ref().is_some_and(|rings| rings.connection.has_ended()) {
            self.drop_rings();
        }
        (self.rings, self.closed) = (None, true);
    }
}

/// Releases packets that have no peer.
#[cold]
fn drop_unconnected(packets: &mut [Packet], pool: &mut Pool, sent: &mut Sent) {
    for packet in packets {
        if packet.len() > 0 && packet.complete_checksum() {
            sent.packets += 1;
            sent.bytes += packet.len() as u64;
        }
        pool.release(packet);
        sent.taken += 1;
    }
}
