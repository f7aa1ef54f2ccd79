//! Record ring: a ring of records from one writer to one reader, usually in another process.
//!
//! ```text
//! words   0 magic   1 capacity in words   16 head   17 lost   18 started
//!         32 tail   33 waiting   64.. data
//! record  1 word: its length in words (including this one); bit 32 is set once it is sealed
//! ```
//! All words are in the machine's byte order. Head and tail count words since the start and never
//! go back. The writer owns head, lost and started; the reader owns tail and waiting. A record is
//! contiguous. The reader skips the space left at the end of the ring and records that were
//! reserved but never [sealed](JournalWriter::seal).
//!
//! Neither side trusts the other. All access is atomic and inside the ring, whatever head, tail and
//! lengths say. A wrong tail loses records; a wrong head or length ends the reading.
//!
//! # Restart of one side
//! A reader that attaches continues at the tail, a writer at the head. Records that the last reader
//! [released](JournalReader::release) are consumed; records that it did not release are read again.
//! Records that the last writer did not [publish](JournalWriter::publish) are lost.
//!
//! # Wake-up
//! `waiting` counts the starts and ends of waits of the reader; it is odd while the reader waits. A
//! reader makes it odd, fences, and reads the head once more before it sleeps. A writer stores the
//! head, fences, and reads `waiting`. So at least one of them sees the other (Dekker's algorithm),
//! and no wake-up is lost. A writer rings once per odd value, however many turns the reader takes
//! to wake.
//!
//! # Examples
//! ```
//! use std::sync::Arc;
//!
//! use fastlane_table::SharedMemory;
//! use fastlane_table::journal::{Cursor, JournalReader, JournalWriter, size};
//!
//! let memory = Arc::new(SharedMemory::create("ring", size(4096))?);
//! let writer = JournalWriter::create(&memory, 0, 4096)?;
//! let mut reader = JournalReader::attach(&memory, 0)?;
//!
//! let mut cursor = Cursor::default();
//! let record = writer.reserve(&mut cursor, 1).expect("the ring is empty");
//! writer.write_word(record, 0, 42);
//! writer.seal(record);
//! writer.publish(&cursor);
//!
//! let mut bytes = Vec::new();
//! assert_eq!(reader.next(&mut bytes), Ok(true));
//! assert_eq!(bytes, 42_u64.to_ne_bytes());
//! reader.release();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::{RingError, SharedMemory, SharedWords};

const MAGIC: u64 = u64::from_le_bytes(*b"FLrecrd1");
/// Number of words before the data.
const HEADER: usize = 64;
const CAPACITY: usize = 1;
const HEAD: usize = 16;
const LOST: usize = 17;
const STARTED: usize = 18;
const TAIL: usize = 32;
const WAITING: usize = 33;
/// Bit of a record's first word that marks it as complete.
const SEALED: u64 = 1 << 32;
/// Supported ring capacities, in words. A capacity is a power of two.
const CAPACITIES: std::ops::RangeInclusive<usize> = 1 << 9..=1 << 27;

/// Returns the size of a ring for `capacity` bytes of records, in bytes.
#[must_use]
pub const fn size(capacity: usize) -> usize {
    8 * HEADER + capacity
}

/// Returns the header and the data of ring `number` with `words` words of data each.
fn parts(
    memory: &Arc<SharedMemory>,
    number: usize,
    words: usize,
) -> Result<(SharedWords, SharedWords), RingError> {
    if !words.is_power_of_two() || !CAPACITIES.contains(&words) {
        return Err(RingError::Capacity(words.saturating_mul(8)));
    }
    let first = number.saturating_mul(HEADER + words);
    let data = SharedWords::new(memory, first.saturating_add(HEADER), words)?;
    Ok((SharedWords::new(memory, first, HEADER)?, data))
}

/// Writer of a record ring. It can be shared, because its position is in the [`Cursor`].
#[derive(Debug)]
pub struct JournalWriter {
    header: SharedWords,
    data: SharedWords,
}

/// Position of a writer. Restoring an earlier copy undoes the reservations made since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    head: u64,
    /// Tail that the reader published last.
    tail: u64,
    /// Value of `waiting` for which the reader was rung last.
    rung: u64,
}

/// Offset of a record in the ring, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOffset(usize);

