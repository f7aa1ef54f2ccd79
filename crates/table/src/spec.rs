//! What a table is made of, and where its parts are.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::header::{Header, PAGE};
use crate::layout::{LINE, Layout};
use crate::memory::HUGE_PAGE;
use crate::{SharedMemory, TableError};

/// What may be a key: bytes without padding, compared as bytes.
pub trait Key: IntoBytes + FromBytes + Immutable + Copy + Eq + 'static {}
impl<T: IntoBytes + FromBytes + Immutable + Copy + Eq + 'static> Key for T {}

/// What may be a value: plain old data without padding, of which any bytes are one.
pub trait Value: IntoBytes + FromBytes + Immutable + KnownLayout + Copy + 'static {}
impl<T: IntoBytes + FromBytes + Immutable + KnownLayout + Copy + 'static> Value for T {}

/// What a memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Exact match: [`HashReader`](crate::HashReader).
    Hash = 1,
    /// Values by number: [`ArrayReader`](crate::ArrayReader),
    /// [`RecordReader`](crate::RecordReader).
    Array = 2,
    /// Longest prefix of IPv4: [`Lpm4Reader`](crate::Lpm4Reader).
    Lpm4 = 3,
    /// Longest prefix of IPv6: [`Lpm6Reader`](crate::Lpm6Reader).
    Lpm6 = 4,
    /// Words that lanes write: [`State`](crate::State).
    State = 5,
    /// Events that must not be lost: [`Pending`](crate::Pending).
    Pending = 6,
}

impl Kind {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let all = [Self::Hash, Self::Array, Self::Lpm4, Self::Lpm6, Self::State, Self::Pending];
        all.into_iter().find(|kind| *kind as u64 == word)
    }
}

/// What a table is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// For people; at most 63 bytes are kept.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes of a key; 0 where there is none.
    pub key: usize,
    /// Bytes of a value; of [`State`](crate::State) those of an entry's words.
    pub value: usize,
    /// Alignment of a value, in bytes.
    pub align: usize,
    /// The most entries.
    pub capacity: usize,
    /// Of prefix tables: the most groups of 256 words.
    pub groups: usize,
    /// Of lane state and pending events: how many lanes have a copy; 0: there is one copy, written
    /// by the lane that owns the entry.
    pub lanes: usize,
    /// What the application makes of its types, to tell versions of them apart.
    pub type_hash: u64,
    /// Of the keyed hash; zeros: random.
    pub seed: [u64; 2],
}

impl Spec {
    fn new(kind: Kind, name: &str, capacity: usize) -> Self {
        let name = name.to_owned();
        let (key, value, align, groups, lanes) = (0, 0, 1, 0, 0);
        Self { name, kind, key, value, align, capacity, groups, lanes, type_hash: 0, seed: [0; 2] }
    }

    /// An exact-match table.
    #[must_use]
    pub fn hash<K: Key, V: Value>(name: &str, capacity: usize) -> Self {
        let key = size_of::<K>();
        Self { key, ..Self::array::<V>(name, capacity) }.of_kind(Kind::Hash)
    }

    /// Values by number.
    #[must_use]
    pub fn array<V: Value>(name: &str, capacity: usize) -> Self {
        let new = Self::new(Kind::Array, name, capacity);
        Self { value: size_of::<V>(), align: align_of::<V>(), ..new }
    }

    /// One value that is exchanged as a whole: an array of one.
    #[must_use]
    pub fn record<V: Value>(name: &str) -> Self {
        Self::array::<V>(name, 1)
    }

    /// Prefixes of IPv4. A group is needed for each /24 with longer prefixes in it.
    #[must_use]
    pub fn lpm4(name: &str, capacity: usize) -> Self {
        let groups = capacity.saturating_add(64).min(1 << 22);
        Self { groups, ..Self::new(Kind::Lpm4, name, capacity) }
    }

    /// Prefixes of IPv6. A group is needed for each /16, /24, /32 ... with longer prefixes in it.
    #[must_use]
    pub fn lpm6(name: &str, capacity: usize) -> Self {
        let groups = capacity.saturating_mul(2).saturating_add(1024).min(1 << 22);
        Self { groups, ..Self::new(Kind::Lpm6, name, capacity) }
    }

    /// `W` words for each entry, written by lanes; `lanes` copies, or one when it is 0.
    #[must_use]
    pub fn state<const W: usize>(name: &str, capacity: usize, lanes: usize) -> Self {
        Self { value: 8 * W, align: 8, lanes, ..Self::new(Kind::State, name, capacity) }
    }

    /// Events of entries, raised by `lanes` lanes, or for each entry by the one that owns it when
    /// `lanes` is 0.
    #[must_use]
    pub fn pending(name: &str, capacity: usize, lanes: usize) -> Self {
        Self { lanes, ..Self::new(Kind::Pending, name, capacity) }
    }

    fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// With the application's version of its types.
    #[must_use]
    pub fn typed(self, type_hash: u64) -> Self {
        Self { type_hash, ..self }
    }

    /// With room for so many groups of 256 words (prefix tables).
    #[must_use]
    pub fn with_groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// With a hash that is the same each time. For tests: who knows it can make keys collide.
    #[must_use]
    pub fn seeded(self, seed: [u64; 2]) -> Self {
        Self { seed, ..self }
    }

    /// Makes the table, empty.
    ///
    /// # Errors
    /// When there can be no such table, or the kernel refuses its memory.
    pub fn create(&self) -> Result<Arc<SharedMemory>, TableError> {
        let mut spec = self.clone();
        while spec.seed == [0; 2] {
            spec.seed = [random(), random()];
        }
        let layout = Layout::of(&spec)?;
        let memory = SharedMemory::create_for_tables(&spec.name, layout.length)
            .map_err(|source| TableError::Memory { table: spec.name.clone(), source })?;
        let memory = Arc::new(memory);
        if let Some((rib, at)) = layout.nested(&spec) {
            Header::write(&memory, at, &rib, &Layout::of(&rib)?)?;
        }
        Header::write(&memory, 0, &spec, &layout)?;
        // Lanes read it at random, whatever is in it.
        if spec.kind == Kind::Hash && memory.len() >= HUGE_PAGE {
            memory.join_all(layout.index, layout.index + layout.buckets * LINE);
        }
        Ok(memory)
    }

    /// What a memory holds.
    ///
    /// # Errors
    /// When it is no table of this version, or smaller than its header says.
    pub fn of(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        Ok(Header::read(memory, 0)?.spec)
    }

    /// The process that became the table's writer last; 0: none has.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn writer_of(memory: &Arc<SharedMemory>) -> Result<u32, TableError> {
        Ok(Header::read(memory, 0)?.writer())
    }

    /// Bytes of the table's memory.
    ///
    /// # Errors
    /// When there can be no such table.
    pub fn length(&self) -> Result<usize, TableError> {
        Ok(Layout::of(self)?.length.next_multiple_of(PAGE))
    }
}

/// A number that nobody can foresee: the standard library's hasher is keyed by the kernel.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
