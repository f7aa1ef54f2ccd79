//! Encapsulation: writes Ethernet, IP, UDP and GTP-U headers in front of an inner packet.
//!
//! The outer IPv4 header has DF set and no identification (RFC 6864 clause 4.1). Packets that are
//! too long are fragmented inside the tunnel, so tunnel endpoints never reassemble. UDP has no
//! checksum over IPv4 and has one over IPv6 (TS 29.281 clause 4.4.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::NextHop;
use fastlane::wire::checksum::{self, Sum};
use fastlane::wire::{
    EtherType, Ethernet, GtpExtensionType, GtpMessageType, GtpU, Header, IpProtocol, Ipv4, Ipv6,
    MacAddress, PduSession, U16, U32, Udp, header_mut,
};
use fastlane::{Packet, wire};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inner_packet;
use crate::config::SourcePort;

/// TTL of outer headers.
const OUTER_TTL: u8 = 64;

/// Local and remote address of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoints {
    /// IPv4: local, remote.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6: local, remote.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Endpoints {
    /// Returns the length of the IP header in octets.
    #[inline]
    pub(crate) const fn ip_length(self) -> usize {
        match self {
            Self::V4(..) => Ipv4::LENGTH,
            Self::V6(..) => Ipv6::LENGTH,
        }
    }

    /// Returns the local address.
    pub(crate) const fn local(self) -> IpAddr {
        match self {
            Self::V4(local, _) => IpAddr::V4(local),
            Self::V6(local, _) => IpAddr::V6(local),
        }
    }

    /// Returns the remote address.
    pub(crate) const fn remote(self) -> IpAddr {
        match self {
            Self::V4(_, remote) => IpAddr::V4(remote),
            Self::V6(_, remote) => IpAddr::V6(remote),
        }
    }
}

/// Optional part of the GTP-U header with a PDU session container, or neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Container {
    /// Octets 0 to 7, the first one in the most significant bits: built in a register and stored at
    /// once.
    first: u64,
    /// Octets 8 to 11, in the same order.
    rest: u32,
    length: u8,
}

impl Container {
    /// No container and no optional part.
    pub(crate) const NONE: Self = Self { first: 0, rest: 0, length: 0 };

    /// Creates a container of PDU type 0, downlink (TS 38.415 clause 5.5.2.1): QoS flow, reflective
    /// QoS indication, paging policy indicator.
    #[inline]
    pub(crate) fn downlink(qfi: u8, reflective: bool, paging_policy: Option<u8>) -> Self {
        let flow = qfi & 0x3f | if reflective { 0x40 } else { 0 };
        let kind = PduSession::DOWNLINK << 4;
        match paging_policy {
            None => Self { first: Self::first(1, kind, flow), rest: 0, length: 8 },
            Some(policy) => {
                let first = Self::first(2, kind, flow | 0x80) | u64::from(policy << 5);
                Self { first, rest: 0, length: 12 }
            }
        }
    }

    /// Creates a container of PDU type 1, uplink (clause 5.5.2.2).
    #[inline]
    pub(crate) fn uplink(qfi: u8) -> Self {
        let first = Self::first(1, PduSession::UPLINK << 4, qfi & 0x3f);
        Self { first, rest: 0, length: 8 }
    }

    /// Packs the extension header type behind sequence and N-PDU number, its length in units of
    /// four octets, and its first two octets.
    #[inline]
    fn first(units: u8, kind: u8, flow: u8) -> u64 {
        let next = GtpExtensionType::PDU_SESSION_CONTAINER;
        u64::from(next) << 32
            | u64::from(units) << 24
            | u64::from(kind) << 16
            | u64::from(flow) << 8
    }

    /// Writes the container so that it ends at octet `end`.
    #[inline(always)]
    fn write(&self, bytes: &mut [u8], end: usize) {
        let Some(to) = bytes.get_mut(end - usize::from(self.length)..end) else { return };
        if let Some((first, rest)) = to.split_first_chunk_mut() {
            *first = self.first.to_be_bytes();
            if let Some(rest) = rest.first_chunk_mut() {
                *rest = self.rest.to_be_bytes();
            }
        }
    }
}

