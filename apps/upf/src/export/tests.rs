//! The lines, and collectors that read, stall and leave.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::config::Settings;
use crate::session::{SNssai, SessionIndex, UsageReport, UsageReportTrigger};
use crate::time::SECOND;
use crate::transactions::ReportCarrier;
use crate::usage::{PACKETS, VOLUME};

const AT: u64 = 1_780_000_000 * SECOND;

fn now() -> Now {
    Now { monotonic: 1000 * SECOND, real: AT }
}

fn settings(socket: &Path, interval_s: Option<u32>) -> Settings {
    serde_json::from_value(json!({
        "node-id": "upf.example",
        "n4": { "addresses": ["192.0.2.1"] },
        "interfaces": {},
        "usage-export": { "socket": socket, "interval-s": interval_s },
    }))
    .unwrap()
}

fn open(interval_s: Option<u32>) -> (TempDir, PathBuf, UsageExporter) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("usage.sock");
    let exporter = UsageExporter::open(&settings(&path, interval_s), now()).unwrap().unwrap();
    (directory, path, exporter)
}

fn record(counters: [u64; 4], event: UsageEvent) -> UsageRecord {
    let session = SessionIdentity {
        index: SessionIndex(7),
        seid: 1 << 32 | 7,
        cp_seid: 0x2a,
        cp_address: IpAddr::from([192, 0, 2, 9]),
        supi: Some("001010000000007".to_owned()),
        dnn: None,
        s_nssai: Some(SNssai { sst: 1, sd: 0x01_0203 }),
        users: vec![(IpAddr::from([10, 45, 0, 2]), 32), ("2001:db8:0:7::".parse().unwrap(), 64)],
        established: AT - 5 * SECOND,
    };
    UsageRecord { session, counters, event }
}

fn report() -> UsageReport {
    UsageReport {
        urr: 3,
        sequence: 9,
        triggers: UsageReportTrigger::VOLTH.with(UsageReportTrigger::LIUSA),
        information: 0,
        measured: VOLUME | PACKETS,
        counts: [1000, 10, 500, 5],
        seconds: 0,
        since: AT - 3 * SECOND,
        at: AT,
        first: 0,
        last: AT - SECOND,
    }
}

/// Accepts collectors and sends what they take, without sessions.
fn serve(exporter: &mut UsageExporter) {
    exporter.accept(now());
    exporter.collectors.retain_mut(Collector::is_connected);
    exporter.collectors.retain_mut(|collector| collector.send().is_ok());
}

fn lines(stream: UnixStream, count: usize) -> Vec<Value> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let lines = BufReader::new(stream).lines().take(count);
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

/// Milliseconds from 1970 to the tests, and seconds more.
fn ms(seconds: u64) -> u64 {
    (AT / SECOND + seconds) * 1000
}

/// Returns a line of the session, with these fields of its type.
fn line(kind: &str, number: u64, fields: &Value) -> Value {
    let mut line = json!({
        "type": kind,
        "number": number,
        "time-unix-ms": ms(10),
        "seid": "0x100000007",
        "cp-seid": "0x2a",
        "cp-address": "192.0.2.9",
        "supi": "001010000000007",
        "dnn": null,
        "s-nssai": "1-010203",
        "addresses": ["10.45.0.2", "2001:db8:0:7::/64"],
        "established-unix-ms": ms(0) - 5000,
    });
    line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    line
}

/// Returns a line of each type, as the document describes them.
fn documented() -> [Value; 4] {
    [
        json!({
            "type": "hello",
            "format": "upf-usage",
            "version": 1,
            "node-id": "upf.example",
            "time-unix-ms": ms(0),
            "started-unix-ms": ms(0),
            "interval-s": 60,
            "next-number": 1,
        }),
        line(
            "usage",
            1,
            &json!({
                "message": "session-report-request",
                "urr": 3,
                "ur-seqn": 9,
                "triggers": ["VOLTH", "LIUSA"],
                "start-unix-ms": ms(0) - 3000,
                "end-unix-ms": ms(0),
                "uplink-octets": 1000,
                "uplink-packets": 10,
                "downlink-octets": 500,
                "downlink-packets": 5,
                "duration-s": null,
                "first-packet-unix-ms": null,
                "last-packet-unix-ms": ms(0) - 1000,
                "monitoring-time": null,
                "is-before-qos-enforcement": false,
            }),
        ),
        line(
            "interval",
            2,
            &json!({
                "start-unix-ms": ms(0),
                "end-unix-ms": ms(10),
                "uplink-octets": 1001,
                "uplink-packets": 12,
                "downlink-octets": 503,
                "downlink-packets": 9,
            }),
        ),
        line(
            "session-end",
            3,
            &json!({
                "reason": "removed",
                "unreported": [{
                    "urr": 3,
                    "uplink-octets": 1,
                    "uplink-packets": 2,
                    "downlink-octets": 3,
                    "downlink-packets": 4,
                }],
            }),
        ),
    ]
}

