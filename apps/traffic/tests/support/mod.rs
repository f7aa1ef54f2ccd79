//! Lanes whose port is a loop, and loops that impair packets.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;

use fastlane_core::{
    Burst, Idle, Lane, LaneConfig, Packet, PacketOwnership, Pool, Port, PortId, Queue, Sent,
    Statistics, Verdict,
};
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;
use fastlane_testing::lists::{Frames, lists};
use traffic::app::Traffic;
use traffic::report::Report;
use traffic::run::Run;

/// Impairments of a [`Loop`]. Packets are numbered from 1.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairments {
    /// Drops each packet whose number is a multiple of this; 0 drops none.
    pub(crate) drop: u64,
    /// Delivers each packet twice whose number is a multiple of this; 0 duplicates none.
    pub(crate) duplicate: u64,
    /// Interval of packets and the byte that is inverted in each of them.
    pub(crate) corrupt: (u64, usize),
    /// True to swap the two packets of each pair.
    pub(crate) swap: bool,
}

/// Loop with known impairments. Not built for speed.
pub(crate) struct Loop {
    port: PortId,
    impairments: Impairments,
    waiting: VecDeque<Packet>,
    even: Option<Packet>,
    seen: u64,
}

impl Loop {
    pub(crate) fn new(port: PortId, impairments: Impairments) -> Self {
        Self { port, impairments, waiting: VecDeque::new(), even: None, seen: 0 }
    }

    fn pass(&mut self, mut packet: Packet, pool: &mut Pool) {
        self.seen += 1;
        let hit = |every: u64| every > 0 && self.seen.is_multiple_of(every);
        if hit(self.impairments.drop) {
            return pool.release(&mut packet);
        }
        if hit(self.impairments.corrupt.0) {
            packet.bytes_mut()[self.impairments.corrupt.1] ^= 0xff;
        }
        if hit(self.impairments.duplicate) {
            let copy = pool.alloc_packet(packet.len(), self.port);
            let mut copy = copy.expect("frames for the duplicates");
            copy.bytes_mut().copy_from_slice(packet.bytes());
            self.waiting.push_back(copy);
        }
        if !self.impairments.swap {
            self.waiting.push_back(packet);
        } else if let Some(even) = self.even.take() {
            self.waiting.extend([packet, even]);
        } else {
            self.even = Some(packet);
        }
    }
}

impl Queue for Loop {
    fn receive(&mut self, burst: &mut Burst, _: &mut Pool) {
        while burst.room() > 0
            && let Some(mut packet) = self.waiting.pop_front()
        {
            packet.set_port(self.port);
            packet.set_verdict(Verdict::default());
            burst.push(packet).expect("there is room");
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        let mut sent = Sent::default();
        for packet in packets {
            sent = Sent {
                taken: sent.taken + 1,
                packets: sent.packets + 1,
                bytes: sent.bytes + packet.len() as u64,
            };
            self.pass(packet.take(), pool);
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
        self.waiting.extend(self.even.take());
        self.waiting.drain(..).for_each(|mut packet| pool.release(&mut packet));
    }
}

/// Returns the port of this name in these tests.
pub(crate) fn port(name: &str) -> Option<PortId> {
    ["wire", "other"].iter().position(|known| *known == name).map(|index| PortId(index as u16))
}

/// Creates a lane with its own counters and one port for each of `queues`.
pub(crate) fn lane(app: Traffic, queues: Vec<Box<dyn Queue>>, idle: Idle) -> Lane<Traffic> {
    let counters = Counters::create(1, queues.len()).expect("memory for counters");
    let numbered = queues.into_iter().enumerate();
    let port = |(number, queue)| Port {
        queues: vec![queue],
        kernel: None,
        filter: None,
        counters: counters.port(0, number),
    };
    let memory = SharedMemory::create("traffic-test", 4096 * 2048).expect("memory for frames");
    let pool = Pool::new(memory, 2048, 192).expect("the frame size is allowed");
    let parts = LaneConfig::new(pool, numbered.map(port).collect(), counters.lane(0));
    Lane::new(app, LaneConfig { kernel_budget: 8, idle, ..parts })
}

/// Runs one lane with `settings` over `queues` to its end.
pub(crate) fn run(settings: &str, queues: Vec<Box<dyn Queue>>) -> Report {
    let settings = serde_json::from_str(settings).expect("the settings are right");
    let mut run = Run::default();
    let app = run.lane(settings, 0, 1, port).expect("the settings are allowed");
    let mut lane = lane(app, queues, Idle::Adaptive);
    assert_eq!(lane.run(&AtomicBool::new(false)), 0, "all frames come back");
    assert!(run.report().is_none(), "the lane has not ended");
    drop(lane);
    let (report, _) = run.report().expect("a lane has run");
    assert!(report.complete);
    report
}

/// Runs one lane with `settings` over a loop with the impairments `impairments`.
pub(crate) fn run_over(impairments: Impairments, settings: &str) -> Report {
    run(settings, vec![Box::new(Loop::new(PortId(0), impairments))])
}

/// Returns both ends of a cable as these ports. Each receives the frames that the other sends;
/// their pools may differ.
pub(crate) fn cable(ports: [u16; 2]) -> [Box<dyn Queue>; 2] {
    let [there, back] = <[Frames; 2]>::default();
    let [one, other] = ports.map(PortId);
    [lists(one, &back, &there), lists(other, &there, &back)]
}
