//! Lane state: words per entry that lanes write and the slow path reads.
//!
//! ```text
//! page 0   header; the size of a value is 8 bytes per word of an entry
//! index    lanes = 0: the words of each entry on cache lines of their own; the lane that owns the
//!          entry's key writes them
//!          lanes > 0: one copy per lane on cache lines of its own, in it the entries' words
//!          without
//!          gaps; a lane writes its copy, readers add the copies up
//! ```
//! Every word has one writer at a time, so an addition is a load and a store. The slow path zeroes
//! the words of an entry id before it is reused ([`HashWriter::with_state`]). By then every lane
//! has finished a turn since the removal, so none still has the entry.
//!
//! [`HashWriter::with_state`]: crate::HashWriter::with_state

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::header::Header;
use crate::layout::PAGE;
use crate::{EntryId, SharedMemory, SharedWords, Spec, TableError};

/// Per-entry data that is reset before an entry id is reused.
pub trait Reset {
    /// Resets the data of an entry that no lane uses.
    fn reset(&self, entry: EntryId);
}

impl<T: Reset + ?Sized> Reset for Box<T> {
    fn reset(&self, entry: EntryId) {
        (**self).reset(entry);
    }
}

/// Lane state of all lanes, with `W` words per entry.
///
/// # Examples
/// ```
/// use fastlane_table::{EntryId, Spec, State};
///
/// // Packets and octets for 100 entries, one copy for each of two lanes.
/// let memory = Spec::state::<2>("usage", 100, 2).create()?;
/// let state = State::<2>::attach(&memory)?;
/// for lane in 0..2 {
///     let lane_state = state.lane(lane); // each lane has its own
///     let words = lane_state.at(EntryId(7));
///     words.add(0, 1);
///     words.add(1, 64);
/// }
/// assert_eq!(state.read(EntryId(7)), [2, 128]); // in the slow path
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct State<const W: usize> {
    words: SharedWords,
    capacity: usize,
    /// Distance between two entries, in words.
    stride: usize,
    /// Distance between two copies, in words.
    copy: usize,
    /// Number of copies. 0: one copy, written by the lane that owns the entry.
    lanes: usize,
}

impl<const W: usize> State<W> {
    /// Attaches to lane state. On read-only memory it can only be read.
    ///
    /// # Errors
    /// Returns an error if the memory holds no lane state, or state with another number of words.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::state::<W>("", 1, 0))?)
    }

    fn new(header: Header) -> Result<Self, TableError> {
        let memory = &header.memory;
        let (layout, spec) = (header.layout, &header.spec);
        let words = SharedWords::new(memory, PAGE / 8, (layout.length - PAGE) / 8);
        Ok(Self {
            words: header.part(words.ok())?,
            capacity: spec.capacity,
            stride: layout.stride / 8,
            copy: layout.data / 8,
            lanes: spec.lanes,
        })
    }

    /// Zeroes the first `count` words of an entry in all copies.
    fn zero(&self, entry: EntryId, count: usize) {
        let Some(first) = self.first(entry) else { return };
        for copy in 0..self.lanes.max(1) {
            (0..count).for_each(|word| self.words.store(copy * self.copy + first + word, 0));
        }
    }

    /// Returns the maximum number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of lanes with a copy of their own. 0: there is one copy, written by the
    /// lane that owns the entry.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Returns the part that a lane writes.
    ///
    /// # Panics
    /// Panics if each lane has a copy and there is no such lane.
    #[must_use]
    pub fn lane(&self, lane: usize) -> LaneState<W> {
        assert!(self.lanes == 0 || lane < self.lanes, "lane {lane} of {}", self.lanes);
        let copy = if self.lanes == 0 { 0 } else { lane };
        let words = self.words.part(copy * self.copy, self.capacity * self.stride);
        // The layout of the memory was checked when it was attached.
        LaneState { words: words.expect("a copy is inside the memory"), stride: self.stride }
    }

    #[inline(always)]
    fn first(&self, entry: EntryId) -> Option<usize> {
        (entry.index() < self.capacity).then(|| entry.index() * self.stride)
    }

    /// Returns the words of an entry, summed over the lanes. Returns zeros for an entry beyond the
    /// capacity.
    #[must_use]
    pub fn read(&self, entry: EntryId) -> [u64; W] {
        let mut sums = [0_u64; W];
        let Some(first) = self.first(entry) else { return sums };
        for copy in 0..self.lanes.max(1) {
            for (word, sum) in sums.iter_mut().enumerate() {
                *sum = sum.wrapping_add(self.words.load_acquire(copy * self.copy + first + word));
            }
        }
        sums
    }
}

