//! Longest prefix match.
//!
//! ```text
//! page 0   header
//! index    the root: one word u32 per value of an address's first bits: 24 (IPv4), 16 (IPv6)
//! data     groups of 256 words, each for the next 8 bits
//! pairs    IPv6: two words for the next 8 bits: for the addresses inside, and for all others
//! routes   an exact-match table with its own header: prefix to value u32; the prefix is the
//!          address in network byte order, its length u8, and 3 (IPv4) or 7 (IPv6) zeros
//!
//! word     bit 31 a route: bits 29..22 length of its prefix, bits 21..0 its value
//!          bit 30 a group: bits 21..0 its number
//!          both a pair: bits 29..22 an octet of the addresses inside, bits 21..0 its number
//!          0 no route
//! ```
//! A pair takes 8 bytes, a group 1,024. It serves where one prefix is alone among the next 256
//! octets: its first word is that route, whose length tells which bits of the octet must be equal,
//! or a link for exactly this octet. Its second word is the route that covers all of them. A second
//! prefix there replaces the pair by a group.
//!
//! The route table is the content; the words are derived from it. If a writer is killed, the next
//! one repairs the words and changes only wrong ones. Each lookup returns the result from before a
//! change or after it. A group or pair is filled before it is linked. It is unlinked when all its
//! words are equal and could replace the word that links to it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::simd::Gather;
use crate::{Key, Kind};

mod lpm_attach;
mod lpm_reader;
mod lpm_writer;
mod trie;
mod word;

pub use lpm_reader::LpmReader;
pub use lpm_writer::LpmWriter;

/// Reader of a prefix table for IPv4 addresses.
pub type Lpm4Reader = LpmReader<Ipv4Addr>;
/// Reader of a prefix table for IPv6 addresses.
pub type Lpm6Reader = LpmReader<Ipv6Addr>;
/// Writer of a prefix table for IPv4 addresses.
pub type Lpm4Writer = LpmWriter<Ipv4Addr>;
/// Writer of a prefix table for IPv6 addresses.
pub type Lpm6Writer = LpmWriter<Ipv6Addr>;

/// An IPv4 or IPv6 address.
pub trait Address: Gather + Copy + Eq + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// Kind of the prefix tables for these addresses.
    const KIND: Kind;
    /// Number of bits of an address.
    const BITS: u8;
    /// Number of bits that the root resolves.
    const ROOT: u8;
    /// Key of a prefix in the route table.
    type Route: Key;
    /// Returns the address as a number whose most significant bit is the first bit.
    fn to_bits(self) -> u128;
    /// Converts from the number that [`to_bits`](Self::to_bits) returns.
    fn from_bits(bits: u128) -> Self;
    /// Returns the route table's key of a prefix.
    fn route(prefix: Prefix<Self>) -> Self::Route;
    /// Converts a route table's key to a prefix, or returns `None` if it is none.
    fn prefix(route: Self::Route) -> Option<Prefix<Self>>;
    /// Returns the index of the address in the root.
    fn root(self) -> usize;
    /// Returns the index of the address in a group of a level; the root links to level 0.
    fn step(self, level: usize) -> usize;
    /// Maximum depth of groups.
    const LEVELS: usize = (Self::BITS - Self::ROOT) as usize / 8;
}

impl Address for Ipv4Addr {
    const KIND: Kind = Kind::Lpm4;
    const BITS: u8 = 32;
    const ROOT: u8 = 24;
    type Route = [u8; 8];

    fn to_bits(self) -> u128 {
        u128::from(Self::to_bits(self)) << 96
    }

    fn from_bits(bits: u128) -> Self {
        Self::from_bits((bits >> 96) as u32)
    }

    fn route(prefix: Prefix<Self>) -> [u8; 8] {
        let [a, b, c, d] = prefix.address.octets();
        [a, b, c, d, prefix.length, 0, 0, 0]
    }

    fn prefix([a, b, c, d, length, ..]: [u8; 8]) -> Option<Prefix<Self>> {
        Prefix::new(Self::new(a, b, c, d), length)
    }

    #[inline(always)]
    fn root(self) -> usize {
        (Self::to_bits(self) >> 8) as usize
    }

    #[inline(always)]
    fn step(self, _level: usize) -> usize {
        (Self::to_bits(self) & 0xFF) as usize
    }
}

impl Address for Ipv6Addr {
    const KIND: Kind = Kind::Lpm6;
    const BITS: u8 = 128;
    const ROOT: u8 = 16;
    type Route = [u8; 24];

    fn to_bits(self) -> u128 {
        Self::to_bits(self)
    }

    fn from_bits(bits: u128) -> Self {
        Self::from_bits(bits)
    }

    fn route(prefix: Prefix<Self>) -> [u8; 24] {
        let mut route = [0; 24];
        route[..16].copy_from_slice(&prefix.address.octets());
        route[16] = prefix.length;
        route
    }

    fn prefix(route: [u8; 24]) -> Option<Prefix<Self>> {
        let (address, rest) = route.split_first_chunk::<16>()?;
        Prefix::new(Self::from(*address), rest[0])
    }

    #[inline(always)]
    fn root(self) -> usize {
        (Self::to_bits(self) >> 112) as usize
    }

    #[inline(always)]
    fn step(self, level: usize) -> usize {
        (Self::to_bits(self) >> (104 - 8 * level) & 0xFF) as usize
    }
}

/// Prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// Creates the prefix of the first `length` bits of `address`. Later bits are ignored. Returns
    /// `None` if `length` exceeds the length of an address.
    #[must_use]
    pub fn new(address: A, length: u8) -> Option<Self> {
        let mask = mask(length);
        let address = A::from_bits(address.to_bits() & mask);
        (length <= A::BITS).then_some(Self { address, length })
    }

    /// Returns the address, with zeros after the prefix.
    #[must_use]
    pub fn address(self) -> A {
        self.address
    }

    /// Returns the length, in bits.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns true if the prefix covers an address.
    #[must_use]
    pub fn contains(self, address: A) -> bool {
        address.to_bits() & mask(self.length) == self.address.to_bits()
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0)
}

#[cfg(test)]
mod tests;
