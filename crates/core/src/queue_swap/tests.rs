use std::sync::Arc;

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
            swap.request(port, queues(port, count), std::mem::take(&mut retired));
            retired = result(&mut lane, &swap);
            retired.iter_mut().for_each(DetachedQueue::disconnect);
            let before: Vec<u64> = (0..3).map(received).collect();
            lane.turn();
            for (other, before) in before.into_iter().enumerate() {
                let expected = if other == port { count as u64 } else { 2 };
                assert_eq!(received(other) - before, expected, "port {other}");
            }
        }
        swap.request(port, Vec::new(), retired);
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
        swap.request(1, queues(1, 2), Vec::new());
        for _ in 0..turns * 64 {
            lane.turn();
        }
        assert_eq!(lane.close(), 0, "after {turns} looks");
    }
}
