//! Address autoconfiguration of a user (RFC 4862) by an SMF that is no next hop of a port: it
//! exchanges user packets on N4 (N4-u). The user is Linux, which sends the solicitation and judges
//! the advertisement.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Instant;

use fastlane_testing::Peer;
use fastlane_testing::namespace::Wire;
use fastlane_tests::{Host, PATIENCE, eventually};
use fastlane_wire::checksum::checksum;
use fastlane_wire::{GtpMessage, GtpMessageType, GtpU};

use crate::endpoints::UPLINK;
use crate::life::{Action, Step, Uplink};
use crate::namespaces::{Links, SMF, Site, UPF};
use crate::player::Player;
use crate::side_by_side::Placement;

/// PDR of the life in whose tunnel users send, and the one in whose tunnel the SMF sends.
const OF_USER: Uplink = Uplink::Pdr(2);
const OF_SMF: Uplink = Uplink::Pdr(3);
/// TEID of the SMF, and of the gNB after its setup.
const SMF_TEID: u32 = 1;
const GNB_TEID: u32 = 0x11;
/// Prefix of the user.
const PREFIX: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xcafe, 0, 0, 0, 0, 0);
/// An address on N4 that is no SMF's.
const STRANGER: Ipv4Addr = Ipv4Addr::new(10, 4, 0, 77);

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const ICMPV6: u8 = 58;
const ROUTER_SOLICITATION: u8 = 133;

/// Linux as a user, behind an Ethernet link that stands for its radio link.
struct User {
    host: Host,
    radio: Wire,
}

impl User {
    fn new(site: &Site) -> Self {
        let host = site.another();
        host.connect(site.access(), "ue");
        let radio = site.access().enter(|| Wire::open("ue")).expect("a raw socket");
        host.run(&["sysctl", "--quiet", "--write", "net.ipv6.conf.ue.accept_ra=2"]);
        host.run(&["ip", "link", "set", "ue", "down"]);
        host.run(&["ip", "link", "set", "ue", "addrgenmode", "eui64", "up"]);
        Self { host, radio }
    }

    /// Waits for a router solicitation.
    #[track_caller]
    fn solicitation(&mut self) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        loop {
            let frame = self.radio.receive(end.saturating_duration_since(Instant::now()));
            let frame = frame.expect("Linux solicits routers");
            let packet = &frame[ETHERNET..];
            if packet.get(6) == Some(&ICMPV6) && packet.get(IPV6) == Some(&ROUTER_SOLICITATION) {
                return packet.to_vec();
            }
        }
    }

    /// Delivers a packet to all nodes (RFC 2464 clause 7).
    fn deliver(&mut self, packet: &[u8]) {
        let header = [0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
        assert!(self.radio.send(&[&header[..], packet].concat()));
    }

    fn addresses(&self) -> String {
        self.host.run(&["ip", "-6", "-o", "address", "show", "dev", "ue", "scope", "global"])
    }
}

