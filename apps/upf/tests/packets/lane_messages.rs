//! Messages between a lane and the control plane.

use fastlane::mirror::{FallbackReason, RouteLookup};
use upf::rules::layout::counter_slots::event;
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::message::{PathMessage, SessionEvent, kind};
use upf::rules::layout::session_rules::flag;
use zerocopy::{FromBytes, IntoBytes};

use crate::frames::{ethernet, from_gnb, gtpu, opened, ue4};
use crate::test_lane::*;

fn about(session: u32) -> SessionEvent {
    SessionEvent {
        session,
        line: 0,
        events: 0,
        version: 0,
        at: 0,
        pdr: 0,
        qfi: 0,
        dscp: 0,
        reserved: 0,
    }
}

fn mapped(address: [u8; 4]) -> [u8; 16] {
    std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets()
}

#[test]
fn case_67_an_end_marker_is_sent_once() {
    let mut world = TestLane::with_user();
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 1))]);
    let mut rules = simple(9);
    rules.downlink.common.forwarding.teid = 0x77;
    rules.cold.marker_peer = mapped(GNB);
    (rules.cold.marker_teid, rules.cold.marker_version) = (GNB_TEID, 9);
    world.publish(&rules);
    let told = about(SESSION.0);
    world.send_message(kind::RULES, told.as_bytes());
    world.send_message(kind::RULES, told.as_bytes());
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 2))]);
    let left = world.left(N3);
    assert_eq!(left.len(), 3, "{:?}", world.drop_reasons());
    assert_eq!(opened(&left[0]).0, GNB_TEID);
    assert_eq!(left[1][42..], gtpu(0x30, 254, GNB_TEID, &[]));
    assert_eq!(opened(&left[2]).0, 0x77);
    assert_eq!(world.count(DropReason::EndMarkerSent), 1);
    world.check();
}

#[test]
fn what_is_held_is_told_once_and_goes_on_at_a_word() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.downlink.common.flags |= flag::HOLD | flag::NOTIFY;
    (rules.cold.hold_packets, rules.cold.hold_ms) = (10, 60_000);
    world.publish(&rules);
    let mut marked = ue4(SERVER, USER, 64, 1);
    marked[1] = 0xb8;
    crate::frames::fill(&mut marked);
    world.show(N6, &vec![ethernet(N6, &marked); 3]);
    let heard = world.heard();
    let [(kind::EVENT, body)] = &heard[..] else { panic!("{heard:?}") };
    let (told, _) = SessionEvent::read_from_prefix(body).expect("an event");
    assert_eq!((told.session, told.events, told.dscp, told.pdr), (SESSION.0, event::HELD, 46, 2));
    world.publish(&simple(3));
    world.send_message(kind::RULES, about(SESSION.0).as_bytes());
    assert_eq!(world.left(N3).len(), 3);
    assert_eq!(world.lane.close(), 0);
}

#[test]
fn probes_are_sent_and_their_answers_told() {
    let mut world = TestLane::with_user();
    let (peer, local) = (mapped(GNB), mapped(OUR));
    let probe = PathMessage { peer, local, teid: 0, sequence: 77, interface: 0, at: 0 };
    world.send_message(kind::PROBE, probe.as_bytes());
    let [frame] = &world.left(N3)[..] else { panic!("{:?}", world.drop_reasons()) };
    assert_eq!(frame[42..], gtpu(0x32, 1, 0, &[0, 77, 0, 0]));
    world.show(N3, &[from_gnb(&gtpu(0x32, 2, 0, &[0, 77, 0, 0, 14, 0]))]);
    let mut elements = vec![16];
    elements.extend(GNB_TEID.to_be_bytes());
    elements.extend([133, 0, 4]);
    elements.extend(GNB);
    world.show(N3, &[from_gnb(&gtpu(0x32, 26, 0, &[&[0; 4], &elements[..]].concat()))]);
    let heard = world.heard();
    let [(kind::ECHO_RESPONSE, echo), (kind::ERROR_INDICATION, error)] = &heard[..] else {
        panic!("{heard:?}")
    };
    let (echo, _) = PathMessage::read_from_prefix(echo).expect("about a path");
    assert_eq!((echo.peer, echo.local, echo.sequence, echo.interface), (peer, local, 77, 0));
    let (error, _) = PathMessage::read_from_prefix(error).expect("about a path");
    assert_eq!((error.peer, error.teid), (peer, GNB_TEID));
    world.check();
}

#[test]
fn a_base_station_whose_neighbour_is_not_known_is_asked_for() {
    let mut known = TestRoutes::new();
    known.set("10.3.0.9", RouteLookup::Fallback(FallbackReason::NoNeighbour));
    let mut world = TestLane::new(known, settings());
    world.publish(&simple(1));
    world.show(N6, &[ethernet(N6, &ue4(SERVER, USER, 64, 1))]);
    let heard = world.heard();
    let [(kind::NEIGHBOUR, body)] = &heard[..] else { panic!("{heard:?}") };
    let (told, _) = PathMessage::read_from_prefix(body).expect("about a path");
    assert_eq!((told.peer, world.count(DropReason::NoNeighbour)), (mapped(GNB), 1));
    assert!(world.linux().is_empty());
    world.check();
}
