//! A UPF that is taken out of service under traffic: the SMF is asked to release its association,
//! moves its sessions one by one, and no packet of theirs is lost.

use std::thread;
use std::time::{Duration, Instant};

use fastlane_pfcp::Cause;
use fastlane_tests::eventually;
use fastlane_tests::upf::{Driver, Session, Smf, Traffic, Upf, UpfLab};
use serde_json::{Value, json};

use crate::story::{
    assert_usage_exact, establish_sessions, lost, new_drops, session_request, with_traffic,
};

const SESSIONS: u32 = 6;

/// Returns a configuration with this release period.
fn configuration(lab: &UpfLab, release_s: u32) -> Value {
    let n4 = json!({"addresses": ["10.40.0.1"], "t1-ms": 3000, "n1": 5, "heartbeat-s": 1,
                    "release-s": release_s});
    lab.configuration(64, &[("n4", n4)])
}

/// Returns the value of a metric.
fn metric(lab: &UpfLab, name: &str) -> f64 {
    let start = format!("{name} ");
    let metrics = lab.get("/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok());
    value.expect("the metrics have it")
}

/// Asserts that new sessions are refused.
#[track_caller]
fn assert_refusing(smf: &mut Smf) {
    let cause = smf.try_establish(&session_request(SESSIONS + 1));
    assert_eq!(cause, Cause::NO_RESOURCES_AVAILABLE);
}

/// Sends `each` packets in both directions, which must all arrive.
#[track_caller]
fn assert_serving(lab: &UpfLab, upf: &Upf, smf: &mut Smf, traffic: &mut Traffic, of: &[Session]) {
    const EACH: u64 = 60;
    let before = lab.dropped(upf);
    let ((), arrivals) = with_traffic(smf, traffic, of, EACH, |_| ());
    let counts = arrivals.map(|arrivals| arrivals.len() as u64);
    assert_eq!(counts, [EACH, EACH], "{} dropped", new_drops(lab, upf, &before));
}

/// Deletes the sessions one by one; those that are left are served. Then releases the association.
#[track_caller]
fn move_sessions(
    lab: &UpfLab,
    upf: &mut Upf,
    smf: &mut Smf,
    traffic: &mut Traffic,
    mut sessions: &[Session],
) {
    while let [first, rest @ ..] = sessions {
        assert_serving(lab, upf, smf, traffic, sessions);
        smf.delete(first);
        sessions = rest;
    }
    assert!(upf.is_running(), "the association is left");
    smf.release();
}

#[test]
fn sigterm_lets_the_smf_move_its_sessions_and_no_packet_is_lost() {
    for driver in [Driver::AfXdp, Driver::AfPacket] {
        let Some(lab) = UpfLab::new("drain-sigterm", driver) else { return };
        let mut upf = lab.start_supervised(configuration(&lab, 60));
        let mut smf = lab.smf();
        smf.associate();
        let sessions = establish_sessions(&mut smf, SESSIONS);
        let mut traffic = lab.traffic();
        let ((), arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 1500, |smf| {
            upf.terminate();
            assert_eq!(smf.wait_for_release_request(1), Some(60));
            assert_refusing(smf);
        });
        assert_eq!(lost(traffic.offered, &arrivals), 0, "{:?}", lab.dropped(&upf));
        assert_eq!(metric(&lab, "upf_draining"), 1.0);
        let left = metric(&lab, "upf_drain_period_left_seconds");
        assert!(left > 0.0 && left < 60.0, "{left}");
        let (status, text) = lab.upf_command(&["undrain"]);
        assert_eq!(status, Some(1), "the end cannot be taken back: {text}");
        move_sessions(&lab, &mut upf, &mut smf, &mut traffic, &sessions);
        let ended = upf.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(ended.stderr.contains("ending without associations"), "{}", ended.stderr);
        assert_eq!(smf.inbox.release_requests.len(), 1);
    }
}

#[test]
fn octets_of_sessions_that_are_moved_are_all_reported() {
    let Some(lab) = UpfLab::new("drain-usage", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(configuration(&lab, 60));
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, SESSIONS);
    let mut traffic = lab.traffic();
    let ((), arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 600, |_| upf.terminate());
    smf.wait_for_release_request(1);
    sessions.iter().for_each(|session| smf.delete(session));
    smf.release();
    assert_eq!(upf.wait().status.code(), Some(0));
    assert_eq!(lost(traffic.offered, &arrivals), 0);
    assert_usage_exact(&smf, &sessions, &arrivals);
}

#[test]
fn a_slow_path_killed_in_the_drain_has_a_successor_that_goes_on() {
    let Some(lab) = UpfLab::new("drain-killed", Driver::AfPacket) else { return };
    let mut upf = lab.start_supervised(configuration(&lab, 60));
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, SESSIONS);
    let mut traffic = lab.traffic();
    upf.terminate();
    assert_eq!(smf.wait_for_release_request(1), Some(60));
    let ((), arrivals) = with_traffic(&mut smf, &mut traffic, &sessions, 1500, |smf| {
        lab.kill_slow_path(&mut upf);
        let rest = smf.wait_for_release_request(2).expect("a period");
        assert!((30..=60).contains(&rest), "{rest}");
        assert_refusing(smf);
    });
    assert_eq!(lost(traffic.offered, &arrivals), 0, "{:?}", lab.dropped(&upf));
    move_sessions(&lab, &mut upf, &mut smf, &mut traffic, &sessions);
    let ended = upf.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn a_successor_without_a_supervisor_goes_on_from_the_record() {
    let Some(lab) = UpfLab::new("drain-alone", Driver::AfPacket) else { return };
    let mut upf = lab.start_unsupervised(configuration(&lab, 60));
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, 2);
    let mut traffic = lab.traffic();
    upf.terminate();
    assert_eq!(smf.wait_for_release_request(1), Some(60));
    lab.kill_slow_path(&mut upf);
    let rest = smf.wait_for_release_request(2).expect("a period");
    assert!((30..=60).contains(&rest), "{rest}");
    assert_refusing(&mut smf);
    move_sessions(&lab, &mut upf, &mut smf, &mut traffic, &sessions);
    let ended = upf.wait_for_slow_path();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(upf.is_running(), "the fast path goes on");
    upf.stop();
}

