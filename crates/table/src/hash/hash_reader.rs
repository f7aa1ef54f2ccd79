//! Reader of a hash table: buckets in shared memory, the keyed hash that selects one, and lookups.
//! The writer searches and stores through it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::header::Header;
use crate::shared_slice::{Atomic, SharedSlice};
use crate::slots::Slots;
use crate::{EntryId, Guard, Key, SharedMemory, Spec, TableError, Value, simd};

/// Number of keys that are looked up together.
const BATCH: usize = 32;

/// Entry of a hash table: the result of a lookup.
#[derive(Debug)]
pub struct HashEntry<'t, V> {
    /// Id of the entry. Lane state is indexed by it.
    pub entry: EntryId,
    /// Value, borrowed for the rest of the turn.
    pub value: &'t V,
}

impl<V> Clone for HashEntry<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for HashEntry<'_, V> {}

/// Reader of a hash table. Lanes may share one or have one each. Nothing here allocates, waits or
/// retries, whatever the writer does or leaves behind.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{Guard, HashReader, HashWriter, Readers, Spec};
///
/// let memory = Spec::hash::<u32, u64>("flows", 1024).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = HashWriter::<u32, u64>::attach(&memory, &readers)?;
/// for key in 0..100 {
///     writer.insert(&key, &(u64::from(key) * 10))?;
/// }
///
/// let reader = HashReader::<u32, u64>::attach(&memory)?;
/// // In a lane the turn is the guard.
/// // SAFETY: the writer does not write while the guard is borrowed.
/// let guard = unsafe { Guard::new() };
/// assert_eq!(reader.get(&guard, &7).map(|found| *found.value), Some(70));
///
/// // The cache misses of a batch overlap.
/// let mut found = [None; 3];
/// assert_eq!(reader.get_many(&guard, &[1, 1000, 2], &mut found), 2);
/// assert_eq!(found.map(|found| found.map(|found| *found.value)), [Some(10), None, Some(20)]);
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HashReader<K, V> {
    /// Primary buckets, then overflow buckets.
    pub(super) buckets: SharedSlice<Bucket>,
    /// Number of primary buckets, less 1.
    pub(super) mask: u64,
    pub(super) slots: Slots<K, V>,
    pub(super) capacity: u32,
    seed: [u64; 2],
    pub(super) header: Arc<Header>,
    types: PhantomData<fn(K) -> V>,
}

