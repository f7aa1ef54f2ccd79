//! A flood of connection attempts beside established flows.

use std::net::UdpSocket;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{DropFlag, LEFT_MAC, Mechanism, eventually, mac};
use rustix::thread::gettid;
use serde_json::json;

use super::firewall::{Datagrams, Firewall, MASQUERADE, RING, RULES, Setup, Tier, for_each_tier};
use super::standstill;

for_each_tier!(
    a_flood_of_attempts_takes_nothing_from_established_flows,
    a_flood_at_full_rate_takes_nothing_that_linux_alone_keeps,
);

/// Number of established flows.
const FLOWS: usize = 1000;

/// The far host does not answer the flood: the sources do not exist.
const SILENCE: &str = "add table inet silence
add chain inet silence input { type filter hook input priority 0; }
add rule inet silence input tcp dport 80 drop";

/// Masquerade of the near host alone. An address has 64,512 ports for connections to one address
/// and port; when attempts have taken them all, Linux looks for a free one for 45 microseconds a
/// packet, with or without a fast path, and its CPU has no time for anything else.
const MASQUERADE_NEAR: &str = "
table ip nat {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"wire1\" ip saddr 10.77.0.2 masquerade
  }
}";

/// Frames of a lane's ring at full rate: they last for 20 ms without a CPU, twice as long as
/// [`STANDSTILL`], at the 750,000 attempts per second of a fast generator.
const LONG_RING: u32 = 4 * RING;

/// Rounds at full rate with the router, and as many with Linux alone.
const ROUNDS: usize = 3;

/// Time for which a CPU may stand still in a round with losses, and the number of rounds in which
/// one may do so for longer: these are not counted. A veth's queue takes 25 ms of a short
/// [`load`], and 10 ms of a long one.
const STANDSTILL: Duration = Duration::from_millis(10);
const NOT_COUNTED: usize = 10;

/// A round of datagrams beside a flood, or several together.
#[derive(Default)]
struct Round {
    datagrams: u32,
    lost: u32,
    attempts: u32,
    /// Datagrams that the router has forwarded itself, and attempts that it has left to Linux.
    counts: [u64; 2],
}

/// Number of rounds, datagrams of all flows in each, 5,000 per second, and attempts per millisecond
/// beside them. A lane reads both from one ring, so what it does not read in time is lost of both.
fn load() -> (usize, u32, u32) {
    match std::env::var_os("FASTLANE_SOAK") {
        Some(_) => (20, 50_000, 20),
        None => (1, 20_000, 5),
    }
}

/// Returns the attempts per millisecond at full rate, which is as fast as the generator sends. A
/// lane that was built without optimisation takes 10 microseconds for a packet, and less than that
/// rate.
fn full_rate(tier: Tier) -> Option<u32> {
    (cfg!(debug_assertions) && tier == Tier::Lanes).then_some(20)
}

/// Datagrams of a round at full rate.
fn round() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 100_000 } else { 5_000 }
}

