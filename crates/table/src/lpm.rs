//! Longest prefix match.
//!
//! ```text
//! page 0   header
//! index    the root, a word u32 for each value of an address's first bits: 24 (IPv4), 16 (IPv6)
//! data     groups of 256 words, each for the next 8 bits
//! routes   an exact-match table with a header of its own: prefix to value u32; the prefix is the
//!          address as on the wire, its length u8, and 3 (IPv4) or 7 (IPv6) zeros
//!
//! word     bit 31 a route: bits 29..22 length of its prefix, bits 21..0 its value
//!          bit 30 a group: bits 21..0 its number
//!          0 nothing
//! ```
//! The routes are what the table holds; the words follow from them, and so can be put right by the
//! next writer when one is killed: only words that are wrong are changed. Each lookup finds what
//! was there before a change or after it. A group is filled before it is linked, and unlinked when
//! all its words are alike and would fit the word that links to it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::{Key, Kind};

mod lpm_attach;
mod lpm_reader;
mod lpm_writer;
mod trie;
mod word;

pub use lpm_reader::LpmReader;
pub use lpm_writer::LpmWriter;

/// Looks up IPv4 addresses.
pub type Lpm4Reader = LpmReader<Ipv4Addr>;
/// Looks up IPv6 addresses.
pub type Lpm6Reader = LpmReader<Ipv6Addr>;
/// Writes prefixes of IPv4.
pub type Lpm4Writer = LpmWriter<Ipv4Addr>;
/// Writes prefixes of IPv6.
pub type Lpm6Writer = LpmWriter<Ipv6Addr>;

/// An IPv4 or IPv6 address.
pub trait Address: Copy + Eq + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The kind of its tables.
    const KIND: Kind;
    /// Its bits.
    const BITS: u8;
    /// The bits that the root decides.
    const ROOT: u8;
    /// A prefix in the table of the routes.
    type Route: Key;
    /// The address, its first bit in the most significant one.
    fn to_bits(self) -> u128;
    /// From such bits.
    fn from_bits(bits: u128) -> Self;
    /// A prefix as a key.
    fn route(prefix: Prefix<Self>) -> Self::Route;
    /// A prefix from such a key; `None` if it is none.
    fn prefix(route: Self::Route) -> Option<Prefix<Self>>;
    /// The word of the root.
    fn root(self) -> usize;
    /// The word in the group of a level, 0 for those that the root links to.
    fn step(self, level: usize) -> usize;
    /// How deep groups can be.
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

/// The first bits of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The first `length` bits of `address`; the others are taken as zeros. `None` when an address
    /// has not so many.
    #[must_use]
    pub fn new(address: A, length: u8) -> Option<Self> {
        let mask = mask(length);
        let address = A::from_bits(address.to_bits() & mask);
        (length <= A::BITS).then_some(Self { address, length })
    }

    /// The address, zeros after the prefix.
    #[must_use]
    pub fn address(self) -> A {
        self.address
    }

    /// How many bits it has.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether the address begins with it.
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
