//! Elements of node messages.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{DestinationInterface, Ie, NetworkInstance, Octets, SourceInterface, bit, put_address};
use crate::{Cause, IeType};

/// Remote GTP-U Peer (TS 29.244 clause 8.2.70).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteGtpUPeer<'a> {
    /// IPv4 address of the peer.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the peer.
    pub v6: Option<Ipv6Addr>,
    /// Interface by which the peer is reached.
    pub destination: Option<DestinationInterface>,
    /// Network instance in which the peer is reached.
    pub instance: Option<NetworkInstance<'a>>,
}

impl<'a> Ie<'a> for RemoteGtpUPeer<'a> {
    const TYPE: IeType = IeType::REMOTE_GTP_U_PEER;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let v4 = octets.when(flags & 2 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 1 != 0, Octets::v6)?;
        if v4.is_none() && v6.is_none() {
            return Err(Cause::MANDATORY_IE_INCORRECT);
        }
        let destination = octets.when(flags & 4 != 0, Octets::string16)?;
        let destination = destination.map(DestinationInterface::decode).transpose()?;
        let instance = octets.when(flags & 8 != 0, Octets::string16)?.map(NetworkInstance);
        Ok(Self { v4, v6, destination, instance })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let addresses = bit(self.v6.is_some(), 0) | bit(self.v4.is_some(), 1);
        let from = bit(self.destination.is_some(), 2) | bit(self.instance.is_some(), 3);
        to.push(addresses | from);
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
        if let Some(destination) = self.destination {
            super::put_string16(to, &[destination.0 & 0x0f]);
        }
        if let Some(NetworkInstance(name)) = self.instance {
            super::put_string16(to, name);
        }
    }
}

/// SMF Set ID: FQDN, as labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SmfSetId<'a>(pub &'a [u8]);

impl<'a> Ie<'a> for SmfSetId<'a> {
    const TYPE: IeType = IeType::SMF_SET_ID;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        match value {
            [] | [_] => Err(Cause::INVALID_LENGTH),
            [_, name @ ..] => Ok(Self(name)),
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(0);
        to.extend_from_slice(self.0);
    }
}

/// User Plane IP Resource Information (clause 8.2.82 until Release 16.3): addresses from which a CP
/// function may allocate F-TEIDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UserPlaneIpResourceInformation<'a> {
    /// TEID range: number of fixed upper bits (1 to 7), and these bits in the upper octet.
    pub teid_range: Option<(u8, u8)>,
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub v6: Option<Ipv6Addr>,
    /// Network instance.
    pub instance: Option<NetworkInstance<'a>>,
    /// Source interface.
    pub source: Option<SourceInterface>,
}

impl<'a> Ie<'a> for UserPlaneIpResourceInformation<'a> {
    const TYPE: IeType = IeType::USER_PLANE_IP_RESOURCE_INFORMATION;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let bits = flags >> 2 & 7;
        let teid_range = octets.when(bits != 0, Octets::u8)?.map(|range| (bits, range));
        let v4 = octets.when(flags & 1 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 2 != 0, Octets::v6)?;
        let mut rest = octets.rest();
        let source = if flags & 0x40 != 0 {
            let (last, before) = rest.split_last().ok_or(Cause::INVALID_LENGTH)?;
            rest = before;
            Some(SourceInterface(last & 0x0f))
        } else {
            None
        };
        let instance = (flags & 0x20 != 0).then_some(NetworkInstance(rest));
        Ok(Self { teid_range, v4, v6, instance, source })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let bits = self.teid_range.map_or(0, |(bits, _)| bits & 7);
        let addresses = bit(self.v4.is_some(), 0) | bit(self.v6.is_some(), 1);
        let associated = bit(self.instance.is_some(), 5) | bit(self.source.is_some(), 6);
        to.push(addresses | bits << 2 | associated);
        if bits != 0 {
            to.extend(self.teid_range.map(|(_, range)| range));
        }
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
        to.extend_from_slice(self.instance.map_or(&[], |instance| instance.0));
        to.extend(self.source.map(|source| source.0 & 0x0f));
    }
}
