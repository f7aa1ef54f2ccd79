//! The kernel tier agrees with the lane: random flows and packets through both, the tier by the
//! kernel's BPF_PROG_TEST_RUN with routes of a real Linux.

use std::cell::RefCell;
use std::net::IpAddr;

use fastlane::flow_tier::{
    InterfaceKind, KernelTier, TestRun, TierError, TierHook, TierOutcome, TierPort, XdpMode,
};
use fastlane::mirror::flows::{FlowTier, TierFlow};
use fastlane_testing::namespace::{command, ip, private};
use proptest::collection::vec;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::*;

mod ingress;

/// Run of a program of the tier on a frame that arrives by an interface.
type ByTier = fn(&mut KernelTier, u32, &[u8]) -> Option<Vec<u8>>;

/// Number of flows of the comparison, each with several packets.
const FLOWS: u32 = 1500;

/// MTU of the interface by which packets leave.
const EXIT_MTU: u32 = 1280;

/// Destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// By the ingress interface.
    Inside,
    /// By the other one.
    Outside,
    Blackhole,
    Unreachable,
    Prohibit,
    Local,
    NoRoute,
    NoNeighbour,
}

use Network::{Blackhole, Inside, Local, NoNeighbour, NoRoute, Outside, Prohibit, Unreachable};

impl Network {
    /// Returns an address whose route is this one.
    fn address(self, is_ipv6: bool, random: [u8; 16]) -> IpAddr {
        let mut octets = random;
        octets[0] = self.octet();
        if self == Local {
            octets[1..].fill(0);
            octets[if is_ipv6 { 15 } else { 3 }] = 1;
        }
        let [a, b, c, d, ..] = octets;
        if is_ipv6 {
            octets[1] = octets[0];
            octets[0] = 0x20;
            return octets.into();
        }
        [a, b, c, d].into()
    }

    fn octet(self) -> u8 {
        match self {
            Inside => 10,
            Outside => 20,
            Local => 30,
            NoRoute => 40,
            Blackhole => 50,
            Unreachable => 51,
            Prohibit => 52,
            NoNeighbour => 60,
        }
    }

    /// Returns what the mirror has of it.
    fn lookup(self) -> RouteLookup {
        let reason = match self {
            Inside => return out_of(0, 1500),
            Outside => return out_of(1, EXIT_MTU),
            Local => FallbackReason::Local,
            NoRoute => FallbackReason::NoRoute,
            Blackhole => FallbackReason::Blackhole,
            Unreachable => FallbackReason::Unreachable,
            Prohibit => FallbackReason::Prohibit,
            NoNeighbour => FallbackReason::NoNeighbour,
        };
        RouteLookup::Fallback(reason)
    }
}

/// Creates the interfaces `in` and `out`, and the routes of each network.
fn configure() {
    for (name, mac, net) in [("in", STATION, 18), ("out", EXIT, 19)] {
        let [.., last] = mac;
        ip(&format!("link add {name} address 02:00:00:00:00:{last:02x} type veth peer {name}-far"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {name}-far up"));
        ip(&format!("address add 198.{net}.0.1/24 dev {name}"));
        ip(&format!("address add fd{net}::1/64 dev {name} nodad"));
        for via in [format!("198.{net}.0.2"), format!("fd{net}::2")] {
            ip(&format!("neigh add {via} lladdr 02:00:00:00:00:09 dev {name} nud permanent"));
        }
    }
    ip(&format!("link set out mtu {EXIT_MTU}"));
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{key}"), "1").unwrap();
    }
    for (network, kind, via) in [
        (Inside, "", "18"),
        (Outside, "", "19"),
        (NoNeighbour, "", "19"),
        (Blackhole, "blackhole", ""),
        (Unreachable, "unreachable", ""),
        (Prohibit, "prohibit", ""),
    ] {
        let host = if network == NoNeighbour { 3 } else { 2 };
        let (mut four, mut six) = (String::new(), String::new());
        if !via.is_empty() {
            (four, six) = (format!("via 198.{via}.0.{host}"), format!("via fd{via}::{host}"));
        }
        ip(&format!("route add {kind} {}.0.0.0/8 {four}", network.octet()));
        ip(&format!("-6 route add {kind} 20{:02x}::/16 {six}", network.octet()));
    }
    ip("address add 30.0.0.1/32 dev lo");
    ip("-6 address add 201e::1/128 dev lo");
}

fn index(interface: &str) -> u32 {
    let shown = command("ip", &format!("-o link show {interface}"));
    let (index, _) = shown.split_once(':').expect("an index");
    index.parse().expect("a number")
}

/// Returns the port of an interface.
fn port(name: &str, mac: [u8; 6]) -> TierPort {
    TierPort {
        interface: name.to_owned(),
        index: index(name),
        mac,
        zone: 0,
        hook: Some(TierHook::Xdp(XdpMode::Generic)),
        kind: InterfaceKind::Device,
        forwards_back: false,
        takes_ipv6: true,
        is_closed: false,
        has_lanes: false,
    }
}

/// Loads the tier and attaches it to both interfaces.
fn tier() -> KernelTier {
    let mut tier = KernelTier::load(16).unwrap();
    for (name, mac) in [("in", STATION), ("out", EXIT)] {
        tier.attach(&port(name, mac)).unwrap();
    }
    tier
}

/// Keeps this thread on a CPU, as the packets of a flow are on a card: each CPU has the state of a
/// flow to itself, also the end of the connection that it has seen.
fn stay_on(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).expect("the CPU is this thread's");
}