/// Fields of an outer header that differ between packets of one tunnel route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GtpuFields {
    /// Type of service or traffic class.
    pub(crate) tos: u8,
    /// TEID of the far end.
    pub(crate) teid: u32,
    /// PDU session container.
    pub(crate) container: Container,
}

impl GtpuFields {
    /// Returns the length of the IP, UDP and GTP-U headers in octets.
    #[inline]
    pub(crate) const fn length(&self, endpoints: Endpoints) -> usize {
        endpoints.ip_length() + Udp::LENGTH + GtpU::LENGTH + self.container.length as usize
    }
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Headers<I: Header> {
    ethernet: Ethernet,
    ip: I,
    udp: Udp,
    gtpu: GtpU,
}

/// Route to the far end of a tunnel, with header templates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelRoute {
    /// Local and remote address.
    pub(crate) endpoints: Endpoints,
    /// Next hop.
    pub(crate) hop: NextHop,
    /// True for IPv4 with the usual source port: the template has all headers.
    is_plain: bool,
    source_port: SourcePort,
    /// IPv4 only: header template of an empty packet and the partial sum of its IP header.
    four: Headers<Ipv4>,
    sum: Sum,
}

impl TunnelRoute {
    /// Creates the route to an endpoint by a next hop.
    pub(crate) fn new(endpoints: Endpoints, hop: NextHop, source_port: SourcePort) -> Self {
        let (local, remote) = match endpoints {
            Endpoints::V4(local, remote) => (local, remote),
            Endpoints::V6(..) => (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED),
        };
        let mut ip = ipv4(local, remote, 0, 0, IpProtocol::UDP);
        (ip.total_length, ip.header_checksum) = (U16::new(0), U16::new(0));
        let four = Headers { ethernet: ethernet(&hop, EtherType::IPV4), ip, udp: UDP, gtpu: GTPU };
        let is_v4 = matches!(endpoints, Endpoints::V4(..));
        let is_plain = is_v4 && source_port == SourcePort::Registered;
        let sum = Sum::new().add_bytes(ip.as_bytes());
        Self { endpoints, hop, is_plain, source_port, four, sum }
    }
}

/// First of the ports that flows have (RFC 6335 clause 6).
const FIRST_FLOW_PORT: u16 = 0xc000;
/// Maximum number of extension headers that are skipped in front of an inner packet.
const MAX_EXTENSIONS: usize = 4;

/// Returns the UDP source port of the flow of the packet in a GTP-U message: routers and receivers
/// that hash ports spread flows by it, and keep each in order.
#[inline(never)]
fn flow_port(message: &[u8]) -> u16 {
    const OPTIONS: usize = 4;
    let Some(gtpu) = wire::header::<GtpU>(message, 0) else { return GtpU::PORT };
    let mut inner = GtpU::LENGTH;
    if gtpu.flags & 7 != 0 {
        inner += OPTIONS;
        let mut next = if gtpu.flags & GtpU::EXTENSION == 0 { 0 } else { at(message, inner - 1) };
        for _ in 0..MAX_EXTENSIONS {
            let length = usize::from(at(message, inner)) * 4;
            if next == 0 || length == 0 {
                break;
            }
            inner += length;
            next = at(message, inner - 1);
        }
    }
    let packet = inner_packet::read(message.get(inner..).unwrap_or_default());
    packet.map_or(GtpU::PORT, |packet| FIRST_FLOW_PORT | (packet.flow_hash() >> 18) as u16)
}

fn at(message: &[u8], offset: usize) -> u8 {
    message.get(offset).copied().unwrap_or(0)
}

/// UDP header template between GTP-U ports, without a checksum.
const UDP: Udp = Udp {
    source_port: U16::new(GtpU::PORT),
    destination_port: U16::new(GtpU::PORT),
    length: U16::new(0),
    checksum: U16::new(0),
};
/// G-PDU header template without an optional part.
const GTPU: GtpU = GtpU {
    flags: GtpU::VERSION_1,
    message_type: GtpMessageType::G_PDU,
    length: U16::new(0),
    teid: U32::new(0),
};

