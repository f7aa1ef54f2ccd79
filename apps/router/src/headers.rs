//! What is to be known of a packet before it is forwarded.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Ipv6, checksum::Sum, header};

use crate::Cause;

/// The headers of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<A> {
    /// Where it comes from.
    pub source: A,
    /// Where it goes.
    pub destination: A,
    /// Octets of the IP packet.
    pub length: u32,
    /// Of TCP, UDP and SCTP source and destination port; of what has none zeroes.
    pub ports: [u16; 2],
    /// What IP carries.
    pub protocol: u8,
    /// Whether its ports are known, or that it has none: not of a fragment, nor behind IPv6
    /// extension headers.
    pub shows_ports: bool,
    /// Why it is Linux's, wherever it goes; [`Cause::Forwarded`] when it is not.
    pub aside: Cause,
}

impl<A: Copy> Headers<A> {
    /// Those of no packet.
    pub(crate) fn new(nowhere: A) -> Self {
        Self {
            source: nowhere,
            destination: nowhere,
            length: 0,
            ports: [0; 2],
            protocol: 0,
            shows_ports: false,
            aside: Cause::Malformed,
        }
    }
}

/// A packet that can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    Four(Headers<Ipv4Addr>),
    /// IPv6.
    Six(Headers<Ipv6Addr>),
}

/// Reads the headers of a frame that came to a station with this address.
///
/// # Errors
/// Why the frame is Linux's, which is then not even asked where it goes.
#[inline(always)]
pub fn read(frame: &[u8], station: [u8; 6]) -> Result<Network, Cause> {
    let ethernet: &Ethernet = header(frame, 0).ok_or(Cause::Malformed)?;
    if ethernet.destination.0 != station {
        return Err(match ethernet.destination.is_multicast() {
            true => Cause::Group,
            false => Cause::OtherStation,
        });
    }
    match ethernet.ethertype.get() {
        EtherType::IPV4 => ipv4(&frame[Ethernet::LENGTH..]).map(Network::Four),
        EtherType::IPV6 => ipv6(&frame[Ethernet::LENGTH..]).map(Network::Six),
        _ => Err(Cause::EtherType),
    }
}

/// Reads an IPv4 packet; octets behind its end are padding.
#[inline(always)]
fn ipv4(packet: &[u8]) -> Result<Headers<Ipv4Addr>, Cause> {
    let ip: &Ipv4 = header(packet, 0).ok_or(Cause::Malformed)?;
    let (length, behind) = (usize::from(ip.total_length.get()), ip.header_length());
    if ip.version() != 4 || behind < Ipv4::LENGTH || length < behind || length > packet.len() {
        return Err(Cause::Malformed);
    }
    if Sum::new().add_bytes(&packet[..behind]).fold() != 0xffff {
        return Err(Cause::Checksum);
    }
    let aside = if behind > Ipv4::LENGTH {
        Cause::Options
    } else if ip.time_to_live <= 1 {
        Cause::TimeToLive
    } else if matches!(ip.source[0], 0 | 127 | 224..) {
        Cause::Source
    } else {
        Cause::Forwarded
    };
    // Of one packet all fragments go the same way, so those that could show ports do not.
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
        shows_ports,
        aside,
    })
}

/// Reads an IPv6 packet.
#[inline(always)]
fn ipv6(packet: &[u8]) -> Result<Headers<Ipv6Addr>, Cause> {
    let ip: &Ipv6 = header(packet, 0).ok_or(Cause::Malformed)?;
    let length = Ipv6::LENGTH + usize::from(ip.payload_length.get());
    // A hop-by-hop header in no payload is that of a jumbogram (RFC 2675).
    let is_jumbo = length == Ipv6::LENGTH && ip.next_header == IpProtocol::HOP_BY_HOP;
    if ip.version() != 6 || length > packet.len() || is_jumbo {
        return Err(Cause::Malformed);
    }
    let aside = if ip.next_header == IpProtocol::HOP_BY_HOP {
        Cause::HopByHop
    } else if ip.hop_limit <= 1 {
        Cause::TimeToLive
    } else if !is_source6(&ip.source) {
        Cause::Source
    } else {
        Cause::Forwarded
    };
    let (ports, shows_ports) = ports(ip.next_header, packet, Ipv6::LENGTH, length);
    Ok(Headers {
        source: ip.source.into(),
        destination: ip.destination.into(),
        length: length as u32,
        ports,
        protocol: ip.next_header,
        shows_ports,
        aside,
    })
}

/// Whether packets from there may be forwarded: no group, not unspecified, the loopback or a mapped
/// IPv4 address, not of one link (RFC 4291 clause 2.5).
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

/// The ports, and whether all that has ports is seen.
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
        IpProtocol::HOP_BY_HOP
        | IpProtocol::ROUTING
        | IpProtocol::FRAGMENT
        | IpProtocol::AUTHENTICATION
        | IpProtocol::DESTINATION_OPTIONS
        | MOBILITY..=SHIM6 => ([0; 2], false),
        _ => ([0; 2], true),
    }
}

/// The mobility header (RFC 6275), the host identity protocol (RFC 7401) and shim6 (RFC 5533): 135,
/// 139 and 140, with those in between, which carry no ports that count.
const MOBILITY: u8 = 135;
const SHIM6: u8 = 140;

#[cfg(test)]
mod tests;
