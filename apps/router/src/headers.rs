//! Header parsing and the checks before a route lookup.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::checksum::Sum;
use fastlane::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, Layers, Vlan, header};

use crate::Outcome;

/// Header fields of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Length of the IP packet in bytes.
    pub length: u32,
    /// Source and destination port of TCP, UDP and SCTP, else zeros.
    pub ports: [u16; 2],
    /// IP protocol, behind the extension headers of IPv6.
    pub protocol: u8,
    /// True if the protocol cannot be found behind the extension headers.
    pub hides_protocol: bool,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// True if the ports are known or the protocol has none. False for fragments and after IPv6
    /// extension headers.
    pub shows_ports: bool,
    /// Reason to pass the packet to Linux regardless of its route, or [`Outcome::Forwarded`].
    pub fallback: Outcome,
}

impl<A: Copy> Headers<A> {
    /// Creates a placeholder.
    pub(crate) fn new(unset: A) -> Self {
        Self {
            source: unset,
            destination: unset,
            length: 0,
            ports: [0; 2],
            protocol: 0,
            hides_protocol: false,
            traffic_class: 0,
            shows_ports: false,
            fallback: Outcome::Malformed,
        }
    }
}

/// A parsed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// An IPv4 packet.
    Four(Headers<Ipv4Addr>),
    /// An IPv6 packet.
    Six(Headers<Ipv6Addr>),
}

/// Parses a frame that arrived on an interface with this Ethernet address.
///
/// # Errors
/// Why the frame is Linux's, which is then not even asked where it goes.
#[inline(always)]
pub fn read(frame: &[u8], station: [u8; 6]) -> Result<Network, Outcome> {
    let ethernet: &Ethernet = header(frame, 0).ok_or(Outcome::Malformed)?;
    if ethernet.destination.0 != station {
        return Err(match ethernet.destination.is_multicast() {
            true => Outcome::Group,
            false => Outcome::OtherStation,
        });
    }
    match ethernet.ethertype.get() {
        EtherType::IPV4 => ipv4(&frame[Ethernet::LENGTH..]).map(Network::Four),
        EtherType::IPV6 => ipv6(&frame[Ethernet::LENGTH..]).map(Network::Six),
        _ => Err(Outcome::EtherType),
    }
}

/// Parses the packet behind a priority tag (VLAN 0 of IEEE 802.1Q). Linux removes the tag and
/// forwards the packet, so an access list decides about it.
///
/// # Errors
/// Why the frame is Linux's; [`Outcome::AclNoPorts`] if it must not be, as there is another tag.
#[cold]
pub fn read_tagged(frame: &[u8]) -> Result<Network, Outcome> {
    let ethernet: &Ethernet = header(frame, 0).ok_or(Outcome::Malformed)?;
    let tag: &Vlan = header(frame, Ethernet::LENGTH).ok_or(Outcome::EtherType)?;
    if !EtherType::is_vlan(ethernet.ethertype.get()) || tag.id() != 0 {
        return Err(Outcome::EtherType);
    }
    let (packet, fallback) = (&frame[Ethernet::LENGTH + Vlan::LENGTH..], Outcome::EtherType);
    match tag.ethertype.get() {
        EtherType::IPV4 => ipv4(packet).map(|it| Network::Four(Headers { fallback, ..it })),
        EtherType::IPV6 => ipv6(packet).map(|it| Network::Six(Headers { fallback, ..it })),
        ethertype if EtherType::is_vlan(ethertype) => Err(Outcome::AclNoPorts),
        _ => Err(Outcome::EtherType),
    }
}

/// Parses an IPv4 packet; bytes after its end are padding.
#[inline(always)]
fn ipv4(packet: &[u8]) -> Result<Headers<Ipv4Addr>, Outcome> {
    let ip: &Ipv4 = header(packet, 0).ok_or(Outcome::Malformed)?;
    let (length, behind) = (usize::from(ip.total_length.get()), ip.header_length());
    if ip.version() != 4 || behind < Ipv4::LENGTH || length < behind || length > packet.len() {
        return Err(Outcome::Malformed);
    }
    if header_sum(&packet[..behind]).fold() != 0xffff {
        return Err(Outcome::Checksum);
    }
    let fallback = if behind > Ipv4::LENGTH {
        Outcome::Options
    } else if ip.time_to_live <= 1 {
        Outcome::TimeToLive
    } else if matches!(ip.source[0], 0 | 127 | 224..) {
        Outcome::Source
    } else {
        Outcome::Forwarded
    };
    // All fragments of a packet take the same path, so even the first one shows no ports.
    let (ports, shows_ports) = match ip.fragment_offset() == 0 && !ip.more_fragments() {
        true => ports(ip.protocol, packet, behind, length),
        false => ([0; 2], false),
    };
    Ok(Headers {
        source: ip.source.into(),
        destination: ip.destination.into(),
        length: length as u32,
        ports,
        protocol: ip.protocol,
        hides_protocol: false,
        traffic_class: ip.type_of_service,
        shows_ports,
        fallback,
    })
}

