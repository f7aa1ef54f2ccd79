//! VLANs in a lane: arrivals, exits, the path into Linux, and what has no room for a tag.

use fastlane_core::{Idle, KernelPath, Lane, LaneConfig, Packet, Partial, Pool, Port, Verdict};
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, PortCounter};
use fastlane_testing::lists::{Frames, lists};

use super::*;

/// Port numbers of the lane: two VLANs, and the port that carries them.
const N3: PortId = PortId(0);
const N6: PortId = PortId(1);
const WIRE: PortId = PortId(2);

/// Lane with VLANs 100 and 200 of a port, whose frames are lists.
struct Trunk<A: fastlane_core::App> {
    lane: Lane<A>,
    counters: Counters,
    arrivals: Frames,
    sent: Frames,
    to_linux: Frames,
}

impl<A: fastlane_core::App> Trunk<A> {
    fn new(app: A, headroom: usize) -> Self {
        let counters = Counters::create(1, 3).unwrap();
        let [arrivals, sent, to_linux] = std::array::from_fn(|_| Frames::default());
        let port = |number: PortId, queues, kernel| Port {
            queues,
            kernel,
            filter: None,
            counters: counters.port(0, number.0.into()),
        };
        let nothing = Frames::default();
        let kernel = KernelPath { queue: lists(WIRE, &nothing, &to_linux), receives: false };
        let wire = port(WIRE, vec![lists(WIRE, &arrivals, &sent)], Some(kernel));
        let ports = vec![port(N3, vec![], None), port(N6, vec![], None), wire];
        let memory = SharedMemory::create("vlan-test", 64 * 2048).unwrap();
        let pool = Pool::new(memory, 2048, headroom).unwrap();
        let vlan =
            |port, id, shares_kernel_path| VlanPort { port, carrier: WIRE, id, shares_kernel_path };
        let vlans = Vlans::new(&[vlan(N3, 100, true), vlan(N6, 200, false)]);
        let config = LaneConfig::new(pool, ports, counters.lane(0));
        let config = LaneConfig { idle: Idle::Busy, ..config };
        let config = LaneConfig { logical_ports: Some(Box::new(vlans)), ..config };
        Self { lane: Lane::new(app, config), counters, arrivals, sent, to_linux }
    }

    fn count(&self, port: PortId, counter: PortCounter) -> u64 {
        self.counters.port(0, port.0.into()).load(counter)
    }
}

/// Returns a frame with these tags and a number behind its Ethernet header.
fn frame(tags: &[[u8; 4]], number: u8) -> Vec<u8> {
    let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    [&addresses[..], &tags.concat(), &[0x08, 0x00, number], &[number; 60]].concat()
}

const fn tag(control: u16) -> [u8; 4] {
    let [high, low] = control.to_be_bytes();
    [0x81, 0x00, high, low]
}

/// Untagged frames and those of other VLANs, which are the carrier's.
fn others() -> Vec<Vec<u8>> {
    let service = [0x88, 0xa8, 0, 100];
    let cut = frame(&[tag(100)], 9)[..17].to_vec();
    vec![frame(&[], 1), frame(&[tag(0)], 2), frame(&[tag(99)], 3), frame(&[service], 4), cut]
}

#[test]
fn frames_of_a_vlan_arrive_at_its_port_without_the_tag() {
    let mut seen = Vec::new();
    let app = |packet: &mut Packet| {
        seen.push((packet.port(), packet.bytes().to_vec()));
        Verdict::Drop
    };
    let mut trunk = Trunk::new(app, 64);
    let [first, .., cut] = &others()[..] else { panic!("five") };
    trunk.arrivals.extend(&[frame(&[tag(100)], 11), first.clone(), frame(&[tag(200)], 21)]);
    // Priority and drop eligibility do not matter; behind the tag may be another one.
    trunk.arrivals.extend(&[frame(&[tag(0xf064)], 12), cut.clone()]);
    trunk.arrivals.extend(&others()[1..4]);
    trunk.arrivals.extend(&[frame(&[tag(200), tag(100)], 22)]);
    assert_eq!(trunk.lane.turn(), 9);
    assert_eq!(trunk.count(N3, PortCounter::ReceivedPackets), 2);
    assert_eq!(trunk.count(N3, PortCounter::ReceivedBytes), 2 * 75);
    assert_eq!(trunk.count(N6, PortCounter::ReceivedPackets), 2);
    assert_eq!(trunk.count(WIRE, PortCounter::ReceivedPackets), 5, "without those of its VLANs");
    assert_eq!(trunk.lane.close(), 0);
    drop(trunk);
    let of = |port: PortId| -> Vec<Vec<u8>> {
        let seen = seen.iter().filter(|(it, _)| *it == port);
        seen.map(|(_, frame)| frame.clone()).collect()
    };
    assert_eq!(of(N3), [frame(&[], 11), frame(&[], 12)]);
    assert_eq!(of(N6), [frame(&[], 21), frame(&[tag(100)], 22)]);
    assert_eq!(of(WIRE), [&others()[..1], &others()[4..], &others()[1..4]].concat());
}

