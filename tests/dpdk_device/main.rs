//! A DPDK device that is removed while the application runs, or does not answer. After a removal
//! the process reports it, and carries traffic again when the device is back, or ends with its exit
//! status. Lanes do not wait for a device that is silent.
//!
//! The device is DPDK's AF_PACKET driver on an interface that is really removed and created again.
//! The driver itself does not report that, so `removal_events.c` raises the event.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fastlane_testing::skip;
use fastlane_tests::{Application, Echo, LEFT_MAC, Lab, binary, eventually};
use serde_json::{Value, json};

/// Builds a shared object of this test into the directory of the lab. Returns `None` after a skip
/// without DPDK.
fn build(lab: &Lab, name: &str) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let flags = flags.ok().filter(|output| output.status.success());
    let Some(flags) = flags.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()) else {
        skip("dpdk", "DPDK's development files are missing: apt install libdpdk-dev");
        return None;
    };
    if !binary("macswap").with_file_name("libfastlane_dpdk.so").is_file() {
        skip("dpdk", "the plugin is missing: make dpdk-plugin");
        return None;
    }
    let object = lab.file(&format!("{name}.so"));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/dpdk_device");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"])
        .args(["-DALLOW_EXPERIMENTAL_API", "-D_GNU_SOURCE", &format!("{folder}/{name}.c"), "-o"])
        .arg(&object)
        .args(flags.split_whitespace())
        .args(["-Wl,--as-needed", "-lrte_ethdev", "-lrte_eal"])
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(object)
}

/// Starts macswap on `wire0` by DPDK, with a shared object loaded before all others, a variable of
/// the environment, and more keys of its port.
fn macswap(lab: &Lab, preload: &Path, variable: &str, keys: &Value) -> Application {
    let mut configuration =
        Application::steered(&json!({"dpdk": {"vdev": "net_af_packet0,iface=wire0"}}));
    configuration["dpdk"] = json!({"huge-pages": "none"});
    configuration["metrics"] = json!({});
    for (key, value) in keys.as_object().expect("keys") {
        configuration["ports"]["wire"][key] = value.clone();
    }
    let preload = format!("LD_PRELOAD={}", preload.display());
    let wrapper = ["env", &preload, variable];
    Application::start_behind(lab, &lab.left, &wrapper, &binary("macswap"), configuration)
}

/// Shared object that raises events, and the FIFO of its requests.
struct RemovalEvents {
    object: PathBuf,
    requests: PathBuf,
}

impl RemovalEvents {
    /// Builds it. Returns `None` after a skip without DPDK.
    fn new(lab: &Lab) -> Option<Self> {
        let object = build(lab, "removal_events")?;
        let requests = lab.file("removal_events.so.fifo");
        let made = Command::new("mkfifo").arg(&requests).status().expect("mkfifo");
        assert!(made.success());
        Some(Self { object, requests })
    }

    /// Starts macswap with more keys of its port.
    fn macswap(&self, lab: &Lab, keys: &Value) -> Application {
        let variable = format!("FASTLANE_TEST_REMOVALS={}", self.requests.display());
        macswap(lab, &self.object, &variable, keys)
    }

    /// Removes the interface, and raises an event for it: `port` or `device`.
    fn remove(&self, lab: &Lab, event: &str) {
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        std::fs::write(&self.requests, format!("{event} net_af_packet0\n")).expect("a reader");
    }
}

/// Waits until the metric of the port has this value and reason.
fn is_up(lab: &Lab, value: u8, reason: &str) {
    eventually(&format!("fastlane_port_up is {value}, {reason}"), || {
        let page = lab.left.run(&["curl", "--silent", "--fail", "http://127.0.0.1:9464/metrics"]);
        let mut samples = page.lines().filter(|line| line.starts_with("fastlane_port_up{"));
        samples.any(|sample| sample.ends_with(&format!("reason=\"{reason}\"}} {value}")))
    });
}

