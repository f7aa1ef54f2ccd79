//! Tests of changes while lanes look up.

use fastlane_core::PortId;
use fastlane_mirror::{FallbackReason, KeepAlive, MirrorSettings, ReturnRoute};
use fastlane_testing::namespace;

use crate::oracle::is_same;
use crate::rig::{self, ROUTERS, Rig, ip};

#[test]
fn link_down_withdraws_and_up_brings_back() {
    let Some(mut rig) = Rig::new("link_down_withdraws_and_up_brings_back") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    rig.ip("route add 10.1.1.0/24 via 10.0.2.2");
    rig.ip("-6 route add 2001:db8:100::/48 via 2001:db8:2::2");
    assert_eq!(rig.forward("10.1.1.1").port, PortId(1));
    assert_eq!(rig.forward("2001:db8:100::1").port, PortId(1));

    ip("link set d1 down");
    rig.follower.step().unwrap();
    let next = rig.look("10.1.1.1");
    assert!(!format!("{next:?}").contains("PortId(1)"), "{next:?}");
    rig.settle();
    // Linux has removed the route, and says nothing about it.
    assert_eq!(rig.forward("10.1.1.1").port, PortId(0));
    is_same(&rig, &[254, 255]);

    rig.ip("link set d1 up");
    namespace::wait_until_up("d1");
    rig.settle();
    is_same(&rig, &[254, 255]);
    rig::neighbours();
    rig.ip("route add 10.1.1.0/24 via 10.0.2.2");
    assert_eq!(rig.forward("10.1.1.1").port, PortId(1));
    is_same(&rig, &[254, 255]);
}

/// Sets the interface down and up between two steps: the routes are gone though it works.
#[test]
fn a_link_that_was_down_for_a_moment_has_lost_its_routes() {
    let test = "a_link_that_was_down_for_a_moment_has_lost_its_routes";
    let Some(mut rig) = Rig::new(test) else { return };
    rig.ip("route add 10.1.1.0/24 via 10.0.2.2");
    assert_eq!(rig.forward("10.1.1.1").port, PortId(1));
    ip("link set d1 down");
    ip("link set d1 up");
    namespace::wait_until_up("d1");
    rig::neighbours();
    rig.settle();
    assert_eq!(rig.asks("10.1.1.1"), FallbackReason::NoRoute);
    is_same(&rig, &[254, 255]);
}

#[test]
fn without_a_carrier_linux_is_asked() {
    let Some(mut rig) = Rig::new("without_a_carrier_linux_is_asked") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    ip("link set p0 down");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while rig.mirror.link(&rig.guard, rig::index("d0")).unwrap().is_up() {
        rig.settle();
        assert!(std::time::Instant::now() < end, "the carrier stays");
    }
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::LinkDown);
    ip("link set p0 up");
    namespace::wait_until_up("d0");
    rig::neighbours();
    rig.settle();
    assert_eq!(rig.forward("10.1.0.1").port, PortId(0));
    is_same(&rig, &[254, 255]);
}

#[test]
fn mtu_mac_and_name_are_followed() {
    let Some(mut rig) = Rig::new("mtu_mac_and_name_are_followed") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    rig.ip("-6 route add 2001:db8:100::/48 via 2001:db8:1::2");
    rig.ip("link set d0 mtu 1400");
    assert_eq!(rig.forward("10.1.0.1").mtu, 1400);
    namespace::command("sysctl", "-q -w net.ipv6.conf.d0.mtu=1300");
    rig.ip("link set d0 alias something"); // an event, which carries it
    assert_eq!(rig.forward("2001:db8:100::1").mtu, 1300);
    assert_eq!(rig.forward("10.1.0.1").mtu, 1400);

    rig.ip("link set d0 address 02:00:00:00:00:aa");
    rig::neighbours(); // Linux has forgotten them
    rig.settle();
    assert_eq!(rig.forward("10.1.0.1").source, [2, 0, 0, 0, 0, 0xaa]);

    let index = rig::index("d0");
    rig.ip("link set d0 name new0");
    assert_eq!(rig.follower.state().links()[&index].name, "new0");
    assert_eq!(rig.forward("10.1.0.1").link, index);
    is_same(&rig, &[254, 255]);
    rig.ip("link del new0");
    assert_eq!(rig.mirror.link(&rig.guard, index), None);
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::NoRoute);
    is_same(&rig, &[254, 255]);
}

