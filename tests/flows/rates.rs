//! R31, R32: what a fast packet costs beside Linux, and the switch by which the gain of prefetching
//! is measured. `fastlane-bench firewall` and `fastlane-bench flows` have the exact figures.

use std::net::UdpSocket;
use std::num::NonZero;
use std::process::Command;
use std::time::Duration;

use fastlane_tests::{Host, PATIENCE, eventually, uninterrupted};
use rustix::thread::gettid;
use serde_json::json;

use super::firewall::{Datagrams, Firewall, MASQUERADE, RULES, Tier};

/// Connections to this port stay with Linux: they are established, but not marked.
const SLOW: u16 = 5354;

/// Rules of [`RULES`] for port [`SLOW`].
const UNMARKED: &str = "insert rule inet firewall forward udp dport 5354 accept
insert rule inet firewall forward udp sport 5354 accept";

/// Number of flows of each kind. A poll handles as many packets.
const FLOWS: usize = 64;

/// Pairs of windows before each look at the ratios, and number of them after which the median
/// decides alone.
const PAIRS: usize = 21;
const MAX_PAIRS: usize = 400;
/// Rounds of a window.
const ROUNDS: usize = 20;
/// Bound of the cost by the kernel tier, where it is 1 by Linux.
const BOUND: f64 = 0.5;

/// Gives an interface a thread that polls it, and returns the process id of the thread. What the
/// interface receives is processed by it: by the kernel tier, or by Linux.
#[track_caller]
fn polling_thread(host: &Host, interface: &str) -> u32 {
    // The mounted file system shows another namespace.
    let script = format!(
        "mount -t sysfs s /sys && echo 1 > /sys/class/net/{interface}/threaded && \
         cat /sys/class/net/{interface}/threaded"
    );
    assert_eq!(host.run(&["unshare", "-m", "sh", "-c", &script]).trim(), "1");
    let wanted = format!("napi/{interface}-");
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").expect("it can be read").flatten() {
        let Ok(id) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        // The newest is that of this namespace.
        found.extend(name.starts_with(&wanted).then_some(id));
    }
    found.into_iter().max().expect("the interface has a thread")
}

/// Returns the CPU time of a thread in nanoseconds.
fn cpu(thread: u32) -> u64 {
    let path = format!("/proc/{thread}/schedstat");
    let text = std::fs::read_to_string(path).expect("the thread lives");
    text.split(' ').next().and_then(|it| it.parse().ok()).expect("a number")
}

/// Sends datagrams by all flows in turn, and waits until all have arrived.
#[track_caller]
fn send(flows: &[UdpSocket], udp: &Datagrams, rounds: usize) {
    for _ in 0..rounds {
        // The queue of a veth pair has room for 256.
        for flow in flows {
            flow.send_to(b"data", udp.to).expect("a route");
        }
        for _ in flows {
            uninterrupted(|| udp.far.recv(&mut [0; 16])).expect("it arrives");
        }
    }
}

/// Opens flows to a port of the far host, each established.
#[track_caller]
fn flows(firewall: &Firewall, udp: &Datagrams) -> Vec<UdpSocket> {
    let flows: Vec<UdpSocket> =
        firewall.routed.lab.right.enter(|| {
            (0..FLOWS).map(|_| UdpSocket::bind("0.0.0.0:0").expect("a socket")).collect()
        });
    for flow in &flows {
        flow.send_to(b"there", udp.to).expect("a route");
        let (_, from) = uninterrupted(|| udp.far.recv_from(&mut [0; 16])).expect("it arrives");
        udp.far.send_to(b"back", from).expect("a route");
        flow.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        uninterrupted(|| flow.recv(&mut [0; 16])).expect("it arrives");
    }
    flows
}

