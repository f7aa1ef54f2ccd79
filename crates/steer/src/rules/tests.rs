use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

fn fault(rule: Rule) -> RuleFault {
    match Rules::new(vec![rule]) {
        Err(RuleError::Rule { index: 0, fault }) => fault,
        other => panic!("{other:?}"),
    }
}

fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Option<Prefix> {
    Some(Prefix { address: Ipv4Addr::new(a, b, c, d).into(), length })
}

fn v6(first: u16, last: u16, length: u8) -> Option<Prefix> {
    Some(Prefix { address: Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last).into(), length })
}

#[test]
fn sound_rules_are_taken() {
    let gtp = Rule {
        ethertype: Some(IPV4),
        protocol: Some(17),
        source: v4(10, 0, 0, 0, 8),
        destination: v4(0, 0, 0, 0, 0),
        udp_port: Some(PortRange { first: 2100, last: 2200 }),
        gtp_u: true,
        ..Rule::default()
    };
    let host = Rule { source: v6(0xfe80, 1, 128), ..Rule::default() };
    let arp = Rule { ethertype: Some(0x0806), ..Rule::default() };
    let web = Rule { tcp_port: Some(80.into()), protocol: Some(6), ..Rule::default() };
    let rules = Rules::new(vec![gtp, host, arp, web]).expect("all are sound");
    assert_eq!(rules.as_slice().len(), 4);
    assert!(Rules::new(Vec::new()).expect("none is everything").is_empty());
}

#[test]
fn too_many_rules_are_refused() {
    let rule = Rule { protocol: Some(1), ..Rule::default() };
    assert!(Rules::new(vec![rule.clone(); MAX_RULES]).is_ok());
    let error = Rules::new(vec![rule; MAX_RULES + 1]).expect_err("one too many");
    assert_eq!(error, RuleError::TooMany { count: 65 });
}

#[test]
fn the_faulty_rule_is_named() {
    let sound = Rule { protocol: Some(1), ..Rule::default() };
    let error = Rules::new(vec![sound, Rule::default()]).expect_err("the second is empty");
    assert_eq!(
        error.to_string(),
        "rule 2: names no field; to take every frame, give no rules at all"
    );
}

#[test]
fn contradictions_name_both_fields() {
    let udp = Some(PortRange::from(53));
    let cases = [
        (
            Rule { udp_port: udp, tcp_port: udp, ..Rule::default() },
            (Field::UdpPort, Field::TcpPort),
        ),
        (Rule { tcp_port: udp, gtp_u: true, ..Rule::default() }, (Field::TcpPort, Field::GtpU)),
        (Rule { udp_port: udp, gtp_u: true, ..Rule::default() }, (Field::UdpPort, Field::GtpU)),
        (
            Rule { protocol: Some(6), udp_port: udp, ..Rule::default() },
            (Field::Protocol, Field::UdpPort),
        ),
        (
            Rule { protocol: Some(17), tcp_port: udp, ..Rule::default() },
            (Field::Protocol, Field::TcpPort),
        ),
        (
            Rule { protocol: Some(1), gtp_u: true, ..Rule::default() },
            (Field::Protocol, Field::GtpU),
        ),
        (
            Rule { ethertype: Some(0x0806), protocol: Some(17), ..Rule::default() },
            (Field::Ethertype, Field::Protocol),
        ),
        (
            Rule { ethertype: Some(0x0806), udp_port: udp, ..Rule::default() },
            (Field::Ethertype, Field::UdpPort),
        ),
        (
            Rule { ethertype: Some(IPV6), source: v4(10, 0, 0, 0, 8), ..Rule::default() },
            (Field::Ethertype, Field::Source),
        ),
        (
            Rule { ethertype: Some(IPV4), destination: v6(0xfe80, 0, 10), ..Rule::default() },
            (Field::Ethertype, Field::Destination),
        ),
        (
            Rule { source: v4(10, 0, 0, 0, 8), destination: v6(0xfe80, 0, 10), ..Rule::default() },
            (Field::Source, Field::Destination),
        ),
    ];
    for (rule, (one, other)) in cases {
        assert_eq!(fault(rule.clone()), RuleFault::Contradiction(one, other), "{rule:?}");
    }
}

