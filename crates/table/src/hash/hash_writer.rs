//! Writer of a hash table: insertion, update and removal by the slow path.

use std::sync::Arc;

use super::hash_reader::{HashEntry, HashReader};
use super::{Bucket, CHAIN, bits, tag_of};
use crate::slots::{FreeList, SlotWriter};
use crate::{EntryId, Guard, Key, Readers, Reset, TableError, Value};

/// Writer of a hash table. A table has one writer at a time; the session ensures this.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{HashWriter, Readers, Spec};
///
/// let memory = Spec::hash::<[u8; 4], u64>("blocked", 1024).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = HashWriter::<[u8; 4], u64>::attach(&memory, &readers)?;
/// let entry = writer.insert(&[192, 0, 2, 1], &1)?;
/// assert_eq!(writer.insert(&[192, 0, 2, 1], &2)?, entry); // an update keeps the entry id
/// assert_eq!(writer.get(&[192, 0, 2, 1]).map(|found| *found.value), Some(2));
/// assert!(writer.remove(&[192, 0, 2, 1]));
/// assert!(writer.is_empty());
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
pub struct HashWriter<K, V> {
    pub(super) reader: HashReader<K, V>,
    pub(super) slots: SlotWriter<K, V>,
    pub(super) readers: Arc<Readers>,
    pub(super) states: Vec<Box<dyn Reset + Send + Sync>>,
    pub(super) free: FreeLists,
    pub(super) len: usize,
    pub(super) repaired: usize,
}

/// Free resources of the table.
#[derive(Debug)]
pub(super) struct FreeLists {
    pub(super) slots: FreeList,
    pub(super) entries: FreeList,
    pub(super) overflow: FreeList,
}

/// Result of a search for a key.
struct Search {
    /// Bucket, way and slot reference of the key.
    found: Option<(u32, usize, u32)>,
    /// Bucket and number of the first empty way.
    empty: Option<(u32, usize)>,
    /// Last bucket of the chain, and the number of buckets in the chain.
    last: (u32, usize),
}

impl<K: Key, V: Value> HashWriter<K, V> {
    /// Registers lane state that belongs to the entries. It is reset before an entry id is reused,
    /// when no lane can write to it for the previous key any more.
    pub fn with_state(&mut self, state: impl Reset + Send + Sync + 'static) {
        self.states.push(Box::new(state));
    }

