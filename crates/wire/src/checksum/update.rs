//! Checksums changed by what changed under them (RFC 1624, equation 3).
//!
//! The result is the one that a full computation over the new data would give, unless all of the
//! new data is zero, which no packet is.

use super::{Sum, fold_u32};

/// The checksum after a 16-bit field changed from `old` to `new`, about 1 ns. A UDP checksum of 0
/// (none) must stay 0, and for UDP the result goes through [`udp`](super::udp).
#[inline]
#[must_use]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    !fold_u32(!checksum as u32 + !old as u32 + new as u32)
}

/// The checksum after a 32-bit field changed from `old` to `new`. As [`update_u16`].
#[inline]
#[must_use]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    // 0xffff a term, five terms: below 2^32.
    let removed = (!old >> 16) + (!old & 0xffff);
    let added = (new >> 16) + (new & 0xffff);
    !fold_u32(!checksum as u32 + removed + added)
}

/// The checksum after the bytes `old` were replaced by `new`: addresses, or a header of another
/// length. Both begin at an even place in what the checksum covers, and an odd number of bytes is
/// allowed only at its end. As [`update_u16`].
#[inline]
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update_u16(checksum, Sum::new().add_bytes(old).fold(), Sum::new().add_bytes(new).fold())
}
