//! Tests of multipath routes and next-hop objects.

use std::collections::BTreeMap;

use fastlane_mirror::{FallbackReason, MirrorSettings, RouteLookup};

use crate::oracle::is_same;
use crate::rig::{self, Rig, ip};

/// Counts 1,000 flows by router, identified by the last byte of its Ethernet address.
fn shares(rig: &Rig, destination: &str) -> BTreeMap<u8, u32> {
    let mut shares = BTreeMap::new();
    for flow in 0..1000_u32 {
        let hash = (u64::from(flow) * (1 << 32) / 1000) as u32;
        match rig.look_with(destination, hash) {
            RouteLookup::Forward(next) => *shares.entry(next.destination[5]).or_default() += 1,
            RouteLookup::Fallback(reason) => panic!("{destination}: {reason:?}"),
        }
    }
    shares
}

#[test]
fn flows_are_shared_out_by_weight() {
    let Some(mut rig) = Rig::new("flows_are_shared_out_by_weight") else { return };
    let add = "route replace 10.3.0.0/16";
    rig.ip(&format!("{add} nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2 weight 1"));
    assert_eq!(shares(&rig, "10.3.0.1"), BTreeMap::from([(0x12, 750), (0x22, 250)]));
    rig.ip("-6 route add 2001:db8:101::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:2::2");
    assert_eq!(shares(&rig, "2001:db8:101::1"), BTreeMap::from([(0x12, 500), (0x22, 500)]));
    // One hop less, one more: Linux tells of a part of the route.
    rig.ip("-6 route del 2001:db8:101::/48 via 2001:db8:2::2");
    assert_eq!(shares(&rig, "2001:db8:101::1"), BTreeMap::from([(0x12, 1000)]));
    is_same(&rig, &[254, 255]);
    rig.ip("-6 route append 2001:db8:101::/48 via 2001:db8:1::3");
    assert_eq!(shares(&rig, "2001:db8:101::1"), BTreeMap::from([(0x12, 500), (0x13, 500)]));
    is_same(&rig, &[254, 255]);
    rig.ip("-6 route replace 2001:db8:101::/48 via 2001:db8:2::2");
    assert_eq!(shares(&rig, "2001:db8:101::1"), BTreeMap::from([(0x22, 1000)]));
    is_same(&rig, &[254, 255]);

    rig.ip("link set d1 down");
    assert_eq!(shares(&rig, "10.3.0.1"), BTreeMap::from([(0x12, 1000)]), "what is left");
    rig.ip("link set d1 up");
    fastlane_testing::namespace::wait_until_up("d1");
    rig::neighbours();
    rig.settle();
    assert_eq!(shares(&rig, "10.3.0.1"), BTreeMap::from([(0x12, 750), (0x22, 250)]));
    is_same(&rig, &[254, 255]);
    let statistics = rig.follower.statistics();
    assert_eq!((statistics.malformed, statistics.overruns), (0, 0), "{statistics:?}");
}

#[test]
fn next_hop_objects_are_followed() {
    let Some(mut rig) = Rig::new("next_hop_objects_are_followed") else { return };
    ip("nexthop add id 12 via 10.0.1.2 dev d0");
    ip("nexthop add id 13 via 10.0.1.3 dev d0");
    ip("nexthop add id 22 via 10.0.2.2 dev d1");
    ip("nexthop add id 100 group 12,3/22");
    ip("nexthop add id 200 blackhole");
    ip("route add 10.3.0.0/16 nhid 100");
    ip("route add 10.4.0.0/16 nhid 13");
    rig.ip("route add 10.5.0.0/16 nhid 200");
    assert_eq!(shares(&rig, "10.3.0.1"), BTreeMap::from([(0x12, 750), (0x22, 250)]));
    assert_eq!(rig.asks("10.5.0.1"), FallbackReason::Blackhole);
    let fresh = Rig::open(rig::settings());
    assert_eq!(shares(&fresh, "10.3.0.1"), shares(&rig, "10.3.0.1"));
    is_same(&rig, &[254, 255]);
    // The routes themselves do not change now.
    ip("nexthop replace id 100 group 13");
    rig.ip("nexthop replace id 13 via 10.0.2.2 dev d1");
    assert_eq!(shares(&rig, "10.3.0.1"), BTreeMap::from([(0x22, 1000)]));
    assert_eq!(shares(&rig, "10.4.0.1"), BTreeMap::from([(0x22, 1000)]));
    is_same(&rig, &[254, 255]);
    rig.ip("nexthop del id 13");
    assert_eq!(rig.asks("10.4.0.1"), FallbackReason::NoRoute);
    assert_eq!(rig.asks("10.3.0.1"), FallbackReason::NoRoute);
    is_same(&rig, &[254, 255]);
}

#[test]
fn routes_have_numbers_that_stay() {
    if !rig::namespace("routes_have_numbers_that_stay") {
        return;
    }
    let mut rig = Rig::open(MirrorSettings { count_routes: true, ..rig::settings() });
    ip("route add 10.1.0.0/16 via 10.0.1.2");
    rig.ip("route add 10.2.0.0/16 via 10.0.1.2");
    let [one, two] = ["10.1.0.1", "10.2.0.1"].map(|destination| rig.forward(destination).route);
    assert_ne!(one, two);
    assert!((one.max(two) as usize) < rig.mirror.route_numbers());
    rig.ip("route replace 10.1.0.0/16 via 10.0.2.2");
    let next = rig.forward("10.1.0.1");
    assert_eq!((next.route, next.port.0), (one, 1), "other ways, the same route");
    let mut shared = Rig::open(rig::settings());
    shared.ip("route replace 10.1.0.0/16 via 10.0.1.2");
    assert_eq!(shared.forward("10.1.0.1").route, shared.forward("10.2.0.1").route);
}
