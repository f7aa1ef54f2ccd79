//! Internet checksums (RFC 1071): full computation, incremental update (RFC 1624), and the partial
//! checksums that Linux leaves for a device to complete.
//!
//! A checksum is a `u16` as a header's checksum field gives it: `field.get()`, `field.set(..)`.
//!
//! # Examples
//! ```
//! use fastlane_wire::checksum::{checksum, update_u16};
//!
//! let mut bytes = [0x12, 0x34, 0x56, 0x78];
//! let full = checksum(&bytes);
//! bytes[..2].copy_from_slice(&0xabcd_u16.to_be_bytes());
//! assert_eq!(update_u16(full, 0x1234, 0xabcd), checksum(&bytes));
//! ```

mod partial;
mod transport;
mod update;

pub use partial::{Partial, complete_partial, find_partial, make_partial};
pub use transport::{
    ChecksumError, fill_ipv4_header, fill_transport, verify_ipv4_header, verify_transport,
};
pub use update::{Difference, update, update_u16, update_u32};

/// Ones' complement sum in progress. Takes about 0.02 ns per byte, at least 3 ns.
///
/// It sums in the machine's byte order, which gives the same sum (RFC 1071 clause 2(B)), and swaps
/// the result at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Creates a sum of zero.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Creates the sum of the IPv4 pseudo header (RFC 9293 clause 3.1, RFC 768). `length` is the
    /// length of the transport header and its data.
    #[inline]
    #[must_use]
    pub fn pseudo_ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, length: u16) -> Self {
        // Four values below 2^32 cannot overflow.
        Self(
            u64::from(u32::from_ne_bytes(source))
                + u64::from(u32::from_ne_bytes(destination))
                + u64::from(u16::from(protocol).to_be())
                + u64::from(length.to_be()),
        )
    }

    /// Creates the sum of the IPv6 pseudo header (RFC 8200 clause 8.1). `next_header` is the
    /// transport protocol, `destination` the final one, `length` that of the transport header and
    /// its data.
    #[inline]
    #[must_use]
    pub fn pseudo_ipv6(
        source: &[u8; 16],
        destination: &[u8; 16],
        next_header: u8,
        length: u32,
    ) -> Self {
        Self::new()
            .add_bytes(source)
            .add_bytes(destination)
            .add_u16(u16::from(next_header))
            .add_u32(length)
    }

    /// Adds `data`. All additions but the last must have an even number of bytes; an odd last byte
    /// is padded with a zero.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, data: &[u8]) -> Self {
        // Four independent sums: in a single one each addition would wait for the previous carry.
        let mut sums = [self.0, 0, 0, 0];
        let (blocks, rest) = data.as_chunks::<32>();
        for block in blocks {
            for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
                *sum = add_carry(*sum, u64::from_ne_bytes(*word));
            }
        }
        let [a, b, c, d] = sums;
        let mut sum = add_carry(add_carry(a, b), add_carry(c, d));
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sum = add_carry(sum, u64::from_ne_bytes(*word));
        }
        let (halves, rest) = rest.as_chunks::<2>();
        for half in halves {
            sum = add_carry(sum, u64::from(u16::from_ne_bytes(*half)));
        }
        if let [last] = rest {
            sum = add_carry(sum, u64::from(u16::from_ne_bytes([*last, 0])));
        }
        Self(sum)
    }

    /// Adds a header whose length is known at compile time.
    #[inline(always)]
    #[must_use]
    pub fn add_header<const N: usize>(self, header: &[u8; N]) -> Self {
        // Fewer than 2^32 terms cannot overflow, and only the first sum may be large.
        let (words, rest) = header.as_chunks::<4>();
        let sum = words.iter().fold(0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)));
        Self(add_carry(self.0, sum)).add_bytes(rest)
    }

    /// Adds a 16-bit field.
    #[inline]
    #[must_use]
    pub const fn add_u16(self, value: u16) -> Self {
        Self(add_carry(self.0, value.to_be() as u64))
    }

    /// Adds a 32-bit field.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, value: u32) -> Self {
        Self(add_carry(self.0, value.to_be() as u64))
    }

    /// Returns the sum in 16 bits, not complemented. It is 0 only if all added data is zero, and
    /// 0xffff for data with a correct checksum.
    #[inline]
    #[must_use]
    pub const fn fold(self) -> u16 {
        // As in `fold_u32`, with halves of 32 bits.
        let both = self.0.wrapping_add(self.0.rotate_left(32));
        u16::from_be(fold_u32((both >> 32) as u32))
    }

    /// Returns the checksum: the complement of the folded sum.
    #[inline]
    #[must_use]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }
}

/// Returns the checksum of `data`.
#[inline]
#[must_use]
pub fn checksum(data: &[u8]) -> u16 {
    Sum::new().add_bytes(data).checksum()
}

/// Converts a checksum to its form in UDP, where 0 means no checksum. 0 becomes 0xffff, which is
/// equal in ones' complement (RFC 768).
#[inline]
#[must_use]
pub const fn udp(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Adds with end-around carry.
#[inline]
const fn add_carry(sum: u64, value: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(value);
    sum.wrapping_add(carry as u64)
}

/// Folds to 16 bits, without changing the byte order.
#[inline]
const fn fold_u32(sum: u32) -> u16 {
    // Adds the halves to each other in both places: the carry of the lower ones is the end-around
    // carry of the upper ones.
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}
