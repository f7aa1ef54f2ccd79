//! VLANs with several lanes, across a hot restart, and in a capture.

use std::process::Command;

use fastlane_tests::{Application, Process, binary, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::trunk::{FAR, Mechanism, Trunk, try_ping};

/// Sends datagrams of many flows from VLAN 100 to 200, some of which come back as errors.
fn many_flows(trunk: &Trunk) {
    trunk.lab.right.enter(|| {
        for _ in 0..64 {
            let socket = std::net::UdpSocket::bind((crate::trunk::NEAR, 0)).expect("a UDP port");
            socket.send_to(&[7; 100], (FAR, 9)).expect("a route");
        }
    });
}

/// The flow of a packet selects the lane, with both lanes on one queue, and with a worker that has
/// no ports.
#[test]
fn packets_of_vlans_change_lanes() {
    let split = json!({"master-worker": {"io": [1]}});
    let models = [
        ("flow", json!({"cpus": [0, 1]}), true),
        ("worker", json!({"cpus": [0, 1], "model": split}), false),
    ];
    for mechanism in [Mechanism::XdpNative, Mechanism::Packet, Mechanism::Memif] {
        for (name, lanes, is_flow) in &models {
            let Some(mut trunk) = Trunk::new(&format!("lanes-{name}"), mechanism) else { return };
            let mut ports = trunk.ports();
            ports["wire"]["steer"] = json!([{"udp-port": 9999}]);
            if *is_flow {
                ports["wire"]["lanes"] = json!([0]);
                ports["a"]["lane-by"] = json!("flow");
                ports["b"]["lane-by"] = json!("flow");
            }
            let cross = trunk.start_with("cross", &ports, &json!({"lanes": lanes}));
            trunk.ping(FAR);
            many_flows(&trunk);
            let of = |lane: u64, counter: &str| -> u64 {
                let totals = cross.totals();
                let entries = totals.0["ports"].as_array().expect("ports").iter();
                let of_vlans = entries.filter(|it| it["lane"] == lane && it["port"] != "wire");
                of_vlans.map(|it| it["counters"][counter].as_u64().expect("a counter")).sum()
            };
            let (there, here) = if *is_flow { (0, 1) } else { (1, 0) };
            eventually(&format!("{mechanism:?}, {name}: {}", cross.totals().0), || {
                of(here, "verdict_forward") > 10 && of(there, "sent_packets") > 20
            });
            assert_eq!(of(here, "sent_packets"), 0, "{mechanism:?}, {name}: it has no queue");
            assert!(of(there, "passed_packets") > 10, "{mechanism:?}, {name}");
            trunk.stop(cross);
        }
    }
}

/// A successor takes over the sockets and a VLAN's TAP.
#[test]
fn vlans_survive_the_fast_path() {
    let Some(mut trunk) = Trunk::new("restart", Mechanism::XdpNative) else { return };
    let mut ports = trunk.ports();
    ports["a"]["kernel"] = json!({"tap": {"name": "n3", "addresses": ["10.100.0.1/24"]}});
    let running = trunk.start("all_kernel", &ports);
    let session = running.session().to_owned();
    trunk.ping("10.100.0.1");
    let mut command = Command::new(binary("fastlane"));
    command.arg("keep").arg(&session).args(["--seconds", "60"]);
    let keeper = Process::start(command);
    keeper.wait_for(&format!("process {}, ", running.process.id()));
    let before = interface_index(&trunk);
    running.kill();
    let mut command = trunk.lab.left.command(&[]);
    command.arg(binary("all_kernel")).arg(session.with_extension("json"));
    let next = Application::run(command, session);
    let log = next.process.stderr();
    assert!(log.contains("AF_XDP and TAP are taken over"), "{log}");
    assert_eq!(interface_index(&trunk), before, "the same TAP");
    trunk.ping("10.100.0.1");
    trunk.stop(next);
    keeper.kill();
}

/// Returns the index of the VLAN's TAP.
fn interface_index(trunk: &Trunk) -> Value {
    let text = trunk.lab.left.run(&["ip", "-j", "link", "show", "dev", "n3"]);
    let links: Value = serde_json::from_str(&text).expect("JSON from ip");
    links[0]["ifindex"].clone()
}

/// A capture of a VLAN has its frames, without tags.
#[test]
fn a_capture_of_a_vlan_has_no_tags() {
    for mechanism in [Mechanism::XdpNative, Mechanism::Memif] {
        let Some(mut trunk) = Trunk::new("capture", mechanism) else { return };
        let cross = trunk.start("cross", &trunk.ports());
        trunk.ping(FAR);
        let file = trunk.lab.file("a.pcapng");
        let mut command = trunk.lab.left.command(&[]);
        command.arg(binary("fastlane")).arg("capture").arg(cross.session());
        command.arg("--write").arg(&file).args(["--port", "a"]);
        let capture = Process::start(command);
        capture.wait_for("capturing ");
        assert!(try_ping(&trunk.lab.right, FAR).status.success());
        capture.signal(Signal::INT);
        let ended = capture.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let name = file.to_str().expect("a path in UTF-8");
        let text = trunk.lab.left.run(&["tcpdump", "-nn", "-e", "-r", name]);
        assert!(text.matches("ICMP echo re").count() >= 2, "{mechanism:?}: {text}");
        assert!(!text.contains("802.1Q"), "{mechanism:?}: {text}");
        trunk.stop(cross);
    }
}
