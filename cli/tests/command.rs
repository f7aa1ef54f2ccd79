//! Tests of the `fastlane` command as a user runs it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use fastlane::counters::{Counters, PortCounter};
use fastlane::describe::{Application, LaneFacts, PortFacts};
use fastlane::session::Session;
use fastlane_testing::skip;
use serde_json::{Value, json};

fn fastlane() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fastlane"))
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

/// Runs `setup` and then the command in a private network namespace.
fn in_namespace(setup: &str, arguments: &str) -> Option<Output> {
    let script = format!("{setup}\nexec \"$0\" {arguments}");
    let program = env!("CARGO_BIN_EXE_fastlane");
    let output = Command::new("unshare").args(["--net", "sh", "-ec", &script, program]).output();
    let output = output.ok()?;
    let refused = String::from_utf8_lossy(&output.stderr).contains("unshare failed");
    (!refused).then_some(output)
}

const VETH: &str = "ip link add left type veth peer name right
                    ip link set left up
                    ip link set right mtu 9000";

#[test]
fn doctor_knows_a_veth_pair() {
    let Some(output) = in_namespace(VETH, "doctor --json left right lo") else {
        return skip("doctor_knows_a_veth_pair", "needs unshare(1) and CAP_SYS_ADMIN");
    };
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let interfaces = report["interfaces"].as_array().unwrap();
    let names: Vec<_> = interfaces.iter().map(|port| &port["interface"]).collect();
    assert_eq!(names, ["left", "right", "lo"]);
    let (left, right, lo) = (&interfaces[0], &interfaces[1], &interfaces[2]);
    assert_eq!((&left["driver"], &left["up"]), (&json!("veth"), &json!(true)));
    assert_eq!((&left["xdp"]["native"], &left["xdp"]["zero-copy"]), (&json!(true), &json!(false)));
    let driver = json!({ "af-xdp": { "interface": "left", "mode": "auto" } });
    assert_eq!(left["recommended"]["driver"], driver);
    assert_eq!(right["mtu"], 9000);
    // AF_XDP has frames of that length from Linux 6.6 on.
    let release = report["kernel"]["release"].as_str().expect("a release");
    let numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let version: Vec<u32> = numbers.take(2).map_while(|number| number.parse().ok()).collect();
    let driver = match version[..] < [6, 6][..] {
        true => json!({ "af-packet": { "interface": "right" } }),
        false => json!({ "af-xdp": { "interface": "right", "mode": "auto" } }),
    };
    assert_eq!(right["recommended"]["driver"], driver);
    assert_eq!(right["recommended"]["frame-size"], 16384);
    let remedies = right["recommended"]["remedies"].to_string();
    assert!(remedies.contains("ip link set dev right up"), "{remedies}");
    assert_eq!(lo["recommended"]["driver"], Value::Null);
}

