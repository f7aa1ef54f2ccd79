//! Pods get devices by the device plugin.

use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, eventually};
use serde_json::json;

use crate::{configuration, load, pools, traffic};

#[test]
fn a_pod_without_privilege_forwards_by_the_device_plugin() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    release.wait_for("pool `wire` is registered as fastlane.dev/wire");
    let pods = Pods::new(&cluster, &configuration());
    let pod = pods.run(&Pods::macswap("macswap"));
    pod.assert_unprivileged();
    let (packets, rate) = load();
    traffic(&lab, packets, rate).assert_intact();
    let totals = pod.totals();
    assert_eq!(totals.wire("received_packets"), packets);
    assert_eq!(totals.wire("sent_packets"), packets);
    assert_eq!(totals.drops("wire"), []);
    pod.delete();
}

#[test]
fn a_second_pod_waits_until_the_only_device_is_free() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let first = pods.run(&Pods::macswap("first"));
    let second = pods.create(&Pods::macswap("second"));
    let reason = || second.object()["status"]["conditions"][0]["message"].clone();
    eventually("the scheduler tells the reason", || {
        reason().as_str().is_some_and(|it| it.contains("Insufficient fastlane.dev/wire"))
    });
    assert_eq!(second.object()["status"]["phase"], json!("Pending"));
    first.delete();
    second.wait_until_running(0);
    traffic(&lab, 1000, 5000).assert_intact();
}
