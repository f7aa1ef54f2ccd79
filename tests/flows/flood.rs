//! A flood of connection attempts beside established flows.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{DropFlag, LEFT_MAC, eventually, mac};
use serde_json::json;

use super::firewall::{Datagrams, Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(a_flood_of_attempts_takes_nothing_from_established_flows);

/// Number of established flows.
const FLOWS: usize = 1000;

/// The far host does not answer the flood: the sources do not exist.
const SILENCE: &str = "add table inet silence
add chain inet silence input { type filter hook input priority 0; }
add rule inet silence input tcp dport 80 drop";

/// Datagrams of all flows, 5,000 per second, and attempts per millisecond beside them. A lane reads
/// both from one ring, so what it does not read in time is lost of both.
fn load() -> (u32, u32) {
    match std::env::var_os("FASTLANE_SOAK") {
        Some(_) => (1_000_000, 20),
        None => (20_000, 5),
    }
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

/// Sends attempts until `done`, a number per millisecond. Returns how many were sent.
fn flood(wire: &mut Wire, per_millisecond: u32, done: &AtomicBool) -> u32 {
    let (mut number, mut next) = (0, Instant::now());
    while !done.load(Ordering::Relaxed) {
        for _ in 0..per_millisecond {
            wire.send(&attempt(number));
            number += 1;
        }
        next = Instant::now().max(next + Duration::from_millis(1));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    number
}

/// Sends datagrams by all flows in turn, 5,000 per second. Returns the number of those that do not
/// arrive.
#[track_caller]
fn lost(flows: &[UdpSocket], udp: &Datagrams, count: u32) -> u32 {
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut received = 0;
            while received < count && udp.far.recv(&mut [0; 16]).is_ok() {
                received += 1;
            }
            received
        });
        let mut next = Instant::now();
        for number in 0..count {
            let flow = &flows[number as usize % flows.len()];
            flow.send_to(&number.to_be_bytes(), udp.to).expect("a route");
            if number % 5 == 4 {
                next = Instant::now().max(next + Duration::from_millis(1));
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        receiver.join().expect("it does not panic")
    });
    count - received
}

fn a_flood_of_attempts_takes_nothing_from_established_flows(tier: Tier) {
    let settings = json!({ "capacity": 2 * FLOWS });
    let Some(firewall) = Firewall::with(tier, "flood", &[RULES, MASQUERADE], settings) else {
        return;
    };
    let silence = firewall.routed.lab.file("silence.nft");
    std::fs::write(&silence, SILENCE).expect("the rules are writable");
    firewall.routed.far.run(&["nft", "-f", &silence.to_string_lossy()]);
    let udp = firewall.datagrams(5353);
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&udp.far, 8 << 20).expect("as root");
    let flows: Vec<UdpSocket> =
        firewall.routed.lab.right.enter(|| {
            (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").expect("a socket")).collect()
        });
    for flow in &flows {
        flow.send_to(b"there", udp.to).expect("a route");
        let (_, from) = udp.far.recv_from(&mut [0; 16]).expect("it arrives");
        udp.far.send_to(b"back", from).expect("a route");
    }
    eventually("all flows are in the table", || firewall.flows(&[]).len() == FLOWS);
    let (datagrams, per_millisecond) = load();
    let control = lost(&flows, &udp, datagrams);
    let (before, forwarded) = (firewall.count("linux_no_flow"), firewall.count("forwarded"));
    let mut wire = firewall.routed.lab.right.enter(|| Wire::open("wire0").expect("a raw socket"));
    let done = AtomicBool::new(false);
    let (beside, attempts) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(&mut wire, per_millisecond, &done));
        let end = DropFlag(&done);
        let beside = lost(&flows, &udp, datagrams);
        drop(end);
        (beside, flood.join().expect("it does not panic"))
    });
    let seen = firewall.count("linux_no_flow") - before;
    println!("{attempts} attempts, {seen} seen; lost without {control}, beside them {beside}");
    let counted = fastlane_tests::routed::counters(&firewall.router, &[]);
    assert!(
        beside <= control,
        "{beside} lost of {datagrams}, {control} without the flood; {counted:?}"
    );
    let fast = firewall.count("forwarded") - forwarded;
    // One that meets a change of the tables passes Linux.
    assert!(fast >= u64::from(datagrams) * 99 / 100, "established flows stay fast: {fast}");
    assert!(seen >= u64::from(attempts) * 9 / 10, "{seen} attempts passed Linux; {counted:?}");
    assert_eq!(firewall.flows(&[]).len(), FLOWS);
    firewall.router.stop();
}
