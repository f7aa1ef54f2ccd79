//! `fastlane capture` on a running application, read by tshark.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fastlane_testing::skip;
use fastlane_tests::{
    Application, Echo, Ended, LEFT_MAC, Lab, Mechanism, Process, RIGHT_MAC, binary, capture,
    eventually, mac,
};
use rustix::process::Signal;
use serde_json::json;

const FRAMES: usize = 300;

/// Creates a lab if tshark is installed.
fn lab(story: &str) -> Option<Lab> {
    if Command::new("tshark").arg("--version").output().is_err() {
        skip(story, "tshark is not installed");
        return None;
    }
    Lab::new(story, 1)
}

/// Starts a capture into a file.
fn begin(lab: &Lab, application: &Application, file: &Path, words: &[&str]) -> Process {
    let mut command = lab.left.command(&[]);
    command.arg(binary("fastlane")).arg("capture").arg(application.session());
    command.arg("--write").arg(file).args(words);
    Process::start(command)
}

/// Starts a capture into a file and waits until all lanes capture.
fn start(lab: &Lab, application: &Application, file: &Path, words: &[&str]) -> Process {
    let capture = begin(lab, application, file, words);
    capture.wait_for("capturing macswap (process ");
    capture
}

fn ended_well(ended: &Ended) {
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

/// Returns the number of packets that a capture has written and the number that it has missed.
fn summary(ended: &Ended) -> (usize, u64) {
    ended_well(ended);
    let line = ended.stderr.lines().find(|line| line.contains("captured; ")).expect("a summary");
    let words: Vec<&str> = line.split(' ').collect();
    (words[1].parse().expect("a number"), words[4].parse().expect("a number"))
}

/// Returns these fields of each packet of a file, as tshark reads them.
fn fields(file: &Path, names: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(file).args(["-T", "fields"]);
    for name in names {
        tshark.args(["-e", name]);
    }
    let output = tshark.output().expect("tshark can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Starts macswap with a memory port in which frames circulate at the maximum rate.
fn whirl(lab: &Lab, cpus: &[usize]) -> Application {
    let memory = json!({"memory": {"fill": {"frames": 64, "length": 200}}});
    let lanes = json!({"cpus": cpus});
    Application::macswap(lab, json!({"ports": {"wire": {"driver": memory}}, "lanes": lanes}))
}

#[test]
fn packets_ports_verdicts_and_times_are_those_of_the_wire() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = lab("capture-wire") else { return };
        let file = lab.file("wire.pcapng");
        let macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
        let capture = start(&lab, &macswap, &file, &[]);
        let mut echo = Echo::new(&lab.right, "wire0");
        (0..FRAMES).for_each(|_| echo.once());
        capture.signal(Signal::INT);
        let ended = capture.wait();
        assert_eq!(summary(&ended), (2 * FRAMES, 0));
        let totals = macswap.totals();
        assert_eq!(totals.wire("received_packets"), FRAMES as u64);
        assert_eq!((totals.wire("sent_packets"), totals.drops("wire")), (FRAMES as u64, vec![]));

        let names = [
            "frame.interface_name",
            "frame.packet_flags_direction",
            "frame.comment",
            "eth.src",
            "frame.len",
            "frame.time_epoch",
        ];
        let packets = fields(&file, &names);
        assert_eq!(packets.len(), 2 * FRAMES);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs_f64();
        let mut last = 0.0;
        for (number, packet) in packets.iter().enumerate() {
            let (comment, direction, source) = match number % 2 {
                0 => ("lane 0, verdict reflect", "0x00000001", RIGHT_MAC),
                _ => ("lane 0, sent, verdict reflect", "0x00000002", LEFT_MAC),
            };
            assert_eq!((packet[0].as_str(), packet[1].as_str()), ("wire", direction), "{number}");
            assert_eq!(packet[2].split(", checksum").next(), Some(comment), "{number}");
            assert_eq!((packet[3].as_str(), packet[4].as_str()), (source, "100"), "{number}");
            let time: f64 = packet[5].parse().expect("seconds");
            assert!(time >= last && (now - 60.0..=now).contains(&time), "{time} after {last}");
            last = time;
        }
        macswap.stop();
    }
}

/// Builds an IPv4 UDP frame to a port, without a checksum.
fn datagram(port: u16) -> Vec<u8> {
    let mut frame = [mac(LEFT_MAC), mac(RIGHT_MAC)].concat();
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1]);
    frame.extend([0x9c, 0x40]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 0xaa);
    frame
}

