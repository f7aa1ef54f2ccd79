//! The follower of flows against the connection tracking of the real Linux.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_core::now;
use fastlane_mirror::conntrack::{Connection, ConntrackListener, ConntrackWriter, Groups};
use fastlane_mirror::flows::{
    FLOW_WORDS, FlowFollower, FlowKey, FlowPolicy, FlowRecord, FlowSettings, Suitability,
};
use fastlane_mirror::ipsec::IpsecPolicies;
use fastlane_table::{HashReader, HashWriter, SharedMemory, Spec, State};
use fastlane_testing::namespace::{command, private};
use fastlane_testing::sleeping_lane;

pub(crate) const POLICY: FlowPolicy = FlowPolicy { mark: 1, mask: 1, one_way: false };

/// Tables of a follower, which outlive it.
pub(crate) struct Rig {
    flows: Arc<SharedMemory>,
    pub(crate) reader: HashReader<FlowKey, FlowRecord>,
    pub(crate) state: State<FLOW_WORDS>,
}

pub(crate) type Follower = FlowFollower<Box<HashWriter<FlowKey, FlowRecord>>>;

impl Rig {
    /// Creates tables for a number of flows in a namespace that marks all connections. Returns
    /// `None` after a skip.
    pub(crate) fn new(test: &str, flows: usize) -> Option<Self> {
        if !private(test) {
            return None;
        }
        // Also of connections that begin while no follower runs.
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_events", "1").unwrap();
        command("nft", "add table inet t");
        command("nft", "add chain inet t marks { type filter hook output priority 0 ; }");
        command("nft", "add rule inet t marks ct mark set ct mark or 1");
        let memory = Spec::hash::<FlowKey, FlowRecord>("flows", 2 * flows).create().unwrap();
        let state = Spec::state::<FLOW_WORDS>("flows", 2 * flows, 1).create().unwrap();
        let (reader, state) = (HashReader::attach(&memory), State::attach(&state));
        Some(Self { flows: memory, reader: reader.unwrap(), state: state.unwrap() })
    }

    /// Opens a follower with a receive buffer of a number of bytes.
    pub(crate) fn follow(&self, receive_buffer: usize) -> Follower {
        self.open(POLICY, receive_buffer, now())
    }

    pub(crate) fn open(&self, policy: FlowPolicy, receive_buffer: usize, now: u64) -> Follower {
        let rules = u64::from(listener().rules_generation().unwrap()) + 1;
        let settings = FlowSettings { policy, receive_buffer, rejudges: true, rules };
        let mut writer = HashWriter::attach(&self.flows, &sleeping_lane()).unwrap();
        writer.with_state(self.state.clone());
        FlowFollower::open(settings, Box::new(writer), None, &self.state, now).unwrap()
    }

    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.reader.copies().map(|(key, ..)| format!("{key:?}")).collect()
    }
}

/// Returns a listener that looks up and dumps connections.
pub(crate) fn listener() -> ConntrackListener {
    ConntrackListener::open(Groups { new: false, rules: false }, 1 << 20).unwrap()
}

/// Returns the keys of the connections that may be fast, as a dump has them.
fn expected() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let is_whole = listener().dump(0, 0, |it| {
        if POLICY.judge(&it, &IpsecPolicies::default()) == Suitability::Fast {
            keys.extend(FlowKey::of(&it).map(|key| format!("{key:?}")));
        }
    });
    assert!(is_whole.unwrap());
    keys
}

