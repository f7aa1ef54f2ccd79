//! Frame pool of a lane.
#![allow(unsafe_code, reason = "frames in shared memory")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

use fastlane_table::SharedMemory;

use crate::packet::Window;
use crate::{Frame, METADATA_LENGTH, Packet, PacketOwnership, PortId, RegionId};

mod external;
mod layout;

use external::ExternalBuffers;
pub use layout::PoolLayout;

/// Smallest and largest frame, in bytes.
const FRAME_SIZES: std::ops::RangeInclusive<usize> = 512..=65536;
/// Smallest room for a packet in a frame, in bytes.
const MIN_ROOM: usize = 256;

/// Reason why memory cannot be a [`Pool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolError {
    /// The frame size is no power of two from 512 to 65536.
    FrameSize(usize),
    /// The headroom leaves too little room for a packet.
    Headroom {
        /// Headroom, in bytes.
        headroom: usize,
        /// Largest headroom for the frame size, in bytes.
        limit: usize,
    },
    /// The memory is smaller than one frame, or holds more than 2^32 - 1.
    Size {
        /// Length of the memory, in bytes.
        length: usize,
        /// Frame size, in bytes.
        frame_size: usize,
    },
    /// The memory is mapped read-only.
    ReadOnly,
    /// The process has mapped the memory more than once.
    Shared,
    /// The process has used all 32,767 region numbers.
    NoRegion,
}

impl fmt::Display for PoolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameSize(size) => {
                write!(formatter, "a frame size of {size} is no power of two from 512 to 65536")
            }
            Self::Headroom { headroom, limit } => write!(
                formatter,
                "a headroom of {headroom} bytes leaves no room for packets; use at most {limit}, \
                 or larger frames"
            ),
            Self::Size { length, frame_size } => write!(
                formatter,
                "{length} bytes cannot be divided into 1 to {} frames of {frame_size} bytes",
                u32::MAX
            ),
            Self::ReadOnly => formatter.write_str("the memory of a frame pool must be writable"),
            Self::Shared => formatter.write_str(
                "the memory of a frame pool must be mapped once in its process; drop the other \
                 mapping, or create other memory",
            ),
            Self::NoRegion => formatter
                .write_str("the process has used all 32,767 memory regions; start it again"),
        }
    }
}

impl std::error::Error for PoolError {}

/// Frame pool of a lane: one shared memory, divided into frames of equal size, and the list of free
/// frames.
///
/// The memory is the UMEM of the lane's AF_XDP ports and the receive buffer of all others. Frames
/// are allocated last in, first out, so those in use stay in the cache.
///
/// # Examples
/// ```
/// use fastlane_core::{Pool, PortId};
/// use fastlane_table::SharedMemory;
///
/// let memory = SharedMemory::create("frames", 4 * 2048)?;
/// let mut pool = Pool::new(memory, 2048, 192)?;
/// let mut packet = pool.alloc_packet(60, PortId(0)).expect("four frames are free");
/// packet.bytes_mut().fill(0);
/// assert_eq!((packet.headroom(), pool.free()), (192, 3));
/// pool.release(&mut packet);
/// assert_eq!(pool.missing(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    memory: ManuallyDrop<SharedMemory>,
    free: Vec<u32>,
    frames: u32,
    shift: u32,
    headroom: usize,
    region: RegionId,
    external: Vec<ExternalBuffers>,
    /// Number of released frames of registered regions that no driver has taken yet.
    released: usize,
    mixed: bool,
    /// The memory once the pool is dropped. Each [`PoolLayout`] shares it, so the memory stays
    /// mapped while one exists.
    after: Arc<OnceLock<SharedMemory>>,
}

impl Pool {
    /// Divides `memory` into frames of `frame_size` bytes, a power of two from 512 to 65536.
    /// Packets begin `headroom` bytes after the metadata, unless a device decides otherwise.
    ///
    /// # Errors
    /// Returns an error if the frame size, the headroom or the memory is not suitable. The memory
    /// is unmapped then.
    pub fn new(
        memory: SharedMemory,
        frame_size: usize,
        headroom: usize,
    ) -> Result<Self, PoolError> {
        Self::adopt(memory, frame_size, headroom, &|_| false)
    }

