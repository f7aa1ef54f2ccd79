//! A ring of records from one writer to one reader, most often in another process.
//!
//! ```text
//! words   0 magic   1 capacity in words   16 head   17 lost   18 started
//!         32 tail   33 waiting   64.. data
//! record  1 word: its length in words (this one included), and in the upper half whether it is one
//! ```
//! In the byte order of the machine. Head and tail count words since the start and never go back;
//! head, lost and started are the writer's, tail and waiting are the reader's. A record lies in one
//! piece: what is left at the end of the ring, and what was reserved and never
//! [sealed](JournalWriter::seal), is passed over.
//!
//! Neither side trusts the other. All access is atomic and inside the ring, whatever head, tail and
//! lengths say; a tail that lies loses records, a head or length that lies ends the reading.
//!
//! # Either side anew
//! A reader that attaches goes on at the tail, a writer at the head, whoever was there before. What
//! the last reader took and [released](JournalReader::release) is gone with it; what it did not
//! release is read again. What the last writer did not [publish](JournalWriter::publish) never was.
//!
//! # Waking
//! `waiting` counts how often the reader began and ended to wait: odd while it waits. A reader
//! makes it odd, fences, and looks at the head once more before it sleeps; a writer stores the
//! head, fences, and looks whether it is odd. So at least one of them sees the other (Dekker's
//! algorithm), and a wake-up is never lost. Each odd number is rung for once, however many turns
//! the reader takes to wake.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::{RingError, SharedMemory, SharedWords};

const MAGIC: u64 = u64::from_le_bytes(*b"FLrecrd1");
/// Words before the data.
const HEADER: usize = 64;
const CAPACITY: usize = 1;
const HEAD: usize = 16;
const LOST: usize = 17;
const STARTED: usize = 18;
const TAIL: usize = 32;
const WAITING: usize = 33;
/// In the first word of a record: it is one.
const SEALED: u64 = 1 << 32;
/// The fewest and the most words of a ring; a power of two.
const CAPACITIES: std::ops::RangeInclusive<usize> = 1 << 9..=1 << 27;

/// Bytes that a ring with room for `capacity` bytes of records takes.
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

/// The writer's side. It can be shared, since what moves is in the [`Cursor`].
#[derive(Debug)]
pub struct JournalWriter {
    header: SharedWords,
    data: SharedWords,
}

/// How far a writer has written. A copy that was kept undoes what was reserved since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    head: u64,
    /// As the reader last said.
    tail: u64,
    /// The waiting of the reader that was rung for last.
    rung: u64,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOffset(usize);

impl JournalWriter {
    /// Makes ring `number` of several equal ones in zeroed memory, each with room for `capacity`
    /// bytes: a power of two from 4 KiB to 1 GiB.
    ///
    /// # Errors
    /// Returns an error if the capacity is another, or the ring does not fit into the memory.
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

    /// Takes ring `number` of several equal ones over from a writer that has gone, to go on where
    /// that one published last; `None` when there is none. There must be one writer at a time.
    pub fn attach(memory: &Arc<SharedMemory>, number: usize) -> Result<(Self, Cursor), RingError> {
        let (header, data) = attach(memory, number)?;
        let (head, tail) = (header.load_acquire(HEAD), header.load_acquire(TAIL));
        Ok((Self { header, data }, Cursor { head, tail, rung: 0 }))
    }

    /// The longest record, in words, that finds room in any ring that is empty, wherever it begins.
    #[must_use]
    pub fn max_record_words(&self) -> usize {
        self.data.len() / 2 - 1
    }

    /// Writes once to every page, so that the lane need not wait for the kernel to find memory.
    pub fn populate(&self) {
        (0..self.data.len()).step_by(512).for_each(|word| self.data.store(word, 0));
    }

    /// Says that the writer has begun.
    pub fn start(&self) {
        self.header.store_release(STARTED, 1);
    }

    /// Counts a record for which there was no room.
    pub fn count_lost(&self) {
        self.header.add(LOST, 1);
    }

    /// Makes room for a record of `words` words; `None` when the reader has left too little.
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
        // A tail beyond the head makes this huge, and leaves no room.
        let used = cursor.head.wrapping_sub(cursor.tail);
        used <= capacity && words as u64 <= capacity - used
    }

    /// Writes a word of a record.
    #[inline]
    pub fn write_word(&self, RecordOffset(at): RecordOffset, index: usize, value: u64) {
        self.data.store(at + 1 + index, value);
    }

    /// Writes bytes into a record, from a word on.
    #[inline]
    pub fn write_bytes(&self, RecordOffset(at): RecordOffset, index: usize, bytes: &[u8]) {
        self.data.store_bytes(at + 1 + index, bytes);
    }

    /// Says that a record is complete: one that is not is passed over.
    #[inline]
    pub fn seal(&self, RecordOffset(at): RecordOffset) {
        self.data.store(at, self.data.load(at) & (SEALED - 1) | SEALED);
    }

    /// Shows the reader everything up to the cursor.
    #[inline]
    pub fn publish(&self, cursor: &Cursor) {
        self.header.store_release(HEAD, cursor.head);
    }

    /// Whether the reader waits and must be woken, after a [`publish`](Self::publish): true once
    /// for each time that it waits.
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

/// The header and the data of a ring that somebody has created.
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

/// The reader's side.
#[derive(Debug)]
pub struct JournalReader {
    header: SharedWords,
    data: SharedWords,
    /// As the writer last said.
    head: u64,
    tail: u64,
    /// The head when the reader last looked whether there is more.
    last_head: u64,
}

/// The ring does not hold what a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inconsistent;

impl JournalReader {
    /// Attaches to ring `number` of several equal ones, to go on where the last reader released;
    /// `None` when there is none. There must be one reader at a time.
    pub fn attach(memory: &Arc<SharedMemory>, number: usize) -> Result<Self, RingError> {
        let (header, data) = attach(memory, number)?;
        let tail = header.load_acquire(TAIL);
        let reader = Self { header, data, head: tail, tail, last_head: tail };
        reader.end_wait(); // the last one may have died in its sleep
        Ok(reader)
    }

    /// Whether the writer has begun.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.header.load_acquire(STARTED) == 1
    }

    /// How many records found no room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header.load(LOST)
    }

    /// The next record, in `into`; false when there is none.
    ///
    /// # Errors
    /// When the ring holds what no writer writes; it stays so.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<bool, Inconsistent> {
        self.next_within(usize::MAX, into)
    }

    /// As [`next`](Self::next), but a record of more than `most` words is no record: `into` never
    /// grows beyond so many.
    ///
    /// # Errors
    /// When the ring holds what no writer writes, or a longer record; it stays so.
    pub fn next_within(
        &mut self,
        max_words: usize,
        into: &mut Vec<u8>,
    ) -> Result<bool, Inconsistent> {
        let mut looked = false;
        loop {
            // Once: a writer that goes on and on without a record must not keep the reader here.
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

    /// Gives the room of all records read so far back to the writer.
    pub fn release(&self) {
        self.header.store_release(TAIL, self.tail);
    }

    /// Says that the reader is about to wait for the writer to ring. False when something was
    /// published since the reader last looked: then it must not wait, and nobody rings. What it
    /// looked at and left unread does not count.
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

    /// Says that the reader no longer waits.
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
