//! The classifier of blocks against the filters one by one, in the order of precedence.

use std::net::IpAddr;

use super::super::*;
use super::fixture::{self, RuleFixture};
use super::random::Random;
use super::reference::{Naive, PlainAction};
use crate::session::{
    Destination, Filter, FlowDescription, Pdr, Ports as PortRanges, Prefix, Session, Source,
};

/// Ports at which ranges begin and end.
const PORTS: [u16; 10] = [0, 1, 53, 80, 443, 5000, 5001, 6000, 65534, 65535];
const PROTOCOLS: [u8; 4] = [6, 17, 132, 50];
/// Remote ends that prefixes are made of: neighbours have long prefixes in common.
const REMOTES: [&str; 6] =
    ["192.0.2.1", "192.0.2.2", "192.0.3.1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"];
const USERS: [&str; 2] = ["10.0.0.1", "2001:db8:0:1::5"];

fn one<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.below(all.len() as u64) as usize]
}

fn is_one_in(random: &mut Random, of: u64) -> bool {
    random.below(of) == 0
}

fn ranges(random: &mut Random) -> PortRanges {
    let range = |random: &mut Random| {
        let (first, last) = (one(random, &PORTS), one(random, &PORTS));
        let last = if random.flip() { first } else { last };
        (first.min(last), first.max(last))
    };
    (0..one(random, &[0, 0, 1, 1, 1, 3])).map(|_| range(random)).collect()
}

/// Returns a prefix of a family, of one of its remote ends or of a UE.
fn prefix(random: &mut Random, all: &[&str], is_v6: bool) -> Option<Prefix> {
    let all = all.iter().map(|text| text.parse::<IpAddr>().unwrap());
    let all: Vec<IpAddr> = all.filter(|address| address.is_ipv6() == is_v6).collect();
    let length = match is_v6 {
        true => one(random, &[0, 1, 32, 48, 64, 65, 126, 127, 128]),
        false => one(random, &[0, 1, 16, 23, 24, 30, 31, 32]),
    };
    let prefix = Prefix::new(one(random, &all), length);
    prefix.filter(|_| random.below(3) > 0)
}

fn filter(random: &mut Random) -> Filter {
    let is_v6 = is_one_in(random, 3);
    let (remote_ports, local_ports) = match random.flip() {
        true => (ranges(random), PortRanges::new()),
        false => (ranges(random), ranges(random)),
    };
    let flow = FlowDescription {
        protocol: random.flip().then(|| one(random, &PROTOCOLS)),
        remote: prefix(random, &REMOTES, is_v6),
        remote_ports,
        local: prefix(random, &USERS, is_v6).filter(|_| random.flip()),
        local_ports,
    };
    Filter {
        id: None,
        flow: (!is_one_in(random, 8)).then_some(flow),
        tos: is_one_in(random, 5).then(|| one(random, &[(0x28, 0xFC), (0x2B, 0xFC), (0x10, 0xFF)])),
        spi: is_one_in(random, 12).then(|| 77 + random.below(2) as u32),
        flow_label: is_one_in(random, 12).then(|| 5 + random.below(2) as u32),
    }
}

/// Returns a session whose PDRs differ in their filters and quality of service only.
fn session(random: &mut Random) -> Session {
    let mut session = fixture::typical();
    (session.qers, session.urrs) = (Vec::new(), Vec::new());
    session.fars = vec![
        fixture::far(1, "forward", Destination::Core, None),
        fixture::far(2, "forward", Destination::Access, Some(0x55)),
    ];
    let user = session.pdrs[0].user.filter(|_| random.flip());
    let (pdrs, filters) = one(random, &[(2, 4), (8, 5), (8, 5), (16, 9), (6, 80)]);
    let pdr = |id: u16, random: &mut Random| {
        let source = if random.flip() { Source::Access } else { Source::Core };
        let far = if source == Source::Access { 1 } else { 2 };
        let teid = if is_one_in(random, 5) { 0x2007 } else { 0x1007 };
        Pdr {
            precedence: random.below(4) as u32,
            tunnel: (source == Source::Access).then(|| fixture::tunnel(teid)),
            instance: is_one_in(random, 4).then_some(0),
            user,
            filters: (0..random.below(filters)).map(|_| filter(random)).collect(),
            qfis: if is_one_in(random, 6) { vec![5, 9] } else { Vec::new() },
            ..fixture::pdr(id, source, far)
        }
    };
    session.pdrs = (1..=pdrs).map(|id| pdr(id, random)).collect();
    session
}

/// Returns a port in a range, or beside it.
fn port(random: &mut Random, ranges: &[(u16, u16)]) -> u16 {
    let (first, last) = if ranges.is_empty() { (0, 65535) } else { one(random, ranges) };
    let middle = first + (last - first) / 2;
    let all = [first.wrapping_sub(1), first, middle, last, last.wrapping_add(1)];
    one(random, &all)
}

/// Returns an address of a prefix, or one that differs from them in one bit.
fn address(random: &mut Random, prefix: Option<Prefix>, default: IpAddr) -> u128 {
    let is_v6 = default.is_ipv6();
    let prefix = prefix.filter(|prefix| prefix.address.is_ipv6() == is_v6);
    let (_, bits) = PacketFields::address(prefix.map_or(default, |prefix| prefix.address));
    let width = if is_v6 { 128 } else { 32 };
    let flipped = match prefix.map(|prefix| u64::from(prefix.length)) {
        Some(length) if length < width => length + random.below(width - length),
        _ => width - 1,
    };
    let inside = bits ^ (u128::from(random.flip()) << (127 - flipped));
    match prefix.map(|prefix| u64::from(prefix.length)) {
        Some(length) if length > 0 && is_one_in(random, 5) => inside ^ 1 << (128 - length),
        _ => inside,
    }
}