/// Runs the calling thread and the two that poll on one CPU, in this order of precedence. Packets
/// then wait until all of a round are sent, and the router polls them at once: no thread is woken
/// for each packet, which would cost both as much as the kernel tier itself.
#[track_caller]
fn take_turns_on_one_cpu(router: u32, far: u32) {
    let last = std::thread::available_parallelism().map_or(1, NonZero::get) - 1;
    let (this, router, far) = (gettid().as_raw_nonzero().to_string(), &router, &far);
    for command in [
        format!("taskset -pc {last} {this}"),
        format!("taskset -pc {last} {router}"),
        format!("taskset -pc {last} {far}"),
        format!("renice -n -20 -p {router}"),
        format!("renice -n 10 -p {far}"),
        format!("chrt -f -p 1 {this}"),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new(words[0]).args(&words[1..]).output().expect("it can be started");
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

/// Decides whether the median of ratios is below a bound: once its 95 % interval, by the ranks of
/// the ratios, does not contain the bound. Other work on the machine costs pairs, and no error.
fn is_below(ratios: &mut [f64], bound: f64) -> Option<bool> {
    ratios.sort_by(f64::total_cmp);
    let (middle, reach) = (ratios.len() / 2, ratios.len().isqrt());
    let interval = [ratios[middle.saturating_sub(reach)], ratios[middle + reach]];
    println!("{} pairs: median {:.3}, interval {interval:.3?}", ratios.len(), ratios[middle]);
    if interval[1] < bound {
        return Some(true);
    }
    let is_last = ratios.len() > MAX_PAIRS;
    (interval[0] > bound || is_last).then_some(ratios[middle] < bound)
}

/// The processor's count of instructions would have no noise, but virtual machines seldom have it.
/// So windows of both alternate, and pairs of neighbours are compared.
#[test]
fn r31_a_fast_packet_costs_clearly_less_than_by_linux() {
    let settings = json!({ "capacity": 4 * FLOWS });
    let rules = [RULES, MASQUERADE, UNMARKED];
    let Some(firewall) = Firewall::with(Tier::Kernel, "r31", &rules, settings) else { return };
    let (fast, slow) = (firewall.datagrams(5353), firewall.datagrams(SLOW));
    let of_fast = flows(&firewall, &fast);
    let of_slow = flows(&firewall, &slow);
    eventually("the flows are in the table", || firewall.flows(&[]).len() == FLOWS);
    assert!(firewall.flows(&["--port", &SLOW.to_string()]).is_empty());
    // What the far host does with packets is not the router's cost.
    let far = polling_thread(&firewall.routed.far, "wire1");
    let router = polling_thread(firewall.routed.router(), "wire0");
    for udp in [&fast, &slow] {
        udp.far.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let measure = || {
        take_turns_on_one_cpu(router, far);
        let mut ratios = Vec::new();
        loop {
            for _ in 0..PAIRS {
                let start = cpu(router);
                send(&of_fast, &fast, ROUNDS);
                let between = cpu(router);
                send(&of_slow, &slow, ROUNDS);
                ratios.push((between - start) as f64 / (cpu(router) - between) as f64);
            }
            if let Some(is_below) = is_below(&mut ratios, BOUND) {
                return (is_below, ratios);
            }
        }
    };
    let before = firewall.count("forwarded");
    // A thread of its own, as the commands of the test are to run on all CPUs.
    let (is_below, ratios) =
        std::thread::scope(|scope| scope.spawn(measure).join().expect("it does not panic"));
    let packets = (ratios.len() * ROUNDS * FLOWS) as u64;
    assert!(firewall.count("forwarded") - before >= packets, "the first of each pair is fast");
    assert!(is_below, "cost of the kernel tier, of Linux is 1: {ratios:.3?}");
    firewall.router.stop();
}

#[test]
fn the_decision_about_ratios_needs_a_clear_interval() {
    let decide = |below: usize, above: usize| {
        let mut ratios = [vec![0.4; below], vec![0.6; above]].concat();
        is_below(&mut ratios, 0.5)
    };
    assert_eq!(decide(16, 5), Some(true));
    assert_eq!(decide(5, 16), Some(false));
    assert_eq!(decide(11, 10), None);
    assert_eq!(decide(101, 100), None);
    assert_eq!(decide(MAX_PAIRS / 2 + 2, MAX_PAIRS / 2), Some(true));
}

/// Lanes forward the same flows with prefetching and without it.
#[test]
fn r32_prefetching_is_a_word_of_the_configuration() {
    for prefetch in [true, false] {
        let settings = json!({ "capacity": 4 * FLOWS, "prefetch": prefetch });
        let story = format!("r32{prefetch}");
        let rules = [RULES, MASQUERADE];
        let Some(firewall) = Firewall::with(Tier::Lanes, &story, &rules, settings) else { return };
        let udp = firewall.datagrams(5353);
        let flows = flows(&firewall, &udp);
        eventually("the flows are in the table", || firewall.flows(&[]).len() == FLOWS);
        firewall.until_forwarded((5 * FLOWS) as u64, || send(&flows, &udp, 5));
        firewall.router.stop();
    }
}
