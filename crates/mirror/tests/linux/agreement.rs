//! Tests that the final state equals that of Linux.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_mirror::model::NeighbourId;
use fastlane_mirror::{FallbackReason, MirrorSettings, RouteLookup};

use crate::oracle::{is_same, route_get};
use crate::rig::{self, ROUTERS, Rig, ip};

const MANY: [&str; 22] = [
    "route add 10.1.0.0/16 via 10.0.1.2",
    "route add 10.1.1.0/24 via 10.0.2.2",
    "route add 10.1.1.128/25 dev d0",
    "route add 10.2.0.0/16 via 10.0.1.2 metric 50",
    "route add 10.2.0.0/16 via 10.0.1.3 metric 10",
    "route add 10.3.0.0/16 nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2",
    "route add blackhole 10.4.0.0/16",
    "route add unreachable 10.4.1.0/24",
    "route add prohibit 10.4.2.0/24",
    "route add throw 10.4.3.0/24",
    "route add 10.5.0.1 via 10.0.1.3 mtu 1400",
    "route add default via 10.0.2.2",
    "route add local 10.6.0.0/24 dev lo",
    "route add 10.6.0.64/26 via 10.0.1.2",
    "route add 10.7.0.0/16 via inet6 2001:db8:1::2 dev d0",
    "route add 10.1.1.0/24 table 100 via 10.0.1.3",
    "-6 route add 2001:db8:100::/48 via 2001:db8:1::2",
    "-6 route add 2001:db8:100:1::/64 via 2001:db8:2::2",
    "-6 route add 2001:db8:101::/48 nexthop via 2001:db8:1::2 weight 2 nexthop via 2001:db8:2::2",
    "-6 route add blackhole 2001:db8:102::/48",
    "-6 route add default via 2001:db8:1::3 metric 5",
    "-6 route add 2001:db8:103::1 dev d1",
];

/// Compares both the dumped and the followed model.
#[test]
fn the_model_is_what_ip_shows() {
    if !rig::namespace("the_model_is_what_ip_shows") {
        return;
    }
    let settings = || MirrorSettings { tables: vec![254, 100], ..rig::settings() };
    let mut heard = Rig::open(settings());
    for route in MANY {
        ip(route);
    }
    // Reachable for longer than a busy machine takes to look at it twice.
    std::fs::write("/proc/sys/net/ipv4/neigh/d0/base_reachable_time_ms", "3600000").unwrap();
    ip("neighbour add 10.0.1.77 lladdr 02:00:00:00:00:77 nud stale dev d0");
    ip("neighbour add 10.0.1.78 lladdr 02:00:00:00:00:78 nud reachable dev d0");
    heard.settle();
    is_same(&heard, &[254, 255, 100]);
    let dumped = Rig::open(settings());
    is_same(&dumped, &[254, 255, 100]);
    let changes = dumped.follower.state().differences(heard.follower.state());
    assert!(changes.is_empty(), "{changes:?}");
    for rig in [&heard, &dumped] {
        answers_are_right(rig);
        answers_are_those_of_linux(rig);
    }
    for route in MANY.iter().rev() {
        ip(&route.replace("route add", "route del"));
    }
    heard.settle();
    is_same(&heard, &[254, 255, 100]);
    assert_eq!(heard.asks("10.1.2.3"), FallbackReason::NoRoute);
    let statistics = heard.follower.statistics();
    assert_eq!((statistics.resyncs, statistics.malformed), (1, 0), "{statistics:?}");
}

