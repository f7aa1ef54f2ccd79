//! Slots: the memory of keys and values, and the lists from which writers take free ones.
//!
//! ```text
//! byte 0  entry id u32
//!      4  version u32
//!      8  key, zero padded to a multiple of 8 (of the value's alignment if that is greater)
//!     ..  value, zero padded
//! ```
//! A slot to which the index refers does not change. The version is odd while the slot is written,
//! and grows by two per write. A reader without a guard copies the slot between two reads of the
//! same even version.
//!
//! A number to which the index no longer refers is free again after a grace period. [`FreeList`]
//! serves slots, and likewise entries, buckets and groups.
#![allow(unsafe_code, reason = "values in the mapping")]

mod numbers;

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::claims::WriterClaim;
use crate::huge_pages::HugePages;
use crate::layout::{CACHE_LINE, stride, value_offset};
use crate::slots::numbers::Numbers;
use crate::{Guard, Key, Readers, SharedMemory, Snapshot, TableError, Value, simd};

/// Maximum time that a writer waits for a lane.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Poll interval while it waits.
const POLL_INTERVAL: Duration = Duration::from_micros(20);
/// Number of released numbers from which they are used again before others.
const REUSE: usize = 256;

/// Slots of a table, for reading.
#[derive(Debug)]
pub(crate) struct Slots<K, V> {
    start: NonNull<u8>,
    count: u32,
    memory: Arc<SharedMemory>,
    types: PhantomData<fn() -> (K, V)>,
}

// SAFETY: the pointer is into the mapping, which any thread may use and `memory` keeps. Slots are
// shared as references to plain data only while nobody writes them (`Guard`).
unsafe impl<K: Key, V: Value> Send for Slots<K, V> {}
// SAFETY: as above.
unsafe impl<K: Key, V: Value> Sync for Slots<K, V> {}

/// Content of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'t, K, V> {
    pub(crate) entry: u32,
    pub(crate) key: &'t [u8],
    pub(crate) value: &'t V,
    types: PhantomData<K>,
}

impl<K: Key, V: Value> Slot<'_, K, V> {
    /// Returns the key.
    pub(crate) fn to_key(self) -> Option<K> {
        K::read_from_bytes(self.key).ok()
    }
}

impl<K: Key, V: Value> Slots<K, V> {
    pub(crate) const STRIDE: usize = stride(size_of::<K>(), size_of::<V>(), align_of::<V>());
    const VALUE: usize = value_offset(size_of::<K>(), align_of::<V>());

    /// Returns `count` slots from byte `offset` on, or `None` if they are not all inside.
    pub(crate) fn new(memory: &Arc<SharedMemory>, offset: usize, count: usize) -> Option<Self> {
        let end = count.checked_mul(Self::STRIDE)?.checked_add(offset)?;
        if end > memory.len() || !offset.is_multiple_of(64) {
            return None;
        }
        // SAFETY: inside the mapping, as checked above.
        let start = unsafe { memory.start().add(offset) };
        let count = u32::try_from(count).ok()?;
        Some(Self { start, count, memory: Arc::clone(memory), types: PhantomData })
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Prefetches the first cache line of a slot, and the second one if the first `octets` of its
    /// value extend into it. Any slot number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32, octets: usize) {
        let start = self.start.as_ptr().wrapping_add(slot as usize * Self::STRIDE);
        simd::prefetch(start);
        if Self::VALUE + octets > CACHE_LINE {
            simd::prefetch(start.wrapping_add(CACHE_LINE));
        } else if Self::STRIDE < CACHE_LINE && !CACHE_LINE.is_multiple_of(Self::STRIDE) {
            simd::prefetch(start.wrapping_add(Self::STRIDE - 1));
        }
    }

    /// Prefetches the cache lines of the first `octets` of a slot's value. Any slot number is
    /// allowed.
    #[inline]
    pub(crate) fn prefetch_first(&self, slot: u32, octets: usize) {
        let start = self.start.as_ptr().wrapping_add(slot as usize * Self::STRIDE);
        let end = (Self::VALUE + octets).min(Self::STRIDE);
        let mut line = 0;
        while line < end {
            simd::prefetch(start.wrapping_add(line));
            line += CACHE_LINE;
        }
    }

