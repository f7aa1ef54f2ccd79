//! Tests that tables which are too small never misroute packets.

use fastlane_core::PortId;
use fastlane_mirror::{FallbackReason, MirrorSettings};

use crate::rig::{self, Rig, ip};

#[test]
fn a_route_without_room_is_not_shadowed() {
    if !rig::namespace("a_route_without_room_is_not_shadowed") {
        return;
    }
    let mut rig = Rig::open(MirrorSettings { routes4: 40, ..rig::settings() });
    ip("route add 10.1.0.0/16 via 10.0.1.2");
    for third in 0..60 {
        ip(&format!("route add 10.1.{third}.0/24 via 10.0.2.2"));
    }
    rig.follower.step().unwrap();
    assert_eq!(rig.asks("10.1.59.1"), FallbackReason::Incomplete);
    assert_eq!(rig.asks("10.1.200.1"), FallbackReason::Incomplete, "all of the family");
    assert_eq!(rig.forward("2001:db8:1::2").port, PortId(0), "not the other one");
    let notices = rig.follower.take_notices();
    assert!(notices.len() == 1 && notices[0].contains("raise the mirror's number of routes"));
    assert!(rig.follower.statistics().occupancy.waiting > 0);
    for third in 0..59 {
        ip(&format!("route del 10.1.{third}.0/24"));
    }
    rig.settle();
    assert_eq!(rig.forward("10.1.59.1").port, PortId(1), "there is room again");
    assert_eq!(rig.forward("10.1.58.1").port, PortId(0));
    assert_eq!(rig.follower.statistics().occupancy.waiting, 0);
}

#[test]
fn without_room_for_their_ways_routes_ask() {
    if !rig::namespace("without_room_for_their_ways_routes_ask") {
        return;
    }
    let mut rig = Rig::open(MirrorSettings { hops: 4, neighbours: 2, ..rig::settings() });
    ip("route add 10.1.0.0/16 via 10.0.1.2");
    for last in 100..120 {
        ip(&format!("route add 10.1.{last}.0/24 via 10.0.1.{last}"));
    }
    rig.follower.step().unwrap();
    assert_eq!(rig.asks("10.1.119.1"), FallbackReason::Incomplete);
    assert_eq!(rig.forward("10.1.0.1").port, PortId(0));
    let notices = rig.follower.take_notices();
    assert!(notices.iter().any(|notice| notice.contains("number of hops")), "{notices:?}");
    assert!(notices.iter().any(|notice| notice.contains("number of neighbours")), "{notices:?}");
    for last in 100..120 {
        ip(&format!("route del 10.1.{last}.0/24"));
    }
    rig.follower.step().unwrap();
    rig.ip("route add 10.1.119.0/24 via 10.0.1.3");
    assert_eq!(rig.forward("10.1.119.1").port, PortId(0));
}
