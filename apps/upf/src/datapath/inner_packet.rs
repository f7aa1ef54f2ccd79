//! Parses the IP packets of UEs.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::classify::{PacketFields, Ports};
use super::lane_tables::DestinationAddress;
use crate::session::InstanceId;
use fastlane::wire::{EtherType, Fragment, IpProtocol, Ipv4, Ipv6, Ipv6Fragment, Layers, header};
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
pub(crate) fn read(bytes: &[u8]) -> Option<InnerPacket> {
    match bytes.first()? >> 4 {
        4 => four(bytes),
        6 => six(bytes),
        _ => None,
    }
}

/// Parses a usual packet without going through memory: IPv4 without options, or IPv6 without
/// extension headers, and neither a fragment nor IPsec. `None` if [`read`] has to parse the packet.
#[inline(always)]
pub(crate) fn read_usual(bytes: &[u8]) -> Option<InnerPacket> {
    match bytes.first()? >> 4 {
        4 => usual4(bytes),
        6 => usual6(bytes),
        _ => None,
    }
}

/// Header of IPv4 without options, and the ports behind it, if its protocol has them.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Usual4 {
    ip: Ipv4,
    ports: [U16; 2],
}

/// Parses IPv4 by fixed offsets.
#[inline(always)]
fn usual4(bytes: &[u8]) -> Option<InnerPacket> {
    let Usual4 { ip, ports } = header(bytes, 0)?;
    let length = usize::from(ip.total_length.get());
    if ip.version_ihl != Ipv4::WITHOUT_OPTIONS
        || ip.is_fragment()
        || is_ipsec(ip.protocol)
        || length < size_of::<Usual4>()
        || length > bytes.len()
    {
        return None;
    }
    let ports = if has_ports(ip.protocol) { ports.map(U16::get) } else { [0; 2] };
    Some(InnerPacket { ports, ..of_ipv4(ip, length, Ipv4::LENGTH) })
}

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
    Some(InnerPacket { fragment, ports, spi, ..of_ipv4(ip, length, transport) })
}

/// Returns the fields of an IPv4 header. The packet counts as whole and without ports.
#[inline(always)]
fn of_ipv4(ip: &Ipv4, length: usize, transport: usize) -> InnerPacket {
    InnerPacket {
        source: widened(ip.source),
        destination: widened(ip.destination),
        is_v6: false,
        protocol: ip.protocol,
        tos: ip.type_of_service,
        time_to_live: ip.time_to_live,
        fragment: Fragment::None,
        dont_fragment: ip.dont_fragment(),
        identification: u32::from(ip.identification.get()),
        ports: [0; 2],
        spi: None,
        flow_label: 0,
        is_complete: false,
        length: length as u32,
        transport: transport as u16,
    }
}

/// Returns ports and IPsec security parameter index of the header at `at`. `None` if they are cut
/// off: later fragments must not carry them (RFC 1858).
#[inline]
fn transport_of(bytes: &[u8], at: usize, protocol: u8) -> Option<([u16; 2], Option<u32>)> {
    let spi = |at| header::<[u8; 4]>(bytes, at).map(|spi| u32::from_be_bytes(*spi));
    Some(match protocol {
        _ if has_ports(protocol) => (header::<[U16; 2]>(bytes, at)?.map(U16::get), None),
        IpProtocol::ESP => ([0; 2], Some(spi(at)?)),
        IpProtocol::AUTHENTICATION => ([0; 2], Some(spi(at + 4)?)),
        _ => ([0; 2], None),
    })
}

#[inline(always)]
fn has_ports(protocol: u8) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP)
}

#[inline(always)]
fn is_ipsec(protocol: u8) -> bool {
    matches!(protocol, IpProtocol::ESP | IpProtocol::AUTHENTICATION)
}

#[inline(always)]
fn widened(address: [u8; 4]) -> u128 {
    u128::from(u32::from_be_bytes(address)) << 96
}

fn six(bytes: &[u8]) -> Option<InnerPacket> {
    let inner = without_extensions(bytes)?;
    let bytes = &bytes[..inner.length as usize];
    let inner = match inner.protocol {
        IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6 => inner,
        _ => inner.walked(bytes)?,
    };
    if inner.fragment == Fragment::Later {
        return Some(inner);
    }
    let (ports, spi) = transport_of(bytes, inner.transport.into(), inner.protocol)?;
    Some(InnerPacket { ports, spi, ..inner })
}

/// Parses IPv6 by fixed offsets.
#[inline(always)]
fn usual6(bytes: &[u8]) -> Option<InnerPacket> {
    let inner = without_extensions(bytes)?;
    let ports = match inner.protocol {
        IpProtocol::TCP | IpProtocol::UDP => {
            let bytes = bytes.get(..inner.length as usize)?;
            header::<[U16; 2]>(bytes, Ipv6::LENGTH)?.map(U16::get)
        }
        IpProtocol::ICMPV6 => [0; 2],
        _ => return None,
    };
    Some(InnerPacket { ports, ..inner })
}

/// Parses an IPv6 header. What follows it counts as the transport header.
#[inline(always)]
fn without_extensions(bytes: &[u8]) -> Option<InnerPacket> {
    let ip: &Ipv6 = header(bytes, 0)?;
    let length = Ipv6::LENGTH + usize::from(ip.payload_length.get());
    if length > bytes.len() {
        return None;
    }
    Some(InnerPacket {
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
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets() -> impl Strategy<Value = Vec<u8>> {
        let first = prop_oneof![4 => Just(0x45_u8), 3 => Just(0x60), 1 => any::<u8>()];
        let protocol = prop_oneof![
            proptest::sample::select(vec![6_u8, 17, 132, 50, 51, 1, 58, 0, 44]),
            any::<u8>(),
        ];
        let fragment = prop_oneof![Just(0_u16), Just(0x4000), Just(0x2000), any::<u16>()];
        let lengths = (prop_oneof![3 => Just(0_i32), 1 => -30..30_i32], 20..90_usize);
        let rest = proptest::array::uniform32(any::<u8>());
        (first, protocol, fragment, lengths, rest).prop_map(
            |(first, protocol, fragment, (lie, length), rest)| {
                let mut packet = rest.repeat(3);
                packet.truncate(length);
                packet[0] = first;
                if first >> 4 == 6 {
                    let payload = (length as i32 - 40 + lie).max(0) as u16;
                    packet[4..6].copy_from_slice(&payload.to_be_bytes());
                    packet[6] = protocol;
                } else {
                    let total = (length as i32 + lie) as u16;
                    packet[2..4].copy_from_slice(&total.to_be_bytes());
                    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
                    packet[9] = protocol;
                }
                packet
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 20_000, failure_persistence: None, ..Default::default()
        })]
        #[test]
        fn usual_packets_are_parsed_as_all_packets_are(packet in packets()) {
            if let Some(usual) = read_usual(&packet) {
                prop_assert_eq!(Some(usual), read(&packet));
            }
        }
    }

    #[test]
    fn udp_takes_the_short_way() {
        let mut four = [0; 28];
        (four[0], four[3], four[9]) = (0x45, 28, 17);
        assert!(read_usual(&four).is_some());
        assert!(read_usual(&four[..27]).is_none() && read(&four[..27]).is_none());
        let mut six = [0; 48];
        (six[0], six[5], six[6]) = (0x60, 8, 17);
        assert!(read_usual(&six).is_some());
        assert!(read_usual(&six[..47]).is_none() && read(&six[..47]).is_none());
    }
}
