use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use fastlane_table::counters::{Counters, PortCounter};
use fastlane_table::{Readers, SharedMemory};

use super::*;
use crate::{
    Congestion, Frame, KernelPath, LossReader, Packet, PacketOwnership, PortId, Queue, QueueChange,
    RawVerdict, Run, Sent, Statistics, Verdict,
};

/// Number of packets beyond which a [`Wire`] is congested.
const CONGESTED: usize = 256;

/// A queue in plain memory: receives the lengths it was given, keeps what it sends until a flush.
struct Wire {
    arrivals: VecDeque<usize>,
    port: PortId,
    space: usize,
    /// Time that it takes to send a packet.
    pace: Duration,
    held: Vec<Frame>,
    sent: Arc<AtomicUsize>,
}

impl Queue for Wire {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        while burst.room() > 0 && !self.arrivals.is_empty() {
            let Some(frame) = pool.take() else { return };
            let length = self.arrivals.pop_front().unwrap();
            let packet = pool.packet(frame, pool.data_offset(), length, self.port).unwrap();
            burst.push(packet).unwrap();
        }
    }

    fn congestion(&mut self) -> Congestion {
        if self.arrivals.len() > CONGESTED { Congestion::Rising } else { Congestion::None }
    }

    fn transmit(&mut self, packets: &mut [Packet], _: &mut Pool) -> Sent {
        if !self.pace.is_zero() {
            std::thread::sleep(self.pace * packets.len() as u32);
        }
        let mut sent = Sent::default();
        for packet in packets {
            if self.held.len() == self.space {
                break;
            }
            sent.bytes += packet.len() as u64;
            sent.taken += 1;
            sent.packets += 1;
            self.held.extend(packet.take_frame());
        }
        sent
    }

    /// Takes packets as they are, as a driver in C does.
    fn transmit_run(&mut self, mut run: Run<'_>, pool: &mut Pool) -> Sent {
        let tokens: Vec<_> = run.iter().map(|packet| (packet.token(), packet.len())).collect();
        let sent = self.transmit(&mut run, pool);
        for (packet, (token, length)) in run.iter_mut().zip(tokens).take(sent.taken) {
            *packet = pool
                .packet(Frame::from_token(token), pool.data_offset(), length, self.port)
                .unwrap();
        }
        run.forget_first(sent.taken);
        sent
    }

    fn flush(&mut self, pool: &mut Pool) -> bool {
        self.sent.fetch_add(self.held.len(), Ordering::Relaxed);
        self.held.drain(..).for_each(|frame| pool.give(frame));
        false
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn statistics(&self) -> Statistics {
        Statistics { device_full: 3, ..Statistics::default() }
    }

    fn close(&mut self, pool: &mut Pool) {
        self.flush(pool);
    }
}

struct Bench {
    counters: Counters,
    sent: [Arc<AtomicUsize>; 3],
}

impl Bench {
    fn sent(&self, wire: usize) -> usize {
        self.sent[wire].load(Ordering::Relaxed)
    }

    fn count(&self, port: usize, counter: PortCounter) -> u64 {
        self.counters.port(0, port).load(counter)
    }
}

/// Creates a lane with port 0 with a kernel path, port 1 without one and port 2 without queues.
fn lane<A: App>(app: A, arrivals: &[usize], space: usize) -> (Lane<A>, Bench) {
    let counters = Counters::create(1, 3).unwrap();
    let sent: [Arc<AtomicUsize>; 3] = std::array::from_fn(|_| Arc::default());
    let wire = |port: usize, arrivals: &[usize], space| -> Box<dyn Queue> {
        let sent = Arc::clone(&sent[port]);
        let arrivals = arrivals.iter().copied().collect();
        let (port, held) = (PortId(port as u16), Vec::new());
        Box::new(Wire { arrivals, port, space, pace: Duration::ZERO, held, sent })
    };
    let kernel = KernelPath { queue: wire(2, &[], 1000), receives: false };
    let port = |number, queues, kernel| Port {
        queues,
        kernel,
        filter: None,
        counters: counters.port(0, number),
    };
    let ports = vec![
        port(0, vec![wire(0, arrivals, space)], Some(kernel)),
        port(1, vec![wire(1, &[], space)], None),
        port(2, vec![], None),
    ];
    let memory = SharedMemory::create("lane-test", 256 * 2048).unwrap();
    let pool = Pool::new(memory, 2048, 192).unwrap();
    let parts = LaneConfig::new(pool, ports, counters.lane(0));
    let parts = LaneConfig { kernel_budget: 8, idle: Idle::Busy, ..parts };
    (Lane::new(app, parts), Bench { counters, sent })
}

