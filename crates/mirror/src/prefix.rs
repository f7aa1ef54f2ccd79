//! A set of addresses that begin alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest prefix of the two families, in bits.
const LONGEST: [u8; 2] = [32, 128];

/// A prefix of IPv4 or IPv6: the bits behind its length are zeroes. Those of one family are in the
/// order of their addresses, a shorter one before the longer ones that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The prefix of this length, in bits, that an address lies in; a length that is longer than
    /// the address means the address alone.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let length = length.min(LONGEST[usize::from(address.is_ipv6())]);
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        };
        Self { address, length }
    }

    /// One address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: LONGEST[usize::from(address.is_ipv6())] }
    }

    /// Its first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The last of its addresses.
    #[must_use]
    pub fn last(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let rest = u32::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() | rest))
            }
            IpAddr::V6(address) => {
                let rest = u128::MAX.checked_shr(u32::from(self.length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() | rest))
            }
        }
    }

    /// How many bits are alike.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is one address alone.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.length == LONGEST[usize::from(self.is_ipv6())]
    }

    /// Whether it is of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Whether all addresses of `other` lie in this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.is_ipv6() == other.is_ipv6()
            && self.length <= other.length
            && Self::new(other.address, self.length) == *self
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse().unwrap(), length.parse().unwrap())
    }

    #[test]
    fn the_bits_behind_the_length_are_zeroes() {
        assert_eq!(prefix("10.1.2.3/8").to_string(), "10.0.0.0/8");
        assert_eq!(prefix("10.1.2.3/0").to_string(), "0.0.0.0/0");
        assert_eq!(prefix("10.1.2.3/200").to_string(), "10.1.2.3/32");
        assert_eq!(prefix("2001:db8::1/32").to_string(), "2001:db8::/32");
        assert_eq!(prefix("2001:db8::1/0").to_string(), "::/0");
        assert_eq!(prefix("10.1.0.0/16").last().to_string(), "10.1.255.255");
        assert_eq!(prefix("::/0").last(), IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));
        assert_eq!(prefix("::1/128").last().to_string(), "::1");
    }

    #[test]
    fn covering_takes_the_family_and_the_bits() {
        assert!(prefix("10.0.0.0/8").covers(&prefix("10.1.0.0/16")));
        assert!(prefix("10.0.0.0/8").covers(&prefix("10.0.0.0/8")));
        assert!(!prefix("10.1.0.0/16").covers(&prefix("10.0.0.0/8")));
        assert!(!prefix("0.0.0.0/0").covers(&prefix("::/0")));
        assert!(prefix("10.0.0.0/8") < prefix("10.0.0.0/9"));
        assert!(Prefix::host("10.0.0.1".parse().unwrap()).is_host());
    }
}