/// Returns the sum of an IPv4 header with its options, of which most packets have none.
#[inline(always)]
fn header_sum(header: &[u8]) -> Sum {
    match header.split_first_chunk::<{ Ipv4::LENGTH }>() {
        Some((fixed, [])) => Sum::new().add_header(fixed),
        _ => Sum::new().add_bytes(header),
    }
}

/// Parses an IPv6 packet.
#[inline(always)]
fn ipv6(packet: &[u8]) -> Result<Headers<Ipv6Addr>, Outcome> {
    let ip: &Ipv6 = header(packet, 0).ok_or(Outcome::Malformed)?;
    let length = Ipv6::LENGTH + usize::from(ip.payload_length.get());
    if ip.version() != 6 || length > packet.len() {
        return Err(Outcome::Malformed);
    }
    // A hop-by-hop header in no payload is that of a jumbogram (RFC 2675). Linux takes its length
    // from the frame, even if the header has no length for it.
    let is_jumbo = length == Ipv6::LENGTH && ip.next_header == IpProtocol::HOP_BY_HOP;
    let fallback = if is_jumbo {
        Outcome::Malformed
    } else if ip.next_header == IpProtocol::HOP_BY_HOP {
        Outcome::HopByHop
    } else if ip.hop_limit <= 1 {
        Outcome::TimeToLive
    } else if !is_source6(&ip.source) {
        Outcome::Source
    } else {
        Outcome::Forwarded
    };
    let (ports, shows_ports) = ports(ip.next_header, packet, Ipv6::LENGTH, length);
    let protocol = match IpProtocol::is_ipv6_extension(ip.next_header) {
        false => Some(ip.next_header),
        true => upper_protocol(&packet[..length]),
    };
    Ok(Headers {
        source: ip.source.into(),
        destination: ip.destination.into(),
        length: length as u32,
        ports,
        protocol: protocol.unwrap_or(ip.next_header),
        hides_protocol: protocol.is_none(),
        traffic_class: (ip.version_class_flow.get() >> 20) as u8,
        shows_ports,
        fallback,
    })
}

/// Returns the protocol behind the extension headers of an IPv6 packet; `None` if it cannot be
/// found: a header is cut off or one too many, or it is in an earlier fragment.
#[cold]
fn upper_protocol(packet: &[u8]) -> Option<u8> {
    let protocol = Layers::parse_ip(packet, 0).ok()?.protocol;
    (!IpProtocol::is_ipv6_extension(protocol)).then_some(protocol)
}

/// Returns true if packets from `source` may be forwarded: it is not multicast, unspecified,
/// loopback, IPv4-mapped or link-local (RFC 4291, 2.5).
#[inline(always)]
fn is_source6(source: &[u8; 16]) -> bool {
    match source[0] {
        0 => {
            let upper = u64::from_be_bytes(source[..8].try_into().unwrap_or_default());
            let lower = u64::from_be_bytes(source[8..].try_into().unwrap_or_default());
            upper != 0 || (lower > 1 && lower >> 32 != 0xffff)
        }
        0xfe => source[1] & 0xc0 != 0x80,
        0xff => false,
        _ => true,
    }
}

/// Returns the ports, and true if the protocol's ports are known or it has none.
#[inline(always)]
fn ports(protocol: u8, packet: &[u8], at: usize, end: usize) -> ([u16; 2], bool) {
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP => match packet[..end].get(at..at + 4)
        {
            Some([a, b, c, d]) => {
                ([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])], true)
            }
            _ => ([0; 2], false),
        },
        MOBILITY..=SHIM6 => ([0; 2], false),
        other => ([0; 2], !IpProtocol::is_ipv6_extension(other)),
    }
}

/// Mobility header (RFC 6275), Host Identity Protocol (RFC 7401) and Shim6 (RFC 5533): 135, 139 and
/// 140, and the numbers between, which have no ports.
const MOBILITY: u8 = 135;
const SHIM6: u8 = 140;

#[cfg(test)]
mod tests;
