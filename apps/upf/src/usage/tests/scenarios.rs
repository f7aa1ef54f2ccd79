//! Scenarios by the octets that are sent and read.

use std::net::Ipv4Addr;

use fastlane_pfcp::ie::{
    BarId, DlBufferingDuration, DlBufferingSuggestedPacketCount, Duration5, PfcpsrrspFlags,
};
use fastlane_pfcp::{Cause, IeType};

use super::arithmetic::{total, urr};
use super::testbed::Testbed;
use crate::rules::layout::counter_slots::event;
use crate::session::UrrUpdate;
use crate::session::{
    Buffering, Measure, Pdr, Qer, ReportingTriggers, Session, SessionIndex, Source,
    UsageReportTrigger,
};
use crate::usage::{Meter, Outcome, update};

const DLDR: u64 = 1;
const USAR: u64 = 2;
const ERIR: u64 = 4;
const UPIR: u64 = 8;

fn by_volume(session: &mut Session, threshold: u64) {
    session.urrs[0].triggers = ReportingTriggers::VOLTH;
    session.urrs[0].volume_threshold = total(threshold);
}

#[test]
fn case_49_queries_are_answered_at_once_and_each_octet_is_reported_once() {
    let mut world = Testbed::new();
    world.establish(1, |session| by_volume(session, 1000));
    for _ in 0..7 {
        assert!(world.packet(1, true, 100));
    }
    world.query(1, UsageReportTrigger::IMMER);
    let seen = world.smf.last().clone();
    assert_eq!((seen.triggers, seen.octets), (UsageReportTrigger::IMMER, Some([700, 700, 0])));
    assert!(world.packet(1, false, 999));
    world.settle();
    assert_eq!(world.smf.sum(2, 1), ([700, 0], 1));
    assert!(world.packet(1, false, 1));
    world.settle();
    assert_eq!(world.smf.sum(2, 1), ([700, 1000], 2));
}

#[test]
fn case_50_the_last_reports_have_the_next_numbers() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        by_volume(session, 50);
        session.urrs.push(urr(2, &[]));
        session.pdrs.iter_mut().for_each(|pdr| pdr.urrs = vec![1, 2]);
    });
    assert!(world.packet(1, true, 60));
    world.settle();
    assert!(world.packet(1, true, 5));
    world.query(1, UsageReportTrigger::TERMR);
    assert_eq!(world.smf.sum(2, 1), ([65, 0], 2));
    assert_eq!(world.smf.sum(2, 2), ([65, 0], 1));
    assert_eq!(world.smf.last().triggers, UsageReportTrigger::TERMR);
}

#[test]
fn case_51_quota_threshold_period_and_traffic_are_reported_without_messages_of_lanes() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        let urr = &mut session.urrs[0];
        urr.triggers = ReportingTriggers(
            ReportingTriggers::VOLQU.0 | ReportingTriggers::PERIO.0 | ReportingTriggers::START.0,
        );
        urr.quota.volume = total(500);
        urr.period_s = Some(10);
    });
    assert!(world.packet(1, true, 300) && !world.packet(1, true, 300));
    world.settle();
    let seen: Vec<_> = world.smf.usage.values().map(|seen| seen.triggers).collect();
    assert_eq!(seen, [UsageReportTrigger::START, UsageReportTrigger::VOLQU]);
    assert!(!world.packet(1, true, 1), "the quota has ended");
    world.wait(10_000);
    world.settle();
    assert_eq!(world.smf.last().triggers, UsageReportTrigger::PERIO);
    world.modify(1, |session, published, now| {
        let meter = Meter::read(published, &session.urrs[0], session.version);
        update(&mut session.urrs[0], &meter, now, |_| UrrUpdate {
            volume_quota: true,
            ..UrrUpdate::default()
        });
    });
    assert!(world.packet(1, true, 500) && !world.packet(1, true, 1));
    world.settle();
    assert_eq!(world.smf.sum(2, 1), ([800, 0], 5)); // traffic had stopped, and began again
    assert_eq!(world.smf.last().triggers, UsageReportTrigger::VOLQU);
}

#[test]
fn case_51_the_monitoring_time_splits_usage_and_the_two_go_together() {
    let mut world = Testbed::new();
    let at = crate::time::ntp(world.now.real) + 5;
    world.establish(1, |session| {
        by_volume(session, 1000);
        session.urrs[0].monitoring_time = Some(at);
        session.urrs[0].subsequent_volume_threshold = total(400);
    });
    assert!(world.packet(1, true, 300));
    world.wait(6000);
    world.settle();
    assert!(world.smf.requests.is_empty(), "nothing is due at the moment itself");
    world.restart();
    assert!(world.packet(1, true, 400));
    world.settle();
    let seen: Vec<_> = world.smf.usage.values().cloned().collect();
    assert_eq!((seen[0].triggers, seen[0].information), (UsageReportTrigger::MONIT, 1));
    assert_eq!((seen[1].triggers, seen[1].information), (UsageReportTrigger::VOLTH, 2));
    assert_eq!((seen[0].octets, seen[1].octets), (Some([300, 300, 0]), Some([400, 400, 0])));
    assert_eq!(world.smf.requests.len(), 1);
}

