//! R2, R6, R11, R24, R25: marks and translation.

use std::net::{IpAddr, SocketAddr};

use fastlane_tests::routed::FAR;
use fastlane_tests::{LEFT_MAC, Mechanism, PATIENCE, eventually};
use serde_json::json;

use super::firewall::{Firewall, MASQUERADE, RING, RULES, Setup, Tier, canonical, for_each_tier};

for_each_tier!(
    r6_masquerade_of_tcp_and_udp_is_done_by_the_tier,
    r6_destinations_and_both_ends_are_translated,
    r6_udp_without_a_checksum_stays_without,
    r25_ipv6_is_forwarded_and_translated_as_ipv4,
    r25_no_ipv6_is_forwarded_from_an_interface_that_takes_none,
    r2_the_mark_decides_and_its_change_holds_at_once,
    r11_one_way_udp_is_fast_only_if_configured,
    r24_a_zone_has_its_own_flows,
    r24_the_directions_of_a_flow_have_zones_of_their_own,
);

fn r6_masquerade_of_tcp_and_udp_is_done_by_the_tier(tier: Tier) {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric, Mechanism::Packet] {
        if tier.is_kernel() && mechanism == Mechanism::Packet {
            continue; // it is an XDP program
        }
        let flows = json!({ "capacity": 1024 });
        let rules = [RULES, MASQUERADE];
        let setup = Setup { tier, mechanism, lanes: 1, ring: RING };
        let Some(mut firewall) = Firewall::on(setup, "r6", &rules, flows) else { return };
        // Another address than that of the network, which would leave checksums as they are:
        // 10.77.0.2 and 10.78.0.1 have the same sum.
        firewall.routed.ip("address del 10.78.0.1/24 dev wire1");
        firewall.routed.ip("address add 10.78.0.99/24 dev wire1");
        firewall.start_offload();
        let outside: IpAddr = "10.78.0.99".parse().unwrap();
        let mut tcp = firewall.connect(8080);
        assert_eq!(canonical(tcp.from).ip(), outside);
        tcp.exchange(1000);
        firewall.wait_until_fast(8080);
        firewall.until_forwarded(500, || tcp.exchange(1 << 20));
        let udp = firewall.datagrams(5353);
        firewall.until_forwarded(2, || {
            let from = udp.source();
            assert_eq!(from.ip(), outside);
        });
        let listed = firewall.flows(&["--port", "5353"]);
        let near = udp.near.local_addr().unwrap().port();
        let start = format!("udp 10.77.0.2:{near} > {FAR}:5353 as 10.78.0.99:{near} > {FAR}:5353 ");
        assert!(listed[0].starts_with(&start), "{listed:?}");
        firewall.router.stop();
    }
}

/// The device selects the lanes, so that both directions of a flow may be on two.
#[test]
fn r6_several_lanes_share_the_flows() {
    let (flows, rules) = (json!({ "capacity": 1024 }), [RULES, MASQUERADE]);
    let mechanism = Mechanism::XdpNative;
    let setup = Setup { tier: Tier::Lanes, mechanism, lanes: 2, ring: RING };
    let Some(mut firewall) = Firewall::on(setup, "r6-lanes", &rules, flows) else { return };
    firewall.start_offload();
    let mut connections: Vec<_> = (8080..8088).map(|port| firewall.connect(port)).collect();
    for (tcp, port) in connections.iter_mut().zip(8080..) {
        tcp.exchange(1000);
        firewall.wait_until_fast(port);
        firewall.until_forwarded(100, || tcp.exchange(1 << 20));
    }
    for (tcp, port) in connections.into_iter().zip(8080..) {
        drop(tcp);
        firewall.wait_until_slow(port);
    }
    firewall.router.stop();
}

fn r6_destinations_and_both_ends_are_translated(tier: Tier) {
    // From the near host: 10.99.0.1:80 is the far host's port 8080, seen from 10.78.0.55.
    let both = "
table ip nat {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    iifname \"wire0\" ip daddr 10.99.0.1 tcp dport 80 dnat to 10.78.0.2:8080
    iifname \"wire0\" ip daddr 10.99.0.1 udp dport 53 dnat to 10.78.0.2:5353
    iifname \"wire0\" ip daddr 10.99.0.2 tcp dport 81 dnat to 10.78.0.2:8081
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"wire1\" tcp dport 8080 snat to 10.78.0.55:7000-7999
    oifname \"wire1\" udp dport 5353 snat to 10.78.0.55
  }
}";
    let Some(firewall) = Firewall::new(tier, "r6-both", &[RULES, both]) else { return };
    firewall.routed.ip("address add 10.78.0.55/24 dev wire1");
    for (to, port, seen) in [
        ("10.99.0.1:80", 8080, Some("10.78.0.55")),
        ("10.99.0.2:81", 8081, None), // the destination only
    ] {
        let listener = firewall.listen(port);
        let mut tcp = firewall.connect_to(&listener, to.parse().unwrap());
        let from = canonical(tcp.from);
        assert_eq!(from.ip().to_string(), seen.unwrap_or("10.77.0.2"));
        assert!(seen.is_none() || (7000..8000).contains(&from.port()), "{from}");
        tcp.exchange(1000);
        firewall.wait_until_fast(port);
        firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    }
    let mut udp = firewall.datagrams(5353);
    udp.to = "10.99.0.1:53".parse().unwrap();
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}

