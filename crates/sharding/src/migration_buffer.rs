//! Buffer for packets whose shard migrates.

use std::collections::VecDeque;

use fastlane_core::{Packet, PacketOwnership, Pool, PortId};

/// Copies of packets in frames of a separate pool, in the order of their arrival.
pub(super) struct MigrationBuffer {
    pool: Pool,
    /// Packets with their shards; never more than the pool has frames.
    waiting: VecDeque<(u8, Packet)>,
    /// Number of packets of each shard, with those that [`expect`](Self::expect) has announced.
    counts: [u32; 256],
    /// Shards of which a packet was refused in this round: later ones stay too.
    refused: [bool; 256],
    looks: bool,
}

/// Reply to the offer of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Accepted,
    Refused,
}

impl MigrationBuffer {
    pub(super) fn new(pool: Pool) -> Self {
        let waiting = VecDeque::with_capacity(pool.frames());
        Self { pool, waiting, counts: [0; 256], refused: [false; 256], looks: false }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns true if packets of a shard wait or are expected.
    #[inline]
    pub(super) fn has(&self, shard: u8) -> bool {
        self.counts[usize::from(shard)] > 0
    }

    /// Announces a packet, which [`store`](Self::store) gets later in this turn. The shard may end
    /// its migration in between, and no packet may overtake this one.
    #[inline]
    pub(super) fn expect(&mut self, shard: u8) {
        self.counts[usize::from(shard)] += 1;
    }

    /// Copies expected packets from the front and releases their frames. Returns their number.
    #[cold]
    pub(super) fn store(&mut self, shard: u8, run: &mut [Packet], lane: &mut Pool) -> usize {
        for (index, packet) in run.iter_mut().enumerate() {
            // A packet that no port can send, or that is longer than a frame of a pool, is replaced
            // by an empty one, which `transmit` refuses.
            let (length, port) = (packet.len(), packet.port());
            let length = if packet.has_lost_checksum() { 0 } else { length };
            let copy = self.pool.alloc_copy(length, port);
            let Some(mut copy) = copy.or_else(|| self.pool.alloc_copy(0, port)) else {
                self.counts[usize::from(shard)] -= (run.len() - index) as u32;
                return index;
            };
            copy.copy_from(packet);
            lane.release(packet);
            self.waiting.push_back((shard, copy));
        }
        run.len()
    }

    /// Allows the release of packets, because the shard table has changed.
    pub(super) fn look_again(&mut self) {
        self.looks = true;
    }

    /// Returns true if packets can be released.
    #[inline]
    pub(super) fn may_release(&self) -> bool {
        self.looks && !self.waiting.is_empty()
    }

    /// Offers each packet to `accept`, as a copy in a frame of the lane. Packets of a shard are in
    /// order, and none is offered behind a refused one.
    pub(super) fn release(
        &mut self,
        lane: &mut Pool,
        mut accept: impl FnMut(u8, &mut Packet, &mut Pool) -> Offer,
    ) {
        self.refused = [false; 256];
        self.looks = false;
        for _ in 0..self.waiting.len() {
            let Some((shard, mut packet)) = self.waiting.pop_front() else { return };
            let index = usize::from(shard);
            if self.refused[index] || !Self::offer(shard, &packet, lane, &mut accept) {
                self.refused[index] = true;
                // A packet that finds no frame or no room is offered again in the next turn.
                self.looks = true;
                self.waiting.push_back((shard, packet));
                continue;
            }
            self.pool.release(&mut packet);
            self.counts[index] -= 1;
        }
    }

    /// Offers a copy of one packet. Returns false if it was refused or no frame is free.
    fn offer(
        shard: u8,
        packet: &Packet,
        lane: &mut Pool,
        accept: &mut impl FnMut(u8, &mut Packet, &mut Pool) -> Offer,
    ) -> bool {
        let Some(mut copy) = lane.alloc_copy(packet.len(), packet.port()) else { return false };
        copy.copy_from(packet);
        let offer = accept(shard, &mut copy, lane);
        lane.release(&mut copy);
        offer == Offer::Accepted
    }

    /// Drops the waiting packets and calls `lost` with the port of each. Returns the number of
    /// missing frames, which is 0 unless there is a defect.
    pub(super) fn close(&mut self, mut lost: impl FnMut(PortId)) -> usize {
        for (_, mut packet) in self.waiting.drain(..) {
            lost(packet.port());
            self.pool.release(&mut packet);
        }
        self.counts = [0; 256];
        self.pool.missing()
    }
}
