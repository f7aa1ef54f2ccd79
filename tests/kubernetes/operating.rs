//! Tools of an operator, `helm test` and `fastlane doctor` in a pod; the cost of the agent.

use std::time::Duration;

use fastlane_tests::Cluster;
use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::cluster::release::{NAMESPACE, Release};
use serde_json::{Value, json};

use crate::{configuration, pools, traffic};

/// Memory of the agent besides its program, in KiB.
const MEMORY_KIB: u64 = 10 * 1024;

/// Time for which the cost of an idle agent is watched.
const IDLE: Duration = Duration::from_secs(60);

#[test]
fn helm_test_has_a_device_of_each_pool_checked_in_a_pod() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    // A configuration with an interface says nothing about the devices of the other pool.
    let mut pools = pools();
    pools["vf"] = json!({"pci": ["ffff:1f:1f.7"], "steer": []});
    let release = Release::install(&cluster, "device-plugin", &pools);
    let report = release.test("120s").expect("it succeeds");
    assert!(report.contains("Phase:          Succeeded"), "{report}");
    release.wait_for("to a container");
    // Without a device that works there is no pod, and the test fails.
    lab.right.run(&["ip", "link", "set", "wire0", "down"]);
    release.wait_for("it has no carrier");
    let refused = release.test("5s").expect_err("it fails");
    assert!(refused.contains("fastlane-test-wire"), "{refused}");
    // Helm leaves the pod of a test that failed.
    cluster.kubectl(&format!("delete pod fastlane-test-wire --namespace={NAMESPACE}"));
}

#[test]
fn doctor_warns_of_throttling_and_of_cpus_of_others() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(_lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let mut pod = Pods::macswap("macswap");
    pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("200m");
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("100m");
    let pod = pods.run(&pod);
    // It uses up its CPU time.
    pod.exec(&["sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done"]);
    let report: Value =
        serde_json::from_str(&pod.exec(&["fastlane", "doctor", "--json"])).expect("JSON");
    assert_eq!(report["cpu-share"]["quota"], 0.2, "{report}");
    assert!(report["cpu-share"]["throttled-periods"].as_u64() > Some(0), "{report}");
    let warnings: Vec<&str> =
        report["warnings"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let has = |words: &str| warnings.iter().any(|warning| warning.contains(words));
    assert!(has("the CPU limit of 0.2 has stopped this container in "), "{warnings:?}");
    assert!(has("are not this container's own"), "{warnings:?}");
}

#[test]
fn an_idle_agent_with_its_front_doors_costs_nothing() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    for api in ["device-plugin", "dra"] {
        let release = Release::install(&cluster, api, &pools());
        let pods = Pods::new(&cluster, &configuration());
        let pod = pods.run(&Pods::macswap("macswap"));
        traffic(&lab, 1000, 5000).assert_intact();
        let with_client = release.cost(Duration::from_secs(10));
        pod.delete();
        // Its end is no part of the idle time. By device plugins a grant ends with the next pod.
        if api == "dra" {
            release.wait_for("is released");
        }
        let idle = release.cost(IDLE);
        eprintln!("agent by {api}: with a pod {with_client:?}, idle {idle:?}");
        // Nothing polls: an agent that looks at something each second wakes more often.
        assert!(idle.wakeups < IDLE.as_secs(), "{idle:?}");
        assert!(idle.cpu < 0.0005, "0.0 %: {idle:?}");
        assert!(with_client.cpu < 0.01, "{with_client:?}");
        for cost in [with_client, idle] {
            assert!(cost.memory_kib <= MEMORY_KIB, "{cost:?}");
        }
    }
}