#[test]
fn each_verdict_goes_its_way_whatever_the_order() {
    let verdicts = [
        Verdict::Reflect,
        Verdict::Forward(PortId(1)),
        Verdict::Drop,
        Verdict::Kernel,
        Verdict::Forward(PortId(2)),
        Verdict::Forward(PortId(99)),
    ];
    let mut next = 0;
    let app = move |_: &mut Packet| {
        next += 1;
        verdicts[(next - 1) % verdicts.len()]
    };
    let (mut lane, bench) = lane(app, &[60; 30], 1000);
    assert_eq!(lane.turn(), 30);
    assert_eq!([bench.sent(0), bench.sent(1), bench.sent(2)], [5, 5, 5]);
    assert_eq!(bench.count(0, PortCounter::DropNoPort), 10);
    assert_eq!(bench.count(0, PortCounter::VerdictForward), 15);
    assert_eq!(bench.count(0, PortCounter::VerdictDrop), 5);
    assert_eq!(bench.count(1, PortCounter::SentBytes), 300);
    assert_eq!(bench.count(0, PortCounter::ReceivedBytes), 1800);
    assert_eq!(bench.count(0, PortCounter::DropDeviceFull), 6, "the queue's and the kernel path's");
    assert_eq!(lane.close(), 0, "all frames come back");
}

/// Labels with words that mean nothing.
struct Mumble;

impl App for Mumble {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for (index, packet) in packets.iter_mut().enumerate() {
            packet.set_raw_verdict(RawVerdict(0x0500_0001 + index as u32));
        }
    }
}

#[test]
fn a_word_that_is_no_verdict_is_a_drop_with_its_own_counter() {
    let (mut lane, bench) = lane(Mumble, &[60; 7], 1000);
    lane.turn();
    assert_eq!(bench.count(0, PortCounter::DropBadVerdict), 7);
    assert_eq!(lane.close(), 0);
}

#[test]
fn a_full_queue_is_flushed_once_and_the_rest_is_counted() {
    let (mut lane, bench) = lane(|_: &mut Packet| Verdict::Reflect, &[60; 30], 10);
    lane.turn();
    assert_eq!(bench.sent(0), 20, "ten, a flush, ten more");
    assert_eq!(bench.count(0, PortCounter::SentPackets), 20);
    assert_eq!(bench.count(0, PortCounter::DropTransmitFull), 10);
    assert_eq!(lane.close(), 0);
}

#[test]
fn linux_gets_less_from_a_congested_queue_if_there_are_packets_of_others() {
    for (others, shares) in [(true, [8, 4, 2, 1, 0]), (false, [8; 5])] {
        let mut number = 0;
        let app = move |_: &mut Packet| {
            number += 1;
            if others && number % 128 == 1 { Verdict::Reflect } else { Verdict::Kernel }
        };
        let (mut lane, bench) = lane(app, &[60; CONGESTED + 32 * 5], 1000);
        let mut turn = || {
            let before = bench.count(0, PortCounter::ToKernelPackets);
            lane.turn();
            bench.count(0, PortCounter::ToKernelPackets) - before
        };
        assert_eq!(std::array::from_fn(|_| turn()), shares);
        // It is not congested any more. Two halves make a packet.
        assert_eq!(turn(), if others { 2 } else { 8 });
        assert_eq!(turn(), if others { 2 } else { 8 });
        assert_eq!(turn(), if others { 4 } else { 8 });
        assert_eq!(lane.close(), 0);
    }
}

#[test]
fn linux_gets_less_of_its_own_too_if_it_takes_long() {
    let arrivals = [60; CONGESTED + 32 * 40];
    let (mut lane, bench) = lane(|_: &mut Packet| Verdict::Kernel, &arrivals, 1000);
    let peer = Wire {
        arrivals: VecDeque::new(),
        port: PortId(0),
        space: 1000,
        pace: Duration::from_micros(20),
        held: Vec::new(),
        sent: Arc::default(),
    };
    lane.egress.ports.kernel_peers[0].slot.queue = Box::new(peer);
    let mut turn = || {
        let before = bench.count(0, PortCounter::ToKernelPackets);
        lane.turn();
        bench.count(0, PortCounter::ToKernelPackets) - before
    };
    assert_eq!(std::array::from_fn(|_| turn()), [8; 32]);
    assert_eq!(std::array::from_fn(|_| turn()), [4, 2, 1]);
    assert_eq!(lane.close(), 0);
}

