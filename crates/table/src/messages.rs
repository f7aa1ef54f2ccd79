//! Message rings between the lanes and the slow path.
//!
//! One shared memory contains two [record rings](crate::journal) per lane, all of one capacity. The
//! lane writes ring `2 * lane`; the slow path writes ring `2 * lane + 1`. A message is one record.
//! After the record's own word follow:
//!
//! ```text
//! word 0  kind (lower 32 bits), bytes of the body (upper 32 bits)
//! words   the body, zero padded
//! ```
//! All words are in the machine's byte order. The application defines the kinds; [`PUNT`] is a
//! packet, [`Punted`].
//!
//! Messages are hints. If the ring is full they are dropped and counted. What must not be lost
//! belongs in lane state.
//!
//! # Death of one side
//! Messages that a dead side sent but did not [publish](Sender::publish) are lost. So are messages
//! that [`Receiver::receive`] had returned to it. Its successor receives all others, once and in
//! order. There must be one process on each side at a time.
//!
//! # Wake-up
//! A side that is about to wait announces it in its ring ([`Receiver::begin_wait`]). Only then does
//! the other side ring its [`Doorbell`] when it publishes, once per wait.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use fastlane_table::messages::{Channel, Doorbells, size};
//! use fastlane_table::{Doorbell, SharedMemory};
//!
//! let memory = Arc::new(SharedMemory::create("messages", size(1, 4096))?);
//! let bells = [Doorbell::create()?, Doorbell::create()?];
//! let share = || {
//!     let [lane, slow] = &bells;
//!     Ok::<_, std::io::Error>(Doorbells { lane: lane.try_clone()?, slow: slow.try_clone()? })
//! };
//! let mut lane = Channel::create(&memory, 0, 4096, share()?)?;
//! let mut slow = Channel::attach_slow(&memory, 0, share()?)?;
//!
//! assert!(lane.sender.send(7, b"hello"));
//! lane.sender.publish(); // a lane does so at the end of its turn
//! let message = slow.receiver.receive().expect("an intact ring").expect("a message");
//! assert_eq!((message.kind, message.body), (7, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use zerocopy::TryFromBytes;

use crate::journal::{self, Cursor, Inconsistent, JournalReader, JournalWriter};
use crate::{Doorbell, RingError, SharedMemory};

mod punted;
pub use punted::Punted;

/// Maximum length of a message's body, in bytes. A ring of less than 128 KiB + 32 bytes takes less
/// than half of its capacity.
pub const MAX_BODY: usize = 1 << 16;
/// Kind of a message that carries a packet. Applications use the other kinds.
pub const PUNT: u32 = u32::MAX;

/// Number of words of a message before its body.
const HEADER: usize = 1;
/// Maximum length of a message, in words.
const MAX_WORDS: usize = HEADER + MAX_BODY / 8;

/// Returns the size of the memory for the messages of `lanes` lanes, in bytes. Each direction has a
/// capacity of `capacity` bytes: a power of two from 4 KiB to 1 GiB.
#[must_use]
pub const fn size(lanes: usize, capacity: usize) -> usize {
    2 * lanes * journal::size(capacity)
}

/// Doorbells of the two sides. All lanes may share the slow path's; each lane has its own.
#[derive(Debug)]
pub struct Doorbells {
    /// Doorbell of the lane, rung by the slow path.
    pub lane: Doorbell,
    /// Doorbell of the slow path, rung by the lane.
    pub slow: Doorbell,
}

/// One side of the messages between a lane and the slow path.
#[derive(Debug)]
pub struct Channel {
    /// Sender of this side.
    pub sender: Sender,
    /// Receiver of this side.
    pub receiver: Receiver,
}

impl Channel {
    /// Creates the rings of a lane in zeroed memory of [`size`] bytes and returns the lane's side.
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

/// Returns the numbers of a lane's rings: written by the lane, written by the slow path.
fn rings(lane: usize) -> Result<(usize, usize), RingError> {
    let out = lane.checked_mul(2).ok_or(RingError::NoRing(lane))?;
    Ok((out, out + 1))
}

/// Writing end of one direction.
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
        bell.ring(); // the previous sender may have died after publishing, before ringing
        Ok(Self::new(ring, cursor, bell))
    }

    /// Returns the maximum length of a message's body in this ring, in bytes.
    #[must_use]
    pub fn max_body(&self) -> usize {
        MAX_BODY.min(8 * (self.ring.max_record_words() - HEADER))
    }

    /// Writes a message, which the other side sees after the next [`publish`](Self::publish).
    /// Returns false if it is too long or does not fit; the ring counts it as lost then.
    #[inline]
    #[must_use]
    pub fn send(&mut self, kind: u32, body: &[u8]) -> bool {
        self.send_with_header(kind, &[], body)
    }

    /// Writes a message as [`send`](Self::send) does. Its body is `words` followed by `bytes`.
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

    /// Shows all sent messages to the other side by one store, and wakes that side if it waits.
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

/// A message in its receiver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Kind, defined by the application.
    pub kind: u32,
    /// Body, in bytes.
    pub body: &'a [u8],
}

impl Message<'_> {
    /// Returns the body as a value, or `None` if it has another length or is no valid value.
    #[must_use]
    pub fn value<T: TryFromBytes>(&self) -> Option<T> {
        T::try_read_from_bytes(self.body).ok()
    }
}

/// Reading end of one direction.
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

    /// Returns the number of messages that the other side could not send for lack of space.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }

    /// Returns the next message and frees its space in the ring. Does not allocate.
    ///
    /// # Errors
    /// Returns an error once, if the ring holds what no sender writes or a record that is too long.
    /// After that it returns `Ok(None)` and leaves the ring alone.
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

    /// Announces that this side is about to wait for its [`doorbell`](Self::doorbell). Returns
    /// false if messages were published since its last check; then nobody rings and it must not
    /// wait. Messages that it saw and left unread do not count.
    #[must_use]
    pub fn begin_wait(&mut self) -> bool {
        self.is_waiting = !self.is_broken && self.ring.begin_wait();
        self.is_waiting || self.is_broken
    }

    /// Ends the wait and drains the doorbell. Does nothing if this side did not wait.
    pub fn end_wait(&mut self) {
        if std::mem::take(&mut self.is_waiting) {
            self.ring.end_wait();
            self.bell.drain();
        }
    }

    /// Returns the doorbell, which becomes readable if the other side publishes during a wait.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.bell
    }
}

/// Returns the message in a record.
fn message(record: &[u8]) -> Option<Message<'_>> {
    let (first, body) = record.split_first_chunk::<8>()?;
    let first = u64::from_ne_bytes(*first);
    let length = (first >> 32) as usize;
    Some(Message { kind: first as u32, body: body.get(..length)? })
}

#[cfg(test)]
mod tests;
