//! TCP segments and UDP datagrams, whose port in the transport header is translated.
//!
//! Most are in packets that this module reads and translates in one piece: IPv4 without options.

use fastlane::wire::checksum::{self, Difference};
use fastlane::wire::{IpProtocol, Ipv4, Tcp, Udp, header, header_mut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::side::Side;
use crate::rules::layout::nat_tables::Protocol;

/// Part of a packet that its mapping depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Protocol of the mapping.
    pub(super) protocol: Protocol,
    /// Port or identifier of the side.
    pub(super) port: u16,
    /// Control bits of a TCP segment.
    pub(super) control: u8,
    /// True if a TCP segment has data.
    pub(super) has_data: bool,
}

/// UDP datagram in a packet without IP options.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct UdpPacket {
    ip: Ipv4,
    udp: Udp,
}

/// TCP segment in a packet without IP options.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TcpPacket {
    ip: Ipv4,
    tcp: Tcp,
}

/// Address and port that a packet is given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoint {
    pub(super) address: u32,
    pub(super) port: u16,
}

impl Segment {
    /// Creates the part of a UDP datagram, or of an ICMP query or error.
    #[inline(always)]
    pub(super) const fn new(protocol: Protocol, port: u16) -> Self {
        Self { protocol, port, control: 0, has_data: false }
    }

    /// Creates the part of a TCP segment with `length` octets from its header on.
    #[inline(always)]
    pub(super) fn of_tcp(tcp: &Tcp, length: usize, side: Side) -> Self {
        let port = side.of(tcp.source_port, tcp.destination_port).get();
        let has_data = length > tcp.header_length();
        Self { control: tcp.control(), has_data, ..Self::new(Protocol::Tcp, port) }
    }

    /// Reads the IPv4 packet at the start of `bytes`. `None` if it has options, is a later
    /// fragment, is neither TCP nor UDP, or is malformed.
    #[inline(always)]
    pub(super) fn read_plain(bytes: &[u8], side: Side) -> Option<Self> {
        let UdpPacket { ip, udp } = header(bytes, 0)?;
        let total = usize::from(ip.total_length.get());
        if ip.version_ihl != Ipv4::WITHOUT_OPTIONS
            || total > bytes.len()
            || ip.fragment_offset() != 0
        {
            return None;
        }
        match ip.protocol {
            IpProtocol::UDP if total >= size_of::<UdpPacket>() => {
                Some(Self::new(Protocol::Udp, side.of(udp.source_port, udp.destination_port).get()))
            }
            IpProtocol::TCP if total >= size_of::<TcpPacket>() => {
                let TcpPacket { tcp, .. } = header(bytes, 0)?;
                Some(Self::of_tcp(tcp, total - Ipv4::LENGTH, side))
            }
            _ => None,
        }
    }

    /// Replaces address and port of a side of the packet from which
    /// [`read_plain`](Self::read_plain) has read this, with both checksums.
    #[inline(always)]
    pub(super) fn write_plain(&self, bytes: &mut [u8], side: Side, new: Endpoint) {
        let Some(UdpPacket { ip, .. }) = header(bytes, 0) else { return };
        let address = Difference::of_u32(side.address_of(ip), new.address);
        let both = address.and(Difference::of_u16(self.port, new.port));
        let ip = match self.protocol {
            Protocol::Udp => {
                let Some(UdpPacket { ip, udp }) = header_mut(bytes, 0) else { return };
                write_udp(udp, side, new.port, both);
                ip
            }
            _ => {
                let Some(TcpPacket { ip, tcp }) = header_mut(bytes, 0) else { return };
                write_tcp(tcp, side, new.port, both);
                ip
            }
        };
        ip.header_checksum.set(address.update(ip.header_checksum.get()));
        *side.address_mut(ip) = new.address.to_be_bytes();
    }
}

/// Replaces the port of a side of a UDP header; `change` is that of all fields under its checksum.
#[inline(always)]
pub(super) fn write_udp(udp: &mut Udp, side: Side, port: u16, change: Difference) {
    side.of(&mut udp.source_port, &mut udp.destination_port).set(port);
    if udp.checksum.get() != 0 {
        udp.checksum.set(checksum::udp(change.update(udp.checksum.get())));
    }
}

/// Replaces the port of a side of a TCP header; `change` is that of all fields under its checksum.
#[inline(always)]
pub(super) fn write_tcp(tcp: &mut Tcp, side: Side, port: u16, change: Difference) {
    side.of(&mut tcp.source_port, &mut tcp.destination_port).set(port);
    tcp.checksum.set(change.update(tcp.checksum.get()));
}