/// Encapsulates the `length` octets that begin `at` octets into a packet; everything before and
/// behind them is removed. Returns false if there is no room; then only the window has changed.
#[inline(always)]
pub(crate) fn encapsulate(
    packet: &mut Packet,
    at: usize,
    length: usize,
    route: &TunnelRoute,
    outer: &GtpuFields,
) -> bool {
    let carried = length + usize::from(outer.container.length);
    let front = Ethernet::LENGTH + outer.length(route.endpoints);
    if !cut(packet, at, length, front) {
        return false;
    }
    let extension = if outer.container.length == 0 { 0 } else { GtpU::EXTENSION };
    let gtpu = GtpU {
        flags: GtpU::VERSION_1 | extension,
        length: U16::new(carried as u16),
        teid: U32::new(outer.teid),
        ..GTPU
    };
    let bytes = packet.bytes_mut();
    outer.container.write(bytes, front);
    write(bytes, route, outer.tos, gtpu, carried)
}

/// Relays a GTP-U message to another tunnel: header, extension headers and inner packet stay, only
/// the TEID changes. The message begins `at` octets into the packet and is `length` octets long.
#[inline]
pub(crate) fn relay(
    packet: &mut Packet,
    at: usize,
    length: usize,
    route: &TunnelRoute,
    outer: &GtpuFields,
) -> bool {
    let front = Ethernet::LENGTH + route.endpoints.ip_length() + Udp::LENGTH;
    if length < GtpU::LENGTH || !cut(packet, at, length, front) {
        return false;
    }
    let bytes = packet.bytes_mut();
    let Some(gtpu) = wire::header::<GtpU>(bytes, front).copied() else { return false };
    let gtpu = GtpU { teid: U32::new(outer.teid), ..gtpu };
    write(bytes, route, outer.tos, gtpu, length - GtpU::LENGTH)
}

/// Returns true if a header of `front` octets of IP and above fits in front of the `length` octets
/// that begin `at` octets into a packet. Encapsulation does not fail then.
#[inline]
pub(crate) fn has_room(packet: &Packet, at: usize, length: usize, front: usize) -> bool {
    at + packet.headroom() >= Ethernet::LENGTH + front
        && Ipv6::LENGTH + front + length <= usize::from(u16::MAX)
}

/// Reduces a packet to `front` free octets and the `length` octets that begin at `at`.
// In the path of every forwarded packet.
#[inline(always)]
pub(crate) fn cut(packet: &mut Packet, at: usize, length: usize, front: usize) -> bool {
    // A partial checksum that began in the removed part goes with it.
    if let Some(partial) = packet.partial_checksum() {
        finish_checksum(packet, usize::from(partial.start) < at);
    }
    if packet.len() > at + length && !packet.truncate(at + length) {
        return false;
    }
    if at >= front { packet.trim_front(at - front) } else { packet.prepend(front - at).is_some() }
}

#[cold]
fn finish_checksum(packet: &mut Packet, is_outside: bool) {
    if is_outside {
        packet.set_partial_checksum(None);
    } else {
        let _ = packet.complete_checksum(); // a checksum that cannot be completed stays wrong
    }
}

#[inline(always)]
fn write(bytes: &mut [u8], route: &TunnelRoute, tos: u8, gtpu: GtpU, carried: usize) -> bool {
    let datagram = Udp::LENGTH + GtpU::LENGTH + carried;
    if Ipv6::LENGTH + datagram > usize::from(u16::MAX) {
        return false;
    }
    if !route.is_plain {
        return write_other(bytes, route, tos, gtpu, datagram);
    }
    write4(bytes, route, tos, gtpu, datagram)
}

#[inline(always)]
fn write4(bytes: &mut [u8], route: &TunnelRoute, tos: u8, gtpu: GtpU, datagram: usize) -> bool {
    let Some(headers) = header_mut::<Headers<Ipv4>>(bytes, 0) else { return false };
    // The template first, then the fields that differ.
    *headers = route.four;
    let length = (Ipv4::LENGTH + datagram) as u16;
    headers.ip.type_of_service = tos;
    headers.ip.total_length.set(length);
    let sum = route.sum.add_u16(length).add_u16(tos.into());
    headers.ip.header_checksum.set(sum.checksum());
    headers.udp.length.set(datagram as u16);
    headers.gtpu = gtpu;
    true
}

