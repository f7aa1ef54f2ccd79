//! Consecutive 64-bit words in shared memory.
#![allow(unsafe_code, reason = "words in the mapping")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{OutsideMemory, SharedMemory};

/// Consecutive 64-bit words of a [`SharedMemory`], each with exactly one writer.
///
/// Because no word has two writers, an addition is a plain load and store without a locked
/// instruction. It costs as much as in ordinary memory.
#[derive(Clone, Debug)]
pub struct SharedWords {
    /// Keeps the words mapped.
    memory: Arc<SharedMemory>,
    words: NonNull<AtomicU64>,
    count: usize,
    /// `count`, or 0 if the memory is mapped read-only. One comparison then checks bounds and
    /// access.
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
        // SAFETY: the words are inside the mapping, as checked above.
        let words = unsafe { memory.start().cast::<AtomicU64>().add(first) };
        let writable = if memory.is_writable() { count } else { 0 };
        Ok(Self { memory: Arc::clone(memory), words, count, writable })
    }

    /// Returns a view of `count` of these words from `first` on, or `None` if they are not all
    /// inside.
    pub(crate) fn part(&self, first: usize, count: usize) -> Option<Self> {
        let end = first.checked_add(count).filter(|end| *end <= self.count)?;
        // SAFETY: `first` is at most `count`, so this is inside the mapping or its end.
        let words = unsafe { self.words.add(end - count) };
        let writable = if self.is_writable() { count } else { 0 };
        Some(Self { memory: Arc::clone(&self.memory), words, count, writable })
    }

    /// Returns the number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: `new` checked that all `count` words are inside the mapping, which is page
        // aligned and lives as long as `memory`. All access to it is atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    /// Returns a word to write to, or `None` if it does not exist or is read-only.
    #[inline]
    fn writable_word(&self, index: usize) -> Option<&AtomicU64> {
        // SAFETY: as in `word`, because `writable` is at most `count`. The single comparison
        // matters: a lane adds to half a dozen words per turn.
        (index < self.writable).then(|| unsafe { self.words.add(index).as_ref() })
    }

    /// Returns the words of an array that begins at `first`, or `None` if they are not all inside.
    /// A caller that writes them must be their only writer and check
    /// [`is_writable`](Self::is_writable).
    #[inline(always)]
    pub(crate) fn array<const W: usize>(&self, first: usize) -> Option<&[AtomicU64; W]> {
        // One comparison for all words.
        let is_inside = self.count.checked_sub(W).is_some_and(|last| first <= last);
        // SAFETY: as in `word`: they are inside the mapping, aligned, and accessed as atomics only.
        is_inside.then(|| unsafe { self.words.add(first).cast().as_ref() })
    }

    /// Returns true if the words are not mapped read-only.
    #[inline(always)]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable != 0
    }

    /// Returns all words as a slice.
    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: as in `word`: all `count` words are inside the mapping, page aligned, alive as
        // long as `memory` is, and accessed as atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Overwrites words from `first` on with `bytes`, zero padding the last one. The caller must be
    /// their only writer. Returns false and writes nothing if they are not all inside, or the
    /// memory is read-only.
    #[inline]
    pub fn store_bytes(&self, first: usize, bytes: &[u8]) -> bool {
        let (whole, rest) = bytes.as_chunks::<8>();
        let count = whole.len() + usize::from(!rest.is_empty());
        let words = first.checked_add(count).and_then(|end| self.words().get(first..end));
        let Some(words) = words.filter(|_| self.memory.is_writable()) else { return false };
        for (word, chunk) in words.iter().zip(whole) {
            word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
        }
        if let (Some(last), false) = (words.last(), rest.is_empty()) {
            let mut chunk = [0; 8];
            chunk[..rest.len()].copy_from_slice(rest);
            last.store(u64::from_ne_bytes(chunk), Ordering::Relaxed);
        }
        true
    }

    /// Appends the bytes of `count` words from `first` on to `into`. Returns false and appends
    /// nothing if they are not all inside.
    pub fn load_bytes(&self, first: usize, count: usize, into: &mut Vec<u8>) -> bool {
        let words = first.checked_add(count).and_then(|end| self.words().get(first..end));
        let Some(words) = words else { return false };
        into.reserve(8 * count);
        for word in words {
            into.extend(word.load(Ordering::Relaxed).to_ne_bytes());
        }
        true
    }

    /// Prefetches the cache line of a word, which need not exist.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        crate::simd::prefetch(self.words.as_ptr().wrapping_add(index));
    }

    /// Returns a word, by a relaxed load.
    #[inline]
    #[must_use]
    pub fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    /// Returns a word, by an acquiring load.
    #[inline]
    #[must_use]
    pub fn load_acquire(&self, index: usize) -> u64 {
        // A fence instead of an acquiring load: on memory that is mapped read-only the standard
        // library allows relaxed loads only (std::sync::atomic, "Atomic accesses to read-only
        // memory").
        let value = self.load(index);
        fence(Ordering::Acquire);
        value
    }

    /// Adds to a word. The caller must be its only writer. Does nothing on read-only memory.
    #[inline]
    pub fn add(&self, index: usize, amount: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// Overwrites a word. The caller must be its only writer. Does nothing on read-only memory.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Overwrites a word by a releasing store, which publishes everything written before. The
    /// caller must be its only writer.
    #[inline]
    pub fn store_release(&self, index: usize, value: u64) {
        if let Some(word) = self.writable_word(index) {
            word.store(value, Ordering::Release);
        }
    }
}

