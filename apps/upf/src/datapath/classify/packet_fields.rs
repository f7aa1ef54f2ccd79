//! Packet fields that PDRs match.

use std::net::IpAddr;

use crate::session::InstanceId;

/// Fields of a packet that PDRs match, with its ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFields {
    /// Local TEID; `None`: it arrived without a tunnel.
    pub tunnel: Option<u32>,
    /// Network instance of the ingress.
    pub instance: InstanceId,
    /// QoS flow of its PDU session container.
    pub qfi: Option<u8>,
    /// IP version of the inner packet, 4 or 6.
    pub family: u8,
    /// Source: first bit most significant, an IPv4 address in the upper 32 bits.
    pub source: u128,
    /// Destination, in the same form.
    pub destination: u128,
    /// Protocol behind extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Ports of the transport header.
    pub ports: Ports,
    /// Security parameter index of ESP or AH.
    pub spi: Option<u32>,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Length of the inner IP packet with its header, in octets.
    pub length: u32,
}

/// Ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Source and destination port; of a later fragment those of the first one, if it was seen.
    Known(u16, u16),
    /// The protocol has no ports.
    None,
    /// A later fragment whose first one was not seen: nothing behind its IP header is known.
    Unknown,
}

impl PacketFields {
    /// Returns the family and bits of an address in the form of this struct.
    #[must_use]
    pub fn address(address: IpAddr) -> (u8, u128) {
        match address {
            IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (6, address.to_bits()),
        }
    }
}

impl PacketFields {
    /// Returns true for a possible Router Solicitation, whose source is link-local or unspecified
    /// (RFC 4861 clause 4.1).
    #[inline]
    #[must_use]
    pub const fn is_solicitation(&self) -> bool {
        let is_local = self.source >> 118 == 0xFE80 >> 6 || self.source == 0;
        self.family == 6 && self.protocol == 58 && is_local
    }

    /// Returns true for a possible Router Advertisement: to all nodes or a link-local address.
    #[inline]
    #[must_use]
    pub const fn is_advertisement(&self) -> bool {
        let to = self.destination;
        let is_local = to >> 118 == 0xFE80 >> 6 || to >> 120 == 0xFF;
        self.family == 6 && self.protocol == 58 && is_local
    }
}
