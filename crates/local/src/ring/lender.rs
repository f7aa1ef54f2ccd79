//! The sending side of a ring: what is lent, and getting it back.

use std::collections::VecDeque;

use fastlane_core::{Packet, PacketOwnership, Pool};

use super::spsc::Producer;

/// A producer and the packets that it has lent.
#[derive(Debug)]
pub(super) struct Lender {
    pub(super) producer: Producer,
    /// Packets that the other end may be reading, in the order of the ring.
    lent: VecDeque<Packet>,
    /// What was published since the other end was told.
    untold: bool,
}

impl Lender {
    pub(super) fn new(producer: Producer) -> Self {
        let lent = VecDeque::with_capacity(producer.capacity());
        Self { producer, lent, untold: false }
    }

    /// Whether nobody reads any more what is lent.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.producer.is_closed() || self.producer.is_consumer_gone()
    }

    /// Lends a packet, which is taken out; false when there is no space. It is shown with the next
    /// [`publish`](Self::publish).
    #[inline]
    pub(super) fn lend(&mut self, packet: &mut Packet) -> bool {
        if !self.producer.push(packet) {
            return false;
        }
        // Not longer than the ring that was allocated: it had space.
        self.lent.push_back(packet.take());
        self.untold = true;
        true
    }

    /// Shows what is lent to the other end.
    #[inline]
    pub(super) fn publish(&self) {
        self.producer.publish();
    }

    /// Wakes the other end, if something was published since and it sleeps.
    #[inline]
    pub(super) fn tell(&mut self) {
        if std::mem::take(&mut self.untold) {
            self.producer.ring();
        }
    }

    /// Takes back what the other end has read.
    #[inline]
    pub(super) fn reap(&mut self, pool: &mut Pool) {
        if self.lent.is_empty() {
            return;
        }
        let unread = self.producer.unread();
        for mut packet in self.lent.drain(..self.lent.len() - unread) {
            pool.release(&mut packet);
        }
    }

    /// Whether a frame may be wanted before the other end has given back those that it was lent.
    /// Only then is it worth staying awake for them: who reads them is woken by itself.
    #[inline]
    pub(super) fn is_short(&self, pool: &Pool) -> bool {
        !self.lent.is_empty() && pool.free() < self.lent.len()
    }

    /// Whether something lent has not come back.
    pub(super) fn is_lending(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Takes everything back once the other end is gone or this one closed; `lost` sees each packet
    /// that was not read.
    pub(super) fn take_all_back(&mut self, pool: &mut Pool, mut lost: impl FnMut(&Packet)) {
        self.reap(pool);
        for packet in &mut self.lent {
            lost(packet);
            pool.release(packet);
        }
        self.lent.clear();
        self.producer.forget();
    }
}