#[test]
fn addresses_are_followed() {
    let Some(mut rig) = Rig::new("addresses_are_followed") else { return };
    rig.ip("route add 10.1.1.0/24 via 10.0.2.2");
    rig.ip("address add 10.1.1.9/32 dev lo");
    assert_eq!(rig.asks("10.1.1.9"), FallbackReason::Local);
    assert!(rig.mirror.is_local(&rig.guard, "10.1.1.9".parse().unwrap()));
    rig.ip("address del 10.1.1.9/32 dev lo");
    assert_eq!(rig.forward("10.1.1.9").port, PortId(1));
    // Linux makes the local route of an IPv6 address in its own time (addrconf_dad_work).
    rig.ip("address add 2001:db8:2::99/128 dev lo");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while rig.asks("2001:db8:2::99") != FallbackReason::Local {
        assert!(std::time::Instant::now() < end, "{:?}", rig.asks("2001:db8:2::99"));
        std::thread::sleep(std::time::Duration::from_millis(2));
        rig.settle();
    }
    // With its last address an interface loses its routes, without a word.
    ip("address del 10.0.2.1/24 dev d1");
    rig.follower.step().unwrap();
    assert!(["LinkDown", "NoRoute"].contains(&&*format!("{:?}", rig.asks("10.1.1.1"))));
    rig.settle();
    assert_eq!(rig.asks("10.1.1.1"), FallbackReason::NoRoute);
    is_same(&rig, &[254, 255]);
}

#[test]
fn neighbours_are_followed() {
    let Some(mut rig) = Rig::new("neighbours_are_followed") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    assert_eq!(rig.forward("10.1.0.1").destination, ROUTERS[0]);
    rig.ip("neighbour replace 10.0.1.2 lladdr 02:00:00:00:00:bb nud reachable dev d0");
    assert_eq!(rig.forward("10.1.0.1").destination, [2, 0, 0, 0, 0, 0xbb]);
    rig.ip("neighbour replace 10.0.1.2 lladdr 02:00:00:00:00:bb nud stale dev d0");
    assert_eq!(rig.forward("10.1.0.1").destination, [2, 0, 0, 0, 0, 0xbb]);
    rig.ip("neighbour replace 10.0.1.2 nud failed dev d0");
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::NoNeighbour);
    rig.ip("neighbour replace 10.0.1.2 lladdr 02:00:00:00:00:cc nud permanent dev d0");
    assert_eq!(rig.forward("10.1.0.1").destination, [2, 0, 0, 0, 0, 0xcc]);
    rig.ip("neighbour del 10.0.1.2 dev d0");
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::NoNeighbour);
    rig.ip("neighbour add proxy 10.0.1.2 dev d0");
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::NoNeighbour);
}

/// Covers neighbour probes: Linux does not see the fast path's packets and would not notice a lost
/// neighbour.
#[test]
fn linux_is_made_to_look_after_neighbours() {
    if !rig::namespace("linux_is_made_to_look_after_neighbours") {
        return;
    }
    namespace::command("sysctl", "-q -w net.ipv4.neigh.d0.delay_first_probe_time=0");
    namespace::command("sysctl", "-q -w net.ipv4.neigh.d0.retrans_time_ms=10");
    ip("neighbour add 10.0.1.77 lladdr 02:00:00:00:00:77 nud stale dev d0");
    let keep_alive = KeepAlive::All { rate: 100 };
    let mut rig = Rig::open(MirrorSettings { keep_alive, ..rig::settings() });
    assert_eq!(rig.forward("10.0.1.77").destination, [2, 0, 0, 0, 0, 0x77]);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while rig.look("10.0.1.77")
        != fastlane_mirror::RouteLookup::Fallback(FallbackReason::NoNeighbour)
    {
        rig.follower.step().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(std::time::Instant::now() < end, "{:?}", rig.follower.statistics());
    }
    assert!(rig.follower.statistics().probes >= 1);
}