#[test]
fn case_51_inactivity_is_reported_once_until_there_is_a_packet() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        session.urrs.clear();
        session.pdrs.iter_mut().for_each(|pdr| pdr.urrs.clear());
        session.inactivity_s = Some(30);
    });
    world.wait(20_000);
    world.packet(1, true, 100);
    world.wait(29_000);
    world.settle();
    assert!(world.smf.requests.is_empty());
    world.restart();
    for _ in 0..4 {
        world.wait(2000);
        world.settle();
    }
    let kinds = |world: &Testbed| world.smf.requests.iter().map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(kinds(&world), [UPIR]);
    world.packet(1, false, 100);
    world.wait(15_000);
    world.settle();
    world.wait(31_000);
    world.settle();
    world.wait(31_000);
    world.settle();
    assert_eq!(kinds(&world), [UPIR, UPIR]);
}

#[test]
fn case_51_many_urrs_take_several_requests_and_one_after_the_other() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        session.urrs = (1..=24).map(|id| urr(id, &[ReportingTriggers::VOLTH])).collect();
        session.urrs.iter_mut().for_each(|urr| {
            urr.volume_threshold = total(10);
            urr.measure = Measure { volume: true, ..Measure::default() };
        });
        session.pdrs.iter_mut().for_each(|pdr| pdr.urrs = (1..=4).collect());
    });
    assert!(world.packet(1, true, 10));
    world.tick();
    let sent = world.sent();
    assert!(sent.len() == 3 && sent.iter().all(|datagram| datagram.len() < 1400), "{sent:?}");
    assert!(world.packet(1, true, 10));
    world.tick();
    assert!(world.sent().is_empty(), "what was sent is not answered");
    for datagram in &sent {
        world.exchange(datagram, Cause::REQUEST_ACCEPTED, |_| ());
    }
    world.settle();
    for id in 1..=24 {
        assert_eq!(world.smf.sum(2, id), ([20, 0], 2), "{id}");
    }
}

fn held(session: &mut Session, delay_ms: u32) {
    let bar = Buffering { id: 1, notification_delay_ms: delay_ms, ..Buffering::default() };
    session.bars = vec![bar];
    let far = &mut session.fars[1];
    (far.actions.buffer, far.actions.notify, far.actions.forward) = (true, true, false);
    far.bar = Some(1);
}

#[test]
fn case_77_held_packets_are_told_of_once_and_again_when_they_are_held_again() {
    let mut world = Testbed::new();
    world.establish(1, |session| held(session, 0));
    for is_told in [true, false, true] {
        world.hold(1, 2, is_told);
        world.settle();
        world.restart();
    }
    assert_eq!((world.smf.notified.as_slice(), world.smf.requests[0].0), (&[2][..], DLDR));
    world.modify(1, |session, _, _| {
        let far = &mut session.fars[1];
        (far.actions.buffer, far.actions.notify, far.actions.forward) = (false, false, true);
    });
    world.settle();
    world.modify(1, |session, _, _| held(session, 0));
    world.hold(1, 2, false);
    world.settle();
    assert_eq!(world.smf.notified, [2, 2]);
}

#[test]
fn case_77_held_packets_are_told_of_again_once_their_time_was_over() {
    let mut world = Testbed::new();
    world.establish(1, |session| held(session, 0));
    for round in 1..=3 {
        world.hold(1, 2, true);
        world.settle();
        world.hold(1, 2, false); // the report gave the rules a version
        world.settle();
        assert_eq!(world.smf.notified, vec![2; round]);
        world.raise(&world.session(1), 1, event::EXPIRED);
        world.settle();
        assert_eq!(world.smf.notified, vec![2; round], "nothing is held");
    }
}

#[test]
fn case_77_a_held_packet_is_told_of_once_if_pdrs_share_its_far() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        held(session, 0);
        // Open5GS: router advertisements of the control plane go by the FAR of downlink packets.
        let control = Pdr { id: 3, source: Source::Control, ..session.pdrs[1].clone() };
        session.pdrs.push(control);
    });
    world.hold(1, 2, true);
    world.hold(1, 2, false); // the report gave the rules a version, under which lanes hold it again
    world.settle();
    world.wait(2_000);
    world.settle();
    assert_eq!(world.smf.notified, [2]);
}

