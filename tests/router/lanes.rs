//! Two lanes, both families: whoever gets a packet, it goes as Linux says.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastlane_tests::routed::{Gun, Lanes, Routed, Sinks, hop_address, hop_address6, hop_mac};
use fastlane_tests::{Application, Mechanism, eventually, mac};

use super::{NEAR, rises};

const FLOWS: std::ops::Range<u16> = 2000..2128;

/// One family, in words of `ip`.
#[derive(Debug)]
struct Family {
    near: IpAddr,
    to: IpAddr,
    prefix: &'static str,
    hop: fn(usize) -> String,
    /// The router's address on `wire2`.
    own: &'static str,
}

fn families() -> [Family; 2] {
    let address = |text: &str| text.parse().expect("an address");
    [
        Family {
            near: NEAR.into(),
            to: address("10.100.1.1"),
            prefix: "10.100.0.0/16",
            hop: hop_address,
            own: "10.79.0.1/24",
        },
        Family {
            near: address("fd77::2"),
            to: address("fd00:100::1"),
            prefix: "fd00:100::/32",
            hop: hop_address6,
            own: "fd79::1/64",
        },
    ]
}

/// Waits until one packet of each flow leaves by one of these next hops, and none by another or not
/// at all; by which.
#[track_caller]
fn leave_by(
    gun: &mut Gun,
    sinks: &mut Sinks,
    to: IpAddr,
    hops: &[usize],
) -> BTreeMap<u16, [u8; 6]> {
    let allowed: Vec<[u8; 6]> = hops.iter().map(|hop| mac(&hop_mac(*hop))).collect();
    let mut ways = BTreeMap::new();
    eventually(&format!("all flows to {to} leave by {hops:?}"), || {
        sinks.take();
        let first = gun.shoot(to, FLOWS.start).number;
        gun.volley(FLOWS.skip(1).map(|port| (to, port)));
        std::thread::sleep(Duration::from_millis(20));
        let hits = sinks.gather_while(FLOWS.len(), Duration::from_secs(1));
        let hits = hits.iter().filter(|hit| hit.shot.number >= first && hit.shot.to == to);
        assert!(hits.clone().all(|hit| hit.time_to_live == 63 && hit.is_sound));
        ways = hits.map(|hit| (hit.shot.port, hit.mac)).collect();
        let count = if allowed.is_empty() { 0 } else { FLOWS.len() };
        ways.len() == count && ways.values().all(|way| allowed.contains(way))
    });
    ways
}

fn routes_hold(lanes: Lanes, mechanism: Mechanism, family: &Family) {
    let story = format!("router-{lanes:?}-{mechanism:?}-{}", family.to.is_ipv6());
    let Some(routed) = Routed::with_queues(&story, lanes.queues()) else { return };
    routed.add_hops();
    let Family { near, to, prefix, hop, own } = family;
    let (one, other) = (hop(0), hop(2));
    routed.ip(&format!("route add {prefix} via {one}"));
    let router = routed.start_with(lanes, mechanism, &[]);
    let mut sinks = Sinks::open(&routed.far);
    let mut gun = Gun::new(&routed.lab.right, *near, Instant::now());
    leave_by(&mut gun, &mut sinks, *to, &[0]);
    // Another next hop, by another wire.
    routed.ip(&format!("route replace {prefix} via {}", hop(3)));
    leave_by(&mut gun, &mut sinks, *to, &[3]);
    // Two, which share the flows: each flow has one, whichever lane gets it.
    let both = format!("nexthop via {one} weight 1 nexthop via {other} weight 1");
    routed.ip(&format!("route replace {prefix} {both}"));
    let ways = leave_by(&mut gun, &mut sinks, *to, &[0, 2]);
    let share = ways.values().filter(|way| **way == mac(&hop_mac(0))).count();
    // Six standard deviations of a fair choice.
    assert!(share.abs_diff(FLOWS.len() / 2) < 34, "{share} of {}", FLOWS.len());
    assert_eq!(leave_by(&mut gun, &mut sinks, *to, &[0, 2]), ways, "one flow, one way");
    // One is withdrawn with its wire, and comes again.
    routed.ip("link set wire2 down");
    leave_by(&mut gun, &mut sinks, *to, &[0]);
    routed.ip("link set wire2 up");
    routed.ip(&format!(
        "address replace {own} dev wire2{}",
        if to.is_ipv6() { " nodad" } else { "" }
    ));
    routed.add_hops();
    routed.ip(&format!("route replace {prefix} {both}"));
    eventually("flows go both ways again", || leave_by(&mut gun, &mut sinks, *to, &[0, 2]) == ways);
    // No way at all.
    routed.ip(&format!("route replace blackhole {prefix}"));
    leave_by(&mut gun, &mut sinks, *to, &[]);
    rises(&router, "linux_blackhole", || {
        gun.shoot(*to, FLOWS.start);
    });
    who_worked(lanes, &router);
    router.stop();
}

/// Which lanes have labelled packets of `wire0`, and which have received them.
fn who_worked(lanes: Lanes, router: &Application) {
    let totals = router.totals();
    let of = |lane: u64, counter: &str| {
        let entries = totals.0["ports"].as_array().expect("a list of ports").iter();
        let mut of_lane = entries.filter(|it| it["lane"] == lane && it["port"] == "wire0");
        let counters = of_lane.next().map(|it| it["counters"][counter].as_u64());
        counters.flatten().expect("a counter")
    };
    let forwarded = [0, 1].map(|lane| of(lane, "verdict_forward"));
    let received = [0, 1].map(|lane| of(lane, "received_packets"));
    println!("{lanes:?}: labelled {forwarded:?}, received {received:?}");
    match lanes {
        Lanes::One => unreachable!("not asked"),
        Lanes::ByDevice => assert_eq!(totals.port("wire0", "passed_packets"), 0),
        Lanes::ByFlow => assert!(totals.port("wire0", "passed_packets") > 0),
        Lanes::MasterWorker => assert!(forwarded[1] == 0 && received[0] == 0),
    }
    if lanes != Lanes::MasterWorker {
        assert!(forwarded.iter().chain(&received).all(|count| *count > 100));
    }
    let busy = forwarded.iter().sum::<u64>();
    assert_eq!(totals.port("wire0", "verdict_forward"), busy);
}

#[test]
fn lanes_by_flow_route_as_linux_says() {
    for family in families() {
        routes_hold(Lanes::ByFlow, Mechanism::XdpNative, &family);
    }
}

#[test]
fn lanes_by_device_route_as_linux_says() {
    for family in families() {
        routes_hold(Lanes::ByDevice, Mechanism::XdpNative, &family);
    }
}

#[test]
fn a_worker_routes_as_linux_says() {
    for family in families() {
        routes_hold(Lanes::MasterWorker, Mechanism::Packet, &family);
    }
}
