//! What is wrong with bytes that do not parse.

use std::fmt;

/// A header, named where parsing ends in an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderName {
    /// [`Ethernet`](crate::Ethernet).
    Ethernet,
    /// [`Vlan`](crate::Vlan).
    Vlan,
    /// [`Arp`](crate::Arp).
    Arp,
    /// [`Ipv4`](crate::Ipv4), options included.
    Ipv4,
    /// [`Ipv6`](crate::Ipv6).
    Ipv6,
    /// An IPv6 extension header.
    Ipv6Extension,
    /// [`Tcp`](crate::Tcp), without options.
    Tcp,
    /// [`Udp`](crate::Udp).
    Udp,
    /// [`Icmp`](crate::Icmp).
    Icmp,
    /// [`Icmpv6`](crate::Icmpv6).
    Icmpv6,
    /// [`GtpU`](crate::GtpU), the optional part included.
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

/// Why bytes do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes end before this header does.
    Short(HeaderName),
    /// This header's version is not the one it must be.
    Version(HeaderName),
    /// This header's length field is less than the header itself takes.
    Length(HeaderName),
    /// More of this header in a row than are walked.
    TooMany(HeaderName),
    /// What follows this header begins beyond byte 65535.
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
