//! Frames in memory of a driver's own.

use crate::RegionId;

/// Frames of one driver's region that a lane has.
#[derive(Debug)]
pub(super) struct ExternalBuffers {
    region: RegionId,
    /// Frames that the lane has released and the driver has not taken yet.
    released: Vec<u64>,
    capacity: usize,
    /// Frames that are packets of the lane, or released and not taken. A driver may count frames
    /// that it has sent before it counts those that it has received.
    in_use: isize,
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
        self.in_use += count.cast_signed();
    }

    #[inline]
    pub(super) fn sent(&mut self, count: usize) {
        self.in_use -= count.cast_signed();
    }

    /// Returns the number of frames in use. A driver that has counted more frames away than there
    /// were has as many too few.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.unsigned_abs()
    }

    /// Moves released frames to the end of `frames`, as many as fit. Returns their number.
    pub(super) fn take_released(&mut self, frames: &mut Vec<u64>) -> usize {
        let count = self.released.len().min(frames.capacity() - frames.len());
        frames.extend(self.released.drain(self.released.len() - count..));
        self.sent(count);
        count
    }

    /// Stores a released frame for the driver. Returns false for a frame that would make the list
    /// grow: it is lost and counts as missing, because the driver uses more frames than it
    /// registered.
    #[inline]
    pub(super) fn release(&mut self, frame: u64) -> bool {
        let has_room = self.released.len() < self.capacity;
        if has_room {
            self.released.push(frame);
        }
        has_room
    }
}
