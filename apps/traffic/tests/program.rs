//! The program `traffic` on a memory port.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fastlane::session;
use fastlane_table::counters::PortCounter;
use serde_json::Value;
use traffic::plan::Plan;
use traffic::settings::Settings;

/// Creates a command that runs the program with the memory port example and `changes`.
fn program(folder: &Path, changes: &[&str]) -> Command {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/memory.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_traffic"));
    command.arg(example).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.arg("--set").arg(format!("session={:?}", folder.join("session")));
    for change in changes {
        command.args(["--set", change]);
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

const SHORT: [&str; 2] = ["app.count-packets=5000", "app.linger-ms=10"];

#[test]
fn a_table_for_people() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), &SHORT).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("\n  sent                  5000 "), "{table}");
    assert!(table.contains("\n  lost                     0  0.000 ppm\n"), "{table}");
}

#[test]
fn json_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), &SHORT).args(["--set", "app.report=\"-\""]).output();
    let output = output.unwrap();
    let report = json(&output);
    assert!(output.status.success());
    assert_eq!(report["complete"], true);
    assert_eq!(report["sent"]["packets"], 5000);
    assert_eq!(report["received"]["packets"], 5000);
    assert_eq!(report["received"]["latency"]["samples"], 4500, "a tenth is warm-up");
}

#[test]
fn a_signal_ends_a_run_and_the_report_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let changes =
        ["app.count-packets=0", "app.warm-up-percent=0", "app.report=\"-\"", "lanes.idle=adaptive"];
    let slow = "app.rate-packets-per-second=1000";
    let child = program(folder.path(), &changes).args(["--set", slow]).spawn().unwrap();
    // The session exists as soon as the lanes are about to start.
    let path = folder.path().join("session");
    let has_sent = || {
        let client = session::connect(&path);
        client.is_ok_and(|it| it.counters.port_total(0, PortCounter::SentPackets) > 0)
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !has_sent() {
        assert!(Instant::now() < end, "nothing is sent");
        thread::sleep(Duration::from_millis(5));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let report = json(&output);
    assert!(output.status.success());
    assert_eq!(report["complete"], false);
    let (sent, received) = (&report["sent"]["packets"], &report["received"]["packets"]);
    let (sent, received) = (sent.as_u64().unwrap(), received.as_u64().unwrap());
    assert!(sent > 0 && sent - received <= 32, "{sent} {received}");
}

/// Runs one process with the requests `orders`. Returns its replies.
fn trials(changes: &[&str], orders: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(folder.path(), &["app.trials-from-input=true", "app.linger-ms=10"]);
    command.stdin(Stdio::piped());
    changes.iter().for_each(|change| {
        command.args(["--set", change]);
    });
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    orders.iter().for_each(|order| writeln!(input, "{order}").unwrap());
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn trials_are_carried_out_one_after_the_other() {
    let two = ["lanes.cpus=[0,1]", "lanes.idle=adaptive", "app.flows.count=4"];
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let (_, cpus) = status.split_once("Cpus_allowed_list:").unwrap();
    let lanes = if cpus.trim_start().starts_with("0-") { &two[..] } else { &two[1..] };
    for changes in [&["lanes.idle=busy"][..], &["lanes.idle=adaptive"], lanes] {
        let count = |n: u64| format!(r#"{{"count-packets": {n}, "warm-up-percent": 0}}"#);
        let orders = [
            count(1000),
            r#"{"count-packets": 500, "frame-bytes": 1514, "warm-up-percent": 50}"#.to_owned(),
            r#"{"count-packets": 0, "duration-ms": 50, "rate-packets-per-second": 10000}"#
                .to_owned(),
            count(7),
        ];
        let answers = trials(changes, &orders.each_ref().map(String::as_str));
        let sent: Vec<_> =
            answers.iter().map(|answer| answer["sent"]["packets"].as_u64().unwrap()).collect();
        let received: Vec<_> =
            answers.iter().map(|answer| answer["received"]["packets"].as_u64().unwrap()).collect();
        assert_eq!(sent, received);
        assert_eq!([sent[0], sent[1], sent[3]], [1000, 500, 7]);
        assert!((1..=501).contains(&sent[2]), "{sent:?}");
        assert_eq!(answers[1]["received"]["bytes"], 500 * 1514);
        assert_eq!(answers[1]["received"]["latency"]["samples"], 250);
        for answer in &answers {
            assert_eq!(
                (&answer["complete"], &answer["received"]["other-run-packets"]),
                (&Value::Bool(true), &Value::from(0)),
                "{answer}"
            );
        }
        let runs: HashSet<_> = answers.iter().map(|answer| answer["run"].as_u64()).collect();
        assert_eq!(runs.len(), 4, "each trial has a number of its own");
    }
}

#[test]
fn an_order_that_cannot_be_meant_is_refused_and_the_next_is_carried_out() {
    let answers = trials(
        &[],
        &[
            "count-packets",
            r#"{"count": 1}"#,
            r#"{"frame-bytes": 59}"#,
            r#"{"port": "wlre"}"#,
            r#"{"count-packets": 0}"#,
            r#"{"report": "x"}"#,
            r#"{"count-packets": 5}"#,
        ],
    );
    let errors: Vec<_> =
        answers.iter().map(|answer| answer["error"].as_str().unwrap_or("none")).collect();
    for (error, expected) in errors.iter().zip([
        "an order is a JSON object on one line: expected value at line 1 column 1",
        "app: unknown field `count`",
        "app.frame-bytes: has 59",
        "app.port: there is no port `wlre`; name one of `ports`",
        "app.duration-ms: a trial needs an end",
        "app.report: is the same for all trials",
        "none",
    ]) {
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(answers[6]["received"]["packets"], 5);
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = program(folder.path(), &["app.frame-bytes=59"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let error = text(&output.stderr);
    assert!(error.contains("app.frame-bytes") && error.contains("allowed is 60 to"), "{error}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = format!("app.report={:?}", folder.path().join("no/such/folder"));
    let output = program(folder.path(), &SHORT).args(["--set", &nowhere]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).contains("cannot write the report"));
    assert!(text(&output.stdout).contains("  sent "), "the numbers are not lost");
}

#[test]
fn the_examples_are_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let configuration: Value =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let settings = serde_json::from_value::<Settings>(configuration["app"].clone());
        let settings = settings.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        settings.check().unwrap();
        Plan::new(&settings).unwrap();
        let ports = configuration["ports"].as_object().unwrap();
        let named = [Some(&settings.port), settings.sink_port.as_ref()];
        assert!(named.into_iter().flatten().all(|name| ports.contains_key(name)));
        seen += 1;
    }
    assert!(seen >= 5);
}
