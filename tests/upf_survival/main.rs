//! Robustness of the UPF: slow and fast path are killed, rules change under traffic, identifiers
//! are reused. Each packet carries a stamp, so packets and octets sent equal those received and
//! dropped exactly.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

mod drain;
mod story;
mod ue_to_ue;

use fastlane_pfcp::{Cause, Message};
use fastlane_tests::eventually;
use fastlane_tests::upf::messages::{self, RuleVersion, SessionRequest};
use fastlane_tests::upf::{
    Arrival, Driver, MAX_IN_PROCESS, NEIGHBOURS, Session, Smf, Traffic, Upf, UpfLab, accepted,
    longest_gap,
};
use serde_json::json;
use story::{
    FIRST_GNB_TEID, RATE, assert_usage_exact, establish_sessions, is_soak, lost, new_drops,
    session_request, version, with_traffic,
};

/// Kills the slow path in every other part of the traffic. The parts without a kill are the control
/// run.
fn slow_path_killed(lab: &UpfLab, mut upf: Upf, kills: usize) {
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, 20);
    let mut traffic = lab.traffic();
    let before = lab.dropped(&upf);
    let mut all = [Vec::new(), Vec::new()];
    let (mut log, mut is_good) = (Vec::new(), false);
    let mut sum = 0;
    // Load from other programs may lose packets in any part, so there are three attempts.
    for _ in 0..3 {
        let mut losses = [0, 0];
        for part in 0..2 * kills {
            let offered = traffic.offered;
            let is_killed = part % 2 == 0;
            let heartbeats = smf.inbox.heartbeats;
            let ((), arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 1500, |_| {
                if is_killed {
                    lab.kill_slow_path(&mut upf);
                }
            });
            let offered = [0, 1].map(|direction| traffic.offered[direction] - offered[direction]);
            losses[part % 2] += lost(offered, &arrivals);
            all.iter_mut().zip(arrivals).for_each(|(all, arrivals)| all.extend(arrivals));
            eventually("the UPF sends a heartbeat", || {
                smf.poll();
                smf.inbox.heartbeats > heartbeats
            });
        }
        sum += losses[0] + losses[1];
        log.push(format!(
            "{kills} parts with a kill: {} lost, as many without: {}",
            losses[0], losses[1]
        ));
        is_good = losses[0] <= losses[1];
        if is_good {
            break;
        }
    }
    eprintln!("{log:?}; {} reports", smf.inbox.usage.len());
    assert!(is_good, "{log:?}");
    assert_eq!(new_drops(lab, &upf, &before), sum, "each lost packet is counted under a reason");
    assert_eq!(smf.inbox.stamps.len(), 1, "the recovery time stamp has changed");
    assert!(smf.inbox.usage.len() > sessions.len(), "usage reports under traffic");
    sessions.iter().for_each(|session| smf.delete(session));
    if sum == 0 {
        assert_usage_exact(&smf, &sessions, &all);
    }
    upf.stop();
}

#[test]
fn a_killed_slow_path_loses_no_packet_and_no_octet() {
    let Some(lab) = UpfLab::new("survival-hand", Driver::AfPacket) else { return };
    let upf = lab.start_unsupervised(lab.configuration(64, &[]));
    slow_path_killed(&lab, upf, if is_soak() { 100 } else { 3 });
}

#[test]
fn a_slow_path_restarted_by_the_supervisor_loses_no_packet_and_no_octet() {
    let Some(lab) = UpfLab::new("survival-supervised", Driver::AfXdp) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    slow_path_killed(&lab, upf, if is_soak() { 50 } else { 2 });
}