impl<K: Key, V: Value> HashReader<K, V> {
    /// Attaches to a table.
    ///
    /// # Errors
    /// Returns an error if the memory holds no hash table, or one of other types.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::hash::<K, V>("", 1))?)
    }

    pub(super) fn new(header: Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let count = layout.buckets + layout.overflow;
        let buckets = header.part(SharedSlice::new(memory, header.base + layout.index, count))?;
        let slots = Slots::new(memory, header.base + layout.data, layout.slots);
        Ok(Self {
            buckets,
            mask: layout.buckets as u64 - 1,
            slots: header.part(slots)?,
            capacity: header.spec.capacity as u32,
            seed: header.spec.seed,
            header: Arc::new(header),
            types: PhantomData,
        })
    }

    /// Returns true if another table has replaced this one. The owner of this reader gets it from
    /// whoever passed it this one, which stays as it was.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.generation() < self.header.next_generation()
    }

    /// Returns the generation of the table: 1, or one more than that of the table that it replaced.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.header.generation()
    }

    /// Returns the maximum number of entries. Entry ids are smaller.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Returns the entry of a key, or `None` if there is none.
    #[inline]
    pub fn get<'t, G>(&'t self, turn: &'t G, key: &K) -> Option<HashEntry<'t, V>>
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.find(turn.as_ref(), self.hash(key), key)
    }

    /// Looks up many keys at once, so that their cache misses overlap. Writes the result of each
    /// key to `found`, as far as it has room, and returns the number of keys that exist.
    #[inline]
    pub fn get_many<'t, G>(
        &'t self,
        turn: &'t G,
        keys: &[K],
        found: &mut [Option<HashEntry<'t, V>>],
    ) -> usize
    where
        G: AsRef<Guard> + ?Sized,
    {
        let mut hits = 0;
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            self.batch(turn.as_ref(), keys, size_of::<V>(), found.iter_mut(), |found, entry| {
                *found = entry;
                hits += usize::from(entry.is_some());
            });
        }
        hits
    }

    /// Looks up many keys at once, as [`get_many`](Self::get_many), and passes the index and the
    /// entry of each key that exists to `take` as soon as it is known. There the caller prefetches
    /// what it has of the entry, while other keys still wait for memory. Of the values, only the
    /// first `octets` are prefetched.
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// # use fastlane_table::{Guard, HashReader, HashWriter, Readers, Spec, State};
    /// # let memory = Spec::hash::<u32, [u64; 9]>("flows", 1024).create()?;
    /// # // SAFETY: no lane reads in this example.
    /// # let readers = Arc::new(unsafe { Readers::none() });
    /// # let mut writer = HashWriter::<u32, [u64; 9]>::attach(&memory, &readers)?;
    /// # writer.insert(&7, &[70; 9])?;
    /// # let reader = HashReader::<u32, [u64; 9]>::attach(&memory)?;
    /// # // SAFETY: the writer does not write while the guard is borrowed.
    /// # let guard = unsafe { Guard::new() };
    /// let state = State::<2>::attach(&Spec::state::<2>("usage", 1024, 1).create()?)?.lane(0);
    /// let mut found = [None; 2];
    /// // The lane reads the first word of a value, then the state.
    /// reader.find_many(&guard, &[1, 7], 8, |index, entry| {
    ///     state.prefetch(entry.entry);
    ///     found[index] = Some(entry);
    /// });
    /// assert_eq!(found.map(|found| found.map(|found| found.value[0])), [None, Some(70)]);
    /// # Ok::<(), fastlane_table::TableError>(())
    /// ```
    #[inline]
    pub fn find_many<'t, G>(
        &'t self,
        turn: &'t G,
        keys: &[K],
        octets: usize,
        mut take: impl FnMut(usize, HashEntry<'t, V>),
    ) where
        G: AsRef<Guard> + ?Sized,
    {
        for (number, keys) in keys.chunks(BATCH).enumerate() {
            self.batch(turn.as_ref(), keys, octets, (number * BATCH).., |index, entry| {
                if let Some(entry) = entry {
                    take(index, entry);
                }
            });
        }
    }

    /// Looks up a batch of keys and passes the entry of each with its place to `take`, in their
    /// order.
    #[inline(always)]
    fn batch<'t, P>(
        &'t self,
        guard: &'t Guard,
        keys: &[K],
        octets: usize,
        places: impl IntoIterator<Item = P>,
        mut take: impl FnMut(P, Option<HashEntry<'t, V>>),
    ) {
        let mut hashes = [0; BATCH];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key);
            simd::prefetch(self.buckets.as_ptr().wrapping_add((*hash & self.mask) as usize));
        }
        // References of the first way with the key's tag. 0: none in this bucket, but it links to
        // another.
        let mut slot_refs = [ABSENT; BATCH];
        for ((slot_ref, hash), _) in slot_refs.iter_mut().zip(&hashes).zip(keys) {
            let Some(bucket) = self.bucket(*hash) else { continue };
            let ways = bucket.matching(tag_of(*hash));
            if ways != 0 {
                *slot_ref = bucket.slot_ref(ways.trailing_zeros() as usize);
                self.slots.prefetch(slot_ref.wrapping_sub(1), octets);
            } else if bucket.next() != 0 {
                *slot_ref = 0;
            }
        }
        let lookups = keys.iter().zip(&slot_refs).zip(&hashes);
        for (place, ((key, slot_ref), hash)) in places.into_iter().zip(lookups) {
            let mut entry = None;
            if *slot_ref != ABSENT {
                entry = self.check(guard, *slot_ref, key).or_else(|| self.find(guard, *hash, key));
            }
            take(place, entry);
        }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        hash_of(self.seed, key)
    }

    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> Option<&Bucket> {
        self.buckets.get((hash & self.mask) as usize)
    }

    /// Returns the bucket that a `next` word links to.
    #[inline(always)]
    pub(super) fn linked(&self, next: u32) -> Option<&Bucket> {
        if next == 0 {
            return None;
        }
        // Orders the reads of the bucket after the load of the link.
        fence(Ordering::Acquire);
        self.buckets.get((self.mask + u64::from(next)) as usize)
    }

    #[inline]
    fn find<'t>(&'t self, guard: &'t Guard, hash: u64, key: &K) -> Option<HashEntry<'t, V>> {
        let mut bucket = self.bucket(hash)?;
        for _ in 0..=CHAIN {
            for way in bits(bucket.matching(tag_of(hash))) {
                if let Some(found) = self.check(guard, bucket.slot_ref(way), key) {
                    return Some(found);
                }
            }
            bucket = self.linked(bucket.next())?;
        }
        None
    }

    #[inline(always)]
    fn check<'t>(&'t self, guard: &'t Guard, slot_ref: u32, key: &K) -> Option<HashEntry<'t, V>> {
        let slot = self.slots.at(guard, slot_ref)?;
        let is_it = is_equal(slot.key, key.as_bytes()) && slot.entry < self.capacity;
        is_it.then_some(HashEntry { entry: EntryId(slot.entry), value: slot.value })
    }
}

