//! Entries of the sections of a block.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::{AddressPrefix, OuterPath};
use super::FilterSet;

/// Index that means "none".
pub(crate) const NONE: u8 = u8::MAX;

/// A PDR, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// Bit set of QoS flows, one of which the packet must have; 0: any or none.
    pub qfis: u64,
    /// Bits of [`flag`](super::super::flag).
    pub flags: u32,
    /// TEID that packets arrive with (`flag::TUNNEL`), otherwise the network instance of the
    /// ingress, or [`NO_INSTANCE`](super::super::forwarding).
    pub ingress: u32,
    /// Bit set of the block's first 32 meters, all of which packets must conform to.
    pub meters: u32,
    /// Bit set of the block's first 32 counters.
    pub counts: u32,
    /// Bit set of the block's first 32 [`SlotCharge`]s (`flag::UNLIMITED`), or the maximum hold
    /// time in ms (`flag::HOLD`).
    pub charges_or_hold_ms: u32,
    /// Rule ID of the PDR.
    pub pdr: u16,
    /// Maximum number of held packets.
    pub hold_packets: u16,
    /// Index of the first filter.
    pub first_filter: u8,
    /// Number of filters, one of which must match.
    pub filters: u8,
    /// Index of the path.
    pub path: u8,
    /// Index of the first path of copies (`flag::DUPLICATE`).
    pub first_copy: u8,
    /// Number of copies.
    pub copies: u8,
    /// Index of the first UE address.
    pub first_user: u8,
    /// Number of UE addresses, one of which must be the uplink source or downlink destination; 0:
    /// any.
    pub users: u8,
    /// Reserved, zero.
    pub reserved: u8,
}

impl Rule {
    /// Returns the set of the rule's filters.
    #[inline]
    #[must_use]
    pub const fn filter_set(&self) -> FilterSet {
        let all = FilterSet::MAX;
        let Some(others) = FilterSet::BITS.checked_sub(self.filters as u32) else { return 0 };
        match (all.checked_shr(others), self.first_filter) {
            (Some(set), first) if (first as u32) < FilterSet::BITS => set << first,
            _ => 0,
        }
    }
}

/// Meter of a QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Meter {
    /// Counter slot.
    pub line: u32,
    /// Cost of an octet by direction; 0: unlimited.
    pub cost: [u32; 2],
    /// Burst in ms, by direction.
    pub burst: [u16; 2],
    /// Scale of the cost by direction, as in `ForwardingAction::shift`.
    pub shift: [u8; 2],
    /// Reserved, zero.
    pub reserved: u16,
}

/// Bits of [`SlotCharge::flags`].
pub mod slot_charge {
    /// The slot has a meter with a limit.
    pub const METER: u8 = 1;
    /// The slot has a counter.
    pub const COUNT: u8 = 1 << 1;
    /// The first packet raises an event.
    pub const START: u8 = 1 << 2;
    /// The octets of the packet's own direction are limited.
    pub const OWN: u8 = 1 << 3;
    /// The octets of the other direction are limited, with or without those of its own.
    pub const OTHER: u8 = 1 << 4;
}

/// Maximum number of [`SlotCharge`]s of a rule.
pub(crate) const CHARGES: usize = 8;

/// Charge of a counter slot by packets of a direction: the meter and the counter that share the
/// slot. Rules with such charges can be stopped only by their meters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SlotCharge {
    /// Highest value of the limited octets at which no threshold needs to be checked.
    pub check_above: u64,
    /// Counter slot.
    pub line: u32,
    /// Cost of an octet, as in [`Meter`].
    pub cost: u32,
    /// Burst in ms.
    pub burst: u16,
    /// Scale of the cost.
    pub shift: u8,
    /// Bits of [`slot_charge`].
    pub flags: u8,
    /// Reserved, zero.
    pub reserved: u32,
}

/// Counter of a URR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Count {
    /// Counter slot.
    pub line: u32,
    /// Bits of [`flag`](super::super::flag): `BEFORE`, `START`, `DROPPED`.
    pub flags: u32,
    /// Index of its first limit.
    pub first_limit: u8,
    /// Number of limits.
    pub limits: u8,
    /// Index of the path of packets beyond the quota; 255: dropped.
    pub exhausted: u8,
    /// Reserved, zero.
    pub reserved: u8,
}

/// Bits of [`Limit::what`].
pub mod limit {
    /// Both directions together.
    pub const TOTAL: u8 = 0;
    /// Uplink octets.
    pub const UPLINK: u8 = 1;
    /// Downlink octets.
    pub const DOWNLINK: u8 = 2;
    /// A time in ns of `CLOCK_MONOTONIC` instead of octets.
    pub const TIME: u8 = 3;
    /// Mask of the limited quantity.
    pub const BASIS: u8 = 3;
    /// A quota: packets that would exceed it are dropped. Without this bit it is a threshold.
    pub const QUOTA: u8 = 1 << 2;
}

/// Limit of a URR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    /// Counter value, or time.
    pub at: u64,
    /// Bits of [`limit`].
    pub what: u8,
    /// Reserved, zero.
    pub reserved: [u8; 7],
}

/// Kinds of [`RedirectEntry`].
pub mod redirect {
    /// To an address.
    pub const ADDRESS: u8 = 0;
    /// By a response with a URL.
    pub const URL: u8 = 1;
    /// Flag: for IPv4 packets; the entry for IPv6 packets follows behind its bytes.
    pub const IPV4: u8 = 1 << 7;
}

/// Redirection, in the text section, followed by `length` bytes: 4 or 16 for `ADDRESS`, the URL for
/// `URL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct RedirectEntry {
    /// Kind, see [`redirect`].
    pub kind: u8,
    /// Reserved, zero.
    pub reserved: u16,
    /// Number of bytes that follow.
    pub length: u16,
}

/// An end marker that is due besides that of the session's rules, which is the newest. See
/// [`DueEndMarker`](super::super::DueEndMarker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct EndMarkerEntry {
    /// Peer address, IPv4 mapped into IPv6.
    pub peer: [u8; 16],
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Lower 32 bits of the version in which it became due.
    pub version: u32,
    /// Network instance, or [`NO_INSTANCE`](super::super::forwarding).
    pub instance: u16,
}

const _: () = assert!(size_of::<Rule>() == 40 && size_of::<SlotCharge>() == 24);
const _: () = assert!(size_of::<Count>() == 12 && size_of::<Limit>() == 16);
const _: () = assert!(size_of::<AddressPrefix>() == 24 && size_of::<OuterPath>() == 32);
