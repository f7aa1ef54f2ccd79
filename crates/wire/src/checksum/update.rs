//! Incremental checksum update (RFC 1624, equation 3).
//!
//! The result equals a full computation over the new data, unless all of the new data is zero,
//! which never happens in a packet.

use super::{Sum, fold_u32};

/// Returns the checksum after a 16-bit field changed from `old` to `new`. Takes about 1 ns. A UDP
/// checksum of 0 (none) must stay 0; other UDP results must be passed to [`udp`](super::udp).
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold_u32(!checksum as u32 + !old as u32 + new as u32)
}

/// Returns the checksum after a 32-bit field changed from `old` to `new`; see [`update_u16`].
#[inline]
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    // Five terms of at most 0xffff stay below 2^32.
    let removed = (!old >> 16) + (!old & 0xffff);
    let added = (new >> 16) + (new & 0xffff);
    !fold_u32(!checksum as u32 + removed + added)
}

/// Ones' complement difference between replaced bytes and their replacement, for many updates by
/// the same change.
///
/// # Examples
/// ```
/// use fastlane_wire::checksum::{Difference, checksum};
///
/// let change = Difference::between(&[10, 0, 0, 1], &[192, 0, 2, 1]);
/// let (old, new) = ([10, 0, 0, 1, 7, 7], [192, 0, 2, 1, 7, 7]);
/// assert_eq!(change.update(checksum(&old)), checksum(&new));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Difference(
    /// A sum of 16-bit words, which is folded only where it is applied: 2^32 - 1 is a multiple of
    /// 2^16 - 1, so a carry out of 32 bits counts as 1, too.
    u32,
);

impl Difference {
    /// Creates the difference between the bytes `old` and the bytes `new`. Both begin at an even
    /// offset of the covered data, and their numbers are even.
    #[must_use]
    pub fn between(old: &[u8], new: &[u8]) -> Self {
        Self::of_u16(Sum::new().add_bytes(old).fold(), Sum::new().add_bytes(new).fold())
    }

    /// Creates the difference between two values of a 32-bit field.
    #[inline]
    #[must_use]
    pub const fn of_u32(old: u32, new: u32) -> Self {
        // Four terms of at most 0xffff stay below 2^32.
        Self((!old >> 16) + (!old & 0xffff) + (new >> 16) + (new & 0xffff))
    }

    /// Creates the difference between two values of a 16-bit field.
    #[inline]
    #[must_use]
    pub const fn of_u16(old: u16, new: u16) -> Self {
        Self(!old as u32 + new as u32)
    }

    /// Creates a difference from its [`bits`](Self::bits).
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits as u32)
    }

    /// Returns the difference as a number, for storage.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u16 {
        fold_u32(self.0)
    }

    /// Returns the difference of both changes together.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let (sum, carry) = self.0.overflowing_add(other.0);
        Self(sum + carry as u32)
    }

    /// Returns the difference of the opposite change.
    #[inline]
    #[must_use]
    pub const fn inverse(self) -> Self {
        Self(!self.0)
    }

    /// Returns the checksum after the change; see [`update_u16`].
    #[inline]
    #[must_use]
    pub const fn update(self, checksum: u16) -> u16 {
        !self.update_sum(!checksum)
    }

    /// Returns a sum that is not complemented, as a partial checksum is, after the change.
    #[inline]
    #[must_use]
    pub const fn update_sum(self, sum: u16) -> u16 {
        self.and(Self::from_bits(sum)).bits()
    }
}

/// Returns the checksum after the bytes `old` were replaced by `new`, such as addresses or a header
/// of another length; see [`update_u16`]. Both begin at an even offset of the covered data. Their
/// number may be odd only at its end.
#[inline]
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update_u16(checksum, Sum::new().add_bytes(old).fold(), Sum::new().add_bytes(new).fold())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_add_up_without_loss() {
        // 0xffff is zero in ones' complement arithmetic: each change leaves the checksum as it is.
        let nothing = Difference::of_u32(0, u32::MAX);
        let all = (0..100_000).fold(Difference::from_bits(7), |sum, _| sum.and(nothing));
        assert_eq!(all.bits(), 7);
        assert_eq!(all.and(all.inverse()).update(0x1234), 0x1234);
    }
}
