//! A ring of packets, for queues that pass packets on inside a lane.
#![allow(unsafe_code, reason = "slots of which only some hold packets")]

use std::mem::MaybeUninit;

use crate::{Burst, Packet, Pool, PortId, Run, Sent};

/// Number of packets that each iteration of the loops moves, to count less often.
const UNROLLED: usize = 8;

/// Packets that wait in a queue, oldest first. It never grows.
///
/// Packets move by count: those that leave are forgotten, not overwritten. They are changed into
/// arrivals when they enter, so that they leave by a plain copy.
#[derive(Debug)]
pub struct PacketRing {
    /// As many slots as the power of two that holds `capacity`. The packets are those with the
    /// numbers from `head` to `tail`, each in the slot of its number modulo the number of slots.
    slots: Box<[MaybeUninit<Packet>]>,
    capacity: usize,
    head: usize,
    tail: usize,
    port: PortId,
}

impl PacketRing {
    /// Creates an empty ring for at most `capacity` packets, which become arrivals at `port`.
    #[must_use]
    pub fn new(capacity: usize, port: PortId) -> Self {
        let slots = Box::new_uninit_slice(capacity.next_power_of_two());
        Self { slots, capacity, head: 0, tail: 0, port }
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

    /// Takes packets from the front of a run, as many as fit. Empty ones are released at once,
    /// because no queue receives them. The result is that of
    /// [`Queue::transmit`](crate::Queue::transmit).
    #[inline]
    pub fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.take_in::<true>(packets, pool)
    }

    /// Does the work of [`transmit`](Self::transmit) for a run.
    #[inline]
    pub fn transmit_run(&mut self, mut run: Run<'_>, pool: &mut Pool) -> Sent {
        let sent = self.take_in::<false>(&mut run, pool);
        run.forget_first(sent.taken);
        sent
    }

    /// Takes packets from the front, as many as fit. Leaves empty ones if `EMPTIES`; otherwise
    /// the caller must forget those that were taken.
    #[inline(always)]
    fn take_in<const EMPTIES: bool>(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let taken = packets.len().min(self.room());
        let start = self.tail & (self.slots.len() - 1);
        if taken > self.slots.len() - start {
            return self.transmit_wrapped::<EMPTIES>(&mut packets[..taken], pool);
        }
        // SAFETY: there are `taken` slots from `start` on, and at least as many packets.
        let (slots, packets) = unsafe {
            (self.slots.get_unchecked_mut(start..start + taken), packets.get_unchecked_mut(..taken))
        };
        let Some(first) = packets.first() else { return Sent::default() };
        let run_key = first.arrival_key(self.port);
        let mut moved = Moved::default();
        if let ([slot], [packet]) = (&mut *slots, &mut *packets) {
            moved = moved.and(packet.move_into::<EMPTIES>(slot, run_key));
        } else {
            let (slot_chunks, last_slots) = slots.as_chunks_mut::<UNROLLED>();
            let (chunks, last) = packets.as_chunks_mut::<UNROLLED>();
            for (slots, packets) in slot_chunks.iter_mut().zip(chunks) {
                for (slot, packet) in slots.iter_mut().zip(packets) {
                    moved = moved.and(packet.move_into::<EMPTIES>(slot, run_key));
                }
            }
            for (slot, packet) in last_slots.iter_mut().zip(last) {
                moved = moved.and(packet.move_into::<EMPTIES>(slot, run_key));
            }
        }
        self.tail = self.tail.wrapping_add(taken);
        let empty = if moved.has_empty() { self.release_empty(pool) } else { 0 };
        Sent { taken, packets: taken - empty, bytes: moved.bytes() }
    }

    /// Takes packets that fit, but not all before the end of the slots.
    #[cold]
    #[inline(never)]
    fn transmit_wrapped<const EMPTIES: bool>(
        &mut self,
        packets: &mut [Packet],
        pool: &mut Pool,
    ) -> Sent {
        let straight = self.slots.len() - (self.tail & (self.slots.len() - 1));
        let (packets, wrapped) = packets.split_at_mut(straight);
        let sent = self.take_in::<EMPTIES>(packets, pool);
        let more = self.take_in::<EMPTIES>(wrapped, pool);
        Sent {
            taken: sent.taken + more.taken,
            packets: sent.packets + more.packets,
            bytes: sent.bytes + more.bytes,
        }
    }

