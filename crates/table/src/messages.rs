//! Messages between the lanes and the slow path.
//!
//! In one shared memory lie two [journals](crate::journal) for each lane, all of one capacity:
//! number `2 * lane` is written by the lane, number `2 * lane + 1` by the slow path. A message is
//! one record; after the record's own word come
//!
//! ```text
//! word 0  kind (lower 32 bits), bytes of the body (upper 32 bits)
//! words   the body, filled up with zeros
//! ```
//! in the byte order of the machine. A kind means what the application says; [`PUNT`] is a packet,
//! [`Punted`].
//!
//! Messages are hints: when there is no room they are lost and counted. What must not be lost lies
//! in lane state.
//!
//! # When one side dies
//! Of a side that dies, what it sent and did not [publish](Sender::publish) never was. What
//! [`Receiver::receive`] had returned to it is gone with it, dealt with or not; all else its
//! successor receives, once and in order. There must be one process on each side at a time.
//!
//! # Waking
//! Whoever waits says so in its ring ([`Receiver::begin_wait`]); whoever publishes rings the other
//! side's [`Doorbell`] only then, once for each wait.

use std::sync::Arc;

use zerocopy::TryFromBytes;

use crate::journal::{self, Cursor, Inconsistent, JournalReader, JournalWriter};
use crate::{Doorbell, RingError, SharedMemory};

mod punted;
pub use punted::Punted;

/// The most bytes in the body of a message; a ring of less than 128 KiB and 32 bytes takes less
/// than half of its capacity.
pub const MAX_BODY: usize = 1 << 16;
/// The kind of a packet that a lane shows to the slow path; applications use the others.
pub const PUNT: u32 = u32::MAX;

/// Words of a message before its body.
const HEADER: usize = 1;
/// The most words of a message.
const MAX_WORDS: usize = HEADER + MAX_BODY / 8;

/// Bytes of memory for the messages of so many lanes, each with room for `capacity` bytes in either
/// direction: a power of two from 4 KiB to 1 GiB.
#[must_use]
pub const fn size(lanes: usize, capacity: usize) -> usize {
    2 * lanes * journal::size(capacity)
}

/// What wakes the two sides. All lanes may share the slow path's bell; each lane has its own.
#[derive(Debug)]
pub struct Doorbells {
    /// Rung by the slow path.
    pub lane: Doorbell,
    /// Rung by the lane.
    pub slow: Doorbell,
}

/// One side of the messages between a lane and the slow path.
#[derive(Debug)]
pub struct Channel {
    /// What this side says.
    pub sender: Sender,
    /// What it hears.
    pub receiver: Receiver,
}

impl Channel {
    /// Makes the rings of a lane in zeroed memory of [`size`] bytes, and is the lane's side of
    /// them.
    ///
    /// # Errors
    /// Returns an error if [`size`] does not allow the capacity, or the rings do not fit.
    pub fn create(
        memory: &Arc<SharedMemory>,
        lane: usize,
        capacity: usize,
        bells: Doorbells,
    ) -> Result<Self, RingError> {
        let (out, into) = rings(lane)?;
        let ring = JournalWriter::create(memory, out, capacity)?;
        JournalWriter::create(memory, into, capacity)?;
        let sender = Sender::new(ring, Cursor::default(), bells.slow);
        Ok(Self { sender, receiver: Receiver::new(memory, into, bells.lane)? })
    }

    /// Attaches the lane's side of rings that an earlier lane created.
    ///
    /// # Errors
    /// Returns an error if there are no rings of this lane.
    pub fn attach_lane(
        memory: &Arc<SharedMemory>,
        lane: usize,
        bells: Doorbells,
    ) -> Result<Self, RingError> {
        let (out, into) = rings(lane)?;
        let sender = Sender::attach(memory, out, bells.slow)?;
        Ok(Self { sender, receiver: Receiver::new(memory, into, bells.lane)? })
    }

    /// Attaches the slow path's side of a lane's rings.
    ///
    /// # Errors
    /// Returns an error if there are no rings of this lane.
    pub fn attach_slow(
        memory: &Arc<SharedMemory>,
        lane: usize,
        bells: Doorbells,
    ) -> Result<Self, RingError> {
        let (out, into) = rings(lane)?;
        let sender = Sender::attach(memory, into, bells.lane)?;
        Ok(Self { sender, receiver: Receiver::new(memory, out, bells.slow)? })
    }
}

/// The numbers of a lane's rings.
fn rings(lane: usize) -> Result<(usize, usize), RingError> {
    let out = lane.checked_mul(2).ok_or(RingError::NoRing(lane))?;
    Ok((out, out + 1))
}

/// The writing end of one direction.
#[derive(Debug)]
pub struct Sender {
    ring: JournalWriter,
    cursor: Cursor,
    bell: Doorbell,
    unpublished: bool,
}

impl Sender {
    fn new(ring: JournalWriter, cursor: Cursor, bell: Doorbell) -> Self {
        ring.start();
        Self { ring, cursor, bell, unpublished: false }
    }

