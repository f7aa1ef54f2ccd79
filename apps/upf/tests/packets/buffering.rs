//! Held packets, and packets of deleted sessions.

use fastlane_table::EntryId;
use upf::rules::layout::counter_slots::{EVENTS, event};
use upf::rules::layout::drop_reason::DropReason;
use upf::rules::layout::session_rules::{Rules, flag};
use zerocopy::IntoBytes;

use crate::frames::{ethernet, from_gnb, g_pdu, opened, ue4};
use crate::test_lane::*;

fn holding(version: u64, packets: u16) -> Rules {
    let mut rules = simple(version);
    rules.downlink.common.flags |= flag::HOLD | flag::NOTIFY;
    (rules.cold.hold_packets, rules.cold.hold_ms) = (packets, 60_000);
    rules
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(|number| ethernet(N6, &ue4(SERVER, USER, 64, number))).collect()
}

#[test]
fn case_46_and_77_held_packets_leave_in_order_before_later_ones() {
    let mut world = TestLane::with_user();
    world.publish(&holding(2, 20));
    world.show(N6, &numbered(0..8));
    world.show(N6, &numbered(8..25));
    assert_eq!((world.count(DropReason::Held), world.count(DropReason::HoldLimit)), (20, 5));
    assert!(world.left(N3).is_empty() && world.usage() == [0; 4]);
    let word = world.tables.state.read(EntryId(SESSION.0))[EVENTS];
    assert_eq!(word & (event::HELD | event::OVERFLOW), event::HELD | event::OVERFLOW);
    let mut pending = vec![];
    world.tables.events.scan(|entry, seen| pending.push((entry, seen)));
    assert_eq!(pending, [(EntryId(SESSION.0), 2)], "held, and held too much: once each");

    // The new rules are published when the next packet arrives: it stays behind.
    let mut rules = simple(3);
    rules.downlink.common.forwarding.teid = 0x77;
    world.publish(&rules);
    world.show(N6, &numbered(30..31));
    let lengths: Vec<_> = world
        .left(N3)
        .iter()
        .map(|frame| {
            let (teid, _, inner) = opened(frame);
            assert_eq!(teid, 0x77);
            inner.len() - 28
        })
        .collect();
    assert_eq!(lengths, (0..20).chain([30]).collect::<Vec<_>>());
    assert_eq!(world.usage()[3], 21);
    assert_eq!(world.lane.close(), 0);
}

#[test]
fn uplink_packets_are_held_up_to_the_count_of_the_bar_too() {
    let mut world = TestLane::with_user();
    let mut rules = simple(2);
    rules.uplink.common.flags |= flag::HOLD;
    (rules.cold.hold_packets, rules.cold.hold_ms) = (3, 60_000);
    world.publish(&rules);
    let from_user = |number| from_gnb(&g_pdu(teid(SESSION), 1, 1, &ue4(USER, SERVER, 64, number)));
    let frames: Vec<_> = (0..5).map(from_user).collect();
    world.show(N3, &frames);
    assert_eq!((world.count(DropReason::Held), world.count(DropReason::HoldLimit)), (3, 2));
    assert!(world.left(N6).is_empty());
    world.publish(&simple(3));
    world.show(N3, &[]);
    let octets: Vec<_> = world.left(N6).iter().map(|frame| frame.len() - 14 - 28).collect();
    assert_eq!(octets, [0, 1, 2]);
    assert_eq!(world.lane.close(), 0);
}

#[test]
fn limits_hold_for_a_burst_that_is_shown_in_parts() {
    let mut world = TestLane::with_user();
    world.publish(&holding(2, 5));
    let mut other = numbered(0..1).remove(0);
    other[12..14].copy_from_slice(&OTHERS);
    let burst: Vec<_> = numbered(0..10).into_iter().flat_map(|it| [it, other.clone()]).collect();
    world.show(N6, &burst);
    assert_eq!((world.count(DropReason::Held), world.count(DropReason::HoldLimit)), (5, 5));
    assert_eq!(world.linux().len(), 10);
    assert_eq!(world.lane.close(), 0);
}

