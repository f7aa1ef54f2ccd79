//! Cost of the user plane per packet: `lanes up|down|none SESSIONS PACKETS` passes packets of
//! random sessions through it on a memory port, or with `none` only builds them. Under cachegrind
//! the difference of two runs is the number of instructions; otherwise it prints the time.
//!
//! ```sh
//! cargo build --release -p upf --example lanes
//! valgrind --tool=cachegrind --cache-sim=no target/release/examples/lanes up 10000 262144
//! ```

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/packets/frames.rs"]
mod frames;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../tests/packets/test_lane.rs"]
mod test_lane;

use std::time::Instant;

use fastlane::{App, Packet, PortId, Turn, Verdict};
use fastlane_core::{Lane, LaneConfig, Pool, Port};
use fastlane_local::memory::Memory;
use fastlane_table::SharedMemory;
use fastlane_table::counters::Counters;
use test_lane::{INTERNET, SERVER, TestRoutes, USER, settings, simple, tables, teid};
use upf::datapath::Upf;
use upf::rules::layout::session_rules::{Rules, flag};
use upf::rules::layout::{SessionRef, UeKey};
use upf::session::SessionIndex;

/// Passes each packet of a burst as one that has just arrived.
struct Shown {
    upf: Option<Upf<TestRoutes>>,
    frame: Vec<u8>,
    /// Offset of the session index in a frame, and the bytes in front of it.
    at: usize,
    number: fn(u32) -> [u8; 4],
    sessions: u32,
    random: u32,
}

impl Shown {
    fn make(&mut self, packet: &mut Packet) {
        let behind = packet.headroom();
        let moved = if behind > HEADROOM {
            packet.prepend(behind - HEADROOM).is_some()
        } else {
            packet.trim_front(HEADROOM - behind)
        };
        let length = self.frame.len();
        let fits = match packet.len() < length {
            true => packet.append(length - packet.len()).is_some(),
            false => packet.truncate(length),
        };
        assert!(moved && fits, "a frame has room");
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let session = ((u64::from(self.random) * u64::from(self.sessions)) >> 32) as u32;
        let bytes = packet.bytes_mut();
        bytes.copy_from_slice(&self.frame);
        let number = (self.number)(session);
        bytes[self.at..self.at + 4].copy_from_slice(&number);
        if self.at == 30 {
            frames::fill(&mut bytes[14..34]);
        } else {
            bytes[70..74].copy_from_slice(&user(session));
        }
    }
}

impl App for Shown {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        for packet in packets.iter_mut() {
            self.make(packet);
        }
        if let Some(upf) = &mut self.upf {
            upf.process(packets, turn);
            assert!(
                packets
                    .iter()
                    .all(|it| matches!(it.verdict().verdict(), Some(Verdict::Forward(_))))
            );
        }
        packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Reflect));
    }

    fn turn(&mut self, turn: &mut Turn) {
        if let Some(upf) = &mut self.upf {
            upf.turn(turn);
        }
    }
}

const HEADROOM: usize = 192;
/// Maximum number of sessions.
const SESSIONS: usize = 16_384;

fn user(session: u32) -> [u8; 4] {
    [10, 45, (session >> 8) as u8, session as u8]
}

/// Builds rules with a meter and a URR in both directions.
fn rules(session: u32) -> Rules {
    let mut rules = simple(1);
    rules.uplink.ue4 = u32::from_be_bytes(user(session));
    rules.uplink.common.tunnel = teid(SessionIndex(session));
    for side in [&mut rules.uplink.common, &mut rules.downlink.common] {
        side.flags |= flag::METER | flag::COUNT;
        (side.cost, side.burst, side.forwarding.shift) = (1, 1000, 8);
    }
    rules
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, which, sessions, packets] = &arguments[..] else {
        panic!("usage: lanes up|down|none SESSIONS PACKETS");
    };
    let sessions: u32 = sessions.parse().expect("a number");
    let packets: u64 = packets.parse().expect("a number");
    let (tables, mut writers) = tables();
    for session in 0..sessions {
        writers.rules.set(session as usize, &rules(session)).expect("there is room");
        let key = UeKey::v4(INTERNET, user(session).into());
        let found = SessionRef::to(SessionIndex(session));
        writers.users.insert(&key, &found).expect("there is room");
    }
    let is_down = which.starts_with("down");
    let port = PortId(u16::from(is_down));
    let settings = serde_json::from_value(settings()).expect("settings");
    let upf = Upf::new(&settings, 2, tables, TestRoutes::new(), |name| {
        Ok(PortId(u16::from(name == "n6")))
    })
    .expect("the settings are right");
    let inner = |from, to| frames::ue4(from, to, 64, 36);
    let (frame, at, number): (_, _, fn(u32) -> [u8; 4]) = if is_down {
        (frames::ethernet(1, &inner(SERVER, USER)), 30, user)
    } else {
        let message = frames::g_pdu(1, 1, 9, &inner(USER, SERVER));
        (frames::from_gnb(&message), 46, |session| teid(SessionIndex(session)).to_be_bytes())
    };
    let upf = (!which.ends_with("none")).then_some(upf);
    let app = Shown { upf, frame, at, number, sessions, random: 1 };
    let memory = SharedMemory::create("lanes", 512 * 2048).expect("memory");
    let mut pool = Pool::new(memory, 2048, HEADROOM).expect("the frame size is allowed");
    let length = app.frame.len();
    let queue = Memory::filled(port, &mut pool, 256, &vec![0; length]).expect("there are frames");
    let counters = Counters::create(1, 2).expect("memory");
    let mut ports = vec![
        Port { queues: vec![], kernel: None, filter: None, counters: counters.port(0, 0) },
        Port { queues: vec![], kernel: None, filter: None, counters: counters.port(0, 1) },
    ];
    ports[usize::from(port.0)].queues.push(Box::new(queue));
    let mut lane = Lane::new(app, LaneConfig::new(pool, ports, counters.lane(0)));
    let started = Instant::now();
    for _ in 0..packets / 32 {
        assert_eq!(lane.turn(), 32);
    }
    let each = started.elapsed().as_nanos() as f64 / packets as f64;
    println!("{which}: {each:.1} ns for each of {packets} packets");
    assert_eq!(lane.close(), 0, "all frames come back");
}
