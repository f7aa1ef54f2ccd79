//! Sessions through the node: cases 6 to 9, 12, 22, 44, 45 and 54, and kills.

use fastlane_pfcp::IeType;
use fastlane_pfcp::ie::{
    self, ApplyAction, CpPfcpEntityIpAddress, DestinationInterface, FSeid, FTeid, FarId, FqCsid,
    OuterHeaderCreation, PdrId, Precedence, SourceInterface,
};
use serde_json::json;

use super::*;

const SET: FqCsid<'static> =
    FqCsid { node_id_type: 0, node: &[192, 0, 2, 9], numbers: &[0, 1], node_type: None };
const GNB: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 7);

/// Returns an establishment with an uplink tunnel that the node chooses and a UE address for
/// downlink.
pub(super) fn establishment(sequence: u32, name: &[u8], control: FSeid, user: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence);
    let address = Ipv4Addr::new(10, 45, 0, user);
    let user = ie::UeIpAddress { v4: Some(address), ..Default::default() };
    Writer::new(&mut bytes).message(header, |to| {
        to.put(&NodeId::Name(name));
        to.put(&control);
        to.group(IeType::CREATE_PDR, |to| {
            to.put(&PdrId(1));
            to.put(&Precedence(100));
            to.group(IeType::PDI, |to| {
                to.put(&SourceInterface(0));
                to.put(&FTeid { choose_v4: true, ..Default::default() });
            });
            to.put(&FarId(1));
        });
        to.group(IeType::CREATE_PDR, |to| {
            to.put(&PdrId(2));
            to.put(&Precedence(100));
            to.group(IeType::PDI, |to| {
                to.put(&SourceInterface(1));
                to.put(&user);
            });
            to.put(&FarId(2));
        });
        to.group(IeType::CREATE_FAR, |to| {
            to.put(&FarId(1));
            to.put(&ApplyAction::FORW);
            to.group(IeType::FORWARDING_PARAMETERS, |to| to.put(&DestinationInterface(1)));
        });
        to.group(IeType::CREATE_FAR, |to| {
            to.put(&FarId(2));
            to.put(&ApplyAction::FORW);
            to.group(IeType::FORWARDING_PARAMETERS, |to| {
                to.put(&DestinationInterface(0));
                to.put(&OuterHeaderCreation {
                    description: 0x0100,
                    teid: Some(u32::from(address.octets()[3])),
                    v4: Some(GNB),
                    ..Default::default()
                });
            });
        });
        to.put(&SET);
    });
    bytes
}

pub(super) fn control(seid: u64, last: u8) -> FSeid {
    FSeid { seid, v4: Some(Ipv4Addr::new(192, 0, 2, last)), v6: None }
}

pub(super) fn seid_of(answer: &[u8]) -> u64 {
    assert_eq!(cause(answer), 1, "{:?}", offending(answer));
    parse(answer).group().need::<FSeid>().unwrap().seid
}

pub(super) fn deletion(sequence: u32, seid: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_DELETION_REQUEST, seid, sequence);
    Writer::new(&mut bytes).message(header, |_| {});
    bytes
}

impl NodeTestbed {
    /// Creates two sessions of one association with different CP F-SEID addresses.
    fn with_two() -> (Self, [u64; 2]) {
        let mut world = Self::new(json!({}));
        world.associate(SMF, 1, SMF_NAME, STARTED);
        let one = world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1));
        let other = world.ask(SMF, &establishment(3, SMF_NAME, control(7, 101), 2));
        let seids = [seid_of(&one), seid_of(&other)];
        assert_eq!(world.count(), 2);
        (world, seids)
    }

    /// Returns the number of sessions after checking that all counters agree.
    pub(super) fn count(&self) -> usize {
        let sessions = self.node.sessions().len() as usize;
        let of_peers = self.node.associations().map(|it| self.node.sessions_of(it.peer.index));
        assert_eq!(sessions, of_peers.sum::<usize>());
        assert_eq!(self.node.paths().len(), usize::from(sessions > 0));
        sessions
    }
}

