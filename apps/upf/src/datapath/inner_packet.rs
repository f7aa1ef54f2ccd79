//! Parses the IP packets of UEs.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::classify::{PacketFields, Ports};
use super::lane_tables::DestinationAddress;
use crate::session::InstanceId;
use fastlane::wire::{EtherType, Fragment, IpProtocol, Ipv4, Ipv6, Ipv6Fragment, Layers, header};

/// Parsed fields of a UE packet. Offsets are in octets from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InnerPacket {
    /// Source: first bit most significant, an IPv4 address in the upper 32 bits.
    pub(crate) source: u128,
    /// Destination, in the same form.
    pub(crate) destination: u128,
    /// True for IPv6.
    pub(crate) is_v6: bool,
    /// Protocol behind extension headers.
    pub(crate) protocol: u8,
    /// Type of service, or traffic class.
    pub(crate) tos: u8,
    /// TTL or hop limit.
    pub(crate) time_to_live: u8,
    /// Position in a fragmented packet.
    pub(crate) fragment: Fragment,
    /// True if routers must not fragment it; always true for IPv6.
    pub(crate) dont_fragment: bool,
    /// Identification, equal in all fragments of a packet.
    pub(crate) identification: u32,
    /// Source and destination port; zeros if it has none.
    pub(crate) ports: [u16; 2],
    /// Security parameter index of IPsec, if it has one.
    pub(crate) spi: Option<u32>,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
    /// True for a later fragment whose first fragment is known.
    pub(crate) is_complete: bool,
    /// Length in octets.
    pub(crate) length: u32,
    /// Offset of the transport header.
    pub(crate) transport: u16,
}

/// Parses the packet at the start of `bytes`; what follows it is padding. `None` if it is not IP,
/// is truncated or has invalid fields.
#[inline(always)]
pub(crate) fn read(bytes: &[u8]) -> Option<InnerPacket> {
    match bytes.first()? >> 4 {
        4 => four(bytes),
        6 => six(bytes),
        _ => None,
    }
}

#[inline(always)]
fn four(bytes: &[u8]) -> Option<InnerPacket> {
    let ip: &Ipv4 = header(bytes, 0)?;
    let (length, transport) = (usize::from(ip.total_length.get()), ip.header_length());
    if transport < Ipv4::LENGTH || length < transport || length > bytes.len() {
        return None;
    }
    let fragment = match (ip.fragment_offset(), ip.more_fragments()) {
        (0, false) => Fragment::None,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    };
    let (ports, spi) = match fragment {
        Fragment::Later => ([0; 2], None),
        _ => transport_of(&bytes[..length], transport, ip.protocol)?,
    };
    Some(InnerPacket {
        source: widened(ip.source),
        destination: widened(ip.destination),
        is_v6: false,
        protocol: ip.protocol,
        tos: ip.type_of_service,
        time_to_live: ip.time_to_live,
        fragment,
        dont_fragment: ip.dont_fragment(),
        identification: u32::from(ip.identification.get()),
        ports,
        spi,
        flow_label: 0,
        is_complete: false,
        length: length as u32,
        transport: transport as u16,
    })
}

/// Returns ports and IPsec security parameter index of the header at `at`. `None` if they are cut
/// off: later fragments must not carry them (RFC 1858).
#[inline(always)]
fn transport_of(bytes: &[u8], at: usize, protocol: u8) -> Option<([u16; 2], Option<u32>)> {
    let spi = |at| header::<[u8; 4]>(bytes, at).map(|spi| u32::from_be_bytes(*spi));
    Some(match protocol {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP => {
            let [a, b, c, d] = *header::<[u8; 4]>(bytes, at)?;
            ([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])], None)
        }
        IpProtocol::ESP => ([0; 2], Some(spi(at)?)),
        IpProtocol::AUTHENTICATION => ([0; 2], Some(spi(at + 4)?)),
        _ => ([0; 2], None),
    })
}

#[inline(always)]
fn widened(address: [u8; 4]) -> u128 {
    u128::from(u32::from_be_bytes(address)) << 96
}

