//! Computes the offsets of the parts of a table from its specification.

use crate::TableError;
use crate::spec::{Kind, Spec};

/// Size of a table's header, in bytes: one page.
pub(crate) const PAGE: usize = 4096;

/// Number of words in a group of a prefix table.
pub(crate) const GROUP: usize = 256;
/// Bit of a word of a prefix table that is a route.
pub(crate) const ROUTE: u32 = 1 << 31;
/// Bit of a word of a prefix table that links to a group, or with `ROUTE` to a pair.
pub(crate) const LINK: u32 = 1 << 30;
/// Bits of a word of a prefix table that are a value or the number of a group or pair.
pub(crate) const NUMBER: u32 = (1 << 22) - 1;
/// Size of a pair of words of a prefix table, in bytes.
const PAIR: usize = 8;
/// Size of a cache line, in bytes.
pub(crate) const CACHE_LINE: usize = 64;
/// Maximum number of entries, groups or slots. They are numbered by 32-bit words.
const MAX_ENTRIES: usize = 1 << 30;

/// Numbers and sizes of a table's parts; sizes in bytes, offsets from the table's first byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of slots.
    pub(crate) slots: usize,
    /// Distance between two slots, in bytes.
    pub(crate) stride: usize,
    /// Number of primary buckets, a power of two.
    pub(crate) buckets: usize,
    /// Number of overflow buckets.
    pub(crate) overflow: usize,
    /// Offset of the buckets, an array's index, a trie's root, or the lanes' words.
    pub(crate) index: usize,
    /// Offset of the slots or groups; for pending events, of the slow path's words. Slots are
    /// aligned to two cache lines, which processors fetch together.
    pub(crate) data: usize,
    /// Offset of the route table in a prefix table.
    pub(crate) rib: usize,
    /// Size of the table, in bytes.
    pub(crate) length: usize,
}

/// Returns the distance between two slots, in bytes.
pub(crate) const fn stride(key: usize, value: usize, align: usize) -> usize {
    let end = value_offset(key, align) + value;
    let unit = if end >= CACHE_LINE || align > CACHE_LINE / 2 {
        CACHE_LINE
    } else if align > 8 {
        align
    } else {
        8
    };
    end.next_multiple_of(unit)
}

/// Returns the offset of the value in a slot, in bytes.
pub(crate) const fn value_offset(key: usize, align: usize) -> usize {
    (8 + key).next_multiple_of(if align > 8 { align } else { 8 })
}

/// Returns the number of address bits that the root of a trie resolves.
pub(crate) const fn root_bits(kind: Kind) -> u32 {
    if matches!(kind, Kind::Lpm4) { 24 } else { 16 }
}

impl Layout {
    pub(crate) fn of(spec: &Spec) -> Result<Self, TableError> {
        let fail = |reason: &str| {
            Err(TableError::Spec { table: spec.name.clone(), reason: reason.to_owned() })
        };
        if !(1..=MAX_ENTRIES).contains(&spec.capacity) || spec.groups > 1 << 22 || spec.lanes > 4096
        {
            return fail("capacities go from 1 to 2^30, groups to 2^22, lanes to 4096");
        }
        if spec.key > 64
            || spec.value > 1 << 20
            || spec.align > CACHE_LINE
            || !spec.align.is_power_of_two()
        {
            return fail("keys have at most 64 bytes, values 2^20, aligned to 64 or less");
        }
        let layout = match spec.kind {
            Kind::Hash if spec.key == 0 => return fail("keys have 1 to 64 bytes"),
            Kind::Hash => Self::hash(spec),
            Kind::Array => Self::array(spec),
            Kind::Lpm4 | Kind::Lpm6 => Self::lpm(spec)?,
            Kind::State => Self::state(spec),
            Kind::Pending => Self::pending(spec),
            Kind::Classifier => Self::classifier(spec),
        };
        Ok(layout)
    }

    fn with_slots(self, spec: &Spec) -> Self {
        let slots = spec.capacity + spec.capacity / 8 + 64;
        let stride = stride(spec.key, spec.value, spec.align);
        Self { slots, stride, length: self.data + slots * stride, ..self }
    }

    fn hash(spec: &Spec) -> Self {
        let buckets = (spec.capacity / 4).next_power_of_two();
        let overflow = spec.capacity / 8 + 1;
        let data = (PAGE + (buckets + overflow) * CACHE_LINE).next_multiple_of(2 * CACHE_LINE);
        Self { buckets, overflow, index: PAGE, data, ..Self::default() }.with_slots(spec)
    }

    fn array(spec: &Spec) -> Self {
        let data = PAGE + (spec.capacity * 4).next_multiple_of(2 * CACHE_LINE);
        Self { index: PAGE, data, ..Self::default() }.with_slots(spec)
    }

    fn lpm(spec: &Spec) -> Result<Self, TableError> {
        // The root begins where a huge page can.
        let index = if spec.kind == Kind::Lpm4 { 2 << 20 } else { PAGE };
        let data = index + (4 << root_bits(spec.kind));
        let rib = (Self::pairs_after(data, spec) + spec.pairs() * PAIR).next_multiple_of(PAGE);
        let length = rib + Self::of(&spec.rib())?.length;
        Ok(Self { index, data, rib, length, ..Self::default() })
    }

    /// Returns the offset of the pairs of a prefix table, which follow its groups.
    pub(crate) fn pairs(&self, spec: &Spec) -> usize {
        Self::pairs_after(self.data, spec)
    }

    fn pairs_after(groups: usize, spec: &Spec) -> usize {
        groups + spec.groups * GROUP * 4
    }

    fn state(spec: &Spec) -> Self {
        let words = spec.value / 8;
        let stride = 8 * if spec.lanes == 0 { words.next_multiple_of(8) } else { words };
        let copy = (spec.capacity * stride).next_multiple_of(CACHE_LINE);
        let length = PAGE + copy * spec.lanes.max(1);
        Self { stride, index: PAGE, data: copy, length, ..Self::default() }
    }

    fn pending(spec: &Spec) -> Self {
        let copy = (spec.capacity * 8).next_multiple_of(CACHE_LINE);
        let data = PAGE + copy * spec.lanes.max(1);
        Self { stride: copy, index: PAGE, data, length: data + copy, ..Self::default() }
    }

    fn classifier(spec: &Spec) -> Self {
        let (slots, stride) = (2, (spec.groups * GROUP * 4).next_multiple_of(PAGE));
        let (index, data) = (PAGE, 2 * PAGE);
        Self { slots, stride, index, data, length: data + slots * stride, ..Self::default() }
    }

    /// Returns the specification and the offset of the route table in a prefix table.
    pub(crate) fn nested(&self, spec: &Spec) -> Option<(Spec, usize)> {
        matches!(spec.kind, Kind::Lpm4 | Kind::Lpm6).then(|| (spec.rib(), self.rib))
    }

    /// Returns the layout words with their names, in the order of the header.
    pub(crate) fn words(&self) -> [(&'static str, u64); 8] {
        [
            ("number of slots", self.slots as u64),
            ("size of a slot", self.stride as u64),
            ("number of buckets", self.buckets as u64),
            ("number of overflow buckets", self.overflow as u64),
            ("offset of the index", self.index as u64),
            ("offset of the data", self.data as u64),
            ("offset of the routes", self.rib as u64),
            ("length", self.length as u64),
        ]
    }
}
