//! Routing with two lanes, IPv4 and IPv6: each lane routes as Linux says.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastlane_tests::routed::{
    Lanes, Receivers, Routed, Sender, hop_address, hop_address6, hop_mac,
};
use fastlane_tests::{Application, Mechanism, eventually, mac};

use super::{NEAR, wait_until_counted};

const FLOWS: std::ops::Range<u16> = 2000..2128;

/// An address family, in words of `ip`.
#[derive(Debug)]
struct Family {
    near: IpAddr,
    to: IpAddr,
    prefix: &'static str,
    hop: fn(usize) -> String,
    /// Address of the router on `wire2`.
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

/// Waits until each flow leaves by one of these next hops; none may leave if there are none.
/// Returns the next hop of each flow.
#[track_caller]
fn wait_until_leaving_by(
    sender: &mut Sender,
    receivers: &mut Receivers,
    to: IpAddr,
    hops: &[usize],
) -> BTreeMap<u16, [u8; 6]> {
    let allowed: Vec<[u8; 6]> = hops.iter().map(|hop| mac(&hop_mac(*hop))).collect();
    let mut next_hops = BTreeMap::new();
    eventually(&format!("all flows to {to} leave by {hops:?}"), || {
        receivers.poll();
        let first = sender.send(to, FLOWS.start).number;
        sender.send_all(FLOWS.skip(1).map(|port| (to, port)));
        std::thread::sleep(Duration::from_millis(20));
        let arrivals = receivers.receive_until_quiet(FLOWS.len(), Duration::from_secs(1));
        let arrivals = arrivals
            .iter()
            .filter(|arrival| arrival.probe.number >= first && arrival.probe.to == to);
        assert!(
            arrivals
                .clone()
                .all(|arrival| arrival.time_to_live == 63 && arrival.has_valid_checksum)
        );
        next_hops = arrivals.map(|arrival| (arrival.probe.port, arrival.mac)).collect();
        let count = if allowed.is_empty() { 0 } else { FLOWS.len() };
        next_hops.len() == count && next_hops.values().all(|way| allowed.contains(way))
    });
    next_hops
}

fn routes_hold(lanes: Lanes, mechanism: Mechanism, family: &Family) {
    let story = format!("router-{lanes:?}-{mechanism:?}-{}", family.to.is_ipv6());
    let Some(routed) = Routed::with_queues(&story, lanes.queues()) else { return };
    routed.add_hops();
    let Family { near, to, prefix, hop, own } = family;
    let (one, other) = (hop(0), hop(2));
    routed.ip(&format!("route add {prefix} via {one}"));
    let router = routed.start_with(lanes, mechanism, &[]);
    let mut receivers = Receivers::open(&routed.far);
    let mut sender = Sender::new(&routed.lab.right, *near, Instant::now());
    wait_until_leaving_by(&mut sender, &mut receivers, *to, &[0]);
    // Another next hop, by another wire.
    routed.ip(&format!("route replace {prefix} via {}", hop(3)));
    wait_until_leaving_by(&mut sender, &mut receivers, *to, &[3]);
    // Two, which share the flows: each flow has one, whichever lane gets it.
    let both = format!("nexthop via {one} weight 1 nexthop via {other} weight 1");
    routed.ip(&format!("route replace {prefix} {both}"));
    let next_hops = wait_until_leaving_by(&mut sender, &mut receivers, *to, &[0, 2]);
    let share = next_hops.values().filter(|way| **way == mac(&hop_mac(0))).count();
    // Six standard deviations of a fair choice.
    assert!(share.abs_diff(FLOWS.len() / 2) < 34, "{share} of {}", FLOWS.len());
    assert_eq!(
        wait_until_leaving_by(&mut sender, &mut receivers, *to, &[0, 2]),
        next_hops,
        "one flow, one way"
    );
    // One is withdrawn with its wire, and comes again.
    routed.ip("link set wire2 down");
    wait_until_leaving_by(&mut sender, &mut receivers, *to, &[0]);
    routed.ip("link set wire2 up");
    routed.ip(&format!(
        "address replace {own} dev wire2{}",
        if to.is_ipv6() { " nodad" } else { "" }
    ));
    routed.add_hops();
    routed.ip(&format!("route replace {prefix} {both}"));
    eventually("flows go both next_hops again", || {
        wait_until_leaving_by(&mut sender, &mut receivers, *to, &[0, 2]) == next_hops
    });
    // No way at all.
    routed.ip(&format!("route replace blackhole {prefix}"));
    wait_until_leaving_by(&mut sender, &mut receivers, *to, &[]);
    wait_until_counted(&router, "linux_blackhole", || {
        sender.send(*to, FLOWS.start);
    });
    check_lanes(lanes, &router);
    router.stop();
}

/// Asserts which lanes have received and processed packets of `wire0`.
fn check_lanes(lanes: Lanes, router: &Application) {
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