/// Compares the bytes of two keys, whose length is known where this is inlined: no call of `memcmp`
/// for a few words, which a lane almost always finds equal.
#[inline(always)]
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    let differences = words.iter().zip(other_words).fold(0, |differences, (one, other)| {
        differences | (u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other))
    });
    differences == 0 && rest == other_rest && one.len() == other.len()
}

/// Marker of a key that is certain not to exist.
const ABSENT: u32 = u32::MAX;

/// Number of ways (slot references) of a bucket.
pub(super) const WAYS: usize = 8;

/// Maximum number of overflow buckets in a chain. Readers follow no more.
pub(super) const CHAIN: usize = 16;

/// Eight ways and the link to the next bucket: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Eight tags, four per word.
    tags: [AtomicU64; 2],
    slot_refs: [AtomicU32; WAYS],
    next: AtomicU32,
    reserved: [AtomicU32; 3],
}

const _: () = assert!(size_of::<Bucket>() == 64);

#[allow(unsafe_code, reason = "buckets lie in shared memory")]
// SAFETY: 2 x 8 bytes, 8 x 4 bytes and 4 x 4 bytes of atomics, aligned to 64.
unsafe impl Atomic for Bucket {}

impl Bucket {
    #[inline(always)]
    pub(super) fn matching(&self, tag: u16) -> u32 {
        let [first, second] = &self.tags;
        simd::matching([first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)], tag)
    }

    #[inline(always)]
    pub(super) fn slot_ref(&self, way: usize) -> u32 {
        self.slot_refs[way % WAYS].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    pub(super) fn tag(&self, way: usize) -> u16 {
        (self.tags[way / 4].load(Ordering::Relaxed) >> (way % 4 * 16)) as u16
    }

    /// Sets a tag. Like the other setters, only the writer calls it.
    pub(super) fn set_tag(&self, way: usize, tag: u16) {
        let shift = way % 4 * 16;
        let word = &self.tags[way / 4];
        let others = word.load(Ordering::Relaxed) & !(0xFFFF << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Release);
    }

    pub(super) fn set_slot_ref(&self, way: usize, slot_ref: u32) {
        self.slot_refs[way].store(slot_ref, Ordering::Release);
    }

    pub(super) fn set_next(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    pub(super) fn empty_way(&self) -> Option<usize> {
        (0..WAYS).find(|way| self.slot_ref(*way) == 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        (0..WAYS).all(|way| self.slot_ref(way) == 0)
    }
}

/// Returns the positions of the set bits of `ways`, lowest first.
#[inline(always)]
pub(super) fn bits(mut ways: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let way = (ways != 0).then(|| ways.trailing_zeros() as usize)?;
        ways &= ways - 1;
        Some(way)
    })
}

const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline(always)]
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn pair(hash: u64, seed: u64, bytes: &[u8; 16]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    fold(hash ^ u64::from_le_bytes(words[0]), seed ^ u64::from_le_bytes(words[1]))
}

/// Returns the hash of a key, as documented in the module `hash`.
#[inline(always)]
pub(super) fn hash_of<K: Key>(seed: [u64; 2], key: &K) -> u64 {
    let (whole, rest) = key.as_bytes().as_chunks::<16>();
    let mut hash = seed[0] ^ size_of::<K>() as u64;
    for bytes in whole {
        hash = pair(hash, seed[1], bytes);
    }
    if !size_of::<K>().is_multiple_of(16) {
        let mut bytes = [0; 16];
        bytes[..rest.len()].copy_from_slice(rest);
        hash = pair(hash, seed[1], &bytes);
    }
    fold(hash ^ seed[1], GOLDEN_RATIO)
}

/// Returns the tag that a bucket stores of a hash; never 0.
#[inline(always)]
pub(super) fn tag_of(hash: u64) -> u16 {
    ((hash >> 48) as u16).max(1)
}