#[test]
fn a_device_that_is_back_carries_traffic_in_the_running_lane() {
    let Some(lab) = Lab::new("dpdk-removal", 1) else { return };
    let Some(events) = RemovalEvents::new(&lab) else { return };
    let macswap = events.macswap(&lab, &json!({}));
    is_up(&lab, 1, "");
    for (round, event) in ["port", "device", "port"].into_iter().enumerate() {
        let mut echo = Echo::new(&lab.right, "wire0");
        eventually("traffic", || echo.try_once(Duration::from_millis(50)));
        (0..20).for_each(|_| echo.once());
        events.remove(&lab, event);
        let count = |words: &str| macswap.process.stderr().matches(words).count();
        let removed = "port `wire`: the device net_af_packet0 was removed; the port is reopened if \
                       it is back within 60 s";
        eventually("the removal is reported", || count(removed) == round + 1);
        is_up(&lab, 0, "removed");
        lab.join(1, LEFT_MAC);
        let reopened = "port `wire`: reopened on net_af_packet0 after";
        eventually("the return is reported", || count(reopened) == round + 1);
        is_up(&lab, 1, "");
    }
    let mut echo = Echo::new(&lab.right, "wire0");
    // Frames sent before the link is ready are lost.
    eventually("traffic", || echo.try_once(Duration::from_millis(50)));
    (0..20).for_each(|_| echo.once());
    assert!(macswap.totals().wire("received_packets") >= 80, "{}", macswap.totals().0);
    // Exit status 0 says that all frames are back in their pools.
    let _ = macswap.stop();
}

#[test]
fn the_application_ends_at_a_removal_if_it_is_told_to() {
    let Some(lab) = Lab::new("dpdk-removal-exit", 1) else { return };
    let Some(events) = RemovalEvents::new(&lab) else { return };
    let macswap = events.macswap(&lab, &json!({"on-removal": "exit"}));
    Echo::new(&lab.right, "wire0").once();
    events.remove(&lab, "port");
    let ended = macswap.process.wait();
    assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
    let expected = "port `wire`: the device net_af_packet0 was removed; attach it and start the \
                    application again, or write `\"on-removal\": \"reopen\"`";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
}

#[test]
fn the_application_ends_if_the_device_does_not_come_back() {
    let Some(lab) = Lab::new("dpdk-removal-timeout", 1) else { return };
    let Some(events) = RemovalEvents::new(&lab) else { return };
    let macswap = events.macswap(&lab, &json!({"reopen-within-s": 1}));
    events.remove(&lab, "device");
    let ended = macswap.process.wait();
    assert_eq!(ended.status.code(), Some(5), "{}", ended.stderr);
    let expected = ["port `wire`: net_af_packet0", "could not be reopened within 1 s"];
    for expected in expected {
        assert!(ended.stderr.contains(expected), "`{expected}` is not in: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("frames were not returned"), "{}", ended.stderr);
}

#[test]
fn the_application_ends_in_order_while_the_device_is_away() {
    let Some(lab) = Lab::new("dpdk-removal-stop", 1) else { return };
    let Some(events) = RemovalEvents::new(&lab) else { return };
    let macswap = events.macswap(&lab, &json!({}));
    Echo::new(&lab.right, "wire0").once();
    events.remove(&lab, "port");
    macswap.process.wait_for("was removed");
    let _ = macswap.stop();
}

#[test]
fn lanes_do_not_wait_for_a_device_that_does_not_answer() {
    let Some(lab) = Lab::new("dpdk-silent", 1) else { return };
    let Some(object) = build(&lab, "silent_device") else { return };
    let (silent, asked) = (lab.file("silent"), lab.file("silent.asked"));
    let variable = format!("FASTLANE_TEST_SILENT={}", silent.display());
    let macswap = macswap(&lab, &object, &variable, &json!({}));
    let mut echo = Echo::new(&lab.right, "wire0");
    echo.once();
    std::fs::write(&silent, "").expect("our directory");
    eventually("the device is asked", || asked.exists());
    (0..1000).for_each(|_| echo.once());
    std::fs::remove_file(&silent).expect("it was made");
    let ended = macswap.stop();
    for counter in ["steer_claimed", "verdict_reflect", "sent_packets"] {
        assert_eq!(ended.counter(counter), 1001, "{counter}: {}", ended.stderr);
    }
}

#[test]
fn the_frames_of_a_lane_are_on_the_node_of_its_device() {
    let Some(lab) = Lab::new("dpdk-node", 1) else { return };
    let Some(object) = build(&lab, "numa_node") else { return };
    let nodes = lab.file("nodes");
    let variable = format!("FASTLANE_TEST_NODES={}", nodes.display());
    let macswap = macswap(&lab, &object, &variable, &json!({}));
    Echo::new(&lab.right, "wire0").once();
    let _ = macswap.stop();
    let nodes = std::fs::read_to_string(nodes).expect("mempools were created");
    assert!(!nodes.is_empty() && nodes.lines().all(|line| line.ends_with(" on 1")), "{nodes}");
}