#[test]
fn linux_gets_no_more_than_its_budget_and_arp_a_share_of_its_own() {
    let mut number = 0;
    let app = move |packet: &mut Packet| {
        number += 1;
        let ethertype: [u8; 2] = if number > 20 { [0x08, 0x06] } else { [0x08, 0x00] };
        packet.bytes_mut()[12..14].copy_from_slice(&ethertype);
        Verdict::Kernel
    };
    let (mut lane, bench) = lane(app, &[60; 30], 1000);
    lane.turn();
    assert_eq!(bench.count(0, PortCounter::ToKernelPackets), 8 + 2);
    assert_eq!(bench.count(0, PortCounter::DropKernelBudget), 20);
    assert_eq!(bench.sent(2), 10);
    assert_eq!(lane.close(), 0);
}

#[test]
fn kernel_without_a_way_there_is_counted() {
    let app = |packet: &mut Packet| {
        packet.set_port(PortId(1));
        Verdict::Kernel
    };
    let (mut lane, bench) = lane(app, &[60; 3], 1000);
    lane.turn();
    assert_eq!(bench.count(1, PortCounter::DropNoKernelPeer), 3);
    assert_eq!(lane.close(), 0);
}

/// Queue that reports more sent packets than it was passed.
struct Overreporting;

impl Queue for Overreporting {
    fn receive(&mut self, _: &mut Burst, _: &mut Pool) {}

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        packets.iter_mut().for_each(|packet| pool.release(packet));
        let more = packets.len() + 5;
        Sent { taken: more, packets: more, bytes: 0 }
    }
}

#[test]
fn a_driver_that_says_too_much_does_not_end_the_lane() {
    let mut number = 0;
    let app = move |packet: &mut Packet| {
        number += 1;
        packet.bytes_mut()[12..14].copy_from_slice(&[0x08, 0x06]);
        if number <= 20 { Verdict::Kernel } else { Verdict::Forward(PortId(1)) }
    };
    let (mut lane, bench) = lane(app, &[60; 30], 1000);
    lane.egress.ports.kernel_peers[0].slot.queue = Box::new(Overreporting);
    lane.egress.ports.queues[1].queue = Box::new(Overreporting);
    lane.turn();
    let counters =
        [PortCounter::ToKernelPackets, PortCounter::DropKernelFull, PortCounter::DropKernelBudget];
    assert_eq!(counters.map(|counter| bench.count(0, counter)), [8 + 2, 0, 10]);
    assert_eq!(bench.count(1, PortCounter::SentPackets), 10);
    assert_eq!(lane.close(), 0);
}

/// Makes and copies packets without end, and swaps the ones that it was shown with its own.
struct Greedy {
    refused: usize,
}

impl App for Greedy {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        packets.reverse();
        for packet in packets {
            packet.set_verdict(Verdict::Reflect);
            if let Some(copy) = turn.copy(packet) {
                copy.set_verdict(Verdict::Forward(PortId(1)));
                std::mem::swap(copy, packet);
            }
        }
    }

    fn turn(&mut self, turn: &mut Turn) {
        while let Some(packet) = turn.new_packet(PortId(1)) {
            packet.append(60).unwrap().fill(1);
        }
        self.refused += 1;
    }
}

#[test]
fn an_application_makes_a_bounded_number_of_packets_and_loses_none() {
    let (mut lane, bench) = lane(Greedy { refused: 0 }, &[60; 10], 1000);
    lane.turn();
    assert_eq!(lane.app().refused, 1);
    assert_eq!((bench.sent(0), bench.sent(1)), (10, 32));
    let lane_counters = bench.counters.lane(0);
    assert_eq!(lane_counters.load(LaneCounter::NewPackets), 32);
    assert_eq!(lane_counters.load(LaneCounter::NewRefused), 1);
    assert_eq!(lane_counters.load(LaneCounter::Turn), 1);
    assert_eq!(lane.close(), 0);
}

