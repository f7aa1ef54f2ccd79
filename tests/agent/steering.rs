//! Rules of applications: within those of the pool, and replaced while the application runs.

use std::process::Command;
use std::time::Duration;

use fastlane_tests::{Agent, Echo, Lab, Mechanism, Process, binary};
use serde_json::{Value, json};

use crate::{configuration, refused};

#[test]
fn rules_and_interfaces_outside_of_the_pool_are_refused() {
    let Some(lab) = Lab::new("agent-outside", 1) else { return };
    lab.wire("other0");
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let with = |steer: Value| {
        let mut configuration = configuration(Mechanism::XdpNative);
        configuration["ports"]["wire"]["steer"] = steer;
        configuration
    };
    let outside = "of `steer` claims frames that pool `upf` does not allow";
    for (steer, words) in [
        (json!([{"udp-port": 2152}, {"udp-port": 53}]), ["rule 2", outside]),
        (json!([{"udp-port": "40000-40100"}]), ["rule 1", outside]),
        (json!([{"tcp-port": 2152}]), ["rule 1", outside]),
        (json!([{"ethertype": "ipv4"}]), ["rule 1", outside]),
        (json!([{"udp-port": 2152, "fragments": true}]), ["rule 1", outside]),
        (json!([]), ["port `wire`: without `steer` it would claim every frame", "pool `upf`"]),
    ] {
        refused(&lab, &agent, with(steer), &words);
    }
    let mut other = with(json!([{"udp-port": 2152}]));
    other["ports"]["wire"]["driver"]["af-xdp"]["interface"] = json!("other0");
    refused(&lab, &agent, other, &["this client may not use `other0`, only [wire0]"]);
    // The control: a narrower rule is allowed.
    let narrow = json!([{"udp-port": 40_000, "source": "10.0.0.0/8"}, {"gtp-u": true}]);
    agent.macswap(&lab, with(narrow)).stop();
}

#[test]
fn rules_are_replaced_while_the_application_runs_within_the_pool() {
    let Some(lab) = Lab::new("agent-reload", 1) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    let mut echo = Echo::new(&lab.right, "wire0");
    echo.once();
    let file = macswap.session().with_extension("json");
    let text = std::fs::read_to_string(&file).expect("the configuration");
    let original: Value = serde_json::from_str(&text).expect("JSON");
    let reload = |steer: Value| {
        let mut changed = original.clone();
        changed["ports"]["wire"]["steer"] = steer;
        std::fs::write(&file, changed.to_string()).expect("the file is ours");
        let mut reload = Command::new(binary("fastlane"));
        Process::start({
            reload.arg("reload").arg(macswap.session());
            reload
        })
        .wait()
    };
    let done = reload(json!([{"udp-port": 2152}]));
    assert!(done.status.success(), "{}", done.stderr);
    assert!(!echo.try_once(Duration::from_millis(300)), "the rule of the echo is gone");
    let refused = reload(json!([{"udp-port": 53}]));
    assert!(!refused.status.success() && refused.stderr.contains("does not allow"), "{refused:?}");
    let done = reload(json!([{"udp-port": 2152}, {"udp-port": 40_000}]));
    assert!(done.status.success(), "{}", done.stderr);
    echo.once();
    macswap.stop();
}
