use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::{PortRange, Rules};

/// Returns a frame of addresses, tags, EtherType and `rest`.
fn ethernet(tags: &[u16], ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(rest);
    frame
}

fn ipv4(options: usize, fragment: u16, protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20 + options];
    packet[0] = 0x45 + (options / 4) as u8;
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
    packet.extend(rest);
    packet
}

/// Returns a packet of an IPv6 header, extension headers of these types and `rest`.
fn ipv6(extensions: &[u8], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x60;
    packet[6] = *extensions.first().unwrap_or(&protocol);
    packet[8..10].copy_from_slice(&[0x20, 0x01]);
    for index in 0..extensions.len() {
        let next = *extensions.get(index + 1).unwrap_or(&protocol);
        packet.extend([next, 1]);
        packet.extend([0; 14]);
    }
    packet.extend(rest);
    packet
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; 8];
    datagram[2..4].copy_from_slice(&port.to_be_bytes());
    datagram.extend(payload);
    datagram
}

fn only(rule: Rule) -> Rules {
    Rules::new(vec![rule]).expect("a sound rule")
}

fn dns() -> Rules {
    only(Rule { udp_port: Some(53.into()), ..Rule::default() })
}

fn gtp() -> Rules {
    only(Rule { gtp_u: true, ..Rule::default() })
}

#[test]
fn no_rules_take_everything() {
    for frame in [&[][..], &[1], &[0; 14], &[0xff; 2000]] {
        assert!(Rules::default().matches(frame));
    }
}

#[test]
fn an_ethertype_needs_ethernet_only() {
    let rules = only(Rule { ethertype: Some(IPV4), ..Rule::default() });
    assert!(rules.matches(&ethernet(&[], IPV4, &[])));
    assert!(!rules.matches(&ethernet(&[], IPV6, &[])));
    assert!(!rules.matches(&ethernet(&[], IPV4, &[])[..13]));
    assert!(rules.matches(&ethernet(&[0x8100], IPV4, &[])));
    assert!(!rules.matches(&ethernet(&[0x8100], IPV4, &[])[..17]));
}

#[test]
fn up_to_two_tags_are_stepped_over() {
    let packet = ipv4(0, 0, UDP, &udp(53, &[]));
    for (tags, fast) in [
        (&[][..], true),
        (&[0x8100], true),
        (&[0x88a8, 0x8100], true),
        (&[0x8100, 0x8100, 0x8100], false),
    ] {
        assert_eq!(dns().matches(&ethernet(tags, IPV4, &packet)), fast, "{tags:x?}");
    }
}

#[test]
fn ports_are_found_behind_options_and_only_in_whole_headers() {
    for options in [0, 4, 40] {
        let frame = ethernet(&[], IPV4, &ipv4(options, 0, UDP, &udp(53, &[])));
        assert!(dns().matches(&frame));
        assert!(!dns().matches(&frame[..frame.len() - 1]));
    }
    // The same octets as TCP, and as IPv4 with another version or too short a header.
    assert!(!dns().matches(&ethernet(&[], IPV4, &ipv4(0, 0, TCP, &udp(53, &[])))));
    for first in [0x65, 0x44] {
        let mut packet = ipv4(0, 0, UDP, &udp(53, &[]));
        packet[0] = first;
        assert!(!dns().matches(&ethernet(&[], IPV4, &packet)));
    }
}

#[test]
fn tcp_needs_its_twenty_octets() {
    let rules = only(Rule { tcp_port: Some(PortRange { first: 80, last: 90 }), ..Rule::default() });
    for (port, fast) in [(79_u16, false), (80, true), (90, true), (91, false)] {
        let mut segment = [0; 20];
        segment[2..4].copy_from_slice(&port.to_be_bytes());
        let frame = ethernet(&[], IPV4, &ipv4(0, 0, TCP, &segment));
        assert_eq!(rules.matches(&frame), fast, "{port}");
        assert!(!rules.matches(&frame[..frame.len() - 1]));
    }
}

