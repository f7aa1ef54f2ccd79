//! A claim that two pods share is a wire between them.

use std::time::{Duration, Instant};

use fastlane_tests::cluster::pod::{NAMESPACE, Pods};
use fastlane_tests::cluster::release::Release;
use fastlane_tests::{Application, Cluster, PATIENCE, Report};
use serde_json::{Value, json};

use crate::{RATE, load, pools};

/// Returns a pod that runs a program with a memif port on the claim `link`.
fn pod(name: &str, program: &str) -> Value {
    let mut pod = Pods::macswap(name);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["resourceClaims"] = json!([{"name": "link", "resourceClaimName": "link"}]);
    pod["spec"]["volumes"][0]["configMap"]["name"] = json!(name);
    let container = &mut pod["spec"]["containers"][0];
    container["resources"]["limits"].as_object_mut().expect("limits").remove("fastlane.dev/wire");
    container["resources"]["claims"] = json!([{"name": "link"}]);
    container["command"] = json!([program, "/etc/macswap/config.json"]);
    pod
}

/// Returns the configuration of a program whose port `wire` is one end of the link.
fn configuration(name: &str, role: &str, app: Option<Value>) -> Value {
    let socket = "/run/fastlane.dev/memif/end/memif.sock";
    // A loaded machine may not run a pod for a while.
    let driver = json!({"memif": {"socket": socket, "role": role, "ring": 16_384}});
    let mut configuration = Application::steered(&driver);
    configuration["lanes"] = json!({"frames": 65_536});
    if let Some(app) = app {
        configuration["app"] = app;
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"config.json": configuration.to_string()},
    })
}

#[test]
fn two_pods_that_share_a_claim_exchange_packets_over_memif() {
    let Some(cluster) = Cluster::get() else { return };
    let _lab = cluster.wire();
    let release = Release::install(&cluster, "dra", &pools());
    release.wait_for("the devices of node `node1` are published");
    let pods = Pods::new(&cluster, &json!({}));
    // A ring of 1024 frames, which nobody waits for, holds those of 0.4 s without a CPU.
    let (packets, rate) = (load().0 / 4, RATE / 4);
    let app = json!({
        "port": "wire", "rate-packets-per-second": rate, "count-packets": packets,
        "linger-ms": 2000, "report": "-", "flows": {"count": 16},
    });
    let request = json!({"name": "end", "exactly": {"deviceClassName": "memif.fastlane.dev"}});
    cluster.apply(&[
        configuration("server", "server", None),
        configuration("client", "client", Some(app)),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "link", "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [request]}},
        }),
    ]);
    let server = pods.run(&pod("server", "macswap"));
    let client = pods.create(&pod("client", "traffic"));
    let end = Instant::now() + PATIENCE + Duration::from_secs(2 * packets / rate);
    while client.object()["status"]["phase"] != "Succeeded" {
        assert!(Instant::now() < end, "the traffic does not end: {}", client.log());
        std::thread::sleep(Duration::from_millis(500));
    }
    // The table goes to standard error, whose lines are in the log too, also between those of the
    // report. They begin with words.
    let log = client.log();
    let report = log.find("\n{").map_or(&log[..], |start| &log[start..]);
    let is_word = |line: &&str| line.trim_start().starts_with(|first: char| first.is_alphabetic());
    let report: String = report.lines().filter(|line| !is_word(line)).collect();
    let mut values = serde_json::Deserializer::from_str(&report).into_iter::<Value>();
    let report = values.next().and_then(Result::ok).unwrap_or_else(|| panic!("{log}"));
    // Where packets are, if some are missing.
    eprintln!("the client: {log}\nthe server: {}", server.totals().0);
    Report(report).assert_intact();
    assert_eq!(server.totals().wire("received_packets"), packets);
    server.delete();
}
