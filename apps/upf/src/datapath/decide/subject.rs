//! What of a packet decides.

use std::net::IpAddr;

use crate::session::InstanceId;

/// What is known of a packet when it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The tunnel of ours that it came by; none: it came as it is.
    pub tunnel: Option<u32>,
    /// The network instance that it arrived in.
    pub instance: InstanceId,
    /// The QoS flow that its PDU session container names.
    pub qfi: Option<u8>,
    /// 4 or 6: the version of the inner IP header.
    pub family: u8,
    /// Its source: the first bit in the most significant one, an IPv4 address in the upper 32.
    pub source: u128,
    /// Its destination, likewise.
    pub destination: u128,
    /// The innermost protocol: what follows extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Of its transport header.
    pub ports: Ports,
    /// Security parameter index of ESP or AH.
    pub spi: Option<u32>,
    /// Of IPv6.
    pub flow_label: u32,
    /// Octets of the inner IP packet, its header included.
    pub length: u32,
}

/// Ports of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Source and destination; of a later fragment those of the first one, if it was seen.
    Known(u16, u16),
    /// The protocol has none.
    None,
    /// It is a later fragment, and the first one was not seen: nothing behind its IP header is
    /// known.
    Unknown,
}

impl Subject {
    /// The family and bits of an address, as they are here.
    #[must_use]
    pub fn address(address: IpAddr) -> (u8, u128) {
        match address {
            IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (6, address.to_bits()),
        }
    }
}

impl Subject {
    /// Whether it can be a Router Solicitation, whose source is link-local or none at all (RFC 4861
    /// clause 4.1).
    #[inline]
    #[must_use]
    pub const fn is_solicitation(&self) -> bool {
        let is_local = self.source >> 118 == 0xFE80 >> 6 || self.source == 0;
        self.family == 6 && self.protocol == 58 && is_local
    }

    /// Whether it can be a Router Advertisement: to all nodes, or to a link-local address.
    #[inline]
    #[must_use]
    pub const fn is_advertisement(&self) -> bool {
        let to = self.destination;
        let is_local = to >> 118 == 0xFE80 >> 6 || to >> 120 == 0xFF;
        self.family == 6 && self.protocol == 58 && is_local
    }
}
