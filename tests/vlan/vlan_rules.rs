//! Rules of a VLAN are rules of the port that carries it, for frames of that VLAN only.

use std::net::UdpSocket;
use std::process::Command;

use fastlane_tests::{Host, Vlan, binary, eventually};
use serde_json::json;

use crate::trunk::{Mechanism, Trunk};

/// Sends a datagram from an address to Linux beside the application.
fn send(host: &Host, from: &str, to: &str, port: u16) {
    let socket = host.enter(|| UdpSocket::bind((from, 0))).expect("a UDP port");
    socket.send_to(&[7; 20], (to, port)).expect("a route");
}

fn story(mechanism: Mechanism) {
    let Some(mut trunk) = Trunk::new("steer", mechanism) else { return };
    let mut ports = trunk.ports();
    ports["wire"]["steer"] = json!([{"udp-port": 53}]);
    ports["a"]["steer"] = json!([{"udp-port": 2152}]);
    // VLAN 200 has no rules: everything of it is claimed.
    let application = trunk.start("macswap", &ports);
    let (left, right) = (&trunk.lab.left, &trunk.lab.right);
    // Permanent neighbours, so that only the datagrams count.
    let mac = left.mac("trunk");
    let neighbour = |host: &Host, address: &str, dev: &str| {
        let words = ["ip", "neigh", "replace", address, "lladdr", &mac, "dev", dev, "nud"];
        host.run(&[&words[..], &["permanent"]].concat());
    };
    right.run(&["ip", "address", "add", "10.1.0.2/24", "dev", "trunk"]);
    neighbour(right, "10.1.0.1", "trunk");
    neighbour(right, "10.100.0.1", "v100");
    neighbour(&trunk.far, "10.100.0.1", "v200");
    let _vlan = Vlan::add(right, "trunk", 300, "v300", right);
    right.run(&["ip", "address", "add", "10.3.0.2/24", "dev", "v300"]);
    right.run(&["ip", "link", "set", "v300", "up"]);
    neighbour(right, "10.3.0.1", "v300");

    let counts =
        || ["wire", "a", "b"].map(|port| application.totals().port(port, "verdict_reflect"));
    let before = counts();
    for port in [53, 2152, 4000] {
        send(right, "10.1.0.2", "10.1.0.1", port);
        send(right, "10.3.0.2", "10.3.0.1", port);
        send(right, "10.100.0.2", "10.100.0.1", port);
        send(&trunk.far, "10.100.0.3", "10.100.0.1", port);
    }
    // Untagged and of VLAN 300: port 53. Of VLAN 100: port 2152. Of VLAN 200: all.
    let rose = |wire, a, b| {
        let expected = [before[0] + wire, before[1] + a];
        let now = counts();
        now[..2] == expected && now[2] >= before[2] + b
    };
    eventually(&format!("{mechanism:?}: the rules of each port, {:?}", counts()), || rose(2, 1, 3));

    // The rules of a VLAN change while the application runs.
    ports["a"]["steer"] = json!([{"udp-port": 4000}]);
    let mut configuration = json!({"ports": ports, "dpdk": {"huge-pages": "none"}});
    configuration["session"] = json!(application.session());
    let path = trunk.lab.file("reload.json");
    std::fs::write(&path, configuration.to_string()).expect("the file is writable");
    let mut command = Command::new(binary("fastlane"));
    let output = command.arg("reload").arg(application.session()).arg(path).output();
    let output = output.expect("fastlane can be started");
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{log}{}", String::from_utf8_lossy(&output.stderr));
    assert!(log.contains("port `a`: 1 rules, 1 before"), "{log}");
    let before = counts();
    for port in [53, 2152, 4000, 4000] {
        send(right, "10.100.0.2", "10.100.0.1", port);
    }
    send(right, "10.1.0.2", "10.1.0.1", 53);
    eventually("the new rules are in force", || counts()[..2] == [before[0] + 1, before[1] + 2]);
    trunk.stop(application);
}

#[test]
fn each_vlan_has_its_own_rules() {
    Mechanism::ALL.into_iter().for_each(story);
}
