//! Pods and processes without an allocation get nothing, even with the socket of another pod.

use fastlane_tests::cluster::pod::Pods;
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, Process, eventually};
use serde_json::json;

use crate::{configuration, pools, traffic};

/// Directory of the node with the sockets of all pods.
const SOCKETS: &str = "/var/lib/kubelet/plugins/fastlane.dev/pods";

#[test]
fn a_pod_with_the_socket_of_another_one_is_refused() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let _owner = pods.run(&Pods::macswap("owner"));
    let mut thief = Pods::macswap("thief");
    let container = &mut thief["spec"]["containers"][0];
    container["resources"]["limits"].as_object_mut().expect("limits").remove("fastlane.dev/wire");
    let script = "for socket in /stolen/*/agent.sock; do macswap /etc/macswap/macswap.json \
                  --set agent=$socket --set ports.wire.driver.af-xdp.interface=wire0; done";
    container["command"] = json!(["sh", "-c", script]);
    let mount = json!({"name": "stolen", "mountPath": "/stolen"});
    container["volumeMounts"].as_array_mut().expect("mounts").push(mount);
    let volume = json!({"name": "stolen", "hostPath": {"path": SOCKETS}});
    thief["spec"]["volumes"].as_array_mut().expect("volumes").push(volume);
    thief["spec"]["restartPolicy"] = json!("Never");
    // The directory is root's.
    thief["spec"]["securityContext"] = json!({"runAsUser": 0, "runAsGroup": 0});
    // No pod of the namespace may have it.
    let refused = cluster.try_apply(&[thief.clone()]).expect_err("it is refused");
    assert!(refused.contains("violates PodSecurity \"restricted"), "{refused}");
    // And if it could, it would not help.
    cluster.kubectl(
        "label --overwrite namespace stories pod-security.kubernetes.io/enforce=privileged",
    );
    let thief = pods.create(&thief);
    eventually("the agent refuses it", || thief.log().contains("has this allocation, not pod"));
    assert!(release.log().contains("has this allocation, not pod"), "{}", release.log());
    traffic(&lab, 1000, 5000).assert_intact();
}

#[test]
fn a_process_of_the_node_is_refused() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = Release::install(&cluster, "device-plugin", &pools());
    let pods = Pods::new(&cluster, &configuration());
    let _owner = pods.run(&Pods::macswap("owner"));
    let mut stolen = configuration();
    stolen["privileges"] = json!("agent");
    stolen["ports"]["wire"]["driver"]["af-xdp"]["interface"] = json!("wire0");
    let file = cluster.file("stolen.json");
    std::fs::write(&file, stolen.to_string()).expect("the folder is ours");
    let script = format!(
        "exec {} {} --set agent=$(echo {SOCKETS}/*/agent.sock)",
        fastlane_tests::binary("macswap").display(),
        file.display()
    );
    let command = cluster.command(&["sh", "-c", &script]);
    let ended = Process::start(command).wait();
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("is in no pod"), "{}", ended.stderr);
    assert!(release.log().contains("is in no pod"), "{}", release.log());
    traffic(&lab, 1000, 5000).assert_intact();
}
