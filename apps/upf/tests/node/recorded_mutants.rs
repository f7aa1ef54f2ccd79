//! Recorded messages of SMFs and mutants of them, shown to a node with real tables at the point of
//! the life where they belong. A refused message changes nothing, each response keeps to the rules,
//! and nothing stays behind.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fastlane_pfcp::ie::{FSeid, FTeid, NodeId, PdrId};
use fastlane_pfcp::{Cause, Header, IeType, Message, MessageType, Writer};
use fastlane_testing::sleeping_lane;
use upf::config::Settings;
use upf::pfcp::associations::Association;
use upf::pfcp::node::{Keep, NodeTables};
use upf::pfcp::{Node, Outbox};
use upf::rules::{Capacities, Private};
use upf::session::Session;
use upf::time::Now;
use upf::usage::SessionBackend;

use crate::mutants::{self, UNCHANGED, header_length};
use crate::recorded::{Life, Request, lives};

const UPF: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 4, 0, 1));
const SMF: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 4, 0, 2)), 8805);
const SECOND: u64 = 1_000_000_000;
/// Number of mutants that all recorded messages have together, at the least.
const LEAST: usize = 40_000;

/// State of a node that a message may change.
#[derive(Debug, PartialEq)]
struct State {
    sessions: Vec<Session>,
    associations: Vec<Association>,
    entries: Vec<(&'static str, usize, usize)>,
}

/// A node and the SMF of a life.
struct World {
    node: Node,
    now: Now,
    sequence: u32,
    up_seid: u64,
    teids: BTreeMap<u16, u32>,
    _memory: Private,
}

impl World {
    fn new() -> Self {
        let settings: Settings = serde_json::from_str(SETTINGS).expect("settings");
        let memory = Private::new(Capacities::of(&settings).with_answers(4096), sleeping_lane());
        let now = Now { monotonic: 1000 * SECOND, real: 1_780_000_000 * SECOND };
        let parts = NodeTables::private(&settings, &memory).expect("tables");
        let node = Node::open(&settings, parts, &mut Keep::default(), now, &mut Outbox::new());
        let node = node.expect("a node");
        let teids = BTreeMap::new();
        Self { node, now, sequence: 0, up_seid: 0, teids, _memory: memory }
    }

    fn state(&self) -> State {
        State {
            sessions: self.node.sessions().iter().collect(),
            associations: self.node.associations().cloned().collect(),
            entries: self.node.sessions().published().entries(),
        }
    }

    /// Gives a message a sequence number that no other one has, if it has a place for it.
    fn number(&mut self, datagram: &mut [u8]) {
        self.sequence = (self.sequence + 1) & 0x00ff_ffff;
        if let Some(first) = datagram.first().copied() {
            let at = if first & 1 == 1 { 12 } else { 4 };
            if let Some(place) = datagram.get_mut(at..at + 3) {
                place.copy_from_slice(&self.sequence.to_be_bytes()[1..]);
            }
        }
    }

    /// Shows a datagram to the node and checks what it sends. Returns the responses.
    fn send(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Outbox::new();
        self.now = self.now.after(SECOND / 100);
        self.node.receive(self.now, UPF, SMF, datagram, &mut out);
        let sent = out.datagrams.into_iter().map(|it| it.bytes);
        let responses: Vec<_> = sent.filter(|bytes| is_lawful(datagram, bytes)).collect();
        assert!(responses.len() <= messages(datagram), "{} responses", responses.len());
        assert_eq!(self.node.statistics().table_failed, 0);
        responses
    }

    fn fill(&self, request: &Request) -> Vec<u8> {
        request.filled(self.up_seid, &|pdr| self.teids.get(&pdr).copied().unwrap_or(0))
    }

    /// Plays a recorded request, which is accepted.
    fn play(&mut self, request: &Request) {
        let mut datagram = self.fill(request);
        self.number(&mut datagram);
        let responses = self.send(&datagram);
        let [response] = &responses[..] else { panic!("{}: {responses:?}", request.name) };
        assert!(is_accepted(response), "{}: {response:x?}", request.name);
        self.learn(response);
    }