#[test]
fn filters_find_the_few_among_the_many() {
    let Some(lab) = lab("capture-filters") else { return };
    let frames: Vec<_> = (0..1000).map(|number| datagram(1000 + number)).collect();
    let read = lab.file("read.pcap");
    std::fs::write(&read, capture(&frames)).expect("a file of frames");
    let driver = json!({"pcap": {"read": read, "repeat": 0, "write": "/dev/null"}});
    let macswap = Application::macswap(&lab, json!({"ports": {"wire": {"driver": driver}}}));

    let file = lab.file("out.pcapng");
    let of = |words: &[&str]| {
        let (count, _) = summary(&start(&lab, &macswap, &file, words).wait());
        let packets = fields(&file, &["udp.dstport", "frame.comment", "frame.cap_len"]);
        assert_eq!(packets.len(), count);
        packets
    };
    let packets = of(&["--count", "50", "--direction", "in", "udp", "dst", "port", "1500"]);
    assert_eq!(packets.len(), 50);
    assert!(packets.iter().all(|it| it[0] == "1500" && it[1] == "lane 0, verdict reflect"));
    let packets = of(&["--count", "40", "--direction", "out", "udp dst port 1501 or 1502"]);
    assert!(
        packets.iter().all(|it| (it[0] == "1501" || it[0] == "1502") && it[1].contains("sent"))
    );
    assert_eq!(packets.len(), 40);
    let words = ["--count", "3", "--verdict", "reflect", "--port", "wire", "--lane", "0"];
    let packets = of(&[&words[..], &["--snaplen", "42", "--sample", "999"]].concat());
    assert_eq!((packets.len(), packets[0][2].as_str()), (3, "42"));
    assert_eq!(of(&["--seconds", "0.2", "tcp"]), Vec::<Vec<String>>::new());
    assert_eq!(of(&["--seconds", "0.2", "--verdict", "drop"]), Vec::<Vec<String>>::new());
    macswap.stop();
}

#[test]
fn what_is_not_captured_is_counted_and_the_application_loses_nothing() {
    let Some(lab) = lab("capture-overload") else { return };
    let macswap = whirl(&lab, &[0, 1]);
    let file = lab.file("out.pcapng");
    let capture = start(&lab, &macswap, &file, &["--buffer", "1", "--seconds", "0.5"]);
    // A reader that is not there for a while.
    capture.pause();
    std::thread::sleep(Duration::from_millis(200));
    capture.resume();
    let (captured, lost) = summary(&capture.wait());
    assert!(captured > 1000 && lost > 0, "{captured} captured, {lost} not");
    let packets = fields(&file, &["frame.time_epoch", "frame.comment"]);
    assert_eq!(packets.len(), captured);
    assert!(
        ["lane 0, ", "lane 1, "]
            .iter()
            .all(|lane| { packets.iter().any(|packet| packet[1].starts_with(lane)) })
    );
    let ended = macswap.stop();
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
    assert_eq!(ended.counter("received_packets"), ended.counter("sent_packets"));
}