/// Words of a [`SharedMemory`] in a number that is known when compiled, each with exactly one
/// writer. A lane adds to half a dozen of them in each turn, so nothing is tested: additions to
/// memory that is mapped read-only go into words that nobody reads.
#[derive(Clone, Debug)]
pub(crate) struct WordBlock<const W: usize> {
    words: NonNull<[AtomicU64; W]>,
    written: NonNull<[AtomicU64; W]>,
    /// Keeps `words` mapped.
    _memory: Arc<SharedMemory>,
    /// Keeps `written` allocated, if it is not `words`.
    _unread: Option<Arc<[AtomicU64; W]>>,
}

// SAFETY: as for `SharedWords`; `_unread` is atomics as well.
unsafe impl<const W: usize> Send for WordBlock<W> {}
// SAFETY: as above.
unsafe impl<const W: usize> Sync for WordBlock<W> {}

impl<const W: usize> WordBlock<W> {
    /// Returns a view of the words from word number `first` of the memory on.
    ///
    /// # Errors
    /// Returns an error if the words are not all inside the memory.
    pub(crate) fn new(memory: &Arc<SharedMemory>, first: usize) -> Result<Self, OutsideMemory> {
        let words = SharedWords::new(memory, first, W)?.words.cast();
        let unread = (!memory.is_writable()).then(|| Arc::new([const { AtomicU64::new(0) }; W]));
        let written = unread.as_deref().map_or(words, NonNull::from);
        Ok(Self { words, written, _memory: Arc::clone(memory), _unread: unread })
    }

    /// Returns the words as they are in the memory.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64; W] {
        // SAFETY: `new` checked that the words are inside the mapping, which is page aligned and
        // lives as long as `_memory`. All access to it is atomic.
        unsafe { self.words.as_ref() }
    }

    /// Returns the words to write to.
    #[inline]
    pub(crate) fn written(&self) -> &[AtomicU64; W] {
        // SAFETY: either as in `words`, and the memory is writable; or `_unread` keeps them.
        unsafe { self.written.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

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
    fn a_block_is_inside_and_writes_to_read_only_memory_change_nothing() {
        let memory = SharedMemory::create("words", 4096).unwrap();
        let reader = SharedMemory::attach_read_only(memory.as_fd().try_clone_to_owned().unwrap());
        let (memory, reader) = (Arc::new(memory), Arc::new(reader.unwrap()));
        assert!(WordBlock::<2>::new(&memory, 511).is_err());
        let block = WordBlock::<2>::new(&memory, 510).unwrap();
        let read = WordBlock::<2>::new(&reader, 510).unwrap();
        block.written()[1].store(7, Ordering::Relaxed);
        read.written()[1].store(9, Ordering::Relaxed);
        assert_eq!(block.words()[1].load(Ordering::Relaxed), 7);
        assert_eq!(read.words()[1].load(Ordering::Relaxed), 7);
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
