//! Ports in a running lane lose, duplicate and reorder nothing at any speed.

use std::path::Path;

use fastlane_core::{
    App, Idle, Lane, LaneConfig, Packet, Pool, Port, PortId, Queue, Turn, Verdict,
};
use fastlane_local::memory::Memory;
use fastlane_local::pcap::{self, PcapSettings};
use fastlane_table::counters::{Counters, PortCounter};
use fastlane_testing::{Addresses, Spec, Tag};

fn lane<A: App>(app: A, pool: Pool, queue: Box<dyn Queue>, burst: usize) -> (Lane<A>, Counters) {
    let counters = Counters::create(1, 1).unwrap();
    let ports = vec![Port {
        queues: vec![queue],
        kernel: None,
        filter: None,
        counters: counters.port(0, 0),
    }];
    let parts = LaneConfig::new(pool, ports, counters.lane(0));
    let parts = LaneConfig { burst, idle: Idle::Busy, ..parts };
    (Lane::new(app, parts), counters)
}

fn packet(pool: &mut Pool, content: &[u8]) -> Packet {
    let frame = pool.take().unwrap();
    let mut packet = pool.packet(frame, pool.data_offset(), content.len(), PortId(0)).unwrap();
    packet.bytes_mut().copy_from_slice(content);
    packet
}

/// Application that checks that the frames arrive in cyclic order.
struct Circle {
    length: u32,
    seen: u32,
}

impl App for Circle {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let (tag, rest) = Tag::find(packet.bytes()).unwrap();
            assert_eq!(tag.sequence, self.seen % self.length, "the next of the circle");
            assert!(tag.is_intact(rest));
            self.seen += 1;
            packet.set_verdict(Verdict::Reflect);
        }
    }
}

#[test]
fn a_million_frames_go_round_in_memory() {
    const LENGTH: u32 = 77;
    let mut pool = Spec { frames: LENGTH as usize, ..Spec::default() }.pool();
    let mut memory = Memory::new(PortId(0), LENGTH as usize);
    for sequence in 0..LENGTH {
        let frame = Tag { test: 0, sequence }.frame(Addresses::default(), 60);
        let mut packet = packet(&mut pool, &frame);
        assert_eq!(memory.transmit(std::slice::from_mut(&mut packet), &mut pool).taken, 1);
    }
    let circle = Circle { length: LENGTH, seen: 0 };
    let (mut lane, counters) = lane(circle, pool, Box::new(memory), 32);
    while lane.app().seen < 1_000_000 {
        assert!(lane.turn() > 0);
    }
    let seen = u64::from(lane.app().seen);
    assert_eq!(lane.close(), 0);
    assert_eq!(counters.port_total(0, PortCounter::ReceivedPackets), seen);
    assert_eq!(counters.port_total(0, PortCounter::SentPackets), seen);
}

/// Returns the frames of a capture file, received by a lane.
fn frames_of(path: &Path) -> Vec<Vec<u8>> {
    let settings = PcapSettings { read: Some(path.into()), ..PcapSettings::default() };
    let queue = Box::new(pcap::open(&settings, PortId(0)).unwrap());
    let mut frames = Vec::new();
    let collect = |packet: &mut Packet| {
        frames.push(packet.bytes().to_vec());
        Verdict::Drop
    };
    let (mut lane, _) = lane(collect, Spec::default().pool(), queue, 32);
    while lane.turn() > 0 {}
    assert_eq!(lane.close(), 0);
    drop(lane);
    frames
}

#[test]
fn every_frame_of_a_file_is_in_the_file_that_is_written() {
    const FRAMES: u32 = 50_000;
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first.pcapng"), folder.path().join("second.pcapng"));

    let mut pool = Spec::default().pool();
    let settings = PcapSettings { write: Some(first.clone()), ..PcapSettings::default() };
    let mut made = pcap::open(&settings, PortId(0)).unwrap();
    let frame = |sequence| {
        Tag { test: 0, sequence }.frame(Addresses::default(), 60 + sequence as usize % 300)
    };
    for sequence in 0..FRAMES {
        let mut packet = packet(&mut pool, &frame(sequence));
        made.transmit(std::slice::from_mut(&mut packet), &mut pool);
    }
    made.close(&mut pool);

    for burst in [1, 32, 256] {
        let settings =
            PcapSettings { read: Some(first.clone()), write: Some(second.clone()), repeat: 1 };
        let queue = Box::new(pcap::open(&settings, PortId(0)).unwrap());
        let pool = Spec { frames: 64, ..Spec::default() }.pool();
        let (mut lane, counters) = lane(|_: &mut Packet| Verdict::Reflect, pool, queue, burst);
        while lane.turn() > 0 {}
        assert_eq!(lane.close(), 0);
        assert_eq!(counters.port_total(0, PortCounter::SentPackets), u64::from(FRAMES));
        let written = frames_of(&second);
        assert_eq!(written.len(), FRAMES as usize);
        assert!(written.into_iter().zip(0..).all(|(came, number)| came == frame(number)));
    }
}
