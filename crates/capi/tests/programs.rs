//! Tests that compile C programs against the committed header, link them with the library and run
//! them.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastlane::counters::PortCounter;
use fastlane::session::connect;
use serde_json::{Value, json};
use support::capture::{read_capture, write_capture};
use support::{Ended, FLAGS, Linked, Program, finish, manifest};

const MACSWAP: &str = "../../apps/macswap-c/macswap.c";

fn memory(frames: usize) -> Value {
    json!({ "driver": { "memory": { "fill": { "frames": frames, "length": 60 } } } })
}

fn on(wire: Value) -> Value {
    json!({ "ports": { "wire": wire } })
}

/// Returns a configuration of two lanes on the first two allowed processors, or one twice.
fn two_lanes() -> Value {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let number = |text: &str| text.trim().parse::<usize>().unwrap();
    let mut cpus = list.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        number(first)..=number(last)
    });
    let (first, second) = (cpus.next().unwrap(), cpus.next());
    let mut configuration = on(memory(64));
    configuration["lanes"] = json!({ "cpus": [first, second.unwrap_or(first)] });
    configuration
}

/// Runs a program until a port has sent `packets` packets, then ends it by SIGINT.
fn until_sent(program: &Program, configuration: &Value, packets: u64) -> Ended {
    let mut command = program.command(configuration);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let session = program.path("session.sock");
    let sent = || {
        let client = connect(&session).ok()?;
        Some(client.counters.port_total(0, PortCounter::SentPackets))
    };
    while sent().is_none_or(|sent| sent < packets) {
        assert!(Instant::now() < end, "it sends too little");
        std::thread::sleep(Duration::from_millis(10));
    }
    let number = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    Ended {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

fn frame(number: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(7).wrapping_add(number)).collect()
}

#[test]
fn macswap_swaps_what_a_capture_holds() {
    for linked in [Linked::Shared, Linked::Static] {
        let macswap = Program::linked(MACSWAP, linked);
        let (read, write) = (macswap.path("in.pcap"), macswap.path("out.pcapng"));
        let lengths = [14, 60, 61, 128, 1500, 13, 1, 64];
        let frames: Vec<_> = (0..200).map(|n| frame(n, lengths[n as usize % 8])).collect();
        write_capture(&read, &frames);
        let wire = json!({ "driver": { "pcap": { "read": read, "write": write } } });
        let ended = until_sent(&macswap, &on(wire), 150).expect(0);
        assert_eq!(ended.counter("received_packets"), 200);
        assert_eq!(ended.counter("verdict_reflect"), 150);
        assert_eq!(ended.counter("verdict_drop"), 50);
        assert_eq!(ended.drops(), 0, "{}", ended.error);
        let swapped = |frame: &Vec<u8>| [&frame[6..12], &frame[..6], &frame[12..]].concat();
        let expected: Vec<_> =
            frames.iter().filter(|frame| frame.len() >= 14).map(swapped).collect();
        assert_eq!(read_capture(&write), expected);
    }
}

#[test]
fn macswap_goes_round_in_memory() {
    let ended = until_sent(&Program::new(MACSWAP), &on(memory(64)), 100_000).expect(0);
    assert_eq!(ended.counter("received_packets"), ended.counter("sent_packets"));
    assert_eq!(ended.counter("received_packets"), ended.counter("verdict_reflect"));
    assert_eq!(ended.drops(), 0, "{}", ended.error);
}

#[test]
fn verdicts_that_mean_nothing_are_counted_and_not_obeyed() {
    let ended = Program::new("tests/programs/garbage.c").run(&on(memory(64))).expect(0);
    let received = ended.counter("received_packets");
    assert!(received >= 4096 && received.is_multiple_of(4), "{}", ended.error);
    assert_eq!(ended.counter("verdict_reflect"), received / 4);
    assert_eq!(ended.counter("sent_packets"), received / 4);
    assert_eq!(ended.counter("drop_bad_verdict"), received / 2);
    assert_eq!(ended.counter("verdict_forward"), received / 4);
    assert_eq!(ended.counter("drop_no_port"), received / 4);
    assert_eq!(ended.drops(), received / 4 * 3, "{}", ended.error);
}

#[test]
fn a_checked_program_that_corrupts_its_packets_loses_only_those() {
    let ended = Program::new("tests/programs/corrupt.c").run(&on(memory(64))).expect(0);
    assert_eq!(ended.counter("drop_bad_verdict"), 6, "{}", ended.error);
    let received = ended.counter("received_packets");
    assert_eq!(ended.counter("sent_packets"), received - 6);
    let told: Vec<&str> =
        ended.error.lines().filter(|line| line.contains("has changed where its frame")).collect();
    assert_eq!(told.len(), 1, "{}", ended.error);
}

#[test]
fn each_lane_has_a_state_made_once_and_freed_once() {
    let program = Program::new("tests/programs/lanes.c");
    let ended = program.run(&two_lanes()).expect(0);
    assert_eq!(ended.out, "started 2 stopped 2 used 2\n");
    // Also when nothing runs, and when the second refuses.
    let mut command = program.command(&two_lanes());
    command.arg("--check");
    let ended = finish(command).expect(0);
    assert!(ended.out.ends_with("started 2 stopped 2 used 0\n"), "{}", ended.out);
    let mut refusing = two_lanes();
    refusing["app"] = json!({ "refuse": 1 });
    let ended = program.run(&refusing).expect(4);
    assert_eq!(ended.out, "started 2 stopped 1 used 0\n");
    assert!(ended.error.contains("refuses to start lane 1"), "{}", ended.error);
}

#[test]
fn ports_and_settings_that_are_wrong_are_named() {
    let program = Program::new("tests/programs/settings.c");
    let mut configuration =
        json!({ "ports": { "wire": memory(8), "out": { "driver": { "memory": {} } } } });
    configuration["app"] = json!({ "limit": 3 });
    let ended = program.run(&configuration).expect(0);
    assert_eq!(ended.out, "2 ports, out is 0, no more\n");
    assert!(ended.counter("verdict_forward") >= 8, "{}", ended.error);
    assert_eq!(ended.drops(), 0, "{}", ended.error);

    configuration["app"] = json!({ "limit": 0 });
    let ended = program.run(&configuration).expect(3);
    assert!(ended.error.contains("app.limit: must be a positive number"), "{}", ended.error);
    configuration["app"] = json!(["limit"]);
    let ended = program.run(&configuration).expect(3);
    assert!(ended.error.contains("app: "), "{}", ended.error);
    let ended = program.run(&on(memory(8))).expect(3);
    assert!(ended.error.contains("needs a port `out`; there are wire"), "{}", ended.error);
}

#[test]
fn a_program_ends_itself_from_anywhere() {
    let program = Program::new("tests/programs/stop.c");
    for how in ["before", "thread", "signal"] {
        let mut command = program.command(&on(memory(64)));
        command.env("STOP", how);
        let ended = finish(command).expect(0);
        assert_eq!(ended.out, "status 0, and again 5\n", "{how}");
        assert!(ended.error.contains("can be called once"), "{}", ended.error);
    }
}

#[test]
fn a_program_makes_packets_of_its_own() {
    let program = Program::new("tests/programs/originate.c");
    let (read, write) = (program.path("in.pcap"), program.path("out.pcapng"));
    let frames: Vec<_> = (0..5).map(|number| frame(number, 60)).collect();
    write_capture(&read, &frames);
    let wire = json!({ "driver": { "pcap": { "read": read, "write": write } } });
    let ended = program.run(&on(wire)).expect(0);
    assert_eq!(ended.drops(), 0, "{}", ended.error);
    let mut expected = Vec::new();
    for frame in &frames {
        expected.push(frame[4..24].to_vec());
        expected.push([&[0xaa, 0xaa], &frame[4..24], &[0xbb]].concat());
    }
    expected.push(vec![0xcc; 30]);
    assert_eq!(read_capture(&write), expected);
}

/// Acts as the slow path of `hold.c`: learns four keys, resumes two and discards one.
fn answer(session: &Path) {
    const ASK: u32 = 1;
    const GO: u32 = 2;
    const END: u32 = 3;
    let patience = Duration::from_secs(60);
    let slow = fastlane::slow::attach_wait(session.to_str().unwrap(), patience).unwrap();
    let mut messages = slow.messages().unwrap();
    let mut asked = BTreeSet::new();
    while asked.len() < 4 {
        let message = messages.receive(patience).unwrap().expect("it asks for each key");
        match message.punted() {
            Some(punted) => {
                assert_eq!((punted.reason, punted.port, punted.lane), (77, 0, 0));
                assert_eq!((punted.length, punted.bytes), (60, &frame_under_key(0)[..]));
                asked.insert(0);
            }
            None => {
                assert_eq!((message.kind, message.body.len()), (ASK, 1));
                asked.insert(message.body[0]);
            }
        }
    }
    for key in [1_u8, 3, 0] {
        assert!(messages.send_value(0, GO, &key));
        let reply = messages.receive(patience).unwrap().expect("it says that it has read");
        assert_eq!((reply.kind, reply.body.len()), (GO, 0));
    }
    assert!(messages.send(0, END, b""));
}

fn frame_under_key(number: u8) -> Vec<u8> {
    [&[number % 4], &frame(number, 59)[..]].concat()
}

#[test]
fn a_program_holds_packets_until_the_slow_path_answers() {
    let program = Program::new("tests/programs/hold.c");
    let (read, write) = (program.path("in.pcap"), program.path("out.pcapng"));
    write_capture(&read, &(0..40).map(frame_under_key).collect::<Vec<_>>());
    let mut configuration = on(json!({ "driver": { "pcap": { "read": read, "write": write } } }));
    configuration["messages"] = json!({ "ring-kib": 64 });
    let (command, session) = (program.command(&configuration), program.path("session.sock"));
    let slow_path = std::thread::spawn(move || answer(&session));
    let ended = finish(command).expect(0);
    slow_path.join().unwrap();
    assert_eq!(ended.counter("verdict_hold"), 40, "{}", ended.error);
    assert_eq!(ended.counter("verdict_reflect"), 20);
    assert_eq!(ended.counter("drop_held_at_end") + ended.counter("discarded_packets"), 20);
    // Those of one key in order, and the keys in the order of the answers.
    let of_key = |key: u8| (0..40).filter(move |number| number % 4 == key).map(frame_under_key);
    assert_eq!(read_capture(&write), of_key(1).chain(of_key(0)).collect::<Vec<_>>());
}

#[test]
fn the_inline_functions_keep_the_window_in_the_frame() {
    let program = Program::new("tests/programs/inline.c");
    let ended = finish(Command::new(program.path("program")));
    assert_eq!((ended.status, ended.out.as_str()), (0, ""));
}

#[test]
fn command_line_and_exit_statuses_are_those_of_every_application() {
    let macswap = Program::new(MACSWAP);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(macswap.path("program"));
        command.args(arguments);
        finish(command)
    };
    assert_eq!(run(&["--schema"]).expect(0).out, fastlane::config::schema());
    let help = run(&["--help"]).expect(0).out;
    assert!(help.contains("Usage: program") && help.contains("Exit status"), "{help}");
    assert!(run(&[]).expect(2).error.contains("<CONFIG>"));
    assert!(run(&["--what"]).expect(2).error.contains("--what"));
    assert!(run(&["/nowhere/x.json"]).expect(3).error.contains("/nowhere/x.json"));

    let mut command = macswap.command(&on(memory(8)));
    command.arg("--check");
    assert!(finish(command).expect(0).out.contains("wire"));
    let wrong = json!({ "ports": { "wire": { "driver": { "memry": {} } } } });
    let ended = macswap.run(&wrong).expect(3);
    assert!(ended.error.contains("memry") && ended.error.contains("memory"), "{}", ended.error);
    let absent = json!({ "driver": { "pcap": { "read": "/nowhere/x.pcap" } } });
    assert!(macswap.run(&on(absent)).expect(4).error.contains("/nowhere/x.pcap"));
    // The same configuration as the one in Rust.
    let shared = manifest("../../apps/macswap/config/af-xdp.json");
    let set = "ports.wire.driver={\"memory\":{}}";
    run(&[shared.to_str().unwrap(), "--check", "--set", set, "--set", "ports.wire.steer=[]"])
        .expect(0);
}

