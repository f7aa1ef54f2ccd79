//! Packets that the application wants to see again later.
//!
//! A packet labelled `Hold(key)` is copied into the hold area and its frame released, so that
//! however much is held, frames go round. The area is of fixed size and allocated before the lane
//! starts. Packets under one key form a list, oldest first.
//!
//! Each packet gets a number when it is held. A request to show those of a key again is the number
//! below which they are meant, so that one that is held again meanwhile is not shown twice for one
//! request. A lane carries requests out in *rounds*; what is held in a round is not shown before
//! the next one, so that a round ends whatever the application does.

use std::collections::VecDeque;

use crate::{Burst, METADATA_LENGTH, Packet, PacketOwnership, Partial, Pool, PortId};

mod keys;
use keys::Keys;

/// How much a lane holds; without limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldLimits {
    /// The most packets at a time. Memory for as many frames is allocated, and comes into use as
    /// it is needed.
    pub packets: usize,
    /// The most of them under one key.
    pub per_key: usize,
}

/// A packet that is held, or a slot that is free.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    number: u64,
    next: u32,
    length: u32,
    port: PortId,
    queue: u16,
    origin: u16,
    partial: Option<Partial>,
}

/// The hold area of a lane.
#[derive(Debug)]
pub(crate) struct Hold {
    keys: Keys,
    slots: Box<[Held]>,
    bytes: Vec<u8>,
    /// Bytes for each packet.
    size: usize,
    /// The first free slot; the number of slots when there is none.
    free: u32,
    held: usize,
    per_key: usize,
    /// Of the packet that is held next; never 0.
    number: u64,
    /// What was held from there on waits for the next round.
    bound: u64,
    /// Keys to be shown, in this order, each once; and those that wait for the next round.
    requests: VecDeque<u32>,
    later: VecDeque<u32>,
    changed: bool,
}

/// What is to be shown next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The packets in the burst, which had come from the queue of this number.
    Burst(usize),
    /// Something, but there was no frame for it.
    NoFrame,
    /// Nothing more in this round.
    Nothing,
}

impl Hold {
    /// An area for packets of frames of `frame_size` bytes.
    pub(crate) fn new(limits: HoldLimits, frame_size: usize) -> Self {
        let packets = limits.packets.min(u32::MAX as usize / 4);
        let size = frame_size - METADATA_LENGTH;
        let slot = |next| Held { next, ..Held::default() };
        Self {
            keys: Keys::new(packets),
            slots: (1..=packets as u32).map(slot).collect(),
            bytes: vec![0; packets * size],
            size,
            free: 0,
            held: 0,
            per_key: limits.per_key,
            number: 1,
            bound: 0,
            // One more, for the key that is being shown may have nothing left.
            requests: VecDeque::with_capacity(packets + 1),
            later: VecDeque::with_capacity(packets + 1),
            changed: false,
        }
    }

    /// How many packets there are.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Whether there are more or fewer than when this was asked last.
    #[inline]
    pub(crate) fn has_changed(&mut self) -> bool {
        self.changed && std::mem::take(&mut self.changed)
    }

    /// How many packets there are under a key.
    pub(crate) fn count(&self, key: u32) -> usize {
        self.keys.find(key).map_or(0, |at| self.keys.get(at).count as usize)
    }

    /// Copies packets, which came from the queue of this number; the frames stay theirs. Returns
    /// how many: the others found no room, or cannot be copied whole.
    #[cold]
    pub(crate) fn keep(&mut self, key: u32, queue: usize, run: &[Packet]) -> usize {
        let at = self.keys.find_or_insert(key);
        let mut kept = 0;
        for packet in run {
            let has_room = (self.keys.get(at).count as usize) < self.per_key;
            if has_room && self.keep_one(at, queue, packet) {
                kept += 1;
            }
        }
        if self.keys.get(at).count == 0 {
            self.keys.remove(at);
        }
        self.changed |= kept > 0;
        kept
    }

    fn keep_one(&mut self, at: usize, queue: usize, packet: &Packet) -> bool {
        let (slot, length) = (self.free as usize, packet.len());
        if slot == self.slots.len() || length > self.size || packet.has_lost_checksum() {
            return false;
        }
        self.free = self.slots[slot].next;
        self.slots[slot] = Held {
            number: self.number,
            next: 0,
            length: length as u32,
            port: packet.port(),
            queue: queue as u16,
            origin: packet.arrival_flags(),
            partial: packet.partial_checksum(),
        };
        let start = slot * self.size;
        self.bytes[start..start + length].copy_from_slice(packet.bytes());
        let entry = self.keys.at(at);
        let before = std::mem::replace(&mut entry.last, slot as u32);
        match entry.count {
            0 => entry.first = slot as u32,
            _ => self.slots[before as usize].next = slot as u32,
        }
        entry.count += 1;
        self.number += 1;
        self.held += 1;
        true
    }

