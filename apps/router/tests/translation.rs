//! Tests of flows without Linux: translation, and what is left to Linux.

mod kernel_tier;
mod support;

use std::net::IpAddr;

use fastlane::mirror::conntrack::{Connection, ConnectionTuple, Status};
use fastlane::mirror::flows::{
    FLOW_WORDS, FlowKey, FlowRecord, FlowState, FlowStatistics, FlowStatus, PinsPath, TierTotals,
};
use fastlane::mirror::{FallbackReason, NextHop, RouteLookup};
use fastlane::{App, Packet, Partial, Turn};
use fastlane_table::{EntryId, HashReader, HashWriter, RecordReader, RecordWriter, Spec, State};
use fastlane_testing::sleeping_lane;
use fastlane_wire::Layers;
use fastlane_wire::checksum::{Sum, checksum, complete_partial, make_partial, udp};
use proptest::prelude::*;
use router::flows::LaneFlows;
use router::{Outcome, Router};
use support::{EXIT, LINKS, NEXT, Results, STATION, TestRoutes, name, out_of, route};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ACK: u8 = 0x10;

/// Ends of a connection before and after translation.
#[derive(Clone, Copy, Debug)]
struct Translation {
    protocol: u8,
    /// Source and destination, as they arrive and as they leave.
    arrives: [(IpAddr, u16); 2],
    leaves: [(IpAddr, u16); 2],
}

impl Translation {
    fn new(protocol: u8, arrives: [&str; 2], leaves: [&str; 2]) -> Self {
        let ends = |texts: [&str; 2]| {
            texts.map(|text| {
                let end: std::net::SocketAddr = text.parse().unwrap();
                (end.ip(), end.port())
            })
        };
        Self { protocol, arrives: ends(arrives), leaves: ends(leaves) }
    }

    /// Returns the connection that Linux tracks for it.
    fn connection(&self) -> Connection {
        let tuple = |[from, to]: [(IpAddr, u16); 2]| ConnectionTuple {
            source: from.0,
            destination: to.0,
            protocol: self.protocol,
            ports: [from.1, to.1],
        };
        let [from, to] = self.leaves;
        Connection {
            id: 7,
            original: tuple(self.arrives),
            reply: tuple([to, from]),
            zones: [0, 0],
            status: Status(Status::CONFIRMED | Status::SEEN_REPLY | Status::ASSURED),
            mark: 1,
            timeout: Some(100),
            is_refreshed: false,
            tcp: None,
            helper: String::new(),
            has_master: false,
            adjusts_sequence: false,
            counters: [None; 2],
        }
    }

    fn original(&self, shape: &Shape) -> Vec<u8> {
        frame(self.protocol, self.arrives, shape)
    }

    fn reply(&self, shape: &Shape) -> Vec<u8> {
        let [from, to] = self.leaves;
        frame(self.protocol, [to, from], shape)
    }
}

/// Shape of a packet.
#[derive(Clone, Debug)]
struct Shape {
    time_to_live: u8,
    control: u8,
    payload: Vec<u8>,
    /// False for UDP without a checksum.
    has_checksum: bool,
}

impl Default for Shape {
    fn default() -> Self {
        let payload = (0..40).collect();
        Self { time_to_live: 64, control: ACK, payload, has_checksum: true }
    }
}

