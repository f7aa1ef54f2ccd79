//! Frames of users, written and read octet by octet: what they are is nobody's opinion but ours.

use std::net::Ipv4Addr;

use fastlane_wire::{GtpMessage, GtpMessageType, checksum};

use crate::smf::Session;

/// The base station that uplink packets come from, and the data network's host.
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 2);
pub(crate) const DATA: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 2);
/// The UPF's address on N3.
pub(crate) const N3: Ipv4Addr = Ipv4Addr::new(10, 30, 0, 1);

const MAGIC: &[u8; 8] = b"survival";
const ETHERNET: usize = 14;
const IP: usize = 20;
const UDP: usize = 8;
/// Magic, session, number, version.
const STAMP: usize = 8 + 8 + 8 + 4;
/// Everything in a tunnel has this QoS flow on its way up.
const UPLINK_QFI: u8 = 1;

/// Says which packet it is: of which session, which one, and what the rules were when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Our number of the session.
    pub(crate) session: u64,
    pub(crate) number: u64,
    pub(crate) version: u32,
}

/// The tunnel that a packet to a user came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    pub(crate) mac: [u8; 6],
    pub(crate) peer: Ipv4Addr,
    pub(crate) teid: u32,
    pub(crate) marking: u8,
    pub(crate) qfi: Option<u8>,
}

/// A packet of ours that came out of the UPF.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// None: from the user, by N6.
    pub(crate) outer: Option<Outer>,
    pub(crate) user: Ipv4Addr,
    pub(crate) stamp: Stamp,
    /// Octets of the user's IP packet.
    pub(crate) octets: u64,
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
    // No checksum: RFC 768 allows that over IPv4.
    let words = [ports[0], ports[1], length, 0];
    let mut datagram: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.extend_from_slice(payload);
    datagram
}

fn ethernet(destination: [u8; 6], packet: &[u8]) -> Vec<u8> {
    [&destination[..], &[2, 0, 0, 0, 0, 0x99, 8, 0], packet].concat()
}

/// Octets of the IP packet of this number.
pub(crate) fn octets(number: u64) -> u64 {
    (IP + UDP + STAMP) as u64 + number % 61
}

/// Of another length each time, so that octets are not packets times something.
fn payload(stamp: &Stamp) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend(stamp.session.to_be_bytes());
    payload.extend(stamp.number.to_be_bytes());
    payload.extend(stamp.version.to_be_bytes());
    payload.resize(STAMP + (stamp.number % 61) as usize, 0x5a);
    payload
}

/// A packet of a user as its base station sends it.
pub(crate) fn uplink(mac: [u8; 6], session: &Session, to: Ipv4Addr, stamp: &Stamp) -> Vec<u8> {
    let inner = ip(session.user, to, &udp([4000, 9], &payload(stamp)));
    let mut message = vec![0x34, GtpMessageType::G_PDU];
    message.extend((inner.len() as u16 + 8).to_be_bytes());
    message.extend(session.uplink.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0x10, UPLINK_QFI, 0]);
    message.extend(inner);
    ethernet(mac, &ip(GNB, N3, &udp([2152, 2152], &message)))
}

/// A packet to a user as the data network sends it; of another port each time.
pub(crate) fn downlink(mac: [u8; 6], user: Ipv4Addr, stamp: &Stamp) -> Vec<u8> {
    let port = if stamp.number.is_multiple_of(2) { 4500 } else { 5500 };
    ethernet(mac, &ip(DATA, user, &udp([port, 9], &payload(stamp))))
}

/// Reads a frame that came out of the UPF; `None` when it is no packet of ours.
pub(crate) fn read(frame: &[u8]) -> Option<Seen> {
    let packet = udp_over_ip(frame.get(ETHERNET..)?)?;
    let datagram = &packet[IP + UDP..];
    if datagram.starts_with(MAGIC) {
        return seen(packet, None);
    }
    let message = GtpMessage::parse(datagram).ok()?;
    let inner = message.payload(datagram).filter(|_| message.message_type == 255)?;
    let outer = Outer {
        mac: *frame.first_chunk()?,
        peer: address(packet, 16)?,
        teid: message.teid,
        marking: packet[1],
        qfi: message.pdu_session.map(|it| it.qfi),
    };
    seen(udp_over_ip(inner)?, Some(outer))
}

fn seen(packet: &[u8], outer: Option<Outer>) -> Option<Seen> {
    let payload = packet.get(IP + UDP..)?.strip_prefix(MAGIC)?;
    let number = |at: usize| Some(u64::from_be_bytes(*payload.get(at..)?.first_chunk()?));
    let version = u32::from_be_bytes(*payload.get(16..)?.first_chunk()?);
    let stamp = Stamp { session: number(0)?, number: number(8)?, version };
    assert_eq!(packet[IP + UDP..], self::payload(&stamp), "{stamp:?} has changed on its way");
    let user = address(packet, if outer.is_some() { 16 } else { 12 })?;
    Some(Seen { outer, user, stamp, octets: packet.len() as u64 })
}

/// The IP packet that `bytes` begin with, if it is one of UDP.
fn udp_over_ip(bytes: &[u8]) -> Option<&[u8]> {
    let is_udp = *bytes.first()? == 0x45 && *bytes.get(9)? == 17;
    let length = usize::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?));
    bytes.get(..length).filter(|packet| is_udp && packet.len() >= IP + UDP)
}

fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?))
}
