//! Frames in memory of a driver's own.

use crate::RegionId;

/// Frames of one driver's region that a lane has.
#[derive(Debug)]
pub(super) struct ExternalBuffers {
    region: RegionId,
    /// Frames that the lane has released and the driver has not taken yet.
    released: Vec<u64>,
    capacity: usize,
    /// Frames that are packets of the lane, or released and not taken.
    in_use: usize,
}

impl ExternalBuffers {
    pub(super) fn new(region: RegionId, capacity: usize) -> Self {
        Self { region, released: Vec::with_capacity(capacity), capacity, in_use: 0 }
    }

    #[inline]
    pub(super) fn region(&self) -> RegionId {
        self.region
    }

    #[inline]
    pub(super) fn received(&mut self, count: usize) {
        self.in_use += count;
    }

    #[inline]
    pub(super) fn sent(&mut self, count: usize) {
        self.in_use = self.in_use.saturating_sub(count);
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use
    }

    #[inline]
    pub(super) fn take_released(&mut self, frames: &mut Vec<u64>) {
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
    pub(super) fn release(&mut self, frame: u64) {
        if self.released.len() < self.capacity {
            self.released.push(frame);
        }
    }
}
