//! Record layouts of the tables.
//!
//! All numbers have the byte order of the machine; addresses, of IP and of Ethernet, are as on the
//! wire, those of IPv4 in the first four of sixteen octets.

use std::net::IpAddr;

use fastlane_core::PortId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::message::{Link, Neighbour};
use super::model::LinkAddresses;

/// Port number that means "not a port".
pub(super) const NO_PORT: u16 = u16::MAX;

/// First id of a group. Lower ids are records of fallback reasons, which routes share.
pub(super) const FIRST_GROUP: u32 = 32;

/// Maximum number of next hops in a group.
pub const GROUP_HOPS: usize = 16;

/// [`HopRecord::state`]: send to the record's destination address.
pub(super) const SEND: u8 = 0;
/// [`HopRecord::state`]: the packet's destination is itself the neighbour.
pub(super) const ON_LINK: u8 = 255;

/// Interface record of the table `links`, keyed by interface index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LinkRecord {
    index: u32,
    mtu: u32,
    mtu6: u32,
    master: u32,
    vrf_table: u32,
    flags: u32,
    port: u16,
    mac: [u8; 6],
    /// Lowest address of each family that is not link-local; zeros if it has none.
    address4: [u8; 4],
    address6: [u8; 16],
}

const UP: u32 = 1;
const ETHERNET: u32 = 2;

impl LinkRecord {
    /// Creates the record of an interface with these addresses.
    pub(super) fn new(
        link: &Link,
        usable: bool,
        port: Option<PortId>,
        addresses: LinkAddresses,
    ) -> Self {
        let flag = |on, flag| if on { flag } else { 0 };
        Self {
            index: link.index,
            mtu: link.mtu,
            mtu6: if link.mtu6 == 0 { link.mtu } else { link.mtu6 },
            master: link.master,
            vrf_table: link.vrf_table,
            flags: flag(usable, UP) | flag(link.ethernet, ETHERNET),
            port: port.map_or(NO_PORT, |port| port.0),
            mac: link.mac,
            address4: addresses.v4.map_or([0; 4], |address| address.octets()),
            address6: addresses.v6.map_or([0; 16], |address| address.octets()),
        }
    }

    /// Returns the lowest address of a family that is not link-local, if the interface has one.
    #[must_use]
    pub fn address(&self, ipv6: bool) -> Option<IpAddr> {
        let address = match ipv6 {
            false => IpAddr::from(self.address4),
            true => IpAddr::from(self.address6),
        };
        (!address.is_unspecified()).then_some(address)
    }

    /// Returns the interface index.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the Ethernet address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the IPv4 MTU in bytes.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Returns the IPv6 MTU in bytes.
    #[must_use]
    pub fn mtu6(&self) -> u32 {
        self.mtu6
    }

    /// Returns true if the interface is up and has a carrier.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.flags & UP != 0
    }

    /// Returns true if its frames begin with an Ethernet header.
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.flags & ETHERNET != 0
    }

    /// Returns the port, if the interface is one.
    #[must_use]
    pub fn port(&self) -> Option<PortId> {
        (self.port != NO_PORT).then_some(PortId(self.port))
    }

    /// Returns the index of the master device (bridge, bond, VRF), or 0.
    #[must_use]
    pub fn master(&self) -> u32 {
        self.master
    }

    /// Returns the routing table of a VRF, or 0.
    #[must_use]
    pub fn vrf_table(&self) -> u32 {
        self.vrf_table
    }
}

/// Key of the table `addresses`: an address of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddressKey {
    family: u32,
    address: [u8; 16],
}

impl AddressKey {
    /// Creates the key of an address.
    #[must_use]
    pub fn new(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::v4(address.octets()),
            IpAddr::V6(address) => Self::v6(address.octets()),
        }
    }

    pub(super) fn v4(octets: [u8; 4]) -> Self {
        let mut address = [0; 16];
        address[..4].copy_from_slice(&octets);
        Self { family: 4, address }
    }

    pub(super) fn v6(address: [u8; 16]) -> Self {
        Self { family: 6, address }
    }
}

/// Key of the table `neighbours`: interface index and address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NeighbourKey {
    link: u32,
    address: AddressKey,
}

impl NeighbourKey {
    /// Creates the key of an address on the link of an interface.
    #[must_use]
    pub fn new(link: u32, address: IpAddr) -> Self {
        Self { link, address: AddressKey::new(address) }
    }

    pub(super) fn on_link(link: u32, address: AddressKey) -> Self {
        Self { link, address }
    }
}

