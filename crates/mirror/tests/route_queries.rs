//! Tests of blackhole routes and route queries.

use fastlane_mirror::blackhole::{add, is_blackhole};
use fastlane_mirror::query::{route, route_in_table};
use fastlane_testing::namespace::{ip, private};

#[test]
fn what_is_added_is_found_once_and_nothing_leaves() {
    if !private("what_is_added_is_found_once_and_nothing_leaves") {
        return;
    }
    ip("link add d0 type veth peer name d1");
    ip("link set d1 up");
    ip("link set d0 up");
    ip("address add 192.0.2.1/24 dev d0");
    ip("route add default via 192.0.2.2");
    for (prefix, length, inside) in
        [("10.45.0.0", 16, "10.45.3.7"), ("2001:db8:100::", 40, "2001:db8:100::7")]
    {
        let (prefix, inside) = (prefix.parse().unwrap(), inside.parse().unwrap());
        assert!(!is_blackhole(inside).unwrap(), "{inside}");
        assert!(add(prefix, length, 254).unwrap(), "{prefix}");
        assert!(is_blackhole(inside).unwrap(), "{inside}");
        assert!(!add(prefix, length, 254).unwrap(), "{prefix} is there already");
        assert!(add(prefix, length, 7).unwrap(), "{prefix} in another table");
    }
    assert!(!is_blackhole("10.46.0.1".parse().unwrap()).unwrap());
    let far = route("10.46.0.1".parse().unwrap()).unwrap();
    assert_eq!(far.gateway, Some("192.0.2.2".parse().unwrap()));
    let near = route("192.0.2.9".parse().unwrap()).unwrap();
    assert_eq!((near.gateway, near.interface), (None, far.interface));
    assert!(route("10.45.3.7".parse().unwrap()).is_err(), "it is nowhere");
}

#[test]
fn a_table_is_asked_whatever_the_rules_are() {
    if !private("a_table_is_asked_whatever_the_rules_are") {
        return;
    }
    for name in ["d0", "e0"] {
        ip(&format!("link add {name} type veth peer name {name}peer"));
        ip(&format!("link set {name}peer up"));
        ip(&format!("link set {name} up"));
    }
    ip("address add 192.0.2.1/24 dev d0");
    ip("address add 198.51.100.1/24 dev e0");
    ip("-6 address add fd01::1/64 dev e0 nodad");
    ip("route add default via 192.0.2.2");
    ip("route add default via 198.51.100.2 table 77");
    ip("route add 10.1.0.0/16 via 198.51.100.3 table 77 metric 20");
    ip("route add 10.1.0.0/16 via 198.51.100.4 table 77 metric 10");
    ip("route add unreachable 10.1.2.0/24 table 77");
    ip("-6 route add fd02::/16 via fd01::2 table 77");
    ip("nexthop add id 5 via 198.51.100.5 dev e0");
    ip("route add 10.2.0.0/16 nhid 5 table 77");
    let main = route("10.9.9.9".parse().unwrap()).unwrap();
    let of = |address: &str| route_in_table(77, address.parse().unwrap());
    let gateway = |address: &str| of(address).unwrap().gateway.unwrap().to_string();
    assert_eq!(route_in_table(254, "10.9.9.9".parse().unwrap()).unwrap(), main);
    assert_ne!(of("10.9.9.9").unwrap().interface, main.interface);
    assert_eq!(gateway("10.9.9.9"), "198.51.100.2");
    assert_eq!(gateway("10.1.9.9"), "198.51.100.4", "the lower metric");
    assert_eq!(gateway("fd02::7"), "fd01::2");
    let code = |address: &str| of(address).unwrap_err().raw_os_error();
    assert_eq!(code("10.1.2.3"), Some(113), "no route to host");
    assert_eq!(code("2001:db8::7"), Some(101), "network unreachable");
    assert!(of("10.2.0.1").unwrap_err().to_string().contains("ip nexthop show id 5"));
    assert!(route_in_table(78, "10.9.9.9".parse().unwrap()).is_err(), "there is no such table");
}
