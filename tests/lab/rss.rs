//! Spreading of flows over the queues of a device.

use std::collections::BTreeSet;

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{
    Application, Guest, Kernel, LEFT_MAC, Lab, RIGHT_MAC, eventually, load_modules, mac,
};
use fastlane_wire::checksum::checksum;
use serde_json::json;

use crate::support::lab;

/// Number of flows.
const FLOWS: u16 = 32;
/// Number of packets of each direction.
const COPIES: u64 = 10;

/// IPv4 address and UDP port.
type Endpoint = ([u8; 4], u16);

/// Returns a UDP datagram without checksum in a frame to the application.
fn datagram(source: Endpoint, destination: Endpoint) -> Vec<u8> {
    let payload = [0; 18];
    let length = 8 + payload.len() as u16;
    let mut ipv4 = vec![0x45, 0];
    ipv4.extend((20 + length).to_be_bytes());
    ipv4.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ipv4.extend(source.0);
    ipv4.extend(destination.0);
    let sum = checksum(&ipv4).to_be_bytes();
    ipv4[10..12].copy_from_slice(&sum);
    let mut frame = [mac(LEFT_MAC), mac(RIGHT_MAC)].concat();
    frame.extend([8, 0]);
    frame.extend(ipv4);
    for word in [source.1, destination.1, length, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// Returns the packets that each lane has received on the port `wire`.
fn received(macswap: &Application) -> Vec<u64> {
    let totals = macswap.totals();
    let ports = totals.0["ports"].as_array().expect("a list of ports");
    let of_lane = |lane: u64| {
        let mut entries = ports.iter().filter(|it| it["lane"] == lane && it["port"] == "wire");
        let entry = entries.next().expect("each lane has the port");
        entry["counters"]["received_packets"].as_u64().expect("a counter")
    };
    (0..2).map(of_lane).collect()
}

/// Sends a frame [`COPIES`] times; returns the lane that received all of them.
fn lane_of(lab: &Lab, macswap: &Application, frame: &[u8]) -> usize {
    let before = received(macswap);
    let mut wire = lab.right.enter(|| Wire::open("wire0")).expect("a raw socket");
    for _ in 0..COPIES {
        assert!(wire.send(frame));
    }
    let more = || received(macswap).iter().zip(&before).map(|(now, then)| now - then).collect();
    let mut counts: Vec<u64> = Vec::new();
    eventually("the lanes receive the frames", || {
        counts = more();
        counts.iter().sum::<u64>() >= COPIES
    });
    let lane = counts.iter().position(|count| *count >= COPIES);
    lane.unwrap_or_else(|| panic!("the copies of one packet went to several lanes: {counts:?}"))
}

/// Both directions of a flow have the same state, so they must have the same lane.
#[test]
fn both_directions_of_a_flow_reach_one_lane_by_the_symmetric_hash_of_igb() {
    Guest::new(Kernel::V6_12).nics("igb").huge_pages(200).run(|| {
        load_modules(&["igb", "vfio_iommu_type1", "vfio-pci"]);
        let (lab, nic) = lab();
        // Linux on the other side must not disturb the counts.
        let quiet = ["sysctl", "-q", "net.ipv6.conf.wire0.disable_ipv6=1"];
        lab.right.run(&quiet);
        nic.bind("vfio-pci");
        let mut configuration = json!({"ports": {"wire": {}}, "lanes": {"cpus": [0, 1]}});
        configuration["ports"]["wire"]["driver"] = json!({"dpdk": {"device": nic.address()}});
        let macswap = Application::macswap(&lab, configuration);
        let mut lanes = BTreeSet::new();
        for number in 0..FLOWS {
            let user = ([10, 1, 0, number as u8], 1000 + 37 * number);
            let server = ([10, 2, 0, 1], 2152);
            let there = lane_of(&lab, &macswap, &datagram(user, server));
            let back = lane_of(&lab, &macswap, &datagram(server, user));
            assert_eq!(there, back, "lanes of the directions of flow {number}");
            lanes.insert(there);
        }
        assert_eq!(lanes.len(), 2, "{FLOWS} flows take both lanes");
        macswap.stop();
    });
}
