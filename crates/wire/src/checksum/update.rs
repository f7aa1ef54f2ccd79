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

/// Returns the checksum after the bytes `old` were replaced by `new`, such as addresses or a header
/// of another length; see [`update_u16`]. Both begin at an even offset of the covered data. Their
/// number may be odd only at its end.
#[inline]
#[must_use]
pub fn update(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    update_u16(checksum, Sum::new().add_bytes(old).fold(), Sum::new().add_bytes(new).fold())
}