    fn learn(&mut self, response: &[u8]) {
        let (message, _) = Message::parse(response).expect("PFCP");
        if let Ok(Some(FSeid { seid, .. })) = message.group().find() {
            self.up_seid = seid;
        }
        for pdr in message.group().groups(IeType::CREATED_PDR) {
            if let (Ok(PdrId(id)), Ok(Some(FTeid { teid, .. }))) = (pdr.need(), pdr.find()) {
                self.teids.insert(id, teid);
            }
        }
    }

    /// Releases all associations, and with them all sessions.
    fn release_all(&mut self) {
        let names: Vec<_> = self.node.associations().map(|it| it.peer.node_id.clone()).collect();
        for name in names {
            let mut release = Vec::new();
            let header = Header::node(MessageType::ASSOCIATION_RELEASE_REQUEST, 0);
            let id: NodeId<'_> = name.ie();
            Writer::new(&mut release).message(header, |to| to.put(&id));
            self.number(&mut release);
            self.send(&release);
        }
        self.teids.clear();
        // Responses, session indices and UE addresses come to rest.
        self.now = self.now.after(10 * SECOND);
        self.node.tick(self.now, &mut Outbox::new());
        assert_eq!((self.node.associations().count(), self.node.sessions().len()), (0, 0));
    }
}

/// Returns the number of messages that a datagram may have.
fn messages(mut datagram: &[u8]) -> usize {
    let mut count = 1;
    while let Ok((_, rest)) = Message::parse(datagram) {
        if rest.is_empty() {
            break;
        }
        (datagram, count) = (rest, count + 1);
    }
    count
}

/// Checks a message of the node. Returns true if it is a response.
fn is_lawful(request: &[u8], bytes: &[u8]) -> bool {
    let (message, rest) = Message::parse(bytes).expect("what the node sends is PFCP");
    assert!(rest.is_empty() && bytes.len() < 1500, "{message:?}");
    let header = message.header;
    if header.message_type == MessageType::VERSION_NOT_SUPPORTED_RESPONSE {
        return true;
    }
    if !header.message_type.is_response() {
        return false;
    }
    assert_eq!(message.check(), Ok(()), "{message:?}");
    let mut rest = request;
    let mut asked = Vec::new();
    while let Ok((message, after)) = Message::parse(rest) {
        asked.push((message.header.sequence, message.header.message_type.response()));
        rest = after;
    }
    let answer = (header.sequence, Some(header.message_type));
    assert!(asked.contains(&answer), "{answer:?} does not answer {asked:?}");
    if let Ok(Some(cause)) = message.group().find::<Cause>() {
        assert!(cause.name().is_some(), "{cause}");
    }
    true
}

/// Returns true if a response accepts its request; a heartbeat response has no cause.
fn is_accepted(response: &[u8]) -> bool {
    let (message, _) = Message::parse(response).expect("PFCP");
    let cause = message.group().find::<Cause>().expect("a cause that can be read");
    let is_heartbeat = message.header.message_type == MessageType::HEARTBEAT_RESPONSE;
    cause.map_or(is_heartbeat, Cause::is_accepted)
}

/// Returns the bits to flip in an octet: all of them, or one that differs from octet to octet. The
/// sequence number is left as it is.
fn bits(datagram: &[u8], is_long: bool) -> impl Fn(usize) -> Vec<u8> + use<> {
    let number = header_length(datagram) - 4;
    let seed = datagram.len();
    move |at| match at {
        _ if (number..number + 3).contains(&at) => Vec::new(),
        _ if is_long => (0..8).collect(),
        _ => vec![(at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 7 & 7) as u8],
    }
}

/// Shows the mutants of one request of a life, each where the request belongs. Returns the numbers
/// of mutants and of those that were accepted.
fn show_mutants(world: &mut World, life: &Life, index: usize, is_long: bool) -> [usize; 2] {
    let (prefix, request) = (&life.requests[..index], &life.requests[index]);
    let begin = |world: &mut World| prefix.iter().for_each(|request| world.play(request));
    begin(world);
    let datagram = world.fill(request);
    let mut all = Vec::new();
    let is_flipped = bits(&datagram, is_long);
    mutants::visit_all(&datagram, &is_flipped, &mut |change, it| all.push((change.to_owned(), it)));
    let mut before = world.state();
    let (count, mut accepted) = (all.len(), 0);
    for (change, mut mutant) in all {
        // What the UPF gave may differ from that of the first time.
        let what = Shown(format!("{} {}: {}", life.name, request.name, change));
        refresh(&mut mutant, &datagram, &world.fill(request));
        world.number(&mut mutant);
        fastlane_pfcp::fuzz::datagram(&mutant);
        let responses = world.send(&mutant);
        let is_done = responses.iter().any(|response| is_accepted(response));
        assert!(is_done || change != UNCHANGED, "{what}");
        let after = world.state();
        assert!(is_done || after == before, "{what} is refused: {before:#?}\nis now {after:#?}");
        let sessions = world.node.sessions();
        assert!(after.sessions.iter().all(|session| sessions.is_published(session)), "{what}");
        if after != before {
            world.release_all();
            begin(world);
            before = world.state();
        }
        accepted += usize::from(is_done);
    }
    world.release_all();
    [count, accepted]
}

/// Name of a mutant, which is printed if the node panics.
struct Shown(String);

impl std::fmt::Display for Shown {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(to)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{self}");
        }
    }
}