#[test]
fn lines_are_as_documented() {
    let (_directory, path, mut exporter) = open(Some(60));
    exporter.take_records(&[record([5, 1, 7, 2], UsageEvent::Start)], now());
    let stream = UnixStream::connect(&path).unwrap();
    serve(&mut exporter);
    let later = now().after(10 * SECOND);
    let end = UsageEvent::End { is_deleted: false, unreported: vec![(3, [1, 2, 3, 4])] };
    let records = [
        record([1005, 11, 507, 7], UsageEvent::Report(ReportCarrier::ReportRequest, report())),
        record([1006, 13, 510, 11], end),
    ];
    exporter.take_records(&records, later);
    serve(&mut exporter);
    let expected = documented();
    assert_eq!(lines(stream, 4), expected);
    // The document names each field.
    let document = include_str!("../../docs/usage-export.md");
    let fields = expected.iter().flat_map(|line| line.as_object().unwrap().keys());
    for field in fields {
        assert!(document.contains(&format!("`{field}`")), "{field}");
    }
}

#[test]
fn what_was_not_measured_is_null() {
    let (_directory, path, mut exporter) = open(None);
    let stream = UnixStream::connect(&path).unwrap();
    serve(&mut exporter);
    let event = UsageReport { measured: 0, since: 0, information: 2 | 8, ..report() };
    let carrier = ReportCarrier::DeletionResponse;
    exporter.take_records(&[record([0; 4], UsageEvent::Report(carrier, event))], now());
    serve(&mut exporter);
    let line = &lines(stream, 2)[1];
    for field in ["uplink-octets", "downlink-packets", "start-unix-ms", "duration-s"] {
        assert_eq!(line[field], Value::Null, "{field}");
    }
    assert_eq!(
        (&line["monitoring-time"], &line["is-before-qos-enforcement"]),
        (&json!("after"), &json!(true))
    );
    assert_eq!(line["message"], "session-deletion-response");
}

#[test]
fn a_collector_that_does_not_read_is_cut_off_and_others_are_served() {
    let (_directory, path, mut exporter) = open(None);
    let mut stuck = UnixStream::connect(&path).unwrap();
    let reader = UnixStream::connect(&path).unwrap();
    let read = std::thread::spawn(move || BufReader::new(reader).lines().count());
    serve(&mut exporter);
    let start = [record([0; 4], UsageEvent::Start)];
    let mut made = 0;
    while exporter.counts().cut_off == 0 {
        for _ in 0..100 {
            exporter.take_records(&start, now());
        }
        made += 100;
        // The other one has a thread of its own: it empties its queue in between.
        while exporter.collectors.iter().filter(|it| it.backlog() > 0).count() > 1 {
            serve(&mut exporter);
        }
        serve(&mut exporter);
        assert!(made < 100_000);
    }
    let counts = exporter.counts();
    assert_eq!((counts.collectors, counts.cut_off, counts.lines), (1, 1, made));
    let mut text = String::new();
    stuck.read_to_string(&mut text).unwrap();
    assert!(text.len() < 4 << 20, "what the kernel has buffered");
    while exporter.collectors.iter().any(|it| it.backlog() > 0) {
        serve(&mut exporter);
    }
    drop(exporter);
    assert_eq!(read.join().unwrap() as u64, made + 1);
}

#[test]
fn collectors_have_a_limit_and_may_leave_or_close_their_direction() {
    let (_directory, path, mut exporter) = open(None);
    let connect = || UnixStream::connect(&path).unwrap();
    let mut all: Vec<UnixStream> = (0..COLLECTORS).map(|_| connect()).collect();
    serve(&mut exporter);
    let mut refused = connect();
    serve(&mut exporter);
    assert_eq!(refused.read(&mut [0; 8]).unwrap(), 0, "it is told at once");
    all[0].shutdown(std::net::Shutdown::Write).unwrap();
    drop(all.pop());
    serve(&mut exporter);
    serve(&mut exporter);
    let counts = exporter.counts();
    assert_eq!((counts.collectors, counts.refused, counts.cut_off), (COLLECTORS - 1, 1, 0));
    exporter.take_records(&[record([0; 4], UsageEvent::Start)], now());
    serve(&mut exporter);
    let one = all.swap_remove(0);
    assert_eq!(lines(one, 2)[1]["type"], "session-start");
}

#[test]
fn the_socket_of_a_process_that_was_killed_is_replaced_and_no_other_file_is() {
    let (directory, path, exporter) = open(None);
    drop(exporter);
    assert!(!path.exists());
    // A listener that is dropped leaves its socket, like a process that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let exporter = UsageExporter::open(&settings(&path, None), now()).unwrap();
    let error = UsageExporter::open(&settings(&path, None), now()).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(exporter);
    let file = directory.path().join("file");
    std::fs::write(&file, "data").unwrap();
    assert!(UsageExporter::open(&settings(&file, None), now()).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"data");
    let nowhere = directory.path().join("none/usage.sock");
    let error = UsageExporter::open(&settings(&nowhere, None), now()).unwrap_err().to_string();
    assert!(error.contains("cannot listen there"), "{error}");
}
