//! IPv4 (RFC 791) and IP protocol numbers.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// IPv4 header without its options, 20 bytes. Options extend it to [`Ipv4::header_length`].
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
pub struct Ipv4 {
    /// Version (4 bits) and internet header length (4 bits).
    pub version_ihl: u8,
    /// Type of service: DSCP (6 bits, RFC 2474) and ECN (2 bits, RFC 3168).
    pub type_of_service: u8,
    /// Length of header and data, in bytes.
    pub total_length: U16,
    /// Identification, equal in all fragments of a datagram.
    pub identification: U16,
    /// Flags (3 bits) and fragment offset (13 bits).
    pub flags_fragment_offset: U16,
    /// Remaining hops.
    pub time_to_live: u8,
    /// Protocol of the payload, an [`IpProtocol`].
    pub protocol: u8,
    /// Checksum over the header with its options.
    pub header_checksum: U16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4 {
    /// Length without options, in bytes.
    pub const LENGTH: usize = size_of::<Self>();
    /// First byte of a header without options: version 4, five words of 32 bits.
    pub const WITHOUT_OPTIONS: u8 = 0x45;

    /// Returns the version, 4 in a valid header.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Returns the internet header length in words of 4 bytes, 5 to 15 in a valid header.
    #[inline]
    #[must_use]
    pub const fn ihl(&self) -> u8 {
        self.version_ihl & 0x0f
    }

    /// Returns the length of header and options in bytes, 20 to 60 in a valid header.
    #[inline]
    #[must_use]
    pub const fn header_length(&self) -> usize {
        self.ihl() as usize * 4
    }

    /// Returns true if there are options.
    #[inline]
    #[must_use]
    pub const fn has_options(&self) -> bool {
        self.ihl() > 5
    }

    /// Returns the differentiated services code point (RFC 2474).
    #[inline]
    #[must_use]
    pub const fn dscp(&self) -> u8 {
        self.type_of_service >> 2
    }

    /// Returns the DF flag: routers may not fragment the datagram.
    #[inline]
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.flags_fragment_offset.get() & 0x4000 != 0
    }

    /// Returns the MF flag: this fragment is not the last.
    #[inline]
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.flags_fragment_offset.get() & 0x2000 != 0
    }

    /// Returns true if this is a fragment: not the whole datagram.
    #[inline]
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        self.flags_fragment_offset.get() & 0x3fff != 0
    }

    /// Returns the offset of this fragment's data in the datagram, in bytes.
    #[inline]
    #[must_use]
    pub const fn fragment_offset(&self) -> u16 {
        (self.flags_fragment_offset.get() & 0x1fff) << 3
    }
}

/// Protocol numbers (IANA, Assigned Internet Protocol Numbers), which are also the next header
/// values of IPv6. A namespace: the values are `u8`.
#[derive(Debug)]
pub enum IpProtocol {}

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// IGMP (RFC 3376).
    pub const IGMP: u8 = 2;
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP (RFC 9293).
    pub const TCP: u8 = 6;
    /// UDP (RFC 768).
    pub const UDP: u8 = 17;
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: u8 = 41;
    /// IPv6 routing header (RFC 8200).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header (RFC 8200).
    pub const FRAGMENT: u8 = 44;
    /// GRE (RFC 2784).
    pub const GRE: u8 = 47;
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// No next header (RFC 8200).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options (RFC 8200).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP (RFC 9260).
    pub const SCTP: u8 = 132;

    /// Returns true if `protocol` is an extension header of IPv6 that parsers skip (RFC 8200 clause
    /// 4). ESP is not, because the data after it is encrypted.
    #[inline]
    #[must_use]
    pub const fn is_ipv6_extension(protocol: u8) -> bool {
        matches!(
            protocol,
            Self::HOP_BY_HOP
                | Self::ROUTING
                | Self::FRAGMENT
                | Self::AUTHENTICATION
                | Self::DESTINATION_OPTIONS
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_offset_come_apart() {
        let mut ipv4 = Ipv4 { version_ihl: 0x46, ..Ipv4::default() };
        assert_eq!((ipv4.version(), ipv4.header_length(), ipv4.has_options()), (4, 24, true));
        ipv4.flags_fragment_offset = U16::new(0x20b9);
        assert!(ipv4.more_fragments() && !ipv4.dont_fragment());
        assert_eq!(ipv4.fragment_offset(), 1480);
        ipv4.flags_fragment_offset = U16::new(0x5fff);
        assert!(!ipv4.more_fragments() && ipv4.dont_fragment());
        assert_eq!(ipv4.fragment_offset(), 65528);
    }
}