/// Covers gateways of a table that no rule of Linux leads to: no packet of Linux's finds them.
#[test]
fn gateways_of_further_tables_are_found() {
    if !rig::namespace("gateways_of_further_tables_are_found") {
        return;
    }
    let settings = MirrorSettings {
        tables: vec![254, 100],
        keep_alive: KeepAlive::All { rate: 100 },
        ..rig::settings()
    };
    let mut rig = Rig::open(settings);
    rig.ip("route add 10.1.0.0/16 via 10.0.1.77 dev d0 table 100");
    rig.ip("-6 route add 2001:db8:100::/48 via 2001:db8:1::77 dev d0 table 100");
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let is_asked = |gateway: &str| {
        let shown = namespace::command("ip", &format!("neighbour show {gateway} dev d0 nud all"));
        ["INCOMPLETE", "FAILED", "PROBE"].iter().any(|state| shown.contains(state))
    };
    while !(is_asked("10.0.1.77") && is_asked("2001:db8:1::77")) {
        rig.follower.step().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(std::time::Instant::now() < end, "{:?}", rig.follower.statistics());
    }
}

#[test]
fn rules_make_the_main_table_less_than_the_truth() {
    let Some(mut rig) = Rig::new("rules_make_the_main_table_less_than_the_truth") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    rig.ip("-6 route add 2001:db8:100::/48 via 2001:db8:1::2");
    rig.ip("rule add from 10.9.0.0/16 table 100 preference 50");
    rig.ip("rule add from 10.8.0.0/16 table 100 preference 50");
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::Policy);
    assert_eq!(rig.forward("2001:db8:100::1").port, PortId(0), "the other family");
    rig.ip("-6 rule add fwmark 1 table 100");
    assert_eq!(rig.asks("2001:db8:100::1"), FallbackReason::Policy);
    rig.ip("rule del from 10.9.0.0/16 table 100");
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::Policy, "the other one is left");
    rig.ip("rule del from 10.8.0.0/16 table 100");
    assert_eq!(rig.forward("10.1.0.1").port, PortId(0));
}

#[test]
fn the_route_back_is_known_though_linux_must_use_it() {
    if !rig::namespace("the_route_back_is_known_though_linux_must_use_it") {
        return;
    }
    let mut rig = Rig::open(MirrorSettings { honour_traffic_control: true, ..rig::settings() });
    rig.ip("route add 10.1.1.0/24 via 10.0.2.2");
    rig.ip("-6 route add 2001:db8:100::/48 via 2001:db8:2::2");
    let (there, link) = (["10.1.1.1", "2001:db8:100::1"], rig::index("d1"));
    let back = ReturnRoute { link: Some(link), reason: None, is_divided: false };
    for source in there {
        assert_eq!(rig.look_back(source, 0), back);
    }
    namespace::command("tc", "qdisc add dev d1 root tbf rate 1mbit burst 10k latency 50ms");
    rig.settle();
    for source in there {
        assert_eq!(rig.asks(source), FallbackReason::TrafficControl);
        let back = ReturnRoute { reason: Some(FallbackReason::TrafficControl), ..back };
        assert_eq!((rig.look_back(source, 0), back.usable_link()), (back, Some(link)));
    }
    namespace::command("tc", "qdisc del dev d1 root");
    rig.ip("neighbour replace 10.0.2.2 nud failed dev d1");
    assert_eq!(rig.look_back("10.1.1.1", 0).usable_link(), Some(link));
    // Of a source that is never forwarded to, and of one without a route, nothing is known.
    for source in ["127.0.0.1", "224.0.0.1", "10.0.1.1", "192.0.2.1"] {
        assert_eq!(rig.look_back(source, 0).usable_link(), None);
    }
}

#[test]
fn ports_can_be_others() {
    let Some(mut rig) = Rig::new("ports_can_be_others") else { return };
    rig.ip("route add 10.1.0.0/16 via 10.0.1.2");
    assert_eq!(rig.forward("10.1.0.1").port, PortId(0));
    rig.follower.set_ports(&[(rig::index("d0"), PortId(7))]);
    assert_eq!(rig.forward("10.1.0.1").port, PortId(7));
    rig.follower.set_ports(&[]);
    assert_eq!(rig.asks("10.1.0.1"), FallbackReason::NotOurPort);
    assert_eq!(rig.mirror.link(&rig.guard, rig::index("d0")).unwrap().port(), None);
}
