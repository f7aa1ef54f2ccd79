//! Exhausted resources: allocations of a failed request are free again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastlane::counters::{Counters, FENCE_TURNS, LaneCounter};
use fastlane_testing::sleeping_lane;

use super::*;
use crate::config::Settings;
use crate::rules::Capacities;
use crate::rules::layout::UeKey;

/// Appends a session with four URRs, which exceeds its record.
fn four(w: &mut Writer<'_>) {
    usual(w, &address(Ipv4Addr::new(11, 0, 0, 4)));
    (2..5).for_each(|id| urr(w, id));
}

/// Establishes a session whose long DNN takes `length` octets.
fn filler(world: &mut SessionTestbed, number: u32, length: usize) -> Answered {
    let user = Ipv4Addr::from_bits(0x0C00_0000 + number);
    let name = "n".repeat(length);
    world.ask(&establishment(number, 77, &|w| {
        usual(w, &address(user));
        w.put(&ie::ApnDnn(name.as_bytes()));
    }))
}

/// Uses up all parts.
fn fill(world: &mut SessionTestbed) -> Vec<u64> {
    let mut number = 1000;
    let mut seids = Vec::new();
    for length in [20_000, 2_000, 200] {
        loop {
            number += 1;
            let answered = filler(world, number, length);
            let Some(up) = answered.up else {
                assert_eq!(answered.why(), (75, None, None));
                break;
            };
            seids.push(up.seid);
        }
    }
    seids
}

fn world(parts: usize) -> (SessionTestbed, usize) {
    let settings: Settings = settings(serde_json::json!({}));
    let lines = settings.sessions as usize + 8;
    let world = SessionTestbed::of(settings, |most| (most.parts, most.lines) = (parts, lines));
    (world, lines)
}

#[test]
fn a_session_in_the_simple_form_needs_no_block() {
    let mut world = SessionTestbed::of(settings(serde_json::json!({})), |most| most.blocks = 8);
    let establish = |world: &mut SessionTestbed, number: u32, further_pdrs: u16| {
        let user = address(Ipv4Addr::from_bits(0x0C00_0000 + number));
        world.ask(&establishment(number, 77, &|w| {
            usual(w, &user);
            (3..3 + further_pdrs).for_each(|id| {
                pdr(w, id, 2, &|w| core(w, b"internet", &user), &|_| {});
            });
        }))
    };
    let refused = (1..100).find(|number| establish(&mut world, *number, 1).cause != 1);
    assert!(refused.is_some(), "sessions that exceed the simple form use up the blocks");
    assert_eq!(establish(&mut world, 100, 0).cause, 1);
    assert_eq!(establish(&mut world, 101, 1).cause, 75);
}

#[test]
fn a_long_name_can_be_read_again() {
    let (mut world, _) = world(200);
    let seid = filler(&mut world, 1, 20_000).up.unwrap().seid;
    world.restart();
    let session = world.sessions.find(seid).unwrap();
    assert_eq!(session.network.map(|name| name.len()), Some(20_000));
    assert_eq!(world.ask(&deletion(2, seid)).cause, 1);
}

#[test]
fn what_cannot_be_kept_has_taken_no_lines() {
    let (mut world, lines) = world(200);
    let seids = fill(&mut world);
    for number in 0..lines as u32 {
        assert_eq!(world.ask(&establishment(number, 77, &four)).why(), (75, None, None));
    }
    // A modification finds no part either.
    let more: Body<'_> = &|w| (2..6).for_each(|id| urr(w, id));
    for number in 0..lines as u32 {
        let refused = world.ask(&modification(5000 + number, seids[0], more));
        assert_eq!(refused.why(), (75, None, None));
    }
    assert_eq!(world.ask(&deletion(900, seids[0])).cause, 1);
    world.now = world.now.after(12 * SECOND);
    assert_eq!(world.ask(&establishment(901, 77, &four)).cause, 1);
    let small = *seids.last().unwrap();
    assert_eq!(world.ask(&modification(902, small, more)).cause, 1);
}

#[test]
fn a_session_can_be_ended_when_there_is_no_room_for_the_answer() {
    let (mut world, _) = world(200);
    let seid = world.ask(&establishment(1, 77, &four)).up.unwrap().seid;
    fill(&mut world);
    let ended = world.ask(&deletion(2, seid));
    assert_eq!((ended.cause, ended.usage.len()), (1, 4));
    assert!(world.sessions.find(seid).is_none());
}

