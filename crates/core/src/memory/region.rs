//! Memory regions that frames can lie in.

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
    /// Region number of the token [`NO_FRAME`](crate::packet::NO_FRAME).
    const RESERVED: u16 = u16::MAX;

    /// Allocates an identifier, or returns `None` if all were used. Identifiers are never reused,
    /// because a frame could then return to memory that it is not from.
    pub(crate) fn allocate() -> Option<Self> {
        let next = |number: u16| number.checked_add(1);
        NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(Self)
    }

    /// Returns the region of the frame with this token.
    #[inline]
    pub(crate) fn of(token: u64) -> Self {
        Self((token >> Self::SHIFT) as u16)
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

/// Frames of one driver's region that a lane has.
#[derive(Debug)]
pub(crate) struct ExternalBuffers {
    region: RegionId,
    /// Frames that the lane has released and the driver has not taken yet.
    released: Vec<u64>,
    capacity: usize,
    /// Frames that are packets of the lane, or released and not taken.
    in_use: usize,
}

impl ExternalBuffers {
    pub(crate) fn new(region: RegionId, capacity: usize) -> Self {
        Self { region, released: Vec::with_capacity(capacity), capacity, in_use: 0 }
    }

    #[inline]
    pub(crate) fn region(&self) -> RegionId {
        self.region
    }

    #[inline]
    pub(crate) fn received(&mut self, count: usize) {
        self.in_use += count;
    }

    #[inline]
    pub(crate) fn sent(&mut self, count: usize) {
        self.in_use = self.in_use.saturating_sub(count);
    }

    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    #[inline]
    pub(crate) fn take_released(&mut self, frames: &mut Vec<u64>) {
        if self.released.is_empty() {
            return;
        }
        let count = self.released.len().min(frames.capacity() - frames.len());
        frames.extend(self.released.drain(self.released.len() - count..));
        self.sent(count);
    }

    /// Stores a released frame for the driver. A frame that would make the list grow is lost and
    /// counts as missing: the driver uses more frames than it registered.
    #[inline]
    pub(crate) fn release(&mut self, frame: u64) {
        if self.released.len() < self.capacity {
            self.released.push(frame);
        }
    }
}
