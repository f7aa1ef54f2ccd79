//! Drains: release requests, refusals, the end of the process, and successors.

use fastlane_pfcp::Cause;
use fastlane_pfcp::ie::{GracefulReleasePeriod, PfcpAssociationReleaseRequest};
use serde_json::json;

use super::session_requests::{control, deletion, establishment, seid_of};
use super::*;
use fastlane_testing::sleeping_lane;

/// A release request as it was sent: destination, sequence number, and period in seconds.
type SentRequest = (SocketAddr, u32, Option<u32>);

/// Returns the release requests of the datagrams.
fn release_requests<'a>(sent: impl IntoIterator<Item = &'a Outgoing>) -> Vec<SentRequest> {
    let is_update = |it: &&Outgoing| type_of(&it.bytes) == MessageType::ASSOCIATION_UPDATE_REQUEST;
    let updates = sent.into_iter().filter(is_update);
    updates
        .map(|it| {
            let message = parse(&it.bytes);
            let group = message.group();
            assert_eq!(group.need(), Ok(NodeId::Name(b"\x03upf\x07example")));
            assert_eq!(group.need(), Ok(PfcpAssociationReleaseRequest::SARR), "URSS needs EPFAR");
            let period = group.find::<GracefulReleasePeriod>().unwrap();
            (it.to, message.header.sequence, period.map(|it| it.0.seconds().unwrap()))
        })
        .collect()
}

fn response(sequence: u32, name: &[u8], cause: Cause) -> Vec<u8> {
    request(MessageType::ASSOCIATION_UPDATE_RESPONSE, sequence, |to| {
        to.put(&NodeId::Name(name));
        to.put(&cause);
    })
}

fn release(sequence: u32, name: &[u8]) -> Vec<u8> {
    of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, sequence, name)
}

/// Creates a node with an association that has one session. Returns its SEID.
fn with_one(more: serde_json::Value) -> (NodeTestbed, u64) {
    let mut world = NodeTestbed::new(more);
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    (world, seid)
}

/// Advances the time and returns the release requests sent meanwhile.
fn requests(world: &mut NodeTestbed, tenths: u64) -> Vec<SentRequest> {
    let sent = world.pass(tenths);
    release_requests(sent.iter().map(|(_, datagram)| datagram))
}

/// Responds to a release request.
fn respond(world: &mut NodeTestbed, request: &SentRequest, cause: Cause) {
    let (from, sequence, _) = *request;
    let name = if from == SMF { SMF_NAME } else { OTHER_NAME };
    assert!(world.send(from, &response(sequence, name, cause)).is_empty());
}

fn may_exit(world: &NodeTestbed) -> bool {
    world.node.may_exit(world.now)
}

fn status(world: &NodeTestbed) -> DrainStatus {
    world.node.drain_status(world.now)
}

#[test]
fn each_smf_is_asked_once_to_release_its_association_and_told_the_period() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    world.node.drain(world.now, None);
    let sent = requests(&mut world, 1);
    let wanted = [(SMF, Some(20)), (OTHER, Some(20))];
    assert_eq!(sent.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>(), wanted);
    respond(&mut world, &sent[0], Cause::REQUEST_ACCEPTED);
    // The other one gets it again after T1, N1 times in all.
    let again = requests(&mut world, 90);
    assert_eq!(again, [sent[1], sent[1]]);
    assert_eq!(world.node.statistics().unanswered.get(&7), Some(&1));
    // A further drain asks again.
    world.node.drain(world.now, Some(119));
    let sent = requests(&mut world, 1);
    assert_eq!(sent.iter().map(|it| it.2).collect::<Vec<_>>(), [Some(62), Some(62)]);
    world.node.drain(world.now, Some(0));
    let sent = requests(&mut world, 1);
    assert_eq!(sent.iter().map(|it| it.2).collect::<Vec<_>>(), [None, None], "immediately");
    assert_eq!(status(&world).left, None);
}

