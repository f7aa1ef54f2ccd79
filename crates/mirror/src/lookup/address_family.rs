//! Differences between IPv4 and IPv6 in a lookup.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_table::{Lpm4Reader, Lpm6Reader, LpmReader};

use super::super::FallbackReason;
use super::super::records::AddressKey;
use super::PrefixReaders;

/// Address type of a lookup: `Ipv4Addr` or `Ipv6Addr`.
pub trait Family: fastlane_table::Address {
    /// True for IPv6.
    const IPV6: bool;
    /// Returns the prefix table of the family.
    fn readers(routes: &PrefixReaders) -> &LpmReader<Self>
    where
        Self: Sized;
    /// Returns the table key of the address.
    fn key(self) -> AddressKey;
    /// Returns the reason why packets to this address are never forwarded, if there is one.
    fn unroutable(self) -> Option<FallbackReason>;
}

impl Family for Ipv4Addr {
    const IPV6: bool = false;

    #[inline]
    fn readers(routes: &PrefixReaders) -> &Lpm4Reader {
        &routes.v4
    }

    #[inline]
    fn key(self) -> AddressKey {
        AddressKey::v4(self.octets())
    }

    /// Applies RFC 6890 and RFC 1112.
    #[inline]
    fn unroutable(self) -> Option<FallbackReason> {
        match self.octets() {
            [0 | 127, ..] => Some(FallbackReason::Martian),
            [224..=239, ..] => Some(FallbackReason::Multicast),
            [255, 255, 255, 255] => Some(FallbackReason::Broadcast),
            [240..=255, ..] => Some(FallbackReason::Martian),
            _ => None,
        }
    }
}

impl Family for Ipv6Addr {
    const IPV6: bool = true;

    #[inline]
    fn readers(routes: &PrefixReaders) -> &Lpm6Reader {
        &routes.v6
    }

    #[inline]
    fn key(self) -> AddressKey {
        AddressKey::v6(self.octets())
    }

    /// Applies RFC 4291: multicast, link-local, loopback, unspecified and IPv4-mapped addresses.
    #[inline]
    fn unroutable(self) -> Option<FallbackReason> {
        match self.segments() {
            [0xff00..=0xffff, ..] => Some(FallbackReason::Multicast),
            [0xfe80..=0xfebf, ..] => Some(FallbackReason::Martian),
            [0, 0, 0, 0, 0, 0, 0, 0 | 1] | [0, 0, 0, 0, 0, 0xffff, _, _] => {
                Some(FallbackReason::Martian)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_addresses_are_never_forwarded_to() {
        let four = |text: &str| text.parse::<Ipv4Addr>().unwrap().unroutable();
        assert_eq!(four("10.0.0.1"), None);
        assert_eq!(four("223.255.255.255"), None);
        assert_eq!(four("0.1.2.3"), Some(FallbackReason::Martian));
        assert_eq!(four("127.0.0.1"), Some(FallbackReason::Martian));
        assert_eq!(four("239.1.1.1"), Some(FallbackReason::Multicast));
        assert_eq!(four("240.0.0.1"), Some(FallbackReason::Martian));
        assert_eq!(four("255.255.255.255"), Some(FallbackReason::Broadcast));
        let six = |text: &str| text.parse::<Ipv6Addr>().unwrap().unroutable();
        assert_eq!(six("2001:db8::1"), None);
        assert_eq!(six("fec0::1"), None);
        assert_eq!(six("::2"), None);
        assert_eq!(six("::"), Some(FallbackReason::Martian));
        assert_eq!(six("::1"), Some(FallbackReason::Martian));
        assert_eq!(six("::ffff:10.0.0.1"), Some(FallbackReason::Martian));
        assert_eq!(six("fe80::1"), Some(FallbackReason::Martian));
        assert_eq!(six("febf::1"), Some(FallbackReason::Martian));
        assert_eq!(six("ff02::1"), Some(FallbackReason::Multicast));
    }
}
