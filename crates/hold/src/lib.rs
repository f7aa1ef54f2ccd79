//! Hold area: a buffer for packets that an application holds by key and resumes later.
//!
//! A [`HoldArea`] is the [`HoldBuffer`] of a lane. It copies a packet labelled
//! [`Hold(key)`](fastlane_core::Verdict::Hold), and the lane releases the frame, so frames
//! circulate however many packets are held. Its size is fixed and allocated before the lane starts.
//! The packets of a key form a list, oldest first.
//!
//! Each packet gets a serial number when it is held. A request to resume a key is the serial number
//! below which its packets are meant. So a packet that is held again is not shown twice for one
//! request.
//!
//! # Examples
//! An application that holds all packets until the third turn:
//! ```
//! use fastlane_core::{App, HoldKey, Lane, LaneConfig, Packet, Pool, Port, PortId, Turn, Verdict};
//! use fastlane_hold::{HoldArea, HoldLimits};
//! use fastlane_local::memory::Memory;
//! use fastlane_table::SharedMemory;
//! use fastlane_table::counters::{Counters, LaneCounter};
//!
//! #[derive(Default)]
//! struct Gate {
//!     is_open: bool,
//! }
//!
//! impl App for Gate {
//!     fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
//!         let hold = Verdict::Hold(HoldKey::default());
//!         for packet in packets {
//!             packet.set_verdict(if self.is_open { Verdict::Reflect } else { hold });
//!         }
//!     }
//!
//!     fn turn(&mut self, turn: &mut Turn) {
//!         if turn.number() == 3 {
//!             self.is_open = true;
//!             assert_eq!(turn.resume(HoldKey::default()), 3 * 8);
//!         }
//!     }
//! }
//!
//! let counters = Counters::create(1, 1)?;
//! let mut pool = Pool::new(SharedMemory::create("frames", 64 * 2048)?, 2048, 192)?;
//! let hold = HoldArea::new(HoldLimits { packets: 100, per_key: 100 }, pool.frame_size());
//! let queue = Memory::filled(PortId(0), &mut pool, 8, &[0; 60])?;
//! let port = Port {
//!     queues: vec![Box::new(queue)],
//!     kernel: None,
//!     filter: None,
//!     counters: counters.port(0, 0),
//! };
//! let config = LaneConfig {
//!     hold: Some(Box::new(hold)),
//!     ..LaneConfig::new(pool, vec![port], counters.lane(0))
//! };
//! let mut lane = Lane::new(Gate::default(), config);
//! (0..3).for_each(|_| assert!(lane.turn() > 0));
//! assert_eq!(counters.lane(0).load(LaneCounter::ResumedPackets), 3 * 8);
//! assert_eq!(lane.close(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::VecDeque;

use fastlane_core::{
    Burst, HoldBuffer, HoldKey, METADATA_LENGTH, Packet, PacketOwnership, Partial, Pool, PortId,
    Resume,
};

mod key_index;

use key_index::KeyIndex;

/// Limits of a hold area. With the default nothing can be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldLimits {
    /// Maximum number of held packets. The area has memory for as many frames.
    pub packets: usize,
    /// Maximum number of held packets of one key.
    pub per_key: usize,
}

/// Slot of the area: a held packet, or the link to the next free slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    serial: u64,
    next: u32,
    length: u32,
    port: PortId,
    queue: u16,
    arrival_flags: u16,
    partial: Option<Partial>,
}

/// Hold area of a lane.
#[derive(Debug)]
pub struct HoldArea {
    keys: KeyIndex,
    slots: Box<[Slot]>,
    bytes: Vec<u8>,
    /// Bytes reserved for each packet.
    size: usize,
    /// First free slot; the number of slots if there is none.
    free: u32,
    held: usize,
    per_key: usize,
    /// Serial number of the next packet; never 0.
    serial: u64,
    /// Packets from this serial number on wait for the next round.
    bound: u64,
    /// Requested keys in order, each once.
    requests: VecDeque<u32>,
    /// Keys requested for the next round.
    next_round: VecDeque<u32>,
}

impl HoldArea {
    /// Creates an area for packets of frames of `frame_size` bytes. Its pages are those of the NUMA
    /// node on which the calling thread runs; holding a packet takes no page fault.
    #[must_use]
    pub fn new(limits: HoldLimits, frame_size: usize) -> Self {
        let packets = limits.packets.min(u32::MAX as usize / 4);
        let size = frame_size - METADATA_LENGTH;
        let slot = |next| Slot { next, ..Slot::default() };
        Self {
            keys: KeyIndex::new(packets),
            slots: (1..=packets as u32).map(slot).collect(),
            bytes: populated(packets * size),
            size,
            free: 0,
            held: 0,
            per_key: limits.per_key,
            serial: 1,
            bound: 0,
            // One more, because the key that is being shown may have no packet left.
            requests: VecDeque::with_capacity(packets + 1),
            next_round: VecDeque::with_capacity(packets + 1),
        }
    }

    /// Copies one packet into the list of the key at index `at`. Returns false if no slot is free
    /// or the packet cannot be copied whole.
    fn hold_one(&mut self, at: usize, queue: usize, packet: &Packet) -> bool {
        let (slot, length) = (self.free as usize, packet.len());
        if slot == self.slots.len() || length > self.size || packet.has_lost_checksum() {
            return false;
        }
        self.free = self.slots[slot].next;
        self.slots[slot] = Slot {
            serial: self.serial,
            next: 0,
            length: length as u32,
            port: packet.port(),
            queue: queue as u16,
            arrival_flags: packet.arrival_flags(),
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
        self.serial += 1;
        self.held += 1;
        true
    }

    /// Removes the oldest packet of a key, and the key with its last packet.
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
    }