impl JournalWriter {
    /// Creates ring `number` of several equal ones in zeroed memory, each with a capacity of
    /// `capacity` bytes: a power of two from 4 KiB to 1 GiB.
    ///
    /// # Errors
    /// Returns an error if the capacity is not supported, or the ring does not fit into the memory.
    pub fn create(
        memory: &Arc<SharedMemory>,
        number: usize,
        capacity: usize,
    ) -> Result<Self, RingError> {
        let (header, data) = parts(memory, number, capacity / 8)?;
        header.store(CAPACITY, data.len() as u64);
        header.store_release(0, MAGIC);
        Ok(Self { header, data })
    }

    /// Takes over ring `number` of several equal ones from a writer that has ended, and continues
    /// where that one published last. There must be one writer at a time.
    ///
    /// # Errors
    /// Returns an error if there is no such ring.
    pub fn attach(memory: &Arc<SharedMemory>, number: usize) -> Result<(Self, Cursor), RingError> {
        let (header, data) = attach(memory, number)?;
        let (head, tail) = (header.load_acquire(HEAD), header.load_acquire(TAIL));
        Ok((Self { header, data }, Cursor { head, tail, rung: 0 }))
    }

    /// Returns the maximum length of a record, in words. An empty ring takes a record of this
    /// length at any position.
    #[must_use]
    pub fn max_record_words(&self) -> usize {
        self.data.len() / 2 - 1
    }

    /// Writes to every page once, so that the lane takes no page fault.
    pub fn populate(&self) {
        (0..self.data.len()).step_by(512).for_each(|word| self.data.store(word, 0));
    }

    /// Marks the ring as started.
    pub fn start(&self) {
        self.header.store_release(STARTED, 1);
    }

    /// Counts a record that did not fit.
    pub fn count_lost(&self) {
        self.header.add(LOST, 1);
    }

    /// Reserves a record of `words` words. Returns `None` if the ring is too full.
    #[inline]
    pub fn reserve(&self, cursor: &mut Cursor, words: usize) -> Option<RecordOffset> {
        let capacity = self.data.len();
        let at = (cursor.head as usize) & (capacity - 1);
        let words = words + 1;
        let left = capacity - at;
        let skip = if words <= left { 0 } else { left };
        if !self.has_room(cursor, skip + words) {
            cursor.tail = self.header.load_acquire(TAIL);
            if !self.has_room(cursor, skip + words) {
                return None;
            }
        }
        if skip > 0 {
            self.data.store(at, skip as u64);
        }
        let at = if skip > 0 { 0 } else { at };
        self.data.store(at, words as u64);
        cursor.head = cursor.head.wrapping_add((skip + words) as u64);
        Some(RecordOffset(at))
    }

    #[inline]
    fn has_room(&self, cursor: &Cursor, words: usize) -> bool {
        let capacity = self.data.len() as u64;
        // A tail beyond the head makes this huge and leaves no room.
        let used = cursor.head.wrapping_sub(cursor.tail);
        used <= capacity && words as u64 <= capacity - used
    }

    /// Writes a word of a record.
    #[inline]
    pub fn write_word(&self, RecordOffset(at): RecordOffset, index: usize, value: u64) {
        self.data.store(at + 1 + index, value);
    }

    /// Writes bytes into a record, from word `index` on.
    #[inline]
    pub fn write_bytes(&self, RecordOffset(at): RecordOffset, index: usize, bytes: &[u8]) {
        self.data.store_bytes(at + 1 + index, bytes);
    }

    /// Marks a record as complete. The reader skips records that are not.
    #[inline]
    pub fn seal(&self, RecordOffset(at): RecordOffset) {
        self.data.store(at, self.data.load(at) & (SEALED - 1) | SEALED);
    }

    /// Publishes all records up to the cursor.
    #[inline]
    pub fn publish(&self, cursor: &Cursor) {
        self.header.store_release(HEAD, cursor.head);
    }

    /// Returns true if the reader waits and must be woken. Call it after
    /// [`publish`](Self::publish). It returns true once per wait of the reader.
    #[inline]
    #[must_use]
    pub fn must_ring(&self, cursor: &mut Cursor) -> bool {
        fence(Ordering::SeqCst);
        let waiting = self.header.load(WAITING);
        let must = waiting % 2 == 1 && waiting != cursor.rung;
        if must {
            cursor.rung = waiting;
        }
        must
    }
}

