//! The fast path takes only packets that steering claims; Linux keeps the interface for all others.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{
    Application, Host, LEFT, LEFT_MAC, Lab, Mechanism, PATIENCE, Page, RIGHT, RIGHT_MAC,
    eventually, mac, measure, serve,
};
use serde_json::json;

const TRANSFER: usize = 50 << 20;

fn ping(lab: &Lab) {
    for (host, address) in [(&lab.left, RIGHT), (&lab.right, LEFT)] {
        // Without neighbours both must be found by ARP, in both directions.
        lab.left.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        lab.right.run(&["ip", "neighbour", "flush", "dev", "wire0"]);
        host.assert_pings(5, &[address]);
    }
    for (host, address) in [(&lab.left, "fd77::2"), (&lab.right, "fd77::1")] {
        lab.left.run(&["ip", "-6", "neighbour", "flush", "dev", "wire0"]);
        lab.right.run(&["ip", "-6", "neighbour", "flush", "dev", "wire0"]);
        host.assert_pings(5, &[address]);
    }
}

/// Transfers the page from each host to the other over HTTP.
fn transfer(lab: &Lab, page: &Page) {
    let sides = [(&lab.left, LEFT, &lab.right), (&lab.right, RIGHT, &lab.left)];
    for (number, (server, address, client)) in sides.into_iter().enumerate() {
        let (url, thread) = serve(server, address, page.0.clone());
        let path = lab.file(&format!("page-{number}"));
        let to = path.to_str().expect("a path in ASCII");
        client.run(&["curl", "--silent", "--show-error", "--max-time", "120", "-o", to, &url]);
        thread.join().expect("the server does not panic").expect("the page is sent");
        let arrived = std::fs::read(&path).expect("the page");
        assert!(arrived == page.0, "{} of {} bytes intact?", arrived.len(), page.0.len());
        std::fs::remove_file(path).expect("the page is ours");
    }
}

/// Sends datagrams from a socket whose checksums Linux leaves to the device (veth offers to compute
/// them). They must return with swapped MAC addresses and a checksum that Linux accepts.
fn plain_socket(lab: &Lab, mechanism: Mechanism) {
    accept_echoes(&lab.right);
    let mut wire = lab.right.enter(|| Wire::open("wire0")).expect("a raw socket");
    let bind = |port| lab.right.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)));
    let (sender, receiver) = (bind(4000).expect("a UDP port"), bind(2152).expect("a UDP port"));
    receiver.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    let to: SocketAddr = format!("{LEFT}:2152").parse().expect("an address");
    for length in [0_usize, 1, 64, 1001, 1472] {
        let payload = vec![0xa5; length];
        sender.send_to(&payload, to).expect("a route");
        let frame = std::iter::from_fn(|| wire.receive(PATIENCE))
            .find(|frame| frame.get(36..38) == Some(&2152_u16.to_be_bytes()[..]))
            .expect("the datagram comes back");
        assert_eq!(frame[..12], [mac(RIGHT_MAC), mac(LEFT_MAC)].concat());
        assert_eq!(frame[42..42 + length], payload[..]);
        // An AF_PACKET socket passes on that the checksum is still to be completed, so that Linux
        // knows and a raw socket does not. AF_XDP cannot.
        if mechanism != Mechanism::Packet {
            assert_eq!(udp_sum(&frame, length), 0xffff, "{length} bytes: {frame:02x?}");
        }
        let mut space = [0; 2000];
        let (arrived, _) = receiver.recv_from(&mut space).expect("a checksum that Linux accepts");
        assert_eq!(space[..arrived], payload[..]);
    }
}

/// Makes `host` accept datagrams with the left host's address as their destination.
fn accept_echoes(host: &Host) {
    for setting in ["all.rp_filter=0", "wire0.rp_filter=0", "wire0.accept_local=1"] {
        host.run(&["sysctl", "-q", "-w", &format!("net.ipv4.conf.{setting}")]);
    }
    host.run(&["ip", "route", "add", "local", LEFT, "dev", "lo", "table", "77"]);
    // UDP by its number: a minimal Debian has no /etc/protocols.
    let udp = ["iif", "wire0", "ipproto", "17", "lookup", "77"];
    host.run(&[&["ip", "rule", "add", "priority", "0"][..], &udp].concat());
}

/// Returns the sum over pseudo-header, UDP header and payload (RFC 768), 0xffff if the checksum is
/// valid. Independent of the code under test.
fn udp_sum(frame: &[u8], payload: usize) -> u16 {
    let datagram = &frame[34..42 + payload];
    let words = frame[26..34].chunks(2).chain(datagram.chunks(2));
    let value =
        |word: &[u8]| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low));
    let sum = words.map(value).sum::<u32>() + 17 + datagram.len() as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

fn story(name: &str, mechanism: Mechanism) {
    let Some(lab) = Lab::new(name, 1) else { return };
    let page = Page::new(TRANSFER);
    let macswap = Application::macswap(&lab, Application::steered(&mechanism.on("wire0")));
    ping(&lab);
    transfer(&lab, &page);
    assert_eq!(macswap.totals().wire("received_packets"), 0, "Linux's traffic was taken");
    plain_socket(&lab, mechanism);
    eventually("steering is counted", || macswap.totals().wire("steer_claimed") == 5);
    let totals = macswap.totals();
    assert_eq!(totals.wire("verdict_reflect"), 5);
    assert_eq!(totals.wire("sent_packets"), 5);
    assert!(totals.wire("steer_passed") > (TRANSFER / 65_536) as u64);

    // Both at the same time.
    let driver = Mechanism::Packet.on("wire0");
    let answer = std::thread::scope(|scope| {
        let settings = json!({"rate-packets-per-second": 1000, "duration-ms": 2000});
        let traffic = scope.spawn(|| measure(&lab, &lab.right, &driver, settings));
        ping(&lab);
        traffic.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    answer.0.assert_intact();
    assert!(macswap.totals().drops("wire").is_empty(), "{:?}", macswap.totals().drops("wire"));
    macswap.stop();
    // Nothing is left that could disturb Linux.
    ping(&lab);
}

#[test]
fn linux_keeps_its_interface_under_af_xdp_in_native_mode() {
    story("beside-linux-af-xdp-native", Mechanism::XdpNative);
}

#[test]
fn linux_keeps_its_interface_under_af_xdp_in_generic_mode() {
    story("beside-linux-af-xdp-generic", Mechanism::XdpGeneric);
}

#[test]
fn linux_keeps_its_interface_under_af_packet() {
    story("beside-linux-af-packet", Mechanism::Packet);
}