    /// Moves packets from the front into the burst, as many as fit, labelled `Kernel` and not from
    /// Linux. Returns their number.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> usize {
        let count = self.len().min(burst.room());
        let straight = self.slots.len() - (self.head & (self.slots.len() - 1));
        if count > straight {
            return self.receive_wrapped(burst, straight, count - straight);
        }
        self.receive_straight(burst, count);
        count
    }

    /// Moves packets of which `straight` lie before the end of the slots, and `wrapped` at their
    /// beginning.
    #[cold]
    #[inline(never)]
    fn receive_wrapped(&mut self, burst: &mut Burst, straight: usize, wrapped: usize) -> usize {
        self.receive_straight(burst, straight);
        self.receive_straight(burst, wrapped);
        straight + wrapped
    }

    /// Moves `count` packets into the burst. None of their slots may lie behind the end.
    #[inline(always)]
    fn receive_straight(&mut self, burst: &mut Burst, count: usize) {
        let start = self.head & (self.slots.len() - 1);
        debug_assert!(start + count <= self.slots.len() && count <= burst.room());
        // SAFETY: the callers have compared `count` with both.
        let (slots, spare) = unsafe {
            (
                self.slots.get_unchecked(start..start + count),
                burst.spare().get_unchecked_mut(..count),
            )
        };
        // Returns the length. A copy by pointer is two loads and two stores; a move of the struct
        // would copy each field.
        let copy = |place: &mut MaybeUninit<Packet>, slot: &MaybeUninit<Packet>| {
            // SAFETY: the slots of the numbers from `head` to `tail` hold packets, and `head` goes
            // on below, so nothing reads these again before they are written.
            unsafe {
                place.as_mut_ptr().copy_from_nonoverlapping(slot.as_ptr(), 1);
                slot.assume_init_ref().len() as u32
            }
        };
        let mut bytes = 0_u32; // no burst has 4 GiB
        if let ([place], [slot]) = (&mut *spare, slots) {
            bytes = copy(place, slot);
        } else {
            let (place_chunks, last_places) = spare.as_chunks_mut::<UNROLLED>();
            let (chunks, last) = slots.as_chunks::<UNROLLED>();
            for (places, slots) in place_chunks.iter_mut().zip(chunks) {
                for (place, slot) in places.iter_mut().zip(slots) {
                    bytes = bytes.wrapping_add(copy(place, slot));
                }
            }
            for (place, slot) in last_places.iter_mut().zip(last) {
                bytes = bytes.wrapping_add(copy(place, slot));
            }
        }
        self.head = self.head.wrapping_add(count);
        // SAFETY: these slots were written above, with packets that were in use by this ring.
        unsafe { burst.assume_received(count, bytes.into()) };
    }

    /// Releases the empty packets and returns their number.
    #[cold]
    fn release_empty(&mut self, pool: &mut Pool) -> usize {
        let (mask, before) = (self.slots.len() - 1, self.len());
        for _ in 0..before {
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
        before - self.len()
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

/// Lengths of packets that were moved, from the results of [`Packet::move_into`].
#[derive(Clone, Copy, Default)]
struct Moved {
    /// Sum of the windows.
    windows: u64,
    /// Union of the windows less one: bit 31 is set if a length, below 2^31, is 0.
    less_one: u64,
}

impl Moved {
    #[inline(always)]
    fn and(self, window: u64) -> Self {
        let windows = self.windows.wrapping_add(window);
        Self { windows, less_one: self.less_one | window.wrapping_sub(1) }
    }

    #[inline]
    fn has_empty(self) -> bool {
        self.less_one & 1 << 31 != 0
    }

    /// Returns the number of bytes. No burst has 4 GiB.
    #[inline]
    fn bytes(self) -> u64 {
        u64::from(self.windows as u32)
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
        let mut ring = PacketRing::new(11, PortId(4));
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
            let count = ring.receive(&mut burst);
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
        let mut ring = PacketRing::new(8, PortId(0));
        let result = ring.transmit(&mut packets, &mut pool);
        assert_eq!(result, Sent { taken: 5, packets: 3, bytes: 24 });
        let mut burst = Burst::new(8);
        assert_eq!(ring.receive(&mut burst), 3);
        let numbers: Vec<_> = burst.packets().iter().map(|packet| packet.bytes()[0]).collect();
        assert_eq!(numbers, [1, 2, 4]);
        burst.clear(&mut pool);
        assert_eq!(pool.missing(), 0);
    }

    #[test]
    fn empty_packets_on_both_sides_of_the_end_are_released() {
        let memory = SharedMemory::create("ring-test", 16 * 512).unwrap();
        let mut pool = Pool::new(memory, 512, 64).unwrap();
        for before in 0..8 {
            let mut ring = PacketRing::new(8, PortId(0));
            for number in 0..before {
                ring.transmit(&mut [packet(&mut pool, number)], &mut pool);
                let mut burst = Burst::new(1);
                assert_eq!(ring.receive(&mut burst), 1);
                burst.clear(&mut pool);
            }
            let mut packets: Vec<_> = (0..8).map(|number| packet(&mut pool, number)).collect();
            for number in [0, 3, 7] {
                assert!(packets[number].truncate(0));
            }
            let sent = ring.transmit(&mut packets, &mut pool);
            assert_eq!(sent, Sent { taken: 8, packets: 5, bytes: 40 });
            assert!(packets.iter().all(|packet| !packet.has_frame()));
            let mut burst = Burst::new(8);
            assert_eq!(ring.receive(&mut burst), 5, "{before} before");
            let numbers: Vec<_> = burst.packets().iter().map(|packet| packet.bytes()[0]).collect();
            assert_eq!(numbers, [1, 2, 4, 5, 6]);
            burst.clear(&mut pool);
            assert_eq!(pool.missing(), 0);
        }
    }
}
