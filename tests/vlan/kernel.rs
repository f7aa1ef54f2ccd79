//! Packets of a VLAN labelled `Kernel`: Linux receives them on its own VLAN interface, and what it
//! sends there leaves with the tag.

use std::net::UdpSocket;
use std::time::Duration;

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{Page, Vlan, eventually, serve};
use serde_json::json;

use crate::trunk::{Mechanism, NEAR, Trunk, VLANS, try_ping};

/// Address of Linux beside the application.
const HERE: &str = "10.100.0.1";

/// Pings Linux beside the application from VLAN 100, and fetches a page from it.
#[track_caller]
fn meets_linux(trunk: &Trunk) {
    trunk.ping(HERE);
    trunk.lab.left.assert_pings(5, &[NEAR]);
    let page = Page::new(1 << 20);
    let (url, thread) = serve(&trunk.lab.left, HERE, page.0.clone());
    let fetched = trunk.lab.right.attempt(&["curl", "--silent", "--max-time", "60", &url]);
    assert!(fetched.stdout == page.0, "{} of {}", fetched.stdout.len(), page.0.len());
    thread.join().expect("the server does not panic").expect("the page is sent");
}

/// Linux has a VLAN interface on the interface of the carrying port, or on its TAP.
fn shares_the_path(mechanism: Mechanism) {
    let Some(mut trunk) = Trunk::new("kernel", mechanism) else { return };
    if mechanism == Mechanism::Packet && !trunk.has_vlans_of_linux() {
        return re_enters_with_the_tag(&mut trunk);
    }
    let application = trunk.start("all_kernel", &trunk.ports());
    let (left, interface) = (&trunk.lab.left, trunk.linux_interface());
    let _vlan = Vlan::add(left, interface, VLANS[0], "v100", left);
    left.run(&["ip", "address", "add", &format!("{HERE}/24"), "dev", "v100"]);
    left.run(&["ip", "link", "set", "v100", "up"]);
    left.run(&["ethtool", "-K", interface, "tso", "off", "gso", "off"]);
    eventually("Linux answers", || try_ping(&trunk.lab.right, HERE).status.success());
    meets_linux(&trunk);
    let totals = application.totals();
    let received = totals.port("a", "received_packets");
    assert!(received > 100, "{mechanism:?}: {}", totals.0);
    assert_eq!(totals.port("a", "verdict_kernel"), received, "{mechanism:?}: {}", totals.0);
    assert_eq!(totals.port("a", "to_kernel_packets"), received, "{mechanism:?}: {}", totals.0);
    trunk.stop(application);
}

/// A raw socket sees each frame when it arrives, before AF_PACKET claims it, and when it re-enters:
/// both times with its tag.
fn re_enters_with_the_tag(trunk: &mut Trunk) {
    const COUNT: usize = 20;
    let application = trunk.start("all_kernel", &trunk.ports());
    let (left, right) = (&trunk.lab.left, &trunk.lab.right);
    let mac = left.mac("trunk");
    let words = ["ip", "neigh", "replace", HERE, "lladdr", &mac, "dev", "v100"];
    right.run(&[&words[..], &["nud", "permanent"]].concat());
    let mut wire = left.enter(|| Wire::open("trunk")).expect("a raw socket");
    for port in 0..COUNT as u16 {
        let socket = right.enter(|| UdpSocket::bind((NEAR, 0))).expect("a UDP port");
        socket.send_to(&[7; 20], (HERE, 5000 + port)).expect("a route");
    }
    let mut seen = 0;
    eventually("each is seen twice", || {
        while let Some(frame) = wire.receive(Duration::ZERO) {
            let is_datagram = frame[16..18] == [8, 0] && frame[27] == 17 && frame[40] == 0x13;
            seen += usize::from(frame[12..16] == [0x81, 0, 0, 100] && is_datagram);
        }
        seen >= 2 * COUNT
    });
    assert_eq!(seen, 2 * COUNT);
    let given = application.totals().port("a", "to_kernel_packets");
    assert!(given >= COUNT as u64, "{given}");
    trunk.stop(application);
}

#[test]
fn linux_gets_a_vlan_back_over_af_xdp_in_native_mode() {
    shares_the_path(Mechanism::XdpNative);
}

#[test]
fn linux_gets_a_vlan_back_over_af_xdp_in_generic_mode() {
    shares_the_path(Mechanism::XdpGeneric);
}

#[test]
fn linux_gets_a_vlan_back_over_af_packet() {
    shares_the_path(Mechanism::Packet);
}

#[test]
fn linux_has_a_vlan_on_the_tap_of_a_memif() {
    shares_the_path(Mechanism::Memif);
}

#[test]
fn linux_has_a_vlan_on_the_tap_of_a_dpdk_device() {
    shares_the_path(Mechanism::Dpdk);
}

/// A VLAN has a TAP of its own, without tags.
#[test]
fn a_vlan_can_have_a_tap_of_its_own() {
    for mechanism in [Mechanism::XdpNative, Mechanism::Memif] {
        let Some(mut trunk) = Trunk::new("tap", mechanism) else { return };
        let mut ports = trunk.ports();
        let tap = json!({"name": "n3", "addresses": [format!("{HERE}/24")]});
        ports["a"]["kernel"] = json!({"tap": tap});
        ports["b"]["kernel"] = json!("none");
        let application = trunk.start("all_kernel", &ports);
        trunk.lab.left.run(&["ethtool", "-K", "n3", "tso", "off", "gso", "off"]);
        meets_linux(&trunk);
        let totals = application.totals();
        assert!(totals.port("a", "from_kernel_packets") > 100, "{mechanism:?}: {}", totals.0);
        assert_eq!(totals.drops("a"), [], "{mechanism:?}");
        let _ = try_ping(&trunk.far, HERE); // of the VLAN without a path
        let dropped = || application.totals().port("b", "drop_no_kernel_peer") > 0;
        eventually("the other VLAN has no path into Linux", dropped);
        trunk.stop(application);
    }
}