    /// Returns the name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reader.header.name()
    }

    /// Returns the guard for reading other tables that only this writer's owner writes.
    pub(crate) fn guard(&self) -> &Guard {
        self.slots.guard()
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of keys.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.reader.capacity()
    }

    /// Returns the number of words that were repaired when the writer attached. A writer that is
    /// killed leaves at most one empty bucket to be unlinked.
    #[must_use]
    pub fn repaired(&self) -> usize {
        self.repaired
    }

    /// Returns the entry of a key, or `None` if there is none.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<HashEntry<'_, V>> {
        self.reader.get(self.slots.guard(), key)
    }

    /// Looks up many keys at once, as [`HashReader::get_many`] does.
    pub fn get_many<'t>(&'t self, keys: &[K], found: &mut [Option<HashEntry<'t, V>>]) -> usize {
        self.reader.get_many(self.slots.guard(), keys, found)
    }

    /// Returns all keys with their entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (K, HashEntry<'_, V>)> {
        // An empty overflow bucket that is not linked has no references; all others are reached.
        self.reader.buckets.iter().flat_map(move |bucket| {
            (0..super::WAYS).filter_map(move |way| {
                let slot = self.slots.at(bucket.slot_ref(way))?;
                let found = HashEntry { entry: EntryId(slot.entry), value: slot.value };
                Some((slot.to_key()?, found))
            })
        })
    }

    /// Inserts a key, or replaces the value of an existing one. The entry id stays the same until
    /// the key is removed.
    ///
    /// # Errors
    /// Returns [`Full`](TableError::Full) if there is no room, and [`Stalled`](TableError::Stalled)
    /// if a lane delays the reuse of released slots. The table is unchanged in both cases.
    pub fn insert(&mut self, key: &K, value: &V) -> Result<EntryId, TableError> {
        let hash = self.reader.hash(key);
        let search = self.search(hash, key);
        if let Some((bucket, way, slot_ref)) = search.found {
            let entry = self.slots.at(slot_ref).map_or(0, |slot| slot.entry);
            let slot = self.free.slots.take(&self.readers, self.reader.header.name())?;
            self.slots.write(slot, entry, key.as_bytes(), value);
            self.bucket(bucket).set_slot_ref(way, slot + 1);
            self.free.slots.retire(slot_ref - 1);
            return Ok(EntryId(entry));
        }
        self.add(hash, search, key, value, None)
    }

    /// Inserts a key that does not exist, with an entry id that is not used.
    pub(super) fn insert_with_id(
        &mut self,
        key: &K,
        value: &V,
        entry: EntryId,
    ) -> Result<EntryId, TableError> {
        let hash = self.reader.hash(key);
        self.add(hash, self.search(hash, key), key, value, Some(entry.0))
    }

    /// Rebuilds the list of free entry ids after [`insert_with_id`](Self::insert_with_id). Unused
    /// ids may have been in use before.
    pub(super) fn take_over_entries(&mut self) {
        let mut used = vec![false; self.capacity()];
        self.iter().for_each(|(_, found)| used[found.entry.index()] = true);
        self.free.entries = FreeList::attach("entry id", &used, false);
    }

    fn add(
        &mut self,
        hash: u64,
        at: Search,
        key: &K,
        value: &V,
        entry: Option<u32>,
    ) -> Result<EntryId, TableError> {
        let chained = at.last.1 > CHAIN && at.empty.is_none();
        if self.len == self.capacity() || chained {
            let what = format!("it holds {} of {}", self.len, self.capacity());
            return Err(TableError::Full { table: self.name().to_owned(), what });
        }
        let bucket = match at.empty {
            Some(_) => None,
            None => Some(self.free.overflow.take(&self.readers, self.reader.header.name())?),
        };
        let (slot, entry) = self.take_slot_and_entry(entry).inspect_err(|_| {
            if let Some(bucket) = bucket {
                self.free.overflow.put_back(bucket);
            }
        })?;
        for state in &self.states {
            state.reset(EntryId(entry));
        }
        self.slots.write(slot, entry, key.as_bytes(), value);
        if let Some((bucket, way)) = at.empty {
            let bucket = self.bucket(bucket);
            bucket.set_tag(way, tag_of(hash));
            bucket.set_slot_ref(way, slot + 1);
        } else if let Some(new) = bucket {
            let bucket = self.bucket(self.overflow(new));
            (0..super::WAYS).for_each(|way| bucket.set_slot_ref(way, 0));
            bucket.set_next(0);
            bucket.set_tag(0, tag_of(hash));
            bucket.set_slot_ref(0, slot + 1);
            self.bucket(at.last.0).set_next(new + 1);
        }
        self.len += 1;
        Ok(EntryId(entry))
    }

    fn take_slot_and_entry(&mut self, entry: Option<u32>) -> Result<(u32, u32), TableError> {
        let name = self.reader.header.name();
        let slot = self.free.slots.take(&self.readers, name)?;
        match entry.map_or_else(|| self.free.entries.take(&self.readers, name), Ok) {
            Ok(entry) => Ok((slot, entry)),
            Err(error) => {
                self.free.slots.put_back(slot);
                Err(error)
            }
        }
    }

    /// Removes a key. Returns false if there is none.
    pub fn remove(&mut self, key: &K) -> bool {
        let search = self.search(self.reader.hash(key), key);
        let Some((bucket, way, slot_ref)) = search.found else { return false };
        let entry = self.slots.at(slot_ref).map(|slot| slot.entry);
        self.bucket(bucket).set_slot_ref(way, 0);
        self.bucket(bucket).set_tag(way, 0);
        self.free.slots.retire(slot_ref - 1);
        if let Some(entry) = entry {
            self.free.entries.retire(entry);
        }
        self.len -= 1;
        if self.bucket(bucket).is_empty() {
            self.unlink(self.reader.hash(key), bucket);
        }
        true
    }

    /// Unlinks an empty overflow bucket. It keeps its own link, for readers that are in it.
    fn unlink(&mut self, hash: u64, empty: u32) {
        let mut before = (hash & self.reader.mask) as u32;
        // No chain is longer. The limit ends the loop if damaged memory links buckets in a circle.
        for _ in 0..=CHAIN {
            let Some(next) = self.next(before) else { return };
            if next == empty {
                let after = self.bucket(empty).next();
                self.bucket(before).set_next(after);
                self.free.overflow.retire(empty - self.overflow(0));
                return;
            }
            before = next;
        }
    }

    fn search(&self, hash: u64, key: &K) -> Search {
        let first = (hash & self.reader.mask) as u32;
        let mut search = Search { found: None, empty: None, last: (first, 1) };
        loop {
            let (number, count) = search.last;
            let bucket = self.bucket(number);
            for way in bits(bucket.matching(tag_of(hash))) {
                let slot_ref = bucket.slot_ref(way);
                if self.slots.at(slot_ref).is_some_and(|slot| slot.key == key.as_bytes()) {
                    search.found = Some((number, way, slot_ref));
                    return search;
                }
            }
            if search.empty.is_none() {
                search.empty = bucket.empty_way().map(|way| (number, way));
            }
            let Some(next) = self.next(number).filter(|_| count <= CHAIN) else { return search };
            search.last = (next, count + 1);
        }
    }

    pub(super) fn bucket(&self, number: u32) -> &Bucket {
        &self.reader.buckets[number as usize]
    }

    /// Returns the number of an overflow bucket among all buckets.
    fn overflow(&self, number: u32) -> u32 {
        self.reader.mask as u32 + 1 + number
    }

    /// Returns the number of the bucket that a bucket links to, if there is one.
    fn next(&self, bucket: u32) -> Option<u32> {
        let next = self.bucket(bucket).next() as usize;
        let is_one = (1..=self.reader.header.layout.overflow).contains(&next);
        is_one.then(|| self.overflow(next as u32 - 1))
    }
}
