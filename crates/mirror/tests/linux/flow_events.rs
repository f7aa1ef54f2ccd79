//! The follower of flows against the connection tracking of the real Linux.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_core::now;
use fastlane_mirror::conntrack::{ConntrackListener, Groups};
use fastlane_mirror::flows::{
    FLOW_WORDS, FlowFollower, FlowKey, FlowPolicy, FlowRecord, FlowSettings, FlowState, Suitability,
};
use fastlane_mirror::ipsec::IpsecPolicies;
use fastlane_table::{HashReader, HashWriter, SharedMemory, Spec, State};
use fastlane_testing::namespace::{command, private};
use fastlane_testing::sleeping_lane;

const POLICY: FlowPolicy = FlowPolicy { mark: 1, mask: 1, one_way: false };

/// Tables of a follower, which outlive it.
struct Rig {
    flows: Arc<SharedMemory>,
    reader: HashReader<FlowKey, FlowRecord>,
    state: State<FLOW_WORDS>,
}

type Follower = FlowFollower<Box<HashWriter<FlowKey, FlowRecord>>>;

impl Rig {
    /// Creates tables for a number of flows in a namespace that marks all connections. Returns
    /// `None` after a skip.
    fn new(test: &str, flows: usize) -> Option<Self> {
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

    fn follow(&self, receive_buffer: usize) -> Follower {
        let groups = Groups { new: false, rules: false };
        let mut listener = ConntrackListener::open(groups, 1 << 20).unwrap();
        let rules = u64::from(listener.rules_generation().unwrap()) + 1;
        let settings = FlowSettings { policy: POLICY, receive_buffer, rejudges: true, rules };
        let mut writer = HashWriter::attach(&self.flows, &sleeping_lane()).unwrap();
        writer.with_state(self.state.clone());
        FlowFollower::open(settings, Box::new(writer), None, &self.state, now()).unwrap()
    }

    fn keys(&self) -> BTreeSet<String> {
        self.reader.copies().map(|(key, ..)| format!("{key:?}")).collect()
    }
}

/// Returns the keys of the connections that may be fast, as a dump has them.
fn expected() -> BTreeSet<String> {
    let groups = Groups { new: false, rules: false };
    let mut listener = ConntrackListener::open(groups, 1 << 20).unwrap();
    let mut keys = BTreeSet::new();
    let is_whole = listener.dump(0, 0, |it| {
        if POLICY.judge(&it, &IpsecPolicies::default()) == Suitability::Fast {
            keys.extend(FlowKey::of(&it).map(|key| format!("{key:?}")));
        }
    });
    assert!(is_whole.unwrap());
    keys
}

/// Steps until the table has the connections that a dump has.
#[track_caller]
fn settle(rig: &Rig, follower: &mut Follower) -> BTreeSet<String> {
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
fn exchange(port: u16, count: u16, mut between: impl FnMut()) {
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
fn a_timeout_is_refreshed_in_time_and_only_for_flows_in_use() {
    let Some(rig) = Rig::new("flows-refresh", 64) else { return };
    for key in ["udp_timeout", "udp_timeout_stream"] {
        std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{key}"), "60").unwrap();
    }
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 2, || {});
    settle(&rig, &mut follower);
    let entries: Vec<_> = rig.reader.copies().filter(|(_, _, it)| it.is_reply == 0).collect();
    let (used, entry, _) = entries[0];
    let listener =
        || ConntrackListener::open(Groups { new: false, rules: false }, 1 << 20).unwrap();
    let timeout = |key: &FlowKey| {
        let found = listener().look_up(&key.tuple(), 0).unwrap().unwrap();
        (found.timeout.unwrap(), found.status.has(4))
    };
    let start = now();
    // The clock of this test runs ahead.
    let at = |seconds: u64| start + seconds * 1_000_000_000;
    let see = |second| FlowState::new(rig.state.lane(0).at(entry)).see(at(second));
    let mut refreshed_in = |seconds: RangeInclusive<u64>| {
        let before = follower.statistics().refreshed;
        seconds.for_each(|second| follower.step(at(second)).unwrap());
        follower.statistics().refreshed - before
    };
    see(1);
    assert_eq!(refreshed_in(1..=11), 0, "more than half of the time is left");
    assert!(!timeout(&used).1);
    see(10);
    assert_eq!(refreshed_in(12..=22), 1, "it has lasted");
    // Less the time since the packet: it expires 60 seconds after that one.
    let (left, is_assured) = timeout(&used);
    assert!((48..=60).contains(&left), "{left}");
    assert!(is_assured);
    see(30);
    assert_eq!(refreshed_in(23..=39), 0, "more than half of the time is left");
    assert_eq!(refreshed_in(40..=55), 1);
    let (left, _) = timeout(&used);
    assert!((35..=50).contains(&left), "{left}");
    assert!(!timeout(&entries[1].0).1, "the idle one is left alone");
    assert_eq!(refreshed_in(56..=80), 0, "no packet, no refresh");
}
