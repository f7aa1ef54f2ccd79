//! Record of an association in the table `peers`, which outlives this process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::pfcp::NodeName;

/// Maximum length of a stored Node ID in octets: a domain name has at most 255 (RFC 1035 clause
/// 3.1).
const NAME: usize = 256;
/// Number of responses stored with an association.
pub const ANSWERS: usize = 3;
/// Maximum length of a stored response in octets.
pub const ANSWER: usize = 336;

/// Maximum number of Alternative SMF IP Addresses of an association.
pub const ALTERNATIVES: usize = 16;

/// Association with its last responses. A free slot has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AssociationRecord {
    /// CP Function Features, octet 5 lowest.
    pub features: u64,
    /// Time of the setup, in nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// Time when the peer became silent, in nanoseconds of `CLOCK_MONOTONIC`; 0 while it is up.
    pub down: u64,
    /// Time when the peer was first heard after its last start, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub begun: u64,
    /// One of [`state`].
    pub state: u32,
    /// Recovery time stamp of the peer.
    pub recovery: u32,
    /// Address for our requests.
    pub address: Endpoint,
    /// Our address that the peer sends to; all zeros if unknown.
    pub local: [u8; 16],
    /// Type of the Node ID: 0 IPv4, 1 IPv6, 2 name (clause 8.2.38).
    pub name_kind: u16,
    /// Length of the Node ID in octets.
    pub name_length: u16,
    /// Length of the SMF Set ID in octets; 0 without one.
    pub set_length: u16,
    /// Number of alternative addresses.
    pub alternative_count: u16,
    /// Node ID.
    pub name: [u8; NAME],
    /// SMF Set ID.
    pub set: [u8; NAME],
    /// Alternative SMF IP Addresses.
    pub alternatives: [[u8; 16]; ALTERNATIVES],
    /// Responses, newest first.
    pub answers: [StoredResponse; ANSWERS],
}

/// States of an association record.
pub mod state {
    /// The peer responds.
    pub const UP: u32 = 1;
    /// The peer is silent; its sessions are kept for a time.
    pub const DOWN: u32 = 2;
    /// The association was released: only its responses are kept for a time.
    pub const RELEASED: u32 = 3;
    /// Its sessions are being removed; then it becomes [`RELEASED`].
    pub const ENDING: u32 = 4;
}

/// Address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Endpoint {
    /// Address; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
    pub address: [u8; 16],
    /// UDP port.
    pub port: u16,
    /// Reserved, zero.
    pub reserved: [u16; 3],
}

/// Response that may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredResponse {
    /// Time when it was sent, in nanoseconds of `CLOCK_MONOTONIC`; 0 if there is none.
    pub at: u64,
    /// Source of the request.
    pub peer: Endpoint,
    /// Sequence number of the request.
    pub sequence: u32,
    /// Message type of the request.
    pub message_type: u16,
    /// Length of the response in octets.
    pub length: u16,
    /// Digest of the request.
    pub digest: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Encoded response.
    pub bytes: [u8; ANSWER],
}

impl Endpoint {
    /// Creates an endpoint from a socket address.
    #[must_use]
    pub const fn of(address: SocketAddr) -> Self {
        Self { address: mapped(address.ip()), port: address.port(), reserved: [0; 3] }
    }

    /// Returns the socket address.
    #[must_use]
    pub const fn socket(&self) -> SocketAddr {
        SocketAddr::new(unmapped(self.address), self.port)
    }
}

/// Returns an address as 16 octets; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
#[must_use]
pub const fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the address that [`mapped`] encoded.
#[must_use]
pub const fn unmapped(octets: [u8; 16]) -> IpAddr {
    Ipv6Addr::from_octets(octets).to_canonical()
}

impl AssociationRecord {
    /// Creates a record without responses.
    #[must_use]
    pub fn new(node_id: &NodeName) -> Self {
        let mut record = Self::new_zeroed();
        record.set_name(node_id);
        record
    }

    fn set_name(&mut self, node_id: &NodeName) {
        let (v4, v6);
        let (kind, octets): (u16, &[u8]) = match node_id {
            NodeName::V4(address) => {
                v4 = address.octets();
                (0, &v4)
            }
            NodeName::V6(address) => {
                v6 = address.octets();
                (1, &v6)
            }
            NodeName::Name(labels) => (2, labels),
        };
        let length = octets.len().min(NAME);
        self.name[..length].copy_from_slice(&octets[..length]);
        (self.name_kind, self.name_length) = (kind, length as u16);
    }

    /// Returns the Node ID. Returns `None` if this program did not write the record.
    #[must_use]
    pub fn node_id(&self) -> Option<NodeName> {
        let octets = self.name.get(..usize::from(self.name_length))?;
        match self.name_kind {
            0 => Some(NodeName::V4(<[u8; 4]>::try_from(octets).ok()?.into())),
            1 => Some(NodeName::V6(<[u8; 16]>::try_from(octets).ok()?.into())),
            2 => Some(NodeName::Name(octets.to_owned())),
            _ => None,
        }
    }

    pub(super) fn set_alternatives(&mut self, addresses: &[IpAddr]) {
        let count = addresses.len().min(ALTERNATIVES);
        self.alternatives = [[0; 16]; ALTERNATIVES];
        for (slot, address) in self.alternatives.iter_mut().zip(addresses) {
            *slot = mapped(*address);
        }
        self.alternative_count = count as u16;
    }

    /// Returns the alternative addresses of the peer.
    #[must_use]
    pub fn alternatives(&self) -> Vec<IpAddr> {
        let all = self.alternatives.iter().take(self.alternative_count.into());
        all.copied().map(unmapped).collect()
    }

    pub(super) fn set_smf_set(&mut self, set: &[u8]) {
        // A name that is too long would equal another one that is cut short.
        let set = if set.len() > NAME { &[] } else { set };
        self.set = [0; NAME];
        self.set[..set.len()].copy_from_slice(set);
        self.set_length = set.len() as u16;
    }

    /// Returns the SMF Set ID; empty without one.
    #[must_use]
    pub fn smf_set(&self) -> &[u8] {
        self.set.get(..self.set_length.into()).unwrap_or_default()
    }

    /// Returns our address that the peer sends to, if known.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        (self.local != [0; 16]).then(|| unmapped(self.local))
    }
}

impl StoredResponse {
    /// Returns the encoded response.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn names_and_addresses_come_back() {
        let names = [
            NodeName::V4(Ipv4Addr::new(192, 0, 2, 1)),
            NodeName::V6("2001:db8::1".parse().unwrap()),
            NodeName::Name(b"\x03smf\x07example".to_vec()),
            NodeName::Name(vec![1; 255]),
        ];
        for name in names {
            assert_eq!(AssociationRecord::new(&name).node_id(), Some(name));
        }
        for address in ["192.0.2.1:8805", "[2001:db8::1]:1"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(Endpoint::of(address).socket(), address);
        }
    }

    #[test]
    fn what_is_no_record_names_nobody() {
        let mut record = AssociationRecord::new(&NodeName::V4(Ipv4Addr::LOCALHOST));
        record.name_length = 300;
        assert_eq!(record.node_id(), None);
        (record.name_length, record.name_kind) = (4, 9);
        assert_eq!(record.node_id(), None);
    }
}