/// Builds a frame to the router with all checksums.
fn frame(protocol: u8, ends: [(IpAddr, u16); 2], shape: &Shape) -> Vec<u8> {
    let [(source, from), (destination, to)] = ends;
    let mut segment = [from.to_be_bytes(), to.to_be_bytes()].concat();
    let field = if protocol == TCP {
        segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 5 << 4, shape.control, 1, 0, 0, 0, 0, 0]);
        16
    } else {
        segment.extend((8 + shape.payload.len() as u16).to_be_bytes());
        segment.extend([0, 0]);
        6
    };
    segment.extend(&shape.payload);
    let mut ethernet = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    let (pseudo, header) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let length = 20 + segment.len() as u16;
            let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0, 0, shape.time_to_live, protocol, 0, 0];
            ip[2..4].copy_from_slice(&length.to_be_bytes());
            ip.extend([source.octets(), destination.octets()].concat());
            let sum = checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            ethernet.extend([8, 0]);
            let (from, to) = (source.octets(), destination.octets());
            (Sum::pseudo_ipv4(from, to, protocol, segment.len() as u16), ip)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, protocol, shape.time_to_live];
            ip[4..6].copy_from_slice(&(segment.len() as u16).to_be_bytes());
            ip.extend([source.octets(), destination.octets()].concat());
            ethernet.extend([0x86, 0xdd]);
            let (from, to) = (source.octets(), destination.octets());
            (Sum::pseudo_ipv6(&from, &to, protocol, segment.len() as u32), ip)
        }
        both => panic!("{both:?}: of two families"),
    };
    if shape.has_checksum {
        let sum = pseudo.add_bytes(&segment).checksum();
        let sum = if protocol == UDP { udp(sum) } else { sum };
        segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [ethernet, header, segment].concat()
}

/// Returns a frame as it leaves: built anew with the ends after translation.
fn expected(protocol: u8, ends: [(IpAddr, u16); 2], shape: &Shape) -> Vec<u8> {
    let shape = Shape { time_to_live: shape.time_to_live - 1, ..shape.clone() };
    let mut frame = frame(protocol, ends, &shape);
    frame[..12].copy_from_slice(&[NEXT, EXIT].concat());
    frame
}

/// Tables of flows as the slow path writes them.
struct Tables {
    writer: HashWriter<FlowKey, FlowRecord>,
    status: RecordWriter<FlowStatus>,
    reader: HashReader<FlowKey, FlowRecord>,
    state: State<FLOW_WORDS>,
    lane: LaneFlows,
    /// Status that was published last.
    published: FlowStatus,
}

impl Tables {
    fn new() -> Self {
        let flows = Spec::hash::<FlowKey, FlowRecord>("flows", 16).create().unwrap();
        let state = Spec::state::<FLOW_WORDS>("flows", 16, 1).create().unwrap();
        let status = Spec::record::<FlowStatus>("offload").create().unwrap();
        let readers = sleeping_lane();
        let state = State::attach(&state).unwrap();
        let reader = HashReader::attach(&flows).unwrap();
        let status_reader = RecordReader::attach(&status).unwrap();
        let lane = LaneFlows::new(reader.clone(), state.lane(0), status_reader, vec![0, 0]);
        let published = status_of(0, 1);
        let mut tables = Self {
            writer: HashWriter::attach(&flows, &readers).unwrap(),
            status: RecordWriter::attach(&status, &readers).unwrap(),
            reader,
            state,
            lane,
            published,
        };
        tables.set_status(1, 0);
        tables
    }

    /// Publishes a status whose heartbeat is `age` seconds old, with a grace time of 5 seconds.
    fn set_status(&mut self, is_active: u64, age: u64) {
        self.published = status_of(age, is_active);
        self.status.set(&self.published).unwrap();
    }

    fn add(&mut self, connection: &Connection) {
        for (key, record) in FlowKey::of(connection).into_iter().zip(FlowRecord::of(connection)) {
            self.writer.insert(&key, &record).unwrap();
        }
    }

    /// Returns packets and bytes of a direction, and true if it is closing.
    fn totals(&self, key: &FlowKey) -> ([u64; 2], bool) {
        let (entry, _): (EntryId, FlowRecord) = self.reader.copy(key).unwrap();
        let lane = self.state.lane(0);
        let TierTotals { packets, octets, is_closing, .. } =
            FlowState::new(lane.at(entry)).totals();
        ([packets, octets], is_closing)
    }

