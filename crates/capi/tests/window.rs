//! Tests that moving the ends of a packet in C equals Rust: the same steps on both sides.

mod support;

use std::fmt::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fastlane::{Packet, Turn, Verdict};
use serde_json::{Value, json};
use support::Program;
use support::capture::{read_capture, write_capture};

const PACKETS: usize = 500;
const STEPS: usize = 15;
const FILLER: u8 = 0x5a;

/// Rust twin of `window.c`.
struct Window {
    seen: usize,
    said: Arc<Mutex<String>>,
}

impl fastlane::App for Window {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        let mut said = self.said.lock().unwrap();
        for packet in packets.iter_mut() {
            let steps = packet.bytes()[..4 * STEPS].to_vec();
            for it in steps.chunks_exact(4) {
                let amount = match it[3] {
                    128.. => (edge(packet, it[0] % 4) + usize::from(it[1] % 3)).saturating_sub(1),
                    shift => usize::from(u16::from_le_bytes([it[1], it[2]])) >> (shift % 16),
                };
                let done = step(packet, it[0] % 4, amount);
                let (length, headroom) = (packet.len(), packet.headroom());
                writeln!(said, "{} {length} {headroom} {}", u8::from(done), packet.tailroom())
                    .unwrap();
            }
            packet.set_verdict(if packet.len() > 0 { Verdict::Reflect } else { Verdict::Drop });
        }
        self.seen += packets.len();
        if self.seen == PACKETS {
            turn.end();
        }
    }
}

/// Returns the maximum of a step: half of all steps are within one of it.
fn edge(packet: &Packet, kind: u8) -> usize {
    match kind {
        0 => packet.headroom(),
        1 => packet.tailroom(),
        _ => packet.len(),
    }
}

fn step(packet: &mut Packet, kind: u8, count: usize) -> bool {
    let added = match kind {
        0 => packet.prepend(count),
        1 => packet.append(count),
        2 => return packet.trim_front(count),
        _ => return packet.truncate(count),
    };
    added.map(|added| added.fill(FILLER)).is_some()
}

fn configuration(read: &Path, write: &Path) -> Value {
    json!({
        "lanes": { "frame-size": 65536, "frames": 64, "headroom": 1000 },
        "ports": { "wire": { "driver": { "pcap": { "read": read, "write": write } } } },
    })
}

#[test]
fn the_same_steps_have_the_same_results_in_c_and_in_rust() {
    let program = Program::new("tests/programs/window.c");
    let read = program.path("in.pcap");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut byte = || {
        // xorshift64 (Marsaglia, "Xorshift RNGs", 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 32) as u8
    };
    let frames: Vec<Vec<u8>> =
        (0..PACKETS).map(|number| (0..60 + number % 2 * 1400).map(|_| byte()).collect()).collect();
    write_capture(&read, &frames);

    let in_c = program.path("c.pcapng");
    let ended = program.run(&configuration(&read, &in_c)).expect(0);
    assert_eq!(ended.drops(), 0, "{}", ended.error);

    let in_rust = program.path("rust.pcapng");
    let mut ours = configuration(&read, &in_rust);
    ours["session"] = program.path("rust.sock").to_str().into();
    let path = program.path("rust.json");
    std::fs::write(&path, ours.to_string()).unwrap();
    let said = Arc::new(Mutex::new(String::new()));
    let factory = |_: &fastlane::LaneInfo<'_>| Ok(Window { seen: 0, said: Arc::clone(&said) });
    let arguments = ["window".into(), path.into_os_string()];
    assert_eq!(fastlane::main_from(arguments, &Arc::default(), factory), 0);

    let said = said.lock().unwrap();
    assert_eq!(said.lines().count(), PACKETS * STEPS);
    for (number, (c, rust)) in ended.out.lines().zip(said.lines()).enumerate() {
        assert_eq!(c, rust, "step {number}");
    }
    assert_eq!(ended.out.len(), said.len());
    for done in ["0 ", "1 "] {
        let count = said.lines().filter(|line| line.starts_with(done)).count();
        assert!(count > PACKETS, "{count} steps of {done}");
    }
    assert!(read_capture(&in_c) == read_capture(&in_rust), "the bytes differ");
}
