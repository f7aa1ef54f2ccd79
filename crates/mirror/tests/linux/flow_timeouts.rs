//! Timeouts of flows that lanes forward, which Linux knows from the follower only.

use std::ops::RangeInclusive;

use fastlane_core::now;
use fastlane_mirror::conntrack::{Connection, ConntrackChange, ConntrackWriter, Status};
use fastlane_mirror::flows::{FlowKey, FlowState};
use fastlane_table::EntryId;
use fastlane_testing::namespace::command;

use super::flow_events::{Follower, POLICY, Rig, exchange, listener, settle};

/// Timeout of UDP in these tests, in seconds.
const TIMEOUT: u32 = 60;

/// A flow of UDP whose packets lanes forward, and a clock that runs ahead of that of Linux.
struct UsedFlow<'a> {
    rig: &'a Rig,
    key: FlowKey,
    entry: EntryId,
    start: u64,
}

impl<'a> UsedFlow<'a> {
    /// Follows until the connections are flows, and takes the first.
    fn first(rig: &'a Rig, follower: &mut Follower) -> Self {
        settle(rig, follower);
        let (key, entry, _) = rig.reader.copies().find(|(_, _, it)| it.is_reply == 0).unwrap();
        Self { rig, key, entry, start: now() }
    }

    /// Returns the time a number of seconds after the start.
    fn at(&self, seconds: u64) -> u64 {
        self.start + seconds * 1_000_000_000
    }

    /// Has a lane see a packet.
    fn see(&self, second: u64) {
        FlowState::new(self.rig.state.lane(0).at(self.entry)).see(self.at(second));
    }

    /// Steps once per second. Returns the number of timeouts that were refreshed.
    fn refreshed_in(&self, seconds: RangeInclusive<u64>, follower: &mut Follower) -> u64 {
        let before = follower.statistics().refreshed;
        seconds.for_each(|second| follower.step(self.at(second)).unwrap());
        follower.statistics().refreshed - before
    }

    /// Returns the connection as Linux has it.
    fn connection(&self) -> Connection {
        listener().look_up(&self.key.tuple(), 0).unwrap().unwrap()
    }

    /// Lets the connection be without packets for Linux until a timeout is left, in seconds. Linux
    /// reports the change.
    fn wait_until_left(&self, timeout: u32) {
        let touch = ConntrackChange::touch(&self.connection());
        let change = ConntrackChange { timeout: Some(timeout), ..touch };
        assert_eq!(ConntrackWriter::open().unwrap().apply([change]).unwrap(), 0);
    }

    /// Has Linux told of a packet of the tenth second, and a lane see another ten seconds later.
    /// Leaves the clock in the 25th second.
    fn use_unknown_to_linux(&self, follower: &mut Follower) {
        self.see(10);
        assert_eq!(self.refreshed_in(1..=15, follower), 1, "it has lasted");
        self.see(20);
        assert_eq!(self.refreshed_in(16..=25, follower), 0, "more than half of the time is left");
        // Since the packet of the tenth second.
        self.wait_until_left(TIMEOUT - 15);
    }
}

/// Creates a rig in a namespace with this timeout of UDP.
fn rig(test: &str, timeout: u32) -> Option<Rig> {
    let rig = Rig::new(test, 64)?;
    set_timeouts(timeout);
    Some(rig)
}

fn set_timeouts(timeout: u32) {
    for key in ["udp_timeout", "udp_timeout_stream"] {
        let path = format!("/proc/sys/net/netfilter/nf_conntrack_{key}");
        std::fs::write(path, timeout.to_string()).unwrap();
    }
}

#[test]
fn a_timeout_is_refreshed_in_time_and_only_for_flows_in_use() {
    let Some(rig) = rig("flows-refresh", TIMEOUT) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 2, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    let mut refreshed_in = |seconds| flow.refreshed_in(seconds, &mut follower);
    let timeout = || {
        let it = flow.connection();
        (it.timeout.unwrap(), it.status.has(Status::ASSURED))
    };
    flow.see(1);
    assert_eq!(refreshed_in(1..=11), 0, "more than half of the time is left");
    assert!(!timeout().1);
    flow.see(10);
    assert_eq!(refreshed_in(12..=22), 1, "it has lasted");
    // Less the time since the packet: it expires 60 seconds after that one.
    let (left, is_assured) = timeout();
    assert!((48..=60).contains(&left), "{left}");
    assert!(is_assured);
    flow.see(30);
    assert_eq!(refreshed_in(23..=39), 0, "more than half of the time is left");
    assert_eq!(refreshed_in(40..=55), 1);
    let (left, _) = timeout();
    assert!((35..=50).contains(&left), "{left}");
    let mut assured = 0;
    listener().dump(0, 0, |it| assured += u32::from(it.status.has(Status::ASSURED))).unwrap();
    assert_eq!(assured, 1, "the idle one is left alone");
    assert_eq!(refreshed_in(56..=80), 0, "no packet, no refresh");
}

