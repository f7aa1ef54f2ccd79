//! The agent, kubelet or containerd are away, or a container is started again.

use std::thread;

use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, eventually};

use crate::{configuration, pools, traffic};

#[test]
fn no_packet_is_lost_while_agent_kubelet_and_containerd_are_killed() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let pod = pods.run(&Pods::macswap("macswap"));
    let received = || pod.totals().wire("received_packets");
    thread::scope(|scope| {
        let report = scope.spawn(|| traffic(&lab, 300_000, 5000));
        eventually("packets flow", || received() > 1000);
        release.kill();
        release.wait_for("`wire0` again");
        cluster.kill_service("kubelet");
        release.wait_for("kubelet was restarted");
        eventually("kubelet serves again", || cluster.attempt(&pod.logs()).is_ok());
        cluster.kill_service("containerd");
        eventually("containerd serves again", || cluster.attempt(&pod.top()).is_ok());
        let before = received();
        eventually("packets flow", || received() > before + 1000);
        assert!(!report.is_finished(), "the traffic ended too early");
        report.join().expect("no panic").assert_intact();
    });
    assert_eq!(pod.restarts(), 0);
    let totals = pod.totals();
    assert_eq!(totals.wire("received_packets"), 300_000);
    assert_eq!(totals.drops("wire"), []);
    // A pod that comes afterwards finds everything in order.
    pod.delete();
    let _pod = pods.run(&Pods::macswap("next"));
    traffic(&lab, 1000, 5000).assert_intact();
}

#[test]
fn a_container_that_is_started_again_has_its_device_without_a_new_allocation() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let pod = pods.run(&Pods::macswap("macswap"));
    traffic(&lab, 1000, 5000).assert_intact();
    for restarts in 1..3 {
        cluster.kill("macswap /etc/macswap/macswap.json");
        pod.wait_until_running(restarts);
        traffic(&lab, 1000, 5000).assert_intact();
    }
    assert_eq!(release.log().matches("to a container").count(), 1, "{}", release.log());
}
