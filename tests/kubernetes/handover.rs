//! Containers of a pod are killed under traffic: the slow path, and the fast path, whose sockets
//! and tables a container beside it holds.

use std::thread;
use std::time::{Duration, Instant};

use fastlane_tests::cluster::pod::{Pod, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, Lab, PATIENCE, Report, eventually};
use serde_json::{Value, json};

use crate::{RATE, configuration, pools, traffic};

/// Session of the fast path, in the directory that the containers of the pod share.
const SESSION: &str = "/run/fastlane/ledger.sock";
/// First source port of the generator's flows, and their number.
const FLOWS: [&str; 2] = ["49152", "16"];
/// Number of packets of a story, which last for half a minute.
const PACKETS: u64 = 300_000;

/// Returns the configuration of the fast path, with the tables of `ledger`.
fn tables() -> Value {
    let mut configuration = configuration();
    configuration["tables"] = json!({"accounts": {"capacity": 256}, "totals": {"capacity": 1}});
    configuration
}

/// Returns a pod with fast path, slow path and holder as containers. None has a privilege, and only
/// the fast path has a device.
fn pod(name: &str) -> Value {
    let mut pod = Pods::macswap(name);
    let fast = &mut pod["spec"]["containers"][0];
    fast["name"] = json!("fast");
    fast["command"] = json!(["ledger", "/etc/macswap/macswap.json"]);
    let beside = |name: &str, command: Value| {
        let mut container = fast.clone();
        container["name"] = json!(name);
        container["command"] = command;
        container["resources"] = json!({"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}});
        container
    };
    let keep = beside("keep", json!(["fastlane", "keep", "ledger", "--seconds", "60"]));
    let slow = beside("slow", json!(["ledger_slow", SESSION, FLOWS[0], FLOWS[1]]));
    pod["spec"]["containers"].as_array_mut().expect("containers").extend([keep, slow]);
    pod
}

/// Runs the pod, and waits until the accounts are open and the holder has everything.
#[track_caller]
fn run<'a>(pods: &Pods<'a>, name: &str) -> Pod<'a> {
    let pod = pods.run(&pod(name));
    wait_for(&pod, "slow", "the accounts are open", |log| log.contains("writing, with"));
    wait_until_held(&pod);
    pod
}

/// Waits until the log of a container fulfils a condition.
///
/// # Panics
/// When it never does, with the log.
#[track_caller]
fn wait_for(pod: &Pod<'_>, container: &str, what: &str, is_done: impl Fn(&str) -> bool) {
    let end = Instant::now() + PATIENCE;
    let mut log = pod.log_of(container);
    while !is_done(&log) {
        assert!(Instant::now() < end, "{what}: not according to {container}:\n{log}");
        thread::sleep(Duration::from_millis(100));
        log = pod.log_of(container);
    }
}

/// Waits until the holder has the descriptors of a fast path that runs.
#[track_caller]
fn wait_until_held(pod: &Pod<'_>) {
    wait_for(pod, "keep", "the holder has everything", |log| {
        let last = log.lines().rev().find(|line| line.contains("descriptors kept"));
        last.is_some_and(|line| line.contains(": process ") && !line.contains(" 0 descriptors"))
    });
}

/// Sends packets to the pod and calls `event` while they flow.
#[track_caller]
fn under_traffic(lab: &Lab, pod: &Pod<'_>, event: impl FnOnce()) -> Report {
    thread::scope(|scope| {
        let report = scope.spawn(|| traffic(lab, PACKETS, RATE));
        eventually("packets flow", || pod.totals_of("ledger").wire("received_packets") > 1000);
        event();
        assert!(!report.is_finished(), "the traffic ended too early");
        report.join().expect("no panic")
    })
}

/// Prints what an event has cost. No packet may be lost.
#[track_caller]
fn assert_intact(what: &str, report: &Report) {
    let longest = report.0["received"]["latency"]["maximum-ns"].as_u64().unwrap_or(0) / 1_000_000;
    let (lost, sent) = (report.lost(), report.sent());
    eprintln!("{what}: {lost} of {sent} lost at {RATE}/s, delayed to {longest} ms");
    report.assert_intact();
}

#[test]
fn no_packet_is_lost_while_the_container_of_the_slow_path_is_killed() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &tables());
    let pod = run(&pods, "slow-killed");
    let report = under_traffic(&lab, &pod, || {
        cluster.kill(&format!("ledger_slow {SESSION} {}", FLOWS.join(" ")));
        eventually("it is started again", || pod.restarts_of("slow") == 1);
        wait_for(&pod, "slow", "it writes again", |log| log.contains("writing, with"));
    });
    assert_intact("container of the slow path killed", &report);
    assert_eq!((pod.restarts_of("fast"), pod.restarts_of("keep")), (0, 0));
    assert_eq!(pod.totals_of("ledger").drops("wire"), []);
}

#[test]
fn no_packet_is_lost_while_the_container_of_the_fast_path_is_killed() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &tables());
    let pod = run(&pods, "fast-killed");
    let report = under_traffic(&lab, &pod, || {
        cluster.kill("ledger /etc/macswap/macswap.json");
        pod.wait_until_running(1);
        let log = pod.log();
        assert!(log.contains("AF_XDP are taken over"), "{log}");
        assert!(log.contains("table `accounts`: inherited from"), "{log}");
        wait_until_held(&pod);
    });
    assert_intact("container of the fast path killed", &report);
    assert_eq!(pod.restarts_of("keep"), 0);
    assert_eq!(pod.totals_of("ledger").drops("wire"), []);
    // The device has been the pod's all the time.
    assert_eq!(release.log().matches("to a container").count(), 1, "{}", release.log());
    traffic(&lab, 1000, 5000).assert_intact();
}