#[test]
fn case_22_an_establishment_without_association_is_refused() {
    let mut world = NodeTestbed::new(json!({}));
    let answer = world.ask(SMF, &establishment(1, SMF_NAME, control(77, 100), 1));
    assert_eq!((parse(&answer).header.seid, cause(&answer)), (Some(77), 72));
    assert_eq!(world.count(), 0);
}

#[test]
fn case_6_setup_again_removes_all_sessions_but_those_that_are_retained() {
    let (mut world, _) = NodeTestbed::with_two();
    let retaining = request(MessageType::ASSOCIATION_SETUP_REQUEST, 4, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&RecoveryTimeStamp(STARTED));
        to.group(IeType::PFCP_SESSION_RETENTION_INFORMATION, |to| {
            let v4 = Some(Ipv4Addr::new(192, 0, 2, 101));
            to.put(&CpPfcpEntityIpAddress { v4, v6: None });
        });
    });
    assert_eq!(cause(&world.ask(SMF, &retaining)), 1);
    assert_eq!(world.count(), 1);
    assert_eq!(world.node.sessions().iter().next().unwrap().cp_fseid.address, OTHER.ip());
    world.associate(SMF, 5, SMF_NAME, STARTED);
    assert_eq!(world.count(), 0);
}

#[test]
fn cases_7_and_8_sessions_go_when_their_peer_has_started_again_and_only_then() {
    let (mut world, _) = NodeTestbed::with_two();
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    world.ask(SMF, &heartbeat(4, STARTED));
    world.ask(OTHER, &heartbeat(4, STARTED + 9));
    assert_eq!(world.count(), 2);
    world.ask(SMF, &heartbeat(5, STARTED + 1));
    assert_eq!(world.count(), 0);
    // New sessions must not be removed with the old ones (as open5gs did).
    let answer = world.ask(SMF, &establishment(6, SMF_NAME, control(7, 100), 1));
    assert_eq!(cause(&answer), 1);
    world.ask(SMF, &heartbeat(7, STARTED + 1));
    world.kill();
    world.ask(SMF, &heartbeat(8, STARTED + 1));
    assert_eq!(world.count(), 1);
}

#[test]
fn case_9_release_removes_the_sessions_of_that_association() {
    let (mut world, seids) = NodeTestbed::with_two();
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let theirs = world.ask(OTHER, &establishment(2, OTHER_NAME, control(7, 101), 3));
    let theirs = seid_of(&theirs);
    world.ask(SMF, &of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 4, SMF_NAME));
    assert_eq!(world.count(), 1);
    assert_eq!(cause(&world.ask(SMF, &deletion(5, seids[0]))), 72, "it has no association");
    let refused = world.ask(SMF, &establishment(6, SMF_NAME, control(7, 100), 1));
    assert_eq!(cause(&refused), 72);
    assert_eq!(cause(&world.ask(OTHER, &deletion(7, theirs))), 1);
    assert_eq!(world.count(), 0);
}

#[test]
fn case_12_sessions_of_a_lost_peer_stay_for_their_time() {
    for (keep_s, after) in [(0, 0), (30, 1)] {
        let mut world = NodeTestbed::new(json!({ "keep-sessions-s": keep_s }));
        world.associate(SMF, 1, SMF_NAME, STARTED);
        world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1));
        world.pass(135);
        assert_eq!(world.count(), after);
        world.kill();
        assert_eq!(world.count(), after);
        world.pass(300);
        assert_eq!(world.count(), 0);
    }
}

#[test]
fn case_13_equal_seids_of_two_nodes_are_two_sessions() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    let one = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    let other = seid_of(&world.ask(OTHER, &establishment(2, OTHER_NAME, control(7, 101), 2)));
    assert_ne!(one, other);
    assert_eq!(cause(&world.ask(SMF, &deletion(3, one))), 1);
    assert!(world.node.sessions().find(other).is_some());
}