fn r6_udp_without_a_checksum_stays_without(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r6-zero", &[RULES, MASQUERADE]) else { return };
    let udp = firewall.datagrams(5353);
    // On a loaded machine the script starts late.
    udp.far.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    // Option 11 is SO_NO_CHECK.
    let script = "import socket,sys\n\
        s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
        s.setsockopt(socket.SOL_SOCKET,11,1)\n\
        s.settimeout(10)\n\
        s.bind(('10.77.0.2',4444))\n\
        for n in range(200):\n \
            s.sendto(b'there',('10.78.0.2',5353))\n \
            s.recv(64)\n";
    // On a loaded machine the flow becomes fast late.
    firewall.until_forwarded(200, || {
        let echo = std::thread::scope(|scope| {
            let echo = scope.spawn(|| {
                for _ in 0..200 {
                    let (_, from) = udp.far.recv_from(&mut [0; 64]).ok()?;
                    udp.far.send_to(b"back", from).ok()?;
                }
                Some(())
            });
            firewall.routed.lab.right.run(&["python3", "-c", script]);
            echo.join().unwrap()
        });
        assert_eq!(echo, Some(()), "all arrive");
    });
    firewall.router.stop();
}

fn r25_ipv6_is_forwarded_and_translated_as_ipv4(tier: Tier) {
    let snat = "
table ip6 nat {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname \"wire1\" tcp dport 8081 snat to fd78::55
  }
}";
    let Some(firewall) = Firewall::new(tier, "r25", &[RULES, snat]) else { return };
    firewall.routed.ip("-6 address add fd78::55/64 dev wire1 nodad");
    for (port, seen) in [(8080, "fd77::2"), (8081, "fd78::55")] {
        let to: SocketAddr = format!("[fd78::2]:{port}").parse().unwrap();
        let mut tcp = firewall.connect_to(&firewall.listen(port), to);
        assert_eq!(tcp.from.ip().to_string(), seen);
        tcp.exchange(1000);
        firewall.wait_until_fast(port);
        firewall.until_forwarded(500, || tcp.exchange(1 << 20));
    }
    let udp = firewall.datagrams_at("[fd78::2]:5353".parse().unwrap());
    firewall.until_forwarded(2, || udp.assert_exchange());
    firewall.router.stop();
}

fn r25_no_ipv6_is_forwarded_from_an_interface_that_takes_none(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r25-disabled", &[RULES]) else { return };
    // The router answers no solicitation meanwhile.
    let neighbour = format!("ip -6 neigh replace fd77::1 lladdr {LEFT_MAC} dev wire0");
    firewall.routed.lab.right.run(&neighbour.split(' ').collect::<Vec<_>>());
    let udp = firewall.datagrams_at("[fd78::2]:5353".parse().unwrap());
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.routed.set("ipv6/conf/wire0/disable_ipv6", "1");
    eventually("Linux gets what arrives there", || {
        let before = firewall.count("forwarded");
        let _ = udp.send();
        firewall.count("forwarded") == before
    });
    assert_eq!(udp.send(), None, "Linux drops it");
    // Linux has removed the address, too.
    firewall.routed.set("ipv6/conf/wire0/disable_ipv6", "0");
    firewall.routed.ip("-6 address replace fd77::1/64 dev wire0 nodad");
    firewall.until_forwarded(2, || {
        let _ = udp.exchange();
    });
    firewall.router.stop();
}

