//! Applications in another network namespace, as a pod is; their interfaces stay with the agent.

use std::thread;

use fastlane_tests::{
    Application, GrantingAgent, Host, LEFT_MAC, Lab, Mechanism, Process, assert_unprivileged,
    eventually, pool_of,
};
use serde_json::{Value, json};

use crate::absence::{keeper, replaced};
use crate::{configuration, traffic};

const ADDRESS: &str = "10.99.0.1/24";
const ADDRESS6: &str = "fd99::1/64";

/// Returns a pool of `wire0` with a TAP of this name in the pod.
fn pool_with_tap() -> Value {
    let mut pool = pool_of(&["wire0"]);
    pool["taps"] = json!({"wire0": {"addresses": [ADDRESS, ADDRESS6]}});
    pool["steer"] = json!([{"ip-protocol": "icmp"}, {"ip-protocol": "icmpv6"}, {"ethertype": "arp"},
        {"udp-port": 2152}]);
    pool
}

/// Starts a program without any capability in a pod through the grant `pod`.
#[track_caller]
fn start(
    agent: &GrantingAgent,
    lab: &Lab,
    pod: &Host,
    program: &str,
    configuration: Value,
) -> Application {
    let (command, session) = agent.client(lab, pod, program, "pod", configuration);
    let application = Application::run(command, session);
    assert_unprivileged(&application.process);
    application
}

fn link(host: &Host) -> String {
    let output = host.attempt(&["ip", "-d", "link", "show", "dev", "wire0"]);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until the link of a host shows these words.
#[track_caller]
fn shows(host: &Host, words: &str) {
    eventually(words, || link(host).contains(words));
}

#[test]
fn a_pod_forwards_on_an_interface_of_the_host() {
    let mut pool = pool_of(&["wire0"]);
    pool["af-packet"] = json!(true);
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("pod-forwards", 2) else { return };
        let Some(pod) = Host::new("pod-forwards") else { return };
        let Some(mut agent) = GrantingAgent::start(&lab) else { return };
        agent.grant("pod", &pool);
        let mut configuration = configuration(mechanism);
        if mechanism == Mechanism::Packet {
            configuration["ports"]["wire"]["driver"]["af-packet"]["ring"] = json!(8192);
        }
        let macswap = start(&agent, &lab, &pod, "macswap", configuration);
        assert_eq!(link(&pod), "", "the interface stays where the agent is");
        let received = || macswap.totals().wire("received_packets");
        thread::scope(|scope| {
            let report = scope.spawn(|| traffic(&lab, 20_000, 5000));
            eventually("packets flow", || received() > 500);
            lab.left.run(&["ip", "link", "set", "wire0", "mtu", "1400"]);
            macswap.process.wait_for("wire0 has an MTU of 1400 instead of 1500");
            lab.left.run(&["ip", "link", "set", "wire0", "mtu", "1500"]);
            macswap.process.wait_for("wire0 has an MTU of 1500 instead of 1400");
            agent.kill();
            let at_kill = received();
            eventually("packets flow without the agent", || received() > at_kill + 1000);
            agent.run(&lab);
            agent.grant("pod", &pool);
            agent.process().wait_for("has `wire0` again");
            report.join().expect("no panic").assert_intact();
        });
        eventually("all packets are counted", || macswap.totals().wire("steer_claimed") == 20_000);
        for time in 1..=2 {
            lab.left.run(&["ip", "link", "delete", "wire0"]);
            macswap.process.wait_for("the interface wire0 was removed");
            lab.join(2, LEFT_MAC);
            eventually("the port is reopened", || {
                macswap.process.stderr().matches("reopened on wire0").count() == time
            });
            traffic(&lab, 2000, 5000).assert_intact();
            eventually("the old device is given up", || agent.pinned() == 1);
        }
        let ended = macswap.stop();
        assert_eq!(ended.drops(), 0, "{}", ended.stderr);
        eventually("nothing stays", || agent.pinned() == 0);
    }
}

