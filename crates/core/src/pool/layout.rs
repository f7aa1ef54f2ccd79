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

    /// Creates the layout of memory that is the pool of another process, for registering it with
    /// the kernel on behalf of that process. Returns `None` if the memory is smaller than one frame
    /// or holds more than 2^32 - 1.
    #[must_use]
    pub fn of_memory(memory: SharedMemory, frame_size: usize) -> Option<Self> {
        let frames = u32::try_from(memory.len().checked_div(frame_size)?).ok()?;
        let start = memory.start().as_ptr().addr();
        let _after = Arc::new(OnceLock::from(memory));
        (frames > 0).then_some(Self { start, frames: frames as usize, frame_size, _after })
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
