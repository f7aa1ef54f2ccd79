//! GTP-U messages that this UPF originates (TS 29.281 clause 7).

use std::net::{IpAddr, Ipv6Addr};

use fastlane::Packet;
use fastlane::mirror::NextHop;
use fastlane::wire::{
    EtherType, Ethernet, GtpExtensionType, GtpMessageType, GtpU, IpProtocol, Ipv4, Ipv6, U16, Udp,
    header, header_mut,
};

use super::encap::{Endpoints, ethernet, fill_udp6, ipv4, ipv6};
use super::outer_header::GtpuPacket;

/// Information elements (clause 8.1): Recovery, Tunnel Endpoint Identifier Data I, GTP-U Peer
/// Address, Extension Header Type List.
const RECOVERY: u8 = 14;
const TEID_DATA_I: u8 = 16;
const PEER_ADDRESS: u8 = 133;
const EXTENSION_HEADER_TYPES: u8 = 141;

/// A complete message: header, optional part, extension headers, information elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GtpuMessage {
    bytes: [u8; 64],
    length: usize,
}

impl GtpuMessage {
    /// Creates a message with a sequence number and optionally an extension header.
    #[inline(always)]
    fn new(message_type: u8, teid: u32, sequence: u16, extension: Option<[u8; 5]>) -> Self {
        let mut message = Self { bytes: [0; 64], length: 0 };
        let flag = if extension.is_some() { GtpU::EXTENSION } else { 0 };
        message.push([GtpU::VERSION_1 | GtpU::SEQUENCE | flag, message_type, 0, 0]);
        message.push(teid.to_be_bytes());
        message.push(sequence.to_be_bytes());
        message.push([0]);
        match extension {
            Some(extension) => message.push(extension),
            None => message.push([GtpExtensionType::NONE]),
        }
        message
    }

    /// Appends bytes. Their length is constant, so the compiler knows every offset.
    #[inline(always)]
    fn push<const N: usize>(&mut self, bytes: [u8; N]) {
        let end = self.bytes.get_mut(self.length..).and_then(|rest| rest.first_chunk_mut());
        if let Some(end) = end {
            *end = bytes;
            self.length += N;
        }
    }

    /// Writes the length field.
    #[inline(always)]
    fn finish(mut self) -> Self {
        let carried = (self.length.saturating_sub(GtpU::LENGTH)) as u16;
        [self.bytes[2], self.bytes[3]] = carried.to_be_bytes();
        self
    }

    /// Creates an echo request (clause 7.2.1).
    pub(crate) fn echo_request(sequence: u16) -> Self {
        Self::new(GtpMessageType::ECHO_REQUEST, 0, sequence, None).finish()
    }

    /// Creates an echo response (clause 7.2.2). Its restart counter is always 0 (clause 8.2).
    pub(crate) fn echo_response(sequence: u16) -> Self {
        let mut message = Self::new(GtpMessageType::ECHO_RESPONSE, 0, sequence, None);
        message.push([RECOVERY, 0]);
        message.finish()
    }

    /// Creates an error indication (clause 7.3.1) with the unknown TEID, the local address and the
    /// source port of the packet (clause 5.2.2.1).
    pub(crate) fn error_indication(teid: u32, local: IpAddr, source_port: u16) -> Self {
        let [high, low] = source_port.to_be_bytes();
        let extension = [GtpExtensionType::UDP_PORT, 1, high, low, GtpExtensionType::NONE];
        let mut message = Self::new(GtpMessageType::ERROR_INDICATION, 0, 0, Some(extension));
        message.push([TEID_DATA_I]);
        message.push(teid.to_be_bytes());
        match local {
            IpAddr::V4(address) => {
                message.push([PEER_ADDRESS, 0, 4]);
                message.push(address.octets());
            }
            IpAddr::V6(address) => {
                message.push([PEER_ADDRESS, 0, 16]);
                message.push(address.octets());
            }
        }
        message.finish()
    }

