//! Identities of nodes, sessions, session sets and failed rules.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

use super::{Ie, Octets, bit, put_address};
use crate::{Cause, IeType};

/// Node ID (TS 29.244 clause 8.2.38).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId<'a> {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 address.
    V6(Ipv6Addr),
    /// FQDN, as labels (RFC 1035 section 3.1).
    Name(&'a [u8]),
}

impl<'a> Ie<'a> for NodeId<'a> {
    const TYPE: IeType = IeType::NODE_ID;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        match octets.u8()? & 0x0f {
            0 => octets.v4().map(Self::V4),
            1 => octets.v6().map(Self::V6),
            2 if octets.is_empty() => Err(Cause::INVALID_LENGTH),
            2 => Ok(Self::Name(octets.rest())),
            _ => Err(Cause::MANDATORY_IE_INCORRECT),
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::V4(address) => {
                to.push(0);
                to.extend_from_slice(&address.octets());
            }
            Self::V6(address) => {
                to.push(1);
                to.extend_from_slice(&address.octets());
            }
            Self::Name(name) => {
                to.push(2);
                to.extend_from_slice(name);
            }
        }
    }
}

/// F-SEID (clause 8.2.37): a session's identifier in the CP or UP function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FSeid {
    /// Session endpoint identifier.
    pub seid: u64,
    /// IPv4 address of the function.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the function.
    pub v6: Option<Ipv6Addr>,
}

impl Ie<'_> for FSeid {
    const TYPE: IeType = IeType::F_SEID;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let flags = octets.u8()?;
        let seid = octets.u64()?;
        let v4 = octets.when(flags & 2 != 0, Octets::v4)?;
        let v6 = octets.when(flags & 1 != 0, Octets::v6)?;
        if v4.is_none() && v6.is_none() {
            return Err(Cause::MANDATORY_IE_INCORRECT);
        }
        Ok(Self { seid, v4, v6 })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(bit(self.v6.is_some(), 0) | bit(self.v4.is_some(), 1));
        to.extend_from_slice(&self.seid.to_be_bytes());
        put_address(to, self.v4.map(|v4| v4.octets()));
        put_address(to, self.v6.map(|v6| v6.octets()));
    }
}

/// FQ-CSID (clause 8.2.43): session sets of a node that fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FqCsid<'a> {
    /// Form of the node's identity: 0 IPv4 address, 1 IPv6 address, 2 MCC, MNC and a number.
    pub node_id_type: u8,
    /// Identity of the node: 4 octets, or 16 for type 1.
    pub node: &'a [u8],
    /// CSIDs, two octets each, at most 15.
    pub numbers: &'a [u8],
    /// Type of the node, if present: 0 MME, 1 SGW-C, 2 PGW-C, 3 ePDG, 4 TWAN, 5 PGW-U or SGW-U.
    pub node_type: Option<u8>,
}

impl<'a> FqCsid<'a> {
    /// Returns the CSIDs, at most 15.
    pub fn csids(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.numbers.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }
}

impl<'a> Ie<'a> for FqCsid<'a> {
    const TYPE: IeType = IeType::FQ_CSID;

    fn decode(value: &'a [u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        let first = octets.u8()?;
        let node_id_type = first >> 4;
        let length = match node_id_type {
            0 | 2 => 4,
            1 => 16,
            _ => return Err(Cause::MANDATORY_IE_INCORRECT),
        };
        let node = octets.take(length)?;
        let numbers = octets.take(2 * usize::from(first & 0x0f))?;
        let node_type = octets.when(!octets.is_empty(), Octets::u8)?;
        Ok(Self { node_id_type, node, numbers, node_type: node_type.map(|node| node & 0x0f) })
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let count = u8::try_from(self.numbers.len() / 2).unwrap_or(15).min(15);
        to.push(self.node_id_type << 4 | count);
        to.extend_from_slice(self.node);
        to.extend_from_slice(&self.numbers[..2 * usize::from(count)]);
        to.extend(self.node_type.map(|node| node & 0x0f));
    }
}

/// Failed Rule ID (clause 8.2.80).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailedRuleId {
    /// Packet detection rule.
    Pdr(u16),
    /// Forwarding action rule.
    Far(u32),
    /// QoS enforcement rule.
    Qer(u32),
    /// Usage reporting rule.
    Urr(u32),
    /// Buffering action rule.
    Bar(u8),
    /// Multi-access rule.
    Mar(u16),
    /// Session reporting rule.
    Srr(u8),
}

impl Ie<'_> for FailedRuleId {
    const TYPE: IeType = IeType::FAILED_RULE_ID;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        let mut octets = Octets::new(value);
        match octets.u8()? & 0x1f {
            0 => octets.u16().map(Self::Pdr),
            1 => octets.u32().map(Self::Far),
            2 => octets.u32().map(Self::Qer),
            3 => octets.u32().map(Self::Urr),
            4 => octets.u8().map(Self::Bar),
            5 => octets.u16().map(Self::Mar),
            6 => octets.u8().map(Self::Srr),
            _ => Err(Cause::MANDATORY_IE_INCORRECT),
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        let (kind, number, octets) = match *self {
            Self::Pdr(id) => (0, id.into(), 2),
            Self::Far(id) => (1, id, 4),
            Self::Qer(id) => (2, id, 4),
            Self::Urr(id) => (3, id, 4),
            Self::Bar(id) => (4, id.into(), 1),
            Self::Mar(id) => (5, id.into(), 2),
            Self::Srr(id) => (6, id.into(), 1),
        };
        to.push(kind);
        to.extend_from_slice(&number.to_be_bytes()[4 - octets..]);
    }
}
