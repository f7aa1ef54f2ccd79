//! The memory of a memif client with a ring in each direction, written without the driver of this
//! project. It measures others' costs, so it does as little as possible and copies no frames. A
//! frame is sent by writing its number and the words in which it differs from other frames into a
//! buffer. It is received by reading a number from another buffer.
#![allow(unsafe_code, reason = "memory that another process reads and writes")]

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use fastlane_table::SharedMemory;

use crate::Result;
use crate::device::memif_server::handshake::{self, Connection, RingLayout};

/// Base-2 logarithm of the number of slots in each ring; the default of all memif implementations.
pub const LOG2_PLACES: u8 = 10;
/// The layout of rings with that number of slots, and their number.
pub(super) const DEFAULT: RingsLayout = RingsLayout { log2_places: LOG2_PLACES };
pub(super) const PLACES: u16 = DEFAULT.places();
/// Size of a buffer in bytes; the default of all memif implementations.
pub const BUFFER: usize = 2048;
/// Offset of the descriptors from the start of a ring, and size of one descriptor, in bytes.
const DESCRIPTORS: usize = 128;
const DESCRIPTOR: usize = 16;
/// Offsets of the fields of a ring (`memif_ring_t`) and of a descriptor (`memif_desc_t`).
pub(super) const FLAGS: usize = 4;
pub(super) const HEAD: usize = 6;
pub(super) const TAIL: usize = 64;
pub(super) const LENGTH: usize = 4;
pub(super) const OFFSET: usize = 8;
pub(super) const COOKIE: u32 = 0x03e3_1f20;
/// Flag of a ring: the consumer wants no interrupts.
pub(super) const NO_INTERRUPTS: u16 = 1;
/// Size of a word in bytes, the unit of reads and writes.
const WORD: usize = 4;
/// Number reported for a frame that came back damaged.
pub(super) const DAMAGED: u64 = u64::MAX;
/// Indices of the rings in memory.
pub(super) const TO_SERVER: usize = 0;
pub(super) const TO_CLIENT: usize = 1;

/// Content of the frames that a client sends. Offsets in frames are multiples of 4 bytes.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Template of a sent frame, without the words in which frames differ.
    pub sent: Vec<u8>,
    /// Length of a frame when it comes back, in bytes.
    pub back: usize,
    /// Offsets of the 8-byte frame number: in a sent frame and in a returned frame.
    pub number: [usize; 2],
    /// Offset of the words in which frames differ.
    pub place: usize,
    /// Number of words in which frames differ.
    pub words: usize,
    /// These words, frame after frame, for a power of two of frames. The client sends the frames
    /// cyclically.
    pub list: Vec<u32>,
}

impl Frames {
    /// Creates frames of `length` bytes that differ only in their numbers and keep their length.
    #[must_use]
    pub fn alike(length: usize) -> Self {
        // The number follows the Ethernet header.
        let (place, list) = (16, Vec::new());
        let sent = crate::device::memory_lane::frame(length);
        Self { sent, back: length, number: [place; 2], place, words: 0, list }
    }

    /// Returns the number of distinct frames.
    fn count(&self) -> usize {
        self.list.len().checked_div(self.words).unwrap_or(1)
    }

    /// Returns true if all offsets lie inside the frames.
    fn fits(&self) -> bool {
        let sizes = [self.sent.len(), self.back];
        let fits = |(number, size): (usize, usize)| {
            number.is_multiple_of(WORD) && number + 8 <= size && size <= BUFFER
        };
        self.number.into_iter().zip(sizes).all(fits)
            && self.place.is_multiple_of(WORD)
            && self.place + self.words * WORD <= self.sent.len()
            && self.count().is_power_of_two()
    }
}

/// Both rings and the connection. Ring positions wrap around, as in memif.
pub(super) struct Rings {
    memory: SharedMemory,
    connection: Connection,
    frames: Arc<Frames>,
    /// Index of the last distinct frame, used as a mask.
    last: usize,
    written: u16,
    /// Read and return positions of the server when they were last loaded.
    read: u16,
    returned: u16,
    taken: u16,
}

