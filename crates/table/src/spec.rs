//! What a table is made of, and where its parts are.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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

    /// The table of the routes of a prefix table: prefix to value.
    pub(crate) fn rib(&self) -> Self {
        let key = if self.kind == Kind::Lpm4 { 8 } else { 24 };
        let (value, align, groups) = (4, 4, 0);
        Self { kind: Kind::Hash, key, value, align, groups, ..self.clone() }
    }
}
