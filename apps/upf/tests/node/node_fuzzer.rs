//! Input interpreter of the fuzzer of the PFCP node, shared with the test that replays the corpus.
//! A step of an input is two octets (action, length) and up to `length` pairs of octets. A longer
//! datagram begins with steps of action [`BEGINS`]; one of an odd length has an octet more. In a
//! session related message SEID 1 stands for the one that the node gave last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastlane_pfcp::ie::FSeid;
use fastlane_pfcp::{Message, MessageType};
use fastlane_testing::sleeping_lane;
use upf::config::Settings;
use upf::pfcp::node::{Keep, NodeTables};
use upf::pfcp::{Node, Outbox};
use upf::rules::Capacities;
use upf::rules::Private;
use upf::time::Now;

const UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const SECOND: u64 = 1_000_000_000;
/// Action whose octets are the beginning of the next datagram.
pub(crate) const BEGINS: u8 = 199;
/// Magic value that starts a successor process, which takes as long as the rest of an input.
const AGAIN: &[u8] = b"again!";
/// Maximum size of the responses to one datagram: 32 messages of a bundle.
const MOST: usize = 32 * 65_536;

pub(crate) struct NodeFuzzer {
    settings: Settings,
    memory: Private,
    node: Node,
    now: Now,
    /// Beginning of the next datagram.
    begun: Vec<u8>,
    /// SEID that the node gave last.
    up_seid: u64,
}

fn open(settings: &Settings, memory: &Private, now: Now) -> Node {
    let parts = NodeTables::private(settings, memory).expect("tables");
    Node::open(settings, parts, &mut Keep::default(), now, &mut Outbox::new()).expect("a node")
}

impl NodeFuzzer {
    pub(crate) fn new() -> Self {
        let settings: Settings = serde_json::from_str(SETTINGS).expect("settings");
        let memory = Private::new(Capacities::of(&settings).with_answers(4096), sleeping_lane());
        let now = Now { monotonic: 1000 * SECOND, real: 1_780_000_000 * SECOND };
        let node = open(&settings, &memory, now);
        Self { settings, memory, node, now, begun: Vec::new(), up_seid: 0 }
    }

    /// Runs the steps of an input and checks that everything is removed in the end.
    pub(crate) fn show(&mut self, input: &[u8]) {
        let mut rest = input;
        while let [what, length, after @ ..] = rest {
            let (bytes, next) = after.split_at(after.len().min(usize::from(*length) * 2));
            self.step(*what, bytes);
            rest = next;
        }
        self.forget();
    }

    fn step(&mut self, what: u8, bytes: &[u8]) {
        let mut out = Outbox::new();
        match what {
            BEGINS => self.begun.extend_from_slice(bytes),
            0..=198 => {
                let bytes = &self.datagram(bytes)[..];
                let from = (Ipv4Addr::new(192, 0, 2, 100 + what % 4), 8805);
                self.node.receive(self.now, UPF, SocketAddr::from(from), bytes, &mut out);
                // The same octets as GTP-U.
                self.node.receive_gtpu(self.now, UPF, SocketAddr::from(from), bytes, &mut out);
                let sent: usize = out.datagrams.iter().map(|datagram| datagram.bytes.len()).sum();
                assert!(sent <= MOST, "{sent} octets for {}", bytes.len());
                self.learn(&out);
            }
            200..=229 => self.node.lane_message(self.now, (what % 5).into(), bytes, &mut out),
            230..=254 => {
                self.now = self.now.after(u64::from(what - 229) * SECOND);
                self.node.tick(self.now, &mut out);
            }
            255 if bytes == AGAIN => self.node = open(&self.settings, &self.memory, self.now),
            255 => {}
        }
    }

    /// Returns the datagram that ends with these octets.
    fn datagram(&mut self, end: &[u8]) -> Vec<u8> {
        let mut datagram = std::mem::take(&mut self.begun);
        datagram.extend_from_slice(end);
        let Ok((message, rest)) = Message::parse(&datagram) else { return datagram };
        let (seid, is_padded) = (message.header.seid, rest.len() == 1);
        if is_padded {
            datagram.pop();
        }
        if seid == Some(1) {
            datagram[4..12].copy_from_slice(&self.up_seid.to_be_bytes());
        }
        datagram
    }

    /// Notes the SEID that the node gave.
    fn learn(&mut self, out: &Outbox) {
        for sent in &out.datagrams {
            let Ok((message, _)) = Message::parse(&sent.bytes) else { continue };
            if message.header.message_type == MessageType::SESSION_ESTABLISHMENT_RESPONSE
                && let Ok(Some(FSeid { seid, .. })) = message.group().find()
            {
                self.up_seid = seid;
            }
        }
    }

    /// Lets all associations expire, and their sessions with them.
    fn forget(&mut self) {
        for _ in 0..40 {
            self.now = self.now.after(SECOND);
            self.node.tick(self.now, &mut Outbox::new());
        }
        assert_eq!(self.node.associations().count(), 0);
        assert!(self.node.sessions().is_empty() && self.node.paths().is_empty());
    }
}

const SETTINGS: &str = r#"{
    "node-id": "upf.example",
    "n4": { "addresses": ["192.0.2.1"], "t1-ms": 1000, "n1": 2, "heartbeat-s": 10 },
    "interfaces": {
        "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                "addresses": ["10.3.0.1", "2001:db8:3::1"] },
        "n6": { "port": "n6", "role": "n6", "network-instances": ["internet", "core.oai"] }
    },
    "pools": [{ "network-instance": "internet", "prefix": "10.45.0.0/24" }],
    "sessions": 64
}"#;
