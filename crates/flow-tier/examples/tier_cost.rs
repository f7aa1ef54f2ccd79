//! CPU time of the kernel tier's program per packet, by the kernel's clock (BPF_PROG_TEST_RUN),
//! without a driver. Run as root: `cargo run --example tier_cost -p fastlane-flow-tier [ROUNDS]`
//!
//! Warm: one flow, of which all memory is in the cache. In turn: all flows one after the other,
//! each once, in a random order, as one that follows their places in memory would show what the
//! processor prefetches. A run on a frame that the program passes at its first test is subtracted,
//! as the clock of a single run costs something too. Last, warm, packets that the program leaves to
//! Linux: another station's, of no flow, and while the tier is paused. Shown are the median of the
//! rounds and their range.

use std::time::Duration;

use fastlane_flow_tier::{InterfaceKind, KernelTier, TierHook, TierPort, XdpMode};
use fastlane_mirror::flows::{
    FlowKey, FlowRecord, FlowStatistics, FlowStatus, FlowTier, PinsPath, TierFlow,
};
use fastlane_table::EntryId;
use fastlane_testing::namespace::{command, ip, private};

/// Lengths of frames in bytes, with the frame check sequence that Linux does not show.
const SIZES: [usize; 4] = [64, 128, 256, 512];
const FLOWS: [u32; 2] = [1_024, 65_536];
/// Runs on a frame, whose time to live is less by one after each.
const REPEAT: u32 = 200;

const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// Creates the interfaces `in` and `out`. The next hops have the address of the router, so that a
/// frame that was forwarded is one to be forwarded again. Returns the index of `in`.
fn configure() -> u32 {
    assert!(private("cost"), "run it as root");
    for (near, net) in [("in", 10), ("out", 20)] {
        ip(&format!("link add {near} address 02:00:00:00:00:01 type veth peer {near}-far"));
        for end in [near, &format!("{near}-far")] {
            ip(&format!("link set {end} addrgenmode none up"));
            command("ethtool", &format!("-K {end} gro on"));
        }
        ip(&format!("address add {net}.255.0.1/8 dev {near}"));
        ip(&format!("neigh add {net}.255.0.2 lladdr 02:00:00:00:00:01 dev {near} nud permanent"));
        ip(&format!("route add {net}.0.0.0/9 via {net}.255.0.2 dev {near}"));
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a key of the namespace");
    index("in")
}

fn index(interface: &str) -> u32 {
    let shown = command("ip", &format!("-o link show {interface}"));
    shown.split(':').next().and_then(|word| word.parse().ok()).expect("an index")
}

/// Returns source and destination of a flow.
fn ends(flow: u32) -> [[u8; 4]; 2] {
    let [_, a, b, c] = flow.to_be_bytes();
    [[10, a, b, c], [20, a, b, c]]
}

/// Loads the tier with flows. Packets leave as they arrive, but are translated like any others.
fn tier(flows: u32) -> KernelTier {
    let mut tier = KernelTier::load(flows as usize).expect("root may load it");
    for name in ["in", "out"] {
        let (interface, index) = (name.to_owned(), index(name));
        let hook = Some(TierHook::Xdp(XdpMode::Native));
        let port = TierPort {
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
        };
        tier.attach(&port).expect("veth runs XDP");
    }
    let octets = |address: [u8; 4]| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&address);
        octets
    };
    for flow in 0..flows {
        let [source, destination] = ends(flow).map(octets);
        let key =
            FlowKey { source, destination, ports: [4000, 53], zone: 0, protocol: 17, version: 4 };
        let between = FlowRecord::between(source, destination);
        let record = FlowRecord { ports: [4000, 53], id: flow, ..between };
        tier.insert(&TierFlow { key, record, entry: EntryId(flow) }).expect("there is room");
    }
    tier.publish(&status(1)).expect("the kernel takes it");
    tier
}

/// Returns a status with which the tier is active (1) or paused (0).
fn status(is_active: u64) -> FlowStatus {
    FlowStatus {
        heartbeat: u64::MAX / 2, // the slow path never dies
        grace: 0,
        is_active,
        mark: 1,
        mask: 1,
        one_way: 1,
        rules: 0,
        statistics: FlowStatistics::default(),
        pins: PinsPath::default(),
    }
}

