//! Where packets wait while their shard moves.

use std::collections::VecDeque;

use crate::{Packet, PacketOwnership, Pool, PortId};

/// Copies of packets, in the order of their arrival, in frames of their own.
pub(super) struct Park {
    pool: Pool,
    /// Never more than the pool has frames.
    waiting: VecDeque<(u8, Packet)>,
    /// Of each shard.
    counts: [u32; 256],
    /// Shards of which one could not go on in this round: those behind it stay too.
    stays: [bool; 256],
    looks: bool,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Left,
    Stays,
}

impl Park {
    pub(super) fn new(pool: Pool) -> Self {
        let waiting = VecDeque::with_capacity(pool.frames());
        Self { pool, waiting, counts: [0; 256], stays: [false; 256], looks: false }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[inline]
    pub(super) fn has(&self, shard: u8) -> bool {
        self.counts[usize::from(shard)] > 0
    }

    /// Takes copies of the packets, from the front; returns of how many.
    #[cold]
    pub(super) fn take_in(&mut self, shard: u8, run: &mut [Packet], lane: &mut Pool) -> usize {
        for (place, packet) in run.iter_mut().enumerate() {
            // What cannot be sent anywhere need not be carried: an empty one is refused by name.
            let length = if packet.has_lost_checksum() { 0 } else { packet.len() };
            let Some(mut copy) = self.pool.alloc_packet(length, packet.port()) else {
                return place;
            };
            copy.copy_from(packet);
            lane.release(packet);
            self.waiting.push_back((shard, copy));
            self.counts[usize::from(shard)] += 1;
        }
        run.len()
    }

    /// Something has changed: perhaps some can go on.
    pub(super) fn look_again(&mut self) {
        self.looks = true;
    }

    #[inline]
    pub(super) fn may_leave(&self) -> bool {
        self.looks && !self.waiting.is_empty()
    }

    /// Offers each packet to `go`, as a copy in a frame of the lane; of each shard in order, and
    /// none behind one that stays.
    pub(super) fn leave(
        &mut self,
        lane: &mut Pool,
        mut go: impl FnMut(u8, &mut Packet, &mut Pool) -> Way,
    ) {
        self.stays = [false; 256];
        self.looks = false;
        for _ in 0..self.waiting.len() {
            let Some((shard, mut packet)) = self.waiting.pop_front() else { return };
            let place = usize::from(shard);
            if self.stays[place] || !Self::offer(shard, &packet, lane, &mut go) {
                self.stays[place] = true;
                // One that finds no frame or no room in this turn tries again in the next.
                self.looks = true;
                self.waiting.push_back((shard, packet));
                continue;
            }
            self.pool.release(&mut packet);
            self.counts[place] -= 1;
        }
    }

    fn offer(
        shard: u8,
        packet: &Packet,
        lane: &mut Pool,
        go: &mut impl FnMut(u8, &mut Packet, &mut Pool) -> Way,
    ) -> bool {
        let Some(mut copy) = lane.alloc_packet(packet.len(), packet.port()) else { return false };
        copy.copy_from(packet);
        let way = go(shard, &mut copy, lane);
        lane.release(&mut copy);
        way == Way::Left
    }

    /// Gives up what waits; `lost` gets the port of each packet. Returns how many frames are
    /// missing: none, or something is wrong.
    pub(super) fn close(&mut self, mut lost: impl FnMut(PortId)) -> usize {
        for (_, mut packet) in self.waiting.drain(..) {
            lost(packet.port());
            self.pool.release(&mut packet);
        }
        self.counts = [0; 256];
        self.pool.missing()
    }
}