impl<const W: usize> Reset for State<W> {
    fn reset(&self, entry: EntryId) {
        self.zero(entry, W);
    }
}

/// Lane state with any number of words per entry, for a writer that only resets them.
#[derive(Clone, Debug)]
pub struct AnyState {
    state: State<0>,
    /// Number of words of an entry.
    count: usize,
}

impl AnyState {
    /// Attaches to lane state.
    ///
    /// # Errors
    /// Returns an error if the memory holds none.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        let header = Header::read(memory, 0)?;
        let (name, value) = (&header.spec.name, header.spec.value);
        let expected = Spec { value, ..Spec::state::<1>(name, 1, 0) };
        let state = State::new(Header::expect(memory, 0, &expected)?)?;
        Ok(Self { state, count: value / 8 })
    }
}

impl Reset for AnyState {
    fn reset(&self, entry: EntryId) {
        self.state.zero(entry, self.count);
    }
}

/// Part of a [`State`] that one lane writes.
///
/// # Examples
/// ```
/// use fastlane_table::{EntryId, Spec, State};
///
/// let memory = Spec::state::<1>("last_seen", 100, 0).create()?; // one copy
/// let lane_state = State::<1>::attach(&memory)?.lane(0);
/// let entry = EntryId(7); // from a lookup in this turn
/// lane_state.at(entry).set(0, 1_000_000);
/// assert_eq!(lane_state.at(entry).get(0), 1_000_000);
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct LaneState<const W: usize> {
    /// Words of all entries.
    words: SharedWords,
    /// Distance between two entries, in words.
    stride: usize,
}

impl<const W: usize> LaneState<W> {
    /// Returns the words of an entry that was looked up in this turn. Beyond the capacity they read
    /// as zeros and ignore writes.
    #[inline(always)]
    #[must_use]
    pub fn at(&self, entry: EntryId) -> StateWords<'_, W> {
        let words = self.words.array(entry.index() * self.stride);
        StateWords { words, is_writable: self.words.is_writable() }
    }

    /// Returns the words of an entry that was looked up in this turn, for a caller that accesses
    /// several of them: nothing is checked any more. Returns `None` beyond the capacity, or if the
    /// memory is mapped read-only.
    #[inline(always)]
    #[must_use]
    pub fn writable(&self, entry: EntryId) -> Option<WritableWords<'_, W>> {
        let words = self.words.array(entry.index() * self.stride);
        words.filter(|_| self.words.is_writable()).map(WritableWords)
    }

    /// Prefetches the first cache line of an entry's words, ahead of an [`at`](Self::at).
    #[inline]
    pub fn prefetch(&self, entry: EntryId) {
        self.words.prefetch(entry.index().wrapping_mul(self.stride));
    }
}

/// Words of an entry that exists and may be written.
///
/// # Examples
/// ```
/// use fastlane_table::{EntryId, Spec, State};
///
/// let memory = Spec::state::<2>("usage", 100, 0).create()?;
/// let lane_state = State::<2>::attach(&memory)?.lane(0);
/// let words = lane_state.writable(EntryId(7)).ok_or("read only")?;
/// words.add(0, 1);
/// words.set(1, 64);
/// assert_eq!((words.get(0), words.get(1)), (1, 64));
/// assert!(lane_state.writable(EntryId(100)).is_none(), "beyond the capacity");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WritableWords<'a, const W: usize>(&'a [AtomicU64; W]);

impl<'a, const W: usize> WritableWords<'a, W> {
    /// Returns the value of a word.
    ///
    /// # Panics
    /// Panics if there is no such word, as do the other methods.
    #[inline(always)]
    #[must_use]
    pub fn get(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    /// Adds to a word.
    #[inline(always)]
    pub fn add(self, word: usize, amount: u64) {
        self.set(word, self.get(word).wrapping_add(amount));
    }

    /// Overwrites a word.
    #[inline(always)]
    pub fn set(self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }
}

impl<'a, const W: usize> From<WritableWords<'a, W>> for StateWords<'a, W> {
    #[inline(always)]
    fn from(words: WritableWords<'a, W>) -> Self {
        Self { words: Some(words.0), is_writable: true }
    }
}

