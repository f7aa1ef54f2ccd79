//! The classifier of a block: sets of filters, and the conditions that select them.
//!
//! Ports and IPv4 addresses are divided into intervals, in each of which the same filters match. A
//! section has the upper bounds of the intervals, and behind them a code for each, which names its
//! set: one filter, none, or a set that is stored. Filters without a condition on the field match
//! in any interval.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::AddressPrefix;

/// Bit set of the filters of a block. Filters are in the order of evaluation, the first one is the
/// lowest bit. A rule without filters has one that matches every packet.
pub type FilterSet = u64;
/// Maximum number of filters of a block.
pub const FILTERS: usize = FilterSet::BITS as usize;

/// Upper bound of an interval, stored as a signed number of the same order: processors compare
/// several of these at once.
pub trait Bound: Copy + Ord + FromBytes + IntoBytes + Immutable + KnownLayout {
    /// Number of bounds that are compared together; their list is padded to a multiple.
    const GROUP: usize;
    /// Greatest value of the field.
    const MOST: u32;

    /// Returns the bound of a value, of which only the bits of the field are used.
    fn of(value: u32) -> Self;

    /// Returns the number of bounds below a value.
    fn count_below(bounds: &[Self], value: Self) -> usize;
}

impl Bound for i16 {
    const GROUP: usize = 8;
    const MOST: u32 = u16::MAX as u32;

    #[inline(always)]
    fn of(value: u32) -> Self {
        (value as u16 ^ 1 << 15).cast_signed()
    }

    #[inline(always)]
    fn count_below(bounds: &[Self], value: Self) -> usize {
        let (groups, _) = bounds.as_chunks::<{ Self::GROUP }>();
        let mut below = [0_u16; Self::GROUP];
        for group in groups {
            for (below, bound) in below.iter_mut().zip(group) {
                *below += u16::from(*bound < value);
            }
        }
        usize::from(below.iter().sum::<u16>())
    }
}

impl Bound for i32 {
    const GROUP: usize = 4;
    const MOST: u32 = u32::MAX;

    #[inline(always)]
    fn of(value: u32) -> Self {
        (value ^ 1 << 31).cast_signed()
    }

    #[inline(always)]
    fn count_below(bounds: &[Self], value: Self) -> usize {
        let (groups, _) = bounds.as_chunks::<{ Self::GROUP }>();
        let mut below = [0_u32; Self::GROUP];
        for group in groups {
            for (below, bound) in below.iter_mut().zip(group) {
                *below += u32::from(*bound < value);
            }
        }
        below.iter().sum::<u32>() as usize
    }
}

/// Codes of the set of an interval.
pub(crate) mod code {
    /// First code of a stored set. Lower ones are the number of the only filter that matches
    /// besides those without a condition on the field.
    pub(crate) const STORED: u8 = super::FILTERS as u8;
    /// Only filters without a condition on the field match.
    pub(crate) const NONE: u8 = u8::MAX;
}

/// Sets of filters by properties that need no search.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct FilterSets {
    /// First filter of each rule.
    pub first: FilterSet,
    /// Filters of rules for packets that arrive through a tunnel.
    pub tunnelled: FilterSet,
    /// Filters of rules for packets that arrive without a tunnel.
    pub untunnelled: FilterSet,
    /// Filters without a condition on the source port.
    pub any_source_port: FilterSet,
    /// Filters without a condition on the destination port.
    pub any_destination_port: FilterSet,
    /// Filters without a condition on the source address.
    pub any_source: FilterSet,
    /// Filters without a condition on the destination address.
    pub any_destination: FilterSet,
    /// Filters with a condition behind the IP header: ports, security parameter index.
    pub transport: FilterSet,
}

/// An IPv6 prefix of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FilterPrefix {
    /// Prefix with the bits that count.
    pub prefix: AddressPrefix,
    /// Filters whose source it is.
    pub source: FilterSet,
    /// Filters whose destination it is.
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
    /// Filters that do not match other values.
    pub filters: FilterSet,
    /// Required value.
    pub value: u32,
    /// Field, see [`field`].
    pub field: u8,
    /// Mask of the type of service.
    pub mask: u8,
    /// Reserved, zero.
    pub reserved: u16,
}

const _: () = assert!(size_of::<FilterSets>() == 64 && size_of::<Condition>() == 16);
const _: () = assert!(size_of::<FilterPrefix>() == 40);
