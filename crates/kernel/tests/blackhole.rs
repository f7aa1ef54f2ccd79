//! Routes to nowhere.

use fastlane_kernel::blackhole::{add, is_blackhole, way};
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
    let far = way("10.46.0.1".parse().unwrap()).unwrap();
    assert_eq!(far.gateway, Some("192.0.2.2".parse().unwrap()));
    let near = way("192.0.2.9".parse().unwrap()).unwrap();
    assert_eq!((near.gateway, near.interface), (None, far.interface));
    assert!(way("10.45.3.7".parse().unwrap()).is_err(), "it is nowhere");
}
