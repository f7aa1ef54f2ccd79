//! The stream of usage records: its octets are those that the SMF was told and those that arrived,
//! and a collector that does not read holds nobody up.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use fastlane_tests::upf::messages::{self, SessionRequest};
use fastlane_tests::upf::{Arrival, Driver, Session, Upf, UpfLab, octets};
use fastlane_tests::{PATIENCE, eventually};
use serde_json::{Value, json};

use super::{NEVER, RATE};

/// A collector that reads all lines in a thread of its own.
struct Collector {
    lines: Receiver<Value>,
    read: Vec<Value>,
}

impl Collector {
    /// Connects to the socket, which a UPF opens at its start.
    fn connect(path: &Path) -> Self {
        let mut stream = None;
        eventually("the UPF exports usage", || {
            stream = UnixStream::connect(path).ok();
            stream.is_some()
        });
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream.expect("connected")).lines() {
                let line = serde_json::from_str(&line.expect("a line")).expect("JSON");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, read: Vec::new() }
    }

    /// Waits until a line satisfies `is_last`.
    #[track_caller]
    fn wait(&mut self, what: &str, is_last: impl Fn(&Value) -> bool) {
        while !self.read.iter().any(&is_last) {
            let line = self.lines.recv_timeout(PATIENCE);
            self.read.push(line.unwrap_or_else(|_| panic!("{what}: {:#?}", self.read)));
        }
    }

    /// Waits until the stream is closed.
    fn close(&mut self) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.read.push(line);
        }
    }

    /// Returns the lines of a type about a session.
    fn of(&self, kind: &str, session: &Session) -> Vec<&Value> {
        let seid = format!("{:#x}", session.up_seid);
        let is_one = |it: &&Value| it["type"] == kind && it["seid"] == seid.as_str();
        self.read.iter().filter(is_one).collect()
    }
}

/// Returns uplink and downlink octets of lines.
fn sum(lines: &[&Value]) -> [u64; 2] {
    ["uplink-octets", "downlink-octets"]
        .map(|field| lines.iter().map(|line| line[field].as_u64().expect("octets")).sum())
}

fn is_end(line: &Value, session: &Session) -> bool {
    line["type"] == "session-end" && line["seid"] == format!("{:#x}", session.up_seid).as_str()
}

fn start(story: &str, sessions: u32, interval: Option<u32>) -> Option<(UpfLab, Upf, PathBuf)> {
    let lab = UpfLab::new(story, Driver::AfPacket)?;
    let path = lab.hosts.file("usage.sock");
    let mut export = json!({"socket": path});
    if let Some(interval) = interval {
        export["interval-s"] = json!(interval);
    }
    let upf = lab.start_supervised(lab.configuration(sessions, &[("usage-export", export)]));
    Some((lab, upf, path))
}

#[test]
fn its_octets_are_those_that_arrived_and_those_that_the_smf_was_told() {
    let Some((lab, upf, path)) = start("operator-usage", 64, Some(1)) else { return };
    let mut collector = Collector::connect(&path);
    let mut smf = lab.smf();
    smf.associate();
    let mut traffic = lab.traffic();
    let requests = (1..=4).map(|number| SessionRequest::open(number, 20_000));
    let sessions: Vec<Session> = requests.map(|request| smf.establish(&request)).collect();
    std::thread::scope(|scope| {
        let pace = scope.spawn(|| traffic.send_paced(&sessions, 6000, RATE, || true));
        while !pace.is_finished() {
            smf.poll(); // it responds to reports
        }
    });
    let arrivals: [Vec<Arrival>; 2] = traffic.collect();
    let sequence = smf.next_sequence();
    let response = smf.request(&messages::query(sequence, sessions[0].up_seid));
    smf.record_modification(&sessions[0], &response);
    sessions.iter().for_each(|session| smf.delete(session));
    for session in &sessions {
        collector.wait("the end of a session", |line| is_end(line, session));
    }
    upf.stop();
    collector.close();

    let hello = &collector.read[0];
    assert_eq!((&hello["type"], &hello["version"]), (&json!("hello"), &json!(1)), "{hello}");
    assert_eq!((&hello["format"], &hello["interval-s"]), (&json!("upf-usage"), &json!(1)));
    let numbers: Vec<u64> =
        collector.read[1..].iter().map(|line| line["number"].as_u64().expect("a number")).collect();
    let first = hello["next-number"].as_u64().expect("a number");
    assert_eq!(numbers, (first..).take(numbers.len()).collect::<Vec<_>>(), "no line is missing");
    for session in &sessions {
        let expected = arrivals.each_ref().map(|arrivals| octets(arrivals, session));
        assert_eq!(smf.usage(session), expected, "as the SMF was told");
        let usage = collector.of("usage", session);
        assert_eq!(sum(&usage), expected);
        let told: BTreeMap<(u64, u32), [u64; 2]> = usage
            .iter()
            .map(|line| {
                let sequence = line["ur-seqn"].as_u64().expect("a number") as u32;
                ((session.cp_seid, sequence), sum(&[line]))
            })
            .collect();
        let of = (session.cp_seid, 0)..=(session.cp_seid, u32::MAX);
        let received = smf.inbox.usage.range(of).map(|(key, value)| (*key, *value)).collect();
        assert_eq!(told, received, "report by report");
        let has = |line: &Value, trigger: &str| {
            line["triggers"].as_array().expect("triggers").iter().any(|it| it == trigger)
        };
        assert!(has(usage.last().expect("a report"), "TERMR"), "{usage:#?}");
        assert!(usage.iter().any(|line| has(line, "VOLTH")), "{usage:#?}");
        let queried = usage.iter().filter(|line| has(line, "IMMER")).count();
        assert_eq!(queried, usize::from(session.cp_seid == 1), "{usage:#?}");
        let intervals = collector.of("interval", session);
        assert_eq!(sum(&intervals), expected, "intervals cover the same");
        assert!(intervals.len() >= 3, "4 s of traffic: {intervals:#?}");
        let begun = collector.of("session-start", session);
        let ended = collector.of("session-end", session);
        assert_eq!((begun.len(), ended.len(), &ended[0]["reason"]), (1, 1, &json!("deleted")));
        assert_eq!(begun[0]["addresses"], json!([session.ue]));
        assert_eq!(ended[0]["unreported"], json!([]));
    }
    assert!(!path.exists(), "the socket is gone with the process");
}