fn r2_the_mark_decides_and_its_change_holds_at_once(tier: Tier) {
    let unmarked = RULES.replace("ct mark set ct mark | 0x1 ", "");
    let Some(firewall) = Firewall::new(tier, "r2", &[&unmarked, MASQUERADE]) else { return };
    let mut tcp = firewall.connect(8080);
    tcp.exchange(100_000);
    assert_eq!(firewall.count("forwarded"), 0);
    assert_eq!(firewall.flows(&[]), Vec::<String>::new());
    let port = tcp.near.local_addr().unwrap().port();
    let explained = firewall.explain(&format!("tcp 10.77.0.2:{port} 10.78.0.2:8080"));
    assert!(explained.contains("linux: its mark does not select it"), "{explained}");
    let mut mark = firewall.mark_of(8080);
    for flip in 0..20 {
        mark.set(1, 1);
        firewall.wait_until_fast(8080);
        let before = firewall.count("forwarded");
        tcp.exchange(1000);
        assert!(firewall.count("forwarded") > before, "flip {flip}");
        mark.set(0, 1);
        firewall.wait_until_slow(8080);
        let before = firewall.count("forwarded");
        tcp.exchange(1000);
        assert_eq!(firewall.count("forwarded"), before, "flip {flip}");
    }
    // Other bits of the mark are of no concern.
    mark.set(0x11, 0xff);
    firewall.wait_until_fast(8080);
    let explained = firewall.explain(&format!("tcp 10.78.0.2:8080 10.78.0.1:{port}"));
    let wanted = format!("{}: tcp 10.77.0.2:", firewall.tier_name());
    assert!(explained.starts_with(&wanted), "{explained}");
    firewall.router.stop();
}

fn r11_one_way_udp_is_fast_only_if_configured(tier: Tier) {
    for one_way in [false, true] {
        let marks = RULES.replace("iifname \"wire0\" accept", "ct mark set 1 accept");
        let flows = json!({ "capacity": 1024, "one-way": one_way });
        let Some(firewall) = Firewall::with(tier, "r11", &[&marks], flows) else { return };
        let udp = firewall.datagrams(5353);
        udp.assert_sent();
        if one_way {
            firewall.wait_until_fast(5353);
            firewall.until_forwarded(10, || (0..10).for_each(|_| udp.assert_sent()));
            // The reply is judged by the rules and seen by the tracking, and is fast from then on.
            let listed = || firewall.conntrack("-L -p udp --dport 5353");
            assert!(listed().contains("[UNREPLIED]"), "{}", listed());
            udp.assert_exchange();
            assert!(!listed().contains("[UNREPLIED]"), "{}", listed());
            firewall.until_forwarded(20, || {
                (0..10).for_each(|_| udp.assert_exchange());
            });
        } else {
            (0..10).for_each(|_| udp.assert_sent());
            assert_eq!(firewall.count("forwarded"), 0);
            let statistics = firewall.statistics();
            assert_eq!(statistics["offload_flows"], 0, "{statistics:?}");
        }
        firewall.router.stop();
    }
}

fn r24_a_zone_has_its_own_flows(tier: Tier) {
    let zones = "
table inet zones {
  chain prerouting {
    type filter hook prerouting priority raw;
    ct zone set 7
  }
}";
    // Linux tracks all in zone 7. Ports without a zone find no flow there.
    for zone in [0, 7] {
        let zones_of_ports = json!({ "wire0": zone, "wire1": zone });
        let flows = json!({ "capacity": 1024, "zones": zones_of_ports });
        let Some(firewall) = Firewall::with(tier, "r24", &[RULES, zones], flows) else { return };
        let mut tcp = firewall.connect(8080);
        tcp.exchange(1000);
        firewall.wait_until_fast(8080);
        let listed = firewall.flows(&[]);
        assert!(listed[0].contains(" zone 7 "), "{listed:?}");
        let before = firewall.count("forwarded");
        tcp.exchange(1 << 20);
        assert_eq!(firewall.count("forwarded") > before + 500, zone == 7);
        firewall.router.stop();
    }
}

fn r24_the_directions_of_a_flow_have_zones_of_their_own(tier: Tier) {
    let zones = "
table inet zones {
  chain prerouting {
    type filter hook prerouting priority raw;
    iifname \"wire0\" ct original zone set 7
  }
}";
    let flows = json!({ "capacity": 1024, "zones": { "wire0": 7 } });
    let Some(firewall) = Firewall::with(tier, "r24-two", &[RULES, zones], flows) else { return };
    let udp = firewall.datagrams(5353);
    let from = udp.source();
    firewall.wait_until_fast(5353);
    firewall.until_forwarded(20, || (0..10).for_each(|_| udp.assert_exchange()));
    let listed = firewall.flows(&[]).concat();
    let (_, counts) = listed.split_once(" zone 7 packets ").expect("counts");
    let replies = counts.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
    assert!(replies >= Some(10), "{listed}");
    for words in [format!("udp {from} {} --zone 7", udp.to), format!("udp {} {from}", udp.to)] {
        let explained = firewall.explain(&words);
        assert!(explained.starts_with(firewall.tier_name()), "{words}: {explained}");
    }
    firewall.router.stop();
}
