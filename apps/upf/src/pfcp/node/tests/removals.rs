//! Bulk removal of sessions: service in between, and recovery after a kill.

use serde_json::json;

use super::session_requests::{control, deletion, establishment, seid_of};
use super::*;
use fastlane_testing::sleeping_lane;

/// More sessions than one slice removes.
const MANY: u8 = 200;

impl NodeTestbed {
    /// Creates a node with many sessions of one association.
    fn with_many() -> (Self, u64) {
        let mut settings = settings(json!({}));
        settings.sessions = 256;
        let memory = Private::new(Capacities::of(&settings).with_answers(4096), sleeping_lane());
        let now = Now { monotonic: 1000 * SECOND, real: 1_780_000_000 * SECOND };
        let node = open(&settings, &memory, now, &mut Outbox::new());
        let mut world = Self { memory, settings, node, now };
        world.associate(SMF, 1, SMF_NAME, STARTED);
        let mut seid = 0;
        for user in 1..=MANY {
            let request = establishment(100 + u32::from(user), SMF_NAME, control(7, 100), user);
            seid = seid_of(&world.ask(SMF, &request));
        }
        assert_eq!(world.count(), usize::from(MANY));
        (world, seid)
    }

    /// Runs ticks until no work is due. Returns the datagrams sent.
    fn finish(&mut self) -> Vec<Outgoing> {
        let mut sent = Vec::new();
        for _ in 0..100 {
            let mut out = Outbox::new();
            let deadline = self.node.tick(self.now, &mut out);
            sent.append(&mut out.datagrams);
            if deadline.is_none_or(|at| at > self.now.monotonic) {
                return sent;
            }
        }
        panic!("it never ends");
    }

    fn is_alive(&mut self, sequence: u32) {
        let answer = self.ask(SMF, &heartbeat(sequence, STARTED));
        assert_eq!(type_of(&answer), MessageType::HEARTBEAT_RESPONSE);
    }
}

fn release(sequence: u32) -> Vec<u8> {
    of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, sequence, SMF_NAME)
}

#[test]
fn a_release_is_answered_when_all_sessions_are_gone_and_heartbeats_before() {
    let (mut world, seid) = NodeTestbed::with_many();
    assert!(world.send(SMF, &release(2)).is_empty());
    let left = world.count();
    assert!(0 < left && left < usize::from(MANY), "{left} are left");
    world.is_alive(3);
    // Other requests of the association must be retransmitted.
    assert!(world.send(SMF, &setup(4, SMF_NAME, STARTED)).is_empty());
    assert!(world.send(SMF, &deletion(5, seid)).is_empty());
    // Other associations are served.
    world.associate(OTHER, 6, OTHER_NAME, STARTED);
    seid_of(&world.ask(OTHER, &establishment(7, OTHER_NAME, control(9, 101), 250)));
    let early = world.ask(SMF, &release(2));
    let sent = world.finish();
    assert_eq!((sent.len(), sent[0].to, sent[0].local), (1, SMF, Some(UPF)));
    assert_eq!(type_of(&sent[0].bytes), MessageType::ASSOCIATION_RELEASE_RESPONSE);
    assert_eq!((cause(&sent[0].bytes), world.count()), (1, 1));
    assert_eq!(sent[0].bytes, early);
    assert_eq!(world.ask(SMF, &release(2)), early);
    world.kill();
    assert_eq!(world.ask(SMF, &release(2)), early);
    world.associate(SMF, 4, SMF_NAME, STARTED);
}

#[test]
fn a_release_that_was_killed_goes_on_and_is_answered_when_it_is_asked_again() {
    let (mut world, _) = NodeTestbed::with_many();
    assert!(world.send(SMF, &release(2)).is_empty());
    world.kill();
    let left = world.count();
    assert!(0 < left && left < usize::from(MANY), "{left} are left");
    // The time of the retransmission does not matter.
    let answer = world.ask(SMF, &release(2));
    assert_eq!(type_of(&answer), MessageType::ASSOCIATION_RELEASE_RESPONSE);
    assert!(world.finish().is_empty());
    assert_eq!((cause(&answer), world.count()), (1, 0));
    assert_eq!(world.node.associations().count(), 0);
    assert_eq!(world.ask(SMF, &release(2)), answer);
}

#[test]
fn a_setup_over_many_sessions_is_answered_when_they_are_gone_also_after_a_kill() {
    let (mut world, _) = NodeTestbed::with_many();
    let again = setup(2, SMF_NAME, STARTED + 1);
    assert!(world.send(SMF, &again).is_empty());
    world.kill();
    let sent = match world.send(SMF, &again) {
        sent if sent.is_empty() => world.finish(),
        sent => sent,
    };
    assert_eq!((sent.len(), cause(&sent[0].bytes), world.count()), (1, 1, 0));
    let all: Vec<_> = world.node.associations().map(|it| it.peer.recovery).collect();
    assert_eq!(all, [STARTED + 1]);
}

#[test]
fn a_peer_that_has_started_again_has_no_session_in_the_end() {
    let (mut world, _) = NodeTestbed::with_many();
    let answer = world.ask(SMF, &heartbeat(2, STARTED + 9));
    assert_eq!(type_of(&answer), MessageType::HEARTBEAT_RESPONSE);
    world.ask(SMF, &heartbeat(3, STARTED + 9));
    assert!(world.send(SMF, &establishment(4, SMF_NAME, control(7, 100), 250)).is_empty());
    assert!(world.finish().is_empty());
    assert_eq!((world.count(), world.node.statistics().restorations), (0, 1));
    assert_eq!(world.node.statistics().sessions_removed, u64::from(MANY));
    seid_of(&world.ask(SMF, &establishment(4, SMF_NAME, control(7, 100), 250)));
}
