//! Requests of the node: cases 8, 11 and 12, and path failure reports.

use fastlane_pfcp::ie::{NodeReportType, RemoteGtpUPeer};
use fastlane_pfcp::{Cause, IeType};
use serde_json::json;

use super::*;
use crate::pfcp::paths::{PathEvent, Route};

/// Returns the messages of a type, with the step in which they were sent.
fn of(sent: &[(u64, Outgoing)], message_type: MessageType) -> Vec<(u64, u32)> {
    let found = sent.iter().map(|(tenth, datagram)| (tenth, parse(&datagram.bytes).header));
    let found = found.filter(|(_, header)| header.message_type == message_type);
    found.map(|(tenth, header)| (*tenth, header.sequence)).collect()
}

fn beats(sent: &[(u64, Outgoing)]) -> Vec<(u64, u32)> {
    of(sent, MessageType::HEARTBEAT_REQUEST)
}

fn alive(sequence: u32, recovery: u32) -> Vec<u8> {
    request(MessageType::HEARTBEAT_RESPONSE, sequence, |to| to.put(&RecoveryTimeStamp(recovery)))
}

#[test]
fn case_8_a_newer_stamp_in_an_answer_restores() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let sent = world.pass(100);
    assert_eq!(beats(&sent), [(100, 0)]);
    let message = parse(&sent[0].1.bytes);
    let ours = RecoveryTimeStamp(world.node.identity().recovery);
    assert_eq!(message.group().need(), Ok(ours));
    assert_eq!((sent[0].1.to, sent[0].1.local), (SMF, Some(UPF)));
    assert!(world.send(SMF, &alive(0, STARTED + 1)).is_empty());
    assert_eq!(world.node.statistics().restorations, 1);
    assert_eq!(world.node.associations().next().unwrap().peer.recovery, STARTED + 1);
    assert_eq!(beats(&world.pass(100)), [(100, 1)]);
    world.send(SMF, &alive(1, STARTED + 1));
    assert_eq!(world.node.statistics().restorations, 1);
}

#[test]
fn case_12_a_peer_that_is_not_heard_loses_its_association() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    assert_eq!(beats(&world.pass(129)), [(100, 0), (110, 0), (120, 0)]);
    assert_eq!(world.node.associations().count(), 1);
    world.pass(1);
    assert_eq!(world.node.associations().count(), 0);
    assert_eq!(world.node.statistics().associations_lost, 1);
    assert!(world.pass(300).is_empty());
}

#[test]
fn case_12_its_sessions_stay_for_the_time_that_is_configured() {
    let mut world = NodeTestbed::new(json!({ "keep-sessions-s": 30 }));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.pass(130);
    let is_up = |world: &NodeTestbed| world.node.associations().next().map(|it| it.peer.is_up);
    assert_eq!(is_up(&world), Some(false));
    // The request is repeated by either process, and the response ends it.
    world.kill();
    assert_eq!(is_up(&world), Some(false));
    let sent = beats(&world.pass(110));
    assert_eq!(sent.len(), 2, "{sent:?}");
    world.send(SMF, &alive(sent[0].1, STARTED));
    assert_eq!(is_up(&world), Some(true));
    // This time the peer is silent for too long.
    world.pass(130);
    assert_eq!(is_up(&world), Some(false));
    world.pass(300);
    assert_eq!(is_up(&world), None);
}

#[test]
fn case_11_associations_are_asked_for_by_t1_and_n1_and_then_after_a_pause() {
    let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100"] }));
    let mut out = Outbox::new();
    world.node.tick(world.now, &mut out);
    assert_eq!(type_of(&out.datagrams[0].bytes), MessageType::ASSOCIATION_SETUP_REQUEST);
    assert_eq!((out.datagrams[0].to, out.datagrams[0].local), (SMF, None));
    let sent = of(&world.pass(130), MessageType::ASSOCIATION_SETUP_REQUEST);
    // Given up after 3 s, tried again after pauses of 1 s and 2 s.
    let expected = [(10, 0), (20, 0), (40, 1), (50, 1), (60, 1), (90, 2), (100, 2), (110, 2)];
    assert_eq!(sent, expected);
    // The peer responds at last.
    let sent = of(&world.pass(50), MessageType::ASSOCIATION_SETUP_REQUEST);
    let answer = request(MessageType::ASSOCIATION_SETUP_RESPONSE, sent[0].1, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&Cause::REQUEST_ACCEPTED);
        to.put(&RecoveryTimeStamp(STARTED));
    });
    assert!(world.send(SMF, &answer).is_empty());
    let all: Vec<_> = world.node.associations().collect();
    assert_eq!((all.len(), all[0].peer.recovery, all[0].peer.address), (1, STARTED, SMF));
    assert_eq!(of(&world.pass(90), MessageType::ASSOCIATION_SETUP_REQUEST), []);
    assert!(world.send(SMF, &answer).is_empty());
    assert_eq!(world.node.statistics().associations_up, 1, "an answer counts once");
}