fn answers_are_right(rig: &Rig) {
    let next = rig.forward("10.1.2.3");
    assert_eq!((next.port.0, next.destination, next.mtu), (0, ROUTERS[0], 1500));
    assert_eq!(next.source, rig.mirror.link(&rig.guard, next.link).unwrap().mac());
    assert_eq!(rig.forward("10.1.1.3").destination, ROUTERS[2]);
    assert_eq!(rig.asks("10.1.1.200"), FallbackReason::NoNeighbour, "on the link, and unknown");
    assert_eq!(rig.forward("10.0.1.77").destination, [2, 0, 0, 0, 0, 0x77]);
    assert_eq!(rig.forward("10.2.0.1").destination, ROUTERS[1], "the lower metric");
    for (destination, reason) in [
        ("10.4.0.1", FallbackReason::Blackhole),
        ("10.4.1.1", FallbackReason::Unreachable),
        ("10.4.2.1", FallbackReason::Prohibit),
        ("10.4.3.1", FallbackReason::Throw),
        ("10.0.1.1", FallbackReason::Local),
        ("10.0.1.255", FallbackReason::Broadcast),
        ("10.6.0.1", FallbackReason::Local),
        ("10.6.0.65", FallbackReason::Local),
        ("127.0.0.1", FallbackReason::Martian),
        ("224.0.0.1", FallbackReason::Multicast),
        ("2001:db8:102::1", FallbackReason::Blackhole),
        ("2001:db8:1::1", FallbackReason::Local),
        ("fe80::1", FallbackReason::Martian),
        ("ff02::1", FallbackReason::Multicast),
    ] {
        assert_eq!(rig.asks(destination), reason, "{destination}");
    }
    assert_eq!(rig.forward("10.5.0.1").mtu, 1400);
    assert_eq!(rig.forward("10.7.0.1").destination, ROUTERS[0], "a router of the other family");
    assert_eq!(rig.forward("9.9.9.9").destination, ROUTERS[2]);
    assert_eq!(rig.forward("2001:db8:100::1").destination, ROUTERS[0]);
    assert_eq!(rig.forward("2001:db8:100:1::1").port.0, 1);
    assert_eq!(rig.forward("2001:4860::1").destination, ROUTERS[1]);
    let table = rig.mirror.table(&rig.guard, 100).unwrap();
    let other =
        |text: &str| rig.mirror.route(&rig.guard, table, text.parse::<Ipv4Addr>().unwrap(), 0);
    assert!(
        matches!(other("10.1.1.1"), RouteLookup::Forward(hop) if hop.destination == ROUTERS[1])
    );
    assert_eq!(other("10.1.2.1"), RouteLookup::Fallback(FallbackReason::NoRoute));
    assert_eq!(other("10.0.1.1"), RouteLookup::Fallback(FallbackReason::Local), "in each table");
    assert_eq!(rig.mirror.table(&rig.guard, 101), None);
    assert!(rig.mirror.is_local(&rig.guard, "10.0.2.1".parse().unwrap()));
    assert!(!rig.mirror.is_local(&rig.guard, "10.0.2.2".parse().unwrap()));
}

/// Compares lookups with `ip route get`, for addresses inside, beside and outside of the routes.
fn answers_are_those_of_linux(rig: &Rig) {
    let mut forwarded = 0;
    for number in 0..60_u32 {
        let four =
            Ipv4Addr::from_bits(0x0a00_0000 | ((number % 8) << 16) | ((number * 0x1357) & 0xffff));
        let six = Ipv6Addr::from_bits(
            0x2001_0db8 << 96 | u128::from(0x100 + number % 5) << 80 | u128::from(number) << 60,
        );
        for destination in [IpAddr::V4(four), IpAddr::V6(six)] {
            let RouteLookup::Forward(next) = rig.look_with(&destination.to_string(), number << 26)
            else {
                continue;
            };
            let said = route_get(destination);
            let (dev, via) = said.unwrap_or_else(|| panic!("{destination}: Linux has no route"));
            let several = [[10, 3], [0x20, 1]].iter().any(|first| match destination {
                IpAddr::V4(address) => address.octets()[..2] == *first,
                IpAddr::V6(address) => address.segments()[2] == 0x101,
            });
            if !several {
                assert_eq!(dev, format!("d{}", next.port.0), "{destination}");
                let state = rig.follower.state();
                let router = via.unwrap_or(destination);
                // A route of IPv4 through a router with an IPv6 address shows none.
                if let Some(known) =
                    state.neighbours().get(&NeighbourId { link: next.link, address: router })
                {
                    assert_eq!(known.mac, Some(next.destination), "{destination}");
                }
            }
            forwarded += 1;
        }
    }
    assert!(forwarded > 60, "{forwarded} only");
}

#[test]
fn many_at_once_are_answered_like_one() {
    let Some(mut rig) = Rig::new("many_at_once_are_answered_like_one") else { return };
    for route in MANY {
        ip(route);
    }
    rig.settle();
    let four: Vec<Ipv4Addr> =
        (0..333).map(|n| Ipv4Addr::from_bits(0x0a00_0000 | (n * 0x6789))).collect();
    let six: Vec<Ipv6Addr> =
        (0..333).map(|n| Ipv6Addr::from_bits(0x2001_0db8_0100 << 80 | n << 77 | n)).collect();
    let hashes: Vec<u32> = (0..333_u32).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
    let mut answers = vec![RouteLookup::Fallback(FallbackReason::NoTable); 333];
    rig.mirror.route4_many(&rig.guard, &four, &hashes, &mut answers);
    for (place, destination) in four.iter().enumerate() {
        let one = rig.mirror.route4(&rig.guard, *destination, hashes[place]);
        assert_eq!(answers[place], one, "{destination}");
    }
    assert!(answers.iter().any(|answer| matches!(answer, RouteLookup::Forward(_))));
    rig.mirror.route6_many(&rig.guard, &six, &hashes, &mut answers);
    for (place, destination) in six.iter().enumerate() {
        let one = rig.mirror.route6(&rig.guard, *destination, hashes[place]);
        assert_eq!(answers[place], one, "{destination}");
    }
    // Only what has a hash and room is answered.
    let mut few = vec![RouteLookup::Fallback(FallbackReason::NoTable); 10];
    rig.mirror.route4_many(&rig.guard, &four, &hashes[..5], &mut few);
    assert_eq!(few[5..], [RouteLookup::Fallback(FallbackReason::NoTable); 5]);
    assert_ne!(few[0], RouteLookup::Fallback(FallbackReason::NoTable));
}