#[test]
fn programs_run_under_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return eprintln!("skipped: valgrind is not installed");
    }
    for source in ["garbage.c", "originate.c"] {
        let program = Program::new(&format!("tests/programs/{source}"));
        let read = program.path("in.pcap");
        write_capture(&read, &vec![frame(0, 60); 5000]);
        let mut configuration =
            on(json!({ "driver": { "pcap": { "read": read, "write": program.path("out") } } }));
        configuration["lanes"] = json!({ "frames": 256 });
        let (plain, mut command) = (program.command(&configuration), Command::new("valgrind"));
        command.args(["--quiet", "--error-exitcode=99"]).arg(plain.get_program());
        let ended = finish({
            command.args(plain.get_args());
            command
        });
        assert!(ended.expect(0).counter("received_packets") > 0, "{source}");
    }
}

#[test]
fn older_programs_run_and_newer_ones_are_refused() {
    let program = Program::new("tests/programs/abi.c");
    for (age, status, text) in [
        ("older", 0, "verdict_reflect"),
        ("newer", 5, "compile it again with the header that came with the library"),
        ("other", 5, "compile it again with the header that came with the library"),
        ("nothing", 5, "needs an application"),
        ("incomplete", 4, "has no function `process`"),
    ] {
        let mut command = program.command(&on(memory(64)));
        command.env("AGE", age);
        let ended = finish(command).expect(status);
        assert!(ended.error.contains(text), "{age}: {}", ended.error);
    }
}