#[inline(always)]
fn six(bytes: &[u8]) -> Option<InnerPacket> {
    let ip: &Ipv6 = header(bytes, 0)?;
    let length = Ipv6::LENGTH + usize::from(ip.payload_length.get());
    if length > bytes.len() {
        return None;
    }
    let inner = InnerPacket {
        source: u128::from_be_bytes(ip.source),
        destination: u128::from_be_bytes(ip.destination),
        is_v6: true,
        protocol: ip.next_header,
        tos: ip.traffic_class(),
        time_to_live: ip.hop_limit,
        fragment: Fragment::None,
        dont_fragment: true,
        identification: 0,
        ports: [0; 2],
        spi: None,
        flow_label: ip.flow_label(),
        is_complete: false,
        length: length as u32,
        transport: Ipv6::LENGTH as u16,
    };
    let bytes = &bytes[..length];
    let inner = match ip.next_header {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6 => inner,
        _ => inner.walked(bytes)?,
    };
    if inner.fragment == Fragment::Later {
        return Some(inner);
    }
    let (ports, spi) = transport_of(bytes, inner.transport.into(), inner.protocol)?;
    Some(InnerPacket { ports, spi, ..inner })
}

impl InnerPacket {
    /// Skips up to eight extension headers.
    #[inline(never)]
    fn walked(mut self, bytes: &[u8]) -> Option<Self> {
        let layers = Layers::parse_network(bytes, 0, EtherType::IPV6).ok()?;
        (self.protocol, self.transport) = (layers.protocol, layers.transport);
        self.fragment = layers.fragment;
        if self.fragment != Fragment::None {
            // The fragment header is the last one skipped, or one before it.
            let ip: &Ipv6 = header(bytes, 0)?;
            let (mut at, mut next) = (Ipv6::LENGTH, ip.next_header);
            while next != IpProtocol::FRAGMENT && at < usize::from(self.transport) {
                let units = usize::from(*bytes.get(at + 1)?);
                let length = match next {
                    IpProtocol::AUTHENTICATION => (units + 2) * 4,
                    _ => (units + 1) * 8,
                };
                next = *bytes.get(at)?;
                at += length;
            }
            self.identification = header::<Ipv6Fragment>(bytes, at)?.identification.get();
        }
        Some(self)
    }

    /// Returns the destination.
    #[inline]
    pub(crate) fn to(&self) -> DestinationAddress {
        match self.is_v6 {
            false => DestinationAddress::V4(Ipv4Addr::from_bits((self.destination >> 96) as u32)),
            true => DestinationAddress::V6(Ipv6Addr::from_bits(self.destination)),
        }
    }

    /// Returns the fields that PDRs match, with the ingress.
    #[inline(always)]
    pub(crate) fn fields(
        &self,
        tunnel: Option<u32>,
        instance: InstanceId,
        qfi: Option<u8>,
    ) -> PacketFields {
        let ports = match self.protocol {
            _ if self.fragment == Fragment::Later && !self.is_complete => Ports::Unknown,
            IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP => {
                Ports::Known(self.ports[0], self.ports[1])
            }
            _ => Ports::None,
        };
        PacketFields {
            tunnel,
            instance,
            qfi,
            family: if self.is_v6 { 6 } else { 4 },
            source: self.source,
            destination: self.destination,
            protocol: self.protocol,
            tos: self.tos,
            ports,
            spi: self.spi,
            flow_label: self.flow_label,
            length: self.length,
        }
    }

    /// Returns a hash of the flow for multipath; equal in all fragments.
    // A call would keep the whole packet in memory.
    #[inline(always)]
    pub(crate) fn flow_hash(&self) -> u32 {
        let upper = |address: u128| (address >> 64) as u64;
        let mut mixed = upper(self.source) | upper(self.destination) >> 32;
        if self.is_v6 {
            mixed = upper(self.source) ^ upper(self.destination).rotate_left(32);
            for (address, turn) in [(self.source, 23), (self.destination, 46)] {
                mixed ^= (address as u64).rotate_left(turn);
            }
        }
        if self.fragment == Fragment::None {
            let [source, destination] = self.ports;
            mixed ^= u64::from(source) << 16 | u64::from(destination);
        }
        (mixed ^ u64::from(self.protocol)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
            as u32
    }
}
