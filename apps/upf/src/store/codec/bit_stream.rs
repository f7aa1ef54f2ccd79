//! Bit stream of encoded sessions, and the encoding of plain values in it.
//!
//! The first bit is the lowest bit of the first byte. A reader accepts any bytes and returns `None`
//! at their end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum number of elements of a list. This program writes no longer ones.
const MOST: u64 = 1 << 14;
/// Maximum number of bytes of a text. No session is longer.
const TEXT: u64 = 1 << 17;

/// Value that can be encoded into a session record and decoded from any bytes.
pub(super) trait Stored: Sized {
    fn put(&self, to: &mut BitWriter);
    fn get(from: &mut BitReader<'_>) -> Option<Self>;
}

/// Implements `Stored` for structs, field by field.
macro_rules! stored {
    ($($type:ty { $($field:ident),* $(,)? })*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                $(self.$field.put(to);)*
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                Some(Self { $($field: Stored::get(from)?),* })
            }
        }
    )* };
}
pub(super) use stored;

/// Implements `Stored` for integers in variable length.
macro_rules! numbers {
    ($($type:ty),*) => { $(
        impl Stored for $type {
            fn put(&self, to: &mut BitWriter) {
                to.number(u64::from(*self));
            }

            fn get(from: &mut BitReader<'_>) -> Option<Self> {
                <$type>::try_from(from.number()?).ok()
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64);

impl Stored for bool {
    fn put(&self, to: &mut BitWriter) {
        to.put(u64::from(*self), 1);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(from.get(1)? == 1)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn put(&self, to: &mut BitWriter) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(if bool::get(from)? { Some(T::get(from)?) } else { None })
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn put(&self, to: &mut BitWriter) {
        (!self.is_empty()).put(to);
        if !self.is_empty() {
            to.number(self.len() as u64);
            self.iter().for_each(|item| item.put(to));
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let mut items = Self::new();
        if bool::get(from)? {
            let count = from.number().filter(|count| *count <= MOST)?;
            // Corrupt input must not cause a large allocation.
            items.reserve_exact(count.min(8) as usize);
            for _ in 0..count {
                items.push(T::get(from)?);
            }
        }
        Some(items)
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn put(&self, to: &mut BitWriter) {
        self.0.put(to);
        self.1.put(to);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some((A::get(from)?, B::get(from)?))
    }
}

impl Stored for [u64; 4] {
    fn put(&self, to: &mut BitWriter) {
        self.iter().for_each(|word| to.number(*word));
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some([from.number()?, from.number()?, from.number()?, from.number()?])
    }
}

/// Digits take 4 bits, all other characters 8.
impl Stored for String {
    fn put(&self, to: &mut BitWriter) {
        let digits = self.bytes().all(|byte| byte.is_ascii_digit());
        digits.put(to);
        to.number(self.len() as u64);
        for byte in self.bytes() {
            if digits { to.put(u64::from(byte - b'0'), 4) } else { to.put(u64::from(byte), 8) }
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        let digits = bool::get(from)?;
        let count = from.number().filter(|count| *count <= TEXT)?;
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.push(match digits {
                true => b'0' + from.get(4).filter(|digit| *digit < 10)? as u8,
                false => from.get(8)? as u8,
            });
        }
        Self::from_utf8(bytes).ok()
    }
}

impl Stored for Ipv4Addr {
    fn put(&self, to: &mut BitWriter) {
        to.put(u64::from(self.to_bits()), 32);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::from_bits(from.get(32)? as u32))
    }
}

impl Stored for Ipv6Addr {
    fn put(&self, to: &mut BitWriter) {
        to.put((self.to_bits() >> 64) as u64, 64);
        to.number(self.to_bits() as u64);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::from_bits(u128::from(from.get(64)?) << 64 | u128::from(from.number()?)))
    }
}

impl Stored for IpAddr {
    fn put(&self, to: &mut BitWriter) {
        self.is_ipv6().put(to);
        match self {
            Self::V4(address) => address.put(to),
            Self::V6(address) => address.put(to),
        }
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(if bool::get(from)? {
            Ipv6Addr::get(from)?.into()
        } else {
            Ipv4Addr::get(from)?.into()
        })
    }
}

impl Stored for SocketAddr {
    fn put(&self, to: &mut BitWriter) {
        self.ip().put(to);
        self.port().put(to);
    }

    fn get(from: &mut BitReader<'_>) -> Option<Self> {
        Some(Self::new(IpAddr::get(from)?, u16::get(from)?))
    }
}

/// Writer of a bit stream.
#[derive(Debug, Default)]
pub(super) struct BitWriter {
    /// Version of the format.
    format: u8,
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, the first one lowest.
    rest: u128,
    /// Number of bits in `rest`.
    count: u32,
}

impl BitWriter {
    /// Creates a writer in a version of the format that clears and fills a buffer.
    pub(super) fn into(format: u8, mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        Self { format, bytes, rest: 0, count: 0 }
    }

    /// Returns the version of the format.
    pub(super) const fn format(&self) -> u8 {
        self.format
    }

    /// Appends the lower `bits` of a value, at most 64.
    pub(super) fn put(&mut self, value: u64, bits: u32) {
        debug_assert!(bits <= 64 && (bits == 64 || value >> bits == 0), "{value} in {bits} bits");
        self.rest |= u128::from(value) << self.count;
        self.count += bits;
        if self.count >= 64 {
            self.bytes.extend_from_slice(&(self.rest as u64).to_le_bytes());
            self.rest >>= 64;
            self.count -= 64;
        }
    }

    /// Appends a number in variable length: its size in 6 bits, then the bits below its highest
    /// one.
    pub(super) fn number(&mut self, value: u64) {
        match 64 - value.leading_zeros() {
            0 => self.put(0, 6),
            size @ 1..=62 => {
                self.put(u64::from(size), 6);
                self.put(value & ((1 << (size - 1)) - 1), size - 1);
            }
            _ => {
                self.put(63, 6);
                self.put(value, 64);
            }
        }
    }

    /// Returns the bytes, padded to a whole byte.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let bytes = self.count.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.rest.to_le_bytes()[..bytes]);
        self.bytes
    }
}

/// Reader of a bit stream.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    /// Version of the format.
    format: u8,
    bytes: &'a [u8],
    /// Position in bits.
    at: usize,
}

impl<'a> BitReader<'a> {
    /// Creates a reader of bytes in a version of the format.
    pub(super) const fn of(format: u8, bytes: &'a [u8]) -> Self {
        Self { format, bytes, at: 0 }
    }

    /// Returns the version of the format.
    pub(super) const fn format(&self) -> u8 {
        self.format
    }

    /// Reads `bits` bits, at most 64. Returns `None` if fewer are left.
    #[inline]
    pub(super) fn get(&mut self, bits: u32) -> Option<u64> {
        debug_assert!(bits <= 64);
        let (first, skip) = (self.at / 8, self.at as u32 % 8);
        // All sessions are read at each start. Most fields lie within one word.
        let word = match self.bytes.get(first..).and_then(|rest| rest.first_chunk()) {
            Some(word) if skip + bits <= 64 => u64::from_le_bytes(*word) >> skip,
            _ => self.word(first, skip, bits)?,
        };
        self.at += bits as usize;
        Some(word & u64::MAX.checked_shr(64 - bits).unwrap_or(0))
    }

    /// Reads a word that spans nine bytes or is near the end.
    #[cold]
    fn word(&self, first: usize, skip: u32, bits: u32) -> Option<u64> {
        let rest = self.bytes.get(first..)?;
        if (skip + bits) as usize > 8 * rest.len() {
            return None;
        }
        let mut bytes = [0; 16];
        let length = rest.len().min(16);
        bytes[..length].copy_from_slice(&rest[..length]);
        Some((u128::from_le_bytes(bytes) >> skip) as u64)
    }

    /// Reads a number that [`BitWriter::number`] wrote.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        match self.get(6)? as u32 {
            0 => Some(0),
            63 => self.get(64),
            size => Some(1 << (size - 1) | self.get(size - 1)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_put_is_got(values in prop::collection::vec((any::<u64>(), 0_u32..=64), 0..50)) {
            let mut to = BitWriter::default();
            let cut = |value: u64, bits: u32| value & u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            for (value, bits) in &values {
                to.put(cut(*value, *bits), *bits);
                to.number(cut(*value, *bits));
            }
            let bytes = to.finish();
            let mut from = BitReader::of(0, &bytes);
            for (value, bits) in &values {
                prop_assert_eq!(from.get(*bits), Some(cut(*value, *bits)));
                prop_assert_eq!(from.number(), Some(cut(*value, *bits)));
            }
            prop_assert!(from.get(8).is_none());
        }
    }
}
