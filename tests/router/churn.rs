//! Routes change under traffic, and each packet that does not arrive is counted.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_tests::routed::{
    Arrival, Counts, Receivers, Routed, Sender, batch, counters, hop_address, hop_mac,
};
use fastlane_tests::{DropFlag, Mechanism, mac};
use serde_json::json;

use super::{MECHANISMS, NEAR};

const ROUTES: usize = 10_000;
const FIRST: u32 = u32::from_be_bytes([10, 200, 0, 0]);

/// Returns `ip -batch` commands for the routes to all destinations.
fn lines(verb: &str, hop: impl Fn(usize) -> usize) -> Vec<String> {
    let line = |number| {
        let (to, via) = (destination(number), hop_address(hop(number)));
        format!("route {verb} {to}/32 via {via}")
    };
    (0..ROUTES).map(line).collect()
}

fn destination(number: usize) -> IpAddr {
    Ipv4Addr::from_bits(FIRST + number as u32).into()
}

/// Returns the number of a destination.
fn number(destination: IpAddr) -> usize {
    match destination {
        IpAddr::V4(address) => (address.to_bits() - FIRST) as usize,
        IpAddr::V6(address) => panic!("{address}"),
    }
}

/// Arrivals of one round, and the allowed next hops.
struct Round {
    /// Next hops of each destination, before and after the change.
    allowed: Vec<[usize; 2]>,
    arrivals: Vec<Arrival>,
}

impl Round {
    /// Returns the time after `end` at which the last packet by an old next hop was sent.
    fn latest(&self, end: Duration) -> Duration {
        let mut latest = Duration::ZERO;
        let mut has_changed = vec![false; self.allowed.len()];
        let mut arrivals: Vec<&Arrival> = self.arrivals.iter().collect();
        arrivals.sort_by_key(|arrival| arrival.probe.number);
        for arrival in arrivals {
            let number = number(arrival.probe.to);
            let [before, after] = self.allowed[number];
            assert!(arrival.has_valid_checksum && arrival.time_to_live == 63, "{arrival:?}");
            if arrival.mac == mac(&hop_mac(after)) {
                has_changed[number] = true;
            } else {
                assert_eq!(arrival.mac, mac(&hop_mac(before)), "never configured: {arrival:?}");
                assert!(!has_changed[number], "back to the old way: {arrival:?}");
                latest = latest.max(arrival.probe.at.saturating_sub(end));
            }
        }
        latest
    }
}

/// Prints when the last packet by the old and the first by the new next hop were sent, for the
/// route that changes last, in milliseconds after `end`, when `ip` had ended.
fn print_switchover(round: &Round, end: Duration) {
    let last = destination(ROUTES - 1);
    let new = mac(&hop_mac(round.allowed[ROUTES - 1][1]));
    let times = |by_new: bool| {
        let arrivals = round.arrivals.iter().filter(move |arrival| arrival.probe.to == last);
        let arrivals = arrivals.filter(move |arrival| (arrival.mac == new) == by_new);
        arrivals.map(move |arrival| (arrival.probe.at.as_secs_f64() - end.as_secs_f64()) * 1e3)
    };
    let old = times(false).fold(f64::NEG_INFINITY, f64::max);
    let new = times(true).fold(f64::INFINITY, f64::min);
    println!("  the last route: old way until {old:.1} ms, new way from {new:.1} ms");
}

#[test]
fn ten_thousand_routes_change_under_traffic() {
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-churn") else { return };
        routed.add_hops();
        routed.without_ipv6();
        let mut now: Vec<usize> = vec![0; ROUTES];
        run(&routed, "first", &lines("add", |_| 0));
        let router = routed.start(mechanism, &[]);
        let (start, mut receivers) = (Instant::now(), Receivers::open(&routed.far));
        for round in 1..=rounds() {
            let next: Vec<usize> =
                (0..ROUTES).map(|number| (now[number] + 1 + number % 3) % 4).collect();
            let before = Counts::of(&routed, &router);
            let (arrivals, end, sent) = traffic(&routed, start, &mut receivers, || {
                std::thread::sleep(Duration::from_millis(300));
                run(&routed, "change", &lines("replace", |number| next[number]));
            });
            let lost = before.account(&routed, &router, sent, arrivals.len() as u64);
            let allowed = (0..ROUTES).map(|number| [now[number], next[number]]).collect();
            let result = Round { allowed, arrivals };
            let latest = result.latest(end);
            println!(
                "{mechanism:?}, round {round}: {} of {sent} packets arrived, lost {lost:?}; the \
                 last by the old way was sent {latest:?} after ip had ended",
                result.arrivals.len()
            );
            print_switchover(&result, end);
            assert!(result.arrivals.len() as u64 > sent / 2, "{sent} sent: {lost:?}");
            now = next;
        }
        println!("{mechanism:?}: {:?}", counters(&router, &[]));
        router.stop();
    }
}