#[test]
fn case_44_a_retransmitted_establishment_is_one_session_also_after_a_kill() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let request = establishment(2, SMF_NAME, control(7, 100), 1);
    let first = world.ask(SMF, &request);
    for _ in 0..3 {
        assert_eq!(world.ask(SMF, &request), first);
        world.kill();
        assert_eq!(world.ask(SMF, &request), first);
        assert_eq!(world.count(), 1);
        world.pass(5);
    }
    assert_eq!(world.node.statistics().repeated, 1, "of this process");
    let deleted = world.ask(SMF, &deletion(3, seid_of(&first)));
    world.kill();
    assert_eq!(world.ask(SMF, &deletion(3, seid_of(&first))), deleted);
    assert_eq!((cause(&deleted), world.count()), (1, 0));
    world.pass(40);
    let again = world.ask(SMF, &deletion(3, seid_of(&first)));
    assert_eq!(cause(&again), 65, "after N1 times T1 it is a new request");
}

#[test]
fn case_54_the_sessions_of_a_set_go() {
    let (mut world, _) = NodeTestbed::with_two();
    let delete = |sequence, set: &FqCsid<'_>| {
        request(MessageType::SESSION_SET_DELETION_REQUEST, sequence, |to| {
            to.put(&NodeId::Name(SMF_NAME));
            to.put(set);
        })
    };
    let other = FqCsid { numbers: &[0, 2], ..SET };
    assert_eq!(cause(&world.ask(SMF, &delete(4, &other))), 1);
    assert_eq!(world.count(), 2);
    assert_eq!(cause(&world.ask(SMF, &delete(5, &SET))), 1);
    assert_eq!(world.count(), 0);
}

#[test]
fn a_path_is_probed_while_a_session_uses_it_also_after_a_kill() {
    let (mut world, seids) = NodeTestbed::with_two();
    let probes = |world: &mut NodeTestbed| {
        let mut out = Outbox::new();
        world.node.tick(world.now, &mut out);
        out.lanes.len()
    };
    assert_eq!(probes(&mut world), 1);
    world.kill();
    assert_eq!((world.count(), probes(&mut world)), (2, 1));
    for (sequence, seid) in (10..).zip(seids) {
        assert_eq!(cause(&world.ask(SMF, &deletion(sequence, seid))), 1);
    }
    assert_eq!((world.count(), probes(&mut world)), (0, 0));
}

#[test]
fn an_error_indication_is_reported_and_an_unknown_session_is_removed() {
    let (mut world, seids) = NodeTestbed::with_two();
    let message = crate::rules::layout::message::PathMessage {
        peer: crate::pfcp::associations::association_record::mapped(GNB.into()),
        local: [0; 16],
        teid: 2,
        sequence: 0,
        interface: 0,
        at: 0,
    };
    let mut out = Outbox::new();
    let kind = crate::rules::layout::message::kind::ERROR_INDICATION;
    world.node.lane_message(world.now, kind, zerocopy::IntoBytes::as_bytes(&message), &mut out);
    assert_eq!(out.datagrams.len(), 1);
    let report = parse(&out.datagrams[0].bytes).header;
    assert_eq!((report.message_type, report.seid), (MessageType::SESSION_REPORT_REQUEST, Some(7)));
    assert_eq!(out.datagrams[0].to, OTHER);
    let mut answer = Vec::new();
    let header = Header::session(MessageType::SESSION_REPORT_RESPONSE, seids[1], report.sequence);
    Writer::new(&mut answer).message(header, |to| to.put(&CauseIe(65)));
    assert!(world.send(SMF, &answer).is_empty(), "it was not asked");
    assert_eq!(world.count(), 2);
    assert!(world.send(OTHER, &answer).is_empty());
    assert_eq!(world.count(), 1);
    assert!(world.node.sessions().find(seids[0]).is_some());
}
