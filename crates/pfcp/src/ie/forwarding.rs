//! Forwarding: destinations, outer headers and marking, elements of the FAR.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Ie, Octets, put_address, put_string8};
use crate::{Cause, IeType};

small! {
    /// Destination Interface: side to which packets are sent (TS 29.244 clause 8.2.24).
    DestinationInterface & 0x0f = DESTINATION_INTERFACE {
        /// Access side.
        ACCESS = 0,
        /// Core side.
        CORE = 1,
        /// SGi-LAN or N6-LAN.
        SGI_LAN = 2,
        /// CP function.
        CP_FUNCTION = 3,
        /// Lawful interception function.
        LI_FUNCTION = 4,
        /// 5G VN internal.
        VN_INTERNAL = 5,
    }
}

/// Outer Header Creation (clause 8.2.56). The description determines which fields are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OuterHeaderCreation {
    /// Description: octet 5 in the upper 8 bits, octet 6 in the lower. See the constants.
    pub description: u16,
    /// Tunnel endpoint identifier, for GTP-U.
    pub teid: Option<u32>,
    /// IPv4 address of the peer.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the peer.
    pub v6: Option<Ipv6Addr>,
    /// UDP port of the peer, for UDP without GTP-U.
    pub port: Option<u16>,
    /// Customer VLAN tag.
    pub c_tag: Option<[u8; 3]>,
    /// Service VLAN tag.
    pub s_tag: Option<[u8; 3]>,
}

impl OuterHeaderCreation {
    /// Description: GTP-U over UDP over IPv4.
    pub const GTP_U_UDP_IPV4: u16 = 0x0100;
    /// Description: GTP-U over UDP over IPv6.
    pub const GTP_U_UDP_IPV6: u16 = 0x0200;
    /// Description: UDP over IPv4.
    pub const UDP_IPV4: u16 = 0x0400;
    /// Description: UDP over IPv6.
    pub const UDP_IPV6: u16 = 0x0800;
    /// Description: IPv4 header.
    pub const IPV4: u16 = 0x1000;
    /// Description: IPv6 header.
    pub const IPV6: u16 = 0x2000;
    /// Description: customer VLAN tag.
    pub const C_TAG: u16 = 0x4000;
    /// Description: service VLAN tag.
    pub const S_TAG: u16 = 0x8000;
    /// Description: the tunnel is on N19.
    pub const N19: u16 = 0x0001;
    /// Description: the tunnel is on N6.
    pub const N6: u16 = 0x0002;
    /// Description: low layer SSM and C-TEID.
    pub const SSM: u16 = 0x0004;
    const GTP_U: u16 = Self::GTP_U_UDP_IPV4 | Self::GTP_U_UDP_IPV6;
    const UDP: u16 = Self::UDP_IPV4 | Self::UDP_IPV6;
    const V4: u16 = Self::GTP_U_UDP_IPV4 | Self::UDP_IPV4 | Self::IPV4;
    const V6: u16 = Self::GTP_U_UDP_IPV6 | Self::UDP_IPV6 | Self::IPV6;

    /// Creates a GTP-U tunnel to a peer over IPv4.
    #[must_use]
    pub fn gtp_u_v4(teid: u32, peer: Ipv4Addr) -> Self {
        let description = Self::GTP_U_UDP_IPV4;
        Self { description, teid: Some(teid), v4: Some(peer), ..Self::default() }
    }

    /// Creates a GTP-U tunnel to a peer over IPv6.
    #[must_use]
    pub fn gtp_u_v6(teid: u32, peer: Ipv6Addr) -> Self {
        let description = Self::GTP_U_UDP_IPV6;
        Self { description, teid: Some(teid), v6: Some(peer), ..Self::default() }
    }
}

impl Ie<'_> for OuterHeaderCreation {
    const TYPE: IeType = IeType::OUTER_HEADER_CREATION;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let description = octets.u16()?;
        let any = |bits: u16| description & bits != 0;
        if description >> 8 == 0 && !any(Self::SSM) {
            return Err(Cause::MANDATORY_IE_INCORRECT);
        }
        Ok(Self {
            description,
            teid: octets.when(any(Self::GTP_U), Octets::u32)?,
            v4: octets.when(any(Self::V4), Octets::v4)?,
            v6: octets.when(any(Self::V6), Octets::v6)?,
            port: octets.when(any(Self::UDP), Octets::u16)?,
            c_tag: octets.when(any(Self::C_TAG), Octets::array)?,
            s_tag: octets.when(any(Self::S_TAG), Octets::array)?,
        })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.description.to_be_bytes());
        to.extend(self.teid.into_iter().flat_map(u32::to_be_bytes));
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
        to.extend(self.port.into_iter().flat_map(u16::to_be_bytes));
        to.extend(self.c_tag.into_iter().flatten());
        to.extend(self.s_tag.into_iter().flatten());
    }
}

/// Outer Header Removal (clause 8.2.64); one octet or two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OuterHeaderRemoval {
    /// Header to remove: 0 GTP-U/UDP/IPv4, 1 GTP-U/UDP/IPv6, 2 UDP/IPv4, 3 UDP/IPv6, 4 IPv4, 5
    /// IPv6, 6 GTP-U/UDP/IP, 7 VLAN S-TAG, 8 S-TAG and C-TAG.
    pub description: u8,
    /// GTP-U extension headers to remove: bit 1 is the PDU session container.
    pub extension_headers: u8,
}

impl Ie<'_> for OuterHeaderRemoval {
    const TYPE: IeType = IeType::OUTER_HEADER_REMOVAL;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let description = Octets::new(value).u8()?;
        Ok(Self { description, extension_headers: value.get(1).copied().unwrap_or(0) })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.description);
        if self.extension_headers != 0 {
            to.push(self.extension_headers);
        }
    }
}

/// Transport Level Marking (clause 8.2.12) of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransportLevelMarking {
    /// Type of service or traffic class.
    pub value: u8,
    /// Mask of the bits to set.
    pub mask: u8,
}

impl Ie<'_> for TransportLevelMarking {
    const TYPE: IeType = IeType::TRANSPORT_LEVEL_MARKING;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let [value, mask] = Octets::new(value).array()?;
        Ok(Self { value, mask })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&[self.value, self.mask]);
    }
}

/// Forwarding Policy (clause 8.2.23): name of a policy in the UPF, at most 255 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ForwardingPolicy<'a>(pub &'a [u8]);

impl<'a> Ie<'a> for ForwardingPolicy<'a> {
    const TYPE: IeType = IeType::FORWARDING_POLICY;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        Octets::new(value).string8().map(Self)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        put_string8(to, self.0);
    }
}

/// Header Enrichment (clause 8.2.67).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeaderEnrichment<'a> {
    /// Type of the header, 0 for HTTP.
    pub header_type: u8,
    /// Name of the header field, at most 255 octets.
    pub name: &'a [u8],
    /// Value of the header field, at most 255 octets.
    pub value: &'a [u8],
}

impl<'a> Ie<'a> for HeaderEnrichment<'a> {
    const TYPE: IeType = IeType::HEADER_ENRICHMENT;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let header_type = octets.u8()? & 0x1f;
        Ok(Self { header_type, name: octets.string8()?, value: octets.string8()? })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.header_type & 0x1f);
        put_string8(to, self.name);
        put_string8(to, self.value);
    }
}
