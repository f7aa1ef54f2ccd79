//! IPv6 (RFC 8200) and its extension headers.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IPv6 header, 40 bytes.
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
pub struct Ipv6 {
    /// Version (4 bits), traffic class (8 bits), flow label (20 bits).
    pub version_class_flow: U32,
    /// Number of bytes after this header, including extension headers.
    pub payload_length: U16,
    /// Type of the next header, an [`IpProtocol`](crate::IpProtocol): an extension header or an
    /// upper-layer protocol.
    pub next_header: u8,
    /// Remaining hops.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address, or the next hop if a routing header follows.
    pub destination: [u8; 16],
}

impl Ipv6 {
    /// Length without extension headers, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Returns the version, 6 in a valid header.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// Returns the traffic class: DSCP (6 bits) and ECN (2 bits).
    #[inline]
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[inline]
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0x000f_ffff
    }
}

/// First bytes of a hop-by-hop, routing or destination options header (RFC 8200 clauses 4.3, 4.4
/// and 4.6). The whole header has [`Ipv6Extension::header_length`] bytes.
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
pub struct Ipv6Extension {
    /// Type of the next header.
    pub next_header: u8,
    /// Length in units of 8 bytes, not counting the first 8.
    pub length: u8,
    /// Options, or a routing header's type and segments left.
    pub data: [u8; 6],
}

impl Ipv6Extension {
    /// Minimum length, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Returns the length of the whole extension header in bytes, 8 to 2048.
    #[inline]
    #[must_use]
    pub const fn header_length(&self) -> usize {
        (self.length as usize + 1) * 8
    }

    /// Returns the segments left of a routing header: hops before the final destination.
    #[inline]
    #[must_use]
    pub const fn segments_left(&self) -> u8 {
        self.data[1]
    }
}

/// Fragment header (RFC 8200 clause 4.5), 8 bytes.
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
pub struct Ipv6Fragment {
    /// Type of the next header of the whole packet.
    pub next_header: u8,
    /// Reserved, zero.
    pub reserved: u8,
    /// Fragment offset (13 bits), reserved (2 bits), more fragments (1 bit).
    pub offset_flags: U16,
    /// Identification, equal in all fragments of a packet.
    pub identification: U32,
}

impl Ipv6Fragment {
    /// Length of the header, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Returns the offset of this fragment's data in the packet's fragmentable part, in bytes.
    #[inline]
    #[must_use]
    pub const fn fragment_offset(&self) -> u16 {
        self.offset_flags.get() & 0xfff8
    }

    /// Returns the M flag: this fragment is not the last.
    #[inline]
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.offset_flags.get() & 1 != 0
    }
}

/// Fixed part of an authentication header (RFC 4302 clause 2), 12 bytes. The integrity check value
/// follows it.
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
pub struct Ipv6Authentication {
    /// Type of the next header.
    pub next_header: u8,
    /// Length in units of 4 bytes, minus 2.
    pub payload_length: u8,
    /// Reserved, zero.
    pub reserved: U16,
    /// Identifier of the security association.
    pub security_parameters_index: U32,
    /// Sequence number against replay.
    pub sequence_number: U32,
}

impl Ipv6Authentication {
    /// Minimum length, in bytes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Returns the length of the whole header in bytes, 12 to 1028 in a valid one.
    #[inline]
    #[must_use]
    pub const fn header_length(&self) -> usize {
        (self.payload_length as usize + 2) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_comes_apart() {
        let ipv6 = Ipv6 { version_class_flow: U32::new(0x6ba1_2345), ..Ipv6::default() };
        assert_eq!((ipv6.version(), ipv6.traffic_class(), ipv6.flow_label()), (6, 0xba, 0x1_2345));
    }

    #[test]
    fn a_fragment_header_comes_apart() {
        let fragment = Ipv6Fragment { offset_flags: U16::new(0x05c1), ..Ipv6Fragment::default() };
        assert_eq!((fragment.fragment_offset(), fragment.more_fragments()), (1472, true));
    }
}
