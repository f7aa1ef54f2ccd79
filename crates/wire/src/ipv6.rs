//! IPv6 (RFC 8200) and its extension headers.

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The IPv6 header, 40 bytes.
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
    /// Bytes after this header, extension headers included.
    pub payload_length: U16,
    /// What follows: an extension header or an upper-layer protocol, an
    /// [`IpProtocol`](crate::IpProtocol).
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Where it comes from.
    pub source: [u8; 16],
    /// Where it goes, or the next stop if a routing header follows.
    pub destination: [u8; 16],
}

impl Ipv6 {
    /// Bytes it takes without extension headers.
    pub const LENGTH: usize = size_of::<Self>();

    /// The version, 6 in a valid header.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        (self.version_class_flow.get() >> 28) as u8
    }

    /// The traffic class: DSCP (6 bits) and ECN (2 bits).
    #[inline]
    #[must_use]
    pub const fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// The flow label, 20 bits (RFC 6437).
    #[inline]
    #[must_use]
    pub const fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0x000f_ffff
    }
}

/// The first bytes of a hop-by-hop, routing or destination options header (RFC 8200 clauses 4.3,
/// 4.4 and 4.6), which is [`Ipv6Extension::header_length`] bytes long.
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
    /// What follows.
    pub next_header: u8,
    /// Length in units of 8 bytes, the first 8 not counted.
    pub length: u8,
    /// Options, or a routing header's type and segments left.
    pub data: [u8; 6],
}

impl Ipv6Extension {
    /// Bytes it takes at least.
    pub const LENGTH: usize = size_of::<Self>();

    /// Bytes of the whole extension header, 8 to 2048.
    #[inline]
    #[must_use]
    pub const fn header_length(&self) -> usize {
        (self.length as usize + 1) * 8
    }

    /// Of a routing header: stops yet to come before the final destination.
    #[inline]
    #[must_use]
    pub const fn segments_left(&self) -> u8 {
        self.data[1]
    }
}

/// The fragment header (RFC 8200 clause 4.5), 8 bytes.
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
    /// What follows in the whole packet.
    pub next_header: u8,
    /// Zero.
    pub reserved: u8,
    /// Fragment offset (13 bits), reserved (2 bits), more fragments (1 bit).
    pub offset_flags: U16,
    /// Same in all fragments of a packet.
    pub identification: U32,
}

impl Ipv6Fragment {
    /// Bytes it takes.
    pub const LENGTH: usize = size_of::<Self>();

    /// Where this fragment's data belongs in the packet's fragmentable part, in bytes.
    #[inline]
    #[must_use]
    pub const fn fragment_offset(&self) -> u16 {
        self.offset_flags.get() & 0xfff8
    }

    /// The M flag: this fragment is not the last.
    #[inline]
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.offset_flags.get() & 1 != 0
    }
}

/// The fixed part of an authentication header (RFC 4302 clause 2), 12 bytes; the integrity check
/// value follows it.
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
    /// What follows.
    pub next_header: u8,
    /// Length in units of 4 bytes, minus 2.
    pub payload_length: u8,
    /// Zero.
    pub reserved: U16,
    /// Names the security association.
    pub security_parameters_index: U32,
    /// Counts up, against replay.
    pub sequence_number: U32,
}

impl Ipv6Authentication {
    /// Bytes it takes at least.
    pub const LENGTH: usize = size_of::<Self>();

    /// Bytes of the whole header, 12 to 1028 in a valid one.
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
