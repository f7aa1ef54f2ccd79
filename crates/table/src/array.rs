//! Arrays (values by index) and records (one value that is replaced as a whole).
//!
//! ```text
//! page 0   header
//! index    one u32 per array index: 0, or 1 + slot number (the slot reference)
//! data     slots: array index u32, version u32, value
//! ```
//! A value is written to a fresh slot. Storing its slot reference in the index publishes it. A
//! record is an array with one element: fields that change together are one value, so a packet that
//! reads the record once sees all of a change or none of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::header::Header;
use crate::shared_slice::SharedSlice;
use crate::slots::{FreeList, SlotWriter, Slots};
use crate::{Guard, Readers, SharedMemory, Spec, TableError, Value, simd};

/// Maximum number of attempts to copy a value while the writer keeps replacing it.
const MAX_TRIES: usize = 100;

/// Reader of an array. Lanes look up values by index with it.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{ArrayReader, ArrayWriter, Readers, Spec};
///
/// let memory = Spec::array::<u64>("prices", 16).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = ArrayWriter::<u64>::attach(&memory, &readers)?;
/// writer.set(3, &250)?;
///
/// let reader = ArrayReader::<u64>::attach(&memory)?;
/// assert_eq!(reader.copy(3), Some(250)); // a lane calls `get` with its turn instead
/// assert_eq!(reader.copy(4), None);
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrayReader<V> {
    index: SharedSlice<AtomicU32>,
    slots: Slots<[u8; 0], V>,
    header: Arc<Header>,
}

impl<V: Value> ArrayReader<V> {
    /// Attaches to an array.
    ///
    /// # Errors
    /// Returns an error if the memory holds no array, or one of another value type.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::array::<V>("", 1))?)
    }

    fn new(header: Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let index = header.part(SharedSlice::new(memory, layout.index, header.spec.capacity))?;
        let slots = header.part(Slots::new(memory, layout.data, layout.slots))?;
        Ok(Self { index, slots, header: Arc::new(header) })
    }

    /// Returns the number of indexes, which is one more than the greatest index.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.index.len()
    }

    /// Returns the value at an index, or `None` if it has none.
    #[inline]
    pub fn get<'t, G>(&'t self, turn: &'t G, index: usize) -> Option<&'t V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let slot_ref = self.index.get(index)?.load(Ordering::Relaxed);
        self.slots.at(turn.as_ref(), slot_ref).map(|slot| slot.value)
    }

    /// Returns the value at an index and prefetches the cache line that holds its byte `part`, for
    /// a caller that reads it later in the turn.
    #[inline]
    pub fn fetch<'t, G>(&'t self, turn: &'t G, index: usize, part: usize) -> Option<&'t V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let value = self.get(turn, index)?;
        simd::prefetch(std::ptr::from_ref(value).cast::<u8>().wrapping_add(part));
        Some(value)
    }

    /// Returns a copy of the value at an index, for callers without a [`Guard`], such as tools. A
    /// value that the writer keeps replacing may be missed, because the number of attempts is
    /// limited.
    #[must_use]
    pub fn copy(&self, index: usize) -> Option<V> {
        let word = self.index.get(index)?;
        let tries = (0..MAX_TRIES).map(|_| {
            let slot_ref = word.load(Ordering::Relaxed);
            let copy =
                self.slots.copy(slot_ref).filter(|_| word.load(Ordering::Relaxed) == slot_ref);
            (slot_ref, copy)
        });
        let mut ended = tries.filter(|(slot_ref, copy)| *slot_ref == 0 || copy.is_some());
        Some(ended.next()?.1?.2)
    }

    /// Prefetches the first cache line of a value, ahead of a [`get`](Self::get).
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(slot_ref) = self.index.get(index) {
            let slot = slot_ref.load(Ordering::Relaxed).wrapping_sub(1);
            self.slots.prefetch(slot, size_of::<V>());
        }
    }

    /// Prefetches the cache lines of the first `octets` of a value, for a caller that reads most of
    /// them.
    #[inline]
    pub fn prefetch_first(&self, index: usize, octets: usize) {
        if let Some(slot_ref) = self.index.get(index) {
            self.slots.prefetch_first(slot_ref.load(Ordering::Relaxed).wrapping_sub(1), octets);
        }
    }

    /// Prefetches the index word of a value, ahead of a [`prefetch`](Self::prefetch).
    #[inline]
    pub fn prefetch_index(&self, index: usize) {
        simd::prefetch(self.index.as_ptr().wrapping_add(index));
    }
}

/// Writer of an array. An array has one writer at a time; the session ensures this.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{ArrayWriter, Readers, Spec, TableError};
///
/// let memory = Spec::array::<u64>("prices", 16).create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = ArrayWriter::<u64>::attach(&memory, &readers)?;
/// writer.set(3, &250)?;
/// writer.set(3, &300)?; // replaces the value by one store
/// assert_eq!(writer.get(3), Some(&300));
/// assert!(matches!(writer.set(16, &1), Err(TableError::OutOfRange { .. })));
/// assert!(writer.clear(3));
/// # Ok::<(), TableError>(())
/// ```
#[derive(Debug)]
pub struct ArrayWriter<V> {
    reader: ArrayReader<V>,
    slots: SlotWriter<[u8; 0], V>,
    free: FreeList,
    readers: Arc<Readers>,
}

