//! Lane with an application that a test supplies.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use fastlane_core::{
    App, Burst, Frame, HoldBuffer, Idle, Lane, LaneConfig, Packet, PacketOwnership, Pool, Port,
    PortId, Queue, Sent, Turn,
};
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, LaneCounter, PortCounter};

use crate::{HoldArea, HoldLimits};

/// Sent packets in order: the number of the queue of port 1, and the bytes.
pub(super) type Log = Arc<Mutex<Vec<(usize, Vec<u8>)>>>;
/// Packets that arrive at a queue of port 0.
pub(super) type Arrivals = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub(super) struct Wire {
    port: PortId,
    number: usize,
    arrivals: Arrivals,
    sent: Log,
    flushes: usize,
    in_flight: VecDeque<(usize, Frame)>,
    /// Number of flushes until a frame returns to the pool.
    delay: usize,
}

impl Queue for Wire {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let mut arrivals = self.arrivals.lock().unwrap();
        while burst.room() > 0 && pool.free() > 0 {
            let Some(bytes) = arrivals.pop_front() else { return };
            let mut packet = pool.alloc_packet(bytes.len(), self.port).unwrap();
            packet.bytes_mut().copy_from_slice(&bytes);
            burst.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], _: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            self.sent.lock().unwrap().push((self.number, packet.bytes().to_vec()));
            sent.bytes += packet.len() as u64;
            sent.taken += 1;
            sent.packets += 1;
            self.in_flight.extend(packet.take_frame().map(|frame| (self.flushes, frame)));
        }
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.flushes += 1;
        while self.in_flight.front().is_some_and(|(since, _)| self.flushes > since + self.delay) {
            self.in_flight.pop_front().into_iter().for_each(|(_, frame)| pool.give(frame));
        }
        false
    }

    fn close(&mut self, pool: &mut Pool) {
        self.in_flight.drain(..).for_each(|(_, frame)| pool.give(frame));
    }
}

/// Application made of the functions `process` and `turn`.
pub(super) struct AppOf<P, T>(pub(super) P, pub(super) T);

impl<P, T> App for AppOf<P, T>
where
    P: FnMut(&mut [Packet], &mut Turn),
    T: FnMut(&mut Turn),
{
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        (self.0)(packets, turn);
    }

    fn turn(&mut self, turn: &mut Turn) {
        (self.1)(turn);
    }
}

pub(super) struct Bench<A> {
    pub(super) lane: Lane<A>,
    pub(super) counters: Counters,
    pub(super) arrivals: [Arrivals; 2],
    pub(super) sent: Log,
}

#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) frames: usize,
    pub(super) burst: usize,
    pub(super) packets: usize,
    pub(super) per_key: usize,
    pub(super) delay: usize,
}

pub(super) const SIZES: Sizes = Sizes { frames: 64, burst: 8, packets: 32, per_key: 16, delay: 0 };

/// Creates a lane with port 0 for arrivals and port 1 as exit, of two queues each.
pub(super) fn bench<A: App>(app: A, sizes: Sizes) -> Bench<A> {
    let counters = Counters::create(1, 2).unwrap();
    let (arrivals, sent): ([Arrivals; 2], Log) = (Default::default(), Arc::default());
    let wire = |port: u16, number: usize| -> Box<dyn Queue> {
        let arrivals = if port == 0 { Arc::clone(&arrivals[number]) } else { Arc::default() };
        let (port, sent) = (PortId(port), Arc::clone(&sent));
        let in_flight = VecDeque::new();
        Box::new(Wire { port, number, arrivals, sent, flushes: 0, in_flight, delay: sizes.delay })
    };
    let ports = (0..2).map(|port| Port {
        queues: vec![wire(port, 0), wire(port, 1)],
        kernel: None,
        filter: None,
        counters: counters.port(0, port.into()),
    });
    let memory = SharedMemory::create("hold-test", sizes.frames * 512).unwrap();
    let pool = Pool::new(memory, 512, 64).unwrap();
    let parts = LaneConfig::new(pool, ports.collect(), counters.lane(0));
    let limits = HoldLimits { packets: sizes.packets, per_key: sizes.per_key };
    let hold = Some(Box::new(HoldArea::new(limits, 512)) as Box<dyn HoldBuffer>);
    let parts = LaneConfig { burst: sizes.burst, idle: Idle::Busy, hold, ..parts };
    Bench { lane: Lane::new(app, parts), counters, arrivals, sent }
}

impl<A: App> Bench<A> {
    pub(super) fn arrive(&self, queue: usize, bytes: &[u8]) {
        self.arrivals[queue].lock().unwrap().push_back(bytes.to_vec());
    }

    pub(super) fn sent(&self) -> Vec<Vec<u8>> {
        self.sent.lock().unwrap().iter().map(|(_, bytes)| bytes.clone()).collect()
    }

    pub(super) fn lane_count(&self, counter: LaneCounter) -> u64 {
        self.counters.lane(0).load(counter)
    }

    pub(super) fn count(&self, counter: PortCounter) -> u64 {
        self.counters.port_total(0, counter) + self.counters.port_total(1, counter)
    }

    /// Closes the lane, and checks that no frame is missing and every packet is counted once.
    #[track_caller]
    pub(super) fn close(&mut self) {
        assert_eq!(self.lane.close(), 0, "frames out = frames in");
        let lane = |counter| self.counters.lane(0).load(counter);
        let resumed = lane(LaneCounter::ResumedPackets);
        let verdicts = [
            PortCounter::VerdictReflect,
            PortCounter::VerdictForward,
            PortCounter::VerdictKernel,
            PortCounter::VerdictDrop,
            PortCounter::VerdictHold,
            PortCounter::DropBadVerdict,
        ];
        let verdicts: u64 = verdicts.map(|counter| self.count(counter)).iter().sum();
        assert_eq!(self.count(PortCounter::ReceivedPackets) + resumed, verdicts);
        let held = self.count(PortCounter::VerdictHold) - self.count(PortCounter::DropHold);
        let dropped = [
            LaneCounter::DiscardedPackets,
            LaneCounter::DropResumeNoFrame,
            LaneCounter::DropHeldAtEnd,
        ];
        assert_eq!(held, resumed + dropped.map(lane).iter().sum::<u64>());
        assert_eq!(lane(LaneCounter::HeldPackets), 0);
    }
}
