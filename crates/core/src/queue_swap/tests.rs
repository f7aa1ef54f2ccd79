use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};

use super::*;
use crate::{Burst, Frame, Idle, Lane, LaneConfig, Packet, Port, PortId, Sent, Verdict};

/// Queue that holds frames of the pool until it is closed, and receives one packet per turn while
/// it is connected.
struct Holder {
    port: PortId,
    held: Vec<Frame>,
    is_connected: bool,
    losses: u64,
}

impl Queue for Holder {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        assert!(self.is_connected, "a lane has only connected queues");
        if self.held.is_empty() {
            self.held.extend(pool.take());
        }
        let packet = pool.alloc_packet(60, self.port).unwrap();
        burst.push(packet).unwrap();
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        packets.iter_mut().for_each(|packet| pool.release(packet));
        Sent { taken: packets.len(), packets: packets.len(), bytes: 0 }
    }

    fn statistics(&self) -> Statistics {
        Statistics { device_full: self.losses, ..Statistics::default() }
    }

    fn disconnect(&mut self) {
        self.is_connected = false;
        self.losses += 10; // what nobody has received
    }

    fn close(&mut self, pool: &mut Pool) {
        self.held.drain(..).for_each(|frame| pool.give(frame));
    }
}

fn queues(port: usize, count: usize) -> Vec<Box<dyn Queue>> {
    let queue = || -> Box<dyn Queue> {
        Box::new(Holder {
            port: PortId(port as u16),
            held: Vec::new(),
            is_connected: true,
            losses: 1,
        })
    };
    (0..count).map(|_| queue()).collect()
}

/// Creates a lane of three ports with two queues each, which drops every packet.
fn lane() -> (Lane<impl FnMut(&mut Packet) -> Verdict>, Counters, Arc<QueueSwap>) {
    let counters = Counters::create(1, 3).unwrap();
    let pool = Pool::new(SharedMemory::create("swap", 256 * 2048).unwrap(), 2048, 192).unwrap();
    let port = |number| Port {
        queues: queues(number, 2),
        kernel: None,
        filter: None,
        counters: counters.port(0, number),
    };
    let config = LaneConfig::new(pool, (0..3).map(port).collect(), counters.lane(0));
    let config = LaneConfig { idle: Idle::Busy, ..config };
    let mut lane = Lane::new(|_: &mut Packet| Verdict::Drop, config);
    let swap = Arc::new(QueueSwap::default());
    lane.swap_queues_by(Arc::clone(&swap));
    (lane, counters, swap)
}

fn result(
    lane: &mut Lane<impl FnMut(&mut Packet) -> Verdict>,
    swap: &QueueSwap,
) -> Vec<DetachedQueue> {
    for _ in 0..1000 {
        lane.turn();
        if let Some(result) = swap.result() {
            assert!(swap.is_free());
            return result.detached;
        }
    }
    panic!("the lane does not answer");
}

#[test]
fn each_port_gets_other_numbers_of_queues_and_keeps_its_counters() {
    for port in 0..3 {
        let (mut lane, counters, swap) = lane();
        let received = |port| counters.port(0, port).load(PortCounter::ReceivedPackets);
        let mut retired = Vec::new();
        for count in [0, 3, 1, 0, 0, 2] {
            let change = QueueChange::Replace;
            swap.request(port, change, queues(port, count), std::mem::take(&mut retired));
            retired = result(&mut lane, &swap);
            retired.iter_mut().for_each(DetachedQueue::disconnect);
            let before: Vec<u64> = (0..3).map(received).collect();
            lane.turn();
            for (other, before) in before.into_iter().enumerate() {
                let expected = if other == port { count as u64 } else { 2 };
                assert_eq!(received(other) - before, expected, "port {other}");
            }
        }
        swap.request(port, QueueChange::Replace, Vec::new(), retired);
        let last = result(&mut lane, &swap);
        assert_eq!(last.len(), 2);
        swap.leave(last);
        assert_eq!(lane.close(), 0, "all frames are back");
        // Eight queues were replaced, with one loss each before and ten at their disconnection.
        assert_eq!(counters.port(0, port).load(PortCounter::DropDeviceFull), 8 * 11);
        let other = counters.port(0, (port + 1) % 3).load(PortCounter::DropDeviceFull);
        assert_eq!(other, 2);
    }
}