#[test]
fn lanes_have_what_is_kept_after_a_change_that_was_not() {
    let (mut world, _) = world(200);
    let seid = world.ask(&establishment(1, 77, &four)).up.unwrap().seid;
    let before = world.only();
    let lines: Vec<u32> = before.urrs.iter().map(|urr| urr.progress.line).collect();
    fill(&mut world);
    world.count(lines[3], 100);
    // The session has traffic, so lanes use the new rules when its last report is made. Then the
    // response and the other rules find no space.
    let name = "n".repeat(30_000);
    let change: Body<'_> = &|w| {
        w.group(IeType::REMOVE_URR, |w| w.put(&ie::UrrId(4)));
        let user = address(Ipv4Addr::new(11, 0, 0, 5));
        pdr(w, 7, 2, &|w| core(w, b"internet", &user), &|_| {});
        w.group(IeType::CREATE_FAR, |w| {
            w.put(&ie::FarId(7));
            w.put(&ie::ApplyAction::FORW);
            w.group(IeType::FORWARDING_PARAMETERS, |w| {
                w.put(&ie::DestinationInterface::CORE);
                let address = name.as_bytes();
                let address_type = ie::RedirectAddress::Url;
                w.put(&ie::RedirectInformation { address_type, address, other: b"" });
            });
        });
    };
    assert_eq!(world.ask(&modification(2, seid, change)).why(), (75, None, None));
    assert_eq!(world.sessions.find(seid), Some(before.clone()));
    let published = world.sessions.published();
    let rules = published.rules(before.id).unwrap();
    assert_eq!(rules.version(), before.version as u32);
    let instance = world.settings.instance("internet").unwrap();
    let user = |last| UeKey::v4(instance, Ipv4Addr::new(11, 0, 0, last));
    assert_eq!(published.user(user(4)), Some(before.id));
    assert_eq!(published.user(user(5)), None);
    let ended = world.ask(&deletion(3, seid));
    assert_eq!((ended.cause, ended.usage.iter().map(|it| it.3).max()), (1, Some(Some(100))));
}

/// Sends another modification of the typical session.
fn next(world: &mut SessionTestbed, sequence: u32, seid: u64) -> Answered {
    let change: Body<'_> = &|w| {
        w.group(IeType::UPDATE_FAR, |w| {
            w.put(&ie::FarId(2));
            w.group(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
                w.put(&ie::OuterHeaderCreation::gtp_u_v4(0x100 + sequence, GNB));
            });
        });
        w.put(&ie::PfcpsmreqFlags::QAURR);
    };
    world.ask(&modification(sequence, seid, change))
}

#[test]
fn whoever_waits_for_each_answer_is_never_told_to_ask_less() {
    // 15,000 requests per second with few sessions.
    let settings = settings(serde_json::json!({ "sessions": 8 }));
    let memory = Private::new(Capacities::of(&settings), sleeping_lane());
    let mut world = SessionTestbed::on(memory, settings);
    let user = address(Ipv4Addr::new(11, 0, 0, 4));
    let seid = world.ask(&establishment(1, 77, &|w| usual(w, &user))).up.unwrap().seid;
    let first = next(&mut world, 2, seid);
    for sequence in 3..6000 {
        assert_eq!(next(&mut world, sequence, seid).cause, 1, "{sequence}");
        world.now = world.now.after(SECOND / 15_000);
    }
    let version = world.only().version;
    assert_eq!(next(&mut world, 2, seid).bytes, first.bytes, "it can still be asked for");
    assert_eq!(world.only().version, version);
}

#[test]
fn who_asks_faster_than_answers_can_be_kept_is_told_so_and_nothing_is_forgotten() {
    let mut world = SessionTestbed::of(settings(serde_json::json!({})), |most| most.answers = 50);
    let user = address(Ipv4Addr::new(11, 0, 0, 4));
    let seid = world.ask(&establishment(1, 77, &|w| usual(w, &user))).up.unwrap().seid;
    let given: Vec<_> = (2..51).map(|sequence| next(&mut world, sequence, seid)).collect();
    assert!(given.iter().all(|answer| answer.cause == 1));
    for round in 0..3 {
        assert_eq!(next(&mut world, 51, seid).why(), (74, None, None));
        for (sequence, answer) in (2..).zip(&given) {
            assert_eq!(next(&mut world, sequence, seid).bytes, answer.bytes, "{round}");
        }
        world.restart();
    }
    // Nine seconds later they can no longer be retransmitted.
    world.now = world.now.after(9 * SECOND + 1);
    for sequence in 51..101 {
        assert_eq!(next(&mut world, sequence, seid).cause, 1, "{sequence}");
    }
    assert_eq!(next(&mut world, 101, seid).cause, 74);
}

#[test]
fn a_lane_that_does_not_turn_for_a_while_delays_answers_and_refuses_nobody() {
    let settings = settings(serde_json::json!({ "sessions": 8 }));
    let counters = Counters::create(1, 0).unwrap();
    let readers = fastlane_testing::lanes_of(&counters).into();
    let memory = Private::new(Capacities::of(&settings).with_answers(4096), readers);
    let mut world = SessionTestbed::on(memory, settings);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A preempted lane.
        scope.spawn(|| {
            for turns in 1.. {
                std::thread::sleep(Duration::from_millis(40));
                counters.lane(0).publish(LaneCounter::Turn, turns * FENCE_TURNS);
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let user = address(Ipv4Addr::new(11, 0, 0, 4));
        let rules: Body<'_> = &|w| {
            usual(w, &user);
            let flow = Some(&b"permit out 17 from any 4000-4999 to assigned"[..]);
            let filter = ie::SdfFilter { flow_description: flow, ..ie::SdfFilter::default() };
            let inside: Body<'_> = &|w| {
                core(w, b"internet", &user);
                w.put(&filter);
            };
            pdr(w, 3, 2, inside, &|_| {});
        };
        let seid = world.ask(&establishment(1, 77, rules)).up.unwrap().seid;
        let causes = (2..40).map(|sequence| next(&mut world, sequence, seid).cause);
        let refused = causes.filter(|cause| *cause != 1).count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}