/// Sends a request, kills the slow path `after` that, and retransmits until the next slow path
/// responds. One more retransmission checks that the response is repeated.
fn request_with_kill(
    lab: &UpfLab,
    upf: &mut Upf,
    smf: &mut Smf,
    datagram: &[u8],
    after: Duration,
) -> Vec<u8> {
    smf.send(datagram);
    thread::sleep(after);
    lab.kill_slow_path(upf);
    // A response of the killed process has already arrived.
    (0..3).for_each(|_| smf.poll());
    let sequence = Message::parse(datagram).expect("PFCP").0.header.sequence;
    let early = smf.inbox.responses.contains_key(&sequence);
    let response = smf.request(datagram);
    // The SMF compares each repeated response with the first one.
    for _ in 0..1 + usize::from(early) {
        let before = smf.inbox.repeated;
        eventually("the response is repeated", || {
            smf.send(datagram);
            (0..20).for_each(|_| smf.poll());
            smf.inbox.repeated > before
        });
    }
    response
}

#[test]
fn a_request_is_executed_once_although_the_slow_path_is_killed_at_any_moment() {
    let Some(lab) = UpfLab::new("survival-once", Driver::AfPacket) else { return };
    let kills: u32 = if is_soak() { 200 } else { 10 };
    // A request that was executed twice would exceed the limit of sessions.
    let mut upf = lab.start_unsupervised(lab.configuration(kills, &[]));
    let mut smf = lab.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let mut traffic = lab.traffic();
    // From before the request is read to after the response is sent.
    let moment = |number: u32| Duration::from_micros(4000) * (number % 32) / kills.min(32);
    let mut sessions = Vec::new();
    for number in 1..=kills {
        let request = session_request(number);
        let datagram = messages::establish(smf.next_sequence(), &request);
        let response = request_with_kill(&lab, &mut upf, &mut smf, &datagram, moment(number));
        sessions.push(smf.record_establishment(&request, &response));
    }
    let refused = smf.next_sequence();
    let refused = smf.request(&messages::establish(refused, &session_request(kills + 1)));
    let cause = Message::parse(&refused).expect("PFCP").0.group().need::<Cause>();
    assert_eq!(cause, Ok(Cause::NO_RESOURCES_AVAILABLE), "one session for each request");
    let mut all = [Vec::new(), Vec::new()];
    for number in 1..=kills {
        let session = sessions[number as usize - 1];
        let (response, arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 300, |smf| {
            let datagram = messages::query(smf.next_sequence(), session.up_seid);
            request_with_kill(&lab, &mut upf, smf, &datagram, moment(number))
        });
        smf.record_modification(&session, &response);
        all.iter_mut().zip(arrivals).for_each(|(all, arrivals)| all.extend(arrivals));
    }
    assert_eq!(lost(traffic.offered, &all), 0, "{:?}", lab.dropped(&upf));
    for (number, session) in (1..).zip(&sessions) {
        let datagram = messages::delete(smf.next_sequence(), session.up_seid);
        let response = request_with_kill(&lab, &mut upf, &mut smf, &datagram, moment(number));
        smf.record_deletion(session, &response);
    }
    assert_usage_exact(&smf, &sessions, &all);
    for session in &sessions {
        let datagram = messages::delete(smf.next_sequence(), session.up_seid);
        let response = smf.request(&datagram);
        let cause = Message::parse(&response).expect("PFCP").0.group().need::<Cause>();
        assert_eq!(cause, Ok(Cause::SESSION_CONTEXT_NOT_FOUND), "the session is deleted");
    }
    assert_eq!(smf.heartbeat(), stamp);
    eprintln!("{} kills, {} repeated responses", 3 * kills, smf.inbox.repeated);
    upf.stop();
}