/// Returns the network of an address.
fn network(address: IpAddr) -> Option<Network> {
    const ALL: [Network; 8] =
        [Inside, Outside, Blackhole, Unreachable, Prohibit, Local, NoRoute, NoNeighbour];
    let octet = match address {
        IpAddr::V4(address) => address.octets()[0],
        IpAddr::V6(address) => address.octets()[1],
    };
    ALL.into_iter().find(|network| network.octet() == octet)
}

/// A flow and packets of it.
#[derive(Clone, Debug)]
struct Case {
    translation: Translation,
    packets: Vec<CasePacket>,
}

#[derive(Clone, Debug)]
struct CasePacket {
    shape: Shape,
    /// Octets that are overwritten.
    changes: Vec<(usize, u8)>,
    /// Octets that are added behind the packet, or taken from it.
    padding: i8,
    /// More-fragments flag and offset of IPv4.
    fragment: u16,
    /// True if the IPv4 header checksum is right after the changes.
    is_repaired: bool,
}

fn end(network: Network, is_ipv6: bool) -> impl Strategy<Value = (IpAddr, u16)> {
    (any::<[u8; 16]>(), any::<u16>())
        .prop_map(move |(random, port)| (network.address(is_ipv6, random), port))
}

fn other_network() -> impl Strategy<Value = Network> {
    prop_oneof![
        Just(Inside),
        Just(Outside),
        Just(Blackhole),
        Just(Unreachable),
        Just(Prohibit),
        Just(Local),
        Just(NoRoute),
        Just(NoNeighbour),
    ]
}

