//! VLANs as ports: an application sees the frames of a VLAN at a port of its own, without the tag,
//! over every mechanism. Linux has the other end.

mod kernel;
mod removed_trunk;
mod several_lanes;
mod trunk;
mod vlan_rules;

use fastlane_tests::{Page, serve};
use serde_json::json;
use trunk::{FAR, Mechanism, Trunk};

/// An application that forwards between two ports joins two VLANs of one link.
fn joins_two_vlans(mechanism: Mechanism) {
    let Some(mut trunk) = Trunk::new("join", mechanism) else { return };
    let mut ports = trunk.ports();
    // Untagged frames, which the application would forward too, are Linux's.
    ports["wire"]["steer"] = json!([{"udp-port": 9}]);
    let cross = trunk.start("cross", &ports);
    trunk.ping(FAR);
    // TCP with checksums that Linux leaves to the device.
    let page = Page::new(1 << 20);
    let (url, thread) = serve(&trunk.far, FAR, page.0.clone());
    let fetched = trunk.lab.right.attempt(&["curl", "--silent", "--max-time", "60", &url]);
    assert!(fetched.stdout == page.0, "{} of {}", fetched.stdout.len(), page.0.len());
    thread.join().expect("the server does not panic").expect("the page is sent");

    let totals = cross.totals();
    for (from, to) in [("a", "b"), ("b", "a")] {
        let forwarded = totals.port(from, "verdict_forward");
        assert!(forwarded > 100, "{mechanism:?}: {}", totals.0);
        assert_eq!(totals.port(from, "received_packets"), forwarded, "{mechanism:?}");
        assert_eq!(totals.port(to, "sent_packets"), forwarded, "{mechanism:?}: {}", totals.0);
        let bytes = totals.port(from, "received_bytes");
        assert_eq!(totals.port(to, "sent_bytes"), bytes, "both without the tag");
    }
    assert_eq!(totals.port("wire", "verdict_forward"), 0, "{mechanism:?}: {}", totals.0);
    let sent = totals.port("wire", "sent_packets");
    assert_eq!(sent, totals.port("wire", "from_kernel_packets"), "{mechanism:?}: {}", totals.0);
    assert_eq!(totals.drops("a"), []);
    assert_eq!(totals.drops("b"), []);
    assert_eq!(totals.mode("a"), "VLAN 100 of wire");
    trunk.stop(cross);
}

#[test]
fn two_vlans_are_joined_over_af_xdp_in_native_mode() {
    joins_two_vlans(Mechanism::XdpNative);
}

#[test]
fn two_vlans_are_joined_over_af_xdp_in_generic_mode() {
    joins_two_vlans(Mechanism::XdpGeneric);
}

#[test]
fn two_vlans_are_joined_over_af_packet() {
    joins_two_vlans(Mechanism::Packet);
}

#[test]
fn two_vlans_are_joined_over_memif() {
    joins_two_vlans(Mechanism::Memif);
}

#[test]
fn two_vlans_are_joined_over_dpdk() {
    joins_two_vlans(Mechanism::Dpdk);
}
