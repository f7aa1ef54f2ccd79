//! An application that labels every packet `Kernel`: Linux receives each packet on the interface
//! where it arrived.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use fastlane_testing::{Peer, UDP_PORT, frames_of, namespace};
use fastlane_tests::{
    Application, LEFT, Lab, Mechanism, PATIENCE, Page, RIGHT, binary, eventually, serve,
};
use rustix::process::Signal;
use serde_json::json;

const DATAGRAMS: u32 = 500;

/// Sends datagrams and returns how often each arrives at a socket bound to the interface.
fn socket(lab: &Lab) -> BTreeMap<u32, u32> {
    let mut linux = lab.left.enter(|| namespace::linux("wire0"));
    let sender = lab.right.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let sender = sender.expect("a UDP port");
    let to = SocketAddr::new(LEFT.parse().expect("an address"), UDP_PORT);
    let mut arrived = BTreeMap::new();
    let mut count = |datagram: Vec<u8>| {
        let number = u32::from_be_bytes(datagram[..4].try_into().expect("four bytes"));
        *arrived.entry(number).or_insert(0) += 1;
    };
    for number in 0..DATAGRAMS {
        sender.send_to(&number.to_be_bytes(), to).expect("a route");
        count(linux.receive(PATIENCE).expect("the datagram arrives"));
    }
    // What comes twice comes soon after.
    while let Some(datagram) = linux.receive(Duration::from_millis(200)) {
        count(datagram);
    }
    arrived
}

fn story(name: &str, mechanism: Mechanism) {
    let Some(lab) = Lab::new(name, 1) else { return };
    let program = &binary("all_kernel");
    let configuration = json!({"ports": {"wire": {"driver": mechanism.on("wire0")}}});
    let application = Application::start(&lab, &lab.left, program, configuration);
    let filter = format!("udp dst port {UDP_PORT}");
    let file = lab.file("seen.pcap");
    let written = file.to_str().expect("a path in UTF-8");
    // In immediate mode each slot of the ring has the snapshot length: the usual one leaves eight.
    let options = ["--immediate-mode", "-s", "128", "-U", "-Z", "root", "-w", written];
    let command = [&["tcpdump", "-i", "wire0", "-n"], &options[..], &[&filter]].concat();
    let tcpdump = lab.left.start(&command);
    tcpdump.wait_for("listening on");

    let arrived = socket(&lab);
    assert_eq!(arrived.len(), DATAGRAMS as usize);
    assert!(arrived.values().all(|times| *times == 1), "{arrived:?}");

    // AF_PACKET gets a copy of what arrives, as tcpdump does; the original is given up and the copy
    // given back, so that tcpdump has both.
    let expected = DATAGRAMS * if mechanism == Mechanism::Packet { 2 } else { 1 };
    // Not the number that tcpdump reports: it includes what came before the filter was set.
    let seen = || match std::fs::read(&file).expect("the capture") {
        begun if begun.len() < 24 => 0,
        capture => frames_of(&capture).len(),
    };
    eventually("tcpdump has written all", || seen() >= expected as usize);
    tcpdump.signal(Signal::INT);
    let message = tcpdump.wait().stderr;
    assert_eq!(seen(), expected as usize, "{message}");

    for (host, address) in [(&lab.left, RIGHT), (&lab.right, LEFT), (&lab.right, "fd77::1")] {
        host.assert_pings(5, &[address]);
    }
    let page = Page::new(4 << 20);
    let sides = [(&lab.left, LEFT, &lab.right), (&lab.right, RIGHT, &lab.left)];
    for (server, address, client) in sides {
        let (url, thread) = serve(server, address, page.0.clone());
        let fetched = client.attempt(&["curl", "--silent", "--max-time", "60", &url]);
        assert!(fetched.stdout == page.0, "{} of {}", fetched.stdout.len(), page.0.len());
        thread.join().expect("the server does not panic").expect("the page is sent");
    }

    let totals = application.totals();
    let received = totals.wire("received_packets");
    assert!(received > u64::from(DATAGRAMS) + 15, "{received}");
    assert_eq!(totals.wire("verdict_kernel"), received);
    let given: u64 = totals.drops("wire").iter().map(|(_, count)| count).sum();
    assert_eq!(totals.wire("to_kernel_packets") + given, received, "{:?}", totals.drops("wire"));
    application.stop();
}

#[test]
fn linux_gets_each_packet_once_from_af_xdp_in_native_mode() {
    story("kernel-verdict-af-xdp-native", Mechanism::XdpNative);
}

#[test]
fn linux_gets_each_packet_once_from_af_xdp_in_generic_mode() {
    story("kernel-verdict-af-xdp-generic", Mechanism::XdpGeneric);
}

#[test]
fn linux_gets_each_packet_once_from_af_packet() {
    story("kernel-verdict-af-packet", Mechanism::Packet);
}