impl Rings {
    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// Returns an error if there is no server, if it refuses, or if the frames are invalid.
    pub(super) fn connect(path: &Path, frames: &Arc<Frames>) -> Result<Self> {
        if !frames.fits() {
            return Err("an offset is not a multiple of 4 or lies outside the frame".into());
        }
        let memory = SharedMemory::create("bench-memif", buffer(TO_CLIENT + 1, 0))?;
        for (ring, bytes) in [(TO_SERVER, frames.sent.len()), (TO_CLIENT, BUFFER)] {
            word(&memory, start(ring)).store(COOKIE, Ordering::Relaxed);
            for place in 0..PLACES {
                let (at, buffer) = (DEFAULT.descriptor(ring, place), buffer(ring, place));
                word(&memory, at + LENGTH).store(bytes as u32, Ordering::Relaxed);
                word(&memory, at + OFFSET).store(buffer as u32, Ordering::Relaxed);
                for (number, bytes) in frames.sent.chunks(WORD).enumerate() {
                    let mut value = [0; WORD];
                    value[..bytes.len()].copy_from_slice(bytes);
                    let value = u32::from_ne_bytes(value);
                    word(&memory, buffer + WORD * number).store(value, Ordering::Relaxed);
                }
            }
        }
        // The server owns all buffers of the return direction.
        short(&memory, start(TO_CLIENT) + HEAD).store(PLACES, Ordering::Relaxed);
        short(&memory, start(TO_CLIENT) + FLAGS).store(NO_INTERRUPTS, Ordering::Relaxed);
        let places = [DEFAULT.told(TO_SERVER), DEFAULT.told(TO_CLIENT)];
        let connection = handshake::open(path, 0, memory.as_fd(), memory.len(), places)?;
        Ok(Self {
            memory,
            connection,
            frames: Arc::clone(frames),
            last: frames.count() - 1,
            written: 0,
            read: 0,
            returned: 0,
            taken: 0,
        })
    }