/// TS 29.244 table 7.5.8.2-1: the QoS flow of a packet from the data network is that of its QER.
#[test]
fn case_77_a_held_packet_is_told_of_with_its_flow() {
    for (container, wanted) in [(Some(0), 9), (Some(5), 5), (None, 9)] {
        let mut world = Testbed::new();
        world.establish(1, |session| {
            held(session, 0);
            let others = Qer { id: 70, ..Qer::default() };
            session.qers.extend([others, Qer { id: 71, qfi: Some(9), ..Qer::default() }]);
            session.pdrs[1].qers.extend([70, 71]);
        });
        world.hold_in_flow(1, 2, container);
        world.settle();
        assert_eq!(
            (&world.smf.notified[..], &world.smf.flows[..]),
            (&[2][..], &[Some(wanted)][..])
        );
    }
}

#[test]
fn case_77_the_notification_waits_for_its_delay_and_is_spared_when_packets_go_on_before() {
    let mut world = Testbed::new();
    world.establish(1, |session| held(session, 500));
    world.establish(2, |session| held(session, 500));
    world.hold(1, 2, true);
    world.hold(2, 2, true);
    world.wait(450);
    world.settle();
    assert!(world.smf.requests.is_empty());
    world.modify(2, |session, _, _| session.fars[1].actions.notify = false);
    world.wait(50);
    world.settle();
    assert_eq!(world.smf.requests.len(), 1);
}

#[test]
fn case_77_an_answer_changes_buffering() {
    let mut world = Testbed::new();
    world.establish(1, |session| held(session, 0));
    world.hold(1, 2, true);
    let sent = world.sent();
    let version = world.session(1).version;
    let outcome = world.exchange(&sent[0], Cause::REQUEST_ACCEPTED, |to| {
        to.group(IeType::UPDATE_BAR_IN_REPORT, |to| {
            to.put(&BarId(1));
            to.put(&DlBufferingDuration(Duration5::at_least(20)));
            to.put(&DlBufferingSuggestedPacketCount(9));
        });
        to.put(&PfcpsrrspFlags(1));
    });
    assert_eq!(outcome, Some(Outcome::Done));
    let session = world.session(1);
    assert_eq!(session.bars[0].duration_ms, Some(20_000));
    assert_eq!(session.bars[0].packets, Some(9));
    assert!(session.discarded > version && session.discarded <= session.version);
    assert!(!world.process.out.lanes.is_empty(), "the lanes are told");
    // It dropped what was held, so the next packet is the first one, and told of.
    world.hold(1, 2, true);
    world.settle();
    assert_eq!(world.smf.notified, [2, 2]);
}