    fn attach(
        memory: &Arc<SharedMemory>,
        number: usize,
        bell: Doorbell,
    ) -> Result<Self, RingError> {
        let (ring, cursor) = JournalWriter::attach(memory, number)?;
        bell.ring(); // the one before may have died between publishing and ringing
        Ok(Self::new(ring, cursor, bell))
    }

    /// The most bytes in the body of a message here.
    #[must_use]
    pub fn max_body(&self) -> usize {
        MAX_BODY.min(8 * (self.ring.max_record_words() - HEADER))
    }

    /// Writes a message, for the other side to see after the next [`publish`](Self::publish).
    /// False, and counted in the ring, when it is too long or there is no room.
    #[inline]
    #[must_use]
    pub fn send(&mut self, kind: u32, body: &[u8]) -> bool {
        self.send_with_header(kind, &[], body)
    }

    /// As [`send`](Self::send), of a body that begins with `words`.
    #[must_use]
    pub fn send_with_header(&mut self, kind: u32, words: &[u64], bytes: &[u8]) -> bool {
        let length = 8 * words.len() + bytes.len();
        let record = match length <= self.max_body() {
            true => self.ring.reserve(&mut self.cursor, HEADER + length.div_ceil(8)),
            false => None,
        };
        let Some(record) = record else {
            self.ring.count_lost();
            return false;
        };
        self.ring.write_word(record, 0, u64::from(kind) | (length as u64) << 32);
        for (index, word) in words.iter().enumerate() {
            self.ring.write_word(record, HEADER + index, *word);
        }
        self.ring.write_bytes(record, HEADER + words.len(), bytes);
        self.ring.seal(record);
        self.unpublished = true;
        true
    }

    /// Shows the other side all that was sent, by one store, and wakes it if it is_waiting.
    #[inline]
    pub fn publish(&mut self) {
        if self.unpublished {
            self.publish_all();
        }
    }

    fn publish_all(&mut self) {
        self.unpublished = false;
        self.ring.publish(&self.cursor);
        if self.ring.must_ring(&mut self.cursor) {
            self.bell.ring();
        }
    }
}

/// A message, in its receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: u32,
    /// What it says.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// The body as a value; `None` when it is of another length, or holds none.
    #[must_use]
    pub fn value<T: TryFromBytes>(&self) -> Option<T> {
        T::try_read_from_bytes(self.body).ok()
    }
}

/// The reading end of one direction.
#[derive(Debug)]
pub struct Receiver {
    ring: JournalReader,
    bell: Doorbell,
    record: Vec<u8>,
    is_broken: bool,
    is_waiting: bool,
}

impl Receiver {
    fn new(memory: &Arc<SharedMemory>, number: usize, bell: Doorbell) -> Result<Self, RingError> {
        let ring = JournalReader::attach(memory, number)?;
        let record = Vec::with_capacity(8 * MAX_WORDS);
        Ok(Self { ring, bell, record, is_broken: false, is_waiting: false })
    }

    /// How many messages found no room, as the other side says.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// The next message. Its room is the sender's again at once; it allocates nothing.
    ///
    /// # Errors
    /// Once, when the ring holds what no sender writes, or something longer than a message. It is
    /// left alone from then on, as if nothing came.
    #[inline]
    pub fn receive(&mut self) -> Result<Option<Message<'_>>, Inconsistent> {
        if self.is_broken {
            return Ok(None);
        }
        match self.next_record() {
            Ok(false) => Ok(None),
            Ok(true) => match message(&self.record) {
                Some(message) => Ok(Some(message)),
                None => {
                    self.is_broken = true;
                    Err(Inconsistent)
                }
            },
            Err(error) => {
                self.is_broken = true;
                Err(error)
            }
        }
    }

    fn next_record(&mut self) -> Result<bool, Inconsistent> {
        let found = self.ring.next_within(MAX_WORDS, &mut self.record)?;
        if found {
            self.ring.release();
        }
        Ok(found)
    }

    /// Says that this side is about to wait for its [`doorbell`](Self::doorbell). False when something was
    /// published since it last looked: then nobody rings, and it must not wait. Messages that it
    /// has seen and left are no reason.
    #[must_use]
    pub fn begin_wait(&mut self) -> bool {
        self.is_waiting = !self.is_broken && self.ring.begin_wait();
        self.is_waiting || self.is_broken
    }

    /// Says that it no longer is_waiting, and drains the bell. Nothing is done when it did not wait.
    pub fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.ring.end_wait();
            self.bell.drain();
        }
    }

    /// What becomes readable when something was published while this side waited.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.bell
    }
}

/// The message in a record.
fn message(record: &[u8]) -> Option<Message<'_>> {
    let (first, body) = record.split_first_chunk::<8>()?;
    let first = u64::from_ne_bytes(*first);
    let length = (first >> 32) as usize;
    Some(Message { kind: first as u32, body: body.get(..length)? })
}

#[cfg(test)]
mod tests;
