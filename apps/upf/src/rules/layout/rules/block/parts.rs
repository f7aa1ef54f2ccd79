//! What is in a block.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::side::Way;

/// Nothing of the kind, where a place in a section is meant.
pub(crate) const NONE: u8 = u8::MAX;

/// A PDR, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// A bit for each QoS flow that packets may belong to; 0: any, and none.
    pub qfis: u64,
    /// A bit for each of the block's first 64 addresses that packets may have, as their source from
    /// the user and as their destination to it; 0: any.
    pub users: u64,
    /// Bits of [`flag`](super::super::side::flag).
    pub flags: u32,
    /// The tunnel that packets come by (`flag::TUNNEL`).
    pub tunnel: u32,
    /// A bit for each of the block's first 32 meters that packets must conform to.
    pub meters: u32,
    /// A bit for each of the block's first 32 counts.
    pub counts: u32,
    /// For how long packets are held, in ms.
    pub hold_ms: u32,
    /// The network instance that packets arrive in, or [`NO_INSTANCE`](super::super::side::way).
    pub instance: u16,
    /// The PDR's number.
    pub pdr: u16,
    /// The most packets held at a time.
    pub hold_packets: u16,
    /// The first of its filters.
    pub first_match: u8,
    /// How many filters there are, of which one must match; 0: all packets do.
    pub matches: u8,
    /// Where packets go: a place among the paths.
    pub path: u8,
    /// The first path of copies (`flag::DUPLICATE`).
    pub first_copy: u8,
    /// How many copies go elsewhere.
    pub copies: u8,
    /// Zero.
    pub reserved: u8,
}

/// Bits of [`Match::wants`].
pub mod wants {
    /// This protocol.
    pub const PROTOCOL: u16 = 1;
    /// This type of service.
    pub const TOS: u16 = 1 << 1;
    /// This security parameter index.
    pub const SPI: u16 = 1 << 2;
    /// This flow label.
    pub const LABEL: u16 = 1 << 3;
    /// The far end's port is in this range.
    pub const REMOTE_PORT: u16 = 1 << 4;
    /// It is in one of these ranges: first and count among the block's.
    pub const REMOTE_PORTS: u16 = 1 << 5;
    /// The user's port is in this range.
    pub const LOCAL_PORT: u16 = 1 << 6;
    /// It is in one of these ranges: first and count among the block's.
    pub const LOCAL_PORTS: u16 = 1 << 7;
    /// Any of those that need ports.
    pub const PORTS: u16 = REMOTE_PORT | REMOTE_PORTS | LOCAL_PORT | LOCAL_PORTS;
}

/// A filter: all that it wants must be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Match {
    /// Bits of [`wants`].
    pub wants: u16,
    /// The protocol of the innermost header.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Which of its bits count.
    pub tos_mask: u8,
    /// The far end: a place among the addresses; 255: any.
    pub remote: u8,
    /// The user's end, likewise.
    pub local: u8,
    /// Zero.
    pub reserved: u8,
    /// The far end's ports.
    pub remote_ports: [u16; 2],
    /// The user's ports.
    pub local_ports: [u16; 2],
    /// Security parameter index.
    pub spi: u32,
    /// Flow label.
    pub label: u32,
}

/// An address of either family and how many of its first bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AnyAddress {
    /// Its first 64 bits; an IPv4 address is the first 32 of them.
    pub high: u64,
    /// Its last 64 bits.
    pub low: u64,
    /// How many bits count.
    pub length: u8,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

impl AnyAddress {
    /// Of a prefix. Bits that do not count are forgotten.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let (bits, family, most) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 4, 32),
            IpAddr::V6(address) => (address.to_bits(), 6, 128),
        };
        let length = length.min(most);
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let bits = bits & mask;
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        Self { high, low, length, family, reserved: [0; 6] }
    }

    /// Whether an address is in it: as [`new`](Self::new) has it, its first bit in the most
    /// significant one.
    #[inline]
    #[must_use]
    pub fn holds(&self, family: u8, bits: u128) -> bool {
        let own = u128::from(self.high) << 64 | u128::from(self.low);
        let shift = 128_u32.wrapping_sub(u32::from(self.length));
        family == self.family && (own ^ bits).checked_shr(shift).unwrap_or(0) == 0
    }
}

/// Where packets go, with the address that a [`Way`] may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OuterPath {
    /// Where.
    pub way: Way,
    /// The far end's IPv6 address; for `way::REDIRECT` without an outer header, the place of the
    /// [`RedirectEntry`] in the text (first two bytes).
    pub peer6: [u8; 16],
}

/// A meter of a QER, in a line of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Meter {
    /// The line.
    pub line: u32,
    /// What an octet costs, by direction; 0: it is free.
    pub cost: [u32; 2],
    /// How far ahead it may be, in ms.
    pub burst: [u16; 2],
    /// As [`Way::shift`].
    pub shift: [u8; 2],
    /// Zero.
    pub reserved: u16,
}

/// A URR's counters, in a line of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Count {
    /// The line.
    pub line: u32,
    /// Bits of [`flag`](super::super::side::flag): `BEFORE`, `START`, `DROPPED`.
    pub flags: u32,
    /// The first of its limits.
    pub first_limit: u8,
    /// How many there are.
    pub limits: u8,
    /// Where packets go when a quota is used up: a place among the paths; 255: nowhere.
    pub exhausted: u8,
    /// Zero.
    pub reserved: u8,
}

/// Kinds of [`Limit`]s.
pub mod limit {
    /// Of both directions together.
    pub const TOTAL: u8 = 0;
    /// From the user.
    pub const UP: u8 = 1;
    /// To the user.
    pub const DOWN: u8 = 2;
    /// Not of octets: nanoseconds of `CLOCK_MONOTONIC`.
    pub const TIME: u8 = 3;
    /// What is limited.
    pub const BASIS: u8 = 3;
    /// Packets are stopped rather than exceed it. Without this bit it is a threshold.
    pub const QUOTA: u8 = 1 << 2;
}

/// Where a URR has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    /// The counter's value, or the time.
    pub at: u64,
    /// Bits of [`limit`].
    pub what: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

/// Kinds of [`RedirectEntry`].
pub mod redirect {
    /// To an address.
    pub const ADDRESS: u8 = 0;
    /// By an answer with a URL.
    pub const URL: u8 = 1;
    /// With a kind: it is for packets of IPv4, and behind its bytes is the entry for those of IPv6.
    pub const IPV4: u8 = 1 << 7;
}

/// Where web requests are sent instead. In the text, followed by `length` bytes: of `ADDRESS`
/// 4 or 16, of `URL` the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct RedirectEntry {
    /// A kind of [`redirect`].
    pub kind: u8,
    /// Zero.
    pub reserved: u16,
    /// How many bytes follow.
    pub length: u16,
}

const _: () = assert!(size_of::<Rule>() == 48 && size_of::<Match>() == 24);
const _: () = assert!(size_of::<Count>() == 12 && size_of::<Limit>() == 16);
const _: () = assert!(size_of::<AnyAddress>() == 24 && size_of::<OuterPath>() == 32);
