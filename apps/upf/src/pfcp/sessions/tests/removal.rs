use std::time::Duration;

use fastlane::counters::{Counters, FENCE_TURNS, LaneCounter};

use super::*;
use crate::rules::Capacities;

fn ue(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 1, number)
}

#[test]
fn case_50_the_last_report_is_in_the_answer() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(ue(1)))));
    let seid = answered.up.unwrap().seid;
    let session = world.only();
    world.count(session.urrs[0].progress.line, 4711);
    let request = deletion(2, seid);
    let gone = world.ask(&request);
    assert_eq!((gone.cause, gone.seid), (1, 77));
    assert_eq!(gone.usage, [(1, 0, ie::UsageReportTrigger::TERMR.0, Some(4711))]);
    assert_eq!((world.ids().len(), world.sessions.len()), (0, 0));
    assert!(world.sessions.published().rules(session.id).is_none());
    assert_eq!(world.sessions.find_tunnel(session.pdrs[0].tunnel.unwrap().teid), None);
    assert_eq!((session.seid, world.sessions.get(session.id)), (seid, None));
    // A retransmission gets the same response; a new request and a late retransmission do not.
    world.restart();
    assert_eq!(world.handle(&request), gone.bytes);
    assert_eq!(world.ask(&deletion(3, seid)).cause, 65);
    world.now = world.now.after(10 * SECOND);
    assert_eq!(world.ask(&request).cause, 65);
}

#[test]
fn case_50_what_nobody_heard_is_in_the_answer_too() {
    let mut world = SessionTestbed::new();
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(ue(1)))));
    let line = world.only().urrs[0].progress.line;
    world.count(line, 11);
    let counts = [4700, 1, 0, 0];
    let triggers = ie::UsageReportTrigger::VOLTH;
    let earlier = UsageReport { urr: 1, counts, triggers, measured: 1, ..UsageReport::default() };
    world.unheard = vec![earlier];
    let gone = world.ask(&deletion(2, answered.up.unwrap().seid));
    let last = (1, 0, ie::UsageReportTrigger::TERMR.0, Some(11));
    assert_eq!(gone.usage, [(1, 0, triggers.0, Some(4700)), last]);
}

#[test]
fn the_last_report_has_the_packets_of_a_lane_that_had_no_cpu() {
    let settings = settings(serde_json::json!({ "sessions": 8 }));
    let counters = Counters::create(1, 0).unwrap();
    let readers = fastlane_testing::lanes_of(&counters).into();
    let memory = Private::new(Capacities::of(&settings), readers);
    let mut world = SessionTestbed::on(memory, settings);
    let answered = world.ask(&establishment(1, 77, &|w| usual(w, &address(ue(1)))));
    let seid = answered.up.unwrap().seid;
    let line = world.only().urrs[0].progress.line;
    world.count(line, 100);
    let (state, now) = (world.state(), world.now);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The lane found the rules before the session was withdrawn, and counts afterwards.
            std::thread::sleep(Duration::from_millis(50));
            count(&state, now, line, 65);
            counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
        });
        let gone = world.ask(&deletion(2, seid));
        assert_eq!(gone.usage, [(1, 0, ie::UsageReportTrigger::TERMR.0, Some(165))]);
    });
}

#[test]
fn case_44_a_retransmission_gets_the_same_bytes() {
    let mut world = SessionTestbed::new();
    let request = establishment(1, 77, &|w| usual(w, &address(ue(1))));
    let first = world.handle(&request);
    assert_eq!(world.handle(&request), first);
    world.restart();
    assert_eq!(world.handle(&request), first);
    assert_eq!(world.sessions.len(), 1);
    world.now = world.now.after(10 * SECOND);
    let new = world.ask(&request);
    assert_eq!(new.why(), (73, Some(93), Some(FailedRuleId::Pdr(2))), "it is a new request");
}

/// Creates ten sessions of two associations; every second one belongs to the second and has an
/// FQ-CSID.
fn ten() -> SessionTestbed {
    let mut world = SessionTestbed::new();
    for number in 0..10 {
        world.peer = Some(peer(number % 2));
        let request = establishment(u32::from(number), 77, &|w| {
            usual(w, &address(ue(number as u8)));
            if number % 4 == 1 {
                let numbers = &[0, 7, 0, 9];
                w.put(&ie::FqCsid {
                    node_id_type: 0,
                    node: &[10, 9, 0, 1],
                    numbers,
                    node_type: None,
                });
            }
        });
        assert_eq!(world.ask(&request).cause, 1);
    }
    world
}

#[test]
fn case_13_two_control_planes_with_equal_numbers() {
    let world = ten();
    assert_eq!(world.sessions.len(), 10);
    assert!(world.sessions.iter().all(|session| session.cp_fseid.seid == 77));
}

#[test]
fn cases_6_and_9_the_sessions_of_an_association_go() {
    let mut world = ten();
    let mut gone = 0;
    let none = |_: IpAddr| false;
    let removed = world.sessions.remove_of_peer(world.now, 1, &none, &mut |_| gone += 1);
    assert_eq!((removed, gone, world.sessions.len()), (5, 5, 5));
    assert!(world.sessions.iter().all(|session| session.peer == 0));
    let kept = |address: IpAddr| address == IpAddr::from([10, 9, 0, 1]);
    assert_eq!(world.sessions.remove_of_peer(world.now, 0, &kept, &mut |_| {}), 0);
    world.restart();
    assert_eq!(world.sessions.len(), 5);
    let instance = world.settings.instance("internet").unwrap();
    assert_eq!(world.sessions.find_user(instance, ue(1).into()), None);
}

#[test]
fn case_54_a_set_of_sessions_goes() {
    let mut world = ten();
    let set = |number: &'static [u8], node: &'static [u8]| ie::FqCsid {
        node_id_type: 0,
        node,
        numbers: number,
        node_type: None,
    };
    let mut remove =
        |index, set: ie::FqCsid<'_>| world.sessions.remove_set(world.now, index, &set, &mut |_| {});
    assert_eq!(remove(1, set(&[0, 8], &[10, 9, 0, 1])), 0);
    assert_eq!(remove(1, set(&[0, 9], &[10, 9, 0, 2])), 0);
    assert_eq!(remove(0, set(&[0, 9], &[10, 9, 0, 1])), 0);
    assert_eq!(remove(1, set(&[0, 9], &[10, 9, 0, 1])), 3);
    assert_eq!(world.sessions.len(), 7);
}
