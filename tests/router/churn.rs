//! Ten thousand routes change while packets flow: each packet takes the way before or the way
//! after, and each that does not arrive is under a counter.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastlane_tests::routed::{
    Counts, Gun, Hit, Routed, Sinks, batch, counters, hop_address, hop_mac,
};
use fastlane_tests::{Mechanism, mac};
use serde_json::json;

use super::{MECHANISMS, NEAR};

const ROUTES: usize = 10_000;
const FIRST: u32 = u32::from_be_bytes([10, 200, 0, 0]);

/// Commands of `ip -batch` about the routes to all destinations.
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

/// Which destination that is.
fn number(destination: IpAddr) -> usize {
    match destination {
        IpAddr::V4(address) => (address.to_bits() - FIRST) as usize,
        IpAddr::V6(address) => panic!("{address}"),
    }
}

/// What has arrived in a round, against what was allowed.
struct Round {
    /// Of each destination the next hop before and after.
    allowed: Vec<[usize; 2]>,
    hits: Vec<Hit>,
}

impl Round {
    /// How long after `end` the last packet was sent that still took the old way.
    fn latest(&self, end: Duration) -> Duration {
        let mut latest = Duration::ZERO;
        let mut has_changed = vec![false; self.allowed.len()];
        let mut hits: Vec<&Hit> = self.hits.iter().collect();
        hits.sort_by_key(|hit| hit.shot.number);
        for hit in hits {
            let number = number(hit.shot.to);
            let [before, after] = self.allowed[number];
            assert!(hit.is_sound && hit.time_to_live == 63, "{hit:?}");
            if hit.mac == mac(&hop_mac(after)) {
                has_changed[number] = true;
            } else {
                assert_eq!(hit.mac, mac(&hop_mac(before)), "never configured: {hit:?}");
                assert!(!has_changed[number], "back to the old way: {hit:?}");
                latest = latest.max(hit.shot.at.saturating_sub(end));
            }
        }
        latest
    }
}

/// Of the packets to the destination whose route changed last: when the last by the old way and the
/// first by the new way were sent, in milliseconds after `end`, when `ip` had ended.
fn tell_turning_point(round: &Round, end: Duration) {
    let last = destination(ROUTES - 1);
    let new = mac(&hop_mac(round.allowed[ROUTES - 1][1]));
    let times = |by_new: bool| {
        let hits = round.hits.iter().filter(move |hit| hit.shot.to == last);
        let hits = hits.filter(move |hit| (hit.mac == new) == by_new);
        hits.map(move |hit| (hit.shot.at.as_secs_f64() - end.as_secs_f64()) * 1e3)
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
        let (start, mut sinks) = (Instant::now(), Sinks::open(&routed.far));
        for round in 1..=rounds() {
            let next: Vec<usize> =
                (0..ROUTES).map(|number| (now[number] + 1 + number % 3) % 4).collect();
            let before = Counts::of(&routed, &router);
            let (hits, end, sent) = traffic(&routed, start, &mut sinks, || {
                std::thread::sleep(Duration::from_millis(300));
                run(&routed, "change", &lines("replace", |number| next[number]));
            });
            let lost = before.account(&routed, &router, sent, hits.len() as u64);
            let allowed = (0..ROUTES).map(|number| [now[number], next[number]]).collect();
            let result = Round { allowed, hits };
            let latest = result.latest(end);
            println!(
                "{mechanism:?}, round {round}: {} of {sent} packets arrived, lost {lost:?}; the \
                 last by the old way was sent {latest:?} after ip had ended",
                result.hits.len()
            );
            tell_turning_point(&result, end);
            assert!(result.hits.len() as u64 > sent / 2, "{sent} sent: {lost:?}");
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

/// Packets while `change` is under way, and once round all destinations after it: what arrived,
/// when the change had ended, and how many Linux has taken. Every second packet goes where the
/// route is the last to change.
fn traffic(
    routed: &Routed,
    start: Instant,
    sinks: &mut Sinks,
    change: impl FnOnce(),
) -> (Vec<Hit>, Duration, u64) {
    let (done, changed) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut gun = Gun::new(&routed.lab.right, NEAR, start);
            while !done.load(Ordering::Relaxed) {
                let last = changed.load(Ordering::Relaxed);
                let to = |number| [number * 7 % ROUTES, ROUTES - 1];
                let to = (0..ROUTES).flat_map(to).map(destination);
                gun.volley(to.map(|to| (to, 2152)));
                done.store(last, Ordering::Relaxed);
            }
            gun.taken()
        });
        let receiver = scope.spawn(|| {
            let mut hits = Vec::new();
            while !done.load(Ordering::Relaxed) {
                hits.extend(sinks.gather_while(100, Duration::from_secs(1)));
            }
            hits.extend(sinks.gather_all());
            hits
        });
        change();
        let end = start.elapsed();
        changed.store(true, Ordering::Relaxed);
        let sent = sender.join().expect("it does not panic");
        (receiver.join().expect("it does not panic"), end, sent)
    })
}

fn rounds() -> usize {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 20 } else { 2 }
}

/// The control of the account: with small rings, and a router that stands still for a while, there
/// is something to count.
#[test]
fn what_does_not_fit_is_under_a_counter() {
    const RING: usize = 64;
    const SHOTS: usize = 20_000;
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
        let mut sinks = Sinks::open(&routed.far);
        let mut gun = Gun::new(&routed.lab.right, NEAR, Instant::now());
        let before = Counts::of(&routed, &router);
        let mut shoot = |shots: Range<usize>| {
            for shot in shots {
                gun.shoot(destination(shot % ROUTES), 2152);
            }
        };
        shoot(0..SHOTS / 2);
        router.process.pause();
        shoot(SHOTS / 2..SHOTS / 2 + 4 * RING);
        router.process.resume();
        shoot(SHOTS / 2 + 4 * RING..SHOTS);
        let hits = sinks.gather_all().len() as u64;
        let lost = before.account(&routed, &router, gun.taken(), hits);
        println!("{mechanism:?}: {hits} of {} arrived, lost {lost:?}", gun.taken());
        assert_eq!(hits + lost.values().sum::<u64>(), gun.taken());
        assert!(hits > 0 && !lost.is_empty(), "nothing was lost: {lost:?}");
        router.stop();
    }
}
