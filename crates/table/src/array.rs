//! Values by number, and one value that is exchanged as a whole.
//!
//! ```text
//! page 0   header
//! index    a word u32 for each number: 0 or 1 + number of a slot
//! data     slots: number u32, version u32, value
//! ```
//! A value is written to a fresh slot, and the store of its slot_ref is the operation. A record is an
//! array of one: several things that change together are one value, so a packet that reads it once
//! sees all of a change or nothing of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::free_list::FreeList;
use crate::header::Header;
use crate::shared_slice::SharedSlice;
use crate::slots::{SlotWriter, Slots};
use crate::{Guard, Readers, SharedMemory, Spec, TableError, Value, simd};

/// How often a copy is tried that the writer came between.
const MAX_TRIES: usize = 100;

/// Looks values up by number.
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
    /// When the memory holds none, or one of another type.
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Self::new(Header::expect(memory, 0, &Spec::array::<V>("", 1))?)
    }

    fn new(header: Header) -> Result<Self, TableError> {
        let (layout, memory) = (header.layout, &header.memory);
        let index = header.part(SharedSlice::new(memory, layout.index, header.spec.capacity))?;
        let slots = header.part(Slots::new(memory, layout.data, layout.slots))?;
        Ok(Self { index, slots, header: Arc::new(header) })
    }

    /// One more than the greatest number.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.index.len()
    }

    /// The value with a number, if it has one.
    #[inline]
    pub fn get<'t, G>(&'t self, turn: &'t G, index: usize) -> Option<&'t V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let slot_ref = self.index.get(index)?.load(Ordering::Relaxed);
        self.slots.at(turn.as_ref(), slot_ref).map(|slot| slot.value)
    }

    /// As [`get`](Self::get), for who looks at the value later in the turn: the cache line with its
    /// byte `part` is asked for.
    #[inline]
    pub fn fetch<'t, G>(&'t self, turn: &'t G, index: usize, part: usize) -> Option<&'t V>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let value = self.get(turn, index)?;
        simd::prefetch(std::ptr::from_ref(value).cast::<u8>().wrapping_add(part));
        Some(value)
    }

    /// A copy of the value with a number, for whoever is no lane and so has no guard. One that
    /// changes all the time may be missed: a copy is tried so many times and no more.
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

    /// Asks for the value's cache line, for a [`get`](Self::get) soon.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        if let Some(slot_ref) = self.index.get(index) {
            self.slots.prefetch(slot_ref.load(Ordering::Relaxed).wrapping_sub(1));
        }
    }

    /// Asks for all cache lines of a value, for who looks at many of them.
    #[inline]
    pub fn prefetch_whole(&self, index: usize) {
        if let Some(slot_ref) = self.index.get(index) {
            self.slots.prefetch_whole(slot_ref.load(Ordering::Relaxed).wrapping_sub(1));
        }
    }

    /// Asks for the cache line that says where the value is, for a [`prefetch`](Self::prefetch).
    #[inline]
    pub fn prefetch_index(&self, index: usize) {
        simd::prefetch(self.index.as_ptr().wrapping_add(index));
    }
}

/// Sets values by number. There is one writer of an array at a time: the session sees to it.
#[derive(Debug)]
pub struct ArrayWriter<V> {
    reader: ArrayReader<V>,
    slots: SlotWriter<[u8; 0], V>,
    free: FreeList,
    readers: Arc<Readers>,
}

impl<V: Value> ArrayWriter<V> {
    /// Becomes the writer of an array, whatever another left unfinished.
    ///
    /// # Errors
    /// When the memory holds no array of this type, or cannot be written.
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        let header = Header::expect_writable(memory, 0, &Spec::array::<V>("", 1))?;
        let fresh = header.fresh;
        let reader = ArrayReader::new(header)?;
        let slots = SlotWriter::new(reader.slots.clone());
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.reader.header.name()
    }

    /// One more than the greatest number.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.reader.capacity()
    }

    /// The value with a number, if it has one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&V> {
        self.reader.get(self.slots.guard(), index)
    }

    /// All values with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &V)> {
        (0..self.capacity()).filter_map(|index| Some((index, self.get(index)?)))
    }

    /// Gives a number a value.
    ///
    /// # Errors
    /// When there is no such number, or a lane holds back what was given up before; nothing has
    /// changed then.
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

    /// Takes a number's value away; false when it has none.
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

/// Reads one value that is exchanged as a whole: read it once for each packet.
#[derive(Clone, Debug)]
pub struct RecordReader<V>(ArrayReader<V>);

impl<V: Value> RecordReader<V> {
    /// Attaches to a record.
    ///
    /// # Errors
    /// As [`ArrayReader::attach`].
    pub fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Ok(Self(ArrayReader::attach(memory)?))
    }

    /// The value as it is now, if there is one.
    #[inline]
    pub fn get<'t, G: AsRef<Guard> + ?Sized>(&'t self, turn: &'t G) -> Option<&'t V> {
        self.0.get(turn, 0)
    }

    /// A copy of the value, for whoever is no lane: as [`ArrayReader::copy`].
    #[must_use]
    pub fn copy(&self) -> Option<V> {
        self.0.copy(0)
    }
}

/// Exchanges one value. There is one writer of a record at a time: the session sees to it.
#[derive(Debug)]
pub struct RecordWriter<V>(ArrayWriter<V>);

impl<V: Value> RecordWriter<V> {
    /// Becomes the writer of a record.
    ///
    /// # Errors
    /// As [`ArrayWriter::attach`].
    pub fn attach(memory: &Arc<SharedMemory>, readers: &Arc<Readers>) -> Result<Self, TableError> {
        Ok(Self(ArrayWriter::attach(memory, readers)?))
    }

    /// The value as it is now, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<&V> {
        self.0.get(0)
    }

    /// Exchanges the value.
    ///
    /// # Errors
    /// As [`ArrayWriter::set`].
    pub fn set(&mut self, value: &V) -> Result<(), TableError> {
        self.0.set(0, value)
    }

    /// Takes the value away; false when there was none.
    pub fn clear(&mut self) -> bool {
        self.0.clear(0)
    }
}