/// Writes headers over IPv6, or with the source port of the flow.
#[inline(never)]
fn write_other(
    bytes: &mut [u8],
    route: &TunnelRoute,
    tos: u8,
    gtpu: GtpU,
    datagram: usize,
) -> bool {
    let (front, is_written) = match route.endpoints {
        Endpoints::V4(..) => (Ipv4::LENGTH, write4(bytes, route, tos, gtpu, datagram)),
        Endpoints::V6(local, remote) => {
            let Some(headers) = header_mut::<Headers<Ipv6>>(bytes, 0) else { return false };
            let ip = ipv6(local, remote, tos, datagram, IpProtocol::UDP);
            let udp = Udp { length: U16::new(datagram as u16), ..UDP };
            *headers = Headers { ethernet: ethernet(&route.hop, EtherType::IPV6), ip, udp, gtpu };
            (Ipv6::LENGTH, true)
        }
    };
    let at = Ethernet::LENGTH + front;
    if route.source_port == SourcePort::Flow {
        let port = flow_port(bytes.get(at + Udp::LENGTH..).unwrap_or_default());
        if let Some(udp) = header_mut::<Udp>(bytes, at) {
            udp.source_port.set(port);
        }
    }
    if let Endpoints::V6(local, remote) = route.endpoints {
        fill_udp6(bytes, local, remote);
    }
    is_written
}

/// Fills in the checksum of UDP over IPv6 behind an Ethernet header.
pub(crate) fn fill_udp6(bytes: &mut [u8], local: Ipv6Addr, remote: Ipv6Addr) {
    let at = Ethernet::LENGTH + Ipv6::LENGTH;
    let Some(datagram) = bytes.get_mut(at..) else { return };
    let length = datagram.len() as u32;
    let sum = Sum::pseudo_ipv6(&local.octets(), &remote.octets(), IpProtocol::UDP, length);
    let value = checksum::udp(sum.add_bytes(datagram).checksum());
    if let Some(udp) = header_mut::<Udp>(datagram, 0) {
        udp.checksum.set(value);
    }
}

/// Builds the Ethernet header to a next hop.
#[inline]
pub(crate) fn ethernet(hop: &NextHop, ethertype: u16) -> Ethernet {
    Ethernet {
        destination: MacAddress(hop.destination),
        source: MacAddress(hop.source),
        ethertype: U16::new(ethertype),
    }
}

/// Builds an IPv4 header in front of `carried` octets.
#[inline]
pub(crate) fn ipv4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    tos: u8,
    carried: usize,
    protocol: u8,
) -> Ipv4 {
    let length = (Ipv4::LENGTH + carried) as u16;
    let (source, destination) = (source.octets(), destination.octets());
    // The fields as 16-bit words at their offsets.
    let sum = Sum::pseudo_ipv4(source, destination, protocol, length)
        .add_u16(0x4500 | u16::from(tos))
        .add_u16(0x4000)
        .add_u16(u16::from(OUTER_TTL) << 8);
    Ipv4 {
        version_ihl: Ipv4::WITHOUT_OPTIONS,
        type_of_service: tos,
        total_length: U16::new(length),
        identification: U16::new(0),
        flags_fragment_offset: U16::new(0x4000),
        time_to_live: OUTER_TTL,
        protocol,
        header_checksum: U16::new(sum.checksum()),
        source,
        destination,
    }
}

/// Builds an IPv6 header in front of `carried` octets.
#[inline]
pub(crate) fn ipv6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    class: u8,
    carried: usize,
    protocol: u8,
) -> Ipv6 {
    Ipv6 {
        version_class_flow: U32::new(6 << 28 | u32::from(class) << 20),
        payload_length: U16::new(carried as u16),
        next_header: protocol,
        hop_limit: OUTER_TTL,
        source: source.octets(),
        destination: destination.octets(),
    }
}
