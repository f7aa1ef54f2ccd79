//! Packets labelled `Kernel` by an application without privilege re-enter Linux.

use fastlane_tests::{Agent, Application, LEFT, LEFT_MAC, Lab, Mechanism, eventually};
use serde_json::json;

/// Returns the configuration of an application with the default path into Linux, and the pools that
/// let it claim ICMP and ARP.
fn claims_pings(mechanism: Mechanism) -> (serde_json::Value, serde_json::Value) {
    let rules = json!([{"ip-protocol": "icmp"}, {"ethertype": "arp"}]);
    let mut configuration = Application::steered(&mechanism.on("wire0"));
    configuration["ports"]["wire"]["steer"] = rules.clone();
    let mut pools = Agent::pools();
    pools["upf"]["steer"] = rules;
    pools["upf"]["af-packet"] = json!(true);
    (configuration, pools)
}

#[test]
fn packets_for_linux_reenter_on_their_interface() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("agent-reenter", 2) else { return };
        let (configuration, pools) = claims_pings(mechanism);
        let Some(agent) = Agent::start(&lab, &pools) else { return };
        let (command, session) = agent.client(&lab, "all_kernel", configuration);
        let application = Application::run(command, session);
        fastlane_tests::assert_unprivileged(&application.process);
        lab.right.assert_pings(10, &[LEFT]);
        assert!(application.totals().wire("verdict_kernel") >= 11, "pings and ARP");
        // Re-entry follows the address of the interface.
        lab.left.run(&["ip", "link", "set", "wire0", "address", "02:00:00:00:77:55"]);
        lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        eventually("the new address is followed", || lab.right.ping(&[LEFT]));
        application.stop();
    }
}

#[test]
fn packets_reenter_while_the_agent_is_away_and_with_the_next_one() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("agent-reenter-away", 1) else { return };
        // Without re-entry frames would arrive on the TAP device, which Linux would put up with.
        let strict = "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter";
        lab.left.run(&["sh", "-c", strict]);
        let (configuration, pools) = claims_pings(mechanism);
        let Some(mut agent) = Agent::start(&lab, &pools) else { return };
        let (command, session) = agent.client(&lab, "all_kernel", configuration);
        let application = Application::run(command, session);
        let ten_replies = || {
            eventually("Linux answers", || lab.right.ping(&[LEFT]));
            lab.right.assert_pings(10, &[LEFT]);
        };
        ten_replies();
        agent.kill();
        ten_replies();
        // The address changes while the agent is away, and once the next one is there.
        let change = |address: &str| {
            lab.left.run(&["ip", "link", "set", "wire0", "address", address]);
            lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        };
        let replies = || {
            eventually("the new address is followed", || lab.right.ping(&[LEFT]));
        };
        change("02:00:00:00:77:56");
        agent.run(&lab);
        agent.process().wait_for("`wire0` again");
        replies();
        change("02:00:00:00:77:57");
        replies();
        ten_replies();
        // So is another interface of this name.
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        application.process.wait_for("the interface wire0 was removed");
        lab.join(1, LEFT_MAC);
        application.process.wait_for("reopened on wire0");
        replies();
        application.stop();
        eventually("nothing stays", || agent.pinned() == 0);
    }
}