#[test]
fn a_drain_refuses_what_is_new_and_serves_what_exists() {
    let (mut world, seid) = with_one(json!({}));
    world.node.drain(world.now, None);
    let refused = Cause::NO_RESOURCES_AVAILABLE.0;
    let new = establishment(3, SMF_NAME, control(8, 100), 2);
    let answer = world.ask(SMF, &new);
    assert_eq!((cause(&answer), parse(&answer).header.seid), (refused, Some(8)));
    assert_eq!(world.ask(SMF, &new), answer, "a retransmission gets the same response");
    assert_eq!(cause(&world.ask(OTHER, &setup(1, OTHER_NAME, STARTED))), refused);
    assert_eq!((world.count(), world.node.associations().count()), (1, 1));
    let changed = world.ask(SMF, &of_node(MessageType::ASSOCIATION_UPDATE_REQUEST, 4, SMF_NAME));
    assert_eq!(cause(&changed), 1);
    let during = status(&world);
    assert!(during.is_draining && !during.is_exiting && !during.is_drained);
    assert_eq!((during.sessions, during.associations), (1, 1));
    assert!(!may_exit(&world), "the process goes on");
    assert_eq!(cause(&world.ask(SMF, &deletion(5, seid))), 1);
    assert_eq!(cause(&world.ask(SMF, &release(6, SMF_NAME))), 1);
    assert!(status(&world).is_drained && !may_exit(&world));
    // After the drain, everything is accepted again.
    assert!(world.node.undrain(world.now));
    world.associate(OTHER, 2, OTHER_NAME, STARTED);
    world.associate(SMF, 7, SMF_NAME, STARTED);
    seid_of(&world.ask(SMF, &establishment(8, SMF_NAME, control(8, 100), 2)));
    assert_eq!(status(&world), DrainStatus { associations: 2, sessions: 1, ..Default::default() });
    assert_eq!(requests(&mut world, 30), []);
}

#[test]
fn the_process_ends_when_the_last_association_is_released() {
    let (mut world, seid) = with_one(json!({}));
    world.node.prepare_exit(world.now);
    let sent = requests(&mut world, 1);
    respond(&mut world, &sent[0], Cause::REQUEST_ACCEPTED);
    assert!(status(&world).is_exiting && !may_exit(&world));
    assert_eq!(cause(&world.ask(SMF, &deletion(3, seid))), 1);
    world.pass(5);
    assert!(!may_exit(&world), "the association is left");
    assert_eq!(cause(&world.ask(SMF, &release(4, SMF_NAME))), 1);
    assert!(may_exit(&world));
    assert!(!world.node.undrain(world.now), "the end cannot be taken back");
    assert!(may_exit(&world));
}

#[test]
fn the_process_ends_at_once_without_associations_or_without_a_period() {
    let mut alone = NodeTestbed::new(json!({}));
    assert!(!may_exit(&alone));
    alone.node.prepare_exit(alone.now);
    assert!(may_exit(&alone));
    let (mut world, _) = with_one(json!({ "release-s": 0 }));
    world.node.prepare_exit(world.now);
    assert!(may_exit(&world));
}

#[test]
fn the_process_ends_after_the_period_although_sessions_are_left() {
    let (mut world, _) = with_one(json!({ "release-s": 7 }));
    world.node.prepare_exit(world.now);
    let sent = requests(&mut world, 69);
    // 7 s cannot be encoded, and 6 s can be.
    assert_eq!(sent[0].2, Some(6));
    assert!(!may_exit(&world));
    // Another request to end changes nothing.
    world.node.prepare_exit(world.now);
    world.pass(1);
    assert!(may_exit(&world));
    assert_eq!(world.count(), 1);
}

#[test]
fn an_smf_that_cannot_release_is_done_without_sessions() {
    for is_silent in [true, false] {
        let (mut world, seid) = with_one(json!({}));
        world.node.prepare_exit(world.now);
        let sent = requests(&mut world, 1);
        if is_silent {
            world.pass(35);
        } else {
            respond(&mut world, &sent[0], Cause::REQUEST_REJECTED);
        }
        assert!(!may_exit(&world), "its session is served");
        assert_eq!(cause(&world.ask(SMF, &deletion(3, seid))), 1);
        assert!(may_exit(&world), "silent: {is_silent}");
    }
}

#[test]
fn a_restarted_smf_has_no_sessions_and_no_association_any_more() {
    let (mut world, _) = with_one(json!({}));
    world.node.prepare_exit(world.now);
    world.pass(1);
    let same = world.ask(SMF, &setup(3, SMF_NAME, STARTED));
    assert_eq!((cause(&same), world.count()), (75, 1), "it has not restarted");
    let newer = world.ask(SMF, &setup(4, SMF_NAME, STARTED + 1));
    assert_eq!((cause(&newer), world.count()), (75, 0));
    assert!(may_exit(&world));
    // One that shows it by a heartbeat first is asked again, and knows nothing of it.
    let (mut world, _) = with_one(json!({}));
    world.node.prepare_exit(world.now);
    let sent = requests(&mut world, 1);
    respond(&mut world, &sent[0], Cause::REQUEST_ACCEPTED);
    world.ask(SMF, &heartbeat(3, STARTED + 1));
    assert_eq!((world.count(), may_exit(&world)), (0, false));
    let sent = requests(&mut world, 1);
    respond(&mut world, &sent[0], Cause::NO_ESTABLISHED_PFCP_ASSOCIATION);
    assert!(may_exit(&world));
}