/// Returns a SYN to port 80 of the far host, whose source follows from a number.
fn attempt(number: u32) -> Vec<u8> {
    // The constants of MMIX (Knuth) spread neighbouring numbers.
    let random = u64::from(number).wrapping_mul(6_364_136_223_846_793_005);
    let [_, a, b, c, d, ..] = random.wrapping_add(1_442_695_040_888_963_407).to_be_bytes();
    let source = [198, 18 + (a & 1), b, c];
    let mut frame = mac(LEFT_MAC).to_vec();
    frame.extend([2, 0, 0, 0, 0, 0x77, 8, 0]);
    let mut ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 0, 0, 0, 0, 10, 78, 0, 2];
    ip[12..16].copy_from_slice(&source);
    let sum = fastlane::wire::checksum::checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    let mut tcp = vec![d | 4, 1, 0, 80];
    tcp.extend(number.to_be_bytes());
    tcp.extend([0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let pseudo = [&ip[12..20], &[0, 6, 0, 20], &tcp].concat();
    tcp[16..18].copy_from_slice(&fastlane::wire::checksum::checksum(&pseudo).to_be_bytes());
    frame.extend(tcp);
    frame.resize(60, 0);
    frame
}

/// Sends attempts until `done`: a number per millisecond, or as fast as it can. Returns how many
/// were sent.
fn flood(wire: &mut Wire, per_millisecond: Option<u32>, done: &AtomicBool) -> u32 {
    let (mut number, mut next) = (0, Instant::now());
    while !done.load(Ordering::Relaxed) {
        for _ in 0..per_millisecond.unwrap_or(100) {
            wire.send(&attempt(number));
            number += 1;
        }
        if per_millisecond.is_some() {
            next = Instant::now().max(next + Duration::from_millis(1));
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    number
}

/// Sends datagrams by all flows in turn, 5,000 per second. Returns the number of those that do not
/// arrive.
#[track_caller]
fn lost(flows: &[UdpSocket], udp: &Datagrams, count: u32) -> u32 {
    let sent_all = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut received = 0;
            while received < count {
                // On a machine with other work the sender may be late.
                let is_last = sent_all.load(Ordering::Relaxed);
                match udp.far.recv(&mut [0; 16]) {
                    Ok(_) => received += 1,
                    Err(_) if is_last => break,
                    Err(_) => {}
                }
            }
            received
        });
        let end = DropFlag(&sent_all);
        let mut next = Instant::now();
        for number in 0..count {
            let flow = &flows[number as usize % flows.len()];
            flow.send_to(&number.to_be_bytes(), udp.to).expect("a route");
            if number % 5 == 4 {
                next = Instant::now().max(next + Duration::from_millis(1));
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        drop(end);
        receiver.join().expect("it does not panic")
    });
    count - received
}

/// A firewall with established flows.
struct Established {
    firewall: Firewall,
    udp: Datagrams,
    flows: Vec<UdpSocket>,
}

impl Established {
    #[track_caller]
    fn new(tier: Tier, story: &str, masquerade: &str, ring: u32) -> Option<Self> {
        let settings = json!({ "capacity": 2 * FLOWS });
        let setup = Setup { tier, mechanism: Mechanism::XdpNative, lanes: 1, ring };
        let mut firewall = Firewall::on(setup, story, &[RULES, masquerade], settings)?;
        firewall.start_offload();
        let silence = firewall.routed.lab.file("silence.nft");
        std::fs::write(&silence, SILENCE).expect("the rules are writable");
        firewall.routed.far.run(&["nft", "-f", &silence.to_string_lossy()]);
        // A slow machine takes longer than the 30 s of Linux to make all flows and to list them.
        for key in ["udp_timeout", "udp_timeout_stream"] {
            firewall.routed.set(&format!("netfilter/nf_conntrack_{key}"), "3600");
        }
        let udp = firewall.datagrams(5353);
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&udp.far, 8 << 20)
            .expect("as root");
        let flows: Vec<UdpSocket> = firewall.routed.lab.right.enter(|| {
            (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").expect("a socket")).collect()
        });
        for flow in &flows {
            flow.send_to(b"there", udp.to).expect("a route");
            let (_, from) = udp.far.recv_from(&mut [0; 16]).expect("it arrives");
            udp.far.send_to(b"back", from).expect("a route");
        }
        eventually("all flows are in the table", || firewall.flows(&[]).len() == FLOWS);
        Some(Self { firewall, udp, flows })
    }

    /// Runs a number of rounds that count. Returns them together.
    #[track_caller]
    fn rounds(&self, number: usize, round: impl Fn() -> Round) -> Round {
        let mut all = Round::default();
        for _ in 0..number {
            let it = self.counted(&round);
            all.datagrams += it.datagrams;
            all.lost += it.lost;
            all.attempts += it.attempts;
            for (all, it) in all.counts.iter_mut().zip(it.counts) {
                *all += it;
            }
        }
        all
    }

    /// Runs rounds until one loses nothing or no CPU has stood still in it.
    #[track_caller]
    fn counted(&self, round: impl Fn() -> Round) -> Round {
        for _ in 0..=NOT_COUNTED {
            let (found, longest) = standstill::longest(&round);
            if found.lost == 0 || longest < STANDSTILL {
                return found;
            }
            println!("{} lost, but a CPU stood still for {longest:?}: not counted", found.lost);
        }
        panic!("a CPU stands still in each of {NOT_COUNTED} rounds and more");
    }

    /// Sends datagrams by all flows beside a flood. `count` returns the router's counts.
    #[track_caller]
    fn beside_flood(
        &self,
        datagrams: u32,
        per_millisecond: Option<u32>,
        count: impl Fn() -> [u64; 2],
    ) -> Round {
        let before = count();
        let (lost, attempts) = self.try_beside_flood(datagrams, per_millisecond);
        let after = count();
        let counts = [after[0] - before[0], after[1] - before[1]];
        Round { datagrams, lost, attempts, counts }
    }

    fn counts(&self) -> [u64; 2] {
        ["forwarded", "linux_tcp_open"].map(|outcome| self.firewall.count(outcome))
    }

    /// Returns the numbers of datagrams that do not arrive, and of attempts.
    #[track_caller]
    fn try_beside_flood(&self, datagrams: u32, per_millisecond: Option<u32>) -> (u32, u32) {
        let near = &self.firewall.routed.lab.right;
        let mut wire = near.enter(|| Wire::open("wire0").expect("a raw socket"));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                if per_millisecond.is_none() {
                    prefer(0, -10, &gettid().as_raw_nonzero().to_string());
                }
                flood(&mut wire, per_millisecond, &done)
            });
            let end = DropFlag(&done);
            let lost = lost(&self.flows, &self.udp, datagrams);
            drop(end);
            (lost, flood.join().expect("it does not panic"))
        })
    }

    /// Gives the near host's link a queue of 1,000 packets, in front of the 256 of a veth pair.
    /// Since Linux 6.16 a full veth pair makes its queueing discipline wait.
    #[track_caller]
    fn lengthen_queue(&self) {
        let near = &self.firewall.routed.lab.right;
        near.run(&["tc", "qdisc", "replace", "dev", "wire0", "root", "pfifo", "limit", "1000"]);
    }

    /// Gives the flows precedence over the flood on the near host's link: what they lose there the
    /// router never sees.
    #[track_caller]
    fn prefer_flows(&self) {
        let near = &self.firewall.routed.lab.right;
        near.run(&["tc", "qdisc", "replace", "dev", "wire0", "root", "pfifo_fast"]);
        // Its first band is for what shall have little delay, the second one for all else.
        const LOW_DELAY: u8 = 0x10;
        for flow in &self.flows {
            rustix::net::sockopt::set_ip_tos(flow, LOW_DELAY).expect("an option");
        }
    }
}

