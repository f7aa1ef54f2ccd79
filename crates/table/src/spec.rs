//! Specification of a table: kind, types, capacity.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Type of a key: bytes without padding, compared as bytes.
pub trait Key: IntoBytes + FromBytes + Immutable + Copy + Eq + 'static {}
impl<T: IntoBytes + FromBytes + Immutable + Copy + Eq + 'static> Key for T {}

/// Type of a value: plain data without padding, for which any bytes are valid.
pub trait Value: IntoBytes + FromBytes + Immutable + KnownLayout + Copy + 'static {}
impl<T: IntoBytes + FromBytes + Immutable + KnownLayout + Copy + 'static> Value for T {}

/// Kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Exact match: [`HashReader`](crate::HashReader).
    Hash = 1,
    /// Values by index: [`ArrayReader`](crate::ArrayReader), [`RecordReader`](crate::RecordReader).
    Array = 2,
    /// Longest prefix match for IPv4: [`Lpm4Reader`](crate::Lpm4Reader).
    Lpm4 = 3,
    /// Longest prefix match for IPv6: [`Lpm6Reader`](crate::Lpm6Reader).
    Lpm6 = 4,
    /// Lane state: [`State`](crate::State).
    State = 5,
    /// Pending events: [`Pending`](crate::Pending).
    Pending = 6,
    /// Packet classification: [`ClassifierReader`](crate::ClassifierReader). Number 7 was that of
    /// classifiers with another layout of their rules.
    Classifier = 8,
}

impl Kind {
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let all = [
            Self::Hash,
            Self::Array,
            Self::Lpm4,
            Self::Lpm6,
            Self::State,
            Self::Pending,
            Self::Classifier,
        ];
        all.into_iter().find(|kind| *kind as u64 == word)
    }
}

/// Specification of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name, for diagnosis. The first 63 bytes are stored.
    pub name: String,
    /// Kind of the table.
    pub kind: Kind,
    /// Size of a key, in bytes; 0 without keys.
    pub key: usize,
    /// Size of a value, in bytes. For [`State`](crate::State): of an entry's words.
    pub value: usize,
    /// Alignment of a value, in bytes.
    pub align: usize,
    /// Maximum number of entries.
    pub capacity: usize,
    /// Prefix tables: maximum number of groups of 256 words. Classifiers: size of a compiled list
    /// in such groups.
    pub groups: usize,
    /// Lane state and pending events only: number of lanes that have a copy. If it is 0 there is
    /// one copy, and the lane that owns an entry writes it.
    pub lanes: usize,
    /// Version of the application's types, chosen by the application.
    pub type_hash: u64,
    /// Seed of the keyed hash. Zeros select a random one.
    pub seed: [u64; 2],
}

impl Spec {
    fn new(kind: Kind, name: &str, capacity: usize) -> Self {
        let name = name.to_owned();
        let (key, value, align, groups, lanes) = (0, 0, 1, 0, 0);
        Self { name, kind, key, value, align, capacity, groups, lanes, type_hash: 0, seed: [0; 2] }
    }

    /// Creates the specification of an exact-match table.
    #[must_use]
    pub fn hash<K: Key, V: Value>(name: &str, capacity: usize) -> Self {
        let key = size_of::<K>();
        Self { key, ..Self::array::<V>(name, capacity) }.of_kind(Kind::Hash)
    }

    /// Creates the specification of an array of values.
    #[must_use]
    pub fn array<V: Value>(name: &str, capacity: usize) -> Self {
        let new = Self::new(Kind::Array, name, capacity);
        Self { value: size_of::<V>(), align: align_of::<V>(), ..new }
    }

    /// Creates the specification of a record: one value that is replaced as a whole.
    #[must_use]
    pub fn record<V: Value>(name: &str) -> Self {
        Self::array::<V>(name, 1)
    }

    /// Creates the specification of a prefix table for IPv4. It needs a group for each /24 that
    /// contains longer prefixes.
    #[must_use]
    pub fn lpm4(name: &str, capacity: usize) -> Self {
        let groups = capacity.saturating_add(64).min(1 << 22);
        Self { groups, ..Self::new(Kind::Lpm4, name, capacity) }
    }

    /// Creates the specification of a prefix table for IPv6. It needs a group, or a pair where that
    /// is enough, for each /16, /24, /32 ... that contains longer prefixes.
    #[must_use]
    pub fn lpm6(name: &str, capacity: usize) -> Self {
        let groups = capacity.saturating_mul(2).saturating_add(1024).min(1 << 22);
        Self { groups, ..Self::new(Kind::Lpm6, name, capacity) }
    }

    /// Creates the specification of lane state with `W` words per entry and `lanes` copies, or one
    /// copy if `lanes` is 0.
    #[must_use]
    pub fn state<const W: usize>(name: &str, capacity: usize, lanes: usize) -> Self {
        Self { value: 8 * W, align: 8, lanes, ..Self::new(Kind::State, name, capacity) }
    }

    /// Creates the specification of pending events that `lanes` lanes raise. If `lanes` is 0, the
    /// lane that owns an entry raises its events.
    #[must_use]
    pub fn pending(name: &str, capacity: usize, lanes: usize) -> Self {
        Self { lanes, ..Self::new(Kind::Pending, name, capacity) }
    }

    /// Creates the specification of a classifier with room for `capacity` rules of each address
    /// family, each with a value. The compiled form of a list has at most 1 KiB for each rule and
    /// 64 KiB; only what is used takes memory.
    #[must_use]
    pub fn classifier<V: Value>(name: &str, capacity: usize) -> Self {
        let new = Self::new(Kind::Classifier, name, capacity);
        let groups = capacity.saturating_add(64).min(1 << 21);
        Self { value: size_of::<V>(), align: align_of::<V>(), groups, ..new }
    }

    fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the application's version of its types.
    #[must_use]
    pub fn typed(self, type_hash: u64) -> Self {
        Self { type_hash, ..self }
    }

    /// Sets the maximum number of groups of 256 words (prefix tables and classifiers).
    #[must_use]
    pub fn with_groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Sets the seed of the hash. For tests only: whoever knows it can make keys collide.
    #[must_use]
    pub fn seeded(self, seed: [u64; 2]) -> Self {
        Self { seed, ..self }
    }

    /// Returns the number of pairs of words in a prefix table. IPv4 has none: a path to a prefix
    /// has one group at most, and its lookups are faster without.
    pub(crate) fn pairs(&self) -> usize {
        if self.kind == Kind::Lpm6 { self.capacity.saturating_mul(8).min(1 << 22) } else { 0 }
    }

    /// Returns the specification of a prefix table's route table, which maps prefixes to values.
    pub(crate) fn rib(&self) -> Self {
        let key = if self.kind == Kind::Lpm4 { 8 } else { 24 };
        let (value, align, groups) = (4, 4, 0);
        Self { kind: Kind::Hash, key, value, align, groups, ..self.clone() }
    }
}