impl<V: Value> ArrayWriter<V> {
    /// Attaches as the writer of an array and repairs index words that a damaged memory holds.
    ///
    /// # Errors
    /// Returns an error if the memory holds no array of this type, is mapped read-only, or has a
    /// writer already.
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let header = Header::expect_writable(memory, 0, &Spec::array::<V>("", 1))?;
        let fresh = header.fresh;
        let reader = ArrayReader::new(header)?;
        let slots = reader.header.writing(SlotWriter::new(reader.slots.clone()))?;
        let mut used = vec![false; reader.slots.count() as usize];
        for (index, word) in reader.index.iter().enumerate() {
            let slot_ref = word.load(Ordering::Relaxed);
            let slot = (slot_ref as usize).wrapping_sub(1);
            let sound = |at: &u32| slots.at(*at).is_some_and(|slot| slot.entry as usize == index);
            match used.get_mut(slot).filter(|used| !**used && sound(&slot_ref)) {
                Some(used) => *used = true,
                None if slot_ref != 0 => word.store(0, Ordering::Release),
                None => {}
            }
        }
        let free = FreeList::attach("slot", &used, fresh);
        Ok(Self { reader, slots, free, readers: Arc::clone(readers) })
    }

    /// Returns the name of the array.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reader.header.name()
    }

    /// Returns the number of indexes, which is one more than the greatest index.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.reader.capacity()
    }

    /// Returns the value at an index, or `None` if it has none.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&V> {
        self.reader.get(self.slots.guard(), index)
    }

    /// Returns all values with their indexes, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &V)> {
        (0..self.capacity()).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// Sets the value at an index, replacing an earlier one.
    ///
    /// # Errors
    /// Returns [`OutOfRange`](TableError::OutOfRange) if there is no such index, and
    /// [`Stalled`](TableError::Stalled) if a lane delays the reuse of slots. The array is unchanged
    /// then.
    pub fn set(&mut self, index: usize, value: &V) -> Result<(), TableError> {
        let Some(word) = self.reader.index.get(index) else {
            let (table, capacity) = (self.name().to_owned(), self.capacity());
            return Err(TableError::OutOfRange { table, index, capacity });
        };
        let slot = self.free.take(&self.readers, self.reader.header.name())?;
        self.slots.write(slot, index as u32, &[], value);
        let before = word.load(Ordering::Relaxed);
        word.store(slot + 1, Ordering::Release);
        if before != 0 {
            self.free.retire(before - 1);
        }
        Ok(())
    }

    /// Removes the value at an index. Returns false if there is none.
    pub fn clear(&mut self, index: usize) -> bool {
        let Some(word) = self.reader.index.get(index) else { return false };
        let before = word.load(Ordering::Relaxed);
        if before != 0 {
            word.store(0, Ordering::Release);
            self.free.retire(before - 1);
        }
        before != 0
    }
}

/// Reader of a record. Read it once per packet, so that the packet sees one version.
#[derive(Clone, Debug)]
pub struct RecordReader<V>(ArrayReader<V>);

impl<V: Value> RecordReader<V> {
    /// Attaches to a record.
    ///
    /// # Errors
    /// Returns the errors of [`ArrayReader::attach`].
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Ok(Self(ArrayReader::attach(memory)?))
    }

    /// Returns the current value, or `None` before the first one.
    #[inline]
    pub fn get<'t, G: AsRef<Guard> + ?Sized>(&'t self, turn: &'t G) -> Option<&'t V> {
        self.0.get(turn, 0)
    }

    /// Returns a copy of the value, for callers without a [`Guard`]; see [`ArrayReader::copy`].
    #[must_use]
    pub fn copy(&self) -> Option<V> {
        self.0.copy(0)
    }
}

/// Writer of a record. A record has one writer at a time; the session ensures this.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use fastlane_table::{Readers, RecordReader, RecordWriter, Spec};
///
/// // Both limits change together: a packet never sees one old and one new.
/// let memory = Spec::record::<[u32; 2]>("limits").create()?;
/// // SAFETY: no lane reads in this example.
/// let readers = Arc::new(unsafe { Readers::none() });
/// let mut writer = RecordWriter::<[u32; 2]>::attach(&memory, &readers)?;
/// let reader = RecordReader::<[u32; 2]>::attach(&memory)?;
/// assert_eq!(reader.copy(), None);
/// writer.set(&[10, 20])?;
/// assert_eq!(reader.copy(), Some([10, 20])); // a lane calls `get` with its turn instead
/// # Ok::<(), fastlane_table::TableError>(())
/// ```
#[derive(Debug)]
pub struct RecordWriter<V>(ArrayWriter<V>);

impl<V: Value> RecordWriter<V> {
    /// Attaches as the writer of a record.
    ///
    /// # Errors
    /// Returns the errors of [`ArrayWriter::attach`].
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        Ok(Self(ArrayWriter::attach(memory, readers)?))
    }

    /// Returns the current value, or `None` before the first one.
    #[must_use]
    pub fn get(&self) -> Option<&V> {
        self.0.get(0)
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// Returns the errors of [`ArrayWriter::set`].
    pub fn set(&mut self, value: &V) -> Result<(), TableError> {
        self.0.set(0, value)
    }

    /// Removes the value. Returns false if there was none.
    pub fn clear(&mut self) -> bool {
        self.0.clear(0)
    }
}