#[test]
fn a_lane_that_closes_in_the_middle_of_a_request_loses_no_frame() {
    for turns in 0..4 {
        let (mut lane, _, swap) = lane();
        for _ in 0..10 {
            lane.turn();
        }
        swap.request(1, QueueChange::Replace, queues(1, 2), Vec::new());
        for _ in 0..turns * 64 {
            lane.turn();
        }
        assert_eq!(lane.close(), 0, "after {turns} looks");
    }
}

/// Queue that sends what it receives from `arrivals`, and counts what it sends.
struct Relay {
    port: PortId,
    meter: Meter,
}

impl Queue for Relay {
    fn receive(&mut self, burst: &mut Burst, pool: &mut Pool) {
        let one_less = |count: u64| count.checked_sub(1);
        let arrivals = &self.meter.arrivals;
        if arrivals.try_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            let packet = pool.alloc_packet(60, self.port).unwrap();
            burst.push(packet).unwrap();
        }
    }

    fn transmit(&mut self, packets: &mut [Packet], pool: &mut Pool) -> Sent {
        if self.meter.is_busy.swap(false, Ordering::Relaxed) {
            return Sent::default();
        }
        packets.iter_mut().for_each(|packet| pool.release(packet));
        self.meter.sent.fetch_add(packets.len() as u64, Ordering::Relaxed);
        Sent { taken: packets.len(), packets: packets.len(), bytes: 0 }
    }

    fn arm(&mut self) -> bool {
        let is_polled = self.meter.is_polled.load(Ordering::Relaxed);
        !is_polled && self.meter.arrivals.load(Ordering::Relaxed) > 0
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self, _: &mut Pool) {}
}

/// Number of packets that wait at a relay, and of those that it has sent.
#[derive(Clone, Default)]
struct Meter {
    arrivals: Arc<AtomicU64>,
    sent: Arc<AtomicU64>,
    /// True if it cannot tell that packets wait, as a device without interrupts.
    is_polled: Arc<AtomicBool>,
    /// True if it takes no packet the next time.
    is_busy: Arc<AtomicBool>,
}

impl Meter {
    fn relay(&self, port: u16) -> Box<dyn Queue> {
        Box::new(Relay { port: PortId(port), meter: self.clone() })
    }

