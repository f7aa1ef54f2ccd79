//! A run of 64-bit words in shared memory.
#![allow(unsafe_code, reason = "words in the mapping")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{OutsideMemory, SharedMemory};

/// Consecutive 64-bit words of a [`SharedMemory`], each with exactly one writer.
///
/// Because no word has two writers, adding is a plain load and store, not a locked instruction: it
/// costs what an addition to ordinary memory costs.
#[derive(Clone, Debug)]
pub struct SharedWords {
    /// Keeps the words mapped.
    memory: Arc<SharedMemory>,
    words: NonNull<AtomicU64>,
    count: usize,
    /// `count`, or 0 in memory that is mapped for reading only: lanes add to several words a turn,
    /// and so look at one thing for each.
    writable: usize,
}

// SAFETY: the pointer is into the mapping, which any thread may use and `memory` keeps; the words
// are accessed as atomics only.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Returns a view of `count` words, starting at word number `first` of the memory.
    ///
    /// # Errors
    /// Returns an error if the words are not all inside the memory.
    pub fn new(
        memory: &Arc<SharedMemory>,
        first: usize,
        count: usize,
    ) -> Result<Self, OutsideMemory> {
        let end = first.checked_add(count).and_then(|end| end.checked_mul(8));
        if end.is_none_or(|end| end > memory.len()) {
            return Err(OutsideMemory { first, count, length: memory.len() });
        }
        // SAFETY: the words are inside the mapping, as was just found.
        let words = unsafe { memory.start().cast::<AtomicU64>().add(first) };
        let writable = if memory.is_writable() { count } else { 0 };
        Ok(Self { memory: Arc::clone(memory), words, count, writable })
    }

    /// How many words there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: `new` checked that `count` words from there on are inside the mapping, which is
        // page aligned and lives as long as `memory`; all access to it is atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    /// A word that may be written; `None` when it is not there or cannot.
    #[inline]
    fn writable_word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: as in `word`: `writable` is not more than `count`. One look, not two: a lane adds
        // to half a dozen words in each turn.
        (index < self.writable).then(|| unsafe { self.words.add(index).as_ref() })
    }

    /// As many words as the caller's array has, from `first` on; `None` when they are not all
    /// inside. Whoever writes them must be their only writer, and may if
    /// [`is_writable`](Self::is_writable) says so.
    #[inline]
    pub(crate) fn array<const W: usize>(&self, first: usize) -> Option<&[AtomicU64; W]> {
        // One look, not one for each word.
        let is_inside = first.checked_add(W).is_some_and(|end| end <= self.count);
        // SAFETY: as in `word`: they are inside the mapping, aligned, and accessed as atomics only.
        is_inside.then(|| unsafe { self.words.add(first).cast().as_ref() })
    }

    /// Whether words may be written: memory that is mapped for reading only is left as it is.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable != 0
    }

    /// All of them, for runs of words.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: as in `word`: all `count` words are inside the mapping, page aligned, alive as
        // long as `memory` is, and accessed as atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Overwrites the words from `first` on with `bytes`, the last one filled up with zeros. The
    /// caller is their only writer. False, and nothing is written, when they are not all inside.
    #[inline]
    pub fn store_bytes(&self, first: usize, bytes: &[u8]) -> bool {
        let (whole, rest) = bytes.as_chunks::<8>();
        let count = whole.len() + usize::from(!rest.is_empty());
        let place = first.checked_add(count).and_then(|end| self.words().get(first..end));
        let Some(place) = place.filter(|_| self.memory.is_writable()) else { return false };
        for (word, chunk) in place.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        if let (Some(last), false) = (place.last(), rest.is_empty()) {
            let mut chunk = [0; 8];
            chunk[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(chunk), Ordering::Relaxed);
        }
        true
    }

    /// Appends the bytes of the `count` words from `first` on. False, and nothing is appended, when
    /// they are not all inside.
    pub fn load_bytes(&self, first: usize, count: usize, into: &mut Vec<u8>) -> bool {
        let place = first.checked_add(count).and_then(|end| self.words().get(first..end));
        let Some(place) = place else { return false };
        into.reserve(8 * count);
        for word in place {
            into.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        true
    }

    /// Asks for the cache line of a word, which need not be there.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        crate::simd::prefetch(self.words.as_ptr().wrapping_add(index));
    }

    /// Reads a word.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    /// Reads a word and everything its writer wrote before it.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        // Not an acquiring load: of memory that is mapped for reading only, the standard library
        // allows none but relaxed ones (std::sync::atomic, "Atomic accesses to read-only memory").
        let value = self.load(index);
        fence(Ordering::Acquire);
        value
    }

    /// Adds to a word of which the caller is the only writer. Read-only memory is left as it is.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Overwrites a word of which the caller is the only writer.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Overwrites a word and publishes everything written before it.
    #[inline]
    pub fn store_release(&self, index: usize, value: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_inside() {
        let memory = Arc::new(SharedMemory::create("words", 4096).unwrap());
        let error = SharedWords::new(&memory, 0, 513).unwrap_err();
        assert_eq!(error, OutsideMemory { first: 0, count: 513, length: 4096 });
        assert!(SharedWords::new(&memory, usize::MAX, 2).is_err());
        let words = SharedWords::new(&memory, 510, 2).unwrap();
        words.add(1, 7);
        words.add(1, 5);
        assert_eq!((words.load(0), words.load_acquire(1)), (0, 12));
    }

    #[test]
    fn bytes_are_stored_in_whole_words_and_only_inside() {
        let memory = Arc::new(SharedMemory::create("words", 4096).unwrap());
        let words = SharedWords::new(&memory, 8, 4).unwrap();
        (0..4).for_each(|index| words.store(index, u64::MAX));
        assert!(words.store_bytes(1, b"ABCDEFGHIJ"));
        let mut bytes = b"<".to_vec();
        assert!(words.load_bytes(0, 4, &mut bytes));
        let ones = [0xff; 8];
        assert_eq!(bytes, [b"<", &ones[..], b"ABCDEFGHIJ\0\0\0\0\0\0", &ones].concat());
        assert!(!words.store_bytes(3, b"ABCDEFGHI") && !words.store_bytes(usize::MAX, b"A"));
        assert!(!words.load_bytes(3, 2, &mut bytes) && bytes.len() == 33);
        assert!(words.store_bytes(4, b"") && !words.store_bytes(5, b""));
        assert_eq!(words.load(3), u64::MAX);
    }

    #[test]
    #[should_panic(expected = "word 2 of 2")]
    fn a_word_outside_is_refused() {
        let memory = Arc::new(SharedMemory::create("words", 4096).unwrap());
        let _ = SharedWords::new(&memory, 0, 2).unwrap().load(2);
    }
}