    /// Returns the content of slot `slot_ref - 1`, or `None` if it does not exist. `slot_ref` must
    /// have been read from the index during the guard's turn.
    #[inline(always)]
    pub(crate) fn at<'t>(&'t self, _guard: &'t Guard, slot_ref: u32) -> Option<Slot<'t, K, V>> {
        let slot = slot_ref.wrapping_sub(1);
        if slot >= self.count {
            return None;
        }
        // Orders the reads of the slot after the load of its reference. A fence instead of an
        // acquiring load: memory that is mapped read-only allows relaxed loads only.
        fence(Ordering::Acquire);
        // SAFETY: the slot is inside the mapping (`new`). `VALUE` is aligned for V within it, the
        // slots begin at a multiple of 64 bytes, and STRIDE is a multiple of the alignment. Any
        // bytes are a V. The slot was published before the caller read its reference, so it is not
        // written until the lane has finished its turn, which the guard's borrow excludes for 't.
        // `self` keeps it mapped.
        unsafe {
            let start = self.start.add(slot as usize * Self::STRIDE);
            let key = std::slice::from_raw_parts(start.add(8).as_ptr(), size_of::<K>());
            let value = start.add(Self::VALUE).cast::<V>().as_ref();
            Some(Slot { entry: start.cast::<u32>().read(), key, value, types: PhantomData })
        }
    }

    /// Returns a copy of the entry id, key and value in slot `slot_ref - 1`, for callers without a
    /// guard. Returns `None` if the slot does not exist or changed during the copy.
    pub(crate) fn copy(&self, slot_ref: u32) -> Option<(u32, K, V)> {
        let slot = Some(slot_ref.wrapping_sub(1)).filter(|slot| *slot < self.count)?;
        let words = self.words(slot);
        let before = words[0].load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let (mut key, mut value) = (K::new_zeroed(), V::new_zeroed());
        load(&words[1..], key.as_mut_bytes());
        load(&words[Self::VALUE / 8..], value.as_mut_bytes());
        fence(Ordering::Acquire);
        let whole = before >> 32 & 1 == 0 && words[0].load(Ordering::Relaxed) == before;
        whole.then_some((before as u32, key, value))
    }

    /// Returns the words of a slot, which must exist.
    fn words(&self, slot: u32) -> &[AtomicU64] {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // SAFETY: inside the mapping, 8-byte aligned, and a multiple of 8 bytes long. A writer
        // accesses the words as atomics, and only while nobody has a reference to plain data in
        // them: see `at` and `SlotWriter::write`.
        unsafe {
            let start = self.start.add(slot as usize * Self::STRIDE);
            std::slice::from_raw_parts(start.cast().as_ptr(), Self::STRIDE / 8)
        }
    }
}

impl<K, V> Clone for Slots<K, V> {
    fn clone(&self) -> Self {
        let (start, count, memory) = (self.start, self.count, Arc::clone(&self.memory));
        Self { start, count, memory, types: PhantomData }
    }
}

/// Slots of a table, for its writer.
#[derive(Debug)]
pub(crate) struct SlotWriter<K, V> {
    /// Dropped before `slots`, which keep the memory mapped.
    _claim: WriterClaim,
    slots: Slots<K, V>,
    huge_pages: HugePages,
    guard: Guard,
}

impl<K: Key, V: Value> SlotWriter<K, V> {
    /// Returns `None` if the memory already has a writer.
    pub(crate) fn new(slots: Slots<K, V>) -> Option<Self> {
        let claim = slots.memory.mapping().claim_writing()?;
        // SAFETY: the guard is lent by `guard` only, together with `self`, and slots are written
        // only through a `&mut self`, of which the claim allows one per table. So nobody writes
        // while the guard is borrowed.
        let guard = unsafe { Guard::new() };
        let huge_pages = HugePages::new(&slots.memory);
        Some(Self { _claim: claim, slots, huge_pages, guard })
    }