    /// Moves requested packets of one key, port and queue into the burst.
    fn fill(&mut self, at: usize, burst: &mut Burst, pool: &mut Pool) {
        let entry = *self.keys.get(at);
        let bound = entry.until.min(self.bound);
        let source = |slot: &Slot| (slot.port, slot.queue);
        let first = source(&self.slots[entry.first as usize]);
        let (mut next, mut left) = (entry.first, entry.count);
        while left > 0 && burst.room() > 0 {
            let held = self.slots[next as usize];
            if held.serial >= bound || source(&held) != first {
                return;
            }
            let Some(packet) = self.packet(next, pool) else { return };
            if let Err(mut packet) = burst.push(packet) {
                return pool.release(&mut packet); // unreachable: the burst has room
            }
            self.remove_first(at);
            (next, left) = (held.next, left - 1);
        }
    }

    /// Copies a held packet into a frame. Returns `None` if no frame is free.
    fn packet(&self, slot: u32, pool: &mut Pool) -> Option<Packet> {
        let held = &self.slots[slot as usize];
        let (start, length) = (slot as usize * self.size, held.length as usize);
        // Prepended headers can make the packet longer than an arriving one.
        let offset = pool.data_offset().min(pool.frame_size() - length);
        let frame = pool.take()?;
        match pool.packet(frame, offset, length, held.port) {
            Ok(mut packet) => {
                packet.bytes_mut().copy_from_slice(&self.bytes[start..start + length]);
                packet.set_partial_checksum(held.partial);
                packet.set_arrival_flags(held.arrival_flags);
                Some(packet)
            }
            Err(frame) => {
                pool.give(frame); // unreachable: the area holds no longer packet
                None
            }
        }
    }
}

impl HoldBuffer for HoldArea {
    #[cold]
    fn hold(&mut self, key: HoldKey, queue: usize, run: &[Packet]) -> usize {
        let at = self.keys.find_or_insert(key.number());
        let mut held = 0;
        for packet in run {
            let has_room = (self.keys.get(at).count as usize) < self.per_key;
            if has_room && self.hold_one(at, queue, packet) {
                held += 1;
            }
        }
        if self.keys.get(at).count == 0 {
            self.keys.remove(at);
        }
        held
    }

    fn request(&mut self, key: HoldKey) -> usize {
        let key = key.number();
        let Some(at) = self.keys.find(key) else { return 0 };
        let entry = self.keys.at(at);
        if entry.until == 0 {
            // Each key with packets is in the lists once, so this does not allocate.
            self.requests.push_back(key);
        }
        entry.until = self.serial;
        entry.count as usize
    }

    fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    fn begin_round(&mut self) {
        self.bound = self.serial;
    }

    fn next_burst(&mut self, burst: &mut Burst, pool: &mut Pool) -> Resume {
        while let Some(&key) = self.requests.front() {
            let Some(at) = self.keys.find(key) else {
                self.requests.pop_front();
                continue;
            };
            let entry = *self.keys.get(at);
            let (until, first) = (entry.until, self.slots[entry.first as usize]);
            if first.serial < until.min(self.bound) {
                self.fill(at, burst, pool);
                let has_frame = !burst.is_empty();
                return if has_frame { Resume::Burst(first.queue.into()) } else { Resume::NoFrame };
            }
            self.requests.pop_front();
            match first.serial < until {
                true => self.next_round.push_back(key),
                false => self.keys.at(at).until = 0,
            }
        }
        std::mem::swap(&mut self.requests, &mut self.next_round);
        Resume::Done
    }

    fn drop_next(&mut self) -> usize {
        let Some(&key) = self.requests.front() else { return 0 };
        let mut dropped = 0;
        while let Some(at) = self.keys.find(key) {
            let entry = *self.keys.get(at);
            if self.slots[entry.first as usize].serial >= entry.until.min(self.bound) {
                break;
            }
            self.remove_first(at);
            dropped += 1;
        }
        dropped
    }

    fn discard(&mut self, key: HoldKey) -> usize {
        let key = key.number();
        let Some(at) = self.keys.find(key) else { return 0 };
        let entry = *self.keys.get(at);
        if entry.until > 0 {
            self.requests.retain(|other| *other != key);
            self.next_round.retain(|other| *other != key);
        }
        (0..entry.count).for_each(|_| self.remove_first(at));
        entry.count as usize
    }

    fn discard_all(&mut self) -> usize {
        let held = self.held;
        for at in 0..self.keys.slots() {
            while let Some(key) = self.keys.key(at).and_then(HoldKey::new) {
                self.discard(key);
            }
        }
        held
    }

    fn count(&self, key: HoldKey) -> usize {
        self.keys.find(key.number()).map_or(0, |at| self.keys.get(at).count as usize)
    }

    fn packets(&self) -> usize {
        self.held
    }
}

/// Returns zeroed bytes, of which every page has been written: the kernel provides the pages of a
/// large vector when they are first written.
fn populated(length: usize) -> Vec<u8> {
    /// Smallest size of a page, in bytes.
    const PAGE: usize = 4096;
    let mut bytes = vec![0; length];
    bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = std::hint::black_box(0));
    bytes
}

#[cfg(test)]
mod tests;