#[test]
fn a_stopped_lane_returns_everything() {
    let (mut lane, bench) = lane(|_: &mut Packet| Verdict::Reflect, &[60; 500], 1000);
    for _ in 0..20 {
        lane.turn();
    }
    assert_eq!(lane.run(&AtomicBool::new(true)), 0);
    assert_eq!(bench.sent(0), 500);
    assert_eq!(bench.counters.lane(0).load(LaneCounter::Ended), 1);
    assert_eq!(bench.counters.lane(0).load(LaneCounter::PoolFree), 256);
}

#[test]
fn a_stopped_lane_receives_what_has_arrived_before() {
    let (mut lane, bench) = lane(|_: &mut Packet| Verdict::Reflect, &[60; 20_000], 1000);
    lane.run_turns(&AtomicBool::new(true));
    lane.run_last_turns();
    assert_eq!(lane.close(), 0);
    assert_eq!(bench.count(0, PortCounter::ReceivedPackets), 20_000);
}

/// A queue whose device takes long to tell its losses.
struct SlowDevice {
    losses: LossReader,
}

impl Queue for SlowDevice {
    fn receive(&mut self, _: &mut Burst, _: &mut Pool) {}

    fn transmit(&mut self, _: &mut [Packet], _: &mut Pool) -> Sent {
        Sent::default()
    }

    fn loss_reader(&self) -> Option<LossReader> {
        Some(self.losses.clone())
    }
}

#[test]
fn a_lane_runs_while_the_losses_below_it_are_read() {
    let counters = Counters::create(1, 1).unwrap();
    let turns = counters.lane(0);
    // It answers after a thousand turns of the lane, or never if the lane waits for it.
    let losses = LossReader::new(move || {
        let (first, end) = (turns.load(LaneCounter::Turn), now() + 20_000_000_000);
        while turns.load(LaneCounter::Turn) < first + 1000 {
            if now() > end {
                return None;
            }
            std::thread::yield_now();
        }
        Some(Statistics { device_full: 7, ..Statistics::default() })
    });
    let queue = SlowDevice { losses };
    let losses = queue.loss_reader().unwrap();
    let port = Port {
        queues: vec![Box::new(queue)],
        kernel: None,
        filter: None,
        counters: counters.port(0, 0),
    };
    let memory = SharedMemory::create("lane-test", 256 * 2048).unwrap();
    let pool = Pool::new(memory, 2048, 192).unwrap();
    let parts = LaneConfig::new(pool, vec![port], counters.lane(0));
    let parts = LaneConfig { idle: Idle::Busy, ..parts };
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lane = scope.spawn(move || Lane::new(|_: &mut Packet| Verdict::Drop, parts).run(stop));
        let read = losses.read();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(lane.join().unwrap(), 0);
        assert_eq!(read.device_full, 7, "the lane waited for the device");
    });
}

#[test]
fn a_lane_that_was_closed_looks_into_no_table_any_more() {
    let (mut lane, bench) = lane(Restless { expired: 0 }, &[60; 100], 1000);
    // SAFETY: the lane publishes in these counters, and reads no table.
    #[allow(unsafe_code, reason = "names the lane")]
    let readers = unsafe { Readers::lanes(&bench.counters) };
    let mut since = readers.snapshot();
    lane.turn();
    assert!(!readers.passed(&mut since));
    assert_eq!(lane.close(), 0);
    assert!(readers.passed(&mut since), "memory of tables is used again from now on");
    let expired = lane.app().expired;
    std::thread::sleep(std::time::Duration::from_millis(1)); // its timer is due
    (0..5).for_each(|_| assert_eq!(lane.turn(), 0));
    assert_eq!(lane.app().expired, expired, "the application was asked");
    assert_eq!(bench.counters.lane(0).load(LaneCounter::Turn), 1);

    // Another with the same counters is asked again.
    let memory = SharedMemory::create("lane-test", 256 * 2048).unwrap();
    let pool = Pool::new(memory, 2048, 192).unwrap();
    let parts = LaneConfig::new(pool, vec![], bench.counters.lane(0));
    let mut next = Lane::new(Restless { expired: 0 }, parts);
    assert!(!readers.passed(&mut readers.snapshot()));
    assert_eq!(next.close(), 0);
}

/// Starts its timer anew whenever it expires, with no time between.
struct Restless {
    expired: usize,
}