    /// Creates a notification of the supported extension headers (clause 7.2.3).
    pub(crate) fn supported_extension_headers() -> Self {
        let kind = GtpMessageType::SUPPORTED_EXTENSION_HEADERS;
        let mut message = Self::new(kind, 0, 0, None);
        let known = [
            GtpExtensionType::UDP_PORT,
            GtpExtensionType::LONG_PDCP_PDU_NUMBER,
            GtpExtensionType::PDU_SESSION_CONTAINER,
            GtpExtensionType::PDCP_PDU_NUMBER,
        ];
        message.push([EXTENSION_HEADER_TYPES, known.len() as u8]);
        message.push(known);
        message.finish()
    }

    /// Creates an end marker (clause 7.3.2).
    pub(crate) fn end_marker(teid: u32) -> Self {
        let mut message = Self { bytes: [0; 64], length: 0 };
        message.push([GtpU::VERSION_1, GtpMessageType::END_MARKER, 0, 0]);
        message.push(teid.to_be_bytes());
        message.finish()
    }

    /// Returns the bytes of the message.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Writes a message into a packet, between these endpoints and to this port. Returns false if there
/// is no room.
pub(crate) fn write(
    packet: &mut Packet,
    endpoints: Endpoints,
    hop: &NextHop,
    port: u16,
    message: &GtpuMessage,
) -> bool {
    let datagram = Udp::LENGTH + message.bytes().len();
    let at = Ethernet::LENGTH + endpoints.ip_length();
    if !resize(packet, at + datagram) {
        return false;
    }
    packet.set_partial_checksum(None);
    let bytes = packet.bytes_mut();
    let (ethertype, tos) = match endpoints {
        Endpoints::V4(..) => (EtherType::IPV4, 0),
        Endpoints::V6(..) => (EtherType::IPV6, 0),
    };
    if let Some(header) = header_mut::<Ethernet>(bytes, 0) {
        *header = ethernet(hop, ethertype);
    }
    if let Some(header) = header_mut::<Udp>(bytes, at) {
        *header = Udp {
            source_port: U16::new(GtpU::PORT),
            destination_port: U16::new(port),
            length: U16::new(datagram as u16),
            checksum: U16::new(0),
        };
    }
    if let Some(payload) = bytes.get_mut(at + Udp::LENGTH..) {
        payload.copy_from_slice(message.bytes());
    }
    match endpoints {
        Endpoints::V4(local, remote) => {
            if let Some(header) = header_mut::<Ipv4>(bytes, Ethernet::LENGTH) {
                *header = ipv4(local, remote, tos, datagram, IpProtocol::UDP);
            }
        }
        Endpoints::V6(local, remote) => {
            if let Some(header) = header_mut::<Ipv6>(bytes, Ethernet::LENGTH) {
                *header = ipv6(local, remote, tos, datagram, IpProtocol::UDP);
            }
            fill_udp6(bytes, local, remote);
        }
    }
    true
}

/// Resizes a packet; false if there is no room.
pub(crate) fn resize(packet: &mut Packet, length: usize) -> bool {
    match length.checked_sub(packet.len()) {
        Some(0) => true,
        Some(more) => packet.append(more).is_some(),
        None => packet.truncate(length),
    }
}

/// Replaces a received GTP-U packet by the reply to it, to be reflected.
pub(crate) fn answer(
    packet: &mut Packet,
    tunnel: &GtpuPacket,
    port: u16,
    message: &GtpuMessage,
) -> bool {
    let Some((endpoints, hop)) = back(packet, tunnel) else { return false };
    write(packet, endpoints, &hop, port, message)
}

/// Returns the endpoints of a received packet as seen from this UPF, and the next hop back.
pub(crate) fn back(packet: &Packet, tunnel: &GtpuPacket) -> Option<(Endpoints, NextHop)> {
    let bytes = packet.bytes();
    let ethernet: &Ethernet = header(bytes, 0)?;
    let endpoints = if tunnel.is_v6 {
        let ip: &Ipv6 = header(bytes, Ethernet::LENGTH)?;
        Endpoints::V6(ip.destination.into(), ip.source.into())
    } else {
        let ip: &Ipv4 = header(bytes, Ethernet::LENGTH)?;
        Endpoints::V4(ip.destination.into(), ip.source.into())
    };
    let hop = NextHop {
        port: packet.port(),
        source: ethernet.destination.0,
        destination: ethernet.source.0,
        mtu: u32::MAX,
        link: 0,
        route: 0,
        is_divided: false,
    };
    Some((endpoints, hop))
}

/// Content of an error indication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorIndication {
    /// TEID that the peer does not have.
    pub(crate) teid: u32,
    /// Address of the peer that packets were sent to.
    pub(crate) peer: IpAddr,
}