/// Kills the fast path under traffic. Returns the lost packets and the longest gap.
fn fast_path_killed(lab: &UpfLab, upf: &Upf) -> (u64, Duration) {
    let mut smf = lab.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let sessions = establish_sessions(&mut smf, 10);
    let mut traffic = lab.traffic();
    upf.wait_for("holding ");
    let offered = traffic.offered;
    // The traffic outlasts the restart, also on a loaded machine.
    let ((), arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 9000, |_| {
        upf.kill("fast");
    });
    let offered = [0, 1].map(|direction| traffic.offered[direction] - offered[direction]);
    assert_eq!(smf.heartbeat(), stamp, "tables and Recovery Time Stamp survive");
    let counts = [0, 1].map(|direction| arrivals[direction].len());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?} arrivals, {:?}", lab.dropped(upf));
    // The sessions still forward and can be deleted.
    let ((), later) = with_traffic(&mut smf, &mut traffic, &sessions, 200, |_| ());
    assert_eq!(
        [0, 1].map(|direction| later[direction].len()),
        [200, 200],
        "{:?}",
        lab.dropped(upf)
    );
    sessions.iter().for_each(|session| smf.delete(session));
    let arrived = |direction: usize| octets_of(&arrivals[direction]) + octets_of(&later[direction]);
    for direction in [0, 1] {
        let reported: u64 = sessions.iter().map(|session| smf.usage(session)[direction]).sum();
        // The URR may have counted packets that were lost afterwards.
        assert!(
            reported >= arrived(direction),
            "{reported} reported, {} arrived",
            arrived(direction)
        );
        let most =
            arrived(direction) + (offered[direction] - arrivals[direction].len() as u64) * 200;
        assert!(reported <= most, "{reported} reported, {most} offered");
    }
    let outage = arrivals.iter().map(|arrivals| longest_gap(arrivals)).max().unwrap_or_default();
    (lost(offered, &arrivals), outage)
}

fn octets_of(arrivals: &[Arrival]) -> u64 {
    arrivals.iter().map(|(_, packet)| packet.octets).sum()
}

#[test]
fn a_fast_path_that_inherits_sockets_loses_only_packets_in_process() {
    let Some(lab) = UpfLab::new("survival-sockets", Driver::AfXdp) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let (lost, outage) = fast_path_killed(&lab, &upf);
    eprintln!("AF_XDP: {lost} lost, nothing for {} ms", outage.as_millis());
    assert!(upf.log().contains("on AF_XDP are taken over"), "{}", upf.log());
    assert!(lost <= MAX_IN_PROCESS, "{lost} lost, nothing for {} ms", outage.as_millis());
    upf.stop();
}

#[test]
fn a_fast_path_without_inherited_sockets_has_an_outage_and_keeps_its_sessions() {
    for driver in [Driver::Tap, Driver::AfPacket] {
        let Some(lab) = UpfLab::new("survival-outage", driver) else { return };
        let upf = lab.start_supervised(lab.configuration(64, &[]));
        let (lost, outage) = fast_path_killed(&lab, &upf);
        eprintln!("{driver:?}: {lost} lost, nothing for {} ms", outage.as_millis());
        // Only the outage loses packets; a loaded machine makes it longer.
        let most = 2 * outage.as_millis() as u64 * u64::from(RATE) / 1000 + 2 * MAX_IN_PROCESS;
        assert!(lost <= most, "{lost} lost in {} ms", outage.as_millis());
        upf.stop();
    }
}

#[test]
fn packets_buffered_by_a_killed_fast_path_are_counted_as_lost() {
    let Some(lab) = UpfLab::new("survival-held", Driver::AfXdp) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let mut smf = lab.smf();
    smf.associate();
    let buffering =
        |number: u32| RuleVersion { is_open: true, is_buffering: true, ..version(number) };
    let sessions = [1, 2, 3].map(|number| {
        smf.establish(&SessionRequest { version: buffering(number), ..session_request(number) })
    });
    let mut traffic = lab.traffic();
    upf.wait_for("holding ");
    let send = |traffic: &mut Traffic, each: usize| {
        for session in sessions.iter().cycle().take(3 * each) {
            traffic.send_downlink(session);
        }
    };
    send(&mut traffic, 7);
    eventually("all packets are buffered", || lab.packet_count("held") == 21);
    assert_eq!(lab.packet_count("hold_lost"), 0);
    upf.kill("fast");
    eventually("they are counted as lost", || {
        lab.get("/metrics").contains("upf_packets_total{cause=\"hold_lost\"} 21\n")
    });
    assert_eq!(traffic.collect().map(|arrivals| arrivals.len()), [0, 0]);
    // Packets buffered from now on are not lost.
    send(&mut traffic, 3);
    eventually("these packets are buffered, too", || lab.packet_count("held") == 30);
    for (number, session) in (1..).zip(&sessions) {
        let open = RuleVersion { is_open: true, ..version(number) };
        let datagram = messages::modify(smf.next_sequence(), session.up_seid, &open);
        accepted(&smf.request(&datagram));
    }
    assert_eq!(traffic.collect().map(|arrivals| arrivals.len()), [0, 9], "{:?}", lab.dropped(&upf));
    assert_eq!(lab.packet_count("hold_lost"), 21);
    sessions.iter().for_each(|session| smf.delete(session));
    upf.stop();
}