impl App for Restless {
    fn process(&mut self, _: &mut [Packet], _: &mut Turn) {}

    fn turn(&mut self, turn: &mut Turn) {
        if turn.number() == 1 {
            assert!(turn.start_timer(0, 7));
        }
        while turn.expired().is_some() {
            self.expired += 1;
            assert!(turn.start_timer(0, 7));
        }
    }
}

#[test]
fn a_timer_never_expires_in_the_turn_that_starts_it() {
    let (mut lane, _bench) = lane(Restless { expired: 0 }, &[], 1000);
    let turns = 10;
    for turn in 0..turns {
        assert!(lane.app().expired <= turn, "once a turn at most");
        lane.turn();
    }
    assert!((1..turns).contains(&lane.app().expired));
    assert_eq!(lane.close(), 0);
}

/// Claims frames of 60 bytes, and counts bursts.
struct Sixty(Arc<AtomicUsize>);

impl crate::Filter for Sixty {
    fn begin_burst(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn claims(&mut self, frame: &[u8]) -> bool {
        frame.len() == 60
    }
}

#[test]
fn what_a_filter_leaves_goes_to_linux_unseen() {
    let app = |packet: &mut Packet| {
        assert_eq!(packet.len(), 60, "steering left it to Linux");
        Verdict::Reflect
    };
    let (mut lane, bench) = lane(app, &[60, 70, 71, 60, 60, 70], 1000);
    let bursts = Arc::<AtomicUsize>::default();
    lane.egress.ports.set_default_filter(0, Sixty(Arc::clone(&bursts)));
    lane.turn();
    assert_eq!(bursts.load(Ordering::Relaxed), 1, "a filter begins a burst once");
    assert_eq!((bench.sent(0), bench.sent(2)), (3, 3));
    assert_eq!(bench.count(0, PortCounter::SteerClaimed), 3);
    assert_eq!(bench.count(0, PortCounter::SteerPassed), 3);
    assert_eq!(bench.count(0, PortCounter::VerdictKernel), 3);
    assert_eq!(lane.close(), 0);
}

/// Notes the number of the burst at each call.
#[derive(Default)]
struct Numbers(Vec<(u64, usize)>);

impl App for Numbers {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        self.0.push((turn.burst(), packets.len()));
        packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Drop));
    }
}

#[test]
fn what_is_shown_in_parts_is_one_burst() {
    let arrivals = [vec![60, 70, 60, 60, 70, 60], vec![60; 32]].concat();
    let (mut lane, _) = lane(Numbers::default(), &arrivals, 1000);
    lane.egress.ports.set_default_filter(0, Sixty(Arc::default()));
    while lane.turn() > 0 {}
    let calls = std::mem::take(&mut lane.app().0);
    let first = calls[0].0;
    let of_first = calls.iter().take_while(|(number, _)| *number == first).count();
    assert!(of_first > 2, "{calls:?}");
    assert_eq!(calls.iter().map(|(_, packets)| packets).sum::<usize>(), 36);
    assert!(calls[of_first..].iter().all(|(number, _)| *number > first), "{calls:?}");
    assert_eq!(lane.close(), 0);
}

#[test]
fn linux_is_looked_at_at_once_without_work_and_now_and_then_with_it() {
    let lane = |arrivals: &[usize]| {
        let (mut lane, bench) = lane(|_: &mut Packet| Verdict::Drop, arrivals, 1000);
        let peer = Wire {
            arrivals: VecDeque::from([60; 3]),
            port: PortId(0),
            space: 0,
            pace: Duration::ZERO,
            held: Vec::new(),
            sent: Arc::default(),
        };
        let kernel_peer = &mut lane.egress.ports.kernel_peers[0];
        (kernel_peer.slot.queue, kernel_peer.receives) = (Box::new(peer), true);
        (lane, bench)
    };
    let relayed = |bench: &Bench| bench.count(0, PortCounter::FromKernelPackets);
    let (mut idle, bench) = lane(&[]);
    idle.turn();
    assert_eq!((relayed(&bench), idle.close()), (3, 0));
    let (mut busy, bench) = lane(&[60; 100_000]);
    let seen: Vec<u64> = (1..=KERNEL_TURNS).map(|_| (busy.turn(), relayed(&bench)).1).collect();
    assert_eq!(seen[..seen.len() - 1], vec![0; seen.len() - 1]);
    assert_eq!((seen.last(), busy.close()), (Some(&3), 0));
}

