//! Pods get devices by dynamic resource allocation.

use fastlane_tests::cluster::pod::{NAMESPACE, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, eventually};
use serde_json::{Value, json};

use crate::{configuration, load, pools, traffic};

/// Installs the agent, which takes DRA by itself, and waits until its devices are published.
#[track_caller]
fn install(cluster: &Cluster) -> Release<'_> {
    let release = Release::install(cluster, "auto", &pools());
    release.wait_for("pods get the pools by DRA");
    release.wait_for("the driver fastlane.dev is registered at kubelet");
    release.wait_for("the devices of node `node1` are published");
    release
}

/// Returns a request for an interface of pool `wire` that its attributes select.
fn selected_interface() -> Value {
    let expression = "device.attributes['fastlane.dev'].interface == 'wire0' && \
                      device.capacity['fastlane.dev'].queues.compareTo(quantity('1')) >= 0";
    json!({
        "deviceClassName": "wire.fastlane.dev",
        "selectors": [{"cel": {"expression": expression}}],
    })
}

/// Returns the template of claims with this request.
fn template(exactly: &Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "nic", "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [{"name": "q", "exactly": exactly}]}}},
    })
}

/// Changes a pod so that it has a claim instead of a limit.
fn with_claim(mut pod: Value) -> Value {
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    resources["limits"].as_object_mut().expect("limits").remove("fastlane.dev/wire");
    resources["claims"] = json!([{"name": "wire"}]);
    let claim = json!({"name": "wire", "resourceClaimTemplateName": "nic"});
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod
}

#[test]
fn a_pod_forwards_by_a_limit_that_dra_serves() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = install(&cluster);
    let pods = Pods::new(&cluster, &configuration());
    let pod = pods.run(&Pods::macswap("macswap"));
    pod.assert_unprivileged();
    let mappings = &pod.object()["status"]["extendedResourceClaimStatus"]["requestMappings"];
    assert_eq!(mappings[0]["resourceName"], "fastlane.dev/wire");
    let (packets, rate) = load();
    traffic(&lab, packets, rate).assert_intact();
    let totals = pod.totals();
    assert_eq!(totals.wire("received_packets"), packets);
    assert_eq!(totals.drops("wire"), []);
    // The next pod has the device as soon as this one has ended.
    pod.delete();
    let _next = pods.run(&Pods::macswap("next"));
    traffic(&lab, 1000, 5000).assert_intact();
}

#[test]
fn a_pod_forwards_by_a_claim_and_knows_its_device() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = install(&cluster);
    let pods = Pods::new(&cluster, &configuration());
    cluster.apply(&[template(&selected_interface())]);
    let pod = pods.run(&with_claim(Pods::macswap("macswap")));
    pod.assert_unprivileged();
    let (packets, rate) = load();
    traffic(&lab, packets, rate).assert_intact();
    // KEP-4817: the status of the claim.
    let claim = cluster.object(&format!("resourceclaims --namespace={NAMESPACE}"));
    let data = &claim["items"][0]["status"]["devices"][0]["networkData"];
    assert_eq!(data["interfaceName"], "wire0", "{claim}");
    assert_eq!(data["hardwareAddress"], fastlane_tests::LEFT_MAC);
    // KEP-5304: the file in the container.
    let file = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/wire/q/\
                fastlane.dev-metadata.json";
    let metadata: Value = serde_json::from_str(&pod.exec(&["cat", file])).expect("JSON");
    let device = &metadata["requests"][0]["devices"][0];
    assert_eq!(device["attributes"]["interface"]["string"], "wire0", "{metadata}");
    // The health of the device.
    let health = || {
        let status =
            pod.object()["status"]["containerStatuses"][0]["allocatedResourcesStatus"].take();
        status[0]["resources"][0]["health"].as_str().map(str::to_owned)
    };
    eventually("it is healthy", || health().as_deref() == Some("Healthy"));
    lab.right.run(&["ip", "link", "set", "wire0", "down"]);
    eventually("it is unhealthy", || health().as_deref() == Some("Unhealthy"));
    let slice = cluster.object("resourceslice node1-fastlane.dev");
    let taint = &slice["spec"]["devices"][0]["taints"][0];
    assert_eq!(taint["value"], "it-has-no-carrier", "{slice}");
    lab.right.run(&["ip", "link", "set", "wire0", "up"]);
    eventually("it is healthy again", || health().as_deref() == Some("Healthy"));
    eventually("its taint is removed", || {
        let slice = cluster.object("resourceslice node1-fastlane.dev");
        slice["spec"]["devices"][0]["taints"].is_null()
    });
    pod.delete();
    release.wait_for("is released");
    assert_eq!(cluster.attempt(&["ls", "/var/run/cdi"]).as_deref(), Ok(""));
}