#[test]
fn packets_leave_with_the_tag_of_their_exit() {
    let app = |packet: &mut Packet| match packet.port() {
        N3 => Verdict::Forward(N6),
        N6 => Verdict::Reflect,
        _ => Verdict::Forward(N3),
    };
    let mut trunk = Trunk::new(app, 64);
    trunk.arrivals.extend(&[frame(&[tag(0x2064)], 1), frame(&[], 2), frame(&[tag(200)], 3)]);
    trunk.lane.turn();
    let mut sent = trunk.sent.take();
    sent.sort_by_key(|frame| frame[18]);
    let expected = [frame(&[tag(200)], 1), frame(&[tag(100)], 2), frame(&[tag(200)], 3)];
    assert_eq!(sent, expected, "the priority of the arrival is not kept");
    let sent = |port| {
        (trunk.count(port, PortCounter::SentPackets), trunk.count(port, PortCounter::SentBytes))
    };
    assert_eq!([sent(N3), sent(N6), sent(WIRE)], [(1, 75), (2, 150), (0, 0)]);
    assert_eq!(trunk.count(N6, PortCounter::VerdictReflect), 1);
    assert_eq!(trunk.lane.close(), 0);
}

#[test]
fn linux_gets_the_tag_back_by_the_path_of_the_carrier() {
    let mut trunk = Trunk::new(|_: &mut Packet| Verdict::Kernel, 64);
    trunk.arrivals.extend(&[frame(&[tag(100)], 1), frame(&[], 2), frame(&[tag(200)], 3)]);
    trunk.lane.turn();
    let mut given = trunk.to_linux.take();
    given.sort_by_key(|frame| frame.len());
    assert_eq!(given, [frame(&[], 2), frame(&[tag(100)], 1)]);
    assert_eq!(trunk.count(N3, PortCounter::ToKernelPackets), 1);
    assert_eq!(trunk.count(WIRE, PortCounter::ToKernelPackets), 1);
    // The other VLAN does not share the path, and has none of its own.
    assert_eq!(trunk.count(N6, PortCounter::DropNoKernelPeer), 1);
    assert_eq!(trunk.lane.close(), 0);
}

#[test]
fn a_packet_without_room_for_the_tag_is_dropped_and_counted() {
    let app = |packet: &mut Packet| {
        let is_long = packet.bytes().get(14) == Some(&1);
        assert!(!is_long || packet.prepend(4).is_some());
        Verdict::Forward(N3)
    };
    let mut trunk = Trunk::new(app, 4);
    trunk.arrivals.extend(&[frame(&[], 1), frame(&[], 2), vec![0; 13], frame(&[], 3)]);
    trunk.lane.turn();
    assert_eq!(trunk.sent.take().len(), 2);
    assert_eq!(trunk.count(N3, PortCounter::SentPackets), 2);
    assert_eq!(trunk.count(N3, PortCounter::DropTransmitLength), 2);
    assert_eq!(trunk.lane.close(), 0);
}

#[test]
fn a_partial_checksum_moves_with_the_tag() {
    let mut vlans =
        Vlans::new(&[VlanPort { port: N3, carrier: WIRE, id: 100, shares_kernel_path: true }]);
    let mut pool = Pool::new(SharedMemory::create("vlan-test", 2048).unwrap(), 2048, 64).unwrap();
    let mut packets = [pool.alloc_packet(79, WIRE).unwrap()];
    let packet = &mut packets[0];
    packet.bytes_mut().copy_from_slice(&frame(&[tag(100)], 1)[..]);
    packet.set_partial_checksum(Some(Partial { start: 38, offset: 6 }));
    assert!(vlans.decapsulate(2, &mut packets));
    assert_eq!(packets[0].partial_checksum(), Some(Partial { start: 34, offset: 6 }));
    assert_eq!(vlans.encapsulate(0, &mut packets), 1);
    assert_eq!(packets[0].partial_checksum(), Some(Partial { start: 38, offset: 6 }));
    pool.release(&mut packets[0]);
}