    fn run(&self, routes: TestRoutes, frames: &[Vec<u8>]) -> Results {
        let lane = self.lane.clone();
        route(routes, frames, |router: Router<TestRoutes>| router.with_flows(lane))
    }

    /// Returns the outcome of one frame. Checks that Linux gets its frames unchanged.
    fn outcome(&self, routes: TestRoutes, frame: &[u8]) -> String {
        let results = self.run(routes, &[frame.to_vec()]);
        let [cause] = &results.causes.keys().collect::<Vec<_>>()[..] else { panic!("{results:?}") };
        if cause.starts_with("linux_") {
            assert_eq!(results.linux, [frame], "Linux gets it as it came");
        }
        (*cause).clone()
    }
}

/// Returns a status whose heartbeat is `age` seconds old, with a grace time of 5 seconds.
fn status_of(age: u64, is_active: u64) -> FlowStatus {
    let heartbeat = fastlane::now() - age * 1_000_000_000;
    let (grace, statistics) = (5_000_000_000, FlowStatistics::default());
    let (mark, mask, one_way, pins) = (1, 1, 0, PinsPath::default());
    FlowStatus { heartbeat, grace, is_active, mark, mask, one_way, rules: 0, statistics, pins }
}

/// Returns routes by which packets to `to` leave and those of `from` arrive.
fn routes(from: IpAddr, to: IpAddr) -> TestRoutes {
    let mut routes = TestRoutes::new();
    routes.set(&from.to_string(), out_of(0, 1500));
    routes.set(&to.to_string(), out_of(1, 1500));
    routes
}

fn masquerade(protocol: u8) -> Translation {
    Translation::new(
        protocol,
        ["10.0.0.1:4000", "192.0.2.1:80"],
        ["198.51.100.1:5000", "192.0.2.1:80"],
    )
}

fn translations() -> Vec<Translation> {
    let mut all = Vec::new();
    for protocol in [TCP, UDP] {
        let of = |arrives, leaves| Translation::new(protocol, arrives, leaves);
        all.push(masquerade(protocol));
        // A destination, both ends, neither; and IPv6.
        all.push(of(["10.0.0.1:4000", "192.0.2.1:80"], ["10.0.0.1:4000", "172.16.0.9:8080"]));
        all.push(of(["10.0.0.1:4000", "192.0.2.1:80"], ["198.51.100.1:5000", "172.16.0.9:8080"]));
        all.push(of(["10.0.0.1:4000", "192.0.2.1:80"], ["10.0.0.1:4000", "192.0.2.1:80"]));
        all.push(of(["[fd00::1]:4000", "[2001:db8::1]:80"], ["[2001:db8::ff]:9", "[fd01::2]:81"]));
        all.push(of(
            ["[fd00::1]:4000", "[2001:db8::1]:80"],
            ["[fd00::1]:4000", "[2001:db8::1]:80"],
        ));
    }
    all
}

#[test]
fn both_directions_of_each_translation_leave_as_if_built_anew() {
    for it in translations() {
        let mut tables = Tables::new();
        tables.add(&it.connection());
        let shape = Shape::default();
        let [arrives, leaves] = [it.arrives, it.leaves];
        let there = tables.run(routes(arrives[0].0, leaves[1].0), &[it.original(&shape)]);
        assert_eq!(there.sent[1], [expected(it.protocol, leaves, &shape)], "{it:?}");
        assert_eq!(there.routes[&41][0], 1, "the packet is counted by its route");
        let back = tables.run(routes(leaves[1].0, arrives[0].0), &[it.reply(&shape)]);
        let reverse = [arrives[1], arrives[0]];
        assert_eq!(back.sent[1], [expected(it.protocol, reverse, &shape)], "{it:?}");
        let length = it.original(&shape).len() as u64;
        for key in FlowKey::of(&it.connection()) {
            assert_eq!(tables.totals(&key), ([1, length], false));
        }
    }
}

