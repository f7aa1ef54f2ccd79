//! The frames of a lane that DPDK can use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastlane_core::{Pool, RegionId};

use crate::plugin::Memory;
use crate::{Environment, Error};

/// Frames that a lane's thread keeps at hand: `RTE_MEMPOOL_CACHE_MAX_SIZE`.
pub const CACHE: usize = 512;
/// Bytes of a frame besides the room for a packet: the mbuf, the head room (metadata included),
/// the mempool's header, and what lining up costs.
const OVERHEAD: usize = 128 + 128 + 64 + 64;

/// Numbers the memories, whose names must differ.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A mempool for one lane: all its DPDK ports receive into it, and send from it, so forwarding
/// between them copies nothing. Frames of other ports are copied into it and out of it.
#[derive(Clone, Debug)]
pub struct LaneMemory {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    environment: Arc<Environment>,
    pub(crate) memory: Memory,
    pub(crate) home: RegionId,
    frames: usize,
    room: usize,
    /// Frames that the queues opened so far may hold.
    promised: AtomicUsize,
}

impl LaneMemory {
    /// Makes `frames` frames for packets of up to `room` bytes, and lets the lane's pool know.
    /// `socket` is the NUMA node, or -1 for any.
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
        // DPDK wants a cache of at most two thirds of all.
        let cache = CACHE.min(frames * 2 / 3) as u32;
        let count = u32::try_from(frames).map_err(|_| failed("too many".to_owned()))?;
        let length = u32::try_from(room).map_err(|_| failed("too long".to_owned()))?;
        let made =
            environment.with(|plugin| plugin.create_memory(&name, count, cache, length, socket));
        let memory = made.map_err(failed)?;
        let Some(home) = pool.register_region(frames) else {
            environment.with(|plugin| plugin.free_memory(&memory));
            return Err(failed("the process has too many memories".to_owned()));
        };
        let promised = AtomicUsize::new(0);
        let environment = Arc::clone(environment);
        let shared = Shared { environment, memory, home, frames, room, promised };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// MiB that so many frames take.
    #[must_use]
    pub fn size(frames: usize, room: usize) -> usize {
        (frames * (room + OVERHEAD)).div_ceil(1 << 20)
    }

    /// Frames that a lane needs whose queues have so many descriptors, both directions together,
    /// and which handles bursts of `burst` packets: with fewer a queue could starve another.
    #[must_use]
    pub fn needed(descriptors: usize, burst: usize) -> usize {
        descriptors + CACHE * 3 / 2 + 4 * burst.max(32)
    }

    /// Frames in all.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.shared.frames
    }

    /// The longest packet that a frame holds.
    #[must_use]
    pub fn room(&self) -> usize {
        self.shared.room
    }

    /// Frames that are in packets, devices or rings. Only exact while no lane runs.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.environment.plugin().memory_in_use(&self.shared.memory)
    }

    /// Sets frames aside for a queue of `device` with so many descriptors.
    pub(crate) fn promise(&self, device: &str, descriptors: usize) -> Result<(), Error> {
        let promised = self.shared.promised.fetch_add(descriptors, Ordering::Relaxed) + descriptors;
        let (needed, frames) = (Self::needed(promised, 32), self.shared.frames);
        if needed <= frames {
            return Ok(());
        }
        self.take_back(descriptors);
        Err(Error::FewFrames { device: device.to_owned(), needed, frames })
    }

    /// The opposite of [`promise`](Self::promise).
    pub(crate) fn take_back(&self, descriptors: usize) {
        self.shared.promised.fetch_sub(descriptors, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.environment.with(|plugin| {
            // A frame that is still somewhere points into it: then it stays.
            if plugin.memory_in_use(&self.memory) == 0 {
                plugin.free_memory(&self.memory);
            } else {
                // And so does DPDK, whose end would unmap it.
                std::mem::forget(Arc::clone(&self.environment));
            }
        });
    }
}
