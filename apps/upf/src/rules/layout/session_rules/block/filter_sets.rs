//! The classifier of a block: sets of filters, and the conditions that select them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::AddressPrefix;

/// Bit set of the filters of a block. Filters are in the order of evaluation, the first one is the
/// lowest bit. A rule without filters has one that matches every packet.
pub type FilterSet = u32;
/// Maximum number of filters of a block.
pub const FILTERS: usize = FilterSet::BITS as usize;

/// Number of port bounds that are compared together; their list is padded to a multiple.
pub(crate) const BOUNDS: usize = 8;

/// Sets of filters by properties that need no search.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterSets {
    /// Filters of rules for packets that arrive through a tunnel.
    pub tunnelled: FilterSet,
    /// Filters of rules for packets that arrive without a tunnel.
    pub untunnelled: FilterSet,
    /// Filters with a condition on ports.
    pub ports: FilterSet,
    /// Filters with a condition behind the IP header: ports, security parameter index.
    pub transport: FilterSet,
    /// Filters without a condition on the source address.
    pub any_source: FilterSet,
    /// Filters without a condition on the destination address.
    pub any_destination: FilterSet,
}

/// An address of a UE or of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockAddress {
    /// Address with the bits that count.
    pub prefix: AddressPrefix,
    /// Filters whose source address it is.
    pub source: FilterSet,
    /// Filters whose destination address it is.
    pub destination: FilterSet,
}

/// Values of [`Condition::field`].
pub mod field {
    /// Protocol behind extension headers.
    pub const PROTOCOL: u8 = 0;
    /// Type of service or traffic class, under a mask.
    pub const TOS: u8 = 1;
    /// IPv6 flow label.
    pub const FLOW_LABEL: u8 = 2;
    /// Security parameter index.
    pub const SPI: u8 = 3;
}

/// A value of a field that some filters require.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Condition {
    /// Required value.
    pub value: u32,
    /// Filters that do not match other values.
    pub filters: FilterSet,
    /// Field, see [`field`].
    pub field: u8,
    /// Mask of the type of service.
    pub mask: u8,
    /// Reserved, zero.
    pub reserved: u16,
}

/// Returns the index of the interval of a port: the number of upper bounds below it. A bound of
/// 65535 is below none, so it can pad the list.
#[inline(always)]
pub(crate) fn interval(bounds: &[u16], port: u16) -> usize {
    let (groups, _) = bounds.as_chunks::<BOUNDS>();
    let mut below = [0_u16; BOUNDS];
    for group in groups {
        for (below, bound) in below.iter_mut().zip(group) {
            *below += u16::from(*bound < port);
        }
    }
    usize::from(below.iter().sum::<u16>())
}

const _: () = assert!(size_of::<FilterSets>() == 24 && size_of::<Condition>() == 12);
const _: () = assert!(size_of::<BlockAddress>() == 32);