#[test]
fn udp_without_a_checksum_stays_without_and_zero_becomes_its_complement() {
    let it = masquerade(UDP);
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let known = || routes(it.arrives[0].0, it.leaves[1].0);
    let none = Shape { has_checksum: false, ..Shape::default() };
    let results = tables.run(known(), &[it.original(&none)]);
    assert_eq!(results.sent[1][0][40..42], [0, 0]);
    // A payload for which the sum after translation is 0, which stands for none.
    let sum = |word: u16| {
        let payload = word.to_be_bytes().to_vec();
        let shape = Shape { payload, ..Shape::default() };
        let frame = frame(UDP, it.leaves, &shape);
        (u16::from_be_bytes([frame[40], frame[41]]), shape)
    };
    let (_, shape) = (0..=u16::MAX).map(sum).find(|(sum, _)| *sum == 0xffff).unwrap();
    let results = tables.run(known(), &[it.original(&shape)]);
    assert_eq!(results.sent[1], [expected(UDP, it.leaves, &shape)]);
    assert_eq!(results.sent[1][0][40..42], [0xff, 0xff]);
}

/// Router whose packets arrive as from a sender on this machine: their transport checksum is only
/// that of the pseudo header, and the device of the exit adds the rest.
struct PartialChecksums(Router<TestRoutes>);

impl App for PartialChecksums {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            let layers = Layers::parse(packet.bytes()).unwrap();
            let made = make_partial(packet.bytes_mut(), &layers).unwrap();
            let partial = Partial { start: made.start, offset: made.offset };
            packet.set_partial_checksum(Some(partial));
        }
        self.0.process(packets, turn);
        for packet in packets {
            let partial = packet.partial_checksum().expect("it is still partial");
            complete_partial(packet.bytes_mut(), partial.start, partial.offset).unwrap();
            packet.set_partial_checksum(None);
        }
    }
}

#[test]
fn a_partial_checksum_stays_partial_and_is_right_when_completed() {
    for it in translations() {
        let mut tables = Tables::new();
        tables.add(&it.connection());
        let (shape, lane) = (Shape::default(), tables.lane.clone());
        let known = routes(it.arrives[0].0, it.leaves[1].0);
        let partial = |router: Router<TestRoutes>| PartialChecksums(router.with_flows(lane));
        let results = route(known, &[it.original(&shape)], partial);
        assert_eq!(results.sent[1], [expected(it.protocol, it.leaves, &shape)], "{it:?}");
    }
}

/// Router whose packets arrive as from a tunnel on this machine: the checksum of the packet inside
/// is partial, and that around it complete.
struct PartialInside(Router<TestRoutes>);

impl App for PartialInside {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            packet.set_partial_checksum(Some(Partial { start: 14 + 20 + 8 + 20, offset: 6 }));
        }
        self.0.process(packets, turn);
        packets.iter_mut().for_each(|packet| packet.set_partial_checksum(None));
    }
}

#[test]
fn a_complete_checksum_around_a_partial_one_stays_complete() {
    let (it, shape) = (masquerade(UDP), Shape::default());
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let lane = tables.lane.clone();
    let partial = |router: Router<TestRoutes>| PartialInside(router.with_flows(lane));
    let results = route(routes(it.arrives[0].0, it.leaves[1].0), &[it.original(&shape)], partial);
    assert_eq!(results.sent[1], [expected(UDP, it.leaves, &shape)]);
}

#[test]
fn a_flow_whose_route_has_several_exits_is_linuxs() {
    let (it, frame) = (masquerade(UDP), masquerade(UDP).original(&Shape::default()));
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let known = |is_divided| {
        let mut routes = routes(it.arrives[0].0, it.leaves[1].0);
        let RouteLookup::Forward(hop) = out_of(1, 1500) else { unreachable!() };
        let lookup = RouteLookup::Forward(NextHop { is_divided, ..hop });
        routes.set(&it.leaves[1].0.to_string(), lookup);
        routes
    };
    assert_eq!(tables.outcome(known(true), &frame), name(Outcome::FlowExit));
    // Nobody knows by which of them its packets left, so the rules judge it once one is left.
    assert_eq!(tables.outcome(known(false), &frame), name(Outcome::FlowExit));
    let mut tables = Tables::new();
    tables.add(&it.connection());
    assert_eq!(tables.outcome(known(false), &frame), "forwarded");
}