#[test]
fn a_capture_that_is_killed_hurts_nobody_and_there_is_one_at_a_time() {
    let Some(lab) = lab("capture-killed") else { return };
    let macswap = whirl(&lab, &[0]);
    let file = lab.file("out.pcapng");
    for _ in 0..3 {
        let killed = start(&lab, &macswap, &file, &[]);
        let second = begin(&lab, &macswap, &lab.file("second.pcapng"), &[]).wait();
        assert_eq!(second.status.code(), Some(1), "{}", second.stderr);
        let expected = format!("captured already by process {}", killed.id());
        assert!(second.stderr.contains(&expected), "{}", second.stderr);
        killed.kill();
        let before = macswap.totals().wire("received_packets");
        eventually("it goes on", || macswap.totals().wire("received_packets") > before);
    }
    let (captured, _) = summary(&start(&lab, &macswap, &file, &["--count", "1000"]).wait());
    assert_eq!((captured, fields(&file, &["frame.number"]).len()), (1000, 1000));
    eventually("the rings are given back", || !maps(&macswap).contains("fastlane-capture"));
    let ended = macswap.stop();
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
}

/// Returns the memory mappings of a process (proc_pid_maps(5)).
fn maps(application: &Application) -> String {
    std::fs::read_to_string(format!("/proc/{}/maps", application.process.id())).expect("it runs")
}

#[test]
fn an_application_that_ends_ends_its_capture() {
    let Some(lab) = lab("capture-ends") else { return };
    let macswap = whirl(&lab, &[0]);
    let file = lab.file("out.pcapng");
    let capture = start(&lab, &macswap, &file, &["--sample", "100"]);
    eventually("packets are written", || file.metadata().is_ok_and(|it| it.len() > 10_000));
    assert!(maps(&macswap).contains("fastlane-capture"), "the control");
    macswap.stop();
    let (captured, _) = summary(&capture.wait());
    assert_eq!(fields(&file, &["frame.number"]).len(), captured);
}

#[test]
fn a_live_capture_flows_into_tshark_and_ends_with_it() {
    let Some(lab) = lab("capture-live") else { return };
    let macswap = Application::macswap(&lab, Application::steered(&Mechanism::Packet.on("wire0")));
    let mut command = Command::new(binary("fastlane"));
    command.arg("capture").arg(macswap.session());
    let mut capture =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let packets = capture.stdout.take().expect("a pipe");
    let tshark = std::thread::spawn(move || {
        let mut tshark = Command::new("tshark");
        tshark.args(["-l", "-n", "-i", "-", "-c", "20", "-T", "fields", "-e", "frame.comment"]);
        let tshark = tshark.stdin(packets).stdout(Stdio::piped()).stderr(Stdio::null());
        tshark.spawn().expect("it starts").wait_with_output()
    });
    let mut echo = Echo::new(&lab.right, "wire0");
    while !tshark.is_finished() {
        echo.once();
    }
    let output = tshark.join().expect("it does not panic").expect("it has ended");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 20);
    // It sees that nobody listens also when there is nothing to write.
    let status = capture.wait().expect("it ends");
    let mut message = String::new();
    capture.stderr.take().expect("a pipe").read_to_string(&mut message).expect("text");
    assert_eq!(status.code(), Some(0), "{message}");
    assert_eq!(message.lines().count(), 1, "quietly: {message}");
    macswap.stop();
}

#[test]
fn impossible_captures_are_refused() {
    let Some(lab) = lab("capture-refusals") else { return };
    let macswap = whirl(&lab, &[0]);
    let file = lab.file("out.pcapng");
    for (words, expected) in [
        (&["--port", "wure"][..], "no port `wure`; there are: wire"),
        (&["--lane", "3"], "no lane 3; the number of lanes is 1"),
        (&["udp", "prt", "5"], "the filter `udp prt 5`: "),
        (&["inbound"], "the filter: instruction 0 uses an extension of Linux"),
        (&["--buffer", "3"], "1, 2, 4, 8"),
        (&["--write", "/nowhere/x"], "/nowhere/x: cannot be written"),
    ] {
        let file = if words[0] == "--write" { Path::new(words[1]) } else { &file };
        let words = if words[0] == "--write" { &[] } else { words };
        let ended = begin(&lab, &macswap, file, words).wait();
        assert_ne!(ended.status.code(), Some(0));
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    macswap.stop();
}
