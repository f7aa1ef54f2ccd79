//! Frames of UEs, built and parsed octet by octet, independent of the UPF's own code.

use std::net::{Ipv4Addr, SocketAddrV4};

use fastlane_wire::{GtpMessage, GtpMessageType, checksum};

use super::smf::Session;

/// The gNB that sends uplink packets.
pub const GNB: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);
/// The host in the data network.
pub const DATA_NETWORK: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 2);
/// The UPF's address on N3.
pub const N3: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);

const MAGIC: &[u8; 8] = b"survival";
const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
/// Magic, session, number, version.
const STAMP: usize = 8 + 8 + 8 + 4;
/// QoS flow identifier of all uplink packets.
const UPLINK_QFI: u8 = 1;
/// Port of a UE from which all uplink packets come.
pub const UE_PORT: u16 = 4000;
/// Destination port of packets that are not for a port of NAT.
pub const PORT: u16 = 9;

/// Identification of a packet, carried in its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// CP-SEID of the packet's session.
    pub session: u64,
    /// Sequence number over all packets.
    pub number: u64,
    /// Version of the rules that was in force when the packet was sent.
    pub version: u32,
}

/// Outer headers of a downlink packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Destination MAC address.
    pub mac: [u8; 6],
    /// Destination IP address.
    pub peer: Ipv4Addr,
    /// TEID at the gNB.
    pub teid: u32,
    /// Type of service of the outer IP header.
    pub tos: u8,
    /// QFI of the PDU session container.
    pub qfi: Option<u8>,
}

/// A stamped packet that the UPF has sent.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPacket {
    /// Outer headers of a downlink packet; `None` on N6.
    pub outer: Option<Outer>,
    /// Address of the UE, or its external one.
    pub ue: Ipv4Addr,
    /// Port of the UE, or its external one.
    pub port: u16,
    /// Identification of the packet.
    pub stamp: Stamp,
    /// Length of the inner IP packet in octets.
    pub octets: u64,
}

fn ip(source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let length = (IP + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(payload);
    packet
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let length = (UDP + payload.len()) as u16;
    // RFC 768 allows UDP over IPv4 without a checksum.
    let words = [ports[0], ports[1], length, 0];
    let mut datagram: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.extend_from_slice(payload);
    datagram
}

fn ethernet(destination: [u8; 6], packet: &[u8]) -> Vec<u8> {
    [&destination[..], &[2, 0, 0, 0, 0, 0x99, 8, 0], packet].concat()
}

/// Returns the length of the inner IP packet with this number, in octets.
#[must_use]
pub fn ip_length(number: u64) -> u64 {
    (IP + UDP + STAMP) as u64 + number % 61
}

/// Returns the payload of a packet. Its length varies with the number, so that octets are not a
/// multiple of packets.
fn payload(stamp: &Stamp) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend(stamp.session.to_be_bytes());
    payload.extend(stamp.number.to_be_bytes());
    payload.extend(stamp.version.to_be_bytes());
    payload.resize(STAMP + (stamp.number % 61) as usize, 0x5a);
    payload
}

/// Builds an uplink packet as the gNB sends it to the UPF's MAC address `mac`.
#[must_use]
pub fn uplink(mac: [u8; 6], session: &Session, to: Ipv4Addr, stamp: &Stamp) -> Vec<u8> {
    tunnelled(mac, session, &ip(session.ue, to, &udp([UE_PORT, PORT], &payload(stamp))))
}

/// Builds an uplink packet of a user with an IP packet of `octets` within.
#[must_use]
pub fn uplink_of(mac: [u8; 6], session: &Session, to: Ipv4Addr, octets: usize) -> Vec<u8> {
    tunnelled(mac, session, &sized(session.ue, to, octets))
}

/// Builds a downlink packet to a user with an IP packet of `octets`.
#[must_use]
pub fn downlink_of(mac: [u8; 6], from: Ipv4Addr, ue: Ipv4Addr, octets: usize) -> Vec<u8> {
    ethernet(mac, &sized(from, ue, octets))
}

/// Returns an IP packet of this length, with a UDP datagram.
fn sized(from: Ipv4Addr, to: Ipv4Addr, octets: usize) -> Vec<u8> {
    ip(from, to, &udp([UE_PORT, PORT], &vec![0x5a; octets.saturating_sub(IP + UDP)]))
}

/// Returns the frame of a gNB with a packet of a session.
fn tunnelled(mac: [u8; 6], session: &Session, inner: &[u8]) -> Vec<u8> {
    let mut message = vec![0x34, GtpMessageType::G_PDU];
    message.extend((inner.len() as u16 + 8).to_be_bytes());
    message.extend(session.uplink_teid.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0x10, UPLINK_QFI, 0]);
    message.extend(inner);
    ethernet(mac, &ip(GNB, N3, &udp([2152, 2152], &message)))
}

/// Builds a downlink packet to an address and port as the data network sends it. The source port
/// alternates between one inside and one outside of the range of [`SessionRequest::is_complex`].
///
/// [`SessionRequest::is_complex`]: super::messages::SessionRequest::is_complex
#[must_use]
pub fn downlink(mac: [u8; 6], to: SocketAddrV4, stamp: &Stamp) -> Vec<u8> {
    let port = if stamp.number.is_multiple_of(2) { 4500 } else { 5500 };
    ethernet(mac, &ip(DATA_NETWORK, *to.ip(), &udp([port, to.port()], &payload(stamp))))
}

/// Parses a frame that the UPF has sent. Returns `None` if it holds no stamped packet.
#[must_use]
pub fn parse(frame: &[u8]) -> Option<ReceivedPacket> {
    let packet = udp_over_ip(frame.get(ETHERNET..)?)?;
    let datagram = &packet[IP + UDP..];
    if datagram.starts_with(MAGIC) {
        return parse_inner(packet, None);
    }
    let message = GtpMessage::parse(datagram).ok()?;
    let inner = message.payload(datagram).filter(|_| message.message_type == 255)?;
    let outer = Outer {
        mac: *frame.first_chunk()?,
        peer: address(packet, 16)?,
        teid: message.teid,
        tos: packet[1],
        qfi: message.pdu_session.map(|it| it.qfi),
    };
    parse_inner(udp_over_ip(inner)?, Some(outer))
}

fn parse_inner(packet: &[u8], outer: Option<Outer>) -> Option<ReceivedPacket> {
    let payload = packet.get(IP + UDP..)?.strip_prefix(MAGIC)?;
    let number = |at: usize| Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let version = u32::from_be_bytes(*payload.get(16..)?.first_chunk()?);
    let stamp = Stamp { session: number(0)?, number: number(8)?, version };
    assert_eq!(packet[IP + UDP..], self::payload(&stamp), "{stamp:?}: the payload has changed");
    let ue = address(packet, if outer.is_some() { 16 } else { 12 })?;
    let at = if outer.is_some() { IP + 2 } else { IP };
    let port = u16::from_be_bytes(*packet.get(at..)?.first_chunk()?);
    Some(ReceivedPacket { outer, ue, port, stamp, octets: packet.len() as u64 })
}

/// Returns the IPv4 packet at the start of `bytes` if it carries UDP.
fn udp_over_ip(bytes: &[u8]) -> Option<&[u8]> {
    let is_udp = *bytes.first()? == 0x45 && *bytes.get(9)? == 17;
    let length = usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
    bytes.get(..length).filter(|packet| is_udp && packet.len() >= IP + UDP)
}

fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?))
}
