//! The same macswap on every mechanism: what differs is one word of the configuration.

use std::net::Ipv4Addr;
use std::path::Path;

use fastlane_testing::{Addresses, Tag};
use fastlane_tests::{Application, Echo, LEFT_MAC, Lab, RIGHT_MAC, capture, eventually, mac};
use serde_json::{Value, json};

const FRAMES: u32 = 1000;

/// Starts macswap on the left host with a driver given on the command line.
fn on(lab: &Lab, driver: &str) -> Application {
    let configuration = json!({"ports": {"wire": {"driver": {"af-xdp": {"interface": "wire0"}}}}});
    let (mut command, session) = Application::wrapped(lab, &[], configuration);
    command.args(["--set", &format!("ports.wire.driver={driver}")]);
    Application::run(command, session)
}

fn driver(macswap: &Application) -> Value {
    macswap.totals().0["application"]["ports"][0]["driver"].clone()
}

#[test]
fn on_af_xdp_and_af_packet_it_answers_a_wire() {
    let Some(lab) = Lab::new("same-binary-wire", 1) else { return };
    // Whatever Linux sends on its own would be reflected too.
    let mut echo = Echo::new(&lab.right, "wire0");
    for word in ["af-xdp", "af-packet"] {
        let macswap = on(&lab, word);
        (0..100).for_each(|_| echo.once());
        assert_eq!(driver(&macswap), word);
        macswap.stop();
    }
}

#[test]
fn on_a_tap_it_answers_linux() {
    let Some(lab) = Lab::new("same-binary-tap", 1) else { return };
    let macswap = on(&lab, r#"{"tap": {"name": "wire9", "addresses": ["192.0.2.1/24"]}}"#);
    // The other end of a TAP is Linux itself: a raw socket on the interface.
    let mut echo = Echo::new(&lab.left, "wire9");
    (0..100).for_each(|_| echo.once());
    let address = lab.left.run(&["ip", "-4", "address", "show", "dev", "wire9"]);
    assert!(address.contains(&Ipv4Addr::new(192, 0, 2, 1).to_string()), "{address}");
    assert_eq!(driver(&macswap), "tap");
    macswap.stop();
}

#[test]
fn on_memory_its_frames_go_round() {
    let Some(lab) = Lab::new("same-binary-memory", 1) else { return };
    let macswap = on(&lab, r#"{"memory": {"fill": {"frames": 64, "length": 60}}}"#);
    eventually("frames go round", || macswap.totals().wire("received_packets") > 100_000);
    let ended = macswap.stop();
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
    assert_eq!(ended.counter("received_packets"), ended.counter("sent_packets"));
}

#[test]
fn on_rings_both_ends_are_ports() {
    let Some(lab) = Lab::new("same-binary-ring", 1) else { return };
    let ring = |peer: &str| json!({"driver": {"ring": {"peer": peer}}});
    let configuration = json!({"ports": {"wire": ring("other"), "other": ring("wire")}});
    let macswap = Application::macswap(&lab, configuration);
    assert_eq!(driver(&macswap), "ring");
    assert_eq!(macswap.totals().port("other", "received_packets"), 0);
    macswap.stop();
}

/// Returns the frames of a capture file, as tcpdump reads them.
fn frames(lab: &Lab, path: &Path) -> Vec<String> {
    let path = path.to_str().expect("a path in ASCII");
    let text = lab.left.run(&["tcpdump", "-Z", "root", "-n", "-t", "-q", "-xx", "-r", path]);
    let mut frames = Vec::new();
    for line in text.lines() {
        match line.split_once(":  ") {
            Some((offset, digits)) if offset.trim_start().starts_with("0x") => {
                let frame: &mut String = frames.last_mut().expect("a headline before the bytes");
                frame.extend(digits.chars().filter(char::is_ascii_hexdigit));
            }
            _ => frames.push(String::new()),
        }
    }
    frames
}

#[test]
fn on_capture_files_what_is_written_is_what_was_read_with_its_addresses_swapped() {
    let Some(lab) = Lab::new("same-binary-pcap", 1) else { return };
    let addresses = Addresses { device: mac(LEFT_MAC), peer: mac(RIGHT_MAC) };
    let frame = |sequence| {
        let length = 60 + sequence as usize * 7 % 1400;
        Tag { test: 1, sequence }.frame(addresses, length)
    };
    let read: Vec<Vec<u8>> = (0..FRAMES).map(frame).collect();
    let (from, to) = (lab.file("in.pcap"), lab.file("out.pcapng"));
    std::fs::write(&from, capture(&read)).expect("the capture is written");
    let macswap = on(&lab, &json!({"pcap": {"read": from, "write": to}}).to_string());
    eventually("all is sent", || macswap.totals().wire("sent_packets") == u64::from(FRAMES));
    macswap.stop();
    let expected: Vec<String> = read
        .iter()
        .map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat())
        .map(|frame| frame.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    assert_eq!(frames(&lab, &to), expected);
}
