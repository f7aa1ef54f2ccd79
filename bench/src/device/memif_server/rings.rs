//! The memory of a memif client with a ring in each direction, written without our driver: it
//! measures what others cost, so it does as little as it can. Nothing is copied; a frame is a
//! number, and what makes it differ from others, that is written into a buffer, and a number that
//! is read out of another.
#![allow(unsafe_code, reason = "memory that another process reads and writes")]

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

use fastlane_table::SharedMemory;

use crate::Result;
use crate::device::memif_server::handshake::{self, Connection, Place};

/// The logarithm of the number of places in each ring, as it is by default everywhere.
pub const LOG2_PLACES: u8 = 10;
/// Places in each ring.
pub(super) const PLACES: u16 = 1 << LOG2_PLACES;
/// Bytes in a buffer, as by default everywhere.
pub const BUFFER: usize = 2048;
/// Bytes from the start of a ring to its descriptors, and in one of them.
const DESCRIPTORS: usize = 128;
const DESCRIPTOR: usize = 16;
/// Where things are in a ring (`memif_ring_t`) and in a descriptor (`memif_desc_t`).
pub(super) const FLAGS: usize = 4;
pub(super) const HEAD: usize = 6;
pub(super) const TAIL: usize = 64;
pub(super) const LENGTH: usize = 4;
pub(super) const OFFSET: usize = 8;
pub(super) const COOKIE: u32 = 0x03e3_1f20;
/// In `flags` of a ring: who takes from it wants no interrupts.
pub(super) const NO_INTERRUPTS: u16 = 1;
/// Bytes of a word: what is read and written at once.
const WORD: usize = 4;
/// The number of a frame that did not come back as it was.
pub(super) const DAMAGED: u64 = u64::MAX;
/// The rings by their place in memory.
pub(super) const TO_SERVER: usize = 0;
pub(super) const TO_CLIENT: usize = 1;

/// What frames are like. Places in them are multiples of 4 bytes.
#[derive(Clone, Debug)]
pub struct Frames {
    /// A frame as it is sent, but for what differs.
    pub sent: Vec<u8>,
    /// How long it is when it comes back.
    pub back: usize,
    /// Where its number of 8 bytes is when it is sent, and when it comes back.
    pub number: [usize; 2],
    /// Where frames differ.
    pub place: usize,
    /// How many words of each frame do.
    pub words: usize,
    /// These words, frame after frame, of a power of two of frames: they are sent over and over
    /// again.
    pub list: Vec<u32>,
}

impl Frames {
    /// Frames of so many bytes that differ by nothing but their numbers and come back as long.
    #[must_use]
    pub fn alike(length: usize) -> Self {
        // After the Ethernet header.
        let (place, list) = (16, Vec::new());
        let sent = crate::device::memory_lane::frame(length);
        Self { sent, back: length, number: [place; 2], place, words: 0, list }
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.list.len().checked_div(self.words).unwrap_or(1)
    }

