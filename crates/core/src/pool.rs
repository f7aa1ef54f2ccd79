//! The frames of a lane.
#![allow(unsafe_code, reason = "frames in shared memory")]

use std::mem::ManuallyDrop;

use fastlane_table::SharedMemory;

use crate::home::Guests;
use crate::{Custody, Home, METADATA_LENGTH, Packet, PortId};

/// The right to one frame of a pool. It is given back to the pool, lent to a device, or made a
/// packet; it cannot be copied. One that is dropped is lost to the pool for good, which the pool
/// can tell.
#[derive(Debug)]
#[must_use]
#[repr(transparent)]
pub struct Frame {
    /// The home in the upper 16 bits; below them the frame's index in its pool, or what a driver
    /// with memory of its own knows it by.
    token: u64,
}

impl Frame {
    #[inline]
    pub(crate) fn from_token(token: u64) -> Self {
        Self { token }
    }

    #[inline]
    fn of(home: Home, name: u64) -> Self {
        Self { token: home.token(name) }
    }

    #[inline]
    fn home(&self) -> Home {
        Home::of(self.token)
    }

    #[inline]
    fn name(&self) -> u64 {
        self.token & Home::NAME
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
    home: Home,
    guests: Vec<Guests>,
    mixed: bool,
}

impl Pool {
    /// Divides `memory` into frames of `frame_size` bytes, a power of two from 512 to 65536.
    /// Packets begin `headroom` bytes after the metadata, unless a device decides otherwise.
    ///
    /// Returns `None` when the frame size is not allowed, the memory does not hold one frame or the
    /// head room leaves no space for a packet.
    #[must_use]
    pub fn new(memory: SharedMemory, frame_size: usize, headroom: usize) -> Option<Self> {
        Self::adopt(memory, frame_size, headroom, &|_| false)
    }

    /// The same over memory that another process has used, of whose frames some are out already:
    /// those for whose index `lent` says so. They are missing until the driver that has found them
    /// with its device [reclaims](Self::reclaim) them.
    ///
    /// Nobody else may use the memory any more, but for the devices that it is lent to.
    #[must_use]
    pub fn adopt(
        memory: SharedMemory,
        frame_size: usize,
        headroom: usize,
        lent: &dyn Fn(u32) -> bool,
    ) -> Option<Self> {
        let allowed = frame_size.is_power_of_two() && (512..=65536).contains(&frame_size);
        if !allowed || METADATA_LENGTH + headroom + 256 > frame_size || !memory.is_writable() {
            return None;
        }
        let frames = u32::try_from(memory.len() / frame_size).ok().filter(|n| *n > 0)?;
        // Room for all, so that giving one back never allocates.
        let mut free = Vec::with_capacity(frames as usize);
        free.extend((0..frames).rev().filter(|index| !lent(*index)));
        let home = Home::next()?;
        let shift = frame_size.trailing_zeros();
        let (memory, guests) = (ManuallyDrop::new(memory), Vec::new());
        Some(Self { memory, free, frames, shift, headroom, home, guests, mixed: false })
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

    /// The home of its frames.
    #[inline]
    #[must_use]
    pub fn home(&self) -> Home {
        self.home
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
        self.free.pop().map(|index| Frame::of(self.home, index.into()))
    }

    /// Takes a frame back, also one of a home that was [admitted](Self::admit), for its driver to
    /// fetch. One of any other pool is not accepted, and is lost.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        // Never longer than `frames`: each is outside once, so this does not allocate.
        if frame.home() == self.home {
            self.free.push(frame.name() as u32);
        } else {
            self.give_guest(&frame);
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
        if frame.home() != self.home || !inside {
            return Err(frame);
        }
        let start = (frame.name() as usize) << self.shift;
        // SAFETY: `frame` is one of this pool's, so its index is below `frames` and these bytes are
        // inside the mapping.
        let data = unsafe { self.memory.start().add(start + offset) };
        let headroom = (offset - METADATA_LENGTH) as u16;
        let tailroom = (size - offset - length) as u16;
        // SAFETY: the bounds were checked above; frames begin at multiples of 512; memfd memory is
        // zeroed; the packet's token is the frame that was just given up.
        Ok(unsafe { Packet::new(data, frame.token, length as u32, headroom, tailroom, port) })
    }

    /// A packet of `length` bytes, whose content is undefined, in a free frame; `None` when there
    /// is none or it does not fit.
    #[inline]
    #[must_use]
    pub fn blank(&mut self, length: usize, port: PortId) -> Option<Packet> {
        let frame = self.take()?;
        match self.packet(frame, self.data_offset(), length, port) {
            Ok(packet) => Some(packet),
            Err(frame) => {
                self.give(frame);
                None
            }
        }
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
        (frame.home() == self.home).then(|| frame.name() << self.shift)
    }

    /// For drivers: the frame that an address from a device lies in, or `None` if it is outside.
    ///
    /// # Safety
    /// The frame must have been lent to this device by [`lend`](Self::lend), or been out when the
    /// pool was [adopted](Self::adopt), and not been reclaimed since: the device, or the kernel for
    /// it, is trusted to return only what it was lent.
    #[inline]
    #[must_use]
    pub unsafe fn reclaim(&self, offset: u64) -> Option<Frame> {
        let index = offset >> self.shift;
        (index < u64::from(self.frames)).then(|| Frame::of(self.home, index))
    }
}

/// Frames that live elsewhere: for drivers with memory of their own.
impl Pool {
    /// Lets in frames of memory that a driver keeps itself: at most `frames` of them may be in this
    /// lane's packets at a time. `None` when there are too many homes already (65,534 in a
    /// process).
    pub fn admit(&mut self, frames: usize) -> Option<Home> {
        let home = Home::next()?;
        self.guests.push(Guests::new(home, frames));
        Some(home)
    }

    /// Whether packets of one run may be of different homes.
    #[inline]
    pub(crate) fn is_mixed(&self) -> bool {
        self.mixed
    }

    /// Says so until the next turn, where there are other homes at all; or no longer.
    #[inline]
    pub(crate) fn set_mixed(&mut self, mixed: bool) {
        self.mixed = mixed && !self.guests.is_empty();
    }

    /// `count` frames of an admitted home have become packets.
    #[inline]
    pub fn arrived(&mut self, home: Home, count: usize) {
        if let Some(guests) = self.guests_of(home) {
            guests.arrived(count);
        }
    }

    /// `count` frames of an admitted home are no longer packets: they were sent.
    #[inline]
    pub fn left(&mut self, home: Home, count: usize) {
        if let Some(guests) = self.guests_of(home) {
            guests.left(count);
        }
    }

    /// Appends to `names` the names of the frames of an admitted home that the lane has released,
    /// as many as there is room for without growing it: the driver frees them. They have
    /// [`left`](Self::left) with that.
    #[inline]
    pub fn fetch_returned(&mut self, home: Home, names: &mut Vec<u64>) {
        if let Some(guests) = self.guests_of(home) {
            guests.fetch(names);
        }
    }

    /// Frames that somebody still holds, those of admitted homes included.
    #[must_use]
    pub fn missing(&self) -> usize {
        let guests: usize = self.guests.iter().map(Guests::out).sum();
        self.frames() - self.free() + guests
    }

    #[inline]
    fn guests_of(&mut self, home: Home) -> Option<&mut Guests> {
        self.guests.iter_mut().find(|guests| guests.home() == home)
    }

    fn give_guest(&mut self, frame: &Frame) {
        if let Some(guests) = self.guests_of(frame.home()) {
            guests.give(frame.name());
        }
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
