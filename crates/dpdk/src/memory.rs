//! Memory of a lane that DPDK can use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastlane_core::{Pool, RegionId};

use crate::plugin::Memory;
use crate::{Environment, Error};

/// Frames in a lane thread's mempool cache: `RTE_MEMPOOL_CACHE_MAX_SIZE`.
pub const CACHE: usize = 512;
/// Bytes of a frame besides the packet: the mbuf, the headroom with the metadata, the mempool's
/// header, and alignment.
const OVERHEAD: usize = 128 + 128 + 64 + 64;

/// Number of the next memory: mempool names must differ.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Mempool of one lane. All its DPDK ports receive into it and send from it, so forwarding between
/// them copies nothing. Frames of other ports are copied into it and out of it.
#[derive(Clone, Debug)]
pub struct LaneMemory {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    environment: Arc<Environment>,
    pub(crate) memory: Memory,
    pub(crate) region: RegionId,
    frames: usize,
    room: usize,
    /// Frames that the queues opened so far may hold.
    reserved: AtomicUsize,
}

impl LaneMemory {
    /// Creates `frames` frames for packets of up to `room` bytes, and registers the memory with the
    /// lane's pool. `socket` is the NUMA node, or -1 for any. If DPDK has no memory there, the
    /// frames are on another node.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(
        environment: &Arc<Environment>,
        pool: &mut Pool,
        frames: usize,
        room: usize,
        socket: i32,
    ) -> Result<Self, Error> {
        let failed = |reason: String| Error::NoMemory { frames, room, reason };
        let name = format!("fastlane{}", NEXT.fetch_add(1, Ordering::Relaxed));
        // DPDK requires a cache of at most two thirds of all frames.
        let cache = CACHE.min(frames * 2 / 3) as u32;
        let count = u32::try_from(frames).map_err(|_| failed("too many".to_owned()))?;
        let length = u32::try_from(room).map_err(|_| failed("too long".to_owned()))?;
        let made =
            environment.with(|plugin| plugin.create_memory(&name, count, cache, length, socket));
        let memory = made.map_err(failed)?;
        let Some(region) = pool.register_region(frames) else {
            environment.with(|plugin| plugin.free_memory(&memory));
            return Err(failed("the process has too many memory regions".to_owned()));
        };
        let reserved = AtomicUsize::new(0);
        let environment = Arc::clone(environment);
        let shared = Shared { environment, memory, region, frames, room, reserved };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the size of `frames` frames in MiB.
    #[must_use]
    pub fn size_mib(frames: usize, room: usize) -> usize {
        (frames * (room + OVERHEAD)).div_ceil(1 << 20)
    }

    /// Returns the number of frames that a lane needs. `descriptors` is the total of its queues in
    /// both directions, and `burst` the maximum number of packets per burst. With fewer frames one
    /// queue could starve another.
    #[must_use]
    pub fn frames_needed(descriptors: usize, burst: usize) -> usize {
        descriptors + CACHE * 3 / 2 + 4 * burst.max(32)
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.shared.frames
    }

    /// Returns the maximum length of a packet in a frame.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shared.room
    }

    /// Returns the number of frames in packets, devices and rings. Exact only while no lane runs.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.environment.plugin().memory_in_use(&self.shared.memory)
    }

    /// Reserves frames for a queue of `device` with `descriptors` descriptors.
    pub(crate) fn reserve(&self, device: &str, descriptors: usize) -> Result<(), Error> {
        let reserved = self.shared.reserved.fetch_add(descriptors, Ordering::Relaxed) + descriptors;
        let (needed, frames) = (Self::frames_needed(reserved, 32), self.shared.frames);
        if needed <= frames {
            return Ok(());
        }
        self.unreserve(descriptors);
        Err(Error::FewFrames { device: device.to_owned(), needed, frames })
    }

    /// Reverts [`reserve`](Self::reserve).
    pub(crate) fn unreserve(&self, descriptors: usize) {
        self.shared.reserved.fetch_sub(descriptors, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.environment.with(|plugin| {
            // A frame that is still in use points into the memory, so the memory stays.
            if plugin.memory_in_use(&self.memory) == 0 {
                plugin.free_memory(&self.memory);
            } else {
                // DPDK stays too, because its end would unmap the memory.
                std::mem::forget(Arc::clone(&self.environment));
            }
        });
    }
}
