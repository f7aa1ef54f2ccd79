//! Tunnels to control plane functions that no port leads to.

use fastlane::mirror::{FallbackReason, RouteLookup};
use fastlane_table::messages::{PUNT, Punted};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::message::{UserPacket, kind};
use upf::rules::layout::session_rules::{Rules, flag, forwarding};
use zerocopy::IntoBytes;

use crate::frames::{ethernet, from_gnb, g_pdu, gtpu, opened, ue4};
use crate::test_lane::*;

/// Address and TEID of the control plane function.
const CONTROL: [u8; 4] = [10, 4, 0, 2];
const CONTROL_TEID: u32 = 0x55;
/// Destination interface CP-function (TS 29.244 clause 8.2.24).
const TO_CONTROL: u8 = 3;

/// Returns rules by which the packets of the UE go to the control plane function.
fn to_control() -> Rules {
    let mut rules = simple(1);
    let up = &mut rules.uplink.common;
    up.forwarding.what = forwarding::GTPU | TO_CONTROL;
    up.forwarding.instance = forwarding::NO_INSTANCE;
    (up.forwarding.peer, up.forwarding.teid) = (CONTROL, CONTROL_TEID);
    rules
}

/// Returns rules by which the packets of a tunnel go to the UE.
fn from_control() -> Rules {
    let mut rules = simple(1);
    rules.uplink.common.flags &= !(flag::UE4 | flag::UE6);
    rules.uplink.common.forwarding = rules.downlink.common.forwarding;
    rules
}

fn message(session: u32, teid: u32, packet: &[u8]) -> Vec<u8> {
    [UserPacket { session, teid }.as_bytes(), packet].concat()
}

/// Returns the messages of the lane as packets: destination and UDP payload.
fn punted(world: &mut TestLane) -> Vec<([u8; 4], Vec<u8>)> {
    let heard = world.heard();
    let open = |(of_kind, body): &(u32, Vec<u8>)| {
        assert_eq!(*of_kind, PUNT);
        let frame = Punted::read(body).expect("a packet").bytes;
        (frame[30..34].try_into().expect("an address"), frame[42..].to_vec())
    };
    heard.iter().map(open).collect()
}

#[test]
fn a_packet_goes_to_the_slow_path_in_its_tunnel() {
    let mut world = TestLane::with_user();
    world.publish(&to_control());
    let inner = ue4(USER, SERVER, 64, 10);
    // With its container, as between any tunnels.
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 9, &inner))]);
    assert_eq!(punted(&mut world), [(CONTROL, g_pdu(CONTROL_TEID, 1, 9, &inner))]);
    assert_eq!(world.count(DropReason::ToControl), 1, "{:?}", world.drop_reasons());
    assert_eq!(world.usage()[..2], [inner.len() as u64, 1]);
    // With one of its own, padding is left out.
    let mut rules = to_control();
    rules.uplink.common.forwarding.quality = 1 + 5;
    world.publish(&rules);
    let padded = [&inner[..], &[0; 20]].concat();
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 9, &padded))]);
    assert_eq!(punted(&mut world), [(CONTROL, g_pdu(CONTROL_TEID, 1, 5, &inner))]);
    assert!(world.left(N3).is_empty() && world.left(N6).is_empty());
    world.check();
}

#[test]
fn a_downlink_packet_for_the_control_plane_is_routed() {
    let mut world = TestLane::with_user();
    let mut rules = to_control();
    rules.downlink.common.forwarding = rules.uplink.common.forwarding;
    world.publish(&rules);
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 1))]);
    let message = gtpu(0x30, 255, CONTROL_TEID, &ue4(SERVER, USER, 63, 1));
    assert_eq!(punted(&mut world), [(CONTROL, message)]);
    world.check();
}

