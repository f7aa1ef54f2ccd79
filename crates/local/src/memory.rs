//! Memory ports: packets that never leave the lane.

use fastlane_core::{Burst, Packet, PacketRing, Pool, PortId, Queue, Run, Sent};

/// Reason why a memory port cannot be filled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The frame is longer than the pool's frames.
    #[error(
        "a memory port cannot hold frames of {length} bytes: the pool's frames have room for \
             {room}; shorten the frame or raise the frame size"
    )]
    TooLong {
        /// Length of the frame, in bytes.
        length: usize,
        /// Length of the longest frame that fits, in bytes.
        room: usize,
    },
    /// The frame is empty.
    #[error("a memory port cannot be filled with empty frames; give it at least one byte")]
    Empty,
    /// The pool has too few free frames.
    #[error(
        "a memory port needs {wanted} frames of a pool that has {free} free; raise the lane's \
             frames or lower the port's"
    )]
    TooMany {
        /// Number of requested frames.
        wanted: usize,
        /// Number of free frames of the pool.
        free: usize,
    },
}

/// Loop: transmitted packets are received again, in order. A packet passes by moving its 32 bytes;
/// its frame is not touched.
///
/// Waiting packets hold frames of the lane's pool until [`Queue::close`]. Partial checksums stay
/// partial, because no packet leaves.
// Each burst writes it: it shares no cache line with what another lane writes.
#[repr(align(64))]
#[derive(Debug)]
pub struct Memory {
    port: PortId,
    waiting: PacketRing,
    /// Minimum number of waiting packets, reached with copies of `frame`; 0 for a plain loop.
    source: usize,
    frame: Box<[u8]>,
}

impl Memory {
    /// Creates an empty loop for at most `capacity` packets.
    #[must_use]
    pub fn new(port: PortId, capacity: usize) -> Self {
        let waiting = PacketRing::new(capacity, port);
        Self { port, waiting, source: 0, frame: Box::default() }
    }

    /// Creates an endless source: a loop with `frames` copies of `frame`. Packets that the
    /// application sends back come again as they are. New copies replace those that it sends
    /// elsewhere or drops, as soon as the pool has free frames.
    ///
    /// # Errors
    /// Returns an error if the frame is empty or too long, or the pool has too few free frames.
    pub fn filled(
        port: PortId,
        pool: &mut Pool,
        frames: usize,
        frame: &[u8],
    ) -> Result<Self, Error> {
        if frame.is_empty() {
            return Err(Error::Empty);
        }
        if frame.len() > pool.room() {
            return Err(Error::TooLong { length: frame.len(), room: pool.room() });
        }
        if frames > pool.free() {
            return Err(Error::TooMany { wanted: frames, free: pool.free() });
        }
        let mut memory = Self { source: frames, frame: frame.into(), ..Self::new(port, frames) };
        memory.refill(pool);
        Ok(memory)
    }

    #[cold]
    fn refill(&mut self, pool: &mut Pool) {
        while self.waiting.len() < self.source {
            let Some(frame) = pool.take() else { return };
            match pool.packet(frame, pool.data_offset(), self.frame.len(), self.port) {
                Ok(mut packet) => {
                    packet.bytes_mut().copy_from_slice(&self.frame);
                    self.waiting.transmit(std::slice::from_mut(&mut packet), pool);
                }
                Err(frame) => return pool.give(frame), // too small frames
            }
        }
    }
}

