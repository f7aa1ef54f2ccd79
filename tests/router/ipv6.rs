//! IPv6 where Linux takes none.

use std::net::UdpSocket;
use std::time::Duration;

use fastlane_tests::routed::{Routed, drop_count};
use fastlane_tests::{LEFT_MAC, Mechanism, eventually};

#[test]
fn no_ipv6_is_forwarded_from_an_interface_that_takes_none() {
    let Some(routed) = Routed::new("router-no-ipv6") else { return };
    let router = routed.start(Mechanism::Packet, &[]);
    let near = &routed.lab.right;
    // The router answers no solicitation meanwhile.
    let neighbour = format!("ip -6 neigh replace fd77::1 lladdr {LEFT_MAC} dev wire0");
    near.run(&neighbour.split(' ').collect::<Vec<_>>());
    let far = routed.far.enter(|| UdpSocket::bind("[fd78::2]:5353").expect("a free port"));
    far.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let near = near.enter(|| UdpSocket::bind("[::]:0").expect("a socket"));
    let arrives = || {
        near.send_to(b"6", "[fd78::2]:5353").expect("a route");
        far.recv(&mut [0; 8]).is_ok()
    };
    let is_forwarded = || {
        let before = drop_count(&router, "forwarded");
        arrives() && drop_count(&router, "forwarded") > before
    };
    eventually("the router forwards IPv6", is_forwarded);
    routed.set("ipv6/conf/wire0/disable_ipv6", "1");
    eventually("Linux gets it, and drops it", || {
        let before = drop_count(&router, "linux_forwarding_off");
        !arrives() && drop_count(&router, "linux_forwarding_off") > before
    });
    assert!(!arrives());
    routed.set("ipv6/conf/wire0/disable_ipv6", "0");
    eventually("the router forwards IPv6 again", is_forwarded);
    router.stop();
}
