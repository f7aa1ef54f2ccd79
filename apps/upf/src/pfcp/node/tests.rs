//! Scenarios of the PFCP node on real tables: datagrams and times in, datagrams out.

mod association_procedures;
mod draining;
mod hostile;
mod limits_of_slices;
mod markers;
mod ours;
mod removals;
mod session_requests;
mod smf_sets;
mod sources;
mod strangers;
mod user_packets;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastlane_pfcp::ie::{CauseIe, NodeId, OffendingIe, RecoveryTimeStamp};
use fastlane_pfcp::{Header, Message, MessageType, Writer};
use fastlane_testing::sleeping_lane;

use super::*;
use crate::pfcp::Outgoing;
use crate::rules::{Capacities, Private};

const UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)), 8805);
const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 101)), 8805);
const STARTED: u32 = 3_900_000_000;

fn settings(more: serde_json::Value) -> Settings {
    let mut all = serde_json::json!({
        "node-id": "upf.example",
        "n4": { "addresses": ["192.0.2.1"], "t1-ms": 1000, "n1": 3, "heartbeat-s": 10,
                "release-s": 20 },
        "interfaces": {
            "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                    "addresses": ["10.3.0.1"] },
            "n6": { "port": "n6", "role": "n6", "network-instances": ["internet"] },
        },
        "sessions": 64,
    });
    let serde_json::Value::Object(more) = more else { panic!("no object") };
    for (key, value) in more {
        all["n4"][key] = value;
    }
    serde_json::from_value(all).unwrap()
}

fn open(settings: &Settings, memory: &Private, now: Now, out: &mut Outbox) -> Node {
    let parts = NodeTables::private(settings, memory).unwrap();
    Node::open(settings, parts, &mut Keep::default(), now, out).unwrap()
}

/// A node with its tables and a clock.
struct NodeTestbed {
    /// Memory of the user plane process, which outlives nodes.
    memory: Private,
    settings: Settings,
    node: Node,
    now: Now,
}

impl NodeTestbed {
    fn new(more: serde_json::Value) -> Self {
        let settings = settings(more);
        let memory = Private::new(Capacities::of(&settings).with_answers(4096), sleeping_lane());
        let now = Now { monotonic: 1000 * SECOND, real: 1_780_000_000 * SECOND };
        let node = open(&settings, &memory, now, &mut Outbox::new());
        Self { memory, settings, node, now }
    }

    /// Kills the process and starts a successor on its tables. Returns the datagrams it sends at
    /// once.
    fn kill(&mut self) -> Vec<Outgoing> {
        let mut out = Outbox::new();
        self.node = open(&self.settings, &self.memory, self.now, &mut out);
        out.datagrams
    }

    fn send(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Outgoing> {
        let mut out = Outbox::new();
        self.node.receive(self.now, UPF, from, datagram, &mut out);
        out.datagrams
    }

    /// Sends a request and returns its only response.
    fn ask(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<u8> {
        let mut answers = self.send(from, datagram);
        assert_eq!(answers.len(), 1, "{answers:?}");
        let answer = answers.remove(0);
        assert_eq!((answer.to, answer.local), (from, Some(UPF)));
        answer.bytes
    }

    /// Advances the time in steps of 0.1 s. Returns the datagrams sent, each with its step.
    fn pass(&mut self, tenths: u64) -> Vec<(u64, Outgoing)> {
        let mut sent = Vec::new();
        for tenth in 1..=tenths {
            self.now = self.now.after(SECOND / 10);
            let mut out = Outbox::new();
            let deadline = self.node.tick(self.now, &mut out);
            assert!(deadline.is_none_or(|at| at > self.now.monotonic), "{deadline:?}");
            sent.extend(out.datagrams.into_iter().map(|datagram| (tenth, datagram)));
        }
        sent
    }

    fn associate(&mut self, from: SocketAddr, sequence: u32, name: &[u8], recovery: u32) {
        let answer = self.ask(from, &setup(sequence, name, recovery));
        assert_eq!(cause(&answer), 1);
    }
}

fn request(
    message_type: MessageType,
    sequence: u32,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).message(Header::node(message_type, sequence), body);
    bytes
}

fn setup(sequence: u32, name: &[u8], recovery: u32) -> Vec<u8> {
    request(MessageType::ASSOCIATION_SETUP_REQUEST, sequence, |to| {
        to.put(&NodeId::Name(name));
        to.put(&RecoveryTimeStamp(recovery));
    })
}

fn of_node(message_type: MessageType, sequence: u32, name: &[u8]) -> Vec<u8> {
    request(message_type, sequence, |to| to.put(&NodeId::Name(name)))
}

fn heartbeat(sequence: u32, recovery: u32) -> Vec<u8> {
    request(MessageType::HEARTBEAT_REQUEST, sequence, |to| to.put(&RecoveryTimeStamp(recovery)))
}

fn parse(bytes: &[u8]) -> Message<'_> {
    let (message, rest) = Message::parse(bytes).unwrap();
    assert!(rest.is_empty());
    message.check().unwrap();
    message
}

fn cause(bytes: &[u8]) -> u8 {
    parse(bytes).group().need::<CauseIe>().unwrap().0
}

fn offending(bytes: &[u8]) -> Option<u16> {
    parse(bytes).group().find::<OffendingIe>().unwrap().map(|it| it.0)
}

fn type_of(bytes: &[u8]) -> MessageType {
    parse(bytes).header.message_type
}

const SMF_NAME: &[u8] = b"\x03smf";
const OTHER_NAME: &[u8] = b"\x05other";
