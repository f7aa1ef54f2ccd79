//! A memif client whose frames are all there from the start: sending one is to write where it lies.
//!
//! So a thread offers more than a lane takes: it copies nothing, and what it refuses to wait for
//! costs it nothing.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use fastlane_table::SharedMemory;

use crate::Result;
use crate::device::memif_server::handshake::{self, Connection, Place};
use crate::device::memif_server::rings::{
    COOKIE, FLAGS, HEAD, LENGTH, LOG2_PLACES, NO_INTERRUPTS, OFFSET, PLACES, TAIL, TO_CLIENT,
    TO_SERVER, descriptor, short, start, word,
};

/// Octets from one listed frame to the next: two cache lines.
const SLOT: usize = 128;
/// Octets of a buffer for a frame that comes back.
const ROOM: usize = 256;
/// Octets before a frame in its slot or buffer: behind an Ethernet header, 14 octets, what follows
/// is aligned.
const SHIFT: usize = 2;

/// A frame that has come back: it can be read until its buffer is given back.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Octets in it.
    pub length: usize,
    buffer: usize,
}

/// The client: its frames, and a ring in each direction.
pub struct Listed {
    memory: SharedMemory,
    _connection: Connection,
    lengths: Vec<u32>,
    written: u16,
    /// How far the server had read and returned when it was looked at last.
    read: u16,
    returned: u16,
    taken: u16,
}

impl Listed {
    /// Connects to the server at `path`. It must not sleep: nobody wakes it.
    ///
    /// # Errors
    /// When there is no server, it refuses, or a frame is longer than 126 octets.
    pub fn connect(path: &Path, frames: &[Vec<u8>]) -> Result<Self> {
        if frames.iter().any(|frame| frame.len() > SLOT - SHIFT) {
            return Err("a frame is too long for the list".into());
        }
        let memory = SharedMemory::create("bench-listed", slot(frames.len()))?;
        for (number, frame) in frames.iter().enumerate() {
            fill(&memory, slot(number), frame);
        }
        for place in 0..PLACES {
            let at = descriptor(TO_CLIENT, place);
            word(&memory, at + LENGTH).store((ROOM - SHIFT) as u32, Ordering::Relaxed);
            word(&memory, at + OFFSET).store(buffer(place) as u32, Ordering::Relaxed);
        }
        for ring in [TO_SERVER, TO_CLIENT] {
            word(&memory, start(ring)).store(COOKIE, Ordering::Relaxed);
        }
        // All buffers of the way back are the server's.
        short(&memory, start(TO_CLIENT) + HEAD).store(PLACES, Ordering::Relaxed);
        short(&memory, start(TO_CLIENT) + FLAGS).store(NO_INTERRUPTS, Ordering::Relaxed);
        let place = |ring| Place { offset: start(ring) as u32, log2_size: LOG2_PLACES };
        let places = [place(TO_SERVER), place(TO_CLIENT)];
        let connection = handshake::open(path, 0, memory.as_fd(), memory.len(), places)?;
        let lengths = frames.iter().map(|frame| frame.len() as u32).collect();
        let (written, read, returned, taken) = (0, 0, 0, 0);
        Ok(Self { memory, _connection: connection, lengths, written, read, returned, taken })
    }

    /// Writes where frame `number` lies; it leaves with [`send`](Self::send). False when the ring
    /// has no place. A frame that was sent [`PLACES`] frames ago may be sent again.
    #[inline]
    pub fn write(&mut self, number: usize) -> bool {
        if self.written.wrapping_sub(self.read) >= PLACES && self.unread() >= PLACES {
            return false;
        }
        let at = descriptor(TO_SERVER, self.written % PLACES);
        word(&self.memory, at + LENGTH).store(self.lengths[number], Ordering::Relaxed);
        word(&self.memory, at + OFFSET).store(slot(number) as u32, Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Changes the last four octets of a frame that is on the list, and not on its way.
    #[inline]
    pub fn stamp(&self, number: usize, value: u32) {
        let end = slot(number) + self.lengths[number] as usize;
        word(&self.memory, end - 4).store(value, Ordering::Relaxed);
    }

    /// Hands over what was written.
    #[inline]
    pub fn send(&mut self) {
        short(&self.memory, start(TO_SERVER) + HEAD).store(self.written, Ordering::Release);
    }

    /// Frames that were written and that the server has not taken yet.
    #[inline]
    pub fn unread(&mut self) -> u16 {
        self.read = short(&self.memory, start(TO_SERVER) + TAIL).load(Ordering::Acquire);
        self.written.wrapping_sub(self.read)
    }

    /// The next frame that has come back, if any. Its buffer is the server's again after
    /// [`give_back`](Self::give_back).
    #[inline]
    pub fn take(&mut self) -> Option<Came> {
        if self.taken == self.returned {
            self.returned = short(&self.memory, start(TO_CLIENT) + TAIL).load(Ordering::Acquire);
            if self.taken == self.returned {
                return None;
            }
        }
        let place = self.taken % PLACES;
        let length = word(&self.memory, descriptor(TO_CLIENT, place) + LENGTH);
        let came = Came { length: length.load(Ordering::Relaxed) as usize, buffer: buffer(place) };
        length.store((ROOM - SHIFT) as u32, Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(came)
    }

    /// Four octets of a frame, which begin `at` octets behind its start; `at` is 2 more than a
    /// multiple of 4.
    ///
    /// # Panics
    /// When it lies behind the buffer.
    #[inline]
    #[must_use]
    pub fn read(&self, came: Came, at: usize) -> [u8; 4] {
        assert!(at + 4 <= ROOM - SHIFT, "a place in the buffer");
        word(&self.memory, came.buffer + at).load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Lets the server have the buffers of what was taken.
    #[inline]
    pub fn give_back(&mut self) {
        let head = self.taken.wrapping_add(PLACES);
        short(&self.memory, start(TO_CLIENT) + HEAD).store(head, Ordering::Release);
    }
}

/// Where the frame in a buffer begins: the buffers lie behind both rings.
const fn buffer(place: u16) -> usize {
    start(2).next_multiple_of(ROOM) + place as usize * ROOM + SHIFT
}

/// Where a listed frame begins: they lie behind the buffers.
const fn slot(number: usize) -> usize {
    buffer(PLACES) + number * SLOT
}

/// Writes a frame, in words: two octets before it and some behind it become zero.
fn fill(memory: &SharedMemory, at: usize, frame: &[u8]) {
    let shifted: Vec<u8> = [&[0; SHIFT], frame].concat();
    for (number, bytes) in shifted.chunks(4).enumerate() {
        let mut value = [0; 4];
        value[..bytes.len()].copy_from_slice(bytes);
        let place = word(memory, at - SHIFT + 4 * number);
        place.store(u32::from_ne_bytes(value), Ordering::Relaxed);
    }
}
