//! Keys and values of the table of flows.

use std::mem::offset_of;
use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::conntrack::{Connection, ConnectionTuple};

/// Key of one direction of a flow: the packets as they arrive. As in Linux, a connection is known
/// by its addresses, ports and zone; the ingress interface is checked by the route back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FlowKey {
    /// Source address as on the wire; that of IPv4 in the first four bytes.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Zone of the connection tracking.
    pub zone: u16,
    /// IP protocol.
    pub protocol: u8,
    /// IP version: 4 or 6.
    pub version: u8,
}

impl FlowKey {
    /// Creates the key of the packets of a tuple.
    #[must_use]
    pub fn new(tuple: &ConnectionTuple, zone: u16) -> Self {
        let ConnectionTuple { source, destination, protocol, ports } = *tuple;
        let version = if source.is_ipv4() { 4 } else { 6 };
        let (source, destination) = (octets(source), octets(destination));
        Self { source, destination, ports, zone, protocol, version }
    }

    /// Returns the keys of the original and of the reply direction of a connection.
    #[must_use]
    pub fn of(connection: &Connection) -> [Self; 2] {
        let Connection { original, reply, zones, .. } = connection;
        [Self::new(original, zones[0]), Self::new(reply, zones[1])]
    }

    /// Returns the tuple of the packets.
    #[must_use]
    pub fn tuple(&self) -> ConnectionTuple {
        let address = |octets: [u8; 16]| address(octets, self.version);
        let (source, destination) = (address(self.source), address(self.destination));
        ConnectionTuple { source, destination, protocol: self.protocol, ports: self.ports }
    }
}

/// Value of one direction of a flow: the packets as they leave. What a lane reads for IPv4 comes
/// first: in the table of flows it is in one cache line with the key.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FlowRecord {
    /// First four bytes of the source and of the destination address of packets that leave: all of
    /// IPv4.
    pub starts: [[u8; 4]; 2],
    /// Source and destination port of packets that leave.
    pub ports: [u16; 2],
    /// Ones' complement difference of the addresses
    /// (`fastlane_wire::checksum::Difference`), and that of the ports.
    pub differences: [u16; 2],
    /// Other bytes of both addresses.
    pub rests: [[u8; 12]; 2],
    /// Number that Linux gives the connection.
    pub id: u32,
    /// 1 for the reply direction.
    pub is_reply: u32,
}

impl FlowRecord {
    /// Number of bytes that a lane reads for IPv4.
    pub const IPV4_OCTETS: usize = offset_of!(Self, rests);

    /// Creates the value of packets that leave with these addresses. All else is 0.
    #[must_use]
    pub fn between(source: [u8; 16], destination: [u8; 16]) -> Self {
        let [(from, more_from), (to, more_to)] = [source, destination].map(parts);
        Self { starts: [from, to], rests: [more_from, more_to], ..Self::default() }
    }

    /// Returns the source address of packets that leave.
    #[inline(always)]
    #[must_use]
    pub fn source(&self) -> [u8; 16] {
        whole(self.starts[0], self.rests[0])
    }

    /// Returns the destination address of packets that leave.
    #[inline(always)]
    #[must_use]
    pub fn destination(&self) -> [u8; 16] {
        whole(self.starts[1], self.rests[1])
    }

    /// Creates the values of the original and of the reply direction of a connection.
    #[must_use]
    pub fn of(connection: &Connection) -> [Self; 2] {
        let Connection { original, reply, id, .. } = connection;
        // What leaves is what the other side's packets are the reverse of.
        let leaves = |arrives: &ConnectionTuple, other: &ConnectionTuple, is_reply| {
            let (from, to) = (octets(other.destination), octets(other.source));
            let ports = [other.ports[1], other.ports[0]];
            let length = if arrives.source.is_ipv4() { 4 } else { 16 };
            let old = [octets(arrives.source), octets(arrives.destination)];
            let addresses = old.iter().zip([&from, &to]);
            let addresses = addresses.map(|(old, new)| difference(&old[..length], &new[..length]));
            let ports_differ = arrives.ports.iter().zip(&ports);
            let port =
                ports_differ.map(|(old, new)| difference(&old.to_be_bytes(), &new.to_be_bytes()));
            let differences =
                [addresses.reduce(add), port.reduce(add)].map(Option::unwrap_or_default);
            Self { ports, differences, id: *id, is_reply, ..Self::between(from, to) }
        };
        [leaves(original, reply, 0), leaves(reply, original, 1)]
    }

    /// Returns the tuple of the packets that leave, for packets that arrive with `key`.
    #[must_use]
    pub fn tuple(&self, key: &FlowKey) -> ConnectionTuple {
        let (source, destination) = (self.source(), self.destination());
        FlowKey { source, destination, ports: self.ports, ..*key }.tuple()
    }
}

/// Returns the ones' complement difference of two runs of bytes.
fn difference(old: &[u8], new: &[u8]) -> u16 {
    let removed = old.as_chunks::<2>().0.iter().map(|word| !u16::from_be_bytes(*word));
    let added = new.as_chunks::<2>().0.iter().map(|word| u16::from_be_bytes(*word));
    removed.chain(added).fold(0, add)
}

/// Adds with end-around carry.
fn add(one: u16, other: u16) -> u16 {
    let (sum, carry) = one.overflowing_add(other);
    sum.wrapping_add(u16::from(carry))
}

/// Returns the first four bytes of an address, and the others.
fn parts([a, b, c, d, rest @ ..]: [u8; 16]) -> ([u8; 4], [u8; 12]) {
    ([a, b, c, d], rest)
}

/// Returns an address from its first four bytes and the others.
#[inline(always)]
fn whole(start: [u8; 4], rest: [u8; 12]) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&start);
    address[4..].copy_from_slice(&rest);
    address
}

fn octets(address: IpAddr) -> [u8; 16] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(address) => octets[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => octets = address.octets(),
    }
    octets
}

fn address(octets: [u8; 16], version: u8) -> IpAddr {
    match version {
        4 => IpAddr::from([octets[0], octets[1], octets[2], octets[3]]),
        _ => IpAddr::from(octets),
    }
}
