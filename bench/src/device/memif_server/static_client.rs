//! A memif client whose frames are all written in advance: sending one writes only its descriptor.
//!
//! One thread can therefore offer more frames than a lane takes. It copies nothing, and a frame
//! that finds the ring full costs it nothing.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use fastlane_table::SharedMemory;

use crate::Result;
use crate::device::memif_server::handshake::{self, Connection};
use crate::device::memif_server::rings::{
    COOKIE, FLAGS, HEAD, LENGTH, NO_INTERRUPTS, OFFSET, RingsLayout, TAIL, TO_CLIENT, TO_SERVER,
    short, word,
};

/// Distance between two listed frames in octets: two cache lines.
const SLOT: usize = 128;
/// Size of a buffer for a returned frame, in octets.
const ROOM: usize = 256;
/// Offset of a frame in its slot or buffer, in octets. It aligns the data behind the 14-octet
/// Ethernet header.
const SHIFT: usize = 2;

/// Frame that has come back. It can be read until its buffer is given back.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Length in octets.
    pub length: usize,
    buffer: usize,
}

/// Client with its listed frames and a ring in each direction.
pub struct Listed {
    memory: SharedMemory,
    _connection: Connection,
    rings: RingsLayout,
    lengths: Vec<u32>,
    written: u16,
    /// Read and return positions of the server when they were last loaded.
    read: u16,
    returned: u16,
    taken: u16,
}

impl Listed {
    /// Connects to the server at `path`, with rings of `1 << log2_places` slots. The server must
    /// poll, since the client never wakes it.
    ///
    /// # Errors
    /// Returns an error if there is no server, if it refuses, or if a frame is longer than 126
    /// octets.
    pub fn connect(path: &Path, frames: &[Vec<u8>], log2_places: u8) -> Result<Self> {
        if frames.iter().any(|frame| frame.len() > SLOT - SHIFT) {
            return Err("a frame is longer than 126 octets".into());
        }
        let rings = RingsLayout { log2_places };
        let memory = SharedMemory::create("bench-listed", slot(rings, frames.len()))?;
        for (number, frame) in frames.iter().enumerate() {
            fill(&memory, slot(rings, number), frame);
        }
        for place in 0..rings.places() {
            let at = rings.descriptor(TO_CLIENT, place);
            word(&memory, at + LENGTH).store((ROOM - SHIFT) as u32, Ordering::Relaxed);
            word(&memory, at + OFFSET).store(buffer(rings, place) as u32, Ordering::Relaxed);
        }
        for ring in [TO_SERVER, TO_CLIENT] {
            word(&memory, rings.start(ring)).store(COOKIE, Ordering::Relaxed);
        }
        // The server owns all buffers of the return direction.
        let back = rings.start(TO_CLIENT);
        short(&memory, back + HEAD).store(rings.places(), Ordering::Relaxed);
        short(&memory, back + FLAGS).store(NO_INTERRUPTS, Ordering::Relaxed);
        let places = [rings.told(TO_SERVER), rings.told(TO_CLIENT)];
        let connection = handshake::open(path, 0, memory.as_fd(), memory.len(), places)?;
        let lengths = frames.iter().map(|frame| frame.len() as u32).collect();
        let (written, read, returned, taken) = (0, 0, 0, 0);
        Ok(Self { memory, _connection: connection, rings, lengths, written, read, returned, taken })
    }

    /// Writes the descriptor of frame `number`, which leaves with [`send`](Self::send). Returns
    /// false if the ring is full. A frame may be sent again after as many other frames as the ring
    /// has slots.
    #[inline]
    pub fn write(&mut self, number: usize) -> bool {
        let places = self.rings.places();
        if self.written.wrapping_sub(self.read) >= places && self.unread() >= places {
            return false;
        }
        let at = self.rings.descriptor(TO_SERVER, self.written & (places - 1));
        word(&self.memory, at + LENGTH).store(self.lengths[number], Ordering::Relaxed);
        word(&self.memory, at + OFFSET).store(slot(self.rings, number) as u32, Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Changes the last four octets of a listed frame that is not in flight.
    #[inline]
    pub fn stamp(&self, number: usize, value: u32) {
        let end = slot(self.rings, number) + self.lengths[number] as usize;
        word(&self.memory, end - 4).store(value, Ordering::Relaxed);
    }

    /// Publishes the written descriptors.
    #[inline]
    pub fn send(&mut self) {
        short(&self.memory, self.rings.start(TO_SERVER) + HEAD)
            .store(self.written, Ordering::Release);
    }

    /// Returns the number of written frames that the server has not taken yet.
    #[inline]
    pub fn unread(&mut self) -> u16 {
        self.read = short(&self.memory, self.rings.start(TO_SERVER) + TAIL).load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// Returns the next frame that has come back, if any. Its buffer belongs to the server again
    /// after [`give_back`](Self::give_back).
    #[inline]
    pub fn take(&mut self) -> Option<Came> {
        if self.taken == self.returned {
            self.returned =
                short(&self.memory, self.rings.start(TO_CLIENT) + TAIL).load(Ordering::Acquire);
            if self.taken == self.returned {
                return None;
            }
        }
        let place = self.taken & (self.rings.places() - 1);
        let length = word(&self.memory, self.rings.descriptor(TO_CLIENT, place) + LENGTH);
        let buffer = buffer(self.rings, place);
        let came = Came { length: length.load(Ordering::Relaxed) as usize, buffer };
        length.store((ROOM - SHIFT) as u32, Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(came)
    }

    /// Returns four octets of a frame from offset `at`, which must be 2 more than a multiple of 4.
    ///
    /// # Panics
    /// Panics if the octets lie behind the buffer.
    #[inline]
    #[must_use]
    pub fn read(&self, came: Came, at: usize) -> [u8; 4] {
        assert!(at + 4 <= ROOM - SHIFT, "the octets must lie in the buffer");
        word(&self.memory, came.buffer + at).load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Returns the buffers of taken frames to the server.
    #[inline]
    pub fn give_back(&mut self) {
        let head = self.taken.wrapping_add(self.rings.places());
        short(&self.memory, self.rings.start(TO_CLIENT) + HEAD).store(head, Ordering::Release);
    }
}

/// Returns the offset of the frame in a buffer. The buffers lie behind both rings.
const fn buffer(rings: RingsLayout, place: u16) -> usize {
    rings.start(2).next_multiple_of(ROOM) + place as usize * ROOM + SHIFT
}

/// Returns the offset of a listed frame. The listed frames lie behind the buffers.
const fn slot(rings: RingsLayout, number: usize) -> usize {
    buffer(rings, rings.places()) + number * SLOT
}

/// Writes a frame in words. Two octets before it and up to three behind it become zero.
fn fill(memory: &SharedMemory, at: usize, frame: &[u8]) {
    let shifted: Vec<u8> = [&[0; SHIFT], frame].concat();
    for (number, bytes) in shifted.chunks(4).enumerate() {
        let mut value = [0; 4];
        value[..bytes.len()].copy_from_slice(bytes);
        let place = word(memory, at - SHIFT + 4 * number);
        place.store(u32::from_ne_bytes(value), Ordering::Relaxed);
    }
}
