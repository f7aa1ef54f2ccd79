//! The agent opens ports for applications that have no capability at all.

mod absence;
mod attacks;
mod elsewhere;
mod grants;
mod handshake;
mod hostile;
mod kernel_path;
mod packet;
mod pod_attacks;
mod privileges;
mod reopened;
mod start;
mod steering;
mod taps;

use fastlane_tests::{
    Agent, Application, Lab, Mechanism, Process, Report, assert_unprivileged, measure,
};
use serde_json::{Value, json};

/// Returns the configuration of macswap, which has no path into Linux.
fn configuration(mechanism: Mechanism) -> Value {
    let mut configuration = Application::steered(&mechanism.on("wire0"));
    configuration["ports"]["wire"]["kernel"] = json!("none");
    configuration
}

/// Sends packets from the right host; all must come back with swapped addresses.
fn traffic(lab: &Lab, packets: u64, rate: u64) -> Report {
    let driver = json!({"af-packet": {"interface": "wire0", "ring": 16_384}});
    let app = json!({
        "rate-packets-per-second": rate,
        "count-packets": packets,
        "flows": {"count": 16},
    });
    measure(lab, &lab.right, &driver, app).0
}

/// Runs macswap without any capability until it refuses to start; the message must have all words.
#[track_caller]
fn refused(lab: &Lab, agent: &Agent, configuration: Value, words: &[&str]) {
    let (command, _) = agent.client(lab, "macswap", configuration);
    let ended = Process::start(command).wait();
    assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
    for word in words {
        assert!(ended.stderr.contains(word), "no `{word}` in {}", ended.stderr);
    }
}

#[test]
fn an_application_without_any_capability_forwards_on_af_xdp() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let Some(lab) = Lab::new("agent-macswap", 2) else { return };
        let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
        let macswap = agent.macswap(&lab, configuration(mechanism));
        let report = traffic(&lab, 5000, 5000);
        report.assert_intact();
        let totals = macswap.totals();
        assert_eq!((totals.wire("received_packets"), totals.wire("sent_packets")), (5000, 5000));
        assert_eq!(totals.wire("steer_claimed"), 5000);
        assert_eq!(totals.drops("wire"), []);
        assert_unprivileged(&macswap.process);
        assert_eq!(agent.pinned(), 1);
        // What no rule claims stays in Linux.
        lab.right.assert_pings(3, &[fastlane_tests::LEFT]);
        macswap.stop();
    }
}

#[test]
fn what_an_application_has_ends_with_it() {
    let Some(lab) = Lab::new("agent-end", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let before = agent.descriptors();
    for is_killed in [true, false, true] {
        let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
        traffic(&lab, 500, 5000).assert_intact();
        if is_killed {
            macswap.kill();
        } else {
            macswap.stop();
        }
        fastlane_tests::eventually("the agent releases everything", || {
            agent.descriptors() == before && agent.pinned() == 0
        });
        let link = lab.left.run(&["ip", "-d", "link", "show", "dev", "wire0"]);
        assert!(!link.contains("xdp"), "{link}");
    }
}