/// Steps until the table has the connections that a dump has.
#[track_caller]
pub(crate) fn settle(rig: &Rig, follower: &mut Follower) -> BTreeSet<String> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        follower.step(now()).unwrap();
        let (keys, expected) = (rig.keys(), expected());
        if keys == expected {
            return keys;
        }
        assert!(Instant::now() < end, "{} keys of {}", keys.len(), expected.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Exchanges a datagram in each direction between new sockets and a port.
pub(crate) fn exchange(port: u16, count: u16, mut between: impl FnMut()) {
    let server = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    for number in 0..count {
        // A port that Linux chooses may have been chosen before: the connection would be the same.
        let client = UdpSocket::bind(("127.0.0.1", 20_000 + number)).unwrap();
        client.send_to(b"there", ("127.0.0.1", port)).unwrap();
        let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
        server.send_to(b"back", from).unwrap();
        client.recv(&mut [0; 16]).unwrap();
        between();
    }
}

#[test]
fn r17_lost_events_are_made_up_for() {
    let Some(rig) = Rig::new("flows-lost", 8192) else { return };
    let mut follower = rig.follow(64 << 10);
    exchange(5353, 2000, || {});
    exchange(5354, 1000, || follower.step(now()).unwrap());
    command("conntrack", "-D -p udp --dport 5353");
    let keys = settle(&rig, &mut follower);
    assert!(keys.len() >= 1500, "{} keys", keys.len());
    let statistics = follower.statistics();
    assert!(statistics.lost > 0 && statistics.resyncs > 1, "{statistics:?}");
    assert_eq!(statistics.flows as usize * 2, keys.len());
    command("conntrack", "-F");
    assert_eq!(settle(&rig, &mut follower).len(), 0);
    assert_eq!(follower.statistics().flows, 0);
}

#[test]
fn r22_new_rules_are_noticed_though_their_event_is_lost() {
    let Some(rig) = Rig::new("flows-lost-rules", 8192) else { return };
    let mut follower = rig.follow(64 << 10);
    exchange(5353, 10, || follower.step(now()).unwrap());
    settle(&rig, &mut follower);
    assert!(!follower.must_rejudge());
    // Once an event found no room, Linux passes none on until all have been read.
    exchange(5354, 3000, || {});
    command("nft", "add rule inet t marks udp dport 5353 drop");
    follower.step(now()).unwrap();
    assert!(follower.statistics().lost > 0, "{:?}", follower.statistics());
    assert!(follower.must_rejudge());
    while follower.must_rejudge() {
        follower.rejudge(now()).unwrap();
    }
    assert_eq!(rig.keys().len(), 0);
    // The same rules later are not new ones.
    exchange(5355, 3000, || {});
    follower.step(now()).unwrap();
    assert!(follower.statistics().lost > 1, "{:?}", follower.statistics());
    assert!(!follower.must_rejudge());
}

/// Covers a queue of events that one step does not empty: until it is empty Linux reports nothing.
#[test]
fn r22_new_rules_are_noticed_though_many_events_are_left_after_a_loss() {
    let Some(rig) = Rig::new("flows-lost-many", 32_768) else { return };
    let mut follower = rig.follow(16 << 20);
    exchange(5353, 25_000, || {});
    follower.step(now()).unwrap();
    assert!(follower.statistics().lost > 0, "{:?}", follower.statistics());
    assert!(!follower.must_rejudge());
    command("nft", "add rule inet t marks udp dport 5353 drop");
    let end = Instant::now() + Duration::from_secs(20);
    while !follower.must_rejudge() {
        assert!(Instant::now() < end, "{:?}", follower.statistics());
        follower.step(now()).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_successor_takes_over_and_removes_what_ended_meanwhile() {
    let Some(rig) = Rig::new("flows-successor", 1024) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 100, || {});
    exchange(5354, 100, || {});
    let before = settle(&rig, &mut follower);
    assert_eq!(before.len(), 400);
    // It ends without a word, as by SIGKILL.
    drop(follower);
    command("conntrack", "-D -p udp --dport 5353");
    exchange(5355, 50, || {});
    let mut successor = rig.follow(8 << 20);
    // At once, before the first step: what ended is gone, and the others are still there.
    let taken_over = rig.keys();
    assert_eq!((taken_over.len(), successor.statistics().flows), (200, 100));
    assert!(taken_over.is_subset(&before));
    let after = settle(&rig, &mut successor);
    assert_eq!(after.len(), 300);
    // All were proven: none is removed when that time is over.
    let later = now() + 3_000_000_000;
    successor.step(later).unwrap();
    assert_eq!(rig.keys(), after);
}

#[test]
fn a_successor_keeps_what_it_took_over_though_events_are_lost() {
    let Some(rig) = Rig::new("flows-successor-lost", 8192) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 100, || {});
    let before = settle(&rig, &mut follower);
    assert_eq!(before.len(), 200);
    drop(follower);
    let mut successor = rig.follow(64 << 10);
    exchange(5354, 2000, || {});
    settle(&rig, &mut successor);
    let statistics = successor.statistics();
    assert!(statistics.lost > 0, "{statistics:?}");
    // Past the time within which flows must be reported.
    let later = now() + 3_000_000_000;
    (0..20).for_each(|step| successor.step(later + step * 1_000_000).unwrap());
    assert!(rig.keys().is_superset(&before), "{:?}", successor.statistics());
}

#[test]
fn a_slow_successor_reads_the_reports_before_it_removes_what_is_not_reported() {
    let Some(rig) = Rig::new("flows-successor-slow", 1024) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 300, || {});
    let before = settle(&rig, &mut follower);
    drop(follower);
    let mut successor = rig.follow(8 << 20);
    let later = now() + 3_000_000_000;
    for step in 0..4 {
        successor.step(later + step * 1_000_000).unwrap();
        assert_eq!(rig.keys().len(), before.len(), "step {step}");
    }
}