#[test]
fn fragments_are_not_fast_without_a_rule_for_them() {
    let any_ip = Rules::new(vec![
        Rule { ethertype: Some(IPV4), ..Rule::default() },
        Rule { ethertype: Some(IPV6), ..Rule::default() },
    ])
    .expect("sound rules");
    // Don't-fragment and the reserved bit make no fragment.
    for (field, fast) in [
        (0, true),
        (0x4000, true),
        (0x8000, true),
        (0x2000, false),
        (0x0001, false),
        (0x3fff, false),
    ] {
        let frame = ethernet(&[], IPV4, &ipv4(0, field, UDP, &udp(53, &[])));
        assert_eq!(any_ip.matches(&frame), fast, "{field:#x}");
        assert_eq!(dns().matches(&frame), fast, "{field:#x}");
        assert!(Rules::default().matches(&frame));
    }
    assert!(!any_ip.matches(&ethernet(&[], IPV6, &ipv6(&[FRAGMENT], UDP, &udp(53, &[])))));
    assert!(!any_ip.matches(&ethernet(&[], IPV6, &ipv6(&[60, FRAGMENT], UDP, &udp(53, &[])))));
}

#[test]
fn fragments_match_by_what_each_of_them_has() {
    let fragments = |rule: Rule| only(Rule { fragments: true, ..rule });
    let destination = Some(Prefix { address: IpAddr::V4([10, 0, 0, 2].into()), length: 32 });
    let gtp = Rule { gtp_u: true, ..Rule::default() };
    let udp_rules = [
        fragments(Rule { udp_port: Some(53.into()), ..Rule::default() }),
        fragments(Rule { protocol: Some(UDP), ..Rule::default() }),
        fragments(Rule { destination, udp_port: Some(53.into()), ..Rule::default() }),
        fragments(Rule { gtp_u: true, ..Rule::default() }),
    ];
    // The first fragment to any port, a later one, one of an octet, and one of a TCP segment.
    for (field, protocol, rest, fast) in [
        (0x2000, UDP, &udp(54, &[])[..], true),
        (0x2001, UDP, &[0xff; 64], true),
        (0x0009, UDP, &[1], true),
        (0x0009, TCP, &[0xff; 64], false),
    ] {
        let frame = ethernet(&[], IPV4, &ipv4(0, field, protocol, rest));
        for rules in &udp_rules {
            assert_eq!(rules.matches(&frame), fast, "{field:#x} {protocol} {rules:?}");
        }
        assert!(!only(gtp.clone()).matches(&frame));
        assert!(fragments(Rule { destination, ..Rule::default() }).matches(&frame));
    }
    let elsewhere = Some(Prefix { address: IpAddr::V4([10, 0, 0, 3].into()), length: 32 });
    let frame = ethernet(&[], IPV4, &ipv4(0, 9, UDP, &[1]));
    assert!(!fragments(Rule { destination: elsewhere, ..Rule::default() }).matches(&frame));
    // Whole datagrams match as without the field.
    let whole = |port| ethernet(&[], IPV4, &ipv4(0, 0, UDP, &udp(port, &[])));
    assert!(udp_rules[0].matches(&whole(53)) && !udp_rules[0].matches(&whole(54)));
    // IPv6: the protocol is in the fragment header.
    for (rules, cut) in [(&udp_rules[0], 8), (&udp_rules[1], 8)] {
        let frame = ethernet(&[], IPV6, &ipv6(&[60, FRAGMENT], UDP, &[]));
        assert!(rules.matches(&frame));
        assert!(!rules.matches(&ethernet(&[], IPV6, &ipv6(&[FRAGMENT], TCP, &[]))));
        assert!(rules.matches(&frame[..frame.len() - cut]), "the fragment header has 8 octets");
        assert!(!rules.matches(&frame[..frame.len() - cut - 1]));
    }
}

