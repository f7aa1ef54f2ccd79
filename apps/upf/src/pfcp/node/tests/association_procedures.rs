//! Cases 1 to 10, 44 and 54 of the conformance sheet: node related procedures.

use fastlane_pfcp::IeType;
use fastlane_pfcp::ie::{CpFunctionFeatures, FqCsid, PfcpasrspFlags, UpFunctionFeatures};
use fastlane_testing::sleeping_lane;
use serde_json::json;

use super::*;

#[test]
fn case_1_heartbeats_are_answered_before_and_after_association() {
    let mut world = NodeTestbed::new(json!({}));
    let ours = world.node.identity().recovery;
    assert_eq!(ours, world.now.ntp());
    for sequence in [7, 0x00ff_ffff] {
        let answer = world.ask(SMF, &heartbeat(sequence, STARTED));
        let message = parse(&answer);
        assert_eq!(message.header.message_type, MessageType::HEARTBEAT_RESPONSE);
        assert_eq!(message.header.sequence, sequence);
        assert_eq!(message.group().need(), Ok(RecoveryTimeStamp(ours)));
        world.associate(SMF, sequence - 1, SMF_NAME, STARTED);
    }
}

#[test]
fn case_2_a_heartbeat_without_recovery_time_stamp_is_answered() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let answer = world.ask(SMF, &request(MessageType::HEARTBEAT_REQUEST, 7, |_| {}));
    assert_eq!(type_of(&answer), MessageType::HEARTBEAT_RESPONSE);
    assert_eq!(world.node.associations().next().unwrap().peer.recovery, STARTED);
}

#[test]
fn case_3_setup_says_who_we_are_and_what_works() {
    let mut world = NodeTestbed::new(json!({}));
    let answer = world.ask(SMF, &setup(3, SMF_NAME, STARTED));
    let message = parse(&answer);
    assert_eq!(message.header, Header::node(MessageType::ASSOCIATION_SETUP_RESPONSE, 3));
    assert_eq!(cause(&answer), 1);
    assert_eq!(message.group().need(), Ok(NodeId::Name(b"\x03upf\x07example")));
    let ours = RecoveryTimeStamp(world.node.identity().recovery);
    assert_eq!(message.group().need(), Ok(ours));
    let features: UpFunctionFeatures = message.group().need().unwrap();
    type Up = UpFunctionFeatures;
    let works = [
        Up::DDND,
        Up::DLBD,
        Up::FTUP,
        Up::TREU,
        Up::EMPU,
        Up::UDBC,
        Up::QUOAC,
        Up::FRRT,
        Up::ADPDP,
        Up::SSET,
        Up::MNOP,
        Up::BUNDL,
        Up::VTIME,
    ];
    let all = works.into_iter().reduce(|all, one| all | one);
    assert_eq!(Some(features), all, "what works; there is no pool, so no UEIP");
    assert!(!message.group().has(IeType::PFCPASRSP_FLAGS));
}

#[test]
fn cases_4_and_5_setup_without_what_it_must_have() {
    let mut world = NodeTestbed::new(json!({}));
    let setup = MessageType::ASSOCIATION_SETUP_REQUEST;
    let nameless = request(setup, 1, |to| to.put(&RecoveryTimeStamp(1)));
    let answer = world.ask(SMF, &nameless);
    assert_eq!((cause(&answer), offending(&answer)), (66, Some(60)));
    let answer = world.ask(SMF, &of_node(setup, 2, SMF_NAME));
    assert_eq!((cause(&answer), offending(&answer)), (66, Some(96)));
    assert_eq!(world.node.associations().count(), 0);
}

#[test]
fn case_6_setup_for_a_known_node_replaces_the_association() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    // The same Node ID in another encoding, from another port.
    let port = SocketAddr::new(SMF.ip(), 40_000);
    world.associate(port, 2, b"\x03SMF\0", STARTED + 1);
    let all: Vec<_> = world.node.associations().cloned().collect();
    assert_eq!(all.len(), 1);
    let peer = &all[0].peer;
    assert_eq!((peer.index, peer.address, peer.recovery), (0, SMF, STARTED + 1));
}

