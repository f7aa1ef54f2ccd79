//! Frames of gNBs, UEs and servers.

use fastlane_wire::checksum::{Sum, checksum};

use crate::test_lane::{GNB, NEIGHBOUR_MAC, OUR, PORT_MAC};

/// Builds an IPv4 packet.
pub(crate) fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, ttl, protocol, 0, 0];
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    fill(&mut packet);
    packet
}

/// Updates the checksum of an IPv4 header.
pub(crate) fn fill(packet: &mut [u8]) {
    let length = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..length]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Builds an IPv6 packet.
pub(crate) fn ipv6(from: &str, to: &str, next: u8, hops: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, hops];
    packet[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    for address in [from, to] {
        let address: std::net::Ipv6Addr = address.parse().expect("an address");
        packet.extend(address.octets());
    }
    packet.extend(payload);
    packet
}

/// Builds a UDP datagram without a checksum.
pub(crate) fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let length = 8 + data.len() as u16;
    let fields = [from, to, length, 0].map(u16::to_be_bytes).concat();
    [&fields[..], data].concat()
}

/// Builds an IPv4 UDP packet of the UE.
pub(crate) fn ue4(from: [u8; 4], to: [u8; 4], ttl: u8, data: usize) -> Vec<u8> {
    ipv4(from, to, 17, ttl, &udp(4000, 53, &vec![0xab; data]))
}

/// Adds an Ethernet header to a port of the UPF.
pub(crate) fn ethernet(port: u16, packet: &[u8]) -> Vec<u8> {
    let at = usize::from(port);
    let ethertype: [u8; 2] = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&PORT_MAC[at][..], &NEIGHBOUR_MAC[at], &ethertype, packet].concat()
}

/// Builds a GTP-U message; `rest` follows the mandatory header.
pub(crate) fn gtpu(flags: u8, kind: u8, teid: u32, rest: &[u8]) -> Vec<u8> {
    let mut message = vec![flags, kind];
    message.extend((rest.len() as u16).to_be_bytes());
    message.extend(teid.to_be_bytes());
    message.extend(rest);
    message
}

/// Builds user data with a PDU session container of a type.
pub(crate) fn g_pdu(teid: u32, pdu_type: u8, qfi: u8, inner: &[u8]) -> Vec<u8> {
    let head = [0, 0, 0, 0x85, 1, pdu_type << 4, qfi, 0];
    gtpu(0x34, 255, teid, &[&head[..], inner].concat())
}

/// Builds a frame from the gNB's port 40000 to the UPF.
pub(crate) fn from_gnb(message: &[u8]) -> Vec<u8> {
    ethernet(0, &ipv4(GNB, OUR, 17, 64, &udp(40000, 2152, message)))
}

/// Builds a frame like [`from_gnb`] over IPv6, with a checksum.
pub(crate) fn from_gnb6(message: &[u8]) -> Vec<u8> {
    let mut datagram = udp(40000, 2152, message);
    let (from, to) = ("fd03::9", "fd03::1");
    let octets = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("an address").octets();
    let sum = Sum::pseudo_ipv6(&octets(from), &octets(to), 17, datagram.len() as u32);
    let sum = sum.add_bytes(&datagram).checksum();
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    ethernet(0, &ipv6(from, to, 17, 64, &datagram))
}

/// Returns the content of a tunnel over IPv4 to the gNB: TEID, container, inner packet. Checks the
/// outer headers.
pub(crate) fn opened(frame: &[u8]) -> (u32, Vec<u8>, Vec<u8>) {
    assert_eq!(frame[..12], [NEIGHBOUR_MAC[0], PORT_MAC[0]].concat());
    assert_eq!((frame[14], frame[23], checksum(&frame[14..34])), (0x45, 17, 0));
    assert_eq!(frame[16..18], ((frame.len() - 14) as u16).to_be_bytes());
    assert_eq!(frame[26..34], [OUR, GNB].concat());
    assert_eq!(frame[36..38], 2152_u16.to_be_bytes());
    assert_eq!(frame[38..40], ((frame.len() - 34) as u16).to_be_bytes());
    assert_eq!(frame[40..42], [0, 0], "no checksum over IPv4");
    let message = &frame[42..];
    assert_eq!(message[2..4], ((message.len() - 8) as u16).to_be_bytes());
    let teid = u32::from_be_bytes(message[4..8].try_into().expect("four octets"));
    if message[0] & 7 == 0 {
        return (teid, vec![], message[8..].to_vec());
    }
    let units = usize::from(message[12]) * 4;
    assert_eq!((message[11], message[11 + units]), (0x85, 0));
    (teid, message[12..12 + units].to_vec(), message[12 + units..].to_vec())
}