#[test]
fn a_port_that_leads_to_the_control_plane_comes_first() {
    let mut known = TestRoutes::new();
    known.set("10.4.0.2", out_of(N3, 1500));
    let mut world = TestLane::new(known, settings());
    world.publish(&to_control());
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 9, &ue4(USER, SERVER, 64, 1)))]);
    assert_eq!((punted(&mut world).len(), world.left(N3).len()), (0, 1));
    // It does, but the neighbour is not known yet.
    let mut known = TestRoutes::new();
    known.set("10.4.0.2", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    let mut world = TestLane::new(known, settings());
    world.publish(&to_control());
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 9, &ue4(USER, SERVER, 64, 1)))]);
    assert!(matches!(world.heard()[..], [(kind::NEIGHBOUR, _)]));
    assert_eq!(world.count(DropReason::NoNeighbour), 1);
    world.check();
}

#[test]
fn packets_for_the_control_plane_are_limited() {
    let mut world = TestLane::with_user();
    world.publish(&to_control());
    let frame = from_gnb(&g_pdu(teid(SESSION), 1, 9, &ue4(USER, SERVER, 64, 1)));
    let mut sent = 0;
    for _ in 0..20 {
        world.show(N3, &vec![frame.clone(); 10]);
        sent += punted(&mut world).len() as u64;
    }
    let busy = world.count(DropReason::ToControlBusy);
    assert_eq!((world.count(DropReason::ToControl), sent + busy), (sent, 200));
    assert!(busy > 0, "a tenth of a second's packets at once, then one a millisecond");
    // What does not leave is not charged.
    assert_eq!(world.usage()[1], sent);
    world.check();
}

#[test]
fn a_packet_of_the_control_plane_goes_by_the_rules_of_its_tunnel() {
    let mut world = TestLane::with_user();
    world.publish(&from_control());
    let inner = ue4(SERVER, USER, 255, 10);
    world.send_message(kind::USER_PACKET, &message(SESSION.0, teid(SESSION), &inner));
    let left = world.left(N3);
    assert_eq!(left.len(), 1, "{:?}", world.drop_reasons());
    // Between tunnels nothing of it changes.
    assert_eq!(opened(&left[0]), (GNB_TEID, vec![1, 0, 9, 0], inner.clone()));
    assert_eq!(world.count(DropReason::FromControl), 1);
    assert_eq!(world.usage()[..2], [inner.len() as u64, 1]);
    world.check();
}

#[test]
fn a_packet_of_the_control_plane_that_cannot_leave_is_counted() {
    let mut world = TestLane::with_user();
    let inner = ue4(SERVER, USER, 255, 10);
    let good = message(SESSION.0, teid(SESSION), &inner);
    let mut shut = from_control();
    shut.uplink.common.flags |= flag::DROP;
    world.publish(&shut);
    world.send_message(kind::USER_PACKET, &good);
    world.publish(&from_control());
    let long = ue4(SERVER, USER, 255, 1500);
    for wrong in [
        message(SESSION.0, teid(SESSION) ^ 1 << 31, &inner),
        message(SESSION.0 + 1, teid(SESSION), &inner),
        message(u32::MAX, teid(SESSION), &inner),
        message(SESSION.0, teid(SESSION), &inner[..inner.len() - 1]),
        message(SESSION.0, teid(SESSION), b"neither IPv4 nor IPv6"),
        message(SESSION.0, teid(SESSION), &long),
    ] {
        world.send_message(kind::USER_PACKET, &wrong);
    }
    assert_eq!(world.count(DropReason::FromControlDropped), 7, "{:?}", world.drop_reasons());
    // Longer than any packet, or without a header: not from the slow path.
    world.send_message(kind::USER_PACKET, &message(SESSION.0, teid(SESSION), &[0x45; 2049]));
    world.send_message(kind::USER_PACKET, &[0; 7]);
    assert!(world.left(N3).is_empty());
    assert_eq!((world.usage()[1], world.heard().len()), (0, 0));
    world.send_message(kind::USER_PACKET, &good);
    assert_eq!(world.left(N3).len(), 1);
    world.check();
}