#[test]
fn a_report_that_no_packet_caused_leaves_use_to_be_told() {
    let Some(rig) = rig("flows-touched", TIMEOUT) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 1, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    flow.use_unknown_to_linux(&mut follower);
    assert_eq!(flow.refreshed_in(25..=58, &mut follower), 1);
    assert!(flow.connection().timeout.unwrap() > 30);
}

#[test]
fn r9_a_successor_tells_of_use_that_its_predecessor_has_not() {
    let Some(rig) = rig("flows-successor-use", TIMEOUT) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 1, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    flow.use_unknown_to_linux(&mut follower);
    drop(follower);
    let mut successor = rig.open(POLICY, 8 << 20, flow.at(25));
    assert_eq!(flow.refreshed_in(25..=58, &mut successor), 1);
    assert!(flow.connection().timeout.unwrap() > 30);
}

#[test]
fn r9_use_is_told_before_the_rules_judge_again() {
    let Some(rig) = rig("flows-rejudged-use", TIMEOUT) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 2, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    flow.use_unknown_to_linux(&mut follower);
    command("nft", "add rule inet t marks udp dport 9 drop");
    follower.step(flow.at(25)).unwrap();
    assert!(follower.must_rejudge());
    follower.rejudge(flow.at(25)).unwrap();
    assert_eq!(rig.keys().len(), 0);
    let connection = flow.connection();
    assert_eq!(connection.mark, 0);
    let left = connection.timeout.unwrap();
    assert!((TIMEOUT - 7..=TIMEOUT - 5).contains(&left), "{left}");
}

/// Covers a timeout that is longer than usual, as it was set before.
#[test]
fn a_lowered_timeout_is_not_taken_for_that_of_a_policy() {
    let Some(rig) = rig("flows-lowered", 3600) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 1, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    set_timeouts(TIMEOUT);
    // The follower reads the timeouts after each sweep.
    assert_eq!(flow.refreshed_in(1..=25, &mut follower), 0);
    flow.wait_until_left(3500);
    assert_eq!(flow.refreshed_in(26..=27, &mut follower), 0);
    flow.see(28);
    assert_eq!(flow.refreshed_in(28..=50, &mut follower), 1);
    assert!(flow.connection().timeout.unwrap() <= TIMEOUT);
}

#[test]
fn a_flow_whose_removal_linux_does_not_report_leaves_when_it_is_refreshed() {
    let Some(rig) = rig("flows-unheard-removal", TIMEOUT) else { return };
    command("nft", "add rule inet t marks ct event set \"mark\"");
    exchange(5353, 2, || {});
    let mut follower = rig.follow(8 << 20);
    let flow = UsedFlow::first(&rig, &mut follower);
    let resyncs = follower.statistics().resyncs;
    command("conntrack", "-D -p udp --dport 5353");
    assert_eq!(flow.refreshed_in(1..=3, &mut follower), 0);
    assert_eq!(rig.keys().len(), 4, "its removal was reported");
    flow.see(5);
    flow.refreshed_in(4..=40, &mut follower);
    assert_eq!(rig.keys().len(), 0);
    assert_eq!(follower.statistics().resyncs, resyncs + 1);
}

#[test]
fn r9_use_is_told_when_the_rules_judge_by_another_exit() {
    let Some(rig) = rig("flows-rerouted-use", TIMEOUT) else { return };
    let mut follower = rig.follow(8 << 20);
    exchange(5353, 1, || {});
    let flow = UsedFlow::first(&rig, &mut follower);
    flow.use_unknown_to_linux(&mut follower);
    flow.wait_until_left(10);
    let lane = rig.state.lane(0);
    let state = FlowState::new(lane.at(flow.entry));
    state.leaves_by(1);
    assert!(state.reroutes(2));
    flow.refreshed_in(26..=37, &mut follower);
    assert_eq!(rig.keys().len(), 0);
    assert!(flow.connection().timeout.unwrap() > 30);
}
