//! The agent is away: its clients' traffic goes on, and the next agent takes them over.

use std::process::Command;
use std::thread;

use fastlane_tests::{
    Agent, Application, Echo, Host, Lab, Mechanism, Process, binary, eventually, unprivileged,
};
use serde_json::{Value, json};

use crate::{configuration, traffic};

/// Asserts that a restarted agent has the device of a client again.
#[track_caller]
fn is_taken_over(agent: &Agent) {
    eventually("the client comes back", || agent.process().stderr().contains("`wire0` again"));
}

/// Starts `fastlane keep` of an ordinary user and waits until it holds `descriptors` descriptors.
#[track_caller]
pub(crate) fn keeper(lab: &Lab, host: &Host, macswap: &Application, descriptors: usize) -> Process {
    let mut command = unprivileged(lab, host, "fastlane");
    command.arg("keep").arg(macswap.session()).args(["--seconds", "60"]);
    let keeper = Process::start(command);
    macswap.is_kept_by(&keeper, descriptors);
    keeper
}

/// Kills an application of an ordinary user and starts it again.
#[track_caller]
pub(crate) fn replaced(lab: &Lab, host: &Host, macswap: Application) -> Application {
    let session = macswap.session().to_owned();
    macswap.kill();
    let mut command = unprivileged(lab, host, "macswap");
    command.arg(session.with_extension("json"));
    Application::run(command, session)
}

/// Kills the agent while 20,000 packets cross macswap, and starts it again: none is lost.
#[track_caller]
pub(crate) fn kill_and_start_again(lab: &Lab, agent: &mut Agent, macswap: &Application) {
    let flows = || macswap.totals().wire("received_packets");
    thread::scope(|scope| {
        let report = scope.spawn(|| traffic(lab, 20_000, 5000));
        eventually("packets flow", || flows() > 500);
        agent.kill();
        let at_kill = flows();
        eventually("packets flow without the agent", || flows() > at_kill + 1000);
        assert_eq!(agent.pinned(), 1);
        agent.run(lab);
        is_taken_over(agent);
        let taken_over = flows();
        eventually("packets flow with the next agent", || flows() > taken_over + 500);
        report.join().expect("no panic").assert_intact();
    });
}

/// Checks that an agent controls the program of macswap: it counts, and replaces the rules. Then
/// ends macswap.
#[track_caller]
pub(crate) fn controls(lab: &Lab, agent: &Agent, macswap: Application) {
    eventually("all packets are counted", || macswap.totals().wire("steer_claimed") == 20_000);
    let file = macswap.session().with_extension("json");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let mut changed: Value = serde_json::from_str(&text).expect("JSON");
    changed["ports"]["wire"]["steer"] = json!([{"udp-port": 40_001}]);
    std::fs::write(&file, changed.to_string()).expect("the file is ours");
    let mut reload = Command::new(binary("fastlane"));
    let done = reload.arg("reload").arg(macswap.session()).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut echo = Echo::new(&lab.right, "wire0");
    assert!(!echo.try_once(std::time::Duration::from_millis(300)), "its rule is gone");
    let ended = macswap.stop();
    assert_eq!(ended.drops(), 0, "{}", ended.stderr);
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn no_packet_is_lost_while_the_agent_is_killed_and_started_again() {
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let Some(lab) = Lab::new("agent-killed", 1) else { return };
        let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
        let macswap = agent.macswap(&lab, configuration(mechanism));
        kill_and_start_again(&lab, &mut agent, &macswap);
        controls(&lab, &agent, macswap);
    }
}

#[test]
fn an_agent_that_ends_by_a_signal_leaves_the_traffic_too() {
    let Some(lab) = Lab::new("agent-stopped", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    for _ in 0..3 {
        let ended = agent.stop();
        assert!(ended.status.success(), "{}", ended.stderr);
        traffic(&lab, 200, 5000).assert_intact();
        agent.run(&lab);
        is_taken_over(&agent);
    }
    macswap.stop();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn what_a_client_had_that_ended_meanwhile_is_released() {
    let Some(lab) = Lab::new("agent-meanwhile", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    agent.kill();
    macswap.kill();
    // Without its sockets the program claims nothing.
    lab.right.assert_pings(2, &[fastlane_tests::LEFT]);
    assert_eq!(agent.pinned(), 1);
    agent.run(&lab);
    // The next application need not wait for the end of the grace period itself.
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    traffic(&lab, 500, 5000).assert_intact();
    assert_eq!(agent.pinned(), 1);
    macswap.stop();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn an_application_is_replaced_without_loss_of_its_sockets() {
    let Some(lab) = Lab::new("agent-handover", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let mut configuration = configuration(Mechanism::XdpNative);
    configuration["lanes"] = json!({"frames": 32_768});
    let mut macswap = agent.macswap(&lab, configuration);
    // Pool, socket, and the connection to the agent.
    let keeper = keeper(&lab, &lab.left, &macswap, 3);
    for _ in 0..2 {
        macswap = replaced(&lab, &lab.left, macswap);
        assert_eq!(agent.pinned(), 1);
        let stderr = macswap.process.stderr();
        assert!(stderr.contains("the ports on AF_XDP are taken over"), "{stderr}");
        traffic(&lab, 500, 5000).assert_intact();
        macswap.is_kept_by(&keeper, 3);
    }
    macswap.stop();
    assert_eq!(agent.pinned(), 1, "the holder keeps it");
    keeper.kill();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn an_application_that_is_replaced_after_a_restart_of_the_agent_opens_its_ports_anew() {
    let Some(lab) = Lab::new("agent-both", 1) else { return };
    let Some(mut agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    let keeper = keeper(&lab, &lab.left, &macswap, 3);
    agent.kill();
    agent.run(&lab);
    is_taken_over(&agent);
    // The holder has the connection to the agent that has ended.
    let macswap = replaced(&lab, &lab.left, macswap);
    let stderr = macswap.process.stderr();
    assert!(stderr.contains("the inherited ports are closed and reopened"), "{stderr}");
    traffic(&lab, 500, 5000).assert_intact();
    macswap.stop();
    keeper.kill();
    eventually("nothing stays", || agent.pinned() == 0);
}