#[test]
fn case_6_setup_with_session_retention_says_that_sessions_were_retained() {
    let mut world = NodeTestbed::new(json!({}));
    let retaining = |sequence| {
        request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
            to.put(&NodeId::Name(SMF_NAME));
            to.put(&RecoveryTimeStamp(STARTED));
            to.group(IeType::PFCP_SESSION_RETENTION_INFORMATION, |_| {});
        })
    };
    let flags = |answer: &[u8]| parse(answer).group().find::<PfcpasrspFlags>().unwrap();
    let first = world.ask(SMF, &retaining(1));
    assert_eq!(flags(&first), None, "there was nothing to retain");
    let second = world.ask(SMF, &retaining(2));
    assert_eq!(flags(&second), Some(PfcpasrspFlags::PSREI));
}

#[test]
fn case_7_the_stamp_of_a_setup_counts_for_heartbeats() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(SMF, 2, SMF_NAME, STARTED + 5);
    world.ask(SMF, &heartbeat(3, STARTED + 5));
    assert_eq!(world.node.statistics().restorations, 0);
    // A delayed heartbeat with an old time stamp changes nothing.
    world.ask(SMF, &heartbeat(4, STARTED));
    assert_eq!(world.node.statistics().restorations, 0);
    world.ask(SMF, &heartbeat(5, STARTED + 9));
    assert_eq!(world.node.statistics().restorations, 1);
    world.ask(SMF, &heartbeat(6, STARTED + 9));
    assert_eq!(world.node.statistics().restorations, 1);
}

/// pfcpsim does not know its own address.
#[test]
fn a_release_under_no_address_is_of_the_sender() {
    let mut world = NodeTestbed::new(json!({}));
    let release = |sequence| {
        let message_type = MessageType::ASSOCIATION_RELEASE_REQUEST;
        request(message_type, sequence, |to| to.put(&NodeId::V4(Ipv4Addr::UNSPECIFIED)))
    };
    assert_eq!(cause(&world.ask(SMF, &release(3))), 72);
    world.associate(SMF, 2, SMF_NAME, STARTED);
    let release = release(4);
    assert_eq!(cause(&world.ask(OTHER, &release)), 72);
    assert_eq!(world.node.associations().count(), 1);
    assert_eq!(cause(&world.ask(SMF, &release)), 1);
    assert_eq!(world.node.associations().count(), 0);
}

#[test]
fn case_9_release_ends_the_association() {
    let mut world = NodeTestbed::new(json!({}));
    let release = |sequence| of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, sequence, SMF_NAME);
    assert_eq!(cause(&world.ask(SMF, &release(1))), 72);
    world.associate(SMF, 2, SMF_NAME, STARTED);
    let answer = world.ask(SMF, &release(3));
    assert_eq!(type_of(&answer), MessageType::ASSOCIATION_RELEASE_RESPONSE);
    assert_eq!(cause(&answer), 1);
    assert_eq!(world.node.associations().count(), 0);
    assert_eq!(cause(&world.ask(SMF, &release(4))), 72);
    // A retransmission gets the same response, also after a restart.
    assert_eq!(world.ask(SMF, &release(3)), answer);
    world.kill();
    assert_eq!(world.ask(SMF, &release(3)), answer);
    assert!(world.pass(200).is_empty(), "nobody is asked whether he is there");
    assert_eq!(cause(&world.ask(SMF, &release(3))), 72, "it is a new request by now");
}

#[test]
fn case_10_update_is_answered_and_features_are_kept() {
    let mut world = NodeTestbed::new(json!({}));
    let update = |sequence| {
        request(MessageType::ASSOCIATION_UPDATE_REQUEST, sequence, |to| {
            to.put(&NodeId::Name(SMF_NAME));
            to.put(&(CpFunctionFeatures::LOAD | CpFunctionFeatures::OVRL));
        })
    };
    assert_eq!(cause(&world.ask(SMF, &update(1))), 72);
    world.associate(SMF, 2, SMF_NAME, STARTED);
    let answer = world.ask(SMF, &update(3));
    assert_eq!((type_of(&answer), cause(&answer)), (MessageType::ASSOCIATION_UPDATE_RESPONSE, 1));
    world.kill();
    assert_eq!(world.ask(SMF, &update(3)), answer);
    assert_eq!(world.node.associations().next().unwrap().peer.features, 3);
}