impl Queue for Memory {
    #[inline]
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        if self.waiting.len() < self.source {
            self.refill(pool);
        }
        self.waiting.receive(burst);
    }

    #[inline]
    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        self.waiting.transmit(packets, pool)
    }

    #[inline]
    fn transmit_run(&mut self, run: Run<'_>, pool: &mut Pool) -> Sent {
        self.waiting.transmit_run(run, pool)
    }

    fn arm(&mut self) -> bool {
        !self.waiting.is_empty()
    }

    fn is_loop(&self) -> bool {
        self.source == 0
    }

    fn close(&mut self, pool: &mut Pool) {
        self.source = 0;
        self.waiting.clear(pool);
        self.waiting = PacketRing::new(0, self.port);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use fastlane_core::{KernelPath, Lane, LaneConfig, Partial, Port, Verdict};
    use fastlane_table::SharedMemory;
    use fastlane_table::counters::Counters;

    use super::*;

    const PORT: PortId = PortId(3);

    fn pool(frames: usize) -> Pool {
        let memory = SharedMemory::create("memory-test", frames * 512).unwrap();
        Pool::new(memory, 512, 64).unwrap()
    }

    fn packet(pool: &mut Pool, content: &[u8]) -> Packet {
        let frame = pool.take().unwrap();
        let mut packet = pool.packet(frame, pool.data_offset(), content.len(), PortId(9)).unwrap();
        packet.bytes_mut().copy_from_slice(content);
        packet
    }

    #[test]
    fn packets_come_back_in_order_as_packets_of_the_port() {
        let (mut pool, mut burst) = (pool(8), Burst::new(4));
        let mut memory = Memory::new(PORT, 8);
        let mut packets: Vec<_> = (0..6).map(|n| packet(&mut pool, &[n; 60])).collect();
        let partial = Some(Partial { start: 34, offset: 6 });
        for packet in &mut packets {
            packet.set_verdict(Verdict::Reflect);
            packet.set_partial_checksum(partial);
        }
        let sent = memory.transmit(&mut packets, &mut pool);
        assert_eq!(sent, Sent { taken: 6, packets: 6, bytes: 360 });
        assert!(packets.iter().all(|packet| !packet.has_frame()));
        let mut next = 0;
        for expected in [4, 2, 0] {
            memory.receive(&mut burst, &mut pool);
            assert_eq!(burst.len(), expected);
            for packet in burst.packets() {
                assert_eq!(packet.bytes(), [next; 60]);
                assert_eq!((packet.port(), packet.verdict()), (PORT, Verdict::Kernel.into()));
                assert_eq!(packet.partial_checksum(), partial);
                next += 1;
            }
            burst.clear(&mut pool);
        }
        assert_eq!(pool.free(), 8);
    }

    #[test]
    fn a_full_loop_takes_no_more() {
        let (mut pool, mut burst) = (pool(16), Burst::new(16));
        let mut memory = Memory::new(PORT, 5);
        let mut packets: Vec<_> = (0..8).map(|n| packet(&mut pool, &[n; 14])).collect();
        assert_eq!(memory.transmit(&mut packets, &mut pool).taken, 5);
        assert_eq!(memory.transmit(&mut packets[5..], &mut pool).taken, 0);
        assert!(packets[5..].iter().all(Packet::has_frame));
        memory.receive(&mut burst, &mut pool);
        assert_eq!(memory.transmit(&mut packets[5..], &mut pool).taken, 3);
        burst.clear(&mut pool);
        memory.close(&mut pool);
        assert_eq!(pool.free(), 16);
        let mut late = [packet(&mut pool, &[1; 14])];
        assert_eq!(memory.transmit(&mut late, &mut pool).taken, 0, "closed");
    }

    #[test]
    fn an_empty_packet_is_taken_but_goes_nowhere() {
        let (mut pool, mut burst) = (pool(4), Burst::new(4));
        let mut memory = Memory::new(PORT, 4);
        let mut packets: Vec<_> = (0..3).map(|_| packet(&mut pool, &[7; 14])).collect();
        assert!(packets[1].truncate(0));
        let sent = memory.transmit(&mut packets, &mut pool);
        assert_eq!(sent, Sent { taken: 3, packets: 2, bytes: 28 });
        memory.receive(&mut burst, &mut pool);
        assert_eq!(burst.len(), 2);
        burst.clear(&mut pool);
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn a_lane_that_has_a_loop_can_wait_for_interrupts_unless_something_is_in_it() {
        let (mut pool, mut burst) = (pool(8), Burst::new(4));
        let mut memory = Memory::new(PORT, 8);
        assert!(memory.is_loop() && !memory.arm());
        memory.transmit(&mut [packet(&mut pool, &[1; 14])], &mut pool);
        assert!(memory.arm(), "it waits to be received");
        memory.receive(&mut burst, &mut pool);
        assert!(!memory.arm());
        burst.clear(&mut pool);
        for (source, waits) in [(0, true), (1, false)] {
            let counters = Counters::create(1, 1).unwrap();
            let mut pool = self::pool(8);
            let queue = Memory::filled(PORT, &mut pool, source, &[0; 60]).unwrap();
            let counted = counters.port(0, 0);
            let queues: Vec<Box<dyn Queue>> = vec![Box::new(queue)];
            let port = Port { queues, kernel: None, filter: None, counters: counted };
            let parts = LaneConfig::new(pool, vec![port], counters.lane(0));
            let mut lane = Lane::new(|_: &mut Packet| Verdict::Drop, parts);
            assert_eq!(lane.interrupts().is_some(), waits);
            assert_eq!(lane.close(), 0);
        }
    }

    /// Kernel peer that receives a packet for each of these checksums.
    struct Linux(Vec<Option<Partial>>);

    impl Queue for Linux {
        fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
            for partial in self.0.drain(..) {
                let packet = burst.alloc_packet(60, PortId(0), pool).unwrap();
                packet.bytes_mut().fill(0);
                packet.set_partial_checksum(partial);
            }
        }

        fn transmit(&mut self, _: &mut [Packet], _: &mut Pool) -> Sent {
            Sent::default()
        }
    }

    #[test]
    fn packets_from_linux_keep_their_own_checksums() {
        let checksums = [None, Some(Partial { start: 34, offset: 6 }), None];
        let (counters, seen) = (Counters::create(1, 1).unwrap(), RefCell::new(Vec::new()));
        let kernel = KernelPath { queue: Box::new(Linux(checksums.into())), receives: true };
        let port = Port {
            queues: vec![Box::new(Memory::new(PortId(0), 8))],
            kernel: Some(kernel),
            filter: None,
            counters: counters.port(0, 0),
        };
        let app = |packet: &mut Packet| {
            seen.borrow_mut().push(packet.partial_checksum());
            Verdict::Drop
        };
        let mut lane = Lane::new(app, LaneConfig::new(pool(8), vec![port], counters.lane(0)));
        lane.turn(); // Linux sends them through the port, which is a loop
        lane.turn();
        assert_eq!(*seen.borrow(), checksums);
        assert_eq!(lane.close(), 0);
    }

    #[test]
    fn a_source_replaces_packets_that_do_not_return() {
        let (mut pool, mut burst) = (pool(8), Burst::new(4));
        let mut memory = Memory::filled(PORT, &mut pool, 6, b"frame with content").unwrap();
        assert_eq!(pool.free(), 2);
        for turn in 0..100 {
            memory.receive(&mut burst, &mut pool);
            assert_eq!(burst.len(), 4, "turn {turn}");
            assert!(burst.packets().iter().all(|packet| packet.bytes() == b"frame with content"));
            memory.transmit(&mut burst.packets()[..turn % 5], &mut pool);
            burst.clear(&mut pool);
        }
        memory.close(&mut pool);
        memory.receive(&mut burst, &mut pool);
        assert_eq!((burst.len(), pool.free()), (0, 8));
    }

    #[test]
    fn a_port_that_cannot_be_filled_is_refused() {
        let mut pool = pool(4);
        let wanted = Memory::filled(PORT, &mut pool, 5, &[0; 60]).unwrap_err();
        assert_eq!(wanted, Error::TooMany { wanted: 5, free: 4 });
        let long = Memory::filled(PORT, &mut pool, 1, &[0; 400]).unwrap_err();
        assert_eq!(long, Error::TooLong { length: 400, room: 384 });
        assert_eq!(Memory::filled(PORT, &mut pool, 1, &[]).unwrap_err(), Error::Empty);
        assert_eq!(pool.free(), 4);
    }
}
