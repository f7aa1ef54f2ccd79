//! End markers: lanes are reminded until one has sent it (case 67).

use fastlane_pfcp::IeType;
use fastlane_pfcp::ie::{ApplyAction, FarId, OuterHeaderCreation, PfcpsmreqFlags};
use fastlane_table::EntryId;

use super::session_requests::{control, establishment, seid_of};
use super::*;
use crate::datapath::classify::{marker_due, marker_sent};
use crate::pfcp::LaneMessage;
use crate::session::SessionIndex;

/// Returns a modification that moves the UE to another tunnel, with an end marker to the old one.
fn handover(sequence: u32, seid: u64, teid: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, seid, sequence);
    Writer::new(&mut bytes).message(header, |to| {
        to.group(IeType::UPDATE_FAR, |to| {
            to.put(&FarId(2));
            to.put(&ApplyAction::FORW);
            to.group(IeType::UPDATE_FORWARDING_PARAMETERS, |to| {
                to.put(&OuterHeaderCreation {
                    description: 0x0100,
                    teid: Some(teid),
                    v4: Some(Ipv4Addr::new(10, 3, 0, 8)),
                    ..Default::default()
                });
                to.put(&PfcpsmreqFlags::SNDEM);
            });
        });
    });
    bytes
}

/// Returns the number of messages to lanes about a session within `milliseconds`.
fn told(world: &mut NodeTestbed, id: SessionIndex, milliseconds: u64) -> usize {
    let mut told = 0;
    for _ in 0..milliseconds {
        world.now = world.now.after(MILLISECOND);
        let mut out = Outbox::new();
        world.node.tick(world.now, &mut out);
        told += out.lanes.iter().filter(|it| **it == LaneMessage::Rules(id)).count();
    }
    told
}

fn begun() -> (NodeTestbed, u64, SessionIndex) {
    let mut world = NodeTestbed::new(serde_json::json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let answer = world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 5));
    let seid = seid_of(&answer);
    (world, seid, SessionIndex(seid as u32))
}

/// Marks the end marker as sent, as a lane does.
fn send(world: &NodeTestbed, id: SessionIndex) {
    let state = world.node.sessions().published().tables().state.clone();
    let lane = state.lane(0);
    let rules = world.node.sessions().published().rules(id).unwrap();
    let marker = marker_due(rules, id, &lane).expect("it is due");
    marker_sent(marker, id, &lane);
    assert_eq!(state.read(EntryId(id.0))[crate::rules::layout::counter_slots::EVENTS] >> 31 & 1, 1);
}

#[test]
fn case_67_lanes_are_told_until_one_has_sent_it() {
    let (mut world, seid, id) = begun();
    assert_eq!(told(&mut world, id, 1000), 0);
    assert_eq!(cause(&world.ask(SMF, &handover(3, seid, 0x200))), 1);
    assert_eq!(world.node.markers().len(), 1);
    let before = told(&mut world, id, 500);
    assert!((3..8).contains(&before), "{before}");
    send(&world, id);
    assert_eq!(told(&mut world, id, 3000), 0);
    assert!(world.node.markers().is_empty());
    // The next end marker becomes due.
    assert_eq!(cause(&world.ask(SMF, &handover(4, seid, 0x201))), 1);
    assert!(told(&mut world, id, 100) > 0);
    send(&world, id);
    assert_eq!(told(&mut world, id, 3000), 0);
    assert_eq!(world.node.statistics().end_markers_given_up, 0);
}

#[test]
fn case_67_also_when_the_slow_half_was_killed_and_not_for_ever() {
    let (mut world, seid, id) = begun();
    assert_eq!(cause(&world.ask(SMF, &handover(3, seid, 0x200))), 1);
    world.kill();
    assert!(told(&mut world, id, 500) > 0, "the next process tells lanes too");
    let more = told(&mut world, id, 10_500);
    assert!((5..20).contains(&more), "{more}");
    assert!(world.node.markers().is_empty());
    assert_eq!(world.node.statistics().end_markers_given_up, 1);
    assert_eq!(told(&mut world, id, 3000), 0);
}

#[test]
fn of_a_session_that_is_deleted_lanes_are_not_told() {
    let (mut world, seid, id) = begun();
    assert_eq!(cause(&world.ask(SMF, &handover(4, seid, 0x201))), 1);
    assert_eq!(cause(&world.ask(SMF, &super::session_requests::deletion(5, seid))), 1);
    assert_eq!(told(&mut world, id, 3000), 0);
    assert!(world.node.markers().is_empty());
}

/// Requests of lanes for neighbours are passed on.
#[test]
fn a_neighbour_that_a_lane_needs_is_asked_for() {
    let mut world = NodeTestbed::new(serde_json::json!({}));
    let peer = IpAddr::from([10, 3, 0, 9]);
    let message = crate::rules::layout::message::PathMessage {
        peer: crate::pfcp::associations::association_record::mapped(peer),
        local: [0; 16],
        teid: 0,
        sequence: 0,
        interface: 0,
        at: 0,
    };
    let mut out = Outbox::new();
    let kind = crate::rules::layout::message::kind::NEIGHBOUR;
    world.node.lane_message(world.now, kind, zerocopy::IntoBytes::as_bytes(&message), &mut out);
    assert_eq!(out.neighbours, [peer]);
    world.node.lane_message(world.now, kind, b"short", &mut out);
    assert_eq!(out.neighbours.len(), 1);
}
