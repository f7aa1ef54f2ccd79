#![allow(unsafe_code, reason = "a driver with memory of its own")]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};

use crate::packet::Window;
use crate::{
    App, Burst, Idle, Lane, LaneConfig, METADATA_LENGTH, Packet, PacketOwnership, Partial, Pool,
    Port, PortId, Queue, RegionId, Sent, Statistics, Turn, TxMemory, Verdict,
};

const FRAME: usize = 2048;

/// Queue of a driver with a memory region of its own. It receives frames of the lengths in
/// `arrivals` and sends at once.
struct OwnMemoryQueue {
    region: RegionId,
    port: PortId,
    memory: Box<[[u64; FRAME / 8]]>,
    free: Vec<u64>,
    arrivals: Vec<usize>,
    sent: std::sync::mpsc::Sender<(PortId, Vec<u8>)>,
}

impl OwnMemoryQueue {
    fn take_released(&mut self, pool: &mut Pool) {
        pool.take_released(self.region, &mut self.free);
    }

    fn packet(&mut self, length: usize) -> Option<Packet> {
        let offset = METADATA_LENGTH + 64;
        let room = FRAME.checked_sub(offset + length)?;
        let index = self.free.pop()?;
        let frame = NonNull::from(&mut self.memory[index as usize]).cast::<u8>();
        // SAFETY: the offset is inside the frame.
        let data = unsafe { frame.add(offset) };
        let token = self.region.token(index);
        let window = Window { data, length: length as u32, headroom: 64, tailroom: room as u16 };
        // SAFETY: the frame was free, is initialised and aligned to eight, and outlives the lane.
        Some(unsafe { Packet::new(window, token, self.port) })
    }
}

impl Queue for OwnMemoryQueue {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        self.take_released(pool);
        while burst.room() > 0 && !self.arrivals.is_empty() {
            let length = self.arrivals[0];
            let Some(mut packet) = self.packet(length) else { return };
            self.arrivals.remove(0);
            pool.external_received(self.region, 1);
            let bytes = packet.bytes_mut();
            bytes.iter_mut().enumerate().for_each(|(at, octet)| *octet = (at + length) as u8);
            burst.spare()[0].write(packet);
            // SAFETY: the first place was just written, with a frame of a registered region.
            unsafe { burst.assume_received(1, length as u64) };
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            assert_eq!(packet.region(), self.region, "the lane copied it into this region");
            sent.taken += 1;
            sent.packets += usize::from(packet.len() > 0);
            sent.bytes += packet.len() as u64;
            let _ = self.sent.send((self.port, packet.bytes().to_vec()));
            pool.release(packet);
        }
        sent
    }

    fn tx_memory(&self) -> TxMemory {
        TxMemory::Region(self.region)
    }

    fn alloc_packet(&mut self, length: usize, pool: &mut Pool) -> Option<Packet> {
        let packet = self.packet(length)?;
        pool.external_received(self.region, 1);
        Some(packet)
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.take_released(pool);
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.take_released(pool);
    }
}

/// Queue that transmits from the lane's pool and keeps the packets until it is closed.
struct PoolQueue {
    kept: Vec<Packet>,
    sent: std::sync::mpsc::Sender<(PortId, Vec<u8>)>,
}

impl Queue for PoolQueue {
    fn receive(&mut self, _: &mut Burst, _: &mut Pool) {}

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent { taken: packets.len(), ..Sent::default() };
        for packet in packets {
            assert!(pool.offset_of(packet).is_some(), "the lane copied it into its pool");
            if packet.len() == 0 {
                pool.release(packet);
                continue;
            }
            assert_eq!(packet.partial_checksum(), Some(Partial { start: 34, offset: 6 }));
            sent.packets += 1;
            let _ = self.sent.send((PortId(2), packet.bytes().to_vec()));
            self.kept.push(packet.take());
        }
        sent
    }

    fn flush(&mut self, _: &mut Pool) -> bool {
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, pool: &mut Pool) {
        self.kept.drain(..).for_each(|mut packet| pool.release(&mut packet));
    }
}

struct Bench<A> {
    lane: Lane<A>,
    counters: Counters,
    sent: std::sync::mpsc::Receiver<(PortId, Vec<u8>)>,
}

/// Builds a lane with three ports. Ports 0 and 1 have regions of four frames each; port 2 transmits
/// from the lane's pool, which has `frames`.
fn bench<A: App>(app: A, arrivals: &[usize], frames: usize) -> Bench<A> {
    let memory = SharedMemory::create("copy-test", frames * FRAME).unwrap();
    bench_with(app, arrivals, Pool::new(memory, FRAME, 192).unwrap())
}

