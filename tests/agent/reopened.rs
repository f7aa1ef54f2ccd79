//! Interfaces that change while an application has them through the agent.

use fastlane_tests::{
    Agent, Application, LEFT, LEFT_MAC, Lab, Mechanism, PATIENCE, assert_unprivileged, eventually,
};
use serde_json::json;

use crate::{configuration, traffic};

#[test]
fn a_port_is_reopened_through_the_agent_on_an_interface_that_comes_back() {
    let Some(lab) = Lab::new("agent-reopened", 2) else { return };
    let Some(agent) = Agent::start(&lab, &Agent::pools()) else { return };
    let macswap = agent.macswap(&lab, configuration(Mechanism::XdpNative));
    traffic(&lab, 500, 5000).assert_intact();
    for time in 1..=3 {
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        macswap.process.wait_for("the interface wire0 was removed");
        lab.join(2, LEFT_MAC);
        eventually("the port is reopened", || {
            macswap.process.stderr().matches("reopened on wire0").count() == time
        });
        traffic(&lab, 500, 5000).assert_intact();
        eventually("the old device is given up", || agent.pinned() == 1);
    }
    assert_unprivileged(&macswap.process);
    macswap.stop();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn re_entry_is_redirected_to_an_interface_that_comes_back() {
    let Some(lab) = Lab::new("agent-redirected", 1) else { return };
    let rules = json!([{"ip-protocol": "icmp"}, {"ethertype": "arp"}]);
    let mut configuration = Application::steered(&Mechanism::XdpNative.on("wire0"));
    configuration["ports"]["wire"]["steer"] = rules.clone();
    let mut pools = Agent::pools();
    pools["upf"]["steer"] = rules;
    let Some(agent) = Agent::start(&lab, &pools) else { return };
    let (command, session) = agent.client(&lab, "all_kernel", configuration);
    let application = Application::run(command, session);
    lab.right.assert_pings(5, &[LEFT]);
    lab.left.run(&["ip", "link", "delete", "wire0"]);
    application.process.wait_for("the interface wire0 was removed");
    lab.join(1, LEFT_MAC);
    application.process.wait_for("reopened on wire0");
    let before = application.totals().wire("verdict_kernel");
    let end = std::time::Instant::now() + PATIENCE;
    while !lab.right.ping(&[LEFT]) {
        assert!(std::time::Instant::now() < end, "no reply: {}", application.process.stderr());
    }
    lab.right.assert_pings(5, &[LEFT]);
    assert!(application.totals().wire("verdict_kernel") >= before + 5);
    application.stop();
}