#[test]
fn case_65_a_peer_with_two_addresses_is_known_by_both() {
    let mut world = Testbed::new();
    world.establish(1, |session| {
        let way = session.fars[1].forwarding.as_mut().unwrap();
        let v6 = Some("2001:db8::9".parse().unwrap());
        way.outer = Some(crate::session::OuterHeader { v6, ..way.outer.unwrap() });
    });
    let outer = world.session(1).fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    world.error_indication6("2001:db8::9".parse().unwrap(), outer.teid.unwrap());
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    world.exchange(&sent[0], Cause::REQUEST_ACCEPTED, |_| ());
    world.error_indication(outer.v4.unwrap(), outer.teid.unwrap());
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn case_65_an_error_indication_is_reported_with_its_tunnel_and_a_spoofed_one_is_counted() {
    let mut world = Testbed::new();
    world.establish(1, |_| ());
    let outer = world.session(1).fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    let (gnb, teid) = (outer.v4.unwrap(), outer.teid.unwrap());
    world.error_indication(Ipv4Addr::new(192, 168, 100, 2), teid);
    world.error_indication(gnb, teid ^ 1);
    assert!(world.sent().is_empty());
    world.error_indication(gnb, teid);
    world.error_indication(gnb, teid);
    let sent = world.sent();
    assert_eq!(sent.len(), 1, "one at a time");
    let wanted = [&[0, 99, 0, 13, 0, 21, 0, 9, 1][..], &teid.to_be_bytes(), &gnb.octets()].concat();
    assert!(sent[0].ends_with(&wanted), "{:x?}", sent[0]);
    world.exchange(&sent[0], Cause::REQUEST_ACCEPTED, |_| ());
    assert_eq!(world.smf.requests[0].0, ERIR);
    let statistics = world.process.with(world.now, |usage, _| *usage.statistics());
    assert_eq!((statistics.errors_ignored, statistics.errors_repeated), (2, 1));
    // The tunnel has moved: no session owns the old one.
    world.modify(1, |session, _, _| {
        let way = session.fars[1].forwarding.as_mut().unwrap();
        way.outer = Some(crate::session::OuterHeader { teid: Some(9), ..way.outer.unwrap() });
    });
    world.error_indication(gnb, teid);
    assert!(world.sent().is_empty());
    world.error_indication(gnb, 9);
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn case_45_a_session_that_the_control_plane_does_not_know_is_to_be_removed() {
    let mut world = Testbed::new();
    world.establish(1, |session| by_volume(session, 10));
    world.packet(1, true, 10);
    world.tick();
    let sent = world.sent();
    let outcome = world.exchange(&sent[0], Cause::SESSION_CONTEXT_NOT_FOUND, |_| ());
    assert_eq!(outcome, Some(Outcome::Gone(SessionIndex(1))));
}

#[test]
fn a_report_that_nobody_answers_is_sent_again_later_and_says_the_same() {
    let mut world = Testbed::new();
    world.establish(1, |session| by_volume(session, 10));
    world.packet(1, true, 10);
    let mut sent = Vec::new();
    for _ in 0..120 {
        world.tick();
        sent.extend(world.sent());
        world.packet(1, true, 1);
        world.wait(1000);
    }
    assert!(sent.len() >= 6 && sent.windows(2).all(|pair| pair[0] == pair[1]), "{}", sent.len());
    let datagram = sent.pop().unwrap();
    assert_eq!(world.exchange(&datagram, Cause::REQUEST_ACCEPTED, |_| ()), None, "too late");
    world.wait(31_000);
    world.settle();
    assert_eq!(world.smf.sum(2, 1).0[0], world.counted(1)[0]);
    assert_eq!(world.smf.requests[0].0, USAR);
}

#[test]
fn case_50_a_report_is_unheard_while_it_waits_for_another_try() {
    let mut world = Testbed::new();
    world.establish(1, |session| by_volume(session, 10));
    world.packet(1, true, 10);
    world.tick();
    let unheard = |world: &mut Testbed| {
        let session = world.session(1);
        world.process.with(world.now, |usage, _| usage.unheard(&session))
    };
    assert_eq!(unheard(&mut world), [], "it is in flight");
    let mut seconds = 0;
    let waiting = loop {
        world.wait(1000);
        world.tick();
        let waiting = unheard(&mut world);
        seconds += 1;
        if !waiting.is_empty() {
            break waiting;
        }
        assert!(seconds < 60, "nobody gives it up");
    };
    assert_eq!((waiting.len(), waiting[0].urr, waiting[0].counts[0]), (1, 1, 10));
    let sent = world.sent();
    world.wait(31_000);
    world.tick();
    assert_eq!(unheard(&mut world), [], "it is sent again");
    drop(sent);
}

#[test]
fn a_peer_that_does_not_answer_keeps_nobody_elses_reports_waiting() {
    use crate::pfcp::{Request, Tag};
    let mut world = Testbed::new();
    let dead = Ipv4Addr::new(192, 0, 2, 99);
    world.establish(1, |session| by_volume(session, 10));
    world.establish(2, |session| {
        by_volume(session, 10);
        session.cp_fseid.address = dead.into();
    });
    // Its earlier requests without response.
    let to = (dead, fastlane_pfcp::PORT).into();
    let mut before = Vec::new();
    let requests = &mut world.process.requests;
    while requests.room_for(to) > 0 {
        let sequence = requests.sequence();
        let bytes = vec![0x20, 56, 0, 4];
        let tag = Tag::Report(SessionIndex(3));
        let request = Request { bytes, sequence, to, local: None, tag };
        requests.send(world.now, request, &mut world.process.out).unwrap();
        before.push(sequence);
    }
    world.sent();
    assert!(world.packet(1, true, 10) && world.packet(2, true, 10));
    let mut sent = 0;
    for _ in 0..200 {
        world.wait(10);
        world.tick();
        for datagram in world.sent() {
            sent += usize::from(datagram.len() > 4);
            world.exchange(&datagram, Cause::REQUEST_ACCEPTED, |_| ());
        }
    }
    assert_eq!((sent, world.smf.sum(2, 1)), (1, ([10, 0], 1)));
    let looks = world.process.store.record(SessionIndex(2)).unwrap().version;
    // It responds: waiting reports are sent, once.
    before.iter().for_each(|sequence| world.process.requests.cancel(*sequence));
    world.wait(10);
    world.tick();
    assert_eq!(world.sent().len(), 1);
    assert!(world.process.store.record(SessionIndex(2)).unwrap().version > looks);
    assert_eq!(world.session(2).reporting.unacknowledged.len(), 1);
}