/// Returns the Internet checksum of bytes, of which there is an even number.
fn checksum(octets: &[u8]) -> [u8; 2] {
    let words = octets.as_chunks::<2>().0.iter();
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (!((sum >> 16) + sum) as u16).to_be_bytes()
}

/// Returns a frame of a flow with both checksums.
fn frame(flow: u32, size: usize) -> Vec<u8> {
    let length = (size - 4 - 14) as u16;
    let addresses = ends(flow).concat();
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 255, 17, 0, 0];
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip.extend(&addresses);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let words = [4000, 53, length - 20, 0];
    let udp: Vec<u8> = words.iter().flat_map(|word: &u16| word.to_be_bytes()).collect();
    let pseudo = [&addresses[..], &[0, 17], &(length - 20).to_be_bytes(), &udp].concat();
    let sum = checksum(&pseudo);
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend(ip);
    frame.extend(&udp[..6]);
    frame.extend(sum);
    frame.resize(size - 4, 0);
    frame
}

/// Puts frames into a random order, the same in each run.
fn shuffle(frames: &mut [Vec<u8>]) {
    let mut random = 1_u64;
    for end in (1..frames.len()).rev() {
        // The constants of MMIX (Knuth).
        random = random.wrapping_mul(6_364_136_223_846_793_005);
        random = random.wrapping_add(1_442_695_040_888_963_407);
        frames.swap(end, (random >> 33) as usize % (end + 1));
    }
}

/// Returns the time of a run on a flow, of [`REPEAT`] runs.
fn warm(tier: &mut KernelTier, ingress: u32, frame: &[u8], is_forwarded: bool) -> f64 {
    let runs = (0..200).map(|_| {
        let run = tier.test_run(ingress, frame, REPEAT).expect("the kernel runs it");
        assert_eq!(run.is_forwarded, is_forwarded);
        run.duration
    });
    runs.sum::<Duration>().as_nanos() as f64 / 200.0
}

/// Returns the time of a run on each frame in turn.
fn in_turn(tier: &mut KernelTier, ingress: u32, frames: &[Vec<u8>]) -> f64 {
    let runs = frames
        .iter()
        .map(|frame| tier.test_run(ingress, frame, 1).expect("the kernel runs it").duration);
    runs.sum::<Duration>().as_nanos() as f64 / frames.len() as f64
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(7);
    let ingress = configure();
    println!("ns per packet: median (lowest to highest) of {rounds} rounds");
    for flows in FLOWS {
        let mut tier = tier(flows);
        for size in SIZES {
            let mut frames: Vec<Vec<u8>> = (0..flows).map(|flow| frame(flow, size)).collect();
            shuffle(&mut frames);
            let foreign: Vec<Vec<u8>> = frames.iter().map(|frame| vec![1; frame.len()]).collect();
            let (mut one, mut all) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                one.push(warm(&mut tier, ingress, &frames[0], true));
                let whole = in_turn(&mut tier, ingress, &frames);
                all.push(whole - in_turn(&mut tier, ingress, &foreign));
            }
            let (one, all) = (Spread(one), Spread(all));
            println!("{flows:>6} flows {size:>4} B  warm {one}  in turn {all}");
        }
    }
    show_passed(rounds, ingress);
}

/// Shows what packets cost that the program leaves to Linux.
fn show_passed(rounds: usize, ingress: u32) {
    let flows = FLOWS[0];
    let mut tier = tier(flows);
    let size = SIZES[0];
    let (ours, of_no_flow, foreign) = (frame(0, size), frame(flows, size), vec![1; size - 4]);
    for (name, frame, is_active) in
        [("another station", foreign, 1), ("no flow", of_no_flow, 1), ("paused", ours, 0)]
    {
        tier.publish(&status(is_active)).expect("the kernel takes it");
        let times = (0..rounds).map(|_| warm(&mut tier, ingress, &frame, false)).collect();
        println!("to Linux, {name}: {}", Spread(times));
    }
}

/// Figures of all rounds.
struct Spread(Vec<f64>);

impl std::fmt::Display for Spread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let (lowest, highest) = (sorted[0], sorted[sorted.len() - 1]);
        write!(formatter, "{:.0} ({lowest:.0} to {highest:.0})", sorted[sorted.len() / 2])
    }
}
