//! ICMP (RFC 792), ICMPv6 (RFC 4443) and the messages of neighbour discovery (RFC 4861).

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::MacAddress;

/// ICMP header, 8 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct Icmp {
    /// Type of the message, such as [`Icmp::ECHO_REQUEST`].
    pub message_type: u8,
    /// Code, which refines the type.
    pub code: u8,
    /// Checksum over the whole message.
    pub checksum: U16,
    /// Rest of the header, depending on the type: identifier and sequence number of an echo.
    pub rest: U32,
}

impl Icmp {
    /// Length of the header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Type: destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Type: redirect.
    pub const REDIRECT: u8 = 5;
    /// Type: echo.
    pub const ECHO_REQUEST: u8 = 8;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Code of [`Icmp::DESTINATION_UNREACHABLE`]: too large and DF set (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
}

/// Common header of all ICMPv6 messages, 4 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct Icmpv6 {
    /// Type of the message, such as [`Icmpv6::NEIGHBOR_SOLICITATION`].
    pub message_type: u8,
    /// Code, which refines the type.
    pub code: u8,
    /// Checksum over pseudo header and message.
    pub checksum: U16,
}

impl Icmpv6 {
    /// Length of the header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// Type: destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Type: packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Type: time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Type: parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Type: echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Type: echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Type: router solicitation.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Type: router advertisement.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Type: neighbor solicitation.
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Type: neighbor advertisement.
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
}

/// Neighbor solicitation (RFC 4861 clause 4.3) without its options, 24 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct NeighborSolicitation {
    /// Type 135, code 0.
    pub icmp: Icmpv6,
    /// Reserved, zero.
    pub reserved: U32,
    /// Address to be resolved.
    pub target: [u8; 16],
}

/// Neighbor advertisement (RFC 4861 clause 4.4) without its options, 24 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct NeighborAdvertisement {
    /// Type 136, code 0.
    pub icmp: Icmpv6,
    /// [`NeighborAdvertisement::ROUTER`], `SOLICITED`, `OVERRIDE`, then 29 zero bits.
    pub flags: U32,
    /// Address that the sender owns.
    pub target: [u8; 16],
}

impl NeighborAdvertisement {
    /// Flag: the sender is a router.
    pub const ROUTER: u32 = 0x8000_0000;
    /// Flag: the message answers a solicitation.
    pub const SOLICITED: u32 = 0x4000_0000;
    /// Flag: the message overrides a cached address.
    pub const OVERRIDE: u32 = 0x2000_0000;
}

/// Link-layer address option of neighbor discovery (RFC 4861 clause 4.6.1) for Ethernet, 8 bytes.
#[derive(
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
)]
#[repr(C)]
pub struct LinkLayerAddress {
    /// [`LinkLayerAddress::SOURCE`] or [`LinkLayerAddress::TARGET`].
    pub option_type: u8,
    /// Length in units of 8 bytes, 1.
    pub length: u8,
    /// Link-layer address.
    pub address: MacAddress,
}

impl LinkLayerAddress {
    /// Option type: address of the sender.
    pub const SOURCE: u8 = 1;
    /// Option type: address of the target.
    pub const TARGET: u8 = 2;
}
