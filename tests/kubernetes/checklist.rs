//! Checks of the CNF test suite (CNTi) for workloads, with the example of macswap.

use fastlane_tests::cluster::pod::{NAMESPACE, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, IMAGE, eventually};
use serde_json::{Value, json};

use crate::{configuration, pools, traffic};

/// Returns the objects of the example with the image of the stories.
fn example(cluster: &Cluster) -> Vec<Value> {
    let mut objects = cluster.example("macswap.yaml");
    let container = &mut objects[1]["spec"]["template"]["spec"]["containers"][0];
    container["image"] = json!(IMAGE);
    container["command"] = json!(["macswap"]);
    container["resources"]["requests"] = json!({"cpu": "100m"});
    objects
}

#[track_caller]
fn rollout(cluster: &Cluster) {
    let rollout = format!("rollout status deployment macswap --namespace={NAMESPACE}");
    cluster.kubectl(&format!("{rollout} --timeout=90s"));
}

#[test]
fn the_example_becomes_ready_and_is_updated() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "auto", &pools());
    let pods = Pods::new(&cluster, &json!({}));
    cluster.apply(&example(&cluster));
    rollout(&cluster);
    traffic(&lab, 5000, 5000).assert_intact();
    cluster.kubectl(&format!("rollout restart deployment macswap --namespace={NAMESPACE}"));
    rollout(&cluster);
    traffic(&lab, 5000, 5000).assert_intact();
    let revisions = cluster.object(&format!("replicasets --namespace={NAMESPACE}"));
    assert_eq!(revisions["items"].as_array().map(Vec::len), Some(2), "{revisions}");
    drop(pods);
}

#[test]
fn a_node_is_drained_and_the_pod_comes_back() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "auto", &pools());
    let _pods = Pods::new(&cluster, &json!({}));
    cluster.apply(&example(&cluster));
    rollout(&cluster);
    let drain = "drain node1 --ignore-daemonsets --delete-emptydir-data --force --timeout=60s";
    cluster.kubectl(drain);
    cluster.kubectl("uncordon node1");
    rollout(&cluster);
    traffic(&lab, 5000, 5000).assert_intact();
}

#[test]
fn sigterm_ends_an_application_in_order() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = Release::install(&cluster, "auto", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let mut pod = Pods::macswap("macswap");
    pod["spec"]["restartPolicy"] = json!("Never");
    let pod = pods.run(&pod);
    traffic(&lab, 5000, 5000).assert_intact();
    cluster.signal("TERM", "macswap /etc/macswap/macswap.json");
    eventually("it has ended", || pod.object()["status"]["phase"] == "Succeeded");
    let ended = &pod.object()["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(ended["exitCode"], 0, "{}", pod.log());
    // Frames out = frames in, or the status would be 5.
    assert!(pod.log().contains("received_packets"), "{}", pod.log());
}

#[test]
fn a_pod_with_privileges_is_not_admitted_where_ours_is() {
    let Some(cluster) = Cluster::get() else { return };
    let pods = Pods::new(&cluster, &configuration());
    for (path, value) in [
        ("/spec/containers/0/securityContext", json!({"privileged": true})),
        ("/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/containers/0/securityContext/capabilities", json!({"add": ["NET_RAW"]})),
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/hostNetwork", json!(true)),
        ("/spec/hostPID", json!(true)),
    ] {
        let mut pod = Pods::macswap("privileged");
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = pod.pointer_mut(parent).expect("it exists");
        parent[key] = value;
        let refused = cluster.try_apply(&[pod]).expect_err("it is refused");
        assert!(refused.contains("violates PodSecurity \"restricted"), "{path}: {refused}");
    }
    drop(pods);
}
