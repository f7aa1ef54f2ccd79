//! R12, R13, R14, R15: flows follow routes, neighbours, links and addresses at once.

use std::net::IpAddr;

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::eventually;
use fastlane_tests::routed::{hop_address, hop_mac};
use fastlane_tests::{Host, mac};
use std::time::Duration;

use super::firewall::{Datagrams, Firewall, RULES, Tier, for_each_tier, without_rejudging};

for_each_tier!(
    r12_r13_a_flow_follows_routes_and_neighbours,
    r12_a_route_holds_for_its_type_of_service_only,
    r12_r22_the_rules_judge_a_flow_that_leaves_by_another_link,
    r12_a_flow_leaves_by_the_exit_that_linux_selects,
    r12_a_flow_that_linux_has_for_its_new_exit_is_explained,
    r14_r15_links_and_addresses_hold_for_flows,
);

/// Lanes forward what the program on the same interface leaves to them.
#[test]
fn r12_r22_the_rules_judge_a_flow_of_lanes_behind_the_program() {
    r12_r22_the_rules_judge_a_flow_that_leaves_by_another_link(Tier::BothAndLanes);
}

/// Link (1 or 2) and Ethernet address by which a datagram reaches the far host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exit {
    link: usize,
    mac: [u8; 6],
}

fn exit(link: usize, mac: [u8; 6]) -> Exit {
    Exit { link, mac }
}

/// Frames that reach the far host by one of its links.
struct Taps([Wire; 2]);

impl Taps {
    fn open(far: &Host) -> Self {
        Self(["wire1", "wire2"].map(|name| far.enter(|| Wire::open(name).expect("a raw socket"))))
    }

    /// Sends a datagram and returns how it arrives, if it does.
    fn probe(&mut self, udp: &Datagrams) -> Option<Exit> {
        self.probe_source(udp).map(|(exit, _)| exit)
    }

    /// Does the same, and returns its IPv4 source, too.
    fn probe_source(&mut self, udp: &Datagrams) -> Option<(Exit, [u8; 4])> {
        let (link, frame) = self.probe_frame(udp)?;
        Some((exit(link, frame[..6].try_into().unwrap()), frame[26..30].try_into().unwrap()))
    }

    /// Does the same, and returns the link and the frame.
    fn probe_frame(&mut self, udp: &Datagrams) -> Option<(usize, Vec<u8>)> {
        for wire in &mut self.0 {
            while wire.receive(Duration::ZERO).is_some() {}
        }
        let _ = udp.near.send_to(b"probe", udp.to);
        for _ in 0..50 {
            for (index, wire) in self.0.iter_mut().enumerate() {
                while let Some(frame) = wire.receive(Duration::from_millis(2)) {
                    if frame.windows(5).any(|bytes| bytes == b"probe") {
                        return Some((index + 1, frame));
                    }
                }
            }
        }
        None
    }
}

/// Establishes UDP to 10.100.0.1 on the far host and waits until its flow is in the table.
fn flow(firewall: &Firewall) -> Datagrams {
    firewall.routed.far.run(&["ip", "address", "add", "10.100.0.1/32", "dev", "lo"]);
    firewall.routed.ip("route add 10.100.0.0/16 via 10.78.0.2");
    let udp = firewall.datagrams_at("10.100.0.1:5353".parse().unwrap());
    udp.assert_exchange();
    firewall.wait_until_fast(5353);
    udp
}

/// Starts a firewall whose slow path looks at all flows each second: then the rules judge those
/// that leave by another link.
fn firewall(tier: Tier, story: &str, rules: &[&str]) -> Option<Firewall> {
    let mut firewall = Firewall::without_offload(tier, story, rules, serde_json::json!({}))?;
    for key in ["udp_timeout", "udp_timeout_stream"] {
        firewall.routed.set(&format!("netfilter/nf_conntrack_{key}"), "3");
    }
    firewall.start_offload();
    Some(firewall)
}

/// Waits until a datagram leaves by this link and address, and the tier forwards it.
#[track_caller]
fn leaves_by(firewall: &Firewall, taps: &mut Taps, udp: &Datagrams, to: Exit) {
    eventually("the datagram takes the new path", || taps.probe(udp) == Some(to));
    eventually("the tier forwards it", || {
        let before = firewall.count("forwarded");
        assert_eq!(taps.probe(udp), Some(to));
        firewall.count("forwarded") > before
    });
}

