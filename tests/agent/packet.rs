//! AF_PACKET ports of applications without any capability.

use std::os::fd::AsFd;
use std::thread;

use fastlane::agent::records::{Attached, Response};
use fastlane_tests::{Agent, LEFT_MAC, Lab, Mechanism, assert_unprivileged, eventually};
use serde_json::{Value, json};

use crate::absence::{controls, keeper, kill_and_start_again, replaced};
use crate::hostile::Hostile;
use crate::{configuration, refused, traffic};

fn pools() -> Value {
    let mut pools = Agent::pools();
    pools["upf"]["af-packet"] = json!(true);
    pools
}

/// Returns the configuration of macswap on AF_PACKET, with rings for a machine that is busy.
fn packet() -> Value {
    let mut configuration = configuration(Mechanism::Packet);
    configuration["ports"]["wire"]["driver"]["af-packet"]["ring"] = json!(8192);
    configuration
}

#[test]
fn no_packet_is_lost_while_the_agent_is_killed_and_started_again() {
    for lanes in [1, 2] {
        let Some(lab) = Lab::new("packet-killed", 2) else { return };
        let Some(mut agent) = Agent::start(&lab, &pools()) else { return };
        let mut configuration = packet();
        configuration["lanes"] = json!({"cpus": (0..lanes).collect::<Vec<_>>()});
        let macswap = agent.macswap(&lab, configuration);
        kill_and_start_again(&lab, &mut agent, &macswap);
        // What no rule claims stays in Linux.
        lab.right.assert_pings(3, &[fastlane_tests::LEFT]);
        assert_unprivileged(&macswap.process);
        controls(&lab, &agent, macswap);
    }
}

#[test]
fn an_application_is_replaced_although_a_holder_has_its_connection() {
    let Some(lab) = Lab::new("packet-handover", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let mut macswap = agent.macswap(&lab, packet());
    let keeper = keeper(&lab, &lab.left, &macswap, 1);
    for _ in 0..2 {
        // As long as the holder has the connection, the interface is not free for another one.
        macswap = replaced(&lab, &lab.left, macswap);
        traffic(&lab, 500, 5000).assert_intact();
        macswap.is_kept_by(&keeper, 1);
    }
    macswap.stop();
    keeper.kill();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn an_application_starts_and_stops_under_traffic_without_an_uncounted_loss() {
    let Some(lab) = Lab::new("packet-account", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let before = agent.descriptors();
    thread::scope(|scope| {
        // For longer than three starts take on a busy machine.
        let report = scope.spawn(|| traffic(&lab, 200_000, 20_000));
        let mut reflected = 0;
        for _ in 0..3 {
            let macswap = agent.macswap(&lab, packet());
            eventually("packets flow", || macswap.totals().wire("received_packets") > 3000);
            let ended = macswap.stop();
            let received = ended.counter("received_packets");
            // Each claimed frame was received, or is counted as lost.
            let (claimed, dropped) = (ended.counter("steer_claimed"), ended.drops());
            assert_eq!(claimed, received + dropped, "{}", ended.stderr);
            assert_eq!(ended.counter("sent_packets"), received);
            reflected += received;
        }
        // What arrived between two runs went to Linux, which has no socket for it.
        assert_eq!(report.join().expect("no panic").received(), reflected);
    });
    eventually("nothing stays", || agent.pinned() == 0 && agent.descriptors() == before);
}

#[test]
fn a_port_is_reopened_on_an_interface_that_comes_back() {
    let Some(lab) = Lab::new("packet-reopened", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let macswap = agent.macswap(&lab, packet());
    for time in 1..=2 {
        lab.left.run(&["ip", "link", "delete", "wire0"]);
        macswap.process.wait_for("the interface wire0 was removed");
        lab.join(1, LEFT_MAC);
        eventually("the port is reopened", || {
            macswap.process.stderr().matches("reopened on wire0").count() == time
        });
        traffic(&lab, 500, 5000).assert_intact();
        eventually("the old device is given up", || agent.pinned() == 1);
    }
    macswap.stop();
    eventually("nothing stays", || agent.pinned() == 0);
}

#[test]
fn rings_and_rules_outside_of_the_pool_are_refused() {
    let Some(lab) = Lab::new("packet-refused", 1) else { return };
    let mut small = pools();
    small["upf"]["memory-mib"] = json!(16);
    let Some(agent) = Agent::start(&lab, &small) else { return };
    let mut ring = packet();
    ring["ports"]["wire"]["driver"]["af-packet"]["ring"] = json!(32_768);
    refused(&lab, &agent, ring, &["64 MiB, and the pool allows 16 MiB"]);
    let mut rules = packet();
    rules["ports"]["wire"]["steer"] = json!([{"udp-port": 53}]);
    refused(&lab, &agent, rules, &["rule 1 of `steer` claims frames"]);
    let mut all = packet();
    all["ports"]["wire"]["steer"] = json!([]);
    refused(&lab, &agent, all, &["without `steer` it would claim every frame"]);
    assert_eq!(agent.pinned(), 0);
}

#[test]
fn requests_for_other_sockets_are_refused() {
    let Some(lab) = Lab::new("packet-hostile", 1) else { return };
    let Some(agent) = Agent::start(&lab, &pools()) else { return };
    let before = agent.descriptors();
    let mut client = Hostile::connect(&agent);
    let attach = |sockets: u32, length: u32| {
        let driver = json!({"af-packet": {"interface": "wire0", "ring": 64}});
        json!({"attach": {"driver": driver, "steer": [{"udp-port": 2152}], "max-length": length,
            "sockets": sockets}})
    };
    for (sockets, length, words) in [
        (0, 1792, "1 to 250 sockets"),
        (251, 1792, "1 to 250 sockets"),
        (u32::MAX, 1792, "1 to 250 sockets"),
        (1, 0, "must be from 64 to 65536"),
        (1, u32::MAX, "must be from 64 to 65536"),
    ] {
        let reason = client.request(&attach(sockets, length), &[]).expect_err("a refusal");
        assert!(reason.contains(words), "no `{words}` in {reason}");
    }
    let (response, sockets) = client.request(&attach(1, 1792), &[]).expect("the pool allows it");
    let Response::Attached(Attached { device, .. }) = response else { panic!("{response:?}") };
    let socket = sockets[0].as_fd();
    // The requests of AF_XDP do not apply.
    for request in [
        json!({"claim": {"device": device, "queue": 0}}),
        json!({"set-max-length": {"device": device, "length": 64}}),
    ] {
        let descriptors = if request.get("claim").is_some() { vec![socket] } else { vec![] };
        let reason = client.request(&request, &descriptors).expect_err("a refusal");
        assert!(reason.contains("it is a device of AF_PACKET"), "{reason}");
    }
    drop((client, sockets));
    eventually("nothing stays", || agent.pinned() == 0 && agent.descriptors() == before);
}
