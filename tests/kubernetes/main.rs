//! Pods on a Kubernetes cluster of one node get interfaces of the node from the agent.

mod chart;
mod checklist;
mod device_plugin;
mod dra;
mod handover;
mod images;
mod memif;
mod monitoring;
mod operating;
mod restarts;
mod rolling_update;
mod scaling;
mod strangers;
mod upf_pod;

use fastlane_tests::{Application, Lab, Mechanism, Report, measure};
use serde_json::{Value, json};

/// Returns the configuration of macswap in a pod that has an interface of pool `wire`.
fn configuration() -> Value {
    let mut configuration = Application::steered(&Mechanism::XdpNative.on("env:FASTLANE_WIRE_0"));
    let port = &mut configuration["ports"]["wire"];
    port["kernel"] = json!("none");
    // A machine that is busy with other stories may not run a pod for a while: it holds 3 s.
    port["driver"]["af-xdp"]["receive-ring"] = json!(RING);
    configuration["lanes"] = json!({"frames": 2 * RING});
    configuration
}

/// Returns the pools of the stories: `wire0` with the rules of [`configuration`].
fn pools() -> Value {
    let steer = json!([{"udp-port": 2152}, {"udp-port": "40000-40099"}]);
    json!({"wire": {"interfaces": {"wire0": {}}, "steer": steer}})
}

/// Sends packets from the host behind `wire0` of the node; all must come back with swapped
/// addresses.
fn traffic(lab: &Lab, packets: u64, rate: u64) -> Report {
    let driver = json!({"af-packet": {"interface": "wire0", "ring": RING}});
    let app = json!({
        "rate-packets-per-second": rate,
        "count-packets": packets,
        "flows": {"count": 16},
    });
    measure(lab, &lab.right, &driver, app).0
}

/// Largest ring that a configuration may have, in packets.
const RING: u32 = 32_768;
/// Rate of a story with many packets, in packets per second.
const RATE: u64 = 10_000;

/// Returns the number of packets of a story and their rate: many more in a soak run, which thus
/// takes minutes.
fn load() -> (u64, u64) {
    match std::env::var_os("FASTLANE_SOAK") {
        Some(_) => (10_000_000, 4 * RATE),
        None => (200_000, RATE),
    }
}