#[test]
fn a_successor_removes_what_linux_does_not_report() {
    let Some(rig) = Rig::new("flows-successor-unheard", 64) else { return };
    let mut follower = rig.follow(8 << 20);
    let [server, client] = [5353, 20_000].map(|port| UdpSocket::bind(("127.0.0.1", port)).unwrap());
    client.send_to(b"there", ("127.0.0.1", 5353)).unwrap();
    server.send_to(b"back", client.local_addr().unwrap()).unwrap();
    assert_eq!(settle(&rig, &mut follower).len(), 2);
    drop(follower);
    command("nft", "add rule inet t marks ct event set \"destroy\"");
    client.send_to(b"there", ("127.0.0.1", 5353)).unwrap();
    let mut successor = rig.follow(8 << 20);
    let start = now();
    successor.step(start).unwrap();
    assert_eq!(rig.keys().len(), 2, "its report may come");
    (0..3).for_each(|step| successor.step(start + 3_000_000_000 + step * 1_000_000).unwrap());
    assert_eq!(rig.keys().len(), 0);
}

#[test]
fn the_end_of_a_connection_removes_what_was_taken_over_of_it() {
    let Some(rig) = Rig::new("flows-successor-half", 64) else { return };
    let policy = FlowPolicy { one_way: true, ..POLICY };
    let mut follower = rig.open(policy, 8 << 20, now());
    let [server, client] = [5353, 20_000].map(|port| UdpSocket::bind(("127.0.0.1", port)).unwrap());
    client.send_to(b"there", ("127.0.0.1", 5353)).unwrap();
    let (_, from) = server.recv_from(&mut [0; 16]).unwrap();
    follower.step(now()).unwrap();
    assert_eq!(rig.keys().len(), 1, "the direction that Linux has seen");
    drop(follower);
    server.send_to(b"back", from).unwrap();
    let mut successor = rig.open(policy, 8 << 20, now());
    assert_eq!(rig.keys().len(), 1);
    command("conntrack", "-D -p udp --dport 5353");
    successor.step(now()).unwrap();
    assert_eq!(rig.keys().len(), 0);
}

#[test]
fn a_full_table_leaves_the_connections_without_room_alone() {
    let Some(rig) = Rig::new("flows-full", 8) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 500, || follower.step(now()).unwrap());
    let before = follower.statistics();
    assert!(before.full > 400 && before.flows >= 8, "{before:?}");
    // TCP that stays with Linux keeps its windows.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let _other = server.accept().unwrap();
    (0..3).for_each(|_| follower.step(now()).unwrap());
    let is_of_client = |it: &Connection| it.original.ports[0] == port_of(&client);
    let mut found = None;
    listener().dump(0, 0, |it| found = found.take().or(Some(it).filter(is_of_client))).unwrap();
    assert!(!found.unwrap().tcp.unwrap().is_liberal());
    assert_eq!(follower.statistics().touched, before.touched);
    // One ends, and one of those without room takes its place.
    let (key, ..) = rig.reader.copies().find(|(_, _, it)| it.is_reply == 0).unwrap();
    let ended = listener().look_up(&key.tuple(), 0).unwrap().unwrap();
    assert!(ConntrackWriter::open().unwrap().remove(&ended).unwrap());
    follower.step(now()).unwrap();
    assert_eq!(follower.statistics().flows, before.flows - 1);
    let later = now() + 6_000_000_000;
    (0..10).for_each(|step| follower.step(later + step * 1_000_000).unwrap());
    let after = follower.statistics();
    assert!(after.touched <= before.touched + 4, "{after:?}");
    assert_eq!(after.flows, before.flows);
}

fn port_of(socket: &TcpStream) -> u16 {
    socket.local_addr().unwrap().port()
}
