//! Bursts: bounded lists of packets.
#![allow(unsafe_code, reason = "packets that a driver in C has written")]

use std::mem::MaybeUninit;

use crate::{Packet, Pool, PortId, Run};

/// Packets between a queue and the application. A burst never grows beyond its capacity.
///
/// # Examples
/// ```
/// use fastlane_core::{Burst, Pool, PortId};
/// use fastlane_table::SharedMemory;
///
/// let mut pool = Pool::new(SharedMemory::create("frames", 4 * 2048)?, 2048, 192)?;
/// let mut burst = Burst::new(2);
/// while burst.room() > 0 {
///     let packet = pool.alloc_packet(60, PortId(0)).expect("four frames are free");
///     assert!(burst.push(packet).is_ok());
/// }
/// assert_eq!((burst.len(), pool.free()), (2, 2));
/// burst.clear(&mut pool);
/// assert_eq!((burst.len(), pool.free()), (0, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Burst {
    packets: Vec<Packet>,
    capacity: usize,
    /// Bytes in the packets at the time they were appended.
    bytes: u64,
}

impl Burst {
    /// Creates an empty burst for at most `capacity` packets.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { packets: Vec::with_capacity(capacity), capacity, bytes: 0 }
    }

    /// Returns the number of packets that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.capacity - self.packets.len()
    }

    /// Returns the number of packets.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns true if the burst has no packet.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the number of bytes in the packets at the time they were appended.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns the packet if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.packets.len() >= self.capacity {
            return Err(packet);
        }
        self.bytes += packet.len() as u64;
        self.packets.push(packet);
        Ok(())
    }

    /// Appends a packet of `length` bytes with undefined content, in a free frame of the pool.
    /// Returns `None` if the burst is full, no frame is free or the packet does not fit one.
    #[inline]
    pub fn alloc_packet(
        &mut self,
        length: usize,
        port: PortId,
        pool: &mut Pool,
    ) -> Option<&mut Packet> {
        self.spare().first()?;
        let packet = pool.alloc_packet(length, port)?;
        self.spare().first_mut()?.write(packet);
        // SAFETY: `spare` has this slot, which was written above with a packet of the pool.
        unsafe { self.assume_received(1, length as u64) };
        self.packets.last_mut()
    }

    /// Moves packets from the front of `packets` into the burst, as many as fit, as arrivals at
    /// `port`: labelled `Kernel` and not from Linux. Returns their number. It is for drivers that
    /// pass packets on.
    #[inline]
    pub fn take_from(&mut self, packets: &mut [Packet], port: PortId) -> usize {
        let count = self.room().min(packets.len());
        let mut bytes = 0;
        for (slot, packet) in self.spare().iter_mut().zip(&mut packets[..count]) {
            bytes += packet.len() as u64;
            packet.move_into::<true>(slot, packet.arrival_key(port));
        }
        // SAFETY: `spare` has at least `count` slots, which hold the packets that were moved.
        unsafe { self.assume_received(count, bytes) };
        count
    }

    /// Returns the free slots behind the last packet, for drivers that write packets themselves.
    #[inline]
    #[must_use]
    pub fn spare(&mut self) -> &mut [MaybeUninit<Packet>] {
        let room = self.room();
        // SAFETY: `new` has allocated `capacity` slots, and a vector never shrinks by itself.
        unsafe { self.packets.spare_capacity_mut().get_unchecked_mut(..room) }
    }

    /// Appends the first `count` slots of [`spare`](Self::spare), which have `bytes` bytes in all.
    ///
    /// # Safety
    /// `count` must be at most the length of `spare`. The slots must hold packets as
    /// [`Pool::packet`] makes them, with tokens of a [`RegionId`](crate::RegionId) that the lane's
    /// pool has registered. No other packet may have the same frame.
    #[inline]
    pub unsafe fn assume_received(&mut self, count: usize, bytes: u64) {
        debug_assert!(count <= self.room());
        // SAFETY: the caller guarantees that these slots exist and are initialised.
        unsafe { self.packets.set_len(self.packets.len() + count) };
        self.bytes += bytes;
    }

    /// Returns the packets.
    #[inline]
    #[must_use]
    pub fn packets(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Returns the packet that was appended last.
    #[inline]
    #[must_use]
    pub fn last(&mut self) -> Option<&mut Packet> {
        self.packets.last_mut()
    }

    /// Returns the packets, which must be one run, for a queue that may forget them.
    #[inline(always)]
    pub(crate) fn run(&mut self) -> Run<'_> {
        Run::new(&mut self.packets)
    }

    /// Empties the burst. Frames that were not taken go back to the pool.
    #[inline]
    pub fn clear(&mut self, pool: &mut Pool) {
        for packet in &mut self.packets {
            pool.release(packet);
        }
        self.packets.clear();
        self.bytes = 0;
    }

    /// Removes the slots whose packets were taken out.
    pub fn remove_taken(&mut self) {
        self.packets.retain(Packet::has_frame);
        self.bytes = 0; // counted already, and an empty burst is not cleared again
    }

    /// Empties a burst of which every packet was taken, without a second look at each.
    #[inline]
    pub(crate) fn clear_taken(&mut self) {
        debug_assert!(self.packets.iter().all(|packet| !packet.has_frame()), "a frame is left");
        self.packets.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use fastlane_table::SharedMemory;

    use super::*;
    use crate::{PacketRing, Partial, Verdict};

    #[test]
    fn packets_that_a_queue_takes_as_they_are_are_seen_once() {
        let memory = SharedMemory::create("burst-test", 64 * 512).unwrap();
        let mut pool = Pool::new(memory, 512, 64).unwrap();
        for (room, emptied) in (1..12).flat_map(|room| [(room, None), (room, Some(room / 2))]) {
            let (mut burst, mut again) = (Burst::new(10), Burst::new(12));
            for length in 60..70 {
                burst.alloc_packet(length, PortId(0), &mut pool).unwrap();
            }
            if let Some(empty) = emptied {
                assert!(burst.packets()[empty].truncate(0));
            }
            let mut ring = PacketRing::new(room, PortId(0));
            let sent = ring.transmit_run(burst.run(), &mut pool);
            assert_eq!(sent.taken, room.min(10));
            ring.receive(&mut again);
            assert_eq!(again.len(), sent.packets);
            let left = burst.packets().iter().filter(|packet| packet.has_frame());
            let seen: Vec<_> = again.packets().iter().chain(left).map(Packet::len).collect();
            let all = (60..70).enumerate().filter(|(at, _)| emptied.is_none_or(|it| it != *at));
            assert!(seen.iter().copied().eq(all.map(|(_, length)| length)), "{room}: {seen:?}");
            assert_eq!(64 - pool.free(), seen.len(), "room for {room}");
            again.clear(&mut pool);
            burst.clear(&mut pool);
            assert_eq!(pool.free(), 64, "room for {room}");
        }
    }

    #[test]
    fn packets_passed_on_arrive_as_new_ones_and_what_does_not_fit_stays() {
        let memory = SharedMemory::create("burst-test", 8 * 512).unwrap();
        let mut pool = Pool::new(memory, 512, 64).unwrap();
        let partial = Some(Partial { start: 34, offset: 6 });
        let mut waiting: Vec<_> = (0..5)
            .map(|length| {
                let frame = pool.take().unwrap();
                let mut packet =
                    pool.packet(frame, pool.data_offset(), 60 + length, PortId(9)).unwrap();
                packet.set_partial_checksum(partial);
                packet.set_from_kernel();
                packet.set_verdict(Verdict::Reflect);
                packet
            })
            .collect();
        let mut burst = Burst::new(3);
        assert_eq!(burst.take_from(&mut waiting, PortId(4)), 3);
        assert_eq!(burst.take_from(&mut waiting[3..], PortId(4)), 0);
        for (length, packet) in burst.packets().iter().enumerate() {
            assert_eq!((packet.len(), packet.port()), (60 + length, PortId(4)));
            assert_eq!(
                (packet.verdict(), packet.is_from_kernel()),
                (Verdict::Kernel.into(), false)
            );
            assert_eq!(packet.partial_checksum(), partial);
        }
        assert!(waiting[..3].iter().all(|packet| !packet.has_frame() && packet.len() == 0));
        assert!(waiting[3..].iter().all(|packet| packet.has_frame() && packet.is_from_kernel()));
        burst.clear(&mut pool);
        waiting.iter_mut().for_each(|packet| pool.release(packet));
        assert_eq!(pool.free(), 8);
    }
}