    /// Creates a pool over memory of a process that has ended. Frames for whose index `is_lent`
    /// returns true are missing until the driver that knows their device
    /// [reclaims](Self::reclaim) them.
    ///
    /// Only this pool and the devices that have those frames may use the memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn adopt(
        memory: SharedMemory,
        frame_size: usize,
        headroom: usize,
        is_lent: &dyn Fn(u32) -> bool,
    ) -> Result<Self, PoolError> {
        if !frame_size.is_power_of_two() || !FRAME_SIZES.contains(&frame_size) {
            return Err(PoolError::FrameSize(frame_size));
        }
        let limit = frame_size - METADATA_LENGTH - MIN_ROOM;
        if headroom > limit {
            return Err(PoolError::Headroom { headroom, limit });
        }
        if !memory.is_writable() {
            return Err(PoolError::ReadOnly);
        }
        let length = memory.len();
        let frames = u32::try_from(length / frame_size).ok().filter(|frames| *frames > 0);
        let frames = frames.ok_or(PoolError::Size { length, frame_size })?;
        // Room for all frames, so that giving one back never allocates.
        let mut free = Vec::with_capacity(frames as usize);
        free.extend((0..frames).rev().filter(|index| !is_lent(*index)));
        if !memory.reserve_for_frames() {
            return Err(PoolError::Shared);
        }
        let region = RegionId::allocate().ok_or(PoolError::NoRegion)?;
        let shift = frame_size.trailing_zeros();
        Ok(Self {
            memory: ManuallyDrop::new(memory),
            free,
            frames,
            shift,
            headroom,
            region,
            external: Vec::new(),
            released: 0,
            mixed: false,
            after: Arc::default(),
        })
    }

    /// Returns the size of a frame in bytes, with metadata and headroom.
    #[inline]
    #[must_use]
    pub fn frame_size(&self) -> usize {
        1 << self.shift
    }

    /// Returns the offset at which a packet begins in its frame unless a device decides: metadata
    /// and headroom, in bytes.
    #[inline]
    #[must_use]
    pub fn data_offset(&self) -> usize {
        METADATA_LENGTH + self.headroom
    }

    /// Returns the length of the longest packet that fits at [`data_offset`](Self::data_offset).
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.frame_size() - self.data_offset()
    }

    /// Returns the memory region of the pool's frames.
    #[inline]
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// Returns the number of frames, free or not.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames as usize
    }

    /// Returns the number of free frames.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the memory, for registration with a device or another process.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns the location and division of the memory, for opening queues in another thread.
    #[must_use]
    pub fn layout(&self) -> PoolLayout {
        PoolLayout::new(&self.memory, self.frames(), self.frame_size(), &self.after)
    }

    /// Takes a free frame, or returns `None` if there is none.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Option<Frame> {
        self.free.pop().map(|index| Frame::of(self.region, index.into()))
    }

    /// Takes a frame back. A frame of a [registered](Self::register_region) region is kept for its
    /// driver. A frame of any other pool is not accepted and is lost.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        // Each frame is in use once, so the list never exceeds `frames` and does not allocate.
        if self.region.has(frame.token) {
            self.free.push(frame.index() as u32);
        } else {
            self.release_external(&frame);
        }
    }

    /// Takes back the frame of a packet, if it has one.
    #[inline]
    pub fn release(&mut self, packet: &mut Packet) {
        // Most packets have none left, and then nothing needs to be written.
        if packet.has_frame()
            && let Some(frame) = packet.take_frame()
        {
            self.give(frame);
        }
    }

    /// Makes the frame a packet of `length` bytes that begins at `offset`.
    ///
    /// # Errors
    /// Returns the frame if these bytes or the metadata before them do not fit, or if it belongs to
    /// another pool.
    #[inline]
    pub fn packet(
        &self,
        frame: Frame,
        offset: usize,
        length: usize,
        port: PortId,
    ) -> Result<Packet, Frame> {
        let size = self.frame_size();
        let inside = offset >= METADATA_LENGTH && offset <= size && length <= size - offset;
        if !self.region.has(frame.token) || !inside {
            return Err(frame);
        }
        let start = (frame.index() as usize) << self.shift;
        // SAFETY: the frame is of this pool, so its index is below `frames` and these bytes lie
        // inside the mapping.
        let data = unsafe { self.memory.start().add(start + offset) };
        let headroom = (offset - METADATA_LENGTH) as u16;
        let tailroom = (size - offset - length) as u16;
        let window = Window { data, length: length as u32, headroom, tailroom };
        // SAFETY: the bounds were checked above, frames begin at multiples of 512, memfd memory is
        // zeroed, and the token is that of the frame that was passed in.
        Ok(unsafe { Packet::new(window, frame.token, port) })
    }

    /// Allocates a packet of `length` bytes with undefined content. Returns `None` if no frame is
    /// free or the packet does not fit.
    #[inline]
    #[must_use]
    pub fn alloc_packet(&mut self, length: usize, port: PortId) -> Option<Packet> {
        self.alloc_at(self.data_offset(), length, port)
    }

    /// Allocates a packet for a copy: as [`alloc_packet`](Self::alloc_packet), but one that would
    /// not fit has less headroom.
    #[must_use]
    pub fn alloc_copy(&mut self, length: usize, port: PortId) -> Option<Packet> {
        let offset = self.data_offset().min(self.frame_size().saturating_sub(length));
        self.alloc_at(offset, length, port)
    }

    #[inline]
    fn alloc_at(&mut self, offset: usize, length: usize, port: PortId) -> Option<Packet> {
        let frame = self.take()?;
        match self.packet(frame, offset, length, port) {
            Ok(packet) => Some(packet),
            Err(frame) => {
                self.give(frame);
                None
            }
        }
    }

    /// Returns the offset of a packet's first byte in the pool's memory, for a driver's descriptor.
    /// Returns `None` for an address outside the memory, which only packets of other pools have.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, packet: &Packet) -> Option<u64> {
        let distance =
            packet.data().as_ptr().addr().checked_sub(self.memory.start().as_ptr().addr())?;
        (distance < self.memory.len()).then_some(distance as u64)
    }

    /// Prefetches the cache line at an offset in the pool's memory, which need not be inside.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        fastlane_table::prefetch(self.memory.start().as_ptr().wrapping_add(offset as usize));
    }

    /// Lends a frame to a device and returns its offset in the pool's memory, which
    /// [`reclaim`](Self::reclaim) takes back. Returns `None` for a frame of another pool, which is
    /// lost.
    #[inline]
    #[must_use]
    pub fn lend(&self, frame: Frame) -> Option<u64> {
        self.region.has(frame.token).then(|| frame.index() << self.shift)
    }

    /// Returns the frame that contains an offset which a device has returned, or `None` if the
    /// offset lies outside the memory.
    ///
    /// # Safety
    /// The frame must have been lent to this device by [`lend`](Self::lend), or have been lent when
    /// the pool was [adopted](Self::adopt), and not have been reclaimed since. The device, or the
    /// kernel on its behalf, is trusted to return only frames that it was lent.
    #[inline]
    #[must_use]
    pub unsafe fn reclaim(&self, offset: u64) -> Option<Frame> {
        let index = offset >> self.shift;
        (index < u64::from(self.frames)).then(|| Frame::of(self.region, index))
    }
}

