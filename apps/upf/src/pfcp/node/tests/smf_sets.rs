//! SMF sets and alternative addresses (TS 29.244 clause 5.22): who controls the sessions of an SMF
//! that has gone, and where their reports go.

use fastlane_pfcp::ie::{
    AlternativeSmfIpAddress, FSeid, ReportType, SmfSetId, UpFunctionFeatures,
    UserPlaneInactivityTimer,
};
use fastlane_pfcp::{Cause, IeType};
use serde_json::json;

use super::session_requests::{control, deletion, establishment, seid_of};
use super::*;

const SET: &[u8] = b"\x04set1\x03smf";
const FAR_AWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 8805);
const THIRD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 102)), 8805);
/// Time for which a testbed waits until a peer counts as silent, in 0.1 s: the heartbeat is due
/// after 10 s and given up after 3 s, and then the alternative addresses are asked.
const UNTIL_LOST: u64 = 161;

/// Returns a setup of a member of a set.
fn member(sequence: u32, name: &[u8], set: &[u8]) -> Vec<u8> {
    request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
        to.put(&NodeId::Name(name));
        to.put(&RecoveryTimeStamp(STARTED));
        to.maybe((!set.is_empty()).then_some(&SmfSetId(set)));
    })
}

/// Returns a setup with alternative addresses; the last one is preferred.
fn with_addresses(sequence: u32, addresses: &[SocketAddr]) -> Vec<u8> {
    request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
        to.put(&NodeId::Name(SMF_NAME));
        to.put(&RecoveryTimeStamp(STARTED));
        for address in addresses {
            let IpAddr::V4(v4) = address.ip() else { panic!("{address}") };
            let is_preferred = Some(address) == addresses.last();
            to.put(&AlternativeSmfIpAddress { v4: Some(v4), v6: None, is_preferred });
        }
    })
}

/// Returns a modification that asks for a report after a second without packets.
fn watched(sequence: u32, seid: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, seid, sequence);
    Writer::new(&mut bytes).message(header, |to| to.put(&UserPlaneInactivityTimer(1)));
    bytes
}

/// A session report request as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SentReport {
    to: SocketAddr,
    seid: u64,
    sequence: u32,
    old: Option<FSeid>,
}

/// Runs the node while the peers at `alive` answer its heartbeats with a recovery time stamp.
/// Returns the session reports, each once.
fn run(world: &mut NodeTestbed, tenths: u64, alive: &[(SocketAddr, u32)]) -> Vec<SentReport> {
    let mut reports: Vec<SentReport> = Vec::new();
    for _ in 0..tenths {
        for (_, sent) in world.pass(1) {
            let message = parse(&sent.bytes);
            let Header { message_type, sequence, seid, .. } = message.header;
            if message_type == MessageType::SESSION_REPORT_REQUEST {
                let old = message.group().find().unwrap();
                let report = SentReport { to: sent.to, seid: seid.unwrap(), sequence, old };
                if !reports.contains(&report) {
                    reports.push(report);
                }
            }
            let found = alive.iter().find(|(address, _)| *address == sent.to);
            if let (MessageType::HEARTBEAT_REQUEST, Some((from, stamp))) = (message_type, found) {
                let stamp = RecoveryTimeStamp(*stamp);
                let answer = MessageType::HEARTBEAT_RESPONSE;
                world.send(*from, &request(answer, sequence, |to| to.put(&stamp)));
            }
        }
    }
    reports
}

/// Runs the node until it sends the next report.
fn next(world: &mut NodeTestbed, alive: &[(SocketAddr, u32)]) -> SentReport {
    for _ in 0..1000 {
        if let [report, ..] = run(world, 1, alive)[..] {
            return report;
        }
    }
    panic!("no report in 100 s");
}

