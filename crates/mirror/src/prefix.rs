//! IP prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the longest IPv4 and IPv6 prefix, in bits.
const LONGEST: [u8; 2] = [32, 128];

/// An IPv4 or IPv6 prefix; the bits after its length are zero. Ordered by address, and a shorter
/// prefix comes before the longer ones that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns the prefix of `length` bits that contains `address`. A greater length than the
    /// address has means the address itself.
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

    /// Returns the prefix of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self { address, length: LONGEST[usize::from(address.is_ipv6())] }
    }

    /// Returns the first address.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the last address.
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

    /// Returns the length in bits.
    #[must_use]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Returns true if the prefix is a single address.
    #[must_use]
    pub fn is_host(&self) -> bool {
        self.length == LONGEST[usize::from(self.is_ipv6())]
    }

    /// Returns true for IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }

    /// Returns true if all addresses of `other` are in this prefix.
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