/// Parses the information elements of an error indication (clause 7.3.1). They are in the order of
/// their types (clause 8.1). Those below 128 have a fixed length, the others a length field.
pub(crate) fn read_error_indication(mut elements: &[u8]) -> Option<ErrorIndication> {
    let (mut teid, mut peer) = (None, None);
    while let [kind, rest @ ..] = elements {
        elements = match *kind {
            RECOVERY => rest.get(1..)?,
            TEID_DATA_I => {
                let (value, rest) = rest.split_first_chunk::<4>()?;
                teid.get_or_insert(u32::from_be_bytes(*value));
                rest
            }
            0..128 => return None, // of unknown length, so the rest cannot be parsed
            kind => {
                let (length, rest) = rest.split_first_chunk::<2>()?;
                let length = usize::from(u16::from_be_bytes(*length));
                let (value, rest) = rest.split_at_checked(length)?;
                if kind == PEER_ADDRESS && peer.is_none() {
                    peer = Some(address(value)?);
                }
                rest
            }
        };
    }
    Some(ErrorIndication { teid: teid?, peer: peer? })
}

fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(octets.into());
    }
    Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_the_specification_says() {
        let echo = GtpuMessage::echo_response(0x1234);
        assert_eq!(echo.bytes(), [0x32, 2, 0, 6, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 14, 0]);
        let error = GtpuMessage::error_indication(0xaabb_ccdd, [10, 0, 0, 1].into(), 0x4321);
        let elements = [16, 0xaa, 0xbb, 0xcc, 0xdd, 133, 0, 4, 10, 0, 0, 1];
        let head = [0x36, 26, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 0x43, 0x21, 0];
        assert_eq!(error.bytes(), [&head[..], &elements].concat());
        let read = read_error_indication(&elements).unwrap();
        assert_eq!((read.teid, read.peer), (0xaabb_ccdd, IpAddr::from([10, 0, 0, 1])));
        assert_eq!(GtpuMessage::end_marker(5).bytes(), [0x30, 254, 0, 0, 0, 0, 0, 5]);
        assert_eq!(GtpuMessage::echo_request(7).bytes()[..4], [0x32, 1, 0, 4]);
        let list = GtpuMessage::supported_extension_headers();
        assert_eq!(list.bytes()[12..], [141, 4, 0x40, 0x82, 0x85, 0xc0]);
    }

    #[test]
    fn an_error_indication_that_is_cut_or_lacks_something_says_nothing() {
        let whole = [14, 9, 16, 0, 0, 0, 7, 133, 0, 4, 192, 0, 2, 1, 255, 0, 1, 5];
        assert!(read_error_indication(&whole).is_some());
        // A cut between two elements behind the address leaves a complete message.
        for length in (0..whole.len()).filter(|length| *length != 14) {
            assert_eq!(read_error_indication(&whole[..length]), None, "{length}");
        }
        assert_eq!(read_error_indication(&[16, 0, 0, 0, 7, 133, 0, 3, 1, 2, 3]), None);
        assert_eq!(read_error_indication(&[3, 0]), None);
        let v6 = [&[16, 0, 0, 0, 7, 133, 0, 16][..], &[0xfd; 16]].concat();
        assert!(read_error_indication(&v6).unwrap().peer.is_ipv6());
    }
}
