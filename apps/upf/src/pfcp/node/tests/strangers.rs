//! Identity of peers: sessions of others, restarted peers, several peers at one address.

use serde_json::json;

use super::session_requests::{control, deletion, establishment, seid_of};
use super::*;

fn modification(sequence: u32, seid: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, seid, sequence);
    Writer::new(&mut bytes).message(header, |_| {});
    bytes
}

#[test]
fn a_session_is_changed_and_ended_only_by_whom_it_belongs_to() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(OTHER, 1, OTHER_NAME, STARTED);
    // The CP F-SEID address differs from the association's peer address.
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 77), 1)));
    let (session, end) = (world.node.sessions().find(seid), SocketAddr::from(([192, 0, 2, 77], 9)));
    for request in [modification(3, seid), deletion(4, seid)] {
        let answer = world.ask(OTHER, &request);
        assert_eq!((parse(&answer).header.seid, cause(&answer)), (Some(0), 65));
    }
    assert_eq!(world.node.sessions().find(seid), session, "nothing has changed");
    assert_eq!(cause(&world.ask(end, &modification(5, seid))), 1);
    assert_eq!(cause(&world.ask(SMF, &deletion(6, seid))), 1);
}

#[test]
fn a_peer_that_has_started_again_may_ask_with_the_numbers_that_it_had() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let request = establishment(2, SMF_NAME, control(7, 100), 1);
    let first = seid_of(&world.ask(SMF, &request));
    world.pass(2);
    world.associate(SMF, 1, SMF_NAME, STARTED + 1);
    assert!(world.node.sessions().is_empty());
    let second = world.ask(SMF, &request);
    assert_ne!(seid_of(&second), first);
    assert!(world.node.sessions().find(seid_of(&second)).is_some());
    // Responses since then are repeated, also by a successor.
    world.kill();
    assert_eq!(world.ask(SMF, &request), second);
    // The same if its heartbeat announces the restart.
    world.pass(2);
    world.ask(SMF, &heartbeat(3, STARTED + 2));
    assert!(world.node.sessions().is_empty());
    assert_ne!(world.ask(SMF, &request), second);
}

#[test]
fn the_same_number_with_another_content_is_another_request() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    let requests = [1, 2].map(|user| establishment(2, SMF_NAME, control(7, 100), user));
    let answers = requests.each_ref().map(|request| world.ask(SMF, request));
    assert_ne!(seid_of(&answers[0]), seid_of(&answers[1]));
    for _ in 0..2 {
        assert_eq!(requests.each_ref().map(|request| world.ask(SMF, request)), answers);
        assert_eq!(world.node.sessions().len(), 2);
        world.kill();
    }
}

#[test]
fn what_was_refused_is_refused_again_until_it_is_a_new_request() {
    let mut world = NodeTestbed::new(json!({}));
    let request = establishment(2, SMF_NAME, control(7, 100), 1);
    let refused = world.ask(SMF, &request);
    world.associate(SMF, 1, SMF_NAME, STARTED);
    assert_eq!((cause(&refused), world.ask(SMF, &request)), (72, refused));
    world.pass(31);
    assert_eq!(cause(&world.ask(SMF, &request)), 1);
}

#[test]
fn functions_at_one_address_are_not_taken_for_each_other() {
    let mut world = NodeTestbed::new(json!({}));
    world.associate(SMF, 1, SMF_NAME, STARTED);
    world.associate(SMF, 2, OTHER_NAME, STARTED + 5);
    world.ask(SMF, &establishment(3, SMF_NAME, control(7, 100), 1));
    world.ask(SMF, &establishment(4, OTHER_NAME, control(7, 100), 2));
    // One peer restarts, but an unknown time stamp does not tell which.
    for stamp in [STARTED, STARTED + 5, STARTED + 9] {
        world.ask(SMF, &heartbeat(5, stamp));
        assert_eq!(world.node.sessions().len(), 2, "{stamp}");
    }
    // Its setup request tells which.
    world.associate(SMF, 6, SMF_NAME, STARTED + 9);
    assert_eq!(world.node.sessions().len(), 1);
    // A control plane with two Node IDs has one time stamp, and both restart with it.
    world.associate(SMF, 7, OTHER_NAME, STARTED + 9);
    world.ask(SMF, &establishment(8, SMF_NAME, control(7, 100), 1));
    world.ask(SMF, &establishment(9, OTHER_NAME, control(7, 100), 2));
    world.ask(SMF, &heartbeat(10, STARTED + 10));
    assert!(world.node.sessions().is_empty());
    assert_eq!(world.node.statistics().restorations, 2);
}
