//! R3, R4, R5, R21, R26: packets of flows that Linux must handle.

use fastlane_testing::Peer;
use fastlane_tests::eventually;
use fastlane_tests::routed::FAR;

use super::firewall::{Firewall, MASQUERADE, RULES, Tier, for_each_tier};

for_each_tier!(
    r3_other_protocols_fragments_and_first_packets_are_linuxs,
    r4_the_time_to_live_expires_in_linux_and_is_one_less_beyond,
    r5_packets_beyond_the_mtu_are_linuxs_which_says_so,
    r5_packets_beyond_the_mtu_of_their_route_are_linuxs,
    r21_a_discarding_route_is_never_fast,
    r26_a_packet_by_another_interface_than_the_route_back_is_linuxs,
);

fn r3_other_protocols_fragments_and_first_packets_are_linuxs(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r3", &[RULES, MASQUERADE]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let near = &firewall.routed.lab.right;
    near.assert_pings(2, &[FAR]);
    assert!(firewall.count("linux_flow_protocol") >= 4);
    // Fragments of the flow: no rule of steering claims them, Linux translates them, and the
    // datagram arrives whole.
    let long = vec![7; 4000];
    udp.near.send_to(&long, (FAR, 5353)).unwrap();
    let mut buffer = vec![0; 5000];
    let (length, from) = udp.far.recv_from(&mut buffer).unwrap();
    assert_eq!((length, from.ip().to_string()), (4000, "10.78.0.1".to_owned()));
    // An error about a packet that lanes translated: Linux translates its inner header back.
    udp.near.connect(udp.to).unwrap();
    drop(udp.far);
    firewall.until_forwarded(1, || {
        udp.near.send(b"there").unwrap();
        let error = udp.near.recv(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
    firewall.router.stop();
}

fn r4_the_time_to_live_expires_in_linux_and_is_one_less_beyond(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r4", &[RULES, MASQUERADE]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    let mut wire = firewall
        .routed
        .far
        .enter(|| fastlane_testing::namespace::Wire::open("wire1").expect("a raw socket"));
    udp.assert_sent();
    let is_it = |frame: &Vec<u8>| frame.get(23) == Some(&17) && frame[36..38] == [0x14, 0xe9];
    let mut frames = std::iter::from_fn(|| wire.receive(std::time::Duration::from_secs(5)));
    let frame = frames.find(is_it).expect("the datagram");
    assert_eq!(frame[22], 63);
    assert_eq!(fastlane_wire::checksum::checksum(&frame[14..34]), 0);
    let before = firewall.count("linux_time_to_live");
    udp.near.set_ttl(1).unwrap();
    assert_eq!(udp.send(), None, "it expires");
    assert!(firewall.count("linux_time_to_live") > before);
    firewall.router.stop();
}

fn r5_packets_beyond_the_mtu_are_linuxs_which_says_so(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r5", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    tcp.exchange(1 << 20);
    // From now on the sender's segments are too long; Linux tells it the MTU.
    firewall.routed.ip("link set wire1 mtu 1300");
    firewall.routed.far.run(&["ip", "link", "set", "wire1", "mtu", "1300"]);
    tcp.exchange(1 << 20);
    assert!(firewall.count("linux_too_long") > 0);
    let route = firewall.routed.lab.right.run(&["ip", "route", "get", FAR]);
    assert!(route.contains("mtu 1300"), "{route}");
    firewall.router.stop();
}

fn r5_packets_beyond_the_mtu_of_their_route_are_linuxs(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r5-route", &[RULES, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(1000);
    firewall.wait_until_fast(8080);
    tcp.exchange(1 << 20);
    firewall.routed.ip("route change 10.78.0.0/24 dev wire1 mtu 1300");
    tcp.exchange(1 << 20);
    assert!(firewall.count("linux_too_long") > 0);
    let route = firewall.routed.lab.right.run(&["ip", "route", "get", FAR]);
    assert!(route.contains("mtu 1300"), "{route}");
    firewall.router.stop();
}

fn r21_a_discarding_route_is_never_fast(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r21", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    for kind in ["blackhole", "unreachable", "prohibit"] {
        firewall.routed.ip(&format!("route add {kind} {FAR}/32"));
        eventually("the route holds", || {
            let _ = udp.near.send_to(b"there", (FAR, 5353));
            firewall.count(&format!("linux_{kind}")) > 0
        });
        while udp.far.recv(&mut [0; 16]).is_ok() {} // from before the route
        let before = firewall.count("forwarded");
        assert_eq!(udp.send(), None);
        assert_eq!(firewall.count("forwarded"), before);
        firewall.routed.ip(&format!("route del {kind} {FAR}/32"));
        eventually("it is forwarded again", || {
            let _ = udp.far.recv_from(&mut [0; 16]);
            let before = firewall.count("forwarded");
            let _ = udp.exchange();
            firewall.count("forwarded") > before
        });
    }
    firewall.router.stop();
}

fn r26_a_packet_by_another_interface_than_the_route_back_is_linuxs(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r26", &[RULES]) else { return };
    let udp = firewall.datagrams(5353);
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(2, || udp.assert_exchange());
    // The far host now replies by wire2: Linux permits that, the lanes leave it to Linux.
    firewall.routed.far.run(&["ip", "route", "add", "10.77.0.0/24", "via", "10.79.0.1"]);
    let before = (firewall.count("forwarded"), firewall.count("linux_flow_interface"));
    udp.assert_exchange();
    let after = (firewall.count("forwarded"), firewall.count("linux_flow_interface"));
    assert_eq!(after, (before.0 + 1, before.1 + 1));
    firewall.router.stop();
}
