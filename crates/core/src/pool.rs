//! The frames of a lane.
#![allow(unsafe_code, reason = "frames in shared memory")]

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

use fastlane_table::SharedMemory;

use crate::{Custody, METADATA_LENGTH, Packet, PortId};

/// The right to one frame of a pool. It is given back to the pool, lent to a device, or made a
/// packet; it cannot be copied. One that is dropped is lost to the pool for good, which the pool
/// can tell.
#[derive(Debug)]
#[must_use]
pub struct Frame {
    index: u32,
    pool: u32,
}

impl Frame {
    #[inline]
    pub(crate) fn from_token(token: u64) -> Self {
        Self { index: token as u32, pool: (token >> 32) as u32 }
    }

    #[inline]
    fn token(&self) -> u64 {
        u64::from(self.pool) << 32 | u64::from(self.index)
    }
}

/// All frames of a lane: equal pieces of one shared memory.
///
/// The memory is the UMEM of the lane's AF_XDP ports and the receive buffer of all others. Frames
/// are handed out last in, first out, so the ones in use stay in the cache.
#[derive(Debug)]
pub struct Pool {
    memory: ManuallyDrop<SharedMemory>,
    free: Vec<u32>,
    frames: u32,
    shift: u32,
    headroom: usize,
    id: u32,
}

/// Numbers pools, so that a frame never goes back to one that it is not from.
static NEXT_POOL: AtomicU32 = AtomicU32::new(0);

impl Pool {
    /// Divides `memory` into frames of `frame_size` bytes, a power of two from 512 to 65536.
    /// Packets begin `headroom` bytes after the metadata, unless a device decides otherwise.
    ///
    /// Returns `None` when the frame size is not allowed, the memory does not hold one frame or the
    /// head room leaves no space for a packet.
    #[must_use]
    pub fn new(memory: SharedMemory, frame_size: usize, headroom: usize) -> Option<Self> {
        let allowed = frame_size.is_power_of_two() && (512..=65536).contains(&frame_size);
        if !allowed || METADATA_LENGTH + headroom + 256 > frame_size || !memory.is_writable() {
            return None;
        }
        let frames = u32::try_from(memory.len() / frame_size).ok().filter(|n| *n > 0)?;
        let free = (0..frames).rev().collect();
        let id = NEXT_POOL.fetch_add(1, Ordering::Relaxed);
        let shift = frame_size.trailing_zeros();
        Some(Self { memory: ManuallyDrop::new(memory), free, frames, shift, headroom, id })
    }

    /// Bytes in a frame, the metadata and head room included.
    #[inline]
    #[must_use]
    pub fn frame_size(&self) -> usize {
        1 << self.shift
    }

    /// Where a packet begins in its frame unless a device decides: after metadata and head room.
    #[inline]
    #[must_use]
    pub fn data_offset(&self) -> usize {
        METADATA_LENGTH + self.headroom
    }

    /// The longest packet that [`packet`](Self::packet) takes at
    /// [`data_offset`](Self::data_offset).
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.frame_size() - self.data_offset()
    }

    /// Frames in all.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.frames as usize
    }

    /// Frames that nobody holds.
    #[inline]
    #[must_use]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The memory, to be registered with a device or handed to another process.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Takes a free frame.
    #[inline]
    #[must_use]
    pub fn take(&mut self) -> Option<Frame> {
        self.free.pop().map(|index| Frame { index, pool: self.id })
    }

    /// Takes a frame back. One of another pool is not accepted, and is lost.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        // Never longer than `frames`: each is outside once, so this does not allocate.
        if frame.pool == self.id {
            self.free.push(frame.index);
        }
    }

    /// Takes back the frame of a packet, if it still has one.
    #[inline]
    pub fn release(&mut self, packet: &mut Packet) {
        // Asked first: most packets have none left, and then nothing need be written.
        if packet.has_frame()
            && let Some(frame) = packet.take_frame()
        {
            self.give(frame);
        }
    }

    /// The frame as a packet of `length` bytes that begins `offset` bytes into it.
    ///
    /// # Errors
    /// Gives the frame back when those bytes, or the metadata before them, are not all inside, or
    /// the frame is not of this pool.
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
        if frame.pool != self.id || !inside {
            return Err(frame);
        }
        let start = (frame.index as usize) << self.shift;
        // SAFETY: `frame` is one of this pool's, so its index is below `frames` and these bytes are
        // inside the mapping.
        let data = unsafe { self.memory.start().add(start + offset) };
        let headroom = (offset - METADATA_LENGTH) as u16;
        let tailroom = (size - offset - length) as u16;
        // SAFETY: the bounds were checked above; frames begin at multiples of 512; memfd memory is
        // zeroed; the packet's token is the frame that was just given up.
        Ok(unsafe { Packet::new(data, frame.token(), length as u32, headroom, tailroom, port) })
    }

    /// For drivers: where the first byte of a packet is in the pool's memory, for a descriptor.
    /// Meaningless for a packet of another pool; `None` where that can be told.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, packet: &Packet) -> Option<u64> {
        let distance =
            packet.data().as_ptr().addr().checked_sub(self.memory.start().as_ptr().addr())?;
        (distance < self.memory.len()).then_some(distance as u64)
    }

    /// For drivers: lends a frame to a device; returns where it begins in the pool's memory, which
    /// is what [`reclaim`](Self::reclaim) takes back. `None`, and the frame is lost, when it is not
    /// of this pool.
    #[inline]
    #[must_use]
    pub fn lend(&self, frame: Frame) -> Option<u64> {
        (frame.pool == self.id).then(|| u64::from(frame.index) << self.shift)
    }

    /// For drivers: the frame that an address from a device lies in, or `None` if it is outside.
    ///
    /// # Safety
    /// The frame must have been lent to this device by [`lend`](Self::lend) and not been reclaimed
    /// since: the device, or the kernel for it, is trusted to return only what it was lent.
    #[inline]
    #[must_use]
    pub unsafe fn reclaim(&self, offset: u64) -> Option<Frame> {
        let index = offset >> self.shift;
        (index < u64::from(self.frames)).then_some(Frame { index: index as u32, pool: self.id })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A packet that is still somewhere points into the memory: then it stays mapped.
        if self.free.len() == self.frames as usize {
            // SAFETY: dropped here and nowhere else, and `self` is not used again.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
mod tests;