#[test]
fn no_association_is_set_up_during_a_drain_and_all_are_after_it() {
    let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100"] }));
    let mut out = Outbox::new();
    world.node.tick(world.now, &mut out);
    assert_eq!(type_of(&out.datagrams[0].bytes), MessageType::ASSOCIATION_SETUP_REQUEST);
    world.node.drain(world.now, None);
    // The response was on its way: the association is to be released at once.
    let answer = request(MessageType::ASSOCIATION_SETUP_RESPONSE, 0, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&Cause::REQUEST_ACCEPTED);
        to.put(&RecoveryTimeStamp(STARTED));
    });
    assert!(world.send(SMF, &answer).is_empty());
    let sent = requests(&mut world, 1);
    assert_eq!(sent.len(), 1);
    respond(&mut world, &sent[0], Cause::REQUEST_ACCEPTED);
    assert_eq!(cause(&world.ask(SMF, &release(1, SMF_NAME))), 1);
    assert_eq!(world.pass(700).len(), 0, "nobody is asked");
    assert!(world.node.undrain(world.now));
    let sent = world.pass(1);
    assert_eq!(type_of(&sent[0].1.bytes), MessageType::ASSOCIATION_SETUP_REQUEST);
}

#[test]
fn a_silent_peer_is_asked_at_once_after_a_drain() {
    let mut world = NodeTestbed::new(json!({ "peers": ["192.0.2.100"] }));
    // The pause before the next attempt is 8 s long.
    world.pass(190);
    world.node.drain(world.now, None);
    assert_eq!(world.pass(20).len(), 0);
    assert!(world.node.undrain(world.now));
    let sent = world.pass(1);
    assert_eq!(sent.len(), 1);
    assert_eq!(type_of(&sent[0].1.bytes), MessageType::ASSOCIATION_SETUP_REQUEST);
}

#[test]
fn a_period_that_runs_is_not_prolonged_by_the_end_of_the_process() {
    let (mut world, _) = with_one(json!({}));
    world.node.drain(world.now, Some(10));
    world.pass(40);
    world.node.prepare_exit(world.now);
    assert_eq!(status(&world).left, Some(6 * SECOND));
    // A longer one becomes shorter, and the SMF is told.
    let (mut world, _) = with_one(json!({}));
    world.node.drain(world.now, Some(600));
    assert_eq!(requests(&mut world, 1)[0].2, Some(600));
    world.node.prepare_exit(world.now);
    assert_eq!(requests(&mut world, 1)[0].2, Some(20));
    world.node.drain(world.now, Some(600));
    assert_eq!(requests(&mut world, 1), [], "the end of the process has begun");
}

#[test]
fn a_successor_goes_on_with_the_drain_and_the_rest_of_the_period() {
    let (mut world, seid) = with_one(json!({}));
    world.node.prepare_exit(world.now);
    let sent = requests(&mut world, 60);
    respond(&mut world, &sent[0], Cause::REQUEST_ACCEPTED);
    world.kill();
    world.node.clear_obsolete_exit(world.now);
    assert_eq!(cause(&world.ask(SMF, &establishment(3, SMF_NAME, control(8, 100), 2))), 75);
    let again = requests(&mut world, 1);
    assert_eq!((again.len(), again[0].2), (1, Some(14)));
    assert!(again[0].1 > sent[0].1, "another request");
    world.node.prepare_exit(world.now);
    assert_eq!(cause(&world.ask(SMF, &deletion(4, seid))), 1);
    assert_eq!(cause(&world.ask(SMF, &release(5, SMF_NAME))), 1);
    assert!(may_exit(&world));
}

#[test]
fn a_successor_after_the_period_serves_again() {
    let (mut world, _) = with_one(json!({ "release-s": 5 }));
    world.node.prepare_exit(world.now);
    world.pass(50);
    world.kill();
    world.node.clear_obsolete_exit(world.now);
    assert!(!may_exit(&world) && !status(&world).is_draining);
    seid_of(&world.ask(SMF, &establishment(3, SMF_NAME, control(8, 100), 2)));
    // A drain by command has no such end.
    world.node.drain(world.now, Some(1));
    world.pass(20);
    world.kill();
    world.node.clear_obsolete_exit(world.now);
    assert_eq!(status(&world).left, Some(0));
    assert!(status(&world).is_draining);
}

#[test]
fn a_drain_goes_on_with_the_tables_of_another_user_plane_process() {
    let (mut world, _) = with_one(json!({}));
    world.node.drain(world.now, Some(60));
    let settings = world.settings.clone();
    let memory = Private::new(Capacities::of(&settings).with_answers(4096), sleeping_lane());
    let parts = NodeTables::private(&settings, &memory).unwrap();
    let mut keep = world.node.keep();
    world.node = Node::open(&settings, parts, &mut keep, world.now, &mut Outbox::new()).unwrap();
    assert!(status(&world).is_draining);
    assert_eq!(cause(&world.ask(SMF, &setup(3, SMF_NAME, STARTED))), 75);
}