#[test]
fn what_begins_or_ends_tcp_is_linuxs_and_so_is_what_follows_the_end() {
    let [fin, syn, rst, psh] = [1, 2, 4, 8];
    let it = masquerade(TCP);
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let known = || routes(it.arrives[0].0, it.leaves[1].0);
    let control = |control| it.original(&Shape { control, ..Shape::default() });
    for open in [syn, syn | ACK, 0, psh] {
        assert_eq!(tables.outcome(known(), &control(open)), name(Outcome::TcpOpen), "{open}");
    }
    assert_eq!(tables.outcome(known(), &control(ACK | psh)), "forwarded");
    for end in [fin | ACK, rst, rst | ACK] {
        let mut tables = Tables::new();
        tables.add(&it.connection());
        assert_eq!(tables.outcome(known(), &control(end)), name(Outcome::TcpClose));
        assert_eq!(tables.outcome(known(), &control(ACK)), name(Outcome::FlowClosing));
        // The other direction goes on until the slow path removes both.
        let back = routes(it.leaves[1].0, it.arrives[0].0);
        assert_eq!(tables.outcome(back, &it.reply(&Shape::default())), "forwarded");
        assert!(tables.totals(&FlowKey::of(&it.connection())[0]).1);
    }
}

#[test]
fn without_a_flow_or_a_slow_path_all_is_linuxs() {
    let it = masquerade(UDP);
    let mut tables = Tables::new();
    let known = || routes(it.arrives[0].0, it.leaves[1].0);
    let frame = it.original(&Shape::default());
    assert_eq!(tables.outcome(known(), &frame), name(Outcome::NoFlow));
    let tcp = |control| masquerade(TCP).original(&Shape { control, ..Shape::default() });
    for (control, outcome) in [
        (2, Outcome::TcpOpen),       // SYN
        (2 | ACK, Outcome::TcpOpen), // and the answer
        (2 | 1, Outcome::NoFlow),    // with FIN
        (ACK, Outcome::NoFlow),
    ] {
        assert_eq!(tables.outcome(known(), &tcp(control)), name(outcome), "{control}");
    }
    tables.add(&it.connection());
    assert_eq!(tables.outcome(known(), &frame), "forwarded");
    for (is_active, age, outcome) in [
        (0, 0, name(Outcome::FlowsPaused)),
        (1, 6, name(Outcome::FlowsPaused)),
        (1, 4, "forwarded".to_owned()),
    ] {
        tables.set_status(is_active, age);
        assert_eq!(tables.outcome(known(), &frame), outcome);
    }
    tables.set_status(1, 0);
    // Another protocol, a fragment, too short, too long, and the last hop.
    let mut other = frame.clone();
    other[23] = 1;
    let sum = |frame: &mut Vec<u8>| {
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    sum(&mut other);
    assert_eq!(tables.outcome(known(), &other), name(Outcome::FlowProtocol));
    let mut fragment = frame.clone();
    fragment[20] = 0x20;
    sum(&mut fragment);
    assert_eq!(tables.outcome(known(), &fragment), name(Outcome::FlowNoPorts));
    let mut longer = frame.clone();
    longer[38] = 0xff; // the length of UDP
    assert_eq!(tables.outcome(known(), &longer), name(Outcome::Malformed));
    let last = it.original(&Shape { time_to_live: 1, ..Shape::default() });
    assert_eq!(tables.outcome(known(), &last), name(Outcome::TimeToLive));
    let mut small = known();
    small.set("192.0.2.1", out_of(1, 60));
    assert_eq!(tables.outcome(small, &frame), name(Outcome::TooLong));
    let mut closed = known();
    closed.entrance.forwards4 = false;
    assert_eq!(tables.outcome(closed, &frame), name(Outcome::ForwardingOff));
    for reason in FallbackReason::ALL {
        let mut unroutable = known();
        unroutable.set("192.0.2.1", RouteLookup::Fallback(reason));
        assert_eq!(tables.outcome(unroutable, &frame), format!("linux_{}", reason.name()));
    }
}

#[test]
fn the_route_back_must_use_the_entrance() {
    let it = masquerade(UDP);
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let frame = it.original(&Shape::default());
    let with = |back| {
        let mut known = routes(it.arrives[0].0, it.leaves[1].0);
        known.set("10.0.0.1", back);
        tables.outcome(known, &frame)
    };
    assert_eq!(with(out_of(1, 1500)), name(Outcome::FlowInterface));
    assert_eq!(with(RouteLookup::Fallback(FallbackReason::NoRoute)), "linux_no_route");
    assert_eq!(with(RouteLookup::Fallback(FallbackReason::Local)), name(Outcome::OwnSource));
    assert_eq!(with(out_of(0, 1500)), "forwarded");
}

#[test]
fn replies_that_linux_must_send_do_not_concern_the_other_direction() {
    let it = masquerade(UDP);
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let frame = it.original(&Shape::default());
    let with = |link, reason| {
        let mut known = routes(it.arrives[0].0, it.leaves[1].0);
        known.set_return("10.0.0.1", link, reason);
        tables.outcome(known, &frame)
    };
    for reason in [FallbackReason::TrafficControl, FallbackReason::NoNeighbour] {
        assert_eq!(with(LINKS[0], reason), "forwarded");
        assert_eq!(with(LINKS[1], reason), name(Outcome::FlowInterface));
    }
    assert_eq!(with(LINKS[0], FallbackReason::LinkDown), "linux_link_down");
    assert_eq!(with(LINKS[0], FallbackReason::NotOurPort), "linux_not_our_port");
}

#[test]
fn without_prefetching_the_same_packets_leave() {
    let mut tables = Tables::new();
    let (mut frames, mut known) = (Vec::new(), TestRoutes::new());
    for it in translations().into_iter().filter(|it| it.protocol == UDP).take(2) {
        // All have one source, and a flow each.
        let arrives = [it.arrives[0], (it.arrives[1].0, 81 + frames.len() as u16)];
        let it = Translation { arrives, ..it };
        tables.add(&it.connection());
        frames.push(it.original(&Shape::default()));
        frames.push(it.reply(&Shape::default())); // no route by this entrance
        known.set(&it.arrives[0].0.to_string(), out_of(0, 1500));
        known.set(&it.leaves[1].0.to_string(), out_of(1, 1500));
    }
    frames.push(frame(UDP, masquerade(TCP).arrives, &Shape::default())); // no flow
    let by = |prefetches| {
        let lane = tables.lane.clone().with_prefetch(prefetches);
        route(known.clone(), &frames, |router: Router<TestRoutes>| router.with_flows(lane))
    };
    let [with, without] = [by(true), by(false)];
    assert_eq!(with.sent[1].len(), 2);
    assert_eq!((without.sent, without.linux), (with.sent, with.linux));
    assert_eq!(without.causes, with.causes);
}

#[test]
fn a_hop_is_remembered_for_its_generation_and_its_entrance() {
    let it = masquerade(UDP);
    let mut tables = Tables::new();
    tables.add(&it.connection());
    let frame = it.original(&Shape::default());
    let mut known = routes(it.arrives[0].0, it.leaves[1].0);
    let mut lost = TestRoutes::new(); // without any route
    (known.generation, lost.generation) = (Some(4), Some(4));
    assert_eq!(tables.outcome(known.clone(), &frame), "forwarded");
    // It is not looked up again...
    assert_eq!(tables.outcome(lost.clone(), &frame), "forwarded");
    // ...but for another entrance it does not hold,
    let mut elsewhere = lost.clone();
    elsewhere.entrance.link = 99;
    assert_eq!(tables.outcome(elsewhere, &frame), name(Outcome::FlowInterface));
    // nor in another generation, nor while the routes change.
    for generation in [Some(6), None] {
        let changed = TestRoutes { generation, ..lost.clone() };
        assert_eq!(tables.outcome(changed, &frame), "linux_no_route");
    }
    // What was looked up while the routes changed is not remembered.
    known.generation = None;
    assert_eq!(tables.outcome(known, &frame), "forwarded");
    let zero = TestRoutes { generation: Some(0), ..lost };
    assert_eq!(tables.outcome(zero, &frame), "linux_no_route");
}

fn end(is_ipv6: bool) -> impl Strategy<Value = (IpAddr, u16)> {
    // Unicast addresses that may be forwarded.
    let address = any::<[u8; 16]>().prop_map(move |mut octets| {
        octets[0] = if is_ipv6 { 0x20 } else { octets[0] % 100 + 1 };
        match is_ipv6 {
            true => IpAddr::from(octets),
            false => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        }
    });
    (address, any::<u16>())
}

fn translation() -> impl Strategy<Value = Translation> {
    (any::<bool>(), any::<bool>()).prop_flat_map(|(is_ipv6, is_tcp)| {
        let ends = move || [end(is_ipv6), end(is_ipv6)];
        let protocol = if is_tcp { TCP } else { UDP };
        (ends(), ends()).prop_map(move |(arrives, leaves)| Translation {
            protocol,
            arrives,
            leaves,
        })
    })
}

proptest! {
    /// Compares the incremental checksums with full computations, and both directions.
    #[test]
    fn any_translation_leaves_as_if_built_anew_and_its_reply_comes_back(
        it in translation(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        time_to_live in 2_u8..,
    ) {
        let shape = Shape { payload, time_to_live, ..Shape::default() };
        let mut tables = Tables::new();
        tables.add(&it.connection());
        let [arrives, leaves] = [it.arrives, it.leaves];
        let mut known = routes(arrives[0].0, leaves[1].0);
        prop_assume!(arrives[0].0 != leaves[1].0);
        known.entrance.mac = STATION;
        let there = tables.run(known, &[it.original(&shape)]);
        let mut built = expected(it.protocol, leaves, &shape);
        built.resize(there.sent[1][0].len(), 0); // padding
        prop_assert_eq!(&there.sent[1][0], &built);
        let back = tables.run(routes(leaves[1].0, arrives[0].0), &[it.reply(&shape)]);
        let mut built = expected(it.protocol, [arrives[1], arrives[0]], &shape);
        built.resize(back.sent[1][0].len(), 0);
        prop_assert_eq!(&back.sent[1][0], &built);
    }

    /// Any bytes after the Ethernet header have an outcome, and what Linux gets is unchanged.
    #[test]
    fn any_packet_has_an_outcome(
        changes in prop::collection::vec((14_usize..80, any::<u8>()), 0..12),
        it in translation(),
        length in 14_usize..120,
    ) {
        let mut tables = Tables::new();
        tables.add(&it.connection());
        let mut frame = it.original(&Shape::default());
        for (at, byte) in changes {
            if let Some(octet) = frame.get_mut(at) {
                *octet = byte;
            }
        }
        frame.truncate(length);
        let results = tables.run(routes(it.arrives[0].0, it.leaves[1].0), &[frame.clone()]);
        prop_assert_eq!(results.causes.values().sum::<u64>(), 1);
        if let [passed] = &results.linux[..] {
            prop_assert_eq!(passed, &frame);
        }
    }
}
