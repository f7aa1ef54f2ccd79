//! Sides of a packet: that of the source, and that of the destination.

use fastlane::wire::Ipv4;

/// Address of a packet that is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Source: of packets of users.
    Source,
    /// Destination: of packets to users.
    Destination,
}

impl Side {
    /// Returns the address of the packet that an ICMP error quotes: it went the other way.
    pub(super) const fn quoted(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }

    /// Returns the offset of the address in an IPv4 header.
    pub(super) const fn address(self) -> usize {
        match self {
            Self::Source => 12,
            Self::Destination => 16,
        }
    }

    /// Returns the offset of the port in a transport header.
    pub(super) const fn port(self) -> usize {
        match self {
            Self::Source => 0,
            Self::Destination => 2,
        }
    }

    /// Returns the address of this side.
    #[inline(always)]
    pub(super) fn address_of(self, ip: &Ipv4) -> u32 {
        u32::from_be_bytes(self.of(ip.source, ip.destination))
    }

    /// Returns the address of this side for writing.
    #[inline(always)]
    pub(super) fn address_mut(self, ip: &mut Ipv4) -> &mut [u8; 4] {
        self.of(&mut ip.source, &mut ip.destination)
    }

    /// Returns the one of two fields that is this side's.
    #[inline(always)]
    pub(super) fn of<T>(self, source: T, destination: T) -> T {
        match self {
            Self::Source => source,
            Self::Destination => destination,
        }
    }
}
