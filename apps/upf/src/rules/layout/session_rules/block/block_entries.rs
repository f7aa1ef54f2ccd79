//! Entries of a block.

use std::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::ForwardingAction;

/// Index that means "none".
pub(crate) const NONE: u8 = u8::MAX;

/// A PDR, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// Bit set of QoS flows, one of which the packet must have; 0: any or none.
    pub qfis: u64,
    /// Bit set of the block's first 64 addresses, one of which must be the uplink source or
    /// downlink destination; 0: any.
    pub users: u64,
    /// Bits of [`flag`](super::super::flag).
    pub flags: u32,
    /// TEID that packets arrive with (`flag::TUNNEL`).
    pub tunnel: u32,
    /// Bit set of the block's first 32 meters, all of which packets must conform to.
    pub meters: u32,
    /// Bit set of the block's first 32 counters.
    pub counts: u32,
    /// Maximum hold time in ms.
    pub hold_ms: u32,
    /// Network instance of the ingress, or
    /// [`NO_INSTANCE`](super::super::forwarding).
    pub instance: u16,
    /// Rule ID of the PDR.
    pub pdr: u16,
    /// Maximum number of held packets.
    pub hold_packets: u16,
    /// Index of the first filter.
    pub first_match: u8,
    /// Number of filters, one of which must match; 0: every packet matches.
    pub matches: u8,
    /// Index of the path.
    pub path: u8,
    /// Index of the first path of copies (`flag::DUPLICATE`).
    pub first_copy: u8,
    /// Number of copies.
    pub copies: u8,
    /// Reserved, zero.
    pub reserved: u8,
}

/// Bits of [`PacketFilter::wanted`].
pub mod wanted {
    /// The protocol must match.
    pub const PROTOCOL: u16 = 1;
    /// The type of service must match.
    pub const TOS: u16 = 1 << 1;
    /// The security parameter index must match.
    pub const SPI: u16 = 1 << 2;
    /// The flow label must match.
    pub const LABEL: u16 = 1 << 3;
    /// The remote port must be in the range.
    pub const REMOTE_PORT: u16 = 1 << 4;
    /// The remote port must be in one of the ranges: first and count among the block's.
    pub const REMOTE_PORTS: u16 = 1 << 5;
    /// The UE's port must be in the range.
    pub const LOCAL_PORT: u16 = 1 << 6;
    /// The UE's port must be in one of the ranges: first and count among the block's.
    pub const LOCAL_PORTS: u16 = 1 << 7;
    /// All bits that need ports.
    pub const PORTS: u16 = REMOTE_PORT | REMOTE_PORTS | LOCAL_PORT | LOCAL_PORTS;
}

/// A packet filter. All conditions must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PacketFilter {
    /// Bits of [`wanted`].
    pub wanted: u16,
    /// Protocol behind extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Mask of the type of service.
    pub tos_mask: u8,
    /// Remote end: index of an address; 255: any.
    pub remote: u8,
    /// UE's end: index of an address; 255: any.
    pub local: u8,
    /// Reserved, zero.
    pub reserved: u8,
    /// Remote ports.
    pub remote_ports: [u16; 2],
    /// UE's ports.
    pub local_ports: [u16; 2],
    /// Security parameter index.
    pub spi: u32,
    /// Flow label.
    pub label: u32,
}

/// An IPv4 or IPv6 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddressPrefix {
    /// Upper 64 bits; an IPv4 address is in the upper 32 of them.
    pub high: u64,
    /// Lower 64 bits.
    pub low: u64,
    /// Prefix length in bits.
    pub length: u8,
    /// IP version, 4 or 6.
    pub family: u8,
    /// Reserved, zero.
    pub reserved: [u8; 6],
}

impl AddressPrefix {
    /// Creates a prefix. Bits beyond the length are cleared.
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

    /// Returns true if the prefix contains an address, which is given in the form of
    /// [`new`](Self::new), first bit most significant.
    #[inline]
    #[must_use]
    pub fn holds(&self, family: u8, bits: u128) -> bool {
        let own = u128::from(self.high) << 64 | u128::from(self.low);
        let shift = 128_u32.wrapping_sub(u32::from(self.length));
        family == self.family && (own ^ bits).checked_shr(shift).unwrap_or(0) == 0
    }
}

/// A compiled FAR with the IPv6 address that it may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OuterPath {
    /// Compiled FAR.
    pub forwarding: ForwardingAction,
    /// IPv6 address of the far end. For `forwarding::REDIRECT` without an outer header: offset of
    /// the [`RedirectEntry`] in the text (first two bytes).
    pub peer6: [u8; 16],
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
    /// Scale of the cost by direction, as in [`ForwardingAction::shift`].
    pub shift: [u8; 2],
    /// Reserved, zero.
    pub reserved: u16,
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

const _: () = assert!(size_of::<Rule>() == 48 && size_of::<PacketFilter>() == 24);
const _: () = assert!(size_of::<Count>() == 12 && size_of::<Limit>() == 16);
const _: () = assert!(size_of::<AddressPrefix>() == 24 && size_of::<OuterPath>() == 32);
