//! Frames: the right to one ([`Frame`]), the memory it lies in ([`RegionId`]), and the token that
//! names both in 64 bits: the bit of a moved window, 15 bits of the region, 48 of the frame.

use std::sync::atomic::{AtomicU16, Ordering};

/// Memory region of a frame: a lane's [`Pool`](crate::Pool), or memory of a driver that a pool has
/// [registered](crate::Pool::register_region). Unique in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RegionId(u16);

/// Next unused region number of the process.
static NEXT: AtomicU16 = AtomicU16::new(0);

impl RegionId {
    /// Bits of a token that identify a frame within its region: 48, enough for an address.
    pub const FRAME_MASK: u64 = (1 << Self::SHIFT) - 1;
    const SHIFT: u32 = 48;
    /// Region number of the token [`NO_FRAME`].
    const RESERVED: u16 = (MOVED >> Self::SHIFT) as u16 - 1;

    /// Allocates an identifier, or returns `None` if all were used. Identifiers are never reused,
    /// because a frame could then return to memory that it is not from.
    pub(crate) fn allocate() -> Option<Self> {
        let next = |number: u16| (number < Self::RESERVED).then(|| number + 1);
        NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(Self)
    }

    /// Returns the region of the frame with this token.
    #[inline]
    pub(crate) fn of(token: u64) -> Self {
        Self(((token & !MOVED) >> Self::SHIFT) as u16)
    }

    /// Returns true if the frame with this token is of the region.
    // In this form the compiler sees that it is true for a token that was just made of the region.
    #[inline]
    pub(crate) fn has(self, token: u64) -> bool {
        (token ^ u64::from(self.0) << Self::SHIFT) << 1 >> (Self::SHIFT + 1) == 0
    }

    /// Returns the token of a frame of this region, for drivers that write packets themselves.
    /// Only the lower 48 bits of `frame` are used.
    #[inline]
    #[must_use]
    pub fn token(self, frame: u64) -> u64 {
        debug_assert!(self.0 != Self::RESERVED && frame & !Self::FRAME_MASK == 0);
        u64::from(self.0) << Self::SHIFT | frame & Self::FRAME_MASK
    }
}

/// Right to one frame of a pool. It is given back to the pool, lent to a device or made a packet,
/// and cannot be copied. A dropped one is lost to the pool, which counts it as
/// [missing](crate::Pool::missing).
#[derive(Debug)]
#[must_use]
#[repr(transparent)]
pub struct Frame {
    /// The region in bits 48 to 62. Below them is the index of the frame in its pool, or the
    /// identifier that a driver with memory of its own uses. The uppermost bit is that of the
    /// packet that had the frame ([`MOVED`]) and means nothing here.
    pub(crate) token: u64,
}

impl Frame {
    /// Creates the right to the frame with this token.
    #[inline]
    pub(crate) fn from_token(token: u64) -> Self {
        Self { token }
    }

    /// Creates the right to frame `index` of a region.
    #[inline]
    pub(crate) fn of(region: RegionId, index: u64) -> Self {
        Self { token: region.token(index) }
    }

    /// Returns the region of the frame.
    #[inline]
    pub(crate) fn region(&self) -> RegionId {
        RegionId::of(self.token)
    }

    /// Returns the number of the frame in its region.
    #[inline]
    pub(crate) fn index(&self) -> u64 {
        self.token & RegionId::FRAME_MASK
    }
}

/// Token of a packet whose frame was taken.
pub(crate) const NO_FRAME: u64 = u64::MAX;

/// Bit of a packet's token: the window was changed after the driver had written the packet. A
/// driver whose device has a descriptor for each frame need not read that of a packet without it.
pub const MOVED: u64 = 1 << 63;