/// Returns an advertisement of [`PREFIX`] with autoconfiguration (RFC 4861 clauses 4.2, 4.6.2).
fn advertisement() -> Vec<u8> {
    let (from, to) = (Ipv6Addr::from(0xfe80 << 112 | 1), Ipv6Addr::from(0xff02 << 112 | 1));
    let mut icmp = vec![134, 0, 0, 0, 64, 0, 0x23, 0x28, 0, 0, 0, 0, 0, 0, 0, 0];
    icmp.extend([3, 4, 64, 0x40]);
    icmp.extend([0xff; 8]); // valid and preferred for ever
    icmp.extend([0; 4]);
    icmp.extend(PREFIX.octets());
    let length = icmp.len() as u16;
    let pseudo =
        [&from.octets()[..], &to.octets(), &u32::from(length).to_be_bytes(), &[0, 0, 0, ICMPV6]];
    let sum = checksum(&[&pseudo.concat()[..], &icmp].concat());
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([ICMPV6, 255]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(icmp);
    packet
}

/// GTP-U of a control plane function.
struct ControlPlane(UdpSocket);

impl ControlPlane {
    fn new(host: &Host, address: Ipv4Addr) -> Self {
        let socket = host.enter(|| UdpSocket::bind((address, GtpU::PORT)));
        let socket = socket.expect("the address is free");
        socket.set_read_timeout(Some(PATIENCE)).expect("a read timeout");
        Self(socket)
    }

    fn send(&self, teid: u32, packet: &[u8]) {
        let mut message = vec![0x30, GtpMessageType::G_PDU];
        message.extend((packet.len() as u16).to_be_bytes());
        message.extend(teid.to_be_bytes());
        message.extend(packet);
        self.0.send_to(&message, (UPF, GtpU::PORT)).expect("it sends");
    }

    /// Waits for a G-PDU. Returns its TEID and packet.
    #[track_caller]
    fn receive(&self) -> (u32, Vec<u8>) {
        let mut buffer = [0; 2048];
        let (length, from) = self.0.recv_from(&mut buffer).expect("a packet of the user");
        assert_eq!(from, (UPF, GtpU::PORT).into());
        let message = GtpMessage::parse(&buffer[..length]).expect("GTP-U");
        let packet = message.payload(&buffer[..length]).expect("a packet");
        (message.teid, packet.to_vec())
    }
}

/// Returns the number of GTP-U messages on N4 with an outcome.
fn counted(site: &Site, outcome: &str) -> u64 {
    let page = site.upf().run(&["curl", "--silent", "--fail", "http://127.0.0.1:8805/metrics"]);
    let name = format!("upf_n4_user_packets_total{{outcome=\"{outcome}\"}} ");
    page.lines()
        .find_map(|line| line.strip_prefix(&name))
        .map_or(0, |count| count.parse().expect("a number"))
}

fn user_gets_its_prefix(shipped: &str) {
    let Some(site) = Site::new(Links::Separate) else { return };
    site.access().run(&["ip", "address", "add", &format!("{STRANGER}/24"), "dev", "n4"]);
    let upf = site.start(shipped, &[]);
    let placement = Placement::new(crate::read("derived-ipv6"), 0);
    let steps = &placement.life.steps;
    let set_up = steps.iter().position(|it| matches!(it, Step::Action(Action::Data { .. })));
    let set_up = set_up.expect("users' packets flow") + 1;
    let mut player = Player::new(&site, &placement);
    player.play_steps(&placement.life, 0..set_up);
    let (of_user, of_smf) = (player.smf.teid(OF_USER), player.smf.teid(OF_SMF));
    let smf = ControlPlane::new(site.access(), SMF);
    let mut user = User::new(&site);

    let solicitation = user.solicitation();
    player.gnb().send_packet(of_user, UPLINK, 1, &solicitation);
    assert_eq!(smf.receive(), (SMF_TEID, solicitation));
    assert_eq!(counted(&site, "sent"), 1);

    // Of a stranger, in a tunnel of users, and in none.
    ControlPlane::new(site.access(), STRANGER).send(of_smf, &advertisement());
    smf.send(of_user, &advertisement());
    smf.send(0xbad, &advertisement());
    for (outcome, count) in [("foreign_source", 1), ("unknown_tunnel", 2)] {
        eventually("it is counted", || counted(&site, outcome) == count);
    }
    assert_eq!(counted(&site, "handed_over"), 0);

    smf.send(of_smf, &advertisement());
    let (teid, packet) = player.gnb().receive_packet();
    assert_eq!((teid, &packet), (GNB_TEID, &advertisement()));
    assert_eq!(counted(&site, "handed_over"), 1);
    user.deliver(&packet);
    eventually("Linux has the prefix", || user.addresses().contains("2001:db8:cafe:"));

    player.play_steps(&placement.life, set_up..steps.len());
    crate::stop(upf, vec![player.smf]);
}

#[test]
fn a_user_gets_its_prefix_from_an_smf_on_n4_by_af_packet() {
    user_gets_its_prefix("af-packet");
}

#[test]
fn a_user_gets_its_prefix_from_an_smf_on_n4_by_af_xdp() {
    user_gets_its_prefix("af-xdp");
}
