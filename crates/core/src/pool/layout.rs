//! Location and division of a pool's memory.

use std::sync::{Arc, OnceLock};

use fastlane_table::SharedMemory;

/// Location and division of a pool's memory, for registering it with the kernel while a lane has
/// the pool. As long as a layout exists, the memory stays mapped.
#[derive(Clone, Debug)]
pub struct PoolLayout {
    start: usize,
    frames: usize,
    frame_size: usize,
    /// The memory once the pool is dropped.
    _after: Arc<OnceLock<SharedMemory>>,
}

impl PoolLayout {
    pub(super) fn new(
        memory: &SharedMemory,
        frames: usize,
        frame_size: usize,
        after: &Arc<OnceLock<SharedMemory>>,
    ) -> Self {
        let start = memory.start().as_ptr().addr();
        Self { start, frames, frame_size, _after: Arc::clone(after) }
    }

    /// Returns the address of the first byte. It identifies the pool: pools share no memory.
    #[must_use]
    pub fn start(&self) -> usize {
        self.start
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
