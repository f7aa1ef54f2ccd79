//! Operator's view of a UPF with traffic: `upf top`, the stream of usage records, the capture of a
//! session, and readiness as a load balancer asks for it.

mod session_capture;
mod usage_export;

use fastlane_pfcp::Cause;
use fastlane_tests::eventually;
use fastlane_tests::upf::messages::SessionRequest;
use fastlane_tests::upf::{Driver, Session, UpfLab};
use serde_json::Value;

/// Packets per second and direction.
const RATE: u32 = 1500;
/// Volume threshold that no session reaches.
const NEVER: u64 = 1 << 40;

/// Returns the JSON body of the API's response to a GET of `path`.
#[track_caller]
fn get_json(lab: &UpfLab, path: &str) -> Value {
    let response = lab.get(path);
    let (_, body) = response.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

/// Returns the rate of a session's row in `/top` times its interval, in whole packets or octets.
fn total(view: &Value, session: &Session, field: &str) -> Option<u64> {
    let seid = format!("{:#x}", session.up_seid);
    let rows = view["sessions"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["seid"] == seid.as_str())?;
    let elapsed = view["elapsed-s"].as_f64().expect("seconds");
    Some((row[field].as_u64().expect("a rate") as f64 * elapsed).floor() as u64)
}

#[test]
fn the_busiest_sessions_come_first_with_their_rates_and_the_drops_by_reason() {
    let Some(lab) = UpfLab::new("operator-top", Driver::AfPacket) else { return };
    let upf = lab.start_supervised(lab.configuration(64, &[]));
    let mut smf = lab.smf();
    smf.associate();
    let mut traffic = lab.traffic();
    let sessions: Vec<Session> =
        (1..=3).map(|number| smf.establish(&SessionRequest::open(number, NEVER))).collect();
    let mut closed = SessionRequest::open(4, NEVER);
    closed.version.is_open = false;
    let closed = smf.establish(&closed);

    assert_eq!(get_json(&lab, "/top")["elapsed-s"], 0.0, "nobody has asked before");
    for (session, count) in sessions.iter().zip([100, 300, 0]) {
        (0..count).for_each(|_| traffic.send_uplink(session));
    }
    (0..70).for_each(|_| traffic.send_downlink(&closed));
    // Those 70 are dropped, so they never arrive.
    traffic.offered[1] -= 70;
    traffic.collect();
    let view = get_json(&lab, "/top?limit=2");
    let order: Vec<&Value> = view["sessions"].as_array().expect("rows").iter().collect();
    let expected = [&sessions[1], &sessions[0]].map(|it| Value::from(format!("{:#x}", it.up_seid)));
    assert_eq!(order.iter().map(|row| row["seid"].clone()).collect::<Vec<_>>(), expected);
    assert_eq!((&view["active"], &view["total"]), (&Value::from(2), &Value::from(4)));
    // Rates are rounded up to whole packets per second.
    let slack = view["elapsed-s"].as_f64().expect("seconds").ceil() as u64;
    for (session, count) in sessions.iter().zip([100, 300]) {
        let packets = total(&view, session, "uplink-packets-per-s").expect("a row");
        assert!((count - 1..=count + slack).contains(&packets), "{packets} of {count}");
        assert_eq!(total(&view, session, "downlink-packets-per-s"), Some(0));
    }
    let outcomes = view["outcomes"].as_array().expect("outcomes");
    let closed_gate = outcomes.iter().find(|it| it["outcome"] == "gate_closed").expect("a reason");
    assert_eq!(closed_gate["packets"], 70);
    assert!(closed_gate["is-drop"] == true && closed_gate["packets-per-s"].as_u64() >= Some(1));

    // The commands, under traffic.
    std::thread::scope(|scope| {
        scope.spawn(|| traffic.send_paced(&sessions[..1], 6000, RATE, || true));
        let words = ["top", "--once", "--json", "--interval", "500ms"];
        let (status, text) = lab.upf_command(&words);
        assert_eq!(status, Some(0), "{text}");
        let view: Value = serde_json::from_str(&text).expect("one line of JSON");
        assert!(view["elapsed-s"].as_f64() >= Some(0.4), "{text}");
        let rate = view["sessions"][0]["downlink-packets-per-s"].as_u64();
        assert!(rate >= Some(100), "{text}");
        let (status, text) = lab.upf_command(&["top", "--once"]);
        assert_eq!(status, Some(0), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("4 sessions, 1 with traffic, "), "{text}");
        assert!(lines[1].starts_with("subscriber  addresses"), "{text}");
        assert!(lines[2].contains(&sessions[0].ue.to_string()), "{text}");
        assert!(lines.iter().any(|line| line.starts_with("gate_closed ")), "{text}");
    });
    upf.stop();
    let (status, text) = lab.upf_command(&["top", "--once"]);
    assert!(status == Some(1) && text.contains("no reply from"), "{text}");
}

/// Asks for readiness with curl, as a load balancer does. Returns the HTTP status and the state.
fn readiness(lab: &UpfLab, query: &str) -> (u32, String) {
    let url = format!("http://127.0.0.1:8805/readyz{query}");
    let words = ["curl", "--silent", "--write-out", "\n%{http_code}", &url];
    let output = lab.hosts.left.attempt(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or_default();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    (status.parse().unwrap_or(0), body["state"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_load_balancer_is_told_whether_sessions_are_accepted() {
    let Some(lab) = UpfLab::new("operator-ready", Driver::AfPacket) else { return };
    let changes = [("sessions", Value::from(2))];
    let upf = lab.start_supervised(lab.configuration(2, &changes));
    let is = |status: u32, state: &str| {
        eventually(&format!("{status} {state}"), || readiness(&lab, "") == (status, state.into()));
        assert!(lab.get("/healthz").ends_with("ok\n"), "both processes run all the while");
    };
    is(503, "no-association");
    assert_eq!(readiness(&lab, "?accept=no-association"), (200, "no-association".into()));
    let mut smf = lab.smf();
    smf.associate();
    is(200, "ready");
    let sessions = [1, 2].map(|number| smf.establish(&SessionRequest::open(number, NEVER)));
    is(503, "overloaded");
    assert_eq!(
        smf.try_establish(&SessionRequest::open(3, NEVER)),
        Cause::NO_RESOURCES_AVAILABLE,
        "a balancer that asks sends no third one"
    );
    smf.delete(&sessions[0]);
    is(200, "ready");
    assert_eq!(lab.upf_command(&["drain"]).0, Some(0));
    is(503, "draining");
    assert_eq!(lab.upf_command(&["undrain"]).0, Some(0));
    is(200, "ready");
    smf.release();
    is(503, "no-association");
    upf.stop();
    assert_eq!(readiness(&lab, "").0, 0, "nobody answers");
}
