//! NAT and the sessions of users: rules see inside addresses, usage stays the same, a
//! block that changes its owner carries nothing over, and nothing passes by.

use upf::rules::layout::UeKey;
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::flag;

use super::*;
use crate::frames::ue4;

#[test]
fn usage_is_that_of_a_upf_without_nat() {
    let mut world = NatLane::new();
    let sent = transport(Flow::of_user(UDP, 4000, SERVER), 0, b"data");
    let port = flow_of(&world.up(&sent).expect("a packet")).from.1;
    let flow = Flow { protocol: UDP, from: (SERVER, 53), to: (EXTERNAL, port) };
    let answer = transport(flow, 0, b"the answer");
    world.down(&answer).expect("a packet");
    let octets = [sent.len(), 1, answer.len(), 1].map(|it| it as u64);
    assert_eq!(world.lane.usage(), octets);
    // What NAT drops is not counted as usage.
    world.down(&transport(Flow { to: (EXTERNAL, port ^ 32), ..flow }, 0, b"")).unwrap_or_default();
    world.up(&ipv4(USER, SERVER, 47, 64, b"gre")).unwrap_or_default();
    assert_eq!(world.lane.usage(), octets);
    assert_eq!(world.lane.count(DropReason::NatProtocol), 1);
    world.lane.check();
}

#[test]
fn nothing_leaves_with_an_inside_address() {
    let mut world = NatLane::new();
    world.lane.tables.nat_users.clear(SESSION.0 as usize);
    assert_eq!(world.up(&ue4(USER, SERVER, 64, 30)), None);
    assert_eq!(world.lane.count(DropReason::NatNoBlock), 1);
    let (_, error) = world.received().expect("an ICMP error");
    assert_eq!((error[20], error[21]), (3, 1));
    world.lane.check();
}

#[test]
fn nothing_passes_by_to_an_inside_address() {
    let mut world = NatLane::new();
    world.map(UDP, 4000, SERVER);
    let direct = Flow { protocol: UDP, from: (SERVER, 53), to: (USER, 4000) };
    assert_eq!(world.down(&transport(direct, 0, b"")), None);
    assert_eq!(world.lane.count(DropReason::NatNoMapping), 1);
    assert!(world.lane.linux().is_empty());
    world.lane.check();
}

/// RFC 6888, REQ-6.
#[test]
fn some_destinations_see_inside_addresses() {
    let mut world = NatLane::with(json!({ "untranslated": ["192.0.2.0/24"] }));
    let sent = transport(Flow::of_user(UDP, 4000, SERVER), 0, b"data");
    let flow = flow_of(&world.up(&sent).expect("a packet"));
    assert_eq!(flow, Flow::of_user(UDP, 4000, SERVER));
    let (_, inner) = world.down(&transport(flow.answer(), 0, b"")).expect("a packet");
    assert_eq!(flow_of(&inner), flow.answer());
    // Others still get the external one.
    assert_ne!(world.map(UDP, 4000, OTHER_SERVER), 0);
    world.lane.check();
}

#[test]
fn a_user_with_a_public_address_is_not_translated() {
    let mut world = NatLane::new();
    let public = [203, 0, 113, 200];
    let mut rules = simple(2);
    rules.uplink.ue4 = u32::from_be_bytes(public);
    world.lane.publish_other(SESSION, public, &rules);
    let flow = Flow { protocol: UDP, from: (public, 4000), to: (SERVER, 53) };
    let left = world.up(&transport(flow, 0, b"data")).expect("a packet");
    assert_eq!(flow_of(&left), flow);
    let (_, inner) = world.down(&transport(flow.answer(), 0, b"")).expect("a packet");
    assert_eq!(flow_of(&inner), flow.answer());
    world.lane.check();
}

#[test]
fn users_talk_by_their_inside_addresses_too() {
    let mut world = NatLane::new();
    let flow = Flow { protocol: UDP, from: (USER, 4000), to: (OTHER, 53) };
    world.up(&transport(flow, 0, b"hello"));
    assert_eq!(world.lane.pass(), 1);
    let (tunnel, inner) = world.received().expect("a packet");
    assert_eq!((tunnel, flow_of(&inner)), (OTHER_TEID, flow));
    world.lane.check();
}

#[test]
fn a_block_carries_nothing_over_to_its_next_owner() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    // The other user gets the block in its next generation.
    world.lane.tables.nat_users.clear(SESSION.0 as usize);
    world.give(OTHER_SESSION, OTHER, BLOCK, 2);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), None);
    assert_eq!(world.lane.count(DropReason::NatNoMapping), 1);
    let flow = Flow { from: (OTHER, 4000), ..Flow::of_user(UDP, 0, SERVER) };
    let left = world.up_of(OTHER_SESSION, &transport(flow, 0, b"")).pop().expect("a packet");
    assert!(world.is_in_block(BLOCK, flow_of(&left).from.1));
    world.lane.check();
}

#[test]
fn packets_for_other_ports_of_the_address_are_those_of_linux() {
    let mut world = NatLane::with(json!({ "first-port": 2048, "last-port": 4095 }));
    for port in [22, 2047, 4096, 65_535] {
        let flow = Flow { protocol: TCP, from: (SERVER, 53), to: (EXTERNAL, port) };
        world.lane.show(N6, &[ethernet(N6, &transport(flow, 2, b""))]);
        assert_eq!(world.lane.linux().len(), 1, "{port}");
    }
    world.lane.check();
}

#[test]
fn held_packets_are_translated_when_they_are_released() {
    let mut world = NatLane::new();
    let port = world.map(UDP, 4000, SERVER);
    let mut rules = simple(2);
    rules.downlink.common.flags |= flag::HOLD | flag::NOTIFY;
    (rules.cold.hold_packets, rules.cold.hold_ms) = (4, 60_000);
    world.lane.publish(&rules);
    assert_eq!(world.reaches(UDP, (SERVER, 53), port), None);
    assert_eq!(world.lane.count(DropReason::Held), 1);
    world.lane.publish(&simple(3));
    (0..40).for_each(|_| {
        world.lane.lane.turn();
    });
    let (_, inner) = world.received().unwrap_or_else(|| panic!("{:?}", world.lane.drop_reasons()));
    assert_eq!(flow_of(&inner).to, (USER, 4000));
    assert_eq!(world.lane.lane.close(), 0);
}

#[test]
fn ipv6_is_not_touched() {
    let mut world = NatLane::new();
    let sent = crate::frames::ipv6("2001:db8:45:5::1", "2001:db8:7::7", 17, 64, &[0; 8]);
    let left = world.up(&sent).expect("a packet");
    assert_eq!(left[8..], sent[8..]);
    let key = UeKey::v6(INTERNET, ue6());
    assert!(world.lane.tables.users.get(&key).is_some());
    world.lane.check();
}