#[test]
fn case_8_a_configured_peer_that_has_restarted_is_asked_for_an_association_again() {
    let setups = |sent: &[_]| of(sent, MessageType::ASSOCIATION_SETUP_REQUEST);
    let accept = |sequence, recovery| {
        request(MessageType::ASSOCIATION_SETUP_RESPONSE, sequence, |to| {
            to.put(&NodeId::Name(SMF_NAME));
            to.put(&Cause::REQUEST_ACCEPTED);
            to.put(&RecoveryTimeStamp(recovery));
        })
    };
    for asks_itself in [false, true] {
        let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100"] }));
        let mut out = Outbox::new();
        world.node.tick(world.now, &mut out);
        world.send(SMF, &accept(0, STARTED));
        let sent = world.pass(100);
        assert_eq!(setups(&sent), []);
        // It answers the heartbeat, but knows no association any more.
        world.send(SMF, &alive(beats(&sent)[0].1, STARTED + 1));
        if asks_itself {
            world.associate(SMF, 1, SMF_NAME, STARTED + 1);
            assert_eq!(setups(&world.pass(90)), []);
            continue;
        }
        let sent = setups(&world.pass(20));
        assert_eq!(sent.len(), 2, "one that is repeated: {sent:?}");
        assert!(sent.iter().all(|(_, sequence)| *sequence == sent[0].1));
        world.send(SMF, &accept(sent[0].1, STARTED + 1));
        assert_eq!(setups(&world.pass(90)), []);
        assert_eq!(world.node.associations().count(), 1);
        assert_eq!(world.node.statistics().restorations, 1);
    }
}

#[test]
fn a_peer_that_refuses_is_asked_again_later_and_one_that_has_asked_itself_is_not() {
    let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100", "192.0.2.101"] }));
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let mut out = Outbox::new();
    world.node.tick(world.now, &mut out);
    assert_eq!(out.datagrams.iter().map(|it| it.to).collect::<Vec<_>>(), [SMF]);
    let refusal = request(MessageType::ASSOCIATION_SETUP_RESPONSE, 0, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&Cause::REQUEST_REJECTED);
        to.put(&RecoveryTimeStamp(STARTED));
    });
    world.send(SMF, &refusal);
    assert_eq!(world.node.associations().count(), 1);
    assert_eq!(of(&world.pass(15), MessageType::ASSOCIATION_SETUP_REQUEST), [(10, 1)]);
}

#[test]
fn numbers_of_requests_are_not_used_again_after_a_restart() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let first = beats(&world.pass(100))[0].1;
    world.kill();
    let second = beats(&world.pass(100))[0].1;
    assert_eq!((first, second), (0, BLOCK));
}

#[test]
fn a_failed_path_is_reported_to_whoever_uses_it() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let gnb = Ipv4Addr::new(10, 3, 0, 7);
    let route = Route { interface: 0, remote: gnb.into() };
    let mut event = PathEvent { route, has_failed: true, peers: vec![1] };
    let mut out = Outbox::new();
    let cx = &mut NodeContext { node: &mut world.node, now: world.now, out: &mut out };
    association_client::path_event(cx, &event);
    assert_eq!(out.datagrams.len(), 1);
    let message = parse(&out.datagrams[0].bytes);
    assert_eq!(out.datagrams[0].to, OTHER);
    assert_eq!(message.header.message_type, MessageType::NODE_REPORT_REQUEST);
    assert_eq!(message.group().need(), Ok(NodeReportType::UPFR));
    let report = message.group().group(IeType::USER_PLANE_PATH_FAILURE_REPORT).unwrap();
    let remote: RemoteGtpUPeer<'_> = report.need().unwrap();
    assert_eq!((remote.v4, remote.v6), (Some(gnb), None));
    // The report is retransmitted until the response arrives.
    assert_eq!(of(&world.pass(15), MessageType::NODE_REPORT_REQUEST), [(10, 0)]);
    let answer = request(MessageType::NODE_REPORT_RESPONSE, 0, |to| {
        to.put(&NodeId::Name(OTHER_NAME));
        to.put(&Cause::REQUEST_ACCEPTED);
    });
    assert!(world.send(OTHER, &answer).is_empty());
    assert_eq!(of(&world.pass(30), MessageType::NODE_REPORT_REQUEST), []);
    event.has_failed = false;
    out.clear();
    let cx = &mut NodeContext { node: &mut world.node, now: world.now, out: &mut out };
    association_client::path_event(cx, &event);
    let message = parse(&out.datagrams[0].bytes);
    assert_eq!(message.group().need(), Ok(NodeReportType::UPRR));
}
