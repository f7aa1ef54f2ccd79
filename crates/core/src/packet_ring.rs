//! A ring of packets, for queues that pass packets on inside a lane.
#![allow(unsafe_code, reason = "slots of which only some hold packets")]

use std::mem::MaybeUninit;

use crate::{Burst, Packet, PacketOwnership, Pool, PortId, Sent};

/// Packets that wait in a queue, oldest first. It never grows.
///
/// Packets move by count: those that leave are forgotten, not overwritten.
#[derive(Debug)]
pub struct PacketRing {
    /// As many slots as the power of two that holds `capacity`. The packets are those with the
    /// numbers from `head` to `tail`, each in the slot of its number modulo the number of slots.
    slots: Box<[MaybeUninit<Packet>]>,
    capacity: usize,
    head: usize,
    tail: usize,
}

impl PacketRing {
    /// Creates an empty ring for at most `capacity` packets.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let slots = Box::new_uninit_slice(capacity.next_power_of_two());
        Self { slots, capacity, head: 0, tail: 0 }
    }

    /// Returns the number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns true if the ring has no packet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Returns the number of packets that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.len()
    }

    /// Takes packets from the front of `packets`, as many as fit. Empty ones are released at once,
    /// because no queue receives them. The result is that of
    /// [`Queue::transmit`](crate::Queue::transmit).
    #[inline]
    pub fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let taken = packets.len().min(self.room());
        let start = self.tail & (self.slots.len() - 1);
        let straight = taken.min(self.slots.len() - start);
        let (packets, wrapped) = packets[..taken].split_at_mut(straight);
        let (mut bytes, mut empty) = (0, 0);
        let mut fill = |slots: &mut [MaybeUninit<Packet>], packets: &mut [Packet]| {
            for (slot, packet) in slots.iter_mut().zip(packets) {
                bytes += packet.len() as u64;
                empty += usize::from(packet.len() == 0);
                slot.write(packet.take());
            }
        };
        fill(&mut self.slots[start..], packets);
        fill(&mut self.slots, wrapped);
        self.tail = self.tail.wrapping_add(taken);
        if empty > 0 {
            self.release_empty(pool);
        }
        Sent { taken, packets: taken - empty, bytes }
    }

    /// Moves packets from the front into the burst, as many as fit, as arrivals at `port`: labelled
    /// `Kernel` and not from Linux. Returns their number.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst, port: PortId) -> usize {
        let spare = burst.spare();
        let count = self.len().min(spare.len());
        let start = self.head & (self.slots.len() - 1);
        let straight = count.min(self.slots.len() - start);
        let (spare, wrapped) = spare[..count].split_at_mut(straight);
        let mut bytes = 0;
        let mut fill = |places: &mut [MaybeUninit<Packet>], slots: &[MaybeUninit<Packet>]| {
            for (place, slot) in places.iter_mut().zip(slots) {
                // SAFETY: the slots of the numbers from `head` to `tail` hold packets, and `head`
                // goes on below, so nothing reads this one again before it is written.
                let packet = unsafe { slot.assume_init_read() };
                bytes += packet.len() as u64;
                place.write(packet.arrived(port));
            }
        };
        fill(spare, &self.slots[start..]);
        fill(wrapped, &self.slots);
        self.head = self.head.wrapping_add(count);
        // SAFETY: these slots were written above, with packets that were in use by this ring.
        unsafe { burst.assume_received(count, bytes) };
        count
    }

    #[cold]
    fn release_empty(&mut self, pool: &mut Pool) {
        let mask = self.slots.len() - 1;
        for _ in 0..self.len() {
            // SAFETY: as in `receive`.
            let mut packet = unsafe { self.slots[self.head & mask].assume_init_read() };
            self.head = self.head.wrapping_add(1);
            if packet.len() == 0 {
                pool.release(&mut packet);
            } else {
                self.slots[self.tail & mask].write(packet);
                self.tail = self.tail.wrapping_add(1);
            }
        }
    }

    /// Releases all packets.
    pub fn clear(&mut self, pool: &mut Pool) {
        while !self.is_empty() {
            let slot = self.head & (self.slots.len() - 1);
            // SAFETY: as in `receive`.
            let mut packet = unsafe { self.slots[slot].assume_init_read() };
            self.head = self.head.wrapping_add(1);
            pool.release(&mut packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use fastlane_table::SharedMemory;

    use super::*;
    use crate::Verdict;

    /// Returns a packet with this number as its content, as an application may have left it.
    fn packet(pool: &mut Pool, number: u64) -> Packet {
        let mut packet = pool.alloc_packet(8, PortId(9)).unwrap();
        packet.bytes_mut().copy_from_slice(&number.to_ne_bytes());
        packet.set_from_kernel();
        packet.set_claimed();
        packet.set_verdict(Verdict::Reflect);
        packet
    }

    #[test]
    fn packets_pass_in_order_whatever_wraps_and_none_is_lost() {
        let memory = SharedMemory::create("ring-test", 64 * 512).unwrap();
        let mut pool = Pool::new(memory, 512, 64).unwrap();
        let (mut sent, mut received) = (0, 0_u64);
        let mut ring = PacketRing::new(11);
        for round in 0..1000 {
            let (offered, wanted) = (round * 7 % 13, round * 5 % 11);
            let numbers = sent..sent + offered;
            let mut packets: Vec<_> = numbers.map(|number| packet(&mut pool, number)).collect();
            let fitting = packets.len().min(ring.room());
            let result = ring.transmit(&mut packets, &mut pool);
            assert_eq!((result.taken, result.packets), (fitting, fitting));
            assert_eq!(result.bytes, 8 * fitting as u64);
            sent += fitting as u64;
            packets.iter_mut().for_each(|packet| pool.release(packet));
            let mut burst = Burst::new(wanted as usize);
            let count = ring.receive(&mut burst, PortId(4));
            assert_eq!(count, burst.len());
            for packet in burst.packets() {
                assert_eq!(packet.bytes(), received.to_ne_bytes());
                assert_eq!((packet.port(), packet.is_from_kernel()), (PortId(4), false));
                assert_eq!(packet.verdict(), Verdict::Kernel.into());
                received += 1;
            }
            burst.clear(&mut pool);
            assert_eq!(ring.len() as u64, sent - received);
        }
        assert!(received > 4000, "{received}");
        ring.clear(&mut pool);
        assert!(ring.is_empty() && pool.missing() == 0);
    }

    #[test]
    fn empty_packets_are_released_and_not_received() {
        let memory = SharedMemory::create("ring-test", 8 * 512).unwrap();
        let mut pool = Pool::new(memory, 512, 64).unwrap();
        let mut packets: Vec<_> = (0..5).map(|number| packet(&mut pool, number)).collect();
        assert!(packets[0].truncate(0) && packets[3].truncate(0));
        let mut ring = PacketRing::new(8);
        let result = ring.transmit(&mut packets, &mut pool);
        assert_eq!(result, Sent { taken: 5, packets: 3, bytes: 24 });
        let mut burst = Burst::new(8);
        assert_eq!(ring.receive(&mut burst, PortId(0)), 3);
        let numbers: Vec<_> = burst.packets().iter().map(|packet| packet.bytes()[0]).collect();
        assert_eq!(numbers, [1, 2, 4]);
        burst.clear(&mut pool);
        assert_eq!(pool.missing(), 0);
    }
}
