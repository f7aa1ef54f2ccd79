//! TAP devices for applications without privilege, in their own network namespace.

use fastlane_tests::{
    Agent, Application, Host, Lab, NOBODY, Process, assert_unprivileged, eventually, measure,
};
use serde_json::{Value, json};

const TAP: &str = "tap7";
const ADDRESS: &str = "10.88.0.1/24";

fn pools() -> Value {
    json!({"upf": {
        "steer": [],
        "taps": {TAP: {"addresses": [ADDRESS]}},
        "users": [NOBODY],
    }})
}

fn configuration(tap: &Value) -> Value {
    json!({"ports": {"wire": {"driver": {"tap": tap}}}})
}

/// Sends packets on the TAP device of a host; all must come back.
fn traffic(lab: &Lab, host: &Host) {
    let app = json!({
        "rate-packets-per-second": 5000,
        "count-packets": 1000,
        "flows": {"count": 16},
    });
    let driver = json!({"af-packet": {"interface": TAP, "ring": 16_384}});
    measure(lab, host, &driver, app).0.assert_intact();
}

fn interfaces(host: &Host) -> String {
    host.run(&["ip", "-oneline", "address", "show"])
}

/// Lists the names of a host's interfaces. Their states and link-local addresses settle in
/// their own time and are no concern of the agent.
fn names(host: &Host) -> Vec<String> {
    let list = host.run(&["ip", "-brief", "link", "show"]);
    list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_tap_device_of_the_pool_is_made_for_an_application_without_any_capability() {
    let Some(lab) = Lab::new("agent-tap", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &pools()) else { return };
    let before = agent.descriptors();
    let tap = json!({"name": TAP, "addresses": [ADDRESS], "mtu": 1400});
    let (command, session) = agent.client(&lab, "macswap", configuration(&tap));
    let macswap = Application::run(command, session);
    assert_unprivileged(&macswap.process);
    assert!(interfaces(&lab.left).contains(ADDRESS), "{}", interfaces(&lab.left));
    traffic(&lab, &lab.left);
    // The device is the application's: the agent may end.
    agent.kill();
    traffic(&lab, &lab.left);
    agent.run(&lab);
    macswap.stop();
    eventually("the device ends", || !interfaces(&lab.left).contains(TAP));
    assert_eq!(agent.descriptors(), before);
}

#[test]
fn a_tap_device_is_in_the_network_namespace_of_its_application() {
    let Some(lab) = Lab::new("agent-tap-there", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let there = |tap: &Value| agent.client_on(&lab, &lab.right, "macswap", configuration(tap));
    // A name that is taken where the agent is.
    lab.left.run(&["ip", "link", "add", TAP, "type", "veth", "peer", "name", "other7"]);
    let (command, session) = there(&json!({"name": TAP, "addresses": [ADDRESS]}));
    let macswap = Application::run(command, session);
    assert_unprivileged(&macswap.process);
    let link = lab.right.run(&["ip", "-d", "link", "show", "dev", TAP]);
    assert!(link.contains("tun type tap") && link.contains("UP"), "{link}");
    assert!(interfaces(&lab.right).contains(&format!("inet {ADDRESS}")), "its address");
    assert!(!lab.left.run(&["ip", "-d", "link", "show"]).contains("type tap"));
    traffic(&lab, &lab.right);
    macswap.kill();
    eventually("the device ends", || !interfaces(&lab.right).contains(TAP));
}

#[test]
fn other_tap_devices_and_addresses_are_refused() {
    let Some(lab) = Lab::new("agent-tap-outside", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let before = (agent.descriptors(), names(&lab.left));
    for (tap, words) in [
        (json!({"name": "tap8"}), "may not create the TAP device `tap8`, only [tap7]"),
        (json!({"name": TAP, "addresses": ["10.77.0.1/24"]}), "may not have 10.77.0.1/24"),
        (json!({"name": TAP, "addresses": ["10.88.0.1/8"]}), "may not have 10.88.0.1/8"),
        (json!({}), "write the `name` of one"),
    ] {
        let (command, _) = agent.client(&lab, "macswap", configuration(&tap));
        let ended = Process::start(command).wait();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "no `{words}` in {}", ended.stderr);
    }
    eventually("nothing stays", || (agent.descriptors(), names(&lab.left)) == before);
}
