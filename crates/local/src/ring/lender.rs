//! Sending side of a ring: lent packets and their return.

use std::collections::VecDeque;

use fastlane_core::{Packet, PacketOwnership, Pool};

use super::spsc::Producer;

/// Producer with the packets that it has lent.
#[derive(Debug)]
pub(super) struct Lender {
    pub(super) producer: Producer,
    /// Packets that the other end may read, in the order of the ring.
    lent: VecDeque<Packet>,
    /// True if packets were pushed since the doorbell was rung last.
    must_ring: bool,
}

impl Lender {
    pub(super) fn new(producer: Producer) -> Self {
        let lent = VecDeque::with_capacity(producer.capacity());
        Self { producer, lent, must_ring: false }
    }

    /// Returns true if one end is closed, so that lent packets are no longer read.
    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        self.producer.is_closed() || self.producer.is_consumer_gone()
    }

    /// Takes a packet out and lends it. The other end sees it after the next
    /// [`publish`](Self::publish). Returns false if there is no space.
    #[inline]
    pub(super) fn lend(&mut self, packet: &mut Packet) -> bool {
        if !self.producer.push(packet) {
            return false;
        }
        // The ring had space, so this does not allocate.
        self.lent.push_back(packet.take());
        self.must_ring = true;
        true
    }

    /// Publishes the lent packets to the other end.
    #[inline]
    pub(super) fn publish(&self) {
        self.producer.publish();
    }

    /// Wakes the other end if it sleeps and packets were lent since the last call.
    #[inline]
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.must_ring) {
            self.producer.ring();
        }
    }

    /// Returns true if packets were lent since the other end was last woken.
    #[inline]
    pub(super) fn must_ring(&self) -> bool {
        self.must_ring
    }

    /// Does what [`ring`](Self::ring) does, behind a fence of the caller.
    #[inline]
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.must_ring) {
            self.producer.wake();
        }
    }

    /// Takes back the packets that the other end has read.
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

    /// Returns true if the pool may run out of frames before lent ones return. Only then the lane
    /// stays awake for them; the reader is woken in any case.
    #[inline]
    pub(super) fn is_short(&self, pool: &Pool) -> bool {
        !self.lent.is_empty() && pool.free() < self.lent.len()
    }

    /// Returns true if lent packets have not returned.
    pub(super) fn is_lending(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Takes all packets back after one end has closed. Calls `lost` with each packet that was not
    /// read.
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