/// Returns a packet that one of the filters of a session matches, except for a field or two.
fn packet(random: &mut Random, session: &Session) -> PacketFields {
    let index = random.below(session.pdrs.len() as u64) as usize;
    let pdr = &session.pdrs[index];
    let filter = match pdr.filters.len() {
        0 => Filter::default(),
        count => pdr.filters[random.below(count as u64) as usize].clone(),
    };
    let flow = filter.flow.unwrap_or_default();
    let prefix = flow.remote.or(flow.local);
    let is_v6 = prefix.map_or(is_one_in(random, 3), |prefix| prefix.address.is_ipv6());
    let default = |all: &[&str]| {
        let mut all = all.iter().map(|text| text.parse::<IpAddr>().unwrap());
        all.find(|address| address.is_ipv6() == is_v6).unwrap()
    };
    let remote = address(random, flow.remote, default(&REMOTES));
    let local = address(random, flow.local, default(&USERS));
    let (remote_port, local_port) =
        (port(random, &flow.remote_ports), port(random, &flow.local_ports));
    let is_up = pdr.source == Source::Access;
    let order = |remote, local| if is_up { (local, remote) } else { (remote, local) };
    let (source, destination) = order(remote, local);
    let (first, second) = if is_up { (local_port, remote_port) } else { (remote_port, local_port) };
    let other = is_one_in(random, 6);
    let protocol = flow.protocol.filter(|_| !other).unwrap_or(one(random, &PROTOCOLS));
    PacketFields {
        tunnel: pdr.tunnel.map(|tunnel| tunnel.teid),
        instance: random.below(2) as u16,
        qfi: one(random, &[None, Some(5), Some(9), Some(9)]),
        family: if is_v6 { 6 } else { 4 },
        source,
        destination,
        protocol,
        tos: filter.tos.map_or(0, |(value, _)| value) ^ one(random, &[0, 0, 1, 4]),
        ports: match protocol {
            _ if is_one_in(random, 12) => Ports::Unknown,
            50 => Ports::None,
            _ => Ports::Known(first, second),
        },
        spi: (protocol == 50).then(|| 77 + random.below(2) as u32),
        flow_label: if is_v6 { 5 + random.below(2) as u32 } else { 0 },
        length: 100,
    }
}

#[test]
fn the_first_filter_by_precedence_decides_however_many_there_are() {
    let (mut hits, mut short, mut misses, mut unknown, mut long) = (0, 0, 0, 0, 0);
    let sessions = super::sessions() / 2;
    for seed in 0..sessions {
        let mut random = Random::new(seed + (1 << 32));
        let session = session(&mut random);
        let fixture = RuleFixture::of(session.clone());
        long += usize::from(fixture.blocks.len() > 2);
        let mut naive = Naive::new(&session);
        for step in 0..100 {
            let fields = packet(&mut random, &session);
            if !fixture.finds(&fields) {
                continue;
            }
            let decision = fixture.decide(&fields, step);
            let expected = naive.decide(&fields, step);
            let pdr = decision.pdr * u16::from(expected.1 != 0);
            assert_eq!(
                (PlainAction::of(&decision), pdr),
                expected,
                "seed {seed}, step {step}: {fields:?} of {session:#?}"
            );
            hits += usize::from(matches!(expected.0, PlainAction::Forward(..)));
            let classifier = fixture.classifier(&fixture.blocks, step);
            short += usize::from(classifier.decide_by_block(&fields).is_some());
            misses += usize::from(expected.0 == PlainAction::Drop(DropReason::NoRule));
            let is_unknown = expected.0 == PlainAction::Drop(DropReason::FragmentUnknown);
            unknown += usize::from(is_unknown);
        }
    }
    let (sessions, packets) = (sessions as usize, 100 * sessions as usize);
    assert!(short > hits / 2, "{short} of {hits} hits by the short path");
    assert!(hits > packets / 5 && misses > packets / 50, "{hits} hits, {misses} misses");
    assert!(unknown > packets / 200 && long > sessions / 20, "{unknown} unknown, {long} long");
}

/// Returns the number of blocks of a session with this number of PDRs per direction and filters.
fn blocks_of(pairs: u16, filters: u16) -> usize {
    let mut session = fixture::typical();
    let [up, down] = [0, 1].map(|index| session.pdrs[index].clone());
    let port = |number: u16| {
        let ports = vec![(10_000 + number, 10_000 + number)];
        let flow =
            FlowDescription { protocol: Some(17), remote_ports: ports, ..Default::default() };
        Filter { flow: Some(flow), ..Filter::default() }
    };
    session.pdrs.clear();
    for flow in 0..pairs {
        for pdr in [&up, &down] {
            let filters = (flow * filters..(flow + 1) * filters).map(port).collect();
            let precedence = 100 + u32::from(flow);
            session.pdrs.push(Pdr { id: 2 * flow + pdr.id, precedence, filters, ..pdr.clone() });
        }
    }
    RuleFixture::of(session).blocks.len()
}

#[test]
fn sessions_with_many_filters_take_few_blocks() {
    assert_eq!(blocks_of(1, 1), 1);
    assert_eq!(blocks_of(2, 4), 1);
    assert_eq!(blocks_of(4, 4), 2, "8 PDRs of 4 filters: one block per direction");
    assert_eq!(blocks_of(8, 8), 2, "16 PDRs of 8 filters: one block per direction");
}
