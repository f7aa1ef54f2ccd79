//! A UPF whose planes are containers of one pod, as in the example: their images are replaced under
//! traffic, and the pod is drained.

use std::thread;
use std::time::Duration;

use fastlane_tests::cluster::pod::{NAMESPACE, Pod, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Cluster, IMAGE, Process, UPDATED_IMAGE, eventually};
use serde_json::{Value, json};

use crate::upf_pod::{self, Networks, metric};

/// Sessions of the story.
const SESSIONS: usize = 3;
/// Number of pings while a container is replaced, and the seconds between two of them: they take
/// half a minute.
const PINGS: u32 = 6000;
const INTERVAL: &str = "0.005";
/// Pings that a replacement may lose beyond those that are lost without one. Without a handover the
/// restart of the fast path loses 200 and more.
const MAX_LOST: u32 = 20;

/// Returns the objects of the example for this cluster.
fn example(cluster: &Cluster, networks: &Networks) -> Vec<Value> {
    let mut objects = cluster.example("upf-containers.yaml");
    let written = objects[0]["data"]["upf.json"].as_str().expect("the configuration");
    let mut configuration: Value = serde_json::from_str(written).expect("JSON");
    let own = upf_pod::configuration(networks);
    configuration["ports"]["n3"]["driver"]["af-xdp"]["mode"] = json!("native-copy");
    configuration["ports"]["n6"]["driver"]["af-xdp"]["mode"] = json!("native-copy");
    configuration["app"]["interfaces"] = own["app"]["interfaces"].clone();
    objects[0]["data"]["upf.json"] = json!(configuration.to_string());
    let spec = &mut objects[1]["spec"]["template"]["spec"];
    // A story that fails must not leave a drain for long.
    spec["terminationGracePeriodSeconds"] = json!(90);
    spec["containers"][0]["args"] = json!(["drain", "--at-end", "--wait", "60"]);
    for kind in ["initContainers", "containers"] {
        for container in spec[kind].as_array_mut().expect("containers") {
            container["image"] = json!(IMAGE);
            container["imagePullPolicy"] = json!("Never");
            container["command"] = json!(["upf"]);
            container["resources"]["requests"] = json!({"cpu": "100m", "memory": "32Mi"});
        }
    }
    objects
}

/// UPF with sessions and a gNB.
struct Story<'a> {
    cluster: &'a Cluster,
    smf: Process,
    _gnb: Process,
    user: String,
    _pods: Pods<'a>,
    pod: Pod<'a>,
    networks: Networks,
    _release: Release<'a>,
}

impl<'a> Story<'a> {
    #[track_caller]
    fn start(cluster: &'a Cluster) -> Option<Self> {
        let networks = Networks::new(cluster)?;
        let release = Release::install(cluster, "auto", &upf_pod::pools());
        release.wait_for("the devices of node `node1` are published");
        let pods = Pods::new(cluster, &json!({}));
        cluster.apply(&example(cluster, &networks));
        let pod = pods.existing("upf-0");
        let address = upf_pod::wait_until_ready(&pod);
        let (smf, lines) = networks.smf(&address, SESSIONS);
        let gnb = networks.gnb(cluster, &lines);
        let user = lines[0].split(' ').nth(1).expect("an address of a UE").to_owned();
        // The first packets have Linux find the neighbours out.
        let answers = (0..30).any(|_| networks.ping(&user));
        assert!(answers, "{}", pod.log_of("fast"));
        Some(Self { cluster, smf, _gnb: gnb, user, _pods: pods, pod, networks, _release: release })
    }

    /// Pings while `event` happens. Returns the number of lost pings.
    #[track_caller]
    fn lost(&self, what: &str, event: impl FnOnce()) -> u32 {
        let lost = thread::scope(|scope| {
            let answers = scope.spawn(|| self.networks.ping_each(&self.user, PINGS, INTERVAL));
            event();
            assert!(!answers.is_finished(), "the pings ended too early");
            PINGS - answers.join().expect("no panic")
        });
        eprintln!("{what}: {lost} of {PINGS} pings lost");
        let sessions = metric(&self.pod, "upf_sessions");
        assert_eq!(sessions, Some(SESSIONS as f64), "{}", self.pod.log_of("slow"));
        lost
    }

    /// Replaces the image of a container of the running pod.
    #[track_caller]
    fn update(&self, container: &str) {
        let words = format!("set image pod/upf-0 --namespace={NAMESPACE}");
        self.cluster.kubectl(&format!("{words} {container}={UPDATED_IMAGE}"));
        eventually("the container runs from the new image", || {
            self.pod.runs(container, UPDATED_IMAGE) && self.pod.restarts_of(container) == 1
        });
        upf_pod::wait_until_ready(&self.pod);
        eventually("the fast path is held", || {
            let log = self.pod.log_of("slow");
            log.lines().rev().any(|line| line.contains("holding "))
        });
    }
}

#[test]
fn images_of_both_planes_are_replaced_with_all_sessions_and_the_pod_is_drained() {
    let Some(cluster) = Cluster::get() else { return };
    cluster.import_updated_image();
    let Some(story) = Story::start(&cluster) else { return };
    let pod = &story.pod;
    let usual = story.lost("nothing", || thread::sleep(Duration::from_secs(10)));
    // First the control plane, which then holds what the user plane has.
    for container in ["slow", "fast"] {
        let lost = story.lost(container, || story.update(container));
        assert!(lost <= usual + MAX_LOST, "{lost} lost, {usual} without an update");
    }
    assert_eq!(["slow", "fast", "drain"].map(|name| pod.restarts_of(name)), [1, 1, 0]);
    let log = pod.log_of("fast");
    assert!(log.contains("on AF_XDP and TAP are taken over"), "{log}");
    assert_eq!(metric(pod, "upf_draining"), Some(0.0), "an update is no end");

    // The end of the pod is one: its sessions are served until their SMF has moved them.
    let words = format!("delete pod upf-0 --namespace={NAMESPACE} --wait=false");
    cluster.kubectl(&words);
    eventually("it is drained", || metric(pod, "upf_draining") == Some(1.0));
    story.networks.assert_pings(&story.user, 100);
    assert_eq!(metric(pod, "upf_sessions"), Some(SESSIONS as f64));
    let uid = pod.object()["metadata"]["uid"].clone();
    assert!(story.smf.stop().status.success());
    eventually("another pod is made", || {
        let object = pod.object();
        !object.is_null() && object["metadata"]["uid"] != uid
    });
}