#[test]
fn malformed_fields_are_refused_with_the_remedy() {
    let cases = [
        (
            Rule { ethertype: Some(0x05ff), ..Rule::default() },
            "ethertype 0x05ff is a length, not a type: the smallest type is 0x0600",
        ),
        (
            Rule { ethertype: Some(0x88a8), ..Rule::default() },
            "ethertype 0x88a8 is a VLAN tag, which rules skip: name the type after it",
        ),
        (
            Rule { source: v4(10, 1, 2, 3, 8), ..Rule::default() },
            "source prefix 10.1.2.3/8 has host bits set: write 10.0.0.0/8",
        ),
        (
            Rule { destination: v6(0x2001, 1, 16), ..Rule::default() },
            "destination prefix 2001::1/16 has host bits set: write 2001::/16",
        ),
        (
            Rule { source: v4(10, 0, 0, 0, 33), ..Rule::default() },
            "source prefix 10.0.0.0/33: the length is at most 32",
        ),
        (
            Rule { source: v6(0, 0, 200), ..Rule::default() },
            "source prefix ::/200: the length is at most 128",
        ),
        (
            Rule { udp_port: Some(PortRange { first: 9, last: 8 }), ..Rule::default() },
            "udp-port range 9-8 is upside down: write the lower port first",
        ),
        (
            Rule { tcp_port: Some(PortRange { first: 9, last: 8 }), ..Rule::default() },
            "tcp-port range 9-8 is upside down: write the lower port first",
        ),
    ];
    for (rule, wanted) in cases {
        assert_eq!(fault(rule).to_string(), wanted);
    }
}

#[test]
fn masks_cover_their_length() {
    let prefix = |length| Prefix { address: Ipv6Addr::UNSPECIFIED.into(), length };
    assert_eq!(prefix(0).mask(), [0; 16]);
    assert_eq!(prefix(128).mask(), [255; 16]);
    assert_eq!(prefix(20).mask()[..4], [255, 255, 0xf0, 0]);
}

#[test]
fn frames_of_a_vlan_that_a_rule_names_are_compared_with_its_rules_only() {
    let arp = Rule { ethertype: Some(0x0806), ..Rule::default() };
    let of_vlan = |rule: Rule| Rule { vlan: Some(100), ..rule };
    let ipv4 = of_vlan(Rule { ethertype: Some(IPV4), ..Rule::default() });
    let rules = Rules::new(vec![arp, ipv4.clone()]).expect("sound rules");
    let frame = |tag: [u8; 4], ethertype: u16| {
        let [high, low] = ethertype.to_be_bytes();
        let mut frame = [&[0; 12][..], &tag, &[high, low], &[0; 46]].concat();
        frame[18] = 0x45;
        frame
    };
    assert!(rules.matches(&frame([0x81, 0, 0x60, 100], IPV4)), "whatever the priority");
    assert!(!rules.matches(&frame([0x81, 0, 0, 100], 0x0806)), "the general rule is not compared");
    assert!(rules.matches(&frame([0x81, 0, 0, 99], 0x0806)));
    assert!(!rules.matches(&frame([0x81, 0, 0, 99], IPV4)), "the rule of the VLAN is not compared");
    assert!(rules.matches(&frame([0x88, 0xa8, 0, 100], 0x0806)), "a service tag names no VLAN");
    // Without a general rule everything else is claimed.
    let rules = Rules::new(vec![ipv4]).expect("sound rules");
    assert!(rules.matches(&[0; 60]) && rules.matches(&frame([0x81, 0, 0, 99], IPV4)));
    assert!(!rules.matches(&frame([0x81, 0, 0, 100], 0x0806)));
    for id in [0, 4095] {
        let rule = Rule { vlan: Some(id), ..Rule::default() };
        assert_eq!(rule.check(), Err(RuleFault::NoVlan(id)));
    }
}