/// Returns the header and the data of a ring that a writer created.
fn attach(
    memory: &Arc<SharedMemory>,
    number: usize,
) -> Result<(SharedWords, SharedWords), RingError> {
    let missing = RingError::NoRing(number);
    let first = SharedWords::new(memory, 0, HEADER)?;
    let words = usize::try_from(first.load(CAPACITY)).map_err(|_| missing)?;
    let (header, data) = parts(memory, number, words).map_err(|_| missing)?;
    let valid = header.load_acquire(0) == MAGIC && header.load(CAPACITY) == words as u64;
    if valid { Ok((header, data)) } else { Err(missing) }
}

/// Reader of a record ring.
#[derive(Debug)]
pub struct JournalReader {
    header: SharedWords,
    data: SharedWords,
    /// Head that the writer published last.
    head: u64,
    tail: u64,
    /// Head at the reader's last check for new records.
    last_head: u64,
}

/// Content of a ring that no writer produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inconsistent;

impl JournalReader {
    /// Attaches to ring `number` of several equal ones and continues after the last released
    /// record. There must be one reader at a time.
    ///
    /// # Errors
    /// Returns an error if there is no such ring.
    pub fn attach(memory: &Arc<SharedMemory>, number: usize) -> Result<Self, RingError> {
        let (header, data) = attach(memory, number)?;
        let tail = header.load_acquire(TAIL);
        let reader = Self { header, data, head: tail, tail, last_head: tail };
        reader.end_wait(); // the previous reader may have died while it waited
        Ok(reader)
    }

    /// Returns true if the writer has started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.header.load_acquire(STARTED) == 1
    }

    /// Returns the number of records that did not fit.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header.load(LOST)
    }

    /// Reads the next record into `into`. Returns false if there is none.
    ///
    /// # Errors
    /// Returns an error if the ring holds what no writer produces. Later calls return it too.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<bool, Inconsistent> {
        self.next_within(usize::MAX, into)
    }

    /// Reads the next record into `into` as [`next`](Self::next) does, but treats a record of more
    /// than `max_words` words as an error. `into` never grows beyond that.
    ///
    /// # Errors
    /// Returns an error if the ring holds what no writer produces, or a longer record. Later calls
    /// return it too.
    pub fn next_within(
        &mut self,
        max_words: usize,
        into: &mut Vec<u8>,
    ) -> Result<bool, Inconsistent> {
        let mut looked = false;
        loop {
            // At most one reload: a writer that keeps publishing skipped space must not hold the
            // reader.
            if self.head == self.tail && !looked {
                self.head = self.header.load_acquire(HEAD);
                self.last_head = self.head;
                looked = true;
            }
            let capacity = self.data.len();
            let ready = self.head.wrapping_sub(self.tail);
            if ready == 0 {
                return Ok(false);
            }
            let at = (self.tail as usize) & (capacity - 1);
            let first = self.data.load(at);
            let words = first & (SEALED - 1);
            let inside = ready.min((capacity - at) as u64);
            if ready > capacity as u64 || words == 0 || words > inside {
                return Err(Inconsistent);
            }
            let is_record = first & SEALED != 0;
            let words_within = words as usize - 1;
            if is_record && words_within > max_words {
                return Err(Inconsistent);
            }
            self.tail = self.tail.wrapping_add(words);
            if is_record {
                into.clear();
                self.data.load_bytes(at + 1, words_within, into);
                return Ok(true);
            }
        }
    }

    /// Returns the space of all records read so far to the writer.
    pub fn release(&self) {
        self.header.store_release(TAIL, self.tail);
    }

    /// Announces that the reader is about to wait for the writer to ring. Returns false if records
    /// were published since the reader's last check; then it must not wait, and nobody rings.
    /// Records that it saw and left unread do not count.
    #[must_use]
    pub fn begin_wait(&mut self) -> bool {
        self.set_waiting(true);
        fence(Ordering::SeqCst);
        let head = self.header.load_acquire(HEAD);
        let may_wait = head == self.last_head;
        if !may_wait {
            self.last_head = head;
            self.end_wait();
        }
        may_wait
    }

    /// Announces that the reader no longer waits.
    pub fn end_wait(&self) {
        self.set_waiting(false);
    }

    fn set_waiting(&self, waits: bool) {
        let before = self.header.load(WAITING);
        if (before % 2 == 1) != waits {
            self.header.store_release(WAITING, before.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests;