    /// Writes frame `number`, which leaves with [`send`](Self::send). Returns false if no slot is
    /// free.
    #[inline]
    pub(super) fn write(&mut self, number: u64) -> bool {
        if self.written.wrapping_sub(self.read) >= PLACES {
            self.read = short(&self.memory, start(TO_SERVER) + TAIL).load(Ordering::Acquire);
            if self.written.wrapping_sub(self.read) >= PLACES {
                return false;
            }
        }
        let buffer = buffer(TO_SERVER, self.written % PLACES);
        let Frames { words, list, place, number: [at, _], .. } = &*self.frames;
        if *words > 0 {
            let first = (number as usize & self.last) * words;
            for (value, offset) in list[first..first + words].iter().zip((*place..).step_by(WORD)) {
                word(&self.memory, buffer + offset).store(*value, Ordering::Relaxed);
            }
        }
        word(&self.memory, buffer + at).store(number as u32, Ordering::Relaxed);
        let upper = (number >> 32) as u32;
        word(&self.memory, buffer + at + WORD).store(upper, Ordering::Relaxed);
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes the written frames and wakes the server if it asks for that.
    #[inline]
    pub(super) fn send(&mut self) {
        short(&self.memory, start(TO_SERVER) + HEAD).store(self.written, Ordering::Release);
        // Either the server sees the frames before it sleeps, or this thread sees its request for a
        // wake-up.
        fence(Ordering::SeqCst);
        let flags = short(&self.memory, start(TO_SERVER) + FLAGS).load(Ordering::Relaxed);
        if flags & NO_INTERRUPTS == 0 {
            // The write fails only if the eventfd counter is at its maximum; the server is awake
            // then.
            let _ = rustix::io::write(&self.connection.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the number of the next frame that has come back, if any, or [`DAMAGED`] if its
    /// length is wrong. Its buffer belongs to the server again after
    /// [`give_back`](Self::give_back).
    #[inline]
    pub(super) fn take(&mut self) -> Option<u64> {
        if self.taken == self.returned {
            self.returned = short(&self.memory, start(TO_CLIENT) + TAIL).load(Ordering::Acquire);
            if self.taken == self.returned {
                return None;
            }
        }
        let place = self.taken % PLACES;
        let at = buffer(TO_CLIENT, place) + self.frames.number[1];
        let half = |at| u64::from(word(&self.memory, at).load(Ordering::Relaxed));
        let number = half(at) | half(at + WORD) << 32;
        let length = word(&self.memory, DEFAULT.descriptor(TO_CLIENT, place) + LENGTH);
        let whole = length.load(Ordering::Relaxed) as usize == self.frames.back;
        length.store(BUFFER as u32, Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(if whole { number } else { DAMAGED })
    }

    /// Returns the bytes of the frame that was taken last.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let start = buffer(TO_CLIENT, self.taken.wrapping_sub(1) % PLACES);
        let words = (start..start + self.frames.back).step_by(WORD);
        let bytes =
            words.flat_map(|at| word(&self.memory, at).load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(self.frames.back).collect()
    }

    /// Returns the buffers of taken frames to the server.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let head = self.taken.wrapping_add(PLACES);
        short(&self.memory, start(TO_CLIENT) + HEAD).store(head, Ordering::Release);
    }
}

/// Layout in memory of two rings of one size, one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingsLayout {
    /// Base-2 logarithm of the number of slots in each ring.
    pub log2_places: u8,
}

impl RingsLayout {
    /// Returns the number of slots in each ring.
    pub(super) const fn places(self) -> u16 {
        1 << self.log2_places
    }

    /// Returns the offset of a ring.
    pub(super) const fn start(self, ring: usize) -> usize {
        ring * (DESCRIPTORS + self.places() as usize * DESCRIPTOR)
    }

    /// Returns the offset of a descriptor.
    pub(super) const fn descriptor(self, ring: usize, place: u16) -> usize {
        self.start(ring) + DESCRIPTORS + place as usize * DESCRIPTOR
    }

    /// Returns what the server is told about a ring.
    pub(super) const fn told(self, ring: usize) -> RingLayout {
        RingLayout { offset: self.start(ring) as u32, log2_size: self.log2_places }
    }
}

/// Returns the offset of a ring of the default size.
const fn start(ring: usize) -> usize {
    DEFAULT.start(ring)
}

/// Returns the offset of a buffer. The buffers of each ring lie after both rings, at multiples of
/// their size.
const fn buffer(ring: usize, place: u16) -> usize {
    let rings = start(2).next_multiple_of(BUFFER);
    rings + (ring * PLACES as usize + place as usize) * BUFFER
}

/// Returns a 16-bit field of the memory at an even offset.
pub(super) fn short(memory: &SharedMemory, offset: usize) -> &AtomicU16 {
    // SAFETY: see `at`; all offsets of 16-bit fields are even, so they are aligned.
    unsafe { AtomicU16::from_ptr(at(memory, offset, 2).cast()) }
}

/// Returns a 32-bit field of the memory at a multiple of four.
pub(super) fn word(memory: &SharedMemory, offset: usize) -> &AtomicU32 {
    // SAFETY: see `at`.
    unsafe { AtomicU32::from_ptr(at(memory, offset, 4).cast()) }
}

/// Returns a pointer to a field of `size` bytes, inside the memory and aligned to its size. It is
/// valid as long as the memory and is accessed here only by atomic operations. Writes of the other
/// process can change numbers, nothing else.
fn at(memory: &SharedMemory, offset: usize, size: usize) -> *mut u8 {
    debug_assert!(offset.is_multiple_of(size) && offset + size <= memory.len());
    memory.start().as_ptr().wrapping_add(offset)
}