fn run(routed: &Routed, name: &str, lines: &[String]) {
    let path = batch(&routed.lab, name, lines);
    routed.router().run(&["ip", "-batch", path.to_str().expect("text")]);
}

/// Sends packets during `change`, and one to each destination after it. Every second packet goes to
/// the destination that changes last. Returns the arrivals, the time when the change had ended and
/// the number of packets that Linux has accepted.
fn traffic(
    routed: &Routed,
    start: Instant,
    receivers: &mut Receivers,
    change: impl FnOnce(),
) -> (Vec<Arrival>, Duration, u64) {
    let (done, changed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut sender = Sender::new(&routed.lab.right, NEAR, start);
            while !done.load(Ordering::Relaxed) {
                let last = changed.load(Ordering::Relaxed);
                let to = |number| [number * 7 % ROUTES, ROUTES - 1];
                let to = (0..ROUTES).flat_map(to).map(destination);
                sender.send_all(to.map(|to| (to, 2152)));
                done.store(last, Ordering::Relaxed);
            }
            sender.accepted()
        });
        let receiver = scope.spawn(|| {
            let mut arrivals = Vec::new();
            while !done.load(Ordering::Relaxed) {
                arrivals.extend(receivers.receive_until_quiet(100, Duration::from_secs(1)));
            }
            arrivals.extend(receivers.receive_all());
            arrivals
        });
        let flag = DropFlag(&changed);
        change();
        let end = start.elapsed();
        drop(flag);
        let sent = sender.join().expect("it does not panic");
        (receiver.join().expect("it does not panic"), end, sent)
    })
}

fn rounds() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 20 } else { 2 }
}

/// Control of the accounting: small rings and a paused router cause losses.
#[test]
fn what_does_not_fit_is_under_a_counter() {
    const RING: usize = 64;
    const PROBES: usize = 20_000;
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-narrow") else { return };
        routed.add_hops();
        routed.without_ipv6();
        routed.ip(&format!("route add 10.200.0.0/16 via {}", hop_address(0)));
        let port = |wire: &str| {
            let mut driver = mechanism.on(wire);
            let of_driver = driver.as_object_mut().and_then(|it| it.values_mut().next());
            let key = if mechanism == Mechanism::Packet { "ring" } else { "receive-ring" };
            of_driver.expect("one driver")[key] = json!(RING);
            json!({"driver": driver, "steer": [{"ethertype": "ipv4"}, {"ethertype": "ipv6"}]})
        };
        let ports = json!({"wire0": port("wire0"), "wire1": port("wire1"), "wire2": port("wire2")});
        let router = routed.start(mechanism, &[("ports", ports)]);
        let mut receivers = Receivers::open(&routed.far);
        let mut sender = Sender::new(&routed.lab.right, NEAR, Instant::now());
        let before = Counts::of(&routed, &router);
        let mut send = |probes: Range<usize>| {
            for probe in probes {
                sender.send(destination(probe % ROUTES), 2152);
            }
        };
        send(0..PROBES / 2);
        router.process.pause();
        send(PROBES / 2..PROBES / 2 + 4 * RING);
        router.process.resume();
        send(PROBES / 2 + 4 * RING..PROBES);
        let arrivals = receivers.receive_all().len() as u64;
        let lost = before.account(&routed, &router, sender.accepted(), arrivals);
        println!("{mechanism:?}: {arrivals} of {} arrived, lost {lost:?}", sender.accepted());
        assert_eq!(arrivals + lost.values().sum::<u64>(), sender.accepted());
        assert!(arrivals > 0 && !lost.is_empty(), "nothing was lost: {lost:?}");
        router.stop();
    }
}