#[test]
fn the_recovery_time_stamp_changes_if_both_processes_are_killed() {
    let Some(lab) = UpfLab::new("survival-both", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let mut smf = lab.smf();
    smf.associate();
    let stamp = smf.heartbeat();
    let before = establish_sessions(&mut smf, 5);
    let mut traffic = lab.traffic();
    // The slow path holds the tables of the fast path, so it is killed first.
    upf.kill_both();
    let next = smf.heartbeat();
    assert!(next > stamp, "the sessions are lost: {stamp} {next}");
    lab.add_neighbours();
    before.iter().for_each(|session| {
        traffic.send_uplink(session);
        traffic.send_downlink(session);
    });
    assert_eq!(
        traffic.collect().map(|arrivals| arrivals.len()),
        [0, 0],
        "packets of lost sessions"
    );
    let dropped = lab.dropped(&upf);
    let of = |name: &str| dropped.get(name).copied().unwrap_or(0);
    assert_eq!([of("unknown_tunnel"), of("unknown_user")], [5, 5], "{dropped:?}");
    smf.associate();
    let after = establish_sessions(&mut smf, 5);
    let (_, arrivals) = with_traffic(&mut smf, &mut traffic, &after, 100, |_| ());
    assert_eq!(arrivals.map(|arrivals| arrivals.len()), [100, 100]);
    after.iter().for_each(|session| smf.delete(session));
    upf.stop();
}

#[test]
fn no_packet_sees_a_part_of_a_modification() {
    let Some(lab) = UpfLab::new("survival-flips", Driver::AfPacket) else { return };
    let mut upf = lab.start_unsupervised(lab.configuration(64, &[]));
    let mut smf = lab.smf();
    smf.associate();
    // The rules of session 1 fit one cache line; those of session 2 need a block.
    let sessions = [1, 2].map(|number| {
        smf.establish(&SessionRequest { version: version(1), ..session_request(number) })
    });
    let mut traffic = lab.traffic();
    let in_force = traffic.version.clone();
    in_force.store(1, Ordering::SeqCst);
    let before = lab.dropped(&upf);
    let each = if is_soak() { 60_000 } else { 4500 };
    let (over, is_enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let changes = thread::scope(|scope| {
        let pace = scope.spawn(|| {
            // On a loaded machine the rules change slowly.
            let mut sent = 0;
            let goes_on = || {
                sent += 1;
                sent <= each || !is_enough.load(Ordering::SeqCst)
            };
            traffic.send_paced(&sessions, 50 * each, RATE, goes_on);
            over.store(true, Ordering::SeqCst);
        });
        let mut number = 1;
        while !over.load(Ordering::SeqCst) {
            number += 1;
            for session in &sessions {
                let datagram =
                    messages::modify(smf.next_sequence(), session.up_seid, &version(number));
                smf.send(&datagram);
                if number == 40 {
                    lab.kill_slow_path(&mut upf);
                }
                let response = smf.request(&datagram);
                accepted(&response);
            }
            in_force.store(number, Ordering::SeqCst);
            is_enough.store(number > 80, Ordering::SeqCst);
        }
        pace.join().expect("the thread does not panic");
        number
    });
    let arrivals = traffic.collect();
    let mut seen_versions = BTreeSet::new();
    for (_, packet) in &arrivals[1] {
        let outer = packet.outer.expect("a tunnel");
        let number = outer.teid - FIRST_GNB_TEID;
        let of = version(number);
        assert!(of.is_open, "{packet:?} has passed a closed gate");
        let parts = (outer.peer, outer.tos, outer.qfi);
        assert_eq!(parts, (of.peer, of.tos, Some(of.qfi)), "version {number}: {packet:?}");
        let hop = NEIGHBOURS.iter().find(|hop| hop.1 == of.peer.to_string()).expect("a hop");
        assert_eq!(outer.mac, fastlane_tests::mac(hop.2));
        assert!(number >= packet.stamp.version, "version {number} was replaced: {packet:?}");
        seen_versions.insert(number);
    }
    let dropped = lab.dropped(&upf);
    eprintln!("{changes} versions, {} of them packet, {dropped:?}", seen_versions.len());
    assert!(changes > 40 && seen_versions.len() > 10, "{changes} {}", seen_versions.len());
    assert!(dropped.keys().eq(["gate_closed"]), "{dropped:?}");
    assert_eq!(new_drops(&lab, &upf, &before), lost(traffic.offered, &arrivals));
    upf.stop();
}

#[test]
fn no_packet_of_a_deleted_session_reaches_another_ue() {
    let Some(lab) = UpfLab::new("survival-reuse", Driver::AfPacket) else { return };
    // A small pool: slots and addresses are reused several times, each after a quarantine of
    // N1 x T1 and 2 s.
    let timers = json!({"addresses": ["10.40.0.1"], "t1-ms": 300, "n1": 2, "keep-sessions-s": 60,
                        "release-s": 0});
    let changes = [
        ("n4", timers),
        ("pools", json!([{"network-instance": "internet", "prefix": "10.45.0.0/27"}])),
    ];
    let mut upf = lab.start_unsupervised(lab.configuration(64, &changes));
    let mut smf = lab.smf();
    smf.associate();
    let mut traffic = lab.traffic();
    let count = if is_soak() { 2000 } else { 160 };
    let mut live: Vec<Session> = Vec::new();
    let mut deleted = VecDeque::new();
    let mut all = Vec::new();
    for number in 1..=count {
        let mut request = session_request(number);
        request.version.is_buffering = number.is_multiple_of(4);
        // No lane may still have packets from before an address is reused.
        if let Some(session) = live.iter().find(|it| it.cp_seid % 4 != 0) {
            traffic.flush_downlink(session);
        }
        let session = smf.establish_when_possible(&request);
        // On a loaded machine an address has rested before the next sessions are there.
        deleted.retain(|other: &Session| other.ue != session.ue);
        assert!(live.iter().all(|other| other.ue != session.ue), "two UEs with one address");
        assert!(
            live.iter().all(|other| other.uplink_teid != session.uplink_teid),
            "two UEs with one tunnel"
        );
        live.push(session);
        all.push(session);
        if number % (count / 4) == 8 {
            lab.kill_slow_path(&mut upf);
        }
        if live.len() > 6 {
            let session = live.remove(0);
            (0..5).for_each(|_| traffic.send_downlink(&session));
            smf.delete(&session);
            deleted.push_front(session);
            deleted.truncate(3);
        }
        // Packets of established and of deleted sessions.
        for session in live.iter().chain(&deleted) {
            traffic.send_uplink(session);
            traffic.send_downlink(session);
        }
    }
    let arrivals = traffic.collect();
    live.iter().for_each(|session| smf.delete(session));
    for (_, packet) in arrivals.iter().flatten() {
        assert_eq!(packet.ue, all[packet.stamp.session as usize - 1].ue, "{packet:?}");
        let tunnel = packet.outer.map(|outer| u64::from(outer.teid - FIRST_GNB_TEID));
        assert!(tunnel.is_none_or(|it| it == packet.stamp.session), "{packet:?}");
    }
    let [ues, tunnels] = [
        all.iter().map(|it| u32::from(it.ue)).collect::<BTreeSet<_>>(),
        all.iter().map(|it| it.uplink_teid).collect(),
    ];
    eprintln!("{} addresses and {} tunnels for {} sessions", ues.len(), tunnels.len(), all.len());
    assert!(ues.len() < all.len(), "addresses are reused");
    // No session has counted a packet of another one.
    assert_usage_exact(&smf, &all, &arrivals);
    upf.stop();
}