/// Words of an entry.
#[derive(Clone, Copy, Debug)]
pub struct StateWords<'a, const W: usize> {
    words: Option<&'a [AtomicU64; W]>,
    is_writable: bool,
}

impl<const W: usize> StateWords<'_, W> {
    /// Returns a word to write to, or `None` if it is read-only or beyond the capacity.
    #[inline(always)]
    fn writable_word(&self, word: usize) -> Option<&AtomicU64> {
        assert!(word < W, "word {word} of {W}");
        self.words.filter(|_| self.is_writable).map(|words| &words[word])
    }

    /// Returns the value of a word.
    ///
    /// # Panics
    /// Panics if there is no such word, as do the other methods.
    #[inline(always)]
    #[must_use]
    pub fn get(self, word: usize) -> u64 {
        assert!(word < W, "word {word} of {W}");
        self.words.map_or(0, |words| words[word].load(Ordering::Relaxed))
    }

    /// Adds to a word.
    #[inline(always)]
    pub fn add(self, word: usize, amount: u64) {
        if let Some(cell) = self.writable_word(word) {
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Overwrites a word.
    #[inline(always)]
    pub fn set(self, word: usize, value: u64) {
        if let Some(cell) = self.writable_word(word) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    /// Overwrites a word by a releasing store: whoever reads it sees the earlier writes to other
    /// words.
    #[inline(always)]
    pub fn publish(self, word: usize, value: u64) {
        if let Some(cell) = self.writable_word(word) {
            cell.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_its_copy_and_readers_add_them_up() {
        let memory = Spec::state::<3>("counts", 5, 2).create().unwrap();
        let state = State::<3>::attach(&memory).unwrap();
        for lane in 0..2 {
            for entry in 0..5 {
                let lane_state = state.lane(lane);
                let words = lane_state.at(EntryId(entry));
                words.add(0, 1);
                words.add(2, 100 * lane as u64 + u64::from(entry));
                assert_eq!(words.get(0), 1);
            }
        }
        assert_eq!(state.read(EntryId(4)), [2, 0, 108]);
        state.reset(EntryId(4));
        assert_eq!(state.read(EntryId(4)), [0; 3]);
        assert_eq!(state.read(EntryId(3)), [2, 0, 106]);
    }

    #[test]
    fn an_entry_that_is_not_there_takes_nothing() {
        let memory = Spec::state::<1>("owned", 2, 0).create().unwrap();
        let state = State::<1>::attach(&memory).unwrap();
        let lane = state.lane(7);
        let words = lane.at(EntryId(2));
        words.add(0, 1);
        words.set(0, 9);
        assert_eq!((words.get(0), state.read(EntryId(2))), (0, [0]));
        assert!(lane.writable(EntryId(2)).is_none() && lane.writable(EntryId(1)).is_some());
        lane.prefetch(EntryId(u32::MAX));
        assert_eq!((state.read(EntryId(0)), state.read(EntryId(1))), ([0], [0]));
        state.reset(EntryId(u32::MAX));
    }

    #[test]
    fn any_words_of_an_entry_are_forgotten_and_no_others() {
        for lanes in [0, 2] {
            let memory = Spec::state::<3>("any", 3, lanes).create().unwrap();
            let state = State::<3>::attach(&memory).unwrap();
            for entry in (0..3).map(EntryId) {
                (0..3).for_each(|word| state.lane(lanes / 2).at(entry).set(word, 7));
            }
            AnyState::attach(&memory).unwrap().reset(EntryId(1));
            let read = [0, 1, 2].map(|entry| state.read(EntryId(entry)));
            assert_eq!(read, [[7; 3], [0; 3], [7; 3]]);
        }
        let other = Spec::pending("events", 3, 0).create().unwrap();
        assert!(AnyState::attach(&other).is_err());
    }

    #[test]
    fn other_words_are_refused() {
        let memory = Spec::state::<1>("one word", 2, 0).create().unwrap();
        let error = State::<2>::attach(&memory).unwrap_err().to_string();
        assert!(error.contains("value size is 8, this program expects 16"), "{error}");
    }
}