#[test]
fn the_process_ends_when_the_period_is_over_and_serves_until_then() {
    let Some(lab) = UpfLab::new("drain-period", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(configuration(&lab, 6));
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, SESSIONS);
    let mut traffic = lab.traffic();
    let begin = Instant::now();
    upf.terminate();
    assert_eq!(smf.wait_for_release_request(1), Some(6));
    let waiting = thread::spawn(move || (upf.wait(), Instant::now()));
    while begin.elapsed() < Duration::from_secs(4) {
        sessions.iter().for_each(|session| {
            traffic.send_uplink(session);
            traffic.send_downlink(session);
        });
        smf.poll();
    }
    let served = traffic.collect().map(|arrivals| arrivals.len() as u64);
    assert_eq!(served, traffic.offered, "packets before the end of the period");
    eventually("the process ends", || {
        smf.poll();
        waiting.is_finished()
    });
    let (ended, at) = waiting.join().expect("the thread does not panic");
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let words = format!("ending with {SESSIONS} sessions of 1 associations");
    assert!(ended.stderr.contains(&words), "{}", ended.stderr);
    assert!(at - begin >= Duration::from_secs(6), "{:?}", at - begin);
}

#[test]
fn a_second_sigterm_ends_a_drain_at_once() {
    let Some(lab) = UpfLab::new("drain-twice", Driver::AfPacket) else { return };
    let mut upf = lab.start_supervised(configuration(&lab, 3600));
    let mut smf = lab.smf();
    smf.associate();
    let _ = establish_sessions(&mut smf, 1);
    upf.terminate();
    assert_eq!(smf.wait_for_release_request(1), Some(3600));
    smf.heartbeat();
    assert!(upf.is_running());
    upf.terminate();
    let ended = upf.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("ending with 1 sessions"), "{}", ended.stderr);
}

#[test]
fn a_drain_by_command_is_waited_for_and_taken_back() {
    let Some(lab) = UpfLab::new("drain-command", Driver::AfPacket) else { return };
    let mut upf = lab.start_supervised(configuration(&lab, 20));
    let mut smf = lab.smf();
    smf.associate();
    let sessions = establish_sessions(&mut smf, SESSIONS);
    let mut traffic = lab.traffic();
    assert_eq!(metric(&lab, "upf_draining"), 0.0);
    let (status, text) = lab.upf_command(&["drain"]);
    assert_eq!(
        (status, text.as_str()),
        (Some(0), "draining: 6 sessions of 1 associations, 20 s left\n")
    );
    assert_eq!(smf.wait_for_release_request(1), Some(20));
    // The SMF does nothing: its sessions are served, also after the period.
    let (status, text) = lab.upf_command(&["drain", "--wait", "1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("6 sessions of 1 associations are left after 1 s"), "{text}");
    assert_refusing(&mut smf);
    assert_serving(&lab, &upf, &mut smf, &mut traffic, &sessions);
    // The SMF moves its sessions while the command waits.
    let done = thread::scope(|scope| {
        let waiting = scope.spawn(|| lab.upf_command(&["drain", "--wait", "60"]));
        smf.wait_for_release_request(3);
        move_sessions(&lab, &mut upf, &mut smf, &mut traffic, &sessions);
        waiting.join().expect("the thread does not panic")
    });
    assert_eq!(done.0, Some(0), "{}", done.1);
    assert!(done.1.starts_with("drained: 0 sessions of 0 associations"), "{}", done.1);
    assert!(upf.is_running(), "a drain by command does not end the process");
    let (status, text) = lab.upf_command(&["undrain"]);
    assert_eq!((status, text.as_str()), (Some(0), "serving: 0 sessions of 0 associations\n"));
    assert_eq!(metric(&lab, "upf_draining"), 0.0);
    smf.associate();
    let session = smf.establish_when_possible(&session_request(SESSIONS + 1));
    assert_serving(&lab, &upf, &mut smf, &mut traffic, &[session]);
    smf.delete(&session);
    smf.release();
    upf.stop();
}