/// Answers a report.
fn answer(
    world: &mut NodeTestbed,
    report: SentReport,
    cause: Cause,
    more: impl FnOnce(&mut Writer<'_>),
) -> Vec<Outgoing> {
    let mut bytes = Vec::new();
    let header = Header::session(MessageType::SESSION_REPORT_RESPONSE, 1, report.sequence);
    Writer::new(&mut bytes).message(header, |to| {
        to.put(&cause);
        more(to);
    });
    world.send(report.to, &bytes)
}

/// Lets a base station send an error indication for the tunnel of a user; returns the report.
fn indicate(world: &mut NodeTestbed, teid: u32) -> SentReport {
    use crate::rules::layout::message::{PathMessage, kind};
    let gnb = Ipv4Addr::new(10, 3, 0, 7);
    let peer = crate::pfcp::associations::association_record::mapped(gnb.into());
    let message = PathMessage { peer, local: [0; 16], teid, sequence: 0, interface: 0, at: 0 };
    let mut out = Outbox::new();
    let body = zerocopy::IntoBytes::as_bytes(&message);
    world.node.lane_message(world.now, kind::ERROR_INDICATION, body, &mut out);
    assert_eq!(out.datagrams.len(), 1);
    let sent = out.datagrams.remove(0);
    let message = parse(&sent.bytes);
    let Header { sequence, seid, .. } = message.header;
    let old = message.group().find().unwrap();
    assert_eq!(message.group().need(), Ok(ReportType::ERIR));
    SentReport { to: sent.to, seid: seid.unwrap(), sequence, old }
}

/// Creates two members of a set, and a session of the first one with SEID 7.
fn set_of_two(more: serde_json::Value) -> (NodeTestbed, u64) {
    let mut world = NodeTestbed::new(more);
    assert_eq!(cause(&world.ask(SMF, &member(1, SMF_NAME, SET))), 1);
    assert_eq!(cause(&world.ask(OTHER, &member(1, OTHER_NAME, b"\x04SET1\x03smf"))), 1);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    (world, seid)
}

#[test]
fn sets_are_announced_as_far_as_they_are_supported() {
    for (settings, mpas) in [(json!({}), false), (json!({ "allow": ["192.0.2.0/24"] }), true)] {
        let mut world = NodeTestbed::new(settings);
        let answer = world.ask(SMF, &setup(1, SMF_NAME, STARTED));
        let features: UpFunctionFeatures = parse(&answer).group().need().unwrap();
        assert!(features.has(UpFunctionFeatures::SSET));
        assert_eq!(features.has(UpFunctionFeatures::MPAS), mpas);
        // Octet 7, bit 4, and octet 8, bit 1 (clause 8.2.25).
        let raw = parse(&answer).group().raw(IeType::UP_FUNCTION_FEATURES).unwrap();
        assert_eq!((raw[2] & 8, raw[3] & 1), (8, u8::from(mpas)));
    }
}

#[test]
fn reports_of_a_silent_smf_go_to_another_member_of_its_set_which_takes_the_session_over() {
    let (mut world, seid) = set_of_two(json!({ "allow": ["192.0.2.0/24"] }));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    // The SMF of the session is asked N1 times, and then the other one.
    let reports = run(&mut world, 45, &[(OTHER, STARTED)]);
    let old = control(7, 100);
    let sequence = reports[0].sequence;
    let first = SentReport { to: SMF, seid: 7, sequence, old: None };
    let second = SentReport { to: OTHER, seid: 0, sequence, old: Some(old) };
    assert_eq!(reports, [first, second]);
    // A further report goes there at once.
    let detour = indicate(&mut world, 1);
    assert_eq!((detour.to, detour.seid, detour.old), (OTHER, 0, Some(old)));
    // The other one takes the session over.
    let stored = world.node.sessions().find(seid).unwrap();
    assert!(
        answer(&mut world, second, Cause::REQUEST_ACCEPTED, |to| {
            to.put(&FSeid { seid: 99, ..control(99, 101) });
            to.put(&NodeId::Name(OTHER_NAME));
        })
        .is_empty()
    );
    let after = world.node.sessions().find(seid).unwrap();
    assert_eq!((stored.peer, after.peer), (0, 1));
    assert_eq!((after.cp_fseid.seid, after.cp_fseid.address), (99, OTHER.ip()));
    assert_eq!((world.node.sessions_of(0), world.node.sessions_of(1)), (0, 1));
    assert_eq!(world.count(), 1);
    answer(&mut world, detour, Cause::REQUEST_ACCEPTED, |_| {});
    let direct = indicate(&mut world, 1);
    assert_eq!((direct.to, direct.seid, direct.old), (OTHER, 99, None));
    assert_eq!(world.node.reports().redirected, 2);
    // The first one ends; the session is no longer its own.
    run(&mut world, UNTIL_LOST, &[(OTHER, STARTED)]);
    let release = of_node(MessageType::ASSOCIATION_RELEASE_REQUEST, 9, SMF_NAME);
    world.ask(SMF, &release);
    assert_eq!(world.count(), 1);
    assert_eq!(cause(&world.ask(OTHER, &deletion(10, seid))), 1);
}

#[test]
fn a_member_takes_a_session_over_by_a_modification_and_pending_reports_follow_it() {
    let (mut world, seid) = set_of_two(json!({ "allow": ["192.0.2.0/24"] }));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    let reports = run(&mut world, 12, &[]);
    assert_eq!((reports.len(), reports[0].to), (1, SMF));
    let mut takeover = Vec::new();
    let header = Header::session(MessageType::SESSION_MODIFICATION_REQUEST, seid, 4);
    Writer::new(&mut takeover).message(header, |to| {
        to.put(&control(99, 101));
        to.put(&NodeId::Name(OTHER_NAME));
    });
    let sent = world.send(OTHER, &takeover);
    let response = sent.iter().find(|it| parse(&it.bytes).header.message_type.is_response());
    let response = &response.unwrap().bytes;
    assert_eq!((cause(response), parse(response).header.seid), (1, Some(99)));
    let report = sent.iter().find(|it| type_of(&it.bytes) == MessageType::SESSION_REPORT_REQUEST);
    let report = report.expect("the pending report, at once");
    let header = parse(&report.bytes).header;
    assert_eq!((report.to, header.seid, header.sequence), (OTHER, Some(99), reports[0].sequence));
    assert_eq!(run(&mut world, 25, &[]).iter().filter(|it| it.to == SMF).count(), 0);
    assert_eq!(world.node.sessions_of(1), 1);
}

#[test]
fn the_sessions_of_a_silent_member_stay_while_another_one_answers() {
    let (mut world, seid) = set_of_two(json!({ "allow": ["192.0.2.0/24"] }));
    run(&mut world, UNTIL_LOST, &[(OTHER, STARTED)]);
    let is_up = |world: &NodeTestbed, index: u16| {
        let mut all = world.node.associations();
        all.find(|it| it.peer.index == index).map(|it| it.peer.is_up)
    };
    assert_eq!((is_up(&world, 0), is_up(&world, 1)), (Some(false), Some(true)));
    assert!(world.node.sessions().find(seid).is_some());
    // Reports do not wait for the silent one.
    assert_eq!(indicate(&mut world, 1).to, OTHER);
    world.kill();
    run(&mut world, 1000, &[(OTHER, STARTED)]);
    assert!(world.node.sessions().find(seid).is_some());
    // The SMF comes back, after a restart: its set has kept its sessions.
    run(&mut world, 110, &[(SMF, STARTED + 1), (OTHER, STARTED)]);
    assert_eq!(is_up(&world, 0), Some(true));
    assert!(world.node.sessions().find(seid).is_some());
    assert_eq!(indicate(&mut world, 1).to, SMF, "it is asked again");
    // When all are silent, the sessions end.
    run(&mut world, 2 * UNTIL_LOST, &[]);
    assert_eq!((world.count(), world.node.associations().count()), (0, 0));
}

#[test]
fn the_sessions_of_a_set_end_a_time_after_its_last_member() {
    let settings = json!({ "allow": ["192.0.2.0/24"], "keep-sessions-s": 30 });
    let (mut world, seid) = set_of_two(settings);
    run(&mut world, 1000, &[(OTHER, STARTED)]);
    run(&mut world, 135, &[]);
    assert!(world.node.associations().all(|it| !it.peer.is_up));
    assert!(world.node.sessions().find(seid).is_some());
    run(&mut world, 290, &[]);
    assert!(world.node.sessions().find(seid).is_some(), "30 s have not passed");
    run(&mut world, 40, &[]);
    assert_eq!((world.count(), world.node.associations().count()), (0, 0));
}

#[test]
fn where_everybody_may_associate_a_set_protects_no_session_and_gets_no_report() {
    let (mut world, seid) = set_of_two(json!({}));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    let reports = run(&mut world, 60, &[(OTHER, STARTED)]);
    assert!(reports.iter().all(|it| it.to == SMF), "{reports:?}");
    run(&mut world, UNTIL_LOST, &[(OTHER, STARTED)]);
    assert_eq!(world.count(), 0);
}

#[test]
fn a_silent_smf_is_sought_at_its_alternative_addresses() {
    let mut world = NodeTestbed::new(json!({}));
    assert_eq!(cause(&world.ask(SMF, &with_addresses(1, &[THIRD, OTHER]))), 1);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    // Another SMF with its own time stamp answers there.
    run(&mut world, UNTIL_LOST, &[(OTHER, STARTED + 500)]);
    let address = |world: &NodeTestbed| {
        let all: Vec<_> = world.node.associations().collect();
        assert_eq!(all.len(), 1);
        assert!(all[0].peer.is_up);
        (all[0].peer.address, all[0].peer.recovery)
    };
    assert_eq!(address(&world), (OTHER, STARTED + 500));
    assert!(world.node.sessions().find(seid).is_some());
    assert_eq!(world.node.statistics().associations_lost, 0);
    // It goes on there, and reports go there at once, also those of a successor at last.
    assert_eq!(indicate(&mut world, 1).to, OTHER);
    run(&mut world, 300, &[(OTHER, STARTED + 500)]);
    world.kill();
    run(&mut world, 300, &[(OTHER, STARTED + 500)]);
    assert_eq!(address(&world), (OTHER, STARTED + 500));
    // The address before is now an alternative one.
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    run(&mut world, UNTIL_LOST, &[(SMF, STARTED)]);
    assert_eq!(address(&world), (SMF, STARTED));
    assert!(world.node.sessions().find(seid).is_some());
    // All of them are silent.
    run(&mut world, UNTIL_LOST, &[]);
    assert_eq!((world.count(), world.node.associations().count()), (0, 0));
    assert_eq!(world.node.statistics().associations_lost, 1);
}

#[test]
fn reports_try_the_alternative_addresses_the_preferred_one_first_and_then_start_again() {
    let mut world = NodeTestbed::new(json!({ "heartbeat-s": 3600 }));
    assert_eq!(cause(&world.ask(SMF, &with_addresses(1, &[THIRD, OTHER]))), 1);
    let seid = seid_of(&world.ask(SMF, &establishment(2, SMF_NAME, control(7, 100), 1)));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    let reports = run(&mut world, 110, &[]);
    let to: Vec<_> = reports.iter().map(|it| it.to).collect();
    assert_eq!(to, [SMF, OTHER, THIRD]);
    assert!(reports.iter().all(|it| it.sequence == reports[0].sequence));
    // Nobody answers: later it begins with the CP F-SEID.
    assert_eq!(next(&mut world, &[]).to, SMF);
    let second = next(&mut world, &[]);
    assert_eq!((second.to, world.node.waiting()), (OTHER, 1));
    answer(&mut world, second, Cause::REQUEST_ACCEPTED, |_| {});
    assert_eq!(world.node.waiting(), 0);
    let detour = indicate(&mut world, 1);
    assert_eq!(detour.to, OTHER);
    answer(&mut world, detour, Cause::REQUEST_ACCEPTED, |_| {});
    // The SMF is heard: later reports go to it.
    world.ask(SMF, &heartbeat(9, STARTED));
    assert_eq!(indicate(&mut world, 1).to, SMF);
}

#[test]
fn a_member_that_does_not_know_the_session_does_not_end_it() {
    let (mut world, seid) = set_of_two(json!({ "allow": ["192.0.2.0/24"] }));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    let reports = run(&mut world, 45, &[(OTHER, STARTED)]);
    answer(&mut world, reports[1], Cause::SESSION_CONTEXT_NOT_FOUND, |_| {});
    assert!(world.node.sessions().find(seid).is_some());
    let again = next(&mut world, &[(SMF, STARTED), (OTHER, STARTED)]);
    assert_eq!(again.to, SMF);
    answer(&mut world, again, Cause::SESSION_CONTEXT_NOT_FOUND, |_| {});
    assert_eq!(world.count(), 0, "its own SMF does");
}

#[test]
fn an_smf_redirects_a_report_once_to_an_address_that_may_be_one_of_an_smf() {
    let (mut world, seid) = set_of_two(json!({ "allow": ["192.0.2.0/24"] }));
    assert_eq!(cause(&world.ask(SMF, &watched(3, seid))), 1);
    let reports = run(&mut world, 12, &[]);
    let redirection = |address: SocketAddr| {
        let IpAddr::V4(v4) = address.ip() else { panic!("{address}") };
        move |to: &mut Writer<'_>| {
            to.put(&AlternativeSmfIpAddress { v4: Some(v4), ..Default::default() });
        }
    };
    let cause = Cause::REDIRECTION_REQUESTED;
    assert!(answer(&mut world, reports[0], cause, redirection(FAR_AWAY)).is_empty());
    let again = next(&mut world, &[(SMF, STARTED), (OTHER, STARTED)]);
    assert_eq!((again.to, again.sequence), (SMF, reports[0].sequence), "it is not acknowledged");
    let sent = answer(&mut world, again, cause, redirection(OTHER));
    assert_eq!(sent.iter().map(|it| it.to).collect::<Vec<_>>(), [OTHER]);
    let second = SentReport { to: OTHER, seid: 0, old: Some(control(7, 100)), ..again };
    let header = parse(&sent[0].bytes).header;
    assert_eq!((header.seid, header.sequence), (Some(0), second.sequence));
    assert!(answer(&mut world, second, cause, redirection(SMF)).is_empty(), "no circle");
    assert!(world.node.sessions().find(seid).is_some());
}