/// Gives a thread a CPU, as far as it can be had here.
#[track_caller]
fn prefer(cpu: usize, nice: i32, thread: &str) {
    for words in [
        &["taskset", "-pc", &cpu.to_string(), thread][..],
        &["renice", "-n", &nice.to_string(), "-p", thread],
    ] {
        let output = Command::new(words[0]).args(&words[1..]).output().expect("it can be started");
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
}

fn a_flood_of_attempts_takes_nothing_from_established_flows(tier: Tier) {
    let Some(it) = Established::new(tier, "flood", MASQUERADE_NEAR, RING) else { return };
    it.lengthen_queue();
    let firewall = &it.firewall;
    let (rounds, datagrams, per_millisecond) = load();
    let alone =
        || Round { datagrams, lost: lost(&it.flows, &it.udp, datagrams), ..Round::default() };
    let control = it.rounds(rounds, alone).lost;
    let beside_flood = || it.beside_flood(datagrams, Some(per_millisecond), || it.counts());
    let Round { datagrams, lost: beside, attempts, counts: [fast, seen] } =
        it.rounds(rounds, beside_flood);
    println!("{attempts} attempts, {seen} seen; lost without {control}, beside them {beside}");
    let counted = fastlane_tests::routed::counters(&firewall.router, &[]);
    assert!(
        beside <= control,
        "{beside} lost of {datagrams}, {control} without the flood; {counted:?}"
    );
    // One that meets a change of the tables passes Linux.
    assert!(fast >= u64::from(datagrams) * 99 / 100, "established flows stay fast: {fast}");
    assert!(seen >= u64::from(attempts) * 9 / 10, "{seen} attempts passed Linux; {counted:?}");
    assert_eq!(firewall.flows(&[]).len(), FLOWS);
    it.firewall.router.stop();
}

fn a_flood_at_full_rate_takes_nothing_that_linux_alone_keeps(tier: Tier) {
    let Some(it) = Established::new(tier, "floodfull", MASQUERADE, LONG_RING) else { return };
    let datagrams = round();
    it.prefer_flows();
    if tier == Tier::Lanes {
        // It reads its rings in time, as on a CPU of its own.
        let last = std::thread::available_parallelism().map_or(1, NonZero::get) - 1;
        prefer(last, -20, &it.firewall.router.totals().lane(0, "thread").to_string());
    }
    let rounds = |who: &str, count: &dyn Fn() -> [u64; 2]| {
        let it = it.rounds(ROUNDS, || it.beside_flood(datagrams, full_rate(tier), count));
        println!("{who}: {} lost of {}, {} attempts", it.lost, it.datagrams, it.attempts);
        it
    };
    let with = rounds("the router", &|| it.counts());
    let beside = with.lost;
    let counted = match tier {
        Tier::Lanes => format!("{:?}", it.firewall.router.totals().drops("wire0")),
        _ => format!("{:?}", fastlane_tests::routed::counters(&it.firewall.router, &[])),
    };
    println!("{counted}");
    let fast = with.counts[0];
    let least = u64::from(with.datagrams - beside) * 99 / 100;
    assert!(fast >= least, "established flows stay fast: {fast}; {counted}");
    assert_eq!(it.firewall.flows(&[]).len(), FLOWS);
    // Without the router Linux carries all.
    it.firewall.router.process.signal(rustix::process::Signal::TERM);
    let session = it.firewall.router.session().to_string_lossy().into_owned();
    eventually("the router has ended", || fastlane::slow::attach(&session).is_err());
    let control = rounds("Linux alone", &|| [0; 2]).lost;
    assert!(beside <= control, "{beside} lost, {control} by Linux alone; {counted}");
}