#[test]
fn ipv6_extension_headers_are_stepped_over() {
    for (extensions, fast) in [
        (&[][..], true),
        (&[0], true),
        (&[0, 43, 60], true),
        (&[0, 60, 60, 60, 60, 60], true),
        (&[0, 60, 60, 60, 60, 60, 60], false),
        // An authentication header is a protocol like any other.
        (&[51], false),
    ] {
        let frame = ethernet(&[], IPV6, &ipv6(extensions, UDP, &udp(53, &[])));
        assert_eq!(dns().matches(&frame), fast, "{extensions:?}");
    }
    let any_ipv6 = only(Rule { ethertype: Some(IPV6), ..Rule::default() });
    assert!(any_ipv6.matches(&ethernet(&[], IPV6, &ipv6(&[60; 9], UDP, &[]))));
}

#[test]
fn gtp_u_is_version_1_of_protocol_type_gtp() {
    for (port, payload, fast) in [
        (2152, [0x30, 0xff, 0, 0, 0, 0, 0, 1], true),
        (2152, [0x36, 0xff, 0, 0, 0, 0, 0, 1], true),
        (2152, [0x20, 0xff, 0, 0, 0, 0, 0, 1], false),
        (2152, [0x50, 0xff, 0, 0, 0, 0, 0, 1], false),
        (2153, [0x30, 0xff, 0, 0, 0, 0, 0, 1], false),
    ] {
        for frame in [
            ethernet(&[], IPV4, &ipv4(0, 0, UDP, &udp(port, &payload))),
            ethernet(&[], IPV6, &ipv6(&[], UDP, &udp(port, &payload))),
        ] {
            assert_eq!(gtp().matches(&frame), fast, "{payload:x?}");
            assert!(!gtp().matches(&frame[..frame.len() - 1]));
        }
    }
}

#[test]
fn prefixes_are_of_their_version() {
    let from = |address: IpAddr, length| {
        only(Rule { source: Some(Prefix { address, length }), ..Rule::default() })
    };
    let any_v4 = from(Ipv4Addr::UNSPECIFIED.into(), 0);
    let ten = from(Ipv4Addr::new(10, 0, 0, 0).into(), 8);
    let host = from(Ipv4Addr::new(10, 0, 0, 2).into(), 32);
    let v6 = from("2001::".parse().expect("an address"), 16);
    let (four, six) =
        (ethernet(&[], IPV4, &ipv4(0, 0, 1, &[])), ethernet(&[], IPV6, &ipv6(&[], 58, &[])));
    for (rules, on_four, on_six) in
        [(any_v4, true, false), (ten, true, false), (host, false, false), (v6, false, true)]
    {
        assert_eq!(rules.matches(&four), on_four);
        assert_eq!(rules.matches(&six), on_six);
        assert!(!rules.matches(&four[..four.len() - 1]));
        assert!(!rules.matches(&six[..six.len() - 1]));
    }
}

#[test]
fn every_field_of_a_rule_must_match_and_any_rule_will_do() {
    let narrow = Rule {
        destination: Some(Prefix { address: Ipv4Addr::new(10, 0, 0, 2).into(), length: 32 }),
        udp_port: Some(53.into()),
        ..Rule::default()
    };
    let other = Rule { protocol: Some(58), ..Rule::default() };
    let rules = Rules::new(vec![narrow, other]).expect("sound rules");
    assert!(rules.matches(&ethernet(&[], IPV4, &ipv4(0, 0, UDP, &udp(53, &[])))));
    assert!(!rules.matches(&ethernet(&[], IPV4, &ipv4(0, 0, UDP, &udp(54, &[])))));
    assert!(rules.matches(&ethernet(&[], IPV6, &ipv6(&[], 58, &[]))));
}

proptest! {
    #[test]
    fn no_frame_makes_a_matcher_panic(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        ethertype in prop::sample::select(vec![IPV4, IPV6, 0x8100]),
    ) {
        if let Some(field) = frame.get_mut(12..14) {
            field.copy_from_slice(&ethertype.to_be_bytes());
        }
        for rules in [dns(), gtp()] {
            assert_eq!(rules.matches(&frame), rules.matches_any(&frame));
        }
    }
}