#[test]
fn case_13_two_nodes_do_not_collide() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED + 1);
    world.ask(OTHER, &heartbeat(2, STARTED + 1));
    assert_eq!(world.node.statistics().restorations, 0);
    let release = of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 3, OTHER_NAME);
    assert_eq!(cause(&world.ask(OTHER, &release)), 1);
    let left: Vec<_> = world.node.associations().map(|it| it.peer.address).collect();
    assert_eq!(left, [SMF]);
}

#[test]
fn case_19_pfd_management_is_refused() {
    let mut world = NodeTestbed::new(json!({}));
    let answer = world.ask(SMF, &request(MessageType::PFD_MANAGEMENT_REQUEST, 9, |_| {}));
    assert_eq!((type_of(&answer), cause(&answer)), (MessageType::PFD_MANAGEMENT_RESPONSE, 76));
}

#[test]
fn case_44_a_retransmission_gets_the_same_bytes_until_it_is_a_new_request() {
    let mut world = NodeTestbed::new(json!({}));
    let first = world.ask(SMF, &setup(1, SMF_NAME, STARTED));
    world.ask(SMF, &heartbeat(2, STARTED + 1));
    world.pass(29);
    assert_eq!(world.ask(SMF, &setup(1, SMF_NAME, STARTED)), first);
    world.kill();
    assert_eq!(world.ask(SMF, &setup(1, SMF_NAME, STARTED)), first);
    let known = |world: &NodeTestbed| world.node.associations().next().unwrap().peer.recovery;
    assert_eq!(known(&world), STARTED + 1, "nothing was done again");
    world.pass(1);
    assert_eq!(world.ask(SMF, &setup(1, SMF_NAME, STARTED)), first);
    assert_eq!(known(&world), STARTED, "after N1 times T1 it is a new request");
    // The same request from another port is another request.
    let port = SocketAddr::new(SMF.ip(), 9999);
    world.ask(port, &setup(1, SMF_NAME, STARTED + 7));
    assert_eq!(known(&world), STARTED + 7);
}

#[test]
fn case_54_a_set_of_sessions_is_deleted_only_by_whom_it_belongs_to() {
    let mut world = NodeTestbed::new(json!({}));
    let delete = |sequence, name| {
        request(MessageType::SESSION_SET_DELETION_REQUEST, sequence, |to| {
            to.put(&NodeId::Name(name));
            let (node, numbers) = (&[192, 0, 2, 9][..], &[0, 1][..]);
            to.put(&FqCsid { node_id_type: 0, node, numbers, node_type: None });
        })
    };
    assert_eq!(cause(&world.ask(SMF, &delete(1, SMF_NAME))), 72);
    world.associate(SMF, 2, SMF_NAME, STARTED);
    let answer = world.ask(SMF, &delete(3, SMF_NAME));
    let expected = (MessageType::SESSION_SET_DELETION_RESPONSE, 1);
    assert_eq!((type_of(&answer), cause(&answer)), expected);
}

#[test]
fn associations_and_our_stamp_outlive_the_process() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let before: Vec<_> = world.node.associations().cloned().collect();
    let ours = world.node.identity().recovery;
    world.pass(20);
    world.kill();
    assert_eq!(world.node.associations().cloned().collect::<Vec<_>>(), before);
    assert_eq!((world.node.identity().recovery, world.node.starts()), (ours, 2));
    // With other tables the node has another recovery time stamp.
    world.memory =
        Private::new(Capacities::of(&world.settings).with_answers(4096), sleeping_lane());
    world.kill();
    assert_eq!(world.node.associations().count(), 0);
    assert_eq!(world.node.identity().recovery, ours + 2);
}

#[test]
fn a_full_table_of_peers_refuses_the_next_one() {
    let mut world = NodeTestbed::new(json!({ "allow": ["192.0.2.0/24"] }));
    let name = |number: u32| format!("\x04{number:04}").into_bytes();
    for number in 0..1024 {
        world.associate(SMF, number, &name(number), STARTED);
    }
    assert_eq!(cause(&world.ask(SMF, &setup(9999, &name(1024), STARTED))), 75);
    world.ask(SMF, &of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 10_000, &name(3)));
    world.associate(SMF, 10_001, &name(1024), STARTED);
}