    /// Takes the oldest packet of a key out of its list; frees the key with the last one.
    fn remove_first(&mut self, at: usize) {
        let entry = self.keys.at(at);
        let slot = entry.first as usize;
        entry.first = self.slots[slot].next;
        entry.count -= 1;
        if entry.count == 0 {
            self.keys.remove(at);
        }
        self.slots[slot].next = self.free;
        self.free = slot as u32;
        self.held -= 1;
        self.changed = true;
    }

    /// Drops all packets of a key; returns how many.
    pub(crate) fn discard(&mut self, key: u32) -> usize {
        let Some(at) = self.keys.find(key) else { return 0 };
        let entry = *self.keys.get(at);
        if entry.until > 0 {
            self.requests.retain(|other| *other != key);
            self.later.retain(|other| *other != key);
        }
        (0..entry.count).for_each(|_| self.remove_first(at));
        entry.count as usize
    }

    /// Drops all packets; returns how many.
    pub(crate) fn drop_all(&mut self) -> usize {
        let held = self.held;
        for at in 0..self.keys.places() {
            while let Some(key) = self.keys.key(at) {
                self.discard(key);
            }
        }
        held
    }
}

/// Showing packets again.
impl Hold {
    /// Wants all packets that are held under a key now to be shown again; returns how many.
    pub(crate) fn request(&mut self, key: u32) -> usize {
        let Some(at) = self.keys.find(key) else { return 0 };
        let entry = self.keys.at(at);
        if entry.until == 0 {
            // Each key that has packets is in the lists once, so this does not allocate.
            self.requests.push_back(key);
        }
        entry.until = self.number;
        entry.count as usize
    }

    /// Whether something is to be shown.
    #[inline]
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// From now on, what was held until now may be shown.
    pub(crate) fn begin_round(&mut self) {
        self.bound = self.number;
    }

    /// Puts the next packets to be shown into an empty burst, labelled as ones that arrive: of one
    /// key, one port and one queue, in order.
    pub(crate) fn take(&mut self, burst: &mut Burst, pool: &mut Pool) -> Next {
        while let Some(&key) = self.requests.front() {
            let Some(at) = self.keys.find(key) else {
                self.requests.pop_front();
                continue;
            };
            let entry = *self.keys.get(at);
            let (until, first) = (entry.until, self.slots[entry.first as usize]);
            if first.number < until.min(self.bound) {
                self.fill(at, burst, pool);
                let has_frame = !burst.is_empty();
                return if has_frame { Next::Burst(first.queue.into()) } else { Next::NoFrame };
            }
            self.requests.pop_front();
            match first.number < until {
                true => self.later.push_back(key),
                false => self.keys.at(at).until = 0,
            }
        }
        std::mem::swap(&mut self.requests, &mut self.later);
        Next::Nothing
    }

    fn fill(&mut self, at: usize, burst: &mut Burst, pool: &mut Pool) {
        let entry = *self.keys.get(at);
        let bound = entry.until.min(self.bound);
        let way = |held: &Held| (held.port, held.queue);
        let first = way(&self.slots[entry.first as usize]);
        let (mut next, mut left) = (entry.first, entry.count);
        while left > 0 && burst.room() > 0 {
            let held = self.slots[next as usize];
            if held.number >= bound || way(&held) != first {
                return;
            }
            let Some(packet) = self.packet(next, pool) else { return };
            if let Err(mut packet) = burst.push(packet) {
                return pool.release(&mut packet); // not reached: there was room
            }
            self.remove_first(at);
            (next, left) = (held.next, left - 1);
        }
    }

    /// A packet as it was held; `None` when there is no frame for it.
    fn packet(&self, slot: u32, pool: &mut Pool) -> Option<Packet> {
        let held = &self.slots[slot as usize];
        let (start, length) = (slot as usize * self.size, held.length as usize);
        // Headers that were prepended may have made it longer than one that arrives can be.
        let offset = pool.data_offset().min(pool.frame_size() - length);
        let frame = pool.take()?;
        match pool.packet(frame, offset, length, held.port) {
            Ok(mut packet) => {
                packet.bytes_mut().copy_from_slice(&self.bytes[start..start + length]);
                packet.set_partial_checksum(held.partial);
                packet.set_arrival_flags(held.origin);
                Some(packet)
            }
            Err(frame) => {
                pool.give(frame); // not reached: no longer packet is held
                None
            }
        }
    }

    /// Drops what is to be shown next, all of its key that was asked for; returns how many.
    pub(crate) fn lose(&mut self) -> usize {
        let Some(&key) = self.requests.front() else { return 0 };
        let mut lost = 0;
        while let Some(at) = self.keys.find(key) {
            let entry = *self.keys.get(at);
            if self.slots[entry.first as usize].number >= entry.until.min(self.bound) {
                break;
            }
            self.remove_first(at);
            lost += 1;
        }
        lost
    }
}

#[cfg(test)]
mod tests;