#[test]
fn an_interface_that_is_replaced_while_the_agent_is_away_is_followed() {
    let Some(lab) = Lab::new("pod-replaced", 1) else { return };
    let Some(pod) = Host::new("pod-replaced") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("pod", &pool_of(&["wire0"]));
    let configuration = configuration(Mechanism::XdpNative);
    let macswap = start(&agent, &lab, &pod, "macswap", configuration);
    traffic(&lab, 500, 5000).assert_intact();
    agent.kill();
    lab.left.run(&["ip", "link", "delete", "wire0"]);
    lab.join(1, LEFT_MAC);
    agent.run(&lab);
    agent.grant("pod", &pool_of(&["wire0"]));
    macswap.process.wait_for("reopened on wire0");
    traffic(&lab, 500, 5000).assert_intact();
    assert_unprivileged(&macswap.process);
    macswap.stop();
}

#[test]
fn an_interface_of_the_pod_with_the_same_index_is_another_one() {
    let Some(lab) = Lab::new("pod-index", 1) else { return };
    let Some(pod) = Host::new("pod-index") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let links = lab.left.run(&["ip", "-j", "link", "show", "dev", "wire0"]);
    let links: Value = serde_json::from_str(&links).expect("JSON from ip");
    let index = links[0]["ifindex"].to_string();
    let words = ["ip", "link", "add", "index", &index, "name", "decoy0", "mtu", "200"];
    pod.run(&[&words[..], &["type", "veth", "peer", "name", "decoy1", "index", "1000"]].concat());
    agent.grant("pod", &pool_of(&["wire0"]));
    for mechanism in [Mechanism::XdpNative, Mechanism::XdpGeneric] {
        let macswap = start(&agent, &lab, &pod, "macswap", configuration(mechanism));
        let driver = json!({"af-packet": {"interface": "wire0", "ring": 16_384}});
        let app = json!({"rate-packets-per-second": 5000, "count-packets": 1000,
            "frame-bytes": 1400, "flows": {"count": 16}});
        fastlane_tests::measure(&lab, &lab.right, &driver, app).0.assert_intact();
        pod.run(&["ip", "link", "set", "decoy0", "mtu", "300"]);
        pod.run(&["ip", "link", "set", "decoy0", "mtu", "200"]);
        assert_eq!(macswap.stop().drops(), 0);
    }
}

/// Asserts that the Linux of a pod replies to the right host.
#[track_caller]
fn replies(lab: &Lab) {
    for address in ["10.99.0.1", "fd99::1"] {
        eventually(address, || lab.right.ping(&[address]));
        lab.right.assert_pings(3, &[address]);
    }
}

#[test]
fn the_kernel_peer_is_in_the_pod_and_follows_the_interface() {
    let Some(lab) = Lab::new("pod-peer", 2) else { return };
    let Some(pod) = Host::new("pod-peer") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let before = agent.descriptors();
    agent.grant("pod", &pool_with_tap());
    let tap = json!({"name": "wire0", "addresses": [ADDRESS, ADDRESS6]});
    let mut configuration =
        json!({"ports": {"wire": {"driver": Mechanism::XdpNative.on("wire0")}}});
    configuration["ports"]["wire"]["steer"] = pool_with_tap()["steer"].clone();
    configuration["ports"]["wire"]["kernel"] = json!({"tap": tap});
    let application = start(&agent, &lab, &pod, "all_kernel", configuration);
    for words in ["tun type tap", LEFT_MAC, "mtu 1500", "LOWER_UP"] {
        assert!(link(&pod).contains(words), "no `{words}` in {}", link(&pod));
    }
    lab.left.run(&["ip", "address", "flush", "dev", "wire0"]);
    lab.right.run(&["ip", "address", "add", "10.99.0.2/24", "dev", "wire0"]);
    lab.right.run(&["ip", "address", "add", "fd99::2/64", "dev", "wire0", "nodad"]);
    replies(&lab);
    let right = |words: &[&str]| lab.right.run(&[&["ip", "link", "set", "wire0"], words].concat());
    let left = |words: &[&str]| lab.left.run(&[&["ip", "link", "set", "wire0"], words].concat());
    left(&["mtu", "1400"]);
    shows(&pod, "mtu 1400");
    left(&["address", "02:00:00:00:99:01"]);
    shows(&pod, "02:00:00:00:99:01");
    lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
    replies(&lab);
    right(&["down"]);
    shows(&pod, "NO-CARRIER");
    right(&["up"]);
    shows(&pod, "LOWER_UP");
    lab.right.run(&["ip", "address", "add", "fd99::2/64", "dev", "wire0", "nodad"]);
    replies(&lab);
    // The next agent lets it follow as well.
    agent.kill();
    left(&["mtu", "1300"]);
    agent.run(&lab);
    agent.grant("pod", &pool_with_tap());
    shows(&pod, "mtu 1300");
    // So does a port that is reopened on another interface of this name.
    lab.left.run(&["ip", "link", "delete", "wire0"]);
    shows(&pod, "NO-CARRIER");
    lab.join(2, "02:00:00:00:99:02");
    application.process.wait_for("reopened on wire0");
    for words in ["02:00:00:00:99:02", "mtu 1500", "LOWER_UP"] {
        shows(&pod, words);
    }
    lab.left.run(&["ip", "address", "flush", "dev", "wire0"]);
    lab.right.run(&["ip", "address", "add", "10.99.0.2/24", "dev", "wire0"]);
    lab.right.run(&["ip", "address", "add", "fd99::2/64", "dev", "wire0", "nodad"]);
    replies(&lab);
    let stderr = application.process.stderr();
    assert!(!stderr.contains("WARN") || !stderr.contains("kernel peer"), "{stderr}");
    application.stop();
    eventually("the device ends", || link(&pod).is_empty());
    agent.revoke("pod");
    eventually("the agent releases everything", || agent.descriptors() == before);
}