#[test]
fn the_header_needs_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let use_all = "int main(int argc, char **argv)\n{\n    struct fl_app app = {0};\n    \
                   return argc > 5 ? fl_main(argc, argv, &app) : 0;\n}\n";
    let cases = [
        ("cc", "-std=c11", "c"),
        ("cc", "-std=c17", "c"),
        ("g++", "-std=c++11", "cpp"),
        ("g++", "-std=c++20", "cpp"),
        ("clang", "-std=c11", "c"),
        ("clang++", "-std=c++17", "cpp"),
    ];
    for (compiler, standard, suffix) in cases {
        if compiler != "cc" && Command::new(compiler).arg("--version").output().is_err() {
            eprintln!("skipped for {compiler}: it is not installed");
            continue;
        }
        let source = folder.path().join(format!("alone.{suffix}"));
        let use_all = if suffix == "c" { use_all } else { &use_all.replace("{0}", "{}") };
        std::fs::write(&source, format!("#include <fastlane.h>\n#include <fastlane.h>\n{use_all}"))
            .unwrap();
        let mut command = Command::new(compiler);
        command.arg(standard).args(FLAGS).arg("-c").arg("-I").arg(manifest("include"));
        command.arg(&source).arg("-o").arg(folder.path().join("alone.o"));
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler} {standard}: {error}");
    }
}