#[test]
fn doctor_describes_the_machine_in_words_and_in_json() {
    let capabilities =
        ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF", "CAP_PERFMON", "CAP_IPC_LOCK", "CAP_SYS_NICE"];
    let (code, text, _) = output(fastlane().arg("doctor"));
    assert_eq!(code, Some(0), "{text}");
    let (_, json, _) = output(fastlane().args(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&json).unwrap();
    for (place, name) in capabilities.into_iter().enumerate() {
        assert!(text.contains(name), "{text}");
        assert_eq!(report["capabilities"][place]["name"], name);
        assert!(report["capabilities"][place]["effective"].is_boolean());
    }
    assert_eq!(report["kernel"]["supported"], true);
    assert!(report["cpus"]["allowed"][0].is_u64());
    assert!(text.contains("\nlo\n"), "{text}");
}

#[test]
fn doctor_follows_what_the_process_may_do() {
    let mut reduced = Command::new("setpriv");
    reduced.args(["--bounding-set=-bpf,-ipc_lock", "--inh-caps=-bpf,-ipc_lock"]);
    reduced.args([env!("CARGO_BIN_EXE_fastlane"), "doctor", "--json"]);
    let Some(output) = reduced.output().ok().filter(|output| !output.stdout.is_empty()) else {
        return skip("doctor_follows_what_the_process_may_do", "needs setpriv(1), root");
    };
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let effective = |place: usize| report["capabilities"][place]["effective"].as_bool();
    // CAP_NET_RAW stays, CAP_BPF and CAP_IPC_LOCK are gone.
    assert_eq!((effective(1), effective(2), effective(4)), (Some(true), Some(false), Some(false)));
}

#[test]
fn what_is_not_there_is_named() {
    let (code, stdout, stderr) = output(fastlane().args(["doctor", "nowhere0"]));
    assert_eq!((code, &*stdout), (Some(1), ""));
    assert!(stderr.starts_with("fastlane: no interface nowhere0"), "{stderr}");
    let (code, _, stderr) = output(fastlane().args(["top", "/nowhere/x.sock"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("/nowhere/x.sock: no application runs"), "{stderr}");
    let (code, _, stderr) = output(fastlane().args(["check", "/nowhere/x.json"]));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("/nowhere/x.json"), "{stderr}");
    assert_eq!(output(fastlane().arg("dance")).0, Some(2));
    assert_eq!(output(fastlane().args(["top", "x", "--interval", "1"])).0, Some(2));
}

#[test]
fn check_says_what_a_configuration_means() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("memory.json");
    std::fs::write(&path, r#"{"name": "tried", "ports": {"wire": {"driver": {"memory": {}}}}}"#)
        .unwrap();
    let (code, stdout, stderr) = output(fastlane().arg("check").arg(&path));
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("tried") && stdout.contains("wire"), "{stdout}");
    let of_kernel = r#"{"ports": {"wire": {"driver": {"memory": {}}},
        "in": {"driver": {"af-xdp": {"interface": "lo"}}, "tier": "kernel"}}}"#;
    std::fs::write(&path, of_kernel).unwrap();
    let (code, stdout, stderr) = output(fastlane().arg("check").arg(&path));
    assert_eq!((code, &*stderr), (Some(0), ""), "{stdout}");
    assert!(stdout.contains("port `in`: kernel tier on lo"), "{stdout}");
    std::fs::write(&path, r#"{"ports": {"wire": {"drive": {}}}}"#).unwrap();
    let (code, _, stderr) = output(fastlane().arg("check").arg(&path));
    assert_eq!(code, Some(1));
    assert!(stderr.contains("driver"), "{stderr}");
}

fn application(directory: &tempfile::TempDir) -> (std::path::PathBuf, Session, Counters) {
    let port = PortFacts {
        name: "wire".to_owned(),
        driver: "memory".to_owned(),
        mode: String::new(),
        interface: None,
        queues: 1,
        kernel: None,
        switches: 0,
    };
    let application = Application {
        name: "tested".to_owned(),
        version: "1.0".to_owned(),
        pid: std::process::id(),
        lanes: vec![LaneFacts { cpu: None, idle: "busy".to_owned() }],
        ports: vec![port],
    };
    let counters = Counters::create(1, 1).unwrap();
    let path = directory.path().join("tested.sock");
    let session = Session::open(&path, &application, &counters).unwrap();
    (path, session, counters)
}

#[test]
fn top_writes_lines_until_the_application_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (path, session, counters) = application(&directory);
    let mut command = fastlane();
    command.arg("top").arg(&path).args(["--interval", "100ms"]); // no terminal: lines
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut top = command.spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    counters.port(0, 0).add(PortCounter::DropNoFrame, 9);
    let mut next = || lines.next().unwrap().unwrap();
    assert!(next().starts_with("tested 1.0, process "));
    while !next().contains("no_frame") {}
    drop(session);
    assert_eq!(top.wait().unwrap().code(), Some(0));
    let mut reason = String::new();
    top.stderr.unwrap().read_to_string(&mut reason).unwrap();
    let expected = format!("fastlane: tested (process {}) has ended\n", std::process::id());
    assert_eq!(reason, expected);
}

#[test]
fn top_gives_the_totals_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _session, counters) = application(&directory);
    counters.port(0, 0).add(PortCounter::SentPackets, 1 << 40);
    let (code, json, stderr) = output(fastlane().arg("top").arg(&path).args(["--once", "--json"]));
    assert_eq!((code, &*stderr), (Some(0), ""));
    let sample: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(sample["ports"][0]["counters"]["sent_packets"], 1_u64 << 40);
    assert_eq!(sample["application"]["lanes"][0]["cpu"], Value::Null);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let (path, _session, _counters) = application(&directory);
    let mut command = fastlane();
    command.arg("top").arg(&path).args(["--interval", "100ms"]);
    let mut top = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(top.stdout.take());
    assert_eq!(top.wait().unwrap().code(), Some(0));
    let mut reason = String::new();
    top.stderr.unwrap().read_to_string(&mut reason).unwrap();
    assert_eq!(reason, "");
}