    /// Whether all of it lies inside frames.
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

/// Both rings, and the connection. Places are counted round, as memif does.
pub(super) struct Rings {
    memory: SharedMemory,
    connection: Connection,
    frames: Arc<Frames>,
    /// The last of the frames that differ.
    last: usize,
    written: u16,
    /// How far the server had read and returned when it was looked at last.
    read: u16,
    returned: u16,
    taken: u16,
}

impl Rings {
    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// When there is no server, or it refuses; when the frames are not possible.
    pub(super) fn connect(path: &Path, frames: &Arc<Frames>) -> Result<Self> {
        if !frames.fits() {
            return Err("the frames' places are not multiples of 4 inside them".into());
        }
        let memory = SharedMemory::create("bench-memif", buffer(TO_CLIENT + 1, 0))?;
        for (ring, bytes) in [(TO_SERVER, frames.sent.len()), (TO_CLIENT, BUFFER)] {
            word(&memory, start(ring)).store(COOKIE, Ordering::Relaxed);
            for place in 0..PLACES {
                let (at, buffer) = (descriptor(ring, place), buffer(ring, place));
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
        // All buffers of the way back are the server's.
        short(&memory, start(TO_CLIENT) + HEAD).store(PLACES, Ordering::Relaxed);
        short(&memory, start(TO_CLIENT) + FLAGS).store(NO_INTERRUPTS, Ordering::Relaxed);
        let place = |ring| Place { offset: start(ring) as u32, log2_size: LOG2_PLACES };
        let places = [place(TO_SERVER), place(TO_CLIENT)];
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

    /// Writes frame `number`, which leaves with [`send`](Self::send); false when there is no place.
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

    /// Hands over what was written, and wakes the server if it asks for that.
    #[inline]
    pub(super) fn send(&mut self) {
        short(&self.memory, start(TO_SERVER) + HEAD).store(self.written, Ordering::Release);
        // Either it sees the frames before it sleeps, or this sees that it wants to be woken.
        fence(Ordering::SeqCst);
        let flags = short(&self.memory, start(TO_SERVER) + FLAGS).load(Ordering::Relaxed);
        if flags & NO_INTERRUPTS == 0 {
            // It fails only when the server has been told very often already.
            let _ = rustix::io::write(&self.connection.bell, &1_u64.to_ne_bytes());
        }
    }

    /// The number of the next frame that has come back, if any, or [`DAMAGED`] for one of another
    /// length; its buffer is the server's again after [`give_back`](Self::give_back).
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
        let length = word(&self.memory, descriptor(TO_CLIENT, place) + LENGTH);
        let whole = length.load(Ordering::Relaxed) as usize == self.frames.back;
        length.store(BUFFER as u32, Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(if whole { number } else { DAMAGED })
    }

    /// The bytes of the frame that was taken last.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let start = buffer(TO_CLIENT, self.taken.wrapping_sub(1) % PLACES);
        let words = (start..start + self.frames.back).step_by(WORD);
        let bytes =
            words.flat_map(|at| word(&self.memory, at).load(Ordering::Relaxed).to_ne_bytes());
        bytes.take(self.frames.back).collect()
    }

    /// Lets the server have the buffers of what was taken.
    #[inline]
    pub(super) fn give_back(&mut self) {
        let head = self.taken.wrapping_add(PLACES);
        short(&self.memory, start(TO_CLIENT) + HEAD).store(head, Ordering::Release);
    }
}

/// Where a ring begins.
pub(super) const fn start(ring: usize) -> usize {
    ring * (DESCRIPTORS + PLACES as usize * DESCRIPTOR)
}

/// Where a descriptor begins.
pub(super) const fn descriptor(ring: usize, place: u16) -> usize {
    start(ring) + DESCRIPTORS + place as usize * DESCRIPTOR
}

/// Where a buffer begins: those of each ring lie after both rings, each at a multiple of its size.
const fn buffer(ring: usize, place: u16) -> usize {
    let rings = start(2).next_multiple_of(BUFFER);
    rings + (ring * PLACES as usize + place as usize) * BUFFER
}

/// Two octets of the memory, at an even place.
pub(super) fn short(memory: &SharedMemory, offset: usize) -> &AtomicU16 {
    // SAFETY: see `at`; 2 bytes are aligned, for all offsets of such fields are even.
    unsafe { AtomicU16::from_ptr(at(memory, offset, 2).cast()) }
}

/// Four octets of the memory, at a multiple of four.
pub(super) fn word(memory: &SharedMemory, offset: usize) -> &AtomicU32 {
    // SAFETY: see `at`.
    unsafe { AtomicU32::from_ptr(at(memory, offset, 4).cast()) }
}

/// A field of `size` bytes, inside the memory and aligned to its size. It lives as long as the
/// memory, and is read and written here by atomic operations only; what the other process does to
/// it can change numbers, nothing else.
fn at(memory: &SharedMemory, offset: usize, size: usize) -> *mut u8 {
    debug_assert!(offset.is_multiple_of(size) && offset + size <= memory.len());
    memory.start().as_ptr().wrapping_add(offset)
}
