//! Loading, attaching, pinning and adopting the tier, with interfaces of a private namespace.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use fastlane_flow_tier::{
    Adoption, InterfaceKind, KernelTier, TierError, TierHook, TierOutcome, TierPort, TierReader,
    XdpMode,
};
use fastlane_mirror::flows::{
    FlowKey, FlowRecord, FlowStatistics, FlowStatus, FlowTier, PinsPath, TierFlow, TierTotals,
};
use fastlane_steer::{Program, Rules, Settings, has_tcx, link, program_links, program_name};
use fastlane_table::EntryId;
use fastlane_testing::namespace::{command, ip, private};
use fastlane_testing::skip;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

/// A BPF file system of a test.
struct BpfFileSystem(PathBuf);

impl BpfFileSystem {
    fn mount(test: &str) -> Option<Self> {
        let name = format!("fastlane-flow-tier-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&path).status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip(test, "no BPF file system");
            return None;
        }
        Some(Self(path))
    }
}

impl Drop for BpfFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEXT_HOP: [u8; 6] = [2, 0, 0, 0, 0, 9];
const CAPACITY: usize = 16;

/// Creates `in` and `out`, with a route to 20.0.0.0/8 by `out` and back to 10.0.0.0/8 by `in`.
fn configure() {
    // Neighbour discovery of the far ends would be counted too.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    for (name, net) in [("in", 10), ("out", 20)] {
        ip(&format!("link add {name} address 02:00:00:00:00:01 type veth peer {name}-far"));
        ip(&format!("link set {name} up"));
        ip(&format!("link set {name}-far up"));
        // Only then the driver transmits redirected frames.
        command("ethtool", &format!("-K {name}-far gro on"));
        ip(&format!("address add {net}.0.0.1/8 dev {name}"));
        ip(&format!("neigh add {net}.0.0.2 lladdr 02:00:00:00:00:09 dev {name} nud permanent"));
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
}

fn port(name: &str) -> TierPort {
    let shown = command("ip", &format!("-o link show {name}"));
    let index = shown.split_once(':').unwrap().0.parse().unwrap();
    let (interface, hook) = (name.to_owned(), Some(TierHook::Xdp(XdpMode::Native)));
    TierPort {
        interface,
        index,
        mac: STATION,
        zone: 0,
        hook,
        kind: InterfaceKind::Device,
        forwards_back: false,
        takes_ipv6: true,
        is_closed: false,
        has_lanes: false,
    }
}

fn attach(tier: &mut KernelTier) {
    for name in ["in", "out"] {
        tier.attach(&port(name)).unwrap();
    }
}

/// Returns the status of a slow path that may be silent for as long as a slow machine needs to
/// verify the programs of the next one.
fn status(heartbeat: u64) -> FlowStatus {
    FlowStatus {
        heartbeat,
        grace: 600_000_000_000,
        is_active: 1,
        mark: 1,
        mask: 1,
        one_way: 0,
        rules: 0,
        statistics: FlowStatistics::default(),
        pins: PinsPath::default(),
    }
}

fn now() -> u64 {
    fastlane_core::now()
}

/// Returns UDP from 10.0.0.2:4000 to 20.0.0.2:53, in an entry, without translation.
fn flow(entry: u32) -> TierFlow {
    let octets = |text: &str| {
        let mut octets = [0; 16];
        let IpAddr::V4(address) = text.parse().unwrap() else { panic!("{text}") };
        octets[..4].copy_from_slice(&address.octets());
        octets
    };
    let (source, destination) = (octets("10.0.0.2"), octets("20.0.0.2"));
    let ports = [4000, 53];
    TierFlow {
        key: FlowKey { source, destination, ports, zone: 0, protocol: 17, version: 4 },
        record: FlowRecord { ports, id: 7, ..FlowRecord::between(source, destination) },
        entry: EntryId(entry),
    }
}