#[test]
fn a_claim_gets_a_pci_device_of_its_pool() {
    let Some(cluster) = Cluster::get() else { return };
    // The machine has no such device. So it is tainted, which the claim tolerates.
    let mut pools = pools();
    pools["vf"] = json!({"pci": ["ffff:1f:1f.7"], "steer": []});
    let release = Release::install(&cluster, "dra", &pools);
    release.wait_for("the devices of node `node1` are published");
    let pods = Pods::new(&cluster, &configuration());
    let taint = json!({"key": "fastlane.dev/unusable", "operator": "Exists"});
    let exactly = json!({"deviceClassName": "vf.fastlane.dev", "tolerations": [taint]});
    cluster.apply(&[template(&exactly)]);
    let pod = pods.create(&with_claim(Pods::macswap("macswap")));
    eventually("the claim has the device", || {
        let claim = cluster.object(&format!("resourceclaims --namespace={NAMESPACE}"));
        let results = &claim["items"][0]["status"]["allocation"]["devices"]["results"];
        results[0]["device"] == "ffff-1f-1f-7"
    });
    pod.delete();
}

#[test]
fn a_pod_forwards_in_a_user_namespace_of_its_own() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let _release = install(&cluster);
    let pods = Pods::new(&cluster, &configuration());
    let mut pod = Pods::macswap("macswap");
    pod["spec"]["hostUsers"] = json!(false);
    let pod = pods.run(&pod);
    pod.assert_unprivileged();
    let mapped = pod.exec(&["cat", "/proc/self/uid_map"]);
    assert_ne!(mapped.split_whitespace().nth(1), Some("0"), "{mapped}");
    let (packets, rate) = load();
    traffic(&lab, packets, rate).assert_intact();
}

#[test]
fn no_packet_is_lost_while_the_driver_and_kubelet_are_killed() {
    let Some(cluster) = Cluster::get() else { return };
    let Some(lab) = cluster.wire() else { return };
    let release = install(&cluster);
    let pods = Pods::new(&cluster, &configuration());
    let pod = pods.run(&Pods::macswap("macswap"));
    let received = || pod.totals().wire("received_packets");
    std::thread::scope(|scope| {
        let report = scope.spawn(|| traffic(&lab, 200_000, 5000));
        eventually("packets flow", || received() > 1000);
        release.kill();
        release.wait_for("`wire0` again");
        release.wait_for("the driver fastlane.dev is registered at kubelet");
        cluster.kill_service("kubelet");
        // Kubelet deletes the slices of its node when it starts.
        release.wait_for("the devices of node `node1` are published");
        eventually("kubelet serves again", || cluster.attempt(&pod.top()).is_ok());
        assert!(!report.is_finished(), "the traffic ended too early");
        report.join().expect("no panic").assert_intact();
    });
    assert_eq!(pod.restarts(), 0);
    pod.delete();
    let _next = pods.run(&Pods::macswap("next"));
    traffic(&lab, 1000, 5000).assert_intact();
}