#[test]
fn held_packets_follow_new_rules_without_being_asked() {
    let mut world = TestLane::with_user();
    world.publish(&holding(2, 20));
    world.show(N6, &numbered(0..3));
    world.publish(&simple(3));
    world.show(N6, &[]);
    assert_eq!(world.left(N3).len(), 3);
    // They are discarded with the session.
    world.publish(&holding(4, 20));
    world.show(N6, &numbered(0..3));
    world.tables.rules.clear(SESSION.0 as usize);
    world.show(N6, &[]);
    assert_eq!((world.left(N3).len(), world.count(DropReason::HoldDiscarded)), (0, 3));
    assert_eq!(world.lane.close(), 0);
}

#[test]
fn held_packets_are_given_up_when_their_time_is_over() {
    let mut world = TestLane::with_user();
    let mut rules = holding(2, 20);
    rules.cold.hold_ms = 50;
    world.publish(&rules);
    world.show(N6, &numbered(0..3));
    std::thread::sleep(std::time::Duration::from_millis(60));
    world.show(N6, &[]);
    assert_eq!(world.count(DropReason::HoldDiscarded), 3);
    let word = world.tables.state.read(EntryId(SESSION.0))[EVENTS];
    assert!(word & event::EXPIRED != 0, "the slow path is told");
    world.check();
}

#[test]
fn case_77_what_the_control_plane_gives_up_is_not_sent() {
    // Noticed by the lane's polling, by a message of the control plane, and by the next packet.
    for step in 0..3 {
        let mut world = TestLane::with_user();
        world.publish(&holding(2, 20));
        world.show(N6, &numbered(0..3));
        // A change that discards nothing: they remain held under the new version.
        let mut rules = holding(3, 20);
        rules.cold.discarded = 2;
        world.publish(&rules);
        world.show(N6, &[]);
        assert_eq!(world.count(DropReason::HoldDiscarded), 0);
        let mut rules = simple(4);
        rules.cold.discarded = 4;
        world.publish(&rules);
        let told = upf::rules::layout::message::SessionEvent::about(SESSION, 0);
        match step {
            0 => world.show(N6, &[]),
            1 => world.send_message(upf::rules::layout::message::kind::RULES, told.as_bytes()),
            _ => {}
        }
        world.show(N6, &numbered(9..10));
        let left = world.left(N3);
        assert_eq!((left.len(), world.count(DropReason::HoldDiscarded)), (1, 3), "{step}");
        assert_eq!(opened(&left[0]).2.len() - 28, 9);
        assert_eq!(world.usage()[3], 1);
        // Later packets are held and sent as before.
        let mut rules = holding(5, 20);
        rules.cold.discarded = 4;
        world.publish(&rules);
        world.show(N6, &numbered(0..2));
        world.publish(&simple(6));
        world.show(N6, &[]);
        assert_eq!(world.left(N3).len(), 2);
        assert_eq!(world.lane.close(), 0);
    }
}

#[test]
fn case_79_packets_of_a_session_that_is_gone_are_dropped() {
    let mut world = TestLane::with_user();
    world.tables.rules.clear(SESSION.0 as usize);
    world.show(N6, &numbered(0..1));
    world.show(N3, &[from_gnb(&g_pdu(teid(SESSION), 1, 1, &ue4(USER, SERVER, 64, 4)))]);
    assert_eq!(
        (world.count(DropReason::UnknownUser), world.count(DropReason::UnknownTunnel)),
        (1, 1)
    );
    assert!(world.linux().is_empty());
    world.check();
}

#[test]
fn what_a_lane_held_that_was_killed_is_counted_once_by_the_next() {
    let (lane_tables, access) = tables();
    let mut world = TestLane::on(TestRoutes::new(), settings(), lane_tables.clone(), access);
    let mut lost = 0;
    for (round, held) in [7, 0, 3].into_iter().enumerate() {
        let version = 10 * round as u64;
        world.publish(&holding(version + 1, 20));
        world.show(N6, &numbered(0..5));
        world.publish(&simple(version + 2));
        world.show(N6, &[]);
        assert_eq!(world.left(N3).len(), 5);
        world.publish(&holding(version + 3, 20));
        world.show(N6, &numbered(0..held));
        assert_eq!(world.count(DropReason::HoldLost), lost);
        // It ends abruptly; so does the next one before it has held anything.
        lost += held as u64;
        for _ in 0..2 {
            world = TestLane::on(TestRoutes::new(), settings(), lane_tables.clone(), world.tables);
            assert_eq!(world.count(DropReason::HoldLost), lost, "{round}");
        }
    }
}