fn r12_r13_a_flow_follows_routes_and_neighbours(tier: Tier) {
    let Some(firewall) = firewall(tier, "r12", &[RULES]) else { return };
    let udp = flow(&firewall);
    firewall.routed.add_hops();
    let mut taps = Taps::open(&firewall.routed.far);
    let far = mac("02:00:00:00:78:02");
    leaves_by(&firewall, &mut taps, &udp, exit(1, far));
    for hop in [0, 2, 3, 1] {
        let link = 1 + hop / 2;
        firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(hop)));
        leaves_by(&firewall, &mut taps, &udp, exit(link, mac(&hop_mac(hop))));
    }
    // A more specific route, and its withdrawal.
    firewall.routed.ip(&format!("route add 10.100.0.1/32 via {}", hop_address(2)));
    leaves_by(&firewall, &mut taps, &udp, exit(2, mac(&hop_mac(2))));
    firewall.routed.ip("route del 10.100.0.1/32");
    leaves_by(&firewall, &mut taps, &udp, exit(1, mac(&hop_mac(1))));
    // The neighbour has another Ethernet address.
    let other = "02:00:00:00:bb:01";
    let replace =
        format!("neigh replace {} lladdr {other} dev wire1 nud permanent", hop_address(1));
    firewall.routed.ip(&replace);
    leaves_by(&firewall, &mut taps, &udp, exit(1, mac(other)));
    // An unknown one is Linux's.
    firewall.routed.ip(&format!("neigh del {} dev wire1", hop_address(1)));
    eventually("the packet is left to Linux", || {
        let before = firewall.count("linux_no_neighbour");
        taps.probe(&udp);
        firewall.count("linux_no_neighbour") > before
    });
    firewall.router.stop();
}

fn r12_a_route_holds_for_its_type_of_service_only(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r12-tos", &[RULES]) else { return };
    let udp = flow(&firewall);
    firewall.routed.add_hops();
    let mut taps = Taps::open(&firewall.routed.far);
    let mut probe = |service| {
        rustix::net::sockopt::set_ip_tos(&udp.near, service).expect("the option is usual");
        taps.probe(&udp)
    };
    let (usual, special) = (exit(1, mac(&hop_mac(1))), exit(1, mac(&hop_mac(0))));
    firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(1)));
    eventually("the route holds", || probe(0) == Some(usual));
    firewall.routed.ip(&format!("route add 10.100.0.0/16 tos 0x10 via {}", hop_address(0)));
    eventually("the route of the service holds", || probe(0x10) == Some(special));
    let before = firewall.count("forwarded");
    // The lower two bits tell of congestion, and choose no route (RFC 3168 5).
    for (service, wanted) in [(0, usual), (0x10, special), (0x12, special), (0, usual)] {
        assert_eq!(probe(service), Some(wanted), "type of service {service:#x}");
    }
    let forwarded = firewall.count("forwarded") - before;
    // Lanes leave all packets to the destination to Linux.
    assert_eq!(forwarded, if tier.is_kernel() { 4 } else { 0 });
    firewall.router.stop();
}

/// Masquerade behind the addresses of both links.
const MASQUERADE: &str = "
table inet nat {
  chain postrouting {
    type nat hook postrouting priority srcnat;
    oifname { \"wire1\", \"wire2\" } masquerade
  }
}";

/// Linux selects one of several next hops by a hash of its own: of the addresses, and of the flow
/// label of IPv6. Its rules have judged that exit, and the source is that of its interface.
fn r12_a_flow_leaves_by_the_exit_that_linux_selects(tier: Tier) {
    let Some(firewall) = Firewall::new(tier, "r12-several", &[RULES, MASQUERADE]) else { return };
    let Firewall { routed, .. } = &firewall;
    routed.ip("route add 10.100.0.0/16 nexthop via 10.78.0.2 nexthop via 10.79.0.2");
    routed.ip("-6 route add fd99::/64 nexthop via fd78::2 nexthop via fd79::2");
    let mut taps = Taps::open(&routed.far);
    for address in ["10.100.0.1", "fd99::1"] {
        let address: IpAddr = address.parse().unwrap();
        routed.far.run(&["ip", "address", "add", &address.to_string(), "dev", "lo", "nodad"]);
        let flows: Vec<Datagrams> = (6000..6016)
            .map(|port| {
                let udp = firewall.datagrams_at((address, port).into());
                udp.assert_exchange();
                firewall.wait_until_fast(port);
                udp
            })
            .collect();
        // Linux resolves only the neighbour that it selects.
        let to_linux = || firewall.count("linux_flow_exit") + firewall.count("linux_no_neighbour");
        let (forwarded, left) = (firewall.count("forwarded"), to_linux());
        // Octet of the source that is 78 or 79, as in the addresses of the links.
        let (at, first) = if address.is_ipv4() { (27, 78) } else { (23, 0x78) };
        for udp in &flows {
            let (link, frame) = taps.probe_frame(udp).expect("it arrives");
            assert_eq!(usize::from(frame[at]) - first + 1, link, "to {}", udp.to);
        }
        let forwarded = firewall.count("forwarded") - forwarded;
        let expected = if tier.is_kernel() { (16, 0) } else { (0, 16) };
        assert_eq!((forwarded, to_linux() - left), expected, "of packets to {address}");
    }
    firewall.router.stop();
}

/// A rule for the exit would be passed by, and a source kept that belongs to another exit.
fn r12_r22_the_rules_judge_a_flow_that_leaves_by_another_link(tier: Tier) {
    let forbidden = "
table inet exits {
  chain forward {
    type filter hook forward priority -1;
    oifname \"wire2\" drop
  }
}";
    // Also where Linux has sent the flow by its first link, as traffic control is there.
    for (is_forbidden, is_shaped) in [(true, false), (false, false), (true, true)] {
        let mut rules = vec![RULES, MASQUERADE];
        rules.extend(is_forbidden.then_some(forbidden));
        let Some(firewall) = firewall(tier, "r12-exit", &rules) else { return };
        firewall.routed.add_hops();
        if is_shaped {
            let shaping = "tc qdisc add dev wire1 root tbf rate 100mbit burst 100k latency 50ms";
            firewall.routed.router().run(&shaping.split(' ').collect::<Vec<_>>());
        }
        let udp = flow(&firewall);
        let before = udp.source();
        // What arrives by that link is fast all the same.
        firewall.until_forwarded(if is_shaped { 1 } else { 2 }, || {
            udp.assert_exchange();
        });
        firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(2)));
        let mut taps = Taps::open(&firewall.routed.far);
        if is_forbidden {
            // Not one passes, also once the slow path has looked at the flow.
            (0..20).for_each(|_| assert_ne!(taps.probe(&udp).map(|it| it.link), Some(2)));
        } else {
            let by_two = exit(2, mac(&hop_mac(2)));
            eventually("the source is that of the link", || {
                taps.probe_source(&udp).is_some_and(|(exit, source)| {
                    exit == by_two && IpAddr::from(source) != before.ip()
                })
            });
        }
        firewall.router.stop();
    }
}