    fn counts(&self) -> [u64; 2] {
        [&self.arrivals, &self.sent].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Creates a lane that passes what arrives at port 0 to port 1, with one relay each.
fn passing_lane() -> (Lane<impl FnMut(&mut Packet) -> Verdict>, [Meter; 2], Arc<QueueSwap>) {
    let counters = Counters::create(1, 3).unwrap();
    let pool = Pool::new(SharedMemory::create("swap", 256 * 2048).unwrap(), 2048, 192).unwrap();
    let meters = <[Meter; 2]>::default();
    let port = |number: usize| Port {
        queues: meters.get(number).map(|meter| meter.relay(number as u16)).into_iter().collect(),
        kernel: None,
        filter: None,
        counters: counters.port(0, number),
    };
    let config = LaneConfig::new(pool, (0..3).map(port).collect(), counters.lane(0));
    let config = LaneConfig { idle: Idle::Busy, ..config };
    let mut lane = Lane::new(
        |packet: &mut Packet| match packet.port() {
            PortId(0) => Verdict::Forward(PortId(1)),
            _ => Verdict::Reflect,
        },
        config,
    );
    let swap = Arc::new(QueueSwap::default());
    lane.swap_queues_by(Arc::clone(&swap));
    (lane, meters, swap)
}

#[test]
fn queues_that_have_joined_send_and_the_others_go_on_receiving_until_they_are_empty() {
    let (mut lane, [source, before], swap) = passing_lane();
    let joined = Meter::default();
    swap.request(1, QueueChange::Join, vec![joined.relay(1), joined.relay(1)], vec![]);
    assert!(result(&mut lane, &swap).is_empty(), "nothing is given up");
    source.arrivals.store(10, Ordering::Relaxed);
    before.arrivals.store(5000, Ordering::Relaxed);
    swap.request(1, QueueChange::Settle, vec![], vec![]);
    for _ in 0..4900 {
        lane.turn();
        assert!(swap.result().is_none(), "a queue leaves with packets");
    }
    assert_eq!(result(&mut lane, &swap).len(), 1);
    // What arrived by the queue that leaves is reflected by it, all else leaves by the others.
    assert_eq!((before.counts(), joined.counts()), ([0, 5000], [0, 10]));
    source.arrivals.store(7, Ordering::Relaxed);
    joined.arrivals.store(7, Ordering::Relaxed);
    (0..20).for_each(|_| _ = lane.turn());
    assert_eq!((source.counts()[0], joined.counts()), (0, [0, 24]));
    assert_eq!(lane.close(), 0);
}

#[test]
fn a_queue_without_interrupts_leaves_when_it_is_empty_too() {
    let (mut lane, [_, before], swap) = passing_lane();
    before.is_polled.store(true, Ordering::Relaxed);
    swap.request(1, QueueChange::Join, vec![Meter::default().relay(1)], vec![]);
    result(&mut lane, &swap);
    before.arrivals.store(500, Ordering::Relaxed);
    swap.request(1, QueueChange::Settle, vec![], vec![]);
    assert_eq!(result(&mut lane, &swap).len(), 1);
    assert_eq!(before.counts(), [0, 500]);
    assert_eq!(lane.close(), 0);
}

#[test]
fn what_a_leaving_queue_has_not_taken_is_tried_by_itself_again() {
    let (mut lane, [_, before], swap) = passing_lane();
    let joined = Meter::default();
    swap.request(1, QueueChange::Join, vec![joined.relay(1)], vec![]);
    result(&mut lane, &swap);
    before.is_busy.store(true, Ordering::Relaxed);
    before.arrivals.store(10, Ordering::Relaxed);
    (0..20).for_each(|_| _ = lane.turn());
    assert_eq!((before.counts(), joined.counts()), ([0, 10], [0, 0]));
    assert_eq!(lane.close(), 0);
}

#[test]
fn queues_that_have_joined_can_be_withdrawn_and_a_hurry_ends_the_wait() {
    let (mut lane, [source, before], swap) = passing_lane();
    let joined = Meter::default();
    for round in 1..=3 {
        swap.request(1, QueueChange::Join, vec![joined.relay(1)], vec![]);
        result(&mut lane, &swap);
        swap.request(1, QueueChange::Withdraw, vec![], vec![]);
        assert_eq!(result(&mut lane, &swap).len(), 1);
        source.arrivals.store(3, Ordering::Relaxed);
        (0..10).for_each(|_| _ = lane.turn());
        assert_eq!((before.counts(), joined.counts()), ([0, 3 * round], [0, 0]));
    }
    swap.request(1, QueueChange::Join, vec![joined.relay(1)], vec![]);
    result(&mut lane, &swap);
    before.arrivals.store(u64::MAX, Ordering::Relaxed);
    swap.request(1, QueueChange::Settle, vec![], vec![]);
    (0..1000).for_each(|_| _ = lane.turn());
    assert!(swap.result().is_none());
    swap.hurry();
    assert_eq!(result(&mut lane, &swap).len(), 1);
    assert_eq!(lane.close(), 0);
}