/// Observer that counts the arrivals it is shown.
struct Arrivals(Arc<AtomicUsize>);

impl PacketObserver for Arrivals {
    fn begin_turn(&mut self) -> bool {
        true
    }

    fn received(&mut self, _: PortId, packets: &[Packet]) {
        self.0.fetch_add(packets.len(), Ordering::Relaxed);
    }

    fn labelled(&mut self, _: &[Packet]) {}

    fn sending(&mut self, _: PortId, _: &[Packet]) {}

    fn sent(&mut self, _: crate::Departure) {}
}

#[test]
fn a_lane_without_layers_calls_one_that_is_attached_later() {
    let counters = Counters::create(1, 1).unwrap();
    let wire = Wire {
        arrivals: std::iter::repeat_n(60, 96).collect(),
        port: PortId(0),
        space: 1000,
        pace: Duration::ZERO,
        held: Vec::new(),
        sent: Arc::default(),
    };
    let port = Port {
        queues: vec![Box::new(wire)],
        kernel: None,
        filter: None,
        counters: counters.port(0, 0),
    };
    let pool = Pool::new(SharedMemory::create("lane-test", 256 * 2048).unwrap(), 2048, 192);
    let config = LaneConfig::new(pool.unwrap(), vec![port], counters.lane(0));
    let mut lane = Lane::new(|_: &mut Packet| Verdict::Reflect, config);
    assert_eq!((lane.has_layers, lane.turn()), (false, 32));
    let seen = Arc::<AtomicUsize>::default();
    lane.observe(Box::new(Arrivals(Arc::clone(&seen))));
    assert_eq!((lane.turn(), seen.load(Ordering::Relaxed)), (32, 32));
    assert_eq!(lane.close(), 0);
    assert_eq!((lane.turn(), seen.load(Ordering::Relaxed)), (0, 32), "a closed lane does nothing");
    assert_eq!(counters.port(0, 0).load(PortCounter::SentPackets), 64);
}

/// Queue with an interrupt that nothing raises.
struct Silent(OwnedFd);

impl Queue for Silent {
    fn receive(&mut self, _: &mut Burst, _: &mut Pool) {}

    fn transmit(&mut self, _: &mut [Packet], _: &mut Pool) -> Sent {
        Sent::default()
    }

    fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[test]
fn a_lane_waits_for_interrupts_only_while_each_of_its_queues_has_one() {
    let silent = || -> Box<dyn Queue> {
        let interrupt = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        Box::new(Silent(interrupt))
    };
    let polled = || -> Box<dyn Queue> {
        let (arrivals, port, sent) = (VecDeque::new(), PortId(0), Arc::default());
        Box::new(Wire { arrivals, port, space: 1, pace: Duration::ZERO, held: Vec::new(), sent })
    };
    let counters = Counters::create(1, 1).unwrap();
    let pool = Pool::new(SharedMemory::create("lane-test", 16 * 2048).unwrap(), 2048, 192);
    let (kernel, filter) = (None, None);
    let port = Port { queues: vec![silent()], kernel, filter, counters: counters.port(0, 0) };
    let config = LaneConfig::new(pool.unwrap(), vec![port], counters.lane(0));
    let mut lane = Lane::new(|_: &mut Packet| Verdict::Drop, config);
    let interrupts = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    lane.wait_on(interrupts.unwrap(), Idle::Interrupt);
    let swap = Arc::new(QueueSwap::default());
    lane.swap_queues_by(Arc::clone(&swap));
    let mut retired = Vec::new();
    for (installed, waits) in [
        (vec![], true),
        (vec![polled()], false),
        (vec![silent(), polled()], false),
        (vec![silent()], true),
    ] {
        swap.request(0, QueueChange::Replace, installed, std::mem::take(&mut retired));
        retired = loop {
            lane.turn();
            if let Some(result) = swap.result() {
                break result.detached;
            }
        };
        // A packet for a queue without an interrupt would lie there for a tenth of a second.
        let sleep = lane.idle.decide(None).unwrap();
        assert_eq!(sleep.is_wait(), waits, "{sleep:?}");
    }
    swap.request(0, QueueChange::Replace, vec![], retired);
    assert_eq!(lane.close(), 0);
}