fn packet() -> impl Strategy<Value = CasePacket> {
    let control = prop_oneof![12 => Just(ACK), 2 => Just(0x18), 1 => any::<u8>()];
    let length = prop_oneof![8 => 0_usize..100, 1 => 1200_usize..1300];
    let payload = length.prop_flat_map(|length| vec(any::<u8>(), length));
    let time_to_live = prop_oneof![9 => 2_u8.., 1 => 0_u8..3];
    let shape = (time_to_live, control, payload, prop::bool::weighted(0.9)).prop_map(
        |(time_to_live, control, payload, has_checksum)| Shape {
            time_to_live,
            control,
            payload,
            has_checksum,
        },
    );
    let changes = prop_oneof![4 => Just(vec![]), 1 => vec((0_usize..80, any::<u8>()), 1..3)];
    let padding = prop_oneof![4 => Just(0), 1 => any::<i8>()];
    let fragment = prop_oneof![12 => Just(0), 1 => Just(0x2000), 1 => 1_u16..0x2000];
    (shape, changes, padding, fragment, any::<bool>()).prop_map(
        |(shape, changes, padding, fragment, is_repaired)| CasePacket {
            shape,
            changes,
            padding,
            fragment,
            is_repaired,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let from = prop_oneof![9 => Just(Inside), 1 => other_network()];
    let to = prop_oneof![7 => Just(Outside), 1 => other_network()];
    let kinds = (any::<bool>(), any::<bool>(), from, to, any::<[bool; 2]>());
    let ends = kinds.prop_flat_map(|(is_ipv6, is_tcp, from, to, translates)| {
        let both = (end(from, is_ipv6), end(to, is_ipv6), end(Outside, is_ipv6));
        (both, end(Inside, is_ipv6), Just(is_tcp), Just(translates))
    });
    let translation = ends.prop_map(|((from, to, snat), dnat, is_tcp, translates)| {
        let leaves = [if translates[0] { snat } else { from }, to];
        let arrives = [from, if translates[1] { dnat } else { to }];
        Translation { protocol: if is_tcp { TCP } else { UDP }, arrives, leaves }
    });
    (translation, vec(packet(), 1..6))
        .prop_map(|(translation, packets)| Case { translation, packets })
}

impl CasePacket {
    fn frame(&self, translation: &Translation) -> Vec<u8> {
        let mut frame = translation.original(&self.shape);
        let length = frame.len().saturating_add_signed(self.padding.into()).max(14);
        frame.resize(length, 0xee);
        for (at, octet) in &self.changes {
            if let Some(place) = frame.get_mut(*at) {
                *place = *octet;
            }
        }
        let is_ipv4 = frame.len() >= 34 && frame[12..15] == [8, 0, 0x45];
        if is_ipv4 && self.fragment != 0 {
            frame[20..22].copy_from_slice(&self.fragment.to_be_bytes());
        }
        if is_ipv4 && (self.is_repaired || self.fragment != 0) {
            frame[24..26].fill(0);
            let sum = checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        frame
    }
}

/// Returns the number of packets with an outcome of the tier.
fn count(tier: &KernelTier, outcome: TierOutcome) -> u64 {
    let all = tier.outcomes().expect("the kernel has them");
    all.into_iter().find(|count| count.outcome == outcome).map_or(0, |count| count.packets)
}

/// Writes the flow of a connection to the tables of both.
fn write(tables: &mut Tables, tier: &mut KernelTier, connection: &Connection) -> Vec<TierFlow> {
    tables.add(connection);
    let keys = FlowKey::of(connection).into_iter();
    let flows: Vec<TierFlow> = keys
        .map(|key| {
            let (entry, record) = tables.reader.copy(&key).expect("it is in the table");
            TierFlow { key, record, entry }
        })
        .collect();
    flows.iter().for_each(|flow| tier.insert(flow).expect("there is room"));
    flows
}

/// Returns the frame as the lane forwards it; `None` if Linux gets it.
fn by_lane(tables: &Tables, routes: &TestRoutes, frame: &[u8]) -> Option<Vec<u8>> {
    let results = tables.run(routes.clone(), &[frame.to_vec()]);
    let [sent, linux] = [results.sent[1].first(), results.linux.first()];
    assert!(sent.is_some() != linux.is_some(), "{results:?}");
    if let Some(passed) = linux {
        assert_eq!(passed, frame, "Linux gets it as it came");
    }
    sent.cloned()
}

/// Returns the frame as the tier forwards it; `None` if Linux gets it.
fn by_tier(tier: &mut KernelTier, ingress: u32, frame: &[u8]) -> Option<Vec<u8>> {
    forwarded(tier.test_run(ingress, frame, 1), frame)
}

fn forwarded(run: Result<TestRun, TierError>, frame: &[u8]) -> Option<Vec<u8>> {
    let run = run.expect("the kernel runs it");
    if !run.is_forwarded {
        assert_eq!(run.frame, frame, "Linux gets it as it came");
    }
    run.is_forwarded.then_some(run.frame)
}

/// Comparison of the lane and the tier.
struct Agreement {
    by_tier: ByTier,
    tier: KernelTier,
    ingress: u32,
    forwarded: u32,
    passed: u32,
}

impl Agreement {
    /// Compares verdicts, bytes and counters of a flow.
    fn compare(&mut self, case: &Case) -> Result<(), TestCaseError> {
        let Case { translation, packets } = case;
        // A connection whose directions have one key does not exist.
        let [original, reply] = FlowKey::of(&translation.connection());
        prop_assume!(original != reply);
        let (mut tables, tier) = (Tables::new(), &mut self.tier);
        let flows = write(&mut tables, tier, &translation.connection());
        tier.publish(&tables.published).expect("the kernel takes it");
        let mut routes = TestRoutes::new();
        for (address, _) in [translation.arrives[0], translation.leaves[1]] {
            let lookup = network(address).expect("an address of a network").lookup();
            routes.answers.insert(address, lookup);
        }
        let partial = count(tier, TierOutcome::PartialChecksum);
        for packet in packets {
            let frame = packet.frame(translation);
            let lane = by_lane(&tables, &routes, &frame);
            let kernel = (self.by_tier)(tier, self.ingress, &frame);
            if lane != kernel && count(tier, TierOutcome::PartialChecksum) > partial {
                break; // by coincidence: the XDP program leaves such packets to Linux
            }
            *if lane.is_some() { &mut self.forwarded } else { &mut self.passed } += 1;
            prop_assert_eq!(lane, kernel, "of {:02x?}", frame);
        }
        if count(tier, TierOutcome::PartialChecksum) == partial {
            for flow in &flows {
                let ([packets, octets], is_closing) = tables.totals(&flow.key);
                let totals = tier.totals(flow.entry).expect("the kernel has them");
                let kernel = ([totals.packets, totals.octets], totals.is_closing);
                prop_assert_eq!(([packets, octets], is_closing), kernel);
            }
        }
        flows.iter().for_each(|flow| tier.remove(&flow.key).expect("the kernel takes it"));
        Ok(())
    }
}

/// Compares the lane and the program that `by_tier` runs on many flows and packets.
fn agree(by_tier: ByTier) {
    configure();
    stay_on(sched_getcpu());
    let (tier, ingress) = (tier(), index("in"));
    let agreement = RefCell::new(Agreement { by_tier, tier, ingress, forwarded: 0, passed: 0 });
    let config = Config { cases: FLOWS, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&case(), |case| agreement.borrow_mut().compare(&case));
    if let Err(error) = result {
        panic!("{error}");
    }
    let Agreement { forwarded, passed, .. } = agreement.into_inner();
    println!("{forwarded} forwarded, {passed} passed to Linux");
    let tenth = (forwarded + passed) / 10;
    assert!(forwarded > tenth && passed > tenth, "{forwarded} forwarded, {passed} not");
}

#[test]
fn lane_and_tier_agree_on_flows_and_packets() {
    if private("kernel-tier") {
        agree(by_tier);
    }
}

#[test]
fn tcp_that_opens_is_linuxs_without_a_look_for_its_flow() {
    if !private("kernel-tier-open") {
        return;
    }
    configure();
    let mut tier = tier();
    let it =
        Translation::new(TCP, ["10.0.0.1:4000", "20.0.0.1:80"], ["20.0.0.9:5000", "20.0.0.1:80"]);
    let mut tables = Tables::new();
    tier.publish(&tables.published).unwrap();
    for has_flow in [false, true] {
        if has_flow {
            write(&mut tables, &mut tier, &it.connection());
        }
        for (control, outcome) in [
            (2, TierOutcome::TcpOpen),
            (2 | ACK, TierOutcome::TcpOpen),
            (ACK, if has_flow { TierOutcome::Forwarded } else { TierOutcome::NoFlow }),
            (2 | 1, if has_flow { TierOutcome::TcpClose } else { TierOutcome::NoFlow }),
        ] {
            let before = count(&tier, outcome);
            by_tier(&mut tier, index("in"), &it.original(&Shape { control, ..Shape::default() }));
            assert_eq!(count(&tier, outcome), before + 1, "{control}: {outcome:?}");
        }
    }
}

#[test]
fn a_partial_checksum_is_linuxs() {
    if !private("kernel-tier-partial") {
        return;
    }
    configure();
    let mut tier = tier();
    for protocol in [TCP, UDP] {
        let ends = ["10.0.0.1:4000", "20.0.0.1:80"];
        let it = Translation::new(protocol, ends, ["20.0.0.9:5000", "20.0.0.1:80"]);
        let mut tables = Tables::new();
        write(&mut tables, &mut tier, &it.connection());
        tier.publish(&tables.published).unwrap();
        let mut frame = it.original(&Shape::default());
        assert!(by_tier(&mut tier, index("in"), &frame).is_some());
        let layers = Layers::parse(&frame).unwrap();
        make_partial(&mut frame, &layers).unwrap();
        assert_eq!(by_tier(&mut tier, index("in"), &frame), None);
    }
    assert_eq!(count(&tier, TierOutcome::PartialChecksum), 2);
}

/// With both tiers lanes get packets with a partial checksum, but they do not know the exit. It is
/// the same on each CPU, and if all packets of the flow have one.
#[test]
fn a_partial_checksum_does_not_hide_that_a_flow_has_another_exit() {
    if !private("kernel-tier-exit") {
        return;
    }
    configure();
    let (mut tier, mut tables) = (tier(), Tables::new());
    let ends = ["10.0.0.1:4000", "20.0.0.1:80"];
    let it = Translation::new(UDP, ends, ["20.0.0.9:5000", "20.0.0.1:80"]);
    write(&mut tables, &mut tier, &it.connection());
    tier.publish(&tables.published).unwrap();
    let mut frame = it.original(&Shape::default());
    let layers = Layers::parse(&frame).unwrap();
    make_partial(&mut frame, &layers).unwrap();
    let count =
        |tier: &_| [TierOutcome::PartialChecksum, TierOutcome::FlowExit].map(|it| count(tier, it));
    let all = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    stay_on(cpus[0]);
    assert_eq!(by_tier(&mut tier, index("in"), &frame), None);
    assert_eq!(count(&tier), [1, 0]);
    ip("route replace 20.0.0.0/8 via 198.18.0.2");
    tier.forget_hops().unwrap();
    for cpu in cpus.iter().rev() {
        stay_on(*cpu);
        assert_eq!(by_tier(&mut tier, index("in"), &frame), None);
    }
    assert_eq!(count(&tier), [1, cpus.len() as u64]);
}

#[test]
fn ipv6_is_linuxs_where_an_interface_takes_none() {
    if !private("kernel-tier-ipv6") {
        return;
    }
    configure();
    let mut tier = tier();
    let ends = ["[200a::1]:4000", "[2014::1]:80"];
    let it = Translation::new(UDP, ends, ["[2014::9]:5000", "[2014::1]:80"]);
    let mut tables = Tables::new();
    write(&mut tables, &mut tier, &it.connection());
    tier.publish(&tables.published).unwrap();
    let frame = it.original(&Shape::default());
    assert!(by_tier(&mut tier, index("in"), &frame).is_some());
    tier.attach(&TierPort { takes_ipv6: false, ..port("in", STATION) }).unwrap();
    assert_eq!(by_tier(&mut tier, index("in"), &frame), None);
    assert_eq!(count(&tier, TierOutcome::ForwardingOff), 1);
    tier.attach(&port("in", STATION)).unwrap();
    assert!(by_tier(&mut tier, index("in"), &frame).is_some());
}

#[test]
fn a_translated_udp_checksum_of_zero_is_sent_as_all_ones() {
    if !private("kernel-tier-zero") {
        return;
    }
    configure();
    let mut tier = tier();
    let ends = ["10.0.0.1:4000", "20.0.0.1:80"];
    let it = Translation::new(UDP, ends, ["20.0.0.9:5000", "20.0.0.1:80"]);
    let mut tables = Tables::new();
    write(&mut tables, &mut tier, &it.connection());
    tier.publish(&tables.published).unwrap();
    let shape = |word: u16| Shape { payload: word.to_be_bytes().to_vec(), ..Shape::default() };
    // The checksum without the word, as the word, makes the sum of all words 0xffff.
    let field = |frame: &[u8]| u16::from_be_bytes([frame[40], frame[41]]);
    let word = field(&expected(UDP, it.leaves, &shape(0)));
    let sent = by_tier(&mut tier, index("in"), &it.original(&shape(word))).unwrap();
    assert_eq!(field(&sent), 0xffff);
    assert_eq!(sent[..44], expected(UDP, it.leaves, &shape(word))[..44]);
}
