//! The key `privileges`: which process opens the ports, and what is said if neither can.

use fastlane_tests::{Agent, Application, Lab, Mechanism, eventually};
use serde_json::{Value, json};

use crate::{configuration, refused, traffic};

fn with(privileges: &str) -> Value {
    let mut configuration = configuration(Mechanism::XdpNative);
    configuration["privileges"] = json!(privileges);
    configuration
}

#[test]
fn without_capabilities_and_without_an_agent_both_remedies_are_named() {
    let Some(lab) = Lab::new("privileges-none", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
    agent.stop();
    let socket = agent.socket().display().to_string();
    let missing = "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_PERFMON missing for AF_XDP on `wire0`";
    let remedies = ["fastlane agent", "run as root", "AmbientCapabilities="];
    let words = [&["port `wire`: ", missing, &socket][..], &remedies].concat();
    refused(&lab, &agent, with("auto"), &words);
    let words = ["the agent cannot be reached at", &socket, "start `fastlane agent`"];
    refused(&lab, &agent, with("agent"), &words);
    refused(&lab, &agent, with("own"), &["CAP_"]);
}

#[test]
fn own_does_not_ask_the_agent_and_auto_asks_only_without_capabilities() {
    let Some(lab) = Lab::new("privileges-choice", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    refused(&lab, &agent, with("own"), &["CAP_"]);
    // Root has the capabilities, and is in no pool of the agent.
    for privileges in ["auto", "own"] {
        let mut configuration = with(privileges);
        configuration["agent"] = json!(agent.socket());
        let macswap = Application::macswap(&lab, configuration);
        traffic(&lab, 200, 5000).assert_intact();
        assert_eq!(agent.pinned(), 0);
        macswap.stop();
    }
    let mut configuration = with("agent");
    configuration["agent"] = json!(agent.socket());
    let (status, message) = Application::refused(&lab, &[], configuration);
    assert_eq!(status, Some(4), "{message}");
    assert!(message.contains("user 0 (group 0) may use no pool of the agent"), "{message}");
    agent.macswap(&lab, with("agent")).stop();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn af_packet_is_refused_unless_the_pool_allows_it() {
    let Some(lab) = Lab::new("privileges-drivers", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let packet = configuration(Mechanism::Packet);
    refused(&lab, &agent, packet, &["pool `upf` allows no AF_PACKET sockets"]);
}

#[test]
fn the_agent_names_the_program_that_holds_the_interface() {
    let Some(lab) = Lab::new("privileges-xdp", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let holder = Application::macswap(&lab, with("own"));
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let words = [
            // The agent lacks the capability that tells the name.
            "port `wire`: an XDP program (id ",
            ", native mode) is attached to `wire0`: `bpftool prog show id ",
        ];
        refused(&lab, &agent, configuration(mechanism), &words);
    }
    holder.stop();
    agent.macswap(&lab, configuration(Mechanism::XdpNative)).stop();
}