    /// Returns the guard for the writer's own reads.
    pub(crate) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(crate) fn at(&self, slot_ref: u32) -> Option<Slot<'_, K, V>> {
        self.slots.at(&self.guard, slot_ref)
    }

    /// Writes a slot to which the index does not refer and did not refer in any turn that a lane is
    /// still in.
    pub(crate) fn write(&mut self, slot: u32, entry: u32, key: &[u8], value: &V) {
        assert!(key.len() == size_of::<K>(), "a key of {} bytes", key.len());
        let words = self.slots.words(slot);
        self.huge_pages.prepare(words);
        let writing = words[0].load(Ordering::Relaxed) >> 32 | 1;
        words[0].store(u64::from(entry) | writing << 32, Ordering::Relaxed);
        // Whoever sees one of the following words also sees that the slot is being written.
        fence(Ordering::Release);
        store(&words[1..], key);
        store(&words[Slots::<K, V>::VALUE / 8..], value.as_bytes());
        words[0].store(u64::from(entry) | (writing + 1) << 32, Ordering::Release);
    }
}

/// Stores bytes in words, zero padding the last one.
fn store(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

/// Loads bytes from words.
fn load(words: &[AtomicU64], bytes: &mut [u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks_mut(8)) {
        let bytes = word.load(Ordering::Relaxed).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Free numbers, and released numbers that lanes may still use. The list lives on the writer's heap
/// and is rebuilt when a writer attaches.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    what: &'static str,
    free: Numbers,
    /// Numbers released since the last snapshot.
    retired: Numbers,
    /// Numbers released before the last snapshot.
    waiting: Numbers,
    snapshot: Option<Snapshot>,
}

impl FreeList {
    /// Creates the list for a resource `what`. Unused numbers count as released, because lanes may
    /// still read them, unless the table is `fresh`.
    pub(crate) fn attach(what: &'static str, used: &[bool], fresh: bool) -> Self {
        let unused = Numbers::unused(used);
        let list = Self { what, ..Self::default() };
        if fresh { Self { free: unused, ..list } } else { Self { retired: unused, ..list } }
    }

    /// Releases a number to which no index refers any more. It becomes free after a grace period.
    pub(crate) fn retire(&mut self, number: u32) {
        self.retired.push(number);
    }

    /// Returns a number that was taken and never published.
    pub(crate) fn put_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Returns the number of free and released numbers.
    pub(crate) fn len(&self) -> usize {
        self.free.len() + self.retired.len() + self.waiting.len()
    }

    /// Takes a number that no lane uses, or returns `None` if there is none now.
    fn try_take(&mut self, readers: &Readers) -> Option<u32> {
        // Numbers are used again before all others have been used, which would touch all memory.
        if self.free.is_empty() || self.retired.len() >= REUSE {
            self.reclaim(readers);
        }
        self.free.pop()
    }

    fn reclaim(&mut self, readers: &Readers) {
        loop {
            if let Some(snapshot) = &mut self.snapshot {
                if !readers.passed(snapshot) {
                    return;
                }
                self.free.append(&mut self.waiting);
                self.snapshot = None;
            }
            if self.retired.is_empty() {
                return;
            }
            std::mem::swap(&mut self.retired, &mut self.waiting);
            self.snapshot = Some(readers.snapshot());
        }
    }

    /// Takes a number that no lane uses. Waits for the lanes for at most [`MAX_WAIT`], and not at
    /// all if that is useless ([`Readers::is_stalled`]).
    pub(crate) fn take(&mut self, readers: &Readers, table: &str) -> Result<u32, TableError> {
        let start = Instant::now();
        loop {
            if let Some(number) = self.try_take(readers) {
                return Ok(number);
            }
            let table = || table.to_owned();
            let Some(snapshot) = &mut self.snapshot else {
                let what = format!("no {} is left", self.what);
                return Err(TableError::Full { table: table(), what });
            };
            let is_over = start.elapsed() > MAX_WAIT;
            if is_over || readers.is_stalled() {
                let laggard = readers.laggard(snapshot);
                if let (true, Some(lane)) = (is_over, laggard) {
                    readers.set_stalled(lane);
                }
                let lane = laggard.map_or("a lane".into(), |lane| format!("lane {lane}"));
                let (what, seconds) = (self.what, MAX_WAIT.as_secs());
                return Err(TableError::Stalled { table: table(), what, lane, seconds });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests;