fn r12_a_flow_that_linux_has_for_its_new_exit_is_explained(tier: Tier) {
    let settings = without_rejudging();
    let Some(firewall) = Firewall::with(tier, "r12-explain", &[RULES], settings) else { return };
    let udp = flow(&firewall);
    firewall.routed.add_hops();
    firewall.until_forwarded(2, || udp.assert_exchange());
    let from = udp.near.local_addr().unwrap().port();
    let explain = || firewall.explain(&format!("udp 10.77.0.2:{from} {}", udp.to));
    assert!(explain().starts_with(firewall.tier_name()), "{}", explain());
    firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(2)));
    eventually("the reason is told", || {
        let _ = udp.near.send_to(b"probe", udp.to);
        explain().starts_with("linux: its route leads to another interface")
    });
    firewall.router.stop();
}

fn r14_r15_links_and_addresses_hold_for_flows(tier: Tier) {
    let Some(firewall) = firewall(tier, "r14", &[RULES]) else { return };
    let udp = flow(&firewall);
    firewall.routed.add_hops();
    let mut taps = Taps::open(&firewall.routed.far);
    firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(2)));
    leaves_by(&firewall, &mut taps, &udp, exit(2, mac(&hop_mac(2))));
    firewall.routed.ip("link set wire2 down");
    eventually("nothing leaves", || taps.probe(&udp).is_none());
    let before = firewall.count("forwarded");
    assert_eq!(taps.probe(&udp), None);
    assert_eq!(firewall.count("forwarded"), before, "no packet to a dead port");
    firewall.routed.ip("link set wire2 up");
    firewall.routed.add_hops();
    firewall.routed.ip(&format!("route replace 10.100.0.0/16 via {}", hop_address(2)));
    leaves_by(&firewall, &mut taps, &udp, exit(2, mac(&hop_mac(2))));
    // The destination becomes an address of the router.
    firewall.routed.ip("address add 10.100.0.1/32 dev lo");
    eventually("the packet is left to Linux", || {
        let before = firewall.count("linux_local");
        taps.probe(&udp);
        firewall.count("linux_local") > before
    });
    let before = firewall.count("forwarded");
    assert_eq!(taps.probe(&udp), None);
    assert_eq!(firewall.count("forwarded"), before);
    firewall.routed.ip("address del 10.100.0.1/32 dev lo");
    leaves_by(&firewall, &mut taps, &udp, exit(2, mac(&hop_mac(2))));
    // The source, too: nobody else may use it.
    let own: IpAddr = "10.77.0.2".parse().unwrap();
    firewall.routed.ip(&format!("address add {own}/32 dev lo"));
    eventually("the packet is left to Linux", || {
        let before = firewall.count("linux_own_source");
        taps.probe(&udp);
        firewall.count("linux_own_source") > before
    });
    firewall.router.stop();
}
