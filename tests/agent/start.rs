//! The start of the agent, and what it costs.

use std::path::Path;
use std::time::Duration;

use fastlane_tests::{Agent, Ended, Lab, Mechanism, Process, binary};
use serde_json::json;

use crate::configuration;

/// Maximum memory of the agent without that of files, in KiB. Its program is larger in a build for
/// development than in a release.
const MEMORY_KIB: u64 = 4096;

/// Runs the agent with these capabilities until it refuses to start.
#[track_caller]
fn refused(lab: &Lab, bounding: &str, config: &Path, words: &[&str]) {
    let bounding = format!("--bounding-set={bounding}");
    let mut command = lab.left.command(&["setpriv", &bounding, "--inh-caps=-all"]);
    command.arg(binary("fastlane")).arg("agent").arg(config);
    let Ended { status, stderr, .. } = Process::start(command).wait();
    assert_eq!(status.code(), Some(1), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no `{word}` in {stderr}");
    }
}

#[test]
fn a_start_that_cannot_be_says_why_and_what_to_do() {
    let Some(lab) = Lab::new("agent-start", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let all = "-all,+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock";
    let config = lab.file("agent.json");
    let text = std::fs::read_to_string(&config).expect("the configuration");
    refused(&lab, all, &config, &["another agent has its pins at", "end it first"]);
    agent.stop();
    for (bounding, words) in [
        ("-all,+net_raw,+bpf,+perfmon", "the agent lacks CAP_NET_ADMIN:"),
        ("-all,+net_admin,+bpf,+perfmon", "the agent lacks CAP_NET_RAW:"),
        ("-all,+net_admin,+net_raw,+perfmon", "the agent lacks CAP_BPF:"),
        ("-all,+net_admin,+net_raw,+bpf", "the agent lacks CAP_PERFMON:"),
    ] {
        refused(&lab, bounding, &config, &[words, "docs/fastlane-agent.service"]);
    }
    let mut changed: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    changed["pins"] = json!(lab.file("no-bpf"));
    std::fs::write(&config, changed.to_string()).expect("the file is ours");
    refused(&lab, all, &config, &["it is in no BPF file system", "mount -t bpf"]);
    changed["socket"] = json!(config);
    changed["pins"] = json!(lab.file("bpf"));
    std::fs::write(&config, changed.to_string()).expect("the file is ours");
    refused(&lab, all, &config, &["another file is there"]);
    changed["pools"]["upf"]["usres"] = json!([1]);
    std::fs::write(&config, changed.to_string()).expect("the file is ours");
    refused(&lab, all, &config, &["pools.upf.usres", "did you mean `users`?"]);
}

#[test]
fn an_idle_agent_costs_nothing() {
    let Some(lab) = Lab::new("agent-idle", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let ticks = |time: Duration| {
        let before = agent.process().cpu_ticks();
        std::thread::sleep(time);
        agent.process().cpu_ticks() - before
    };
    assert_eq!(ticks(Duration::from_secs(2)), 0, "without a client it sleeps");
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    // The client reads its counters ten times a second.
    let with_client = ticks(Duration::from_secs(5));
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.process().id()));
    let status = status.expect("the agent runs");
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let memory = memory.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    println!("{with_client} ticks of 10 ms in 5 s with a client, {memory:?} KiB");
    assert!(with_client <= 5, "{with_client} ticks of 500");
    assert!(memory.is_some_and(|memory| memory <= MEMORY_KIB), "{status}");
    macswap.stop();
}
