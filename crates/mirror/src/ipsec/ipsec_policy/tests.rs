use fastlane_testing::corpus;
use fastlane_testing::namespace::{ip, private};
use proptest::prelude::*;

use super::*;
use crate::fuzz;
use crate::ipsec::PolicyReader;

fn tuple(source: &str, destination: &str, ports: [u16; 2]) -> ConnectionTuple {
    let address = |text: &str| text.parse().unwrap();
    let (source, destination) = (address(source), address(destination));
    ConnectionTuple { source, destination, protocol: 6, ports }
}

/// Returns true if policies cover TCP from 10.0.0.1:4000 to 10.2.0.2:443 that leaves from
/// 192.0.2.1:5000.
fn cover_masqueraded(policies: &IpsecPolicies) -> bool {
    let original = tuple("10.0.0.1", "10.2.0.2", [4000, 443]);
    policies.cover(&original, &tuple("10.2.0.2", "192.0.2.1", [443, 5000]))
}

const TEMPLATE: &str = "tmpl src 192.0.2.1 dst 192.0.2.9 proto esp mode tunnel";

/// Returns true if the policies of a new namespace cover the connection.
fn cover(policies: &[&str]) -> bool {
    ip("xfrm policy flush");
    for policy in policies {
        ip(&format!("xfrm policy add {policy}"));
    }
    let reader = PolicyReader::open().unwrap();
    cover_masqueraded(reader.policies())
}

#[test]
fn policies_of_linux_cover_what_their_selectors_match() {
    if !private("ipsec-policies") {
        return;
    }
    assert!(!cover(&[]));
    let covering = [
        "src 10.0.0.0/24 dst 10.2.0.0/24 dir out", // before the source is translated
        "src 192.0.2.1 dst 0.0.0.0/0 dir out",     // afterwards
        "src 10.2.0.0/24 dst 10.0.0.0/24 dir fwd", // replies, translated back
        "src 0.0.0.0/0 dst 0.0.0.0/0 dir fwd",
        "src 10.0.0.0/24 dst 10.2.0.2 proto tcp dport 443 dir out",
        "src 10.2.0.2 dst 10.0.0.1 proto tcp sport 443 dport 4000 dir out",
        "src 0.0.0.0/0 dst 0.0.0.0/0 dir out mark 7 mask 0xff", // in doubt
    ];
    for selector in covering {
        assert!(cover(&[&format!("{selector} {TEMPLATE}")]), "{selector}");
        let priority = "dir out priority 10 action allow";
        let before = format!("src 0.0.0.0/0 dst 0.0.0.0/0 {priority}");
        let behind = format!("{selector} priority 20 {TEMPLATE}");
        assert_eq!(cover(&[&before, &behind]), selector.contains("fwd"), "{selector}");
    }
    let others = [
        "src 10.0.0.0/24 dst 10.2.0.0/24 dir in",
        "src 10.0.0.0/24 dst 10.3.0.0/24 dir out",
        "src 10.0.0.0/24 dst 10.2.0.0/24 proto udp dir out",
        "src 10.0.0.0/24 dst 10.2.0.2 proto tcp dport 444 dir out",
        "src 10.0.0.1 dst 192.0.2.1 dir out",
        "src 10.0.0.0/24 dst 10.2.0.0/24 dir out if_id 7",
        "src ::/0 dst ::/0 dir out",
    ];
    for selector in others {
        let template = if selector.contains(':') { "action block" } else { TEMPLATE };
        assert!(!cover(&[&format!("{selector} {template}")]), "{selector}");
    }
    assert!(cover(&["src 10.0.0.0/24 dst 10.2.0.0/24 dir out action block"]));
    assert!(!cover(&["src 10.0.0.0/24 dst 10.2.0.0/24 dir out action allow"]));
    // A policy that depends on the mark may not be the one that permits.
    let marked = "src 0.0.0.0/0 dst 0.0.0.0/0 dir out priority 1 mark 7 mask 0xff action allow";
    let template = format!("src 10.0.0.0/24 dst 10.2.0.0/24 dir out priority 2 {TEMPLATE}");
    assert!(cover(&[marked, &template]));
}

#[test]
fn changes_are_followed() {
    if !private("ipsec-changes") {
        return;
    }
    let mut reader = PolicyReader::open().unwrap();
    assert!(!reader.follow().unwrap() && reader.policies().is_empty());
    let policy = "src 10.0.0.0/24 dst 10.2.0.0/24 dir out";
    ip(&format!("xfrm policy add {policy} {TEMPLATE}"));
    assert!(reader.follow().unwrap() && cover_masqueraded(reader.policies()));
    assert!(!reader.follow().unwrap(), "once");
    ip(&format!("xfrm policy update {policy} action allow"));
    assert!(reader.follow().unwrap() && !cover_masqueraded(reader.policies()));
    ip("xfrm policy flush");
    assert!(reader.follow().unwrap() && reader.policies().is_empty());
    let expiring = "limit time-hard 1";
    ip(&format!("xfrm policy add {policy} {expiring} {TEMPLATE}"));
    assert!(reader.follow().unwrap() && !reader.policies().is_empty());
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !reader.follow().unwrap() {
        assert!(std::time::Instant::now() < end, "it does not expire");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(reader.policies().is_empty());
}

/// Returns a message about a policy, which differs from plain ones by `change`.
fn message(change: impl FnOnce(&mut [u8; INFO]), attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut info = [0; INFO];
    info[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    info[DIRECTION] = OUT;
    change(&mut info);
    let request = fastlane_netlink::Request::new(0x13, 0, &info);
    let add = |request: fastlane_netlink::Request, (kind, value): &(u16, &[u8])| {
        request.attribute(*kind, value)
    };
    attributes.iter().fold(request, add).finish()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let template = (TEMPLATES, &[0_u8; 64][..]);
    vec![
        ("allow", message(|_| {}, &[])),
        ("block", message(|info| info[ACTION] = 1, &[])),
        ("template", message(|_| {}, &[template])),
        ("mark", message(|_| {}, &[template, (MARK, &[7, 0, 0, 0, 255, 0, 0, 0])])),
        ("device", message(|_| {}, &[template, (INTERFACE_ID, &[1, 0, 0, 0])])),
        ("forward", message(|info| info[DIRECTION] = FORWARD, &[template])),
        ("ports", message(|info| info[32..36].copy_from_slice(&[1, 187, 255, 255]), &[template])),
        ("ipv6", message(|info| info[40] = libc::AF_INET6 as u8, &[template])),
    ]
}

#[test]
fn the_seeds_are_committed_and_hold() {
    corpus::seeds("ipsec", seeds());
    corpus::replay("ipsec", 8, fuzz::ipsec);
    let read = |octets: &[u8]| IpsecPolicy::read(&octets[16..]).unwrap();
    let covered = seeds().into_iter().filter(|(_, octets)| {
        read(octets).is_some_and(|policy| cover_masqueraded(&IpsecPolicies::new(vec![policy])))
    });
    let covered: Vec<&str> = covered.map(|(name, _)| name).collect();
    assert_eq!(covered, ["block", "template", "mark", "forward", "ports"]);
}

#[test]
fn what_is_malformed_is_refused() {
    let family = message(|info| info[40] = 99, &[]);
    let length = message(|info| info[43] = 33, &[]);
    for octets in [family, length, message(|_| {}, &[])[..16 + INFO - 1].to_vec()] {
        assert_eq!(IpsecPolicy::read(&octets[16..]), Err(malformed("an IPsec policy")));
    }
}

proptest! {
    #[test]
    fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..260)) {
        fuzz::ipsec(&octets);
    }
}
