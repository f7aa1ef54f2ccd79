//! Parse errors.

use std::fmt;

/// Header at which parsing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderName {
    /// Ethernet header ([`Ethernet`](crate::Ethernet)).
    Ethernet,
    /// VLAN tag ([`Vlan`](crate::Vlan)).
    Vlan,
    /// ARP packet ([`Arp`](crate::Arp)).
    Arp,
    /// IPv4 header with options ([`Ipv4`](crate::Ipv4)).
    Ipv4,
    /// IPv6 header ([`Ipv6`](crate::Ipv6)).
    Ipv6,
    /// An IPv6 extension header.
    Ipv6Extension,
    /// TCP header without options ([`Tcp`](crate::Tcp)).
    Tcp,
    /// UDP header ([`Udp`](crate::Udp)).
    Udp,
    /// ICMP header ([`Icmp`](crate::Icmp)).
    Icmp,
    /// ICMPv6 header ([`Icmpv6`](crate::Icmpv6)).
    Icmpv6,
    /// GTP-U header with the optional part ([`GtpU`](crate::GtpU)).
    GtpU,
    /// A GTP-U extension header.
    GtpUExtension,
}

impl fmt::Display for HeaderName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ethernet => "Ethernet header",
            Self::Vlan => "VLAN tag",
            Self::Arp => "ARP packet",
            Self::Ipv4 => "IPv4 header",
            Self::Ipv6 => "IPv6 header",
            Self::Ipv6Extension => "IPv6 extension header",
            Self::Tcp => "TCP header",
            Self::Udp => "UDP header",
            Self::Icmp => "ICMP header",
            Self::Icmpv6 => "ICMPv6 header",
            Self::GtpU => "GTP-U header",
            Self::GtpUExtension => "GTP-U extension header",
        })
    }
}

/// Reason why bytes do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// Bytes that end before the end of this header.
    Short(HeaderName),
    /// Header with an unsupported version.
    Version(HeaderName),
    /// Header whose length field is smaller than the header.
    Length(HeaderName),
    /// More headers of this kind in a row than the parser walks.
    TooMany(HeaderName),
    /// Header that ends beyond byte 65535.
    TooFar(HeaderName),
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(name) => write!(formatter, "the {name} is cut short"),
            Self::Version(name) => write!(formatter, "the {name} has the wrong version"),
            Self::Length(name) => write!(formatter, "the {name} gives a length that is too small"),
            Self::TooMany(name) => write!(formatter, "the {name} is one of too many"),
            Self::TooFar(name) => write!(formatter, "the {name} ends beyond byte 65535"),
        }
    }
}

impl std::error::Error for ParseError {}