/// Builds such a lane with a pool.
fn bench_with<A: App>(app: A, arrivals: &[usize], mut pool: Pool) -> Bench<A> {
    let counters = Counters::create(1, 3).unwrap();
    let (sender, sent) = std::sync::mpsc::channel();
    let mut inn = |port, arrivals: &[usize]| OwnMemoryQueue {
        region: pool.register_region(4).unwrap(),
        port: PortId(port),
        memory: vec![[0; FRAME / 8]; 4].into(),
        free: (0..4).collect(),
        arrivals: arrivals.to_vec(),
        sent: sender.clone(),
    };
    let queues: [Box<dyn Queue>; 3] = [
        Box::new(inn(0, arrivals)),
        Box::new(inn(1, &[])),
        Box::new(PoolQueue { kept: Vec::new(), sent: sender.clone() }),
    ];
    let ports = queues.into_iter().enumerate().map(|(number, queue)| Port {
        queues: vec![queue],
        kernel: None,
        filter: None,
        counters: counters.port(0, number),
    });
    let parts = LaneConfig::new(pool, ports.collect(), counters.lane(0));
    let parts = LaneConfig { kernel_budget: 8, idle: Idle::Busy, ..parts };
    Bench { lane: Lane::new(app, parts), counters, sent }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at + length) as u8).collect()
}

#[test]
fn packets_are_copied_between_regions_and_no_frame_is_lost() {
    let mut next = 0;
    let app = move |packet: &mut Packet| {
        packet.set_partial_checksum(Some(Partial { start: 34, offset: 6 }));
        next += 1;
        match next % 4 {
            0 => Verdict::Reflect,
            1 => Verdict::Forward(PortId(1)),
            2 => Verdict::Forward(PortId(2)),
            _ => Verdict::Drop,
        }
    };
    let lengths = [60, 61, 62, 63, 64, 65, 66, 67];
    let Bench { mut lane, counters, sent } = bench(app, &lengths, 16);
    for _ in 0..4 {
        lane.turn();
    }
    assert_eq!(lane.close(), 0, "no frame is missing");
    let arrived: Vec<_> = sent.try_iter().collect();
    let expected = [(1, 60), (2, 61), (0, 63), (1, 64), (2, 65), (0, 67)];
    let expected: Vec<_> =
        expected.into_iter().map(|(port, length)| (PortId(port), content(length))).collect();
    assert_eq!(arrived, expected);
    assert_eq!(counters.port_total(1, PortCounter::SentPackets), 2);
}

#[test]
fn without_a_frame_there_the_rest_is_counted() {
    let app = |packet: &mut Packet| {
        packet.set_partial_checksum(Some(Partial { start: 34, offset: 6 }));
        Verdict::Forward(PortId(2))
    };
    let Bench { mut lane, counters, sent } = bench(app, &[60; 7], 3);
    for _ in 0..4 {
        lane.turn();
    }
    assert_eq!(sent.try_iter().count(), 3);
    assert_eq!(counters.port_total(2, PortCounter::SentPackets), 3);
    assert_eq!(counters.port_total(2, PortCounter::DropCopyNoFrame), 4);
    assert_eq!(lane.close(), 0);
}

#[test]
fn a_packet_that_is_longer_than_a_frame_there_is_dropped_alone() {
    for (size, sent_packets) in [(FRAME, 3), (1024, 2)] {
        let app = |packet: &mut Packet| {
            packet.set_partial_checksum(Some(Partial { start: 34, offset: 6 }));
            Verdict::Forward(PortId(2))
        };
        let memory = SharedMemory::create("copy-test", 16 * size).unwrap();
        // With its headroom, a packet of 1,800 octets does not fit into a frame of 2,048 either.
        let pool = Pool::new(memory, size, 192).unwrap();
        let Bench { mut lane, counters, sent } = bench_with(app, &[1800, 60, 61], pool);
        lane.turn();
        assert_eq!(sent.try_iter().count(), sent_packets);
        let count = |counter| counters.port_total(2, counter);
        assert_eq!(count(PortCounter::SentPackets), sent_packets as u64);
        assert_eq!(count(PortCounter::DropTransmitLength), 3 - sent_packets as u64);
        assert_eq!(count(PortCounter::DropCopyNoFrame), 0);
        assert_eq!(lane.close(), 0);
    }
}

/// Application that swaps every other packet with a copy of it.
struct SwapWithCopy;

impl App for SwapWithCopy {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for (number, packet) in packets.iter_mut().enumerate() {
            packet.set_verdict(Verdict::Reflect);
            if number % 2 == 0 {
                let copy = turn.copy(packet).unwrap();
                copy.set_verdict(Verdict::Forward(PortId(1)));
                std::mem::swap(copy, packet);
            }
        }
    }
}

#[test]
fn a_run_of_mixed_regions_is_copied_packet_by_packet() {
    let Bench { mut lane, counters, sent } = bench(SwapWithCopy, &[60, 61, 62, 63], 16);
    lane.turn();
    assert_eq!(lane.close(), 0);
    let count = |port| counters.port_total(port, PortCounter::SentPackets);
    assert_eq!((count(0), count(1)), (4, 2));
    assert!(sent.try_iter().all(|(_, bytes)| bytes == content(bytes.len())));
}