/// Frames in memory of a driver's own.
impl Pool {
    /// Registers a memory region of a driver, of which the lane has at most `frames` frames at a
    /// time. Returns `None` if the process has used all 32,767 region numbers.
    pub fn register_region(&mut self, frames: usize) -> Option<RegionId> {
        let region = RegionId::allocate()?;
        self.external.push(ExternalBuffers::new(region, frames));
        Some(region)
    }

    /// Returns true if packets of one run can be of different regions.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Marks runs as mixing memory regions, or clears the mark. It has no effect without a
    /// registered region.
    #[inline]
    pub(crate) fn set_mixed(&mut self, mixed: bool) {
        self.mixed = mixed && !self.external.is_empty();
    }

    /// Counts `count` frames of a registered region that have become packets.
    #[inline]
    pub fn external_received(&mut self, region: RegionId, count: usize) {
        if let Some(external) = self.external_buffers(region) {
            external.received(count);
        }
    }

    /// Counts `count` frames of a registered region that are packets no longer because they were
    /// sent.
    #[inline]
    pub fn external_sent(&mut self, region: RegionId, count: usize) {
        if let Some(external) = self.external_buffers(region) {
            external.sent(count);
        }
    }

    /// Returns true if a driver has frames to take with [`take_released`](Self::take_released). In
    /// most turns none has, because all packets were sent.
    #[inline]
    #[must_use]
    pub fn has_released(&self) -> bool {
        self.released > 0
    }

    /// Moves frames of a registered region that the lane has released to the end of `frames`, for
    /// the driver to free. It moves as many as fit without growing the vector.
    pub fn take_released(&mut self, region: RegionId, frames: &mut Vec<u64>) {
        if let Some(external) = self.external_buffers(region) {
            let taken = external.take_released(frames);
            self.released -= taken;
        }
    }

    /// Returns the number of frames in use, with those of registered regions. Zero after a lane has
    /// closed means that no frame was lost.
    #[must_use]
    pub fn missing(&self) -> usize {
        let external: usize = self.external.iter().map(ExternalBuffers::in_use).sum();
        self.frames() - self.free() + external
    }

    #[inline]
    fn external_buffers(&mut self, region: RegionId) -> Option<&mut ExternalBuffers> {
        self.external.iter_mut().find(|external| external.region() == region)
    }

    fn release_external(&mut self, frame: &Frame) {
        if let Some(external) = self.external_buffers(frame.region())
            && external.release(frame.index())
        {
            self.released += 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A packet that exists points into the memory, which stays mapped then.
        if self.free.len() == self.frames as usize {
            // SAFETY: this is the only place that takes it, and `self` is not used afterwards.
            let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
            // The last layout, or `self`, unmaps it.
            let _ = self.after.set(memory);
        }
    }
}

#[cfg(test)]
mod tests;