/// Returns a frame of the flow, without a UDP checksum.
fn frame() -> Vec<u8> {
    let mut frame = [STATION, [2, 0, 0, 0, 0, 2]].concat();
    frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 20, 0, 0, 2]);
    let words = frame[14..34].as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame.extend([0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Keeps this thread on its CPU: each CPU remembers next hops of its own.
fn stay_on_this_cpu() {
    let mut cpus = CpuSet::new();
    cpus.set(sched_getcpu());
    sched_setaffinity(None, &cpus).unwrap();
}

fn is_forwarded(tier: &mut KernelTier) -> bool {
    let run = tier.test_run(port("in").index, &frame(), 1).unwrap();
    assert!(!run.is_forwarded || run.frame[..6] == NEXT_HOP);
    run.is_forwarded
}

#[test]
fn flows_are_forwarded_while_the_slow_path_lives() {
    if !private("tier-heartbeat") {
        return;
    }
    configure();
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    attach(&mut tier);
    tier.insert(&flow(3)).unwrap();
    assert!(!is_forwarded(&mut tier), "no heartbeat");
    let status = |heartbeat| FlowStatus { grace: 5_000_000_000, ..status(heartbeat) };
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    tier.publish(&status(now() - 4_000_000_000)).unwrap();
    assert!(is_forwarded(&mut tier), "within the grace time");
    tier.publish(&status(now() - 5_100_000_000)).unwrap();
    assert!(!is_forwarded(&mut tier), "after it");
    tier.publish(&FlowStatus { is_active: 0, ..status(now()) }).unwrap();
    assert!(!is_forwarded(&mut tier), "the rules judge again");
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    let totals = tier.totals(EntryId(3)).unwrap();
    assert_eq!((totals.packets, totals.octets), (3, 180));
    assert!(now() - totals.last_seen < 1_000_000_000);
    let paused = tier.outcomes().unwrap();
    let paused = paused.iter().find(|it| it.outcome == TierOutcome::FlowsPaused).unwrap();
    assert_eq!(paused.packets, 3);
    // The next flow in the entry begins at zero.
    tier.remove(&flow(3).key).unwrap();
    tier.remove(&flow(3).key).unwrap();
    assert!(!is_forwarded(&mut tier), "removed");
    tier.insert(&flow(3)).unwrap();
    assert_eq!(tier.totals(EntryId(3)).unwrap().packets, 0);
    assert!(is_forwarded(&mut tier));
    assert_eq!(tier.totals(EntryId(3)).unwrap().packets, 1);
}

#[test]
fn a_flow_without_room_is_counted() {
    if !private("tier-full") {
        return;
    }
    configure();
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    attach(&mut tier);
    tier.publish(&status(now())).unwrap();
    for entry in 0..CAPACITY as u32 {
        let key = FlowKey { ports: [entry as u16, 53], ..flow(entry).key };
        tier.insert(&TierFlow { key, ..flow(entry) }).unwrap();
    }
    assert_eq!(tier.full(), 0);
    // The tier has no such entry.
    tier.insert(&flow(CAPACITY as u32)).unwrap();
    assert_eq!((tier.full(), tier.flows().unwrap().len()), (1, CAPACITY));
    assert!(!is_forwarded(&mut tier));
    tier.insert(&flow(0)).unwrap();
    assert_eq!(tier.full(), 1);
    assert!(is_forwarded(&mut tier));
}

#[test]
fn next_hops_are_remembered_while_routes_are_followed() {
    if !private("tier-hops") {
        return;
    }
    stay_on_this_cpu();
    configure();
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    attach(&mut tier);
    tier.insert(&flow(0)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    ip("route add blackhole 20.0.0.2/32");
    assert!(is_forwarded(&mut tier), "remembered");
    tier.forget_hops().unwrap();
    assert!(!is_forwarded(&mut tier), "looked up again");
    ip("route del blackhole 20.0.0.2/32");
    assert!(is_forwarded(&mut tier), "a refusal is not remembered");
    // Without a fresh heartbeat nobody follows the routes: each packet is looked up.
    tier.publish(&status(now() - 2_000_000_000)).unwrap();
    ip("route add blackhole 20.0.0.2/32");
    assert!(!is_forwarded(&mut tier));
    ip("route del blackhole 20.0.0.2/32");
    // Nor does what was looked up in the meantime hold later.
    assert!(is_forwarded(&mut tier));
}

#[test]
fn a_successor_adopts_flows_and_links() {
    let Some(bpf) = BpfFileSystem::mount("adopts") else { return };
    if !private("tier-adopts") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!(adoption, Adoption::Loaded);
    attach(&mut tier);
    tier.insert(&flow(3)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    let reader = TierReader::open(&pins).unwrap();
    assert_eq!(reader.totals(&flow(3).key).unwrap().unwrap().packets, 1);
    drop(tier);
    assert!(is_attached("in"), "the pins hold the program");

    let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!(adoption, Adoption::Adopted);
    assert_eq!(tier.flows().unwrap(), [flow(3)]);
    assert_eq!(tier.totals(EntryId(3)).unwrap().packets, 1, "its counters go on");
    attach(&mut tier); // again, which changes nothing
    // Another flow in the same entry is not taken for the adopted one.
    tier.insert(&flow(3)).unwrap();
    assert_eq!(tier.totals(EntryId(3)).unwrap().packets, 0);
    // The interface disappears: its link is not adopted.
    ip("link del out");
    drop(tier);
    let (tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!((adoption, tier.interfaces().count()), (Adoption::Adopted, 1));
    drop(tier);

    // Room for another number of flows: everything is loaded anew.
    let (tier, adoption) = KernelTier::open(2 * CAPACITY, &pins).unwrap();
    assert_eq!((adoption, tier.flows().unwrap().len()), (Adoption::Loaded, 0));
    drop((tier, reader));
    KernelTier::remove(&pins).unwrap();
    assert!(!is_attached("in") && !pins.exists());
    KernelTier::remove(&pins).unwrap();
    let error = TierReader::open(&pins).unwrap_err().to_string();
    assert!(error.contains("as root"), "{error}");
}

/// Returns the path of a pin by the begin of its name.
fn pin(pins: &Path, begin: &str) -> PathBuf {
    let mut entries = std::fs::read_dir(pins).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(begin);
    entries.find(is_it).unwrap()
}

/// Makes the pinned programs those of another version: it has another digest.
fn age(pins: &Path) {
    for name in ["program", "ingress"] {
        let path = pin(pins, &format!("{name}-"));
        std::fs::rename(path, pins.join(format!("{name}-0123456789abcdef"))).unwrap();
    }
}

#[test]
fn the_program_at_an_ingress_is_adopted_and_exchanged() {
    let Some(bpf) = BpfFileSystem::mount("ingress") else { return };
    if !private("tier-ingress") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let ingress = TierPort { hook: Some(TierHook::Ingress), ..port("in") };
    let program = || {
        let program = link::open_pin(&pin(&pins, "ingress-")).unwrap();
        let id = link::program_id(program.as_fd()).unwrap();
        (id, program_links(id).count())
    };
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    tier.attach(&ingress).unwrap();
    let (old, links) = program();
    assert_eq!(links, 1);
    assert!(!is_attached("in"), "to XDP");
    drop(tier);
    for (is_old, adopted) in [(false, Adoption::Adopted), (true, Adoption::Renewed)] {
        if is_old {
            age(&pins);
        }
        let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
        assert_eq!(adoption, adopted);
        tier.attach(&ingress).unwrap();
        let (id, links) = program();
        assert_eq!((id == old, links), (!is_old, 1));
    }
    // Another hook is configured, and then none: a pair is taken at its ingress.
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    tier.attach(&port("in")).unwrap();
    assert!(is_attached("in"));
    assert_eq!(program().1, 0);
    drop(tier);
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    tier.attach(&TierPort { hook: None, kind: InterfaceKind::Pair, ..port("in") }).unwrap();
    assert!(!is_attached("in"));
    assert_eq!(program().1, 1);
    tier.detach(ingress.index).unwrap();
    assert_eq!(program().1, 0);
    drop(tier);
    KernelTier::remove(&pins).unwrap();
}

/// Earlier versions have an XDP program only, and one is on the veth interface.
#[test]
fn a_predecessor_without_a_program_for_an_ingress_is_adopted() {
    let Some(bpf) = BpfFileSystem::mount("former") else { return };
    if !private("tier-former") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    attach(&mut tier);
    tier.insert(&flow(3)).unwrap();
    drop(tier);
    age(&pins);
    std::fs::remove_file(pin(&pins, "ingress-")).unwrap();
    let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!((adoption, tier.flows().unwrap()), (Adoption::Renewed, vec![flow(3)]));
    for name in ["in", "out"] {
        let pair = TierPort { hook: None, kind: InterfaceKind::Pair, ..port(name) };
        tier.attach(&pair).unwrap();
        assert_eq!(is_attached(name), !has_tcx(), "at the ingress where Linux has one");
    }
    tier.publish(&status(now())).unwrap();
    assert!(tier.transmits(port("out").index));
    assert!(is_forwarded(&mut tier));
    drop(tier);
    KernelTier::remove(&pins).unwrap();
}

#[test]
fn lanes_have_a_port_until_they_end_whatever_its_next_tier() {
    if !private("tier-both-ingress") {
        return;
    }
    configure();
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    let settings = Settings { max_length: 2000, mark: 0, reenter_ifindex: 0 };
    let mut lanes = Program::load(&Rules::new(vec![]).unwrap(), settings).unwrap();
    lanes.attach_xdp("in", XdpMode::Native).unwrap();
    tier.attach(&TierPort { has_lanes: true, ..port("in") }).unwrap();
    let name = || {
        let id = fastlane_netlink::xdp_program(port("in").index).unwrap().unwrap();
        program_name(id).unwrap()
    };
    assert_eq!(name(), "fastlane_flows");
    let ingress = TierPort { hook: Some(TierHook::Ingress), ..port("in") };
    for _ in 0..2 {
        let error = tier.attach(&ingress).unwrap_err().to_string();
        assert!(error.contains("another XDP program is attached to `in`"), "{error}");
        assert_eq!(name(), "fastlane_xdp", "lanes get the packets");
    }
    drop(lanes);
    // A child of another test has the descriptor of the program until it is another program.
    let mut attached = tier.attach(&ingress);
    for _ in 0..500 {
        if attached.is_ok() {
            break;
        }
        sleep(Duration::from_millis(10));
        attached = tier.attach(&ingress);
    }
    attached.unwrap();
    assert!(!is_attached("in") && tier.has(ingress.index));
}

#[test]
fn the_program_of_another_version_is_exchanged_under_its_flows() {
    let Some(bpf) = BpfFileSystem::mount("renews") else { return };
    if !private("tier-renews") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    let settings = Settings { max_length: 2000, mark: 0, reenter_ifindex: 0 };
    let mut lanes = Program::load(&Rules::new(vec![]).unwrap(), settings).unwrap();
    lanes.attach_xdp("in", XdpMode::Native).unwrap();
    let both = TierPort { has_lanes: true, ..port("in") };
    tier.attach(&both).unwrap();
    tier.attach(&port("out")).unwrap();
    tier.insert(&flow(3)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    drop(tier);
    let attached = |name: &str| fastlane_netlink::xdp_program(port(name).index).unwrap().unwrap();
    let old = attached("out");
    assert_eq!(attached("in"), old);

    age(&pins);
    let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!(adoption, Adoption::Renewed);
    let new = attached("out");
    assert!(new != old && attached("in") == new, "on both interfaces");
    assert_eq!(tier.flows().unwrap(), [flow(3)]);
    assert!(is_forwarded(&mut tier));
    assert_eq!(tier.totals(EntryId(3)).unwrap().packets, 2, "its counters go on");
    // What it does not forward still goes to the lanes.
    tier.remove(&flow(3).key).unwrap();
    assert!(!is_forwarded(&mut tier));
    let counts = lanes.counts().unwrap();
    assert_eq!(counts.passed + counts.uncovered, 1);
    drop(tier);

    // A successor that was killed when it had pinned its program, and exchanged it nowhere.
    let (mut other, _) = KernelTier::open(CAPACITY, &bpf.0.join("other")).unwrap();
    other.detach(port("in").index).unwrap();
    let own = pin(&bpf.0.join("other"), "program-");
    let name = own.file_name().unwrap().to_owned();
    drop(other);
    std::fs::remove_file(pins.join(&name)).unwrap();
    assert!(std::fs::rename(&own, pins.join(&name)).is_ok());
    let (tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!(adoption, Adoption::Adopted);
    assert!(attached("out") != new && attached("in") == attached("out"));
    drop((tier, lanes));
    KernelTier::remove(&pins).unwrap();
    KernelTier::remove(&bpf.0.join("other")).unwrap();
}

#[test]
fn lanes_get_their_interface_back_from_a_tier_with_other_tables() {
    let Some(bpf) = BpfFileSystem::mount("layout") else { return };
    if !private("tier-layout") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let settings = Settings { max_length: 2000, mark: 0, reenter_ifindex: 0 };
    let mut lanes = Program::load(&Rules::new(vec![]).unwrap(), settings).unwrap();
    lanes.attach_xdp("in", XdpMode::Native).unwrap();
    let both = TierPort { has_lanes: true, ..port("in") };
    let attached = || {
        let attached = fastlane_netlink::xdp_program(both.index).unwrap().unwrap();
        fastlane_steer::program_name(attached).unwrap()
    };
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    for has_hash_table in [false, true] {
        tier.attach(&both).unwrap();
        assert_eq!(attached(), "fastlane_flows");
        drop(tier);
        rename_tables(&pins);
        if has_hash_table {
            let path = pins.join("entrances-1");
            std::fs::remove_file(&path).unwrap();
            pin_hash_of_entrances(&path, both.index);
        }
        let opened = KernelTier::open(CAPACITY, &pins).unwrap();
        assert_eq!((attached().as_str(), opened.1), ("fastlane_xdp", Adoption::Loaded));
        tier = opened.0;
    }
    drop((tier, lanes));
    KernelTier::remove(&pins).unwrap();
}

/// Makes the tables those of another layout.
fn rename_tables(pins: &Path) {
    let tables = ["flows", "states", "status", "entrances", "exits", "lanes", "outcomes"];
    let paths = std::fs::read_dir(pins).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.collect::<Vec<_>>() {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(table) = tables.iter().find(|table| name.starts_with(&format!("{table}-"))) {
            std::fs::rename(&path, pins.join(format!("{table}-1"))).unwrap();
        }
    }
}

/// Pins entrances as up to layout 4, with an interface of both tiers whose lanes have the first
/// program.
fn pin_hash_of_entrances(path: &Path, interface: u32) {
    let (path, type_and_size) = (path.display(), "type hash key 4 value 16 entries 256");
    command("bpftool", &format!("map create {path} {type_and_size} name entrances"));
    let hex = |octets: &[u8]| {
        let octets = octets.iter().map(|octet| format!("{octet:02x}"));
        octets.collect::<Vec<_>>().join(" ")
    };
    let value = [&STATION[..], &[0, 0], &0_u32.to_ne_bytes(), &1_u32.to_ne_bytes()].concat();
    let (key, value) = (hex(&interface.to_ne_bytes()), hex(&value));
    command("bpftool", &format!("map update pinned {path} key hex {key} value hex {value}"));
}

#[test]
fn the_state_of_a_removed_flow_is_not_that_of_one_after_a_restart() {
    let Some(bpf) = BpfFileSystem::mount("serials") else { return };
    if !private("tier-serials") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    attach(&mut tier);
    tier.publish(&status(now())).unwrap();
    tier.insert(&flow(0)).unwrap();
    assert!(is_forwarded(&mut tier));
    assert_eq!(tier.totals(EntryId(0)).unwrap().packets, 1);
    tier.remove(&flow(0).key).unwrap();
    drop(tier);
    // No flow is left, and the next one has the same entry.
    let (mut tier, adoption) = KernelTier::open(CAPACITY, &pins).unwrap();
    assert_eq!((adoption, tier.flows().unwrap().len()), (Adoption::Adopted, 0));
    tier.insert(&flow(0)).unwrap();
    assert_eq!(tier.totals(EntryId(0)).unwrap(), TierTotals::default());
    drop(tier);
    KernelTier::remove(&pins).unwrap();
}

#[test]
fn the_program_is_loaded_for_few_flows_and_for_many() {
    if !private("tier-sizes") {
        return;
    }
    // The numbers are known to the verifier, whose work must not depend on them.
    for capacity in [1, 1000, 2048, 131_072] {
        let tier = KernelTier::load(capacity).unwrap();
        assert_eq!(tier.flows().unwrap(), []);
    }
}

#[test]
fn lanes_get_what_the_tier_does_not_forward() {
    let Some(bpf) = BpfFileSystem::mount("lanes") else { return };
    if !private("tier-lanes") {
        return;
    }
    configure();
    let pins = bpf.0.join("flows");
    let (mut tier, _) = KernelTier::open(CAPACITY, &pins).unwrap();
    let both = TierPort { has_lanes: true, ..port("in") };
    tier.attach(&both).unwrap();
    assert!(!tier.has(both.index) && !is_attached("in"), "lanes do not have it yet");
    let load = || {
        let settings = Settings { max_length: 2000, mark: 0, reenter_ifindex: 0 };
        let mut lanes = Program::load(&Rules::new(vec![]).unwrap(), settings).unwrap();
        lanes.attach_xdp("in", XdpMode::Native).unwrap();
        lanes
    };
    let lanes = load();
    tier.attach(&both).unwrap();
    tier.attach(&port("out")).unwrap();
    assert!(tier.has(both.index));
    let seen = |lanes: &Program| {
        let counts = lanes.counts().unwrap();
        counts.passed + counts.uncovered
    };
    assert!(!is_forwarded(&mut tier));
    assert_eq!(seen(&lanes), 1);
    tier.insert(&flow(3)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(is_forwarded(&mut tier));
    assert_eq!(seen(&lanes), 1);
    // What lanes get they count.
    let outcomes = tier.outcomes().unwrap();
    let counted: Vec<_> = outcomes.iter().filter(|it| it.packets > 0).collect();
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert_eq!(counted[0].outcome, TierOutcome::Forwarded);
    // The fast path is replaced, and the tier joins the next one.
    drop(lanes);
    assert!(!is_attached("in"), "the link is that of the fast path");
    tier.attach(&both).unwrap();
    assert!(!tier.has(both.index));
    let lanes = load();
    tier.attach(&both).unwrap();
    tier.remove(&flow(3).key).unwrap();
    assert!(!is_forwarded(&mut tier));
    assert_eq!(seen(&lanes), 1);
    // Packets on the interface pass both, and only the second one without the tier.
    let attached = fastlane_netlink::xdp_program(both.index).unwrap().unwrap();
    drop(tier);
    KernelTier::remove(&pins).unwrap();
    let returned = fastlane_netlink::xdp_program(both.index).unwrap().unwrap();
    assert_ne!(attached, returned);
    assert_eq!(fastlane_steer::program_name(returned).as_deref(), Some("fastlane_xdp"));
    // Another program is refused.
    drop(lanes);
    assert!(!is_attached("in"));
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    tier.attach(&port("in")).unwrap();
    let mut other = KernelTier::load(CAPACITY).unwrap();
    let error = other.attach(&both).unwrap_err().to_string();
    assert!(error.contains("another XDP program is attached to `in`"), "{error}");
}

/// Returns true if an XDP program is attached. A link ends shortly after its last descriptor.
fn is_attached(interface: &str) -> bool {
    let shows = || command("ip", &format!("link show {interface}")).contains("prog/xdp");
    for _ in 0..200 {
        if !shows() {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

/// A veth pair stands for a bond, which few kernels have: `tests/flows/bonded_ports.rs` has one.
#[test]
fn the_program_of_a_bond_is_not_given_to_its_driver() {
    if !private("tier-bond") {
        return;
    }
    configure();
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    let bond = TierPort { kind: InterfaceKind::Aggregate, ..port("in") };
    let error = tier.attach(&bond).unwrap_err().to_string();
    assert!(error.contains("a bond or team run it): use generic mode"), "{error}");
    assert!(!is_attached("in"));
    let shown = |name: &str| command("ip", &format!("link show {name}"));
    let generic = Some(TierHook::Xdp(XdpMode::Generic));
    tier.attach(&TierPort { hook: generic, ..bond.clone() }).unwrap();
    assert!(shown("in").contains("xdpgeneric"), "{}", shown("in"));
    tier.attach(&TierPort { hook: None, ..bond }).unwrap();
    assert_eq!(!is_attached("in"), has_tcx(), "at the ingress where Linux has one");
    tier.attach(&TierPort { hook: None, ..port("out") }).unwrap();
    assert!(shown("out").contains("prog/xdp") && !shown("out").contains("xdpgeneric"));
}

#[test]
fn an_interface_without_a_driver_for_xdp_is_taken_at_its_ingress() {
    if !private("tier-bridge") {
        return;
    }
    configure();
    let made =
        Command::new("ip").args(["link", "add", "name", "bridge", "type", "bridge"]).status();
    if !made.unwrap().success() {
        skip("tier-bridge", "this kernel has no bridges");
        return;
    }
    let (bridge, pair) = (port("bridge"), port("in"));
    assert_eq!(InterfaceKind::of(pair.index, ""), InterfaceKind::Device);
    assert_eq!(InterfaceKind::of(pair.index, "veth"), InterfaceKind::Pair);
    let bridge = TierPort { hook: None, kind: InterfaceKind::of(bridge.index, "bridge"), ..bridge };
    let knows_drivers = fastlane_netlink::runs_xdp(bridge.index).is_ok(); // Linux 6.3 and later
    assert_eq!(bridge.kind == InterfaceKind::WithoutXdp, knows_drivers);
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    tier.attach(&bridge).unwrap();
    assert_eq!(!is_attached("bridge"), has_tcx());
    // It is attached once, and an exit like any other as long as no frame arrives from a driver.
    tier.attach(&bridge).unwrap();
    assert!(tier.has(bridge.index) && tier.transmits(bridge.index));
    tier.attach(&pair).unwrap();
    assert!(!tier.transmits(bridge.index) || fastlane_netlink::runs_xdp(bridge.index).is_err());
}

#[test]
fn mistakes_are_named_with_their_remedy() {
    let Some(bpf) = BpfFileSystem::mount("mistakes") else { return };
    if !private("tier-mistakes") {
        return;
    }
    configure();
    let (mut tier, _) = KernelTier::open(CAPACITY, &bpf.0.join("flows")).unwrap();
    let (mut other, _) = KernelTier::open(CAPACITY, &bpf.0.join("other")).unwrap();
    tier.attach(&port("in")).unwrap();
    let busy = other.attach(&port("in")).unwrap_err();
    assert!(matches!(busy, TierError::Program(_)), "{busy:?}");
    assert!(busy.to_string().contains("another XDP program is attached to `in`"), "{busy}");
    tier.detach(port("in").index).unwrap();
    other.attach(&port("in")).unwrap();
    let error = KernelTier::open(CAPACITY, Path::new("/tmp/fastlane-no-bpf/x")).unwrap_err();
    let _ = std::fs::remove_dir("/tmp/fastlane-no-bpf");
    assert!(error.to_string().contains("mount -t bpf"), "{error}");
}

#[test]
fn an_interface_that_does_not_transmit_is_no_exit() {
    if !private("tier-exits") {
        return;
    }
    configure();
    command("ethtool", "-K out-far gro off");
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    attach(&mut tier);
    tier.insert(&flow(0)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(!tier.transmits(port("out").index));
    assert!(!is_forwarded(&mut tier), "the driver would drop it");
    let counts = tier.outcomes().unwrap();
    let count = counts.iter().find(|count| count.outcome == TierOutcome::NotOurPort).unwrap();
    assert_eq!(count.packets, 1);
    command("ethtool", "-K out-far gro on");
    attach(&mut tier);
    assert!(tier.transmits(port("out").index));
    assert!(is_forwarded(&mut tier));
    command("ethtool", "-K out-far gro off");
    attach(&mut tier);
    tier.forget_hops().unwrap();
    assert!(!is_forwarded(&mut tier));
}

/// Linux transmits what a generic program redirects like any packet. A native one needs the driver
/// of the exit, whatever the mode of the program there.
#[test]
fn an_interface_that_does_not_transmit_is_an_exit_of_generic_programs_only() {
    if !private("tier-generic-exits") {
        return;
    }
    configure();
    command("ethtool", "-K out-far gro off");
    let mut tier = KernelTier::load(CAPACITY).unwrap();
    let (in_port, out) = (port("in"), port("out"));
    let generic =
        |port: &TierPort| TierPort { hook: Some(TierHook::Xdp(XdpMode::Generic)), ..port.clone() };
    tier.attach(&generic(&in_port)).unwrap();
    tier.attach(&generic(&out)).unwrap();
    tier.insert(&flow(0)).unwrap();
    tier.publish(&status(now())).unwrap();
    assert!(tier.transmits(out.index));
    assert!(is_forwarded(&mut tier));
    tier.detach(in_port.index).unwrap();
    tier.attach(&in_port).unwrap();
    assert!(!tier.transmits(out.index), "the first native program");
    assert!(!is_forwarded(&mut tier));
    tier.attach(&generic(&out)).unwrap();
    assert!(!tier.transmits(out.index), "its own mode does not matter");
    command("ethtool", "-K out-far gro on");
    tier.attach(&generic(&out)).unwrap();
    assert!(is_forwarded(&mut tier));
}