/// Record of a usable neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NeighbourRecord {
    pub(super) mac: [u8; 6],
    reserved: [u8; 2],
}

impl NeighbourRecord {
    pub(super) fn new(neighbour: &Neighbour) -> Option<Self> {
        let mac = neighbour.mac.filter(|_| neighbour.is_usable())?;
        Some(Self { mac, reserved: [0; 2] })
    }

    /// Returns the Ethernet address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }
}

/// Next-hop record of the table `hops`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HopRecord {
    /// Index of the interface.
    pub(super) link: u32,
    pub(super) mtu: u32,
    pub(super) mtu6: u32,
    pub(super) port: u16,
    /// [`SEND`], [`ON_LINK`], or the number of a [`FallbackReason`](super::FallbackReason).
    pub(super) state: u8,
    pub(super) reserved: u8,
    pub(super) source: [u8; 6],
    pub(super) destination: [u8; 6],
    /// Gateway, for diagnostics; zeros if on-link.
    pub(super) gateway: AddressKey,
}

/// Next-hop group record of the table `groups`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GroupRecord {
    /// Number of a fallback reason, or 0.
    pub(super) reason: u8,
    /// Number of next hops.
    pub(super) count: u8,
    /// 1 if the next hops are on several interfaces.
    pub(super) is_divided: u8,
    pub(super) reserved: u8,
    /// MTU of the route in bytes, or 0.
    pub(super) mtu: u32,
    /// Ids of records in `hops`.
    pub(super) hops: [u32; GROUP_HOPS],
    /// Inclusive upper bound of each hop's share of the hash space: a packet takes the first hop
    /// whose bound is not less than the upper 16 bits of its flow hash.
    pub(super) ends: [u16; GROUP_HOPS],
}

impl GroupRecord {
    /// Creates a group that sends its packets to Linux for this reason.
    pub(super) fn fallback(reason: u8) -> Self {
        let (hops, ends) = ([0; GROUP_HOPS], [0; GROUP_HOPS]);
        Self { reason, count: 0, is_divided: 0, reserved: 0, mtu: 0, hops, ends }
    }

    /// Creates a group of hop ids and weights; hops beyond [`GROUP_HOPS`] are left out.
    pub(super) fn of(mtu: u32, hops: &[(u32, u32)]) -> Self {
        let hops = &hops[..hops.len().min(GROUP_HOPS)];
        let mut group = Self { count: hops.len() as u8, mtu, ..Self::fallback(0) };
        let total: u64 = hops.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut so_far = 0;
        for (index, (hop, weight)) in hops.iter().enumerate() {
            so_far += u64::from(*weight);
            group.hops[index] = *hop;
            group.ends[index] = ((so_far << 16) / total.max(1)).saturating_sub(1) as u16;
        }
        group
    }

    /// Selects the hop for a flow.
    #[inline]
    pub(super) fn pick(&self, flow_hash: u32) -> u32 {
        if self.count <= 1 {
            return self.hops[0];
        }
        let share = (flow_hash >> 16) as u16;
        let used = usize::from(self.count).min(GROUP_HOPS);
        let index = self.ends[..used].iter().position(|end| share <= *end).unwrap_or(used - 1);
        self.hops[index]
    }
}

/// Status record of the table `status`, one for each routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StatusRecord {
    /// Number of the routing table in Linux.
    pub(super) table: u32,
    /// Fallback reason for all IPv4 and all IPv6 packets, or 0.
    pub(super) fallback: [u8; 2],
    pub(super) reserved: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_shared_out_by_weight() {
        let group = GroupRecord::of(0, &[(7, 3), (8, 1), (9, 4)]);
        let mut counts = [0_u32; 10];
        for share in 0..=u16::MAX {
            counts[group.pick(u32::from(share) << 16) as usize] += 1;
        }
        assert_eq!(counts[7..], [65536 * 3 / 8, 65536 / 8, 65536 / 2]);
        let many: Vec<_> = (0..20).map(|hop| (hop, 65536)).collect();
        let group = GroupRecord::of(0, &many);
        assert_eq!((group.pick(0), group.pick(u32::MAX)), (0, 15));
        assert_eq!(GroupRecord::of(0, &[(5, 1)]).pick(u32::MAX), 5);
    }

    #[test]
    fn a_group_that_says_nonsense_is_still_read() {
        let group = GroupRecord { count: 200, ..GroupRecord::fallback(0) };
        assert_eq!(group.pick(u32::MAX), 0);
    }
}