/// Replaces what the UPF gave when the mutants were made by what it gave since.
fn refresh(mutant: &mut [u8], then: &[u8], now: &[u8]) {
    for ((octet, then), now) in mutant.iter_mut().zip(then).zip(now) {
        if then != now && octet == then {
            *octet = *now;
        }
    }
}

#[test]
fn mutants_of_recorded_messages_are_answered_by_the_rules_and_change_nothing_if_refused() {
    let is_long = std::env::var_os("FASTLANE_SOAK").is_some();
    let mut world = World::new();
    let empty = world.state().entries;
    let (mut shown, mut accepted) = (0, 0);
    for life in lives() {
        for index in 0..life.requests.len() {
            let [more, done] = show_mutants(&mut world, &life, index, is_long);
            (shown, accepted) = (shown + more, accepted + done);
            assert_eq!(world.state().entries, empty, "{}: entries of tables", life.name);
        }
    }
    eprintln!("{shown} mutants, of which {accepted} were accepted");
    assert!(shown > LEAST && accepted > LEAST / 20, "{accepted} of {shown}");
}

/// Open5GS names slice and DNN, most others only a network instance.
#[test]
fn recorded_sessions_are_counted_by_what_their_smf_names() {
    for life in lives() {
        let mut world = World::new();
        life.requests.iter().for_each(|request| world.play(request));
        let counted = world.node.statistics().establishments.iter();
        let counted: Vec<_> = counted
            .map(|((it, outcome), count)| (&*it.slice, &*it.dnn, outcome.name(), *count))
            .collect();
        let expected = match &life.name {
            name if name.starts_with("open5gs") || name.starts_with("derived") => ("1", "internet"),
            // Without a network instance, or with one that the settings do not name.
            name if name.starts_with("pfcpsim") || name.starts_with("oai") => ("", ""),
            _ => ("", "internet"),
        };
        assert_eq!(counted, [(expected.0, expected.1, "accepted", 1)], "{}", life.name);
    }
}

const SETTINGS: &str = r#"{
    "node-id": "10.4.0.1",
    "n4": { "addresses": ["10.4.0.1"], "t1-ms": 1000, "n1": 2, "heartbeat-s": 3600 },
    "interfaces": {
        "n3": { "port": "n3", "role": "n3", "addresses": ["10.3.0.1"] },
        "n6": { "port": "n6", "role": "n6", "network-instances": ["internet", "core.oai"] }
    },
    "pools": [{ "network-instance": "internet", "prefix": "10.45.0.0/16" },
              { "network-instance": "internet", "prefix": "2001:db8:45::/48" },
              { "network-instance": "internet", "prefix": "2001:db8:cafe::/48" }],
    "sessions": 64
}"#;
