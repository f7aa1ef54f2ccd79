//! A ring of records from one lane to one reader in another process.
//!
//! ```text
//! words   0 magic   1 capacity in words   16 head   17 lost   18 started   32 tail   64.. data
//! record  1 word: its length in words (this one included), and in the upper half whether it is one
//! ```
//! Head and tail count words since the start and never go back; head, lost and started are the
//! lane's, tail is the reader's. A record lies in one piece: what is left at the end of the ring,
//! and what was reserved and never [sealed](JournalWriter::seal), is passed over.
//!
//! Neither side trusts the other. All access is atomic and inside the ring, whatever head, tail and
//! lengths say; a tail that lies loses records, a head or length that lies ends the reading.

use std::sync::Arc;

use crate::{SharedMemory, Words};

const MAGIC: u64 = u64::from_le_bytes(*b"FLrecrd1");
/// Words before the data.
const HEADER: usize = 64;
const CAPACITY: usize = 1;
const HEAD: usize = 16;
const LOST: usize = 17;
const STARTED: usize = 18;
const TAIL: usize = 32;
/// In the first word of a record: it is one.
const SEALED: u64 = 1 << 32;
/// The fewest and the most words of a ring; a power of two.
const CAPACITIES: std::ops::RangeInclusive<usize> = 1 << 9..=1 << 27;

/// Bytes that a ring with room for `capacity` bytes of records takes.
#[must_use]
pub const fn size(capacity: usize) -> usize {
    8 * HEADER + capacity
}

fn parts(memory: &Arc<SharedMemory>, number: usize, words: usize) -> Option<(Words, Words)> {
    if !words.is_power_of_two() || !CAPACITIES.contains(&words) {
        return None;
    }
    let first = number.checked_mul(HEADER + words)?;
    let data = Words::new(memory, first.checked_add(HEADER)?, words)?;
    Some((Words::new(memory, first, HEADER)?, data))
}

/// The lane's side. It can be shared, since what moves is in the [`Cursor`].
#[derive(Debug)]
pub struct JournalWriter {
    header: Words,
    data: Words,
}

/// How far a lane has written. A copy that was kept undoes what was reserved since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    head: u64,
    /// As the reader last said.
    tail: u64,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl JournalWriter {
    /// Makes ring `number` of several equal ones in zeroed memory, each with room for `capacity`
    /// bytes: a power of two from 4 KiB to 1 GiB. `None` when it is not, or does not fit.
    #[must_use]
    pub fn create(memory: &Arc<SharedMemory>, number: usize, capacity: usize) -> Option<Self> {
        let (header, data) = parts(memory, number, capacity / 8)?;
        header.store(CAPACITY, data.len() as u64);
        header.store_release(0, MAGIC);
        Some(Self { header, data })
    }

    /// Writes once to every page, so that the lane need not wait for the kernel to find memory.
    pub fn populate(&self) {
        (0..self.data.len()).step_by(512).for_each(|word| self.data.store(word, 0));
    }

    /// Says that the lane has begun.
    pub fn start(&self) {
        self.header.store_release(STARTED, 1);
    }

    /// Counts a record for which there was no room.
    pub fn lose(&self) {
        self.header.add(LOST, 1);
    }

    /// Makes room for a record of `words` words; `None` when the reader has left too little.
    #[inline]
    pub fn reserve(&self, cursor: &mut Cursor, words: usize) -> Option<Place> {
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
        cursor.head += (skip + words) as u64;
        Some(Place(at))
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
    pub fn word(&self, Place(at): Place, index: usize, value: u64) {
        self.data.store(at + 1 + index, value);
    }

    /// Writes bytes into a record, from a word on.
    #[inline]
    pub fn bytes(&self, Place(at): Place, index: usize, bytes: &[u8]) {
        self.data.store_bytes(at + 1 + index, bytes);
    }

    /// Says that a record is complete: one that is not is passed over.
    #[inline]
    pub fn seal(&self, Place(at): Place) {
        self.data.store(at, self.data.load(at) & (SEALED - 1) | SEALED);
    }

    /// Shows the reader everything up to the cursor.
    #[inline]
    pub fn publish(&self, cursor: &Cursor) {
        self.header.store_release(HEAD, cursor.head);
    }
}

/// The reader's side.
#[derive(Debug)]
pub struct JournalReader {
    header: Words,
    data: Words,
    /// As the lane last said.
    head: u64,
    tail: u64,
}

/// The ring does not hold what a lane writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inconsistent;

impl JournalReader {
    /// Attaches to ring `number` of several equal ones; `None` when there is none.
    #[must_use]
    pub fn attach(memory: &Arc<SharedMemory>, number: usize) -> Option<Self> {
        let first = Words::new(memory, 0, HEADER)?;
        let words = usize::try_from(first.load(CAPACITY)).ok()?;
        let (header, data) = parts(memory, number, words)?;
        let valid = header.load_acquire(0) == MAGIC && header.load(CAPACITY) == words as u64;
        valid.then_some(Self { header, data, head: 0, tail: 0 })
    }

    /// Whether the lane has begun.
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
    /// When the ring holds what no lane writes; it stays so.
    pub fn next(&mut self, into: &mut Vec<u8>) -> Result<bool, Inconsistent> {
        loop {
            if self.head == self.tail {
                self.head = self.header.load_acquire(HEAD);
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
            self.tail += words;
            if first & SEALED != 0 {
                into.clear();
                self.data.load_bytes(at + 1, words as usize - 1, into);
                return Ok(true);
            }
        }
    }

    /// Gives the room of all records read so far back to the lane.
    pub fn release(&self) {
        self.header.store_release(TAIL, self.tail);
    }
}

#[cfg(test)]
mod tests;