#[test]
fn re_entry_is_a_device_of_the_same_name_in_the_pod() {
    let Some(lab) = Lab::new("pod-twin", 1) else { return };
    let Some(pod) = Host::new("pod-twin") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    let configuration = |kernel: Option<Value>| {
        let mut configuration = Application::steered(&Mechanism::XdpNative.on("wire0"));
        configuration["ports"]["wire"]["steer"] = json!([{"udp-port": 2152}]);
        if let Some(kernel) = kernel {
            configuration["ports"]["wire"]["kernel"] = kernel;
        }
        configuration
    };
    agent.grant("pod", &pool_with_tap());
    let twin = start(&agent, &lab, &pod, "macswap", configuration(None));
    assert!(link(&pod).contains(LEFT_MAC), "{}", link(&pod));
    twin.stop();
    agent.revoke("pod");
    // Without a right to the device, it is left out if nobody asks for it.
    agent.grant("pod", &pool_of(&["wire0"]));
    let without = start(&agent, &lab, &pod, "macswap", configuration(None));
    assert_eq!(link(&pod), "");
    without.stop();
    let refused = |host: &Host, kernel: Value, words: &str| {
        let configuration = configuration(Some(kernel));
        let (command, _) = agent.client(&lab, host, "macswap", "pod", configuration);
        let ended = Process::start(command).wait();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains(words), "no `{words}` in {}", ended.stderr);
    };
    refused(&pod, json!("re-enter"), "may not create the TAP device `wire0`, only []");
    let tap = json!({"tap": {"name": "wire7"}});
    refused(&lab.left, tap, "Linux has the interface already");
}

#[test]
fn an_application_of_a_pod_is_replaced_without_loss_of_its_sockets() {
    let Some(lab) = Lab::new("pod-handover", 1) else { return };
    let Some(pod) = Host::new("pod-handover") else { return };
    let Some(mut agent) = GrantingAgent::start(&lab) else { return };
    agent.grant("pod", &pool_with_tap());
    let mut configuration = Application::steered(&Mechanism::XdpNative.on("wire0"));
    configuration["ports"]["wire"]["steer"] = json!([{"udp-port": 2152}]);
    configuration["lanes"] = json!({"frames": 32_768});
    let mut macswap = start(&agent, &lab, &pod, "macswap", configuration);
    // Pool, socket, TAP, and the connection to the agent.
    let keeper = keeper(&lab, &pod, &macswap, 4);
    for mtu in ["1400", "1300"] {
        macswap = replaced(&lab, &pod, macswap);
        let stderr = macswap.process.stderr();
        assert!(stderr.contains("the ports on AF_XDP and TAP are taken over"), "{stderr}");
        traffic(&lab, 500, 5000).assert_intact();
        lab.left.run(&["ip", "link", "set", "wire0", "mtu", mtu]);
        shows(&pod, &format!("mtu {mtu}"));
        macswap.is_kept_by(&keeper, 4);
    }
    macswap.stop();
    keeper.kill();
    eventually("nothing stays", || agent.pinned() == 0);
}
