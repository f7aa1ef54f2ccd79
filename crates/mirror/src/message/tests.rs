//! Known messages of the kernel, byte for byte, and their meaning. They are also the fuzzer's
//! seeds.

use fastlane_testing::corpus;
use proptest::prelude::*;

use super::*;
use crate::fuzz;
use fastlane_netlink::{Request, link_header};

fn event(kind: u16, flags: i32, fixed: &[u8], build: impl FnOnce(Request) -> Request) -> Vec<u8> {
    let mut octets = build(Request::new(kind, 0, fixed)).finish();
    octets[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
    octets
}

fn ip_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn octets(text: &str) -> Vec<u8> {
    match ip_address(text) {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(ip_address(address), length.parse().unwrap())
}

const INET: u8 = libc::AF_INET as u8;
const INET6: u8 = libc::AF_INET6 as u8;

fn hop(gateway: &str, link: u32, weight: u32) -> Hop {
    let gateway = (!gateway.is_empty()).then(|| ip_address(gateway));
    Hop { gateway, link, weight, dead: false, encapsulated: false }
}

fn route(destination: &str, hops: Vec<Hop>) -> Route {
    Route {
        table: 254,
        destination: prefix(destination),
        kind: RouteKind::Unicast,
        metric: 0,
        origin: (3, 0),
        selector: (0, 0),
        mtu: 0,
        next_hop: 0,
        hops,
    }
}

/// Builds a `struct rtmsg` of the main table.
fn rtmsg(family: u8, length: u8, kind: u8) -> [u8; 12] {
    [family, length, 0, 0, 254, 3, 0, kind, 0, 0, 0, 0]
}

/// Builds `RTA_MULTIPATH`: `struct rtnexthop` and a gateway for each hop.
fn several(hops: &[(u8, u32, &str)]) -> Vec<u8> {
    let mut value = Vec::new();
    for (weight, link, gateway) in hops {
        let gateway = octets(gateway);
        let length = 8 + 4 + gateway.len() as u16;
        value.extend_from_slice(&length.to_ne_bytes());
        value.extend_from_slice(&[0, weight - 1]);
        value.extend_from_slice(&link.to_ne_bytes());
        value.extend_from_slice(&(4 + gateway.len() as u16).to_ne_bytes());
        value.extend_from_slice(&libc::RTA_GATEWAY.to_ne_bytes());
        value.extend_from_slice(&gateway);
    }
    value
}

fn links() -> Vec<(&'static str, Vec<u8>, Message)> {
    let mut header = link_header(7, (libc::IFF_UP as u32) | 1 << 16, 0);
    header[2] = libc::ARPHRD_ETHER as u8;
    let link = Link {
        index: 7,
        name: "d0".to_owned(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        mtu6: 1400,
        up: true,
        running: true,
        kind: "vrf".to_owned(),
        vrf_table: 100,
        ethernet: true,
        master: 3,
        ..Link::default()
    };
    let mut own = [0; 16];
    own[8..12].copy_from_slice(&1400_u32.to_ne_bytes());
    let message = event(libc::RTM_NEWLINK, 0, &header, |request| {
        let request = request
            .attribute(libc::IFLA_IFNAME, b"d0\0")
            .attribute(libc::IFLA_MTU, &1500_u32.to_ne_bytes())
            .attribute(libc::IFLA_ADDRESS, &link.mac)
            .attribute(libc::IFLA_OPERSTATE, &[6])
            .attribute(libc::IFLA_MASTER, &3_u32.to_ne_bytes())
            .nest(libc::IFLA_LINKINFO, |info| {
                info.attribute(libc::IFLA_INFO_KIND, b"vrf")
                    .nest(libc::IFLA_INFO_DATA, |data| data.attribute(1, &100_u32.to_ne_bytes()))
            });
        request.nest(libc::IFLA_AF_SPEC, |all| {
            all.nest(libc::AF_INET6 as u16, |inet6| inet6.attribute(2, &own))
        })
    });
    let gone = event(libc::RTM_DELLINK, 0, &header, |request| request);
    let mut bridge = header;
    bridge[0] = libc::AF_BRIDGE as u8;
    let port = event(libc::RTM_DELLINK, 0, &bridge, |request| request);
    vec![
        ("link", message, Message::Link(link)),
        (
            "link-of-a-vlan",
            vlan(&[0x81, 0]),
            Message::Link(Link { carrier: 5, vlan: 100, ..vlan_link() }),
        ),
        ("link-of-a-service-vlan", vlan(&[0x88, 0xa8]), Message::Link(vlan_link())),
        ("link-gone", gone, Message::LinkRemoved(7)),
        ("link-of-a-bridge", port, Message::Other),
    ]
}

fn vlan_link() -> Link {
    Link {
        index: 8,
        name: "d0.100".to_owned(),
        mtu: 1500,
        kind: "vlan".to_owned(),
        ..Link::default()
    }
}

/// Builds the message of a VLAN interface with the EtherType of its tags.
fn vlan(protocol: &[u8]) -> Vec<u8> {
    event(libc::RTM_NEWLINK, 0, &link_header(8, 0, 0), |request| {
        let request = request
            .attribute(libc::IFLA_IFNAME, b"d0.100\0")
            .attribute(libc::IFLA_MTU, &1500_u32.to_ne_bytes())
            .attribute(libc::IFLA_LINK, &5_u32.to_ne_bytes());
        request.nest(libc::IFLA_LINKINFO, |info| {
            info.attribute(libc::IFLA_INFO_KIND, b"vlan").nest(libc::IFLA_INFO_DATA, |data| {
                data.attribute(1, &100_u16.to_ne_bytes()).attribute(5, protocol)
            })
        })
    })
}

fn addresses() -> Vec<(&'static str, Vec<u8>, Message)> {
    let four = event(libc::RTM_NEWADDR, 0, &[INET, 24, 0, 0, 7, 0, 0, 0], |request| {
        request
            .attribute(libc::IFA_ADDRESS, &octets("10.0.0.1"))
            .attribute(libc::IFA_LOCAL, &octets("10.0.0.1"))
    });
    let six = event(libc::RTM_DELADDR, 0, &[INET6, 64, 0, 0, 7, 0, 0, 0], |request| {
        request.attribute(libc::IFA_ADDRESS, &octets("2001:db8::1"))
    });
    let ends = event(libc::RTM_NEWADDR, 0, &[INET, 32, 0, 0, 7, 0, 0, 0], |request| {
        request
            .attribute(libc::IFA_ADDRESS, &octets("10.0.0.2"))
            .attribute(libc::IFA_LOCAL, &octets("10.0.0.1"))
    });
    let address = |text: &str, within: &str| Address {
        link: 7,
        address: ip_address(text),
        prefix: prefix(within),
    };
    vec![
        ("address", four, Message::Address(address("10.0.0.1", "10.0.0.0/24"))),
        ("address6-gone", six, Message::AddressRemoved(address("2001:db8::1", "2001:db8::/64"))),
        ("address-of-two-ends", ends, Message::Address(address("10.0.0.1", "10.0.0.2/32"))),
    ]
}

fn neighbours() -> Vec<(&'static str, Vec<u8>, Message)> {
    let ndmsg = |state: u8, flags: u8| [INET, 0, 0, 0, 7, 0, 0, 0, state, 0, flags, 1];
    let neighbour = |kind: u16, state: u8, flags: u8| {
        event(kind, 0, &ndmsg(state, flags), |request| {
            request
                .attribute(libc::NDA_DST, &octets("10.0.0.2"))
                .attribute(libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 2])
        })
    };
    let known = |state| Neighbour {
        link: 7,
        address: ip_address("10.0.0.2"),
        mac: Some([2, 0, 0, 0, 0, 2]),
        state,
    };
    let six = event(libc::RTM_NEWNEIGH, 0, &[INET6, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 1], |request| {
        request
            .attribute(libc::NDA_DST, &octets("2001:db8::2"))
            .attribute(libc::NDA_LLADDR, &[2, 0, 0, 0, 0, 2])
    });
    let address = ip_address("2001:db8::2");
    let known6 = Neighbour { address, ..known(Reachability::Usable) };
    let (new, gone) = (libc::RTM_NEWNEIGH, libc::RTM_DELNEIGH);
    vec![
        ("neighbour", neighbour(new, 2, 0), Message::Neighbour(known(Reachability::Usable))),
        ("neighbour-stale", neighbour(new, 4, 0), Message::Neighbour(known(Reachability::Stale))),
        (
            "neighbour-failed",
            neighbour(new, 32, 0),
            Message::Neighbour(known(Reachability::Unknown)),
        ),
        (
            "neighbour-gone",
            neighbour(gone, 4, 0),
            Message::NeighbourRemoved(known(Reachability::Stale)),
        ),
        ("neighbour6", six, Message::Neighbour(known6)),
        ("neighbour-proxy", neighbour(new, 128, 8), Message::Other),
    ]
}

fn routes() -> Vec<(&'static str, Vec<u8>, Message)> {
    let new = libc::RTM_NEWROUTE;
    let create = libc::NLM_F_CREATE;
    let one = event(new, create, &rtmsg(INET, 16, libc::RTN_UNICAST), |request| {
        request
            .attribute(libc::RTA_DST, &octets("10.1.0.0"))
            .attribute(libc::RTA_GATEWAY, &octets("10.0.0.2"))
            .attribute(libc::RTA_OIF, &7_u32.to_ne_bytes())
            .attribute(libc::RTA_PRIORITY, &50_u32.to_ne_bytes())
            .nest(libc::RTA_METRICS, |all| all.attribute(2, &1400_u32.to_ne_bytes()))
            .attribute(libc::RTA_TABLE, &1000_u32.to_ne_bytes())
    });
    let main = event(new, create, &rtmsg(INET, 16, libc::RTN_UNICAST), |request| {
        request
            .attribute(libc::RTA_DST, &octets("10.2.0.0"))
            .attribute(libc::RTA_GATEWAY, &octets("10.0.0.2"))
            .attribute(libc::RTA_OIF, &7_u32.to_ne_bytes())
    });
    let plain = route("10.2.0.0/16", vec![hop("10.0.0.2", 7, 1)]);
    let expected = route("10.1.0.0/16", vec![hop("10.0.0.2", 7, 1)]);
    let expected = Route { metric: 50, mtu: 1400, table: 1000, ..expected };
    let flags = create | libc::NLM_F_APPEND;
    let several_hops = event(new, flags, &rtmsg(INET6, 48, libc::RTN_UNICAST), |request| {
        let hops = several(&[(3, 7, "2001:db8::2"), (1, 8, "2001:db8::3")]);
        request
            .attribute(libc::RTA_DST, &octets("2001:db8:1::"))
            .attribute(libc::RTA_MULTIPATH, &hops)
    });
    let both = vec![hop("2001:db8::2", 7, 3), hop("2001:db8::3", 8, 1)];
    let via = [&INET6.to_ne_bytes()[..], &[0], &octets("2001:db8::2")].concat();
    let other = event(new, libc::NLM_F_REPLACE, &rtmsg(INET, 0, libc::RTN_UNICAST), |request| {
        request.attribute(18, &via).attribute(libc::RTA_OIF, &7_u32.to_ne_bytes())
    });
    let hole = event(libc::RTM_DELROUTE, 0, &rtmsg(INET, 8, libc::RTN_BLACKHOLE), |request| {
        request.attribute(libc::RTA_DST, &octets("10.0.0.0"))
    });
    let dropped = Route { kind: RouteKind::Blackhole, ..route("10.0.0.0/8", vec![]) };
    let mut learned = rtmsg(INET6, 128, libc::RTN_UNICAST);
    learned[9] = 2; // RTM_F_CLONED
    let learned = event(new, 0, &learned, |request| request);
    let object = event(new, libc::NLM_F_MULTI, &rtmsg(INET, 8, libc::RTN_UNICAST), |request| {
        request.attribute(libc::RTA_DST, &octets("11.0.0.0")).attribute(30, &5_u32.to_ne_bytes())
    });
    let named = Route { next_hop: 5, ..route("11.0.0.0/8", vec![]) };
    let default = route("0.0.0.0/0", vec![hop("2001:db8::2", 7, 1)]);
    vec![
        ("route-main", main, Message::Route(plain, Position::First)),
        ("route", one, Message::Route(expected, Position::First)),
        (
            "route6-multipath",
            several_hops,
            Message::Route(route("2001:db8:1::/48", both), Position::Last),
        ),
        ("route-via-inet6", other, Message::Route(default, Position::Replace)),
        ("route-blackhole-gone", hole, Message::RouteRemoved(dropped)),
        ("route-learned", learned, Message::Other),
        ("route-object", object, Message::Route(named, Position::Last)),
    ]
}

fn others() -> Vec<(&'static str, Vec<u8>, Message)> {
    let object = |build: fn(Request) -> Request| {
        let header = [INET, 0, 0, 0, 0, 0, 0, 0];
        event(104, 0, &header, |request| build(request.attribute(1, &5_u32.to_ne_bytes())))
    };
    let single =
        object(|request| request.attribute(5, &7_u32.to_ne_bytes()).attribute(6, &[10, 0, 0, 2]));
    let group =
        object(|request| request.attribute(2, &[6, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0]));
    let members = vec![Member { id: 6, weight: 3 }, Member { id: 8, weight: 257 }];
    let rule = |extra: &[(u16, &[u8])]| {
        event(libc::RTM_NEWRULE, 0, &[INET, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0], |request| {
            let request =
                request.attribute(6, &100_u32.to_ne_bytes()).attribute(14, &u32::MAX.to_ne_bytes());
            extra.iter().fold(request, |request, (kind, value)| request.attribute(*kind, value))
        })
    };
    let plain = Rule {
        ipv6: false,
        priority: 100,
        table: 254,
        plain: true,
        vrf: false,
        is_beyond_lookup: false,
    };
    let error = event(libc::NLMSG_ERROR as u16, 0, &(-22_i32).to_ne_bytes(), |request| request);
    let done = event(libc::NLMSG_DONE as u16, 2, &0_i32.to_ne_bytes(), |request| request);
    let is = |kind| Message::NextHop(NextHop { id: 5, kind });
    vec![
        ("next-hop", single, is(NextHopKind::Hop(hop("10.0.0.2", 7, 1)))),
        ("next-hop-group", group, is(NextHopKind::Group(members))),
        (
            "next-hop-blackhole",
            object(|request| request.attribute(4, &[])),
            is(NextHopKind::Blackhole),
        ),
        ("rule", rule(&[]), Message::Rule(plain)),
        (
            "rule-of-a-mark",
            rule(&[(10, &[1, 0, 0, 0])]),
            Message::Rule(Rule { plain: false, is_beyond_lookup: true, ..plain }),
        ),
        ("error", error, Message::Ack(22)),
        ("done", done, Message::Done(0)),
        ("overrun", event(4, 0, &[], |request| request), Message::Overrun),
        ("unknown", event(999, 0, &[1, 2, 3], |request| request), Message::Other),
    ]
}

fn settings() -> Vec<(&'static str, Vec<u8>, Message)> {
    let netconf = |kind, family, values: &[(u16, i32)]| {
        event(kind, 0, &[family, 0, 0, 0], |request| {
            let attribute = |request: Request, (kind, value): &(u16, i32)| {
                request.attribute(*kind, &value.to_ne_bytes())
            };
            values.iter().fold(request, attribute)
        })
    };
    let (new, gone) = (libc::RTM_NEWNETCONF, libc::RTM_DELNETCONF);
    let four = netconf(new, INET, &[(1, 7), (2, 1), (3, 2), (5, 1)]);
    let six = netconf(new, INET6, &[(1, -1), (2, 0)]);
    let loose = netconf(new, INET, &[(1, -1), (3, 77)]);
    let expected = Netconf { link: 7, ipv6: false, forwards: Some(true), reverse_path: Some(2) };
    let all6 =
        Netconf { link: Netconf::ALL, ipv6: true, forwards: Some(false), reverse_path: None };
    let all4 = Netconf { link: Netconf::ALL, forwards: None, ..expected };
    let none = Netconf { forwards: None, reverse_path: None, ..expected };
    vec![
        ("netconf", four, Message::Netconf(expected)),
        ("netconf6-all", six, Message::Netconf(all6)),
        ("netconf-beyond", loose, Message::Netconf(all4)),
        ("netconf-gone", netconf(gone, INET, &[(1, 7)]), Message::NetconfRemoved(none)),
        ("netconf-of-mpls", netconf(new, libc::AF_MPLS as u8, &[(1, 7)]), Message::Other),
    ]
}

#[test]
fn settings_without_an_interface_are_refused() {
    for body in [&[][..], &[INET], &[INET, 0, 0, 0], &[INET, 0, 0, 0, 6, 0, 1, 0, 7, 0, 0, 0]] {
        let octets = event(libc::RTM_NEWNETCONF, 0, body, |request| request);
        let read: Vec<_> = Messages::new(&octets).collect();
        assert_eq!(read, [Err(malformed("a setting of forwarding"))], "{body:?}");
    }
}

/// Returns disciplines and filters of interface 7.
fn controls() -> Vec<(&'static str, Vec<u8>, Message)> {
    let message = |kind, parent, name: &[u8]| {
        let header = traffic_control::header(7, parent);
        event(kind, 0, &header, |request| request.attribute(1, name))
    };
    let control = |effect| Message::TrafficControl(TrafficControl { link: 7, effect });
    let removed = |effect| Message::TrafficControlRemoved(TrafficControl { link: 7, effect });
    let (new, gone) = (libc::RTM_NEWQDISC, libc::RTM_DELQDISC);
    let (new_filter, gone_filter) = (libc::RTM_NEWTFILTER, libc::RTM_DELTFILTER);
    let (root, egress) = (u32::MAX, traffic_control::EGRESS);
    vec![
        ("qdisc-tbf", message(new, root, b"tbf\0"), control(Effect::Control)),
        ("qdisc-fq-codel", message(new, root, b"fq_codel\0"), control(Effect::None)),
        ("qdisc-clsact", message(new, egress & !3, b"clsact\0"), control(Effect::Filters)),
        ("qdisc-removed", message(gone, root, b"htb\0"), removed(Effect::Control)),
        ("filter-egress", message(new_filter, egress, b"u32\0"), control(Effect::Control)),
        ("filter-ingress", message(new_filter, egress - 1, b"u32\0"), control(Effect::None)),
        ("filter-removed", message(gone_filter, egress, b"u32\0"), removed(Effect::Control)),
    ]
}

fn all() -> Vec<(&'static str, Vec<u8>, Message)> {
    [links(), addresses(), neighbours(), routes(), settings(), controls(), others()].concat()
}

#[test]
fn messages_mean_what_they_say() {
    for (name, octets, expected) in all() {
        let read: Vec<_> = Messages::new(&octets).collect();
        assert_eq!(read.len(), 1, "{name}");
        assert_eq!(read[0].as_ref().map(|(_, message)| message), Ok(&expected), "{name}");
    }
    let octets = all().into_iter().map(|(_, octets, _)| octets);
    let one_datagram: Vec<u8> = octets
        .flat_map(|mut octets| {
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        })
        .collect();
    assert_eq!(Messages::new(&one_datagram).filter(Result::is_ok).count(), all().len());
}

/// Cuts each message at every byte: it is parsed or refused.
#[test]
fn what_is_cut_off_is_refused() {
    for (name, octets, _) in all() {
        for length in 0..octets.len() {
            let read: Vec<_> = Messages::new(&octets[..length]).collect();
            assert_eq!(read.len(), usize::from(length > 0), "{name} to {length}");
            assert!(read.iter().all(Result::is_err), "{name} to {length}");
        }
        let mut short = octets.clone();
        for length in HEADER..octets.len() {
            short[..4].copy_from_slice(&(length as u32).to_ne_bytes());
            assert!(Messages::new(&short[..length]).count() == 1, "{name} as {length}");
            fuzz::netlink(&short[..length]);
        }
    }
    let error = Messages::new(&[1, 2, 3]).next().unwrap().unwrap_err();
    assert!(error.to_string().contains("netlink"), "{error}");
}

#[test]
fn the_corpus_of_netlink_holds() {
    corpus::replay("netlink", 20, fuzz::netlink);
}

#[test]
fn the_seeds_are_committed() {
    corpus::seeds("netlink", all().into_iter().map(|(name, octets, _)| (name, octets)));
}

/// Generates known messages with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let message =
        (0..all().len(), prop::collection::vec(change, 0..6)).prop_map(|(which, changes)| {
            let mut octets = all().swap_remove(which).1;
            for (place, octet) in changes {
                let place = place.index(octets.len());
                octets[place] = octet;
            }
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        });
    prop::collection::vec(message, 0..12).prop_map(|messages| messages.concat())
}

proptest! {
    #[test]
    fn random_octets_are_read(data in prop::collection::vec(any::<u8>(), 0..512)) {
        fuzz::netlink(&data);
    }

    #[test]
    fn changed_messages_are_read(data in mutated()) {
        fuzz::netlink(&data);
    }
}
