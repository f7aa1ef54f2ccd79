//! Location and division of a pool's memory.

use std::sync::Arc;

use fastlane_table::SharedMemory;

/// Location and division of a pool's memory, for registering it with the kernel while a lane has
/// the pool. As long as a layout exists, the memory stays mapped.
#[derive(Clone, Debug)]
pub struct PoolLayout {
    start: usize,
    length: usize,
    frames: usize,
    frame_size: usize,
    /// Keeps the pool from unmapping the memory.
    _user: Arc<()>,
}

impl PoolLayout {
    pub(super) fn new(
        memory: &SharedMemory,
        frames: usize,
        frame_size: usize,
        users: &Arc<()>,
    ) -> Self {
        let (start, length) = (memory.start().as_ptr().addr(), memory.len());
        Self { start, length, frames, frame_size, _user: Arc::clone(users) }
    }

    /// Returns the address of the first byte. It identifies the pool: pools share no memory.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Returns the length of the memory in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the number of frames, free or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the size of a frame in bytes, with metadata and headroom.
    #[must_use]
    pub fn frame_size(&self) -> usize {
        self.frame_size
    }
}