#[test]
fn a_session_that_is_removed_without_a_report_has_its_usage_in_the_last_line() {
    let Some((lab, upf, path)) = start("operator-removed", 64, None) else { return };
    let mut collector = Collector::connect(&path);
    let mut smf = lab.smf();
    smf.associate();
    let mut traffic = lab.traffic();
    let session = smf.establish(&SessionRequest::open(1, NEVER));
    traffic.send_paced(&[session], 150, RATE, || true);
    let arrivals = traffic.collect();
    smf.release();
    collector.wait("the end of the session", |line| is_end(line, &session));
    let end = collector.of("session-end", &session)[0];
    assert_eq!(end["reason"], "removed");
    let unreported = end["unreported"].as_array().expect("an array");
    let expected = arrivals.each_ref().map(|arrivals| octets(arrivals, &session));
    assert_eq!(sum(&unreported.iter().collect::<Vec<_>>()), expected);
    assert_eq!(collector.of("usage", &session).len() + collector.of("interval", &session).len(), 0);
    upf.stop();
}

#[test]
fn a_collector_that_does_not_read_is_cut_off_and_holds_nobody_up() {
    let Some((lab, upf, path)) = start("operator-stuck", 4096, None) else { return };
    let mut reader = Collector::connect(&path);
    let mut stuck = UnixStream::connect(&path).expect("a socket");
    let mut smf = lab.smf();
    smf.associate();
    reader.wait("the first line", |line| line["type"] == "hello");
    let is_cut_off = || {
        let metrics = lab.get("/metrics");
        metrics.contains("upf_usage_collectors_lost_total{reason=\"cut_off\"} 1\n")
    };
    let mut last = None;
    for number in 1..=3000 {
        // Each request waits for its response: a control plane that waited would stop here.
        let session = smf.establish(&SessionRequest::open(number, NEVER));
        smf.delete(&session);
        last = Some(session);
        if number % 100 == 0 && is_cut_off() {
            break;
        }
    }
    let last = last.expect("a session");
    assert!(is_cut_off(), "after session {}", last.cp_seid);
    reader.wait("the end of the last session", |line| is_end(line, &last));
    assert!(lab.get("/metrics").contains("upf_usage_collectors 1\n"), "the other one is served");
    // What the kernel has buffered is read, then the stream ends.
    let mut rest = Vec::new();
    stuck.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stuck.read_to_end(&mut rest).expect("the end of the stream");
    assert!(rest.starts_with(b"{\"type\":\"hello\""));
    upf.stop();
}

#[test]
fn a_killed_control_plane_is_followed_by_one_that_exports_again() {
    let Some((lab, mut upf, path)) = start("operator-killed", 64, None) else { return };
    let mut collector = Collector::connect(&path);
    let mut smf = lab.smf();
    smf.associate();
    let mut traffic = lab.traffic();
    let session = smf.establish(&SessionRequest::open(1, 20_000));
    traffic.send_paced(&[session], 300, RATE, || true);
    let mut arrivals = traffic.collect();
    lab.kill_slow_path(&mut upf);
    collector.close();
    let mut next = Collector::connect(&path);
    next.wait("the first line", |line| line["type"] == "hello");
    smf.heartbeat();
    traffic.send_paced(&[session], 300, RATE, || true);
    for (all, more) in arrivals.iter_mut().zip(traffic.collect()) {
        all.extend(more);
    }
    smf.delete(&session);
    next.wait("the end of the session", |line| is_end(line, &session));
    assert!(next.of("session-start", &session).is_empty(), "it began before");
    let expected = arrivals.each_ref().map(|arrivals| octets(arrivals, &session));
    assert_eq!(smf.usage(&session), expected);
    let [before, after] = [&collector, &next].map(|it| sum(&it.of("usage", &session)));
    assert_eq!([before[0] + after[0], before[1] + after[1]], expected, "nothing twice");
    upf.stop();
}
