//! Cuts: decision trees over the intervals of packets, and their construction.
//!
//! An inner entry cuts a region of one field into parts of 2^shift intervals and has one child for
//! each. The intervals are divided by the edges of the rules themselves, so equal parts are
//! balanced. A leaf has the rules that intersect its region, in order of priority. Equal leaves
//! share their blocks, and adjacent parts with the same rules share their subtree.

use std::collections::HashMap;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::FIELDS;
use super::block::{Block, Intervals, RULES};

/// Maximum number of decision trees of an address family.
pub(crate) const TREES: usize = 4;
/// Maximum number of entries between a root and a leaf.
pub(crate) const DEPTH: usize = 24;
/// Maximum number of children of an entry.
const CHILDREN: usize = 256;

/// Number of rules that a cut must save on average: to compare fewer costs less than an entry.
const GAIN: f64 = 12.0;
/// Cost of a part, in rules.
const PART: f64 = 0.02;

/// Entry of a decision tree, in 64 bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Entry {
    /// Inner entry: index of the first child. Leaf: index of the first block.
    pub(crate) base: u32,
    /// Inner entry: first interval of the region. Leaf: number of blocks.
    pub(crate) low: u16,
    /// Inner entry: field that is cut, plus 1. Leaf: 0.
    pub(crate) field: u8,
    /// Inner entry: number of bits of the interval's number that are within a part.
    pub(crate) shift: u8,
}

impl Entry {
    /// Returns true if the entry is not a leaf.
    #[inline(always)]
    pub(crate) fn is_inner(self) -> bool {
        self.field != 0
    }

    /// Returns the index of the child for a packet.
    #[inline(always)]
    pub(crate) fn child(self, intervals: &Intervals) -> usize {
        let [_, number] = intervals[usize::from(self.field.wrapping_sub(1) & 7)];
        let part = number.wrapping_sub(self.low).checked_shr(self.shift.into()).unwrap_or(0);
        (self.base as usize).wrapping_add(part.into())
    }
}

/// Root of a decision tree.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Root {
    pub(crate) entry: Entry,
    /// Position in the list of the tree's first rule.
    pub(crate) first_rule: u32,
    pub(crate) reserved: u32,
}

/// Ranges of a rule in numbers of intervals, by field.
pub(crate) type Ranges = [[u16; 2]; FIELDS];

/// Bounds of the work of a lookup and of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum number of rules that a lookup compares in one tree.
    pub(crate) compared: usize,
    /// Maximum number of rules of a leaf that is not cut.
    pub(crate) leaf: usize,
    /// Maximum number of bytes of entries and blocks.
    pub(crate) bytes: usize,
}

/// Properties of a compiled list.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Number of decision trees.
    pub trees: usize,
    /// Maximum number of entries between a root and a leaf.
    pub depth: usize,
    /// Maximum number of rules that a lookup compares in one tree.
    pub compared: usize,
    /// Size of all parts, in bytes.
    pub bytes: usize,
    /// Estimated time of a lookup, in units of an entry.
    pub cost: f64,
}

/// Reason why a tree was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// Entries and blocks need more bytes.
    Bytes(usize),
    /// A leaf has more rules.
    Rules(usize),
    /// A field has more intervals.
    Intervals(usize),
}

/// Region of the intervals, by field: first and last one.
type Region = Ranges;

/// Trees under construction.
pub(crate) struct Forest<'r> {
    rules: &'r [Ranges],
    /// First and last interval of each field.
    whole: Region,
    pub(crate) entries: Vec<Entry>,
    pub(crate) blocks: Vec<Block>,
    leaves: HashMap<Vec<u32>, Entry>,
    limits: Limits,
    pub(crate) depth: usize,
    pub(crate) compared: usize,
    /// Sums over leaves and their rules: of entries passed, of blocks compared, and the number.
    work: [f64; 3],
}

impl<'r> Forest<'r> {
    pub(crate) fn new(rules: &'r [Ranges], intervals: [usize; FIELDS], limits: Limits) -> Self {
        let whole = intervals.map(|count| [0, count.saturating_sub(1) as u16]);
        let (entries, blocks, leaves) = (Vec::new(), Vec::new(), HashMap::new());
        let (depth, compared, work) = (0, 0, [0.0; 3]);
        Self { rules, whole, entries, blocks, leaves, limits, depth, compared, work }
    }

    /// Builds a tree of some rules, in order of priority. Returns its root.
    pub(crate) fn tree(&mut self, rules: Vec<u32>) -> Result<Entry, Excess> {
        self.node(self.whole, rules, 0)
    }

    /// Returns the size of entries and blocks, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.entries[..]) + size_of_val(&self.blocks[..])
    }

    /// Returns the estimated time of a lookup in the trees since the last call, in units of an
    /// entry.
    pub(crate) fn take_cost(&mut self) -> f64 {
        let [entries, blocks, leaves] = std::mem::take(&mut self.work);
        if leaves == 0.0 { 0.0 } else { (entries + 2.0 * blocks) / leaves }
    }

    fn node(&mut self, region: Region, mut rules: Vec<u32>, depth: usize) -> Result<Entry, Excess> {
        self.drop_covered(&region, &mut rules);
        let cut = if rules.len() > self.limits.leaf && depth < DEPTH {
            self.best_cut(&region, &rules)
        } else {
            None
        };
        match cut {
            None => self.leaf(rules, depth),
            Some(cut) => self.inner(&region, &rules, cut, depth),
        }
    }

    /// Removes rules that an earlier rule covers in the region.
    fn drop_covered(&self, region: &Region, rules: &mut Vec<u32>) {
        let clip = |rule: u32| clip(&self.rules[rule as usize], region);
        let is_whole = |rule: &u32| clip(*rule) == *region;
        if let Some(last) = rules.iter().position(is_whole) {
            rules.truncate(last + 1);
        }
        if rules.len() > 4 * RULES {
            return;
        }
        let mut kept: Vec<Ranges> = Vec::with_capacity(rules.len());
        rules.retain(|rule| {
            let clipped = clip(*rule);
            let is_covered = kept.iter().any(|earlier| covers(earlier, &clipped));
            if !is_covered {
                kept.push(clipped);
            }
            !is_covered
        });
    }

    fn leaf(&mut self, rules: Vec<u32>, depth: usize) -> Result<Entry, Excess> {
        if rules.len() > self.limits.compared {
            return Err(Excess::Rules(rules.len()));
        }
        let blocks = rules.len().div_ceil(RULES);
        self.depth = self.depth.max(depth);
        self.compared = self.compared.max(blocks * RULES);
        let weight = rules.len() as f64;
        // On average half of the blocks are compared.
        self.work[0] += depth as f64 * weight;
        self.work[1] += (blocks as f64 + 1.0) / 2.0 * weight;
        self.work[2] += weight;
        if rules.is_empty() {
            return Ok(Entry::default());
        }
        if let Some(entry) = self.leaves.get(&rules) {
            return Ok(*entry);
        }
        let entry =
            Entry { base: self.blocks.len() as u32, low: blocks as u16, ..Entry::default() };
        for rules in rules.chunks(RULES) {
            let mut block = Block::EMPTY;
            for (index, rule) in rules.iter().enumerate() {
                block.set(index, *rule, &self.rules[*rule as usize]);
            }
            self.blocks.push(block);
        }
        self.check_bytes()?;
        self.leaves.insert(rules, entry);
        Ok(entry)
    }

    fn check_bytes(&self) -> Result<(), Excess> {
        let bytes = self.bytes();
        if bytes > self.limits.bytes { Err(Excess::Bytes(bytes)) } else { Ok(()) }
    }

    fn inner(
        &mut self,
        region: &Region,
        rules: &[u32],
        cut: Cut,
        depth: usize,
    ) -> Result<Entry, Excess> {
        let Cut { field, shift } = cut;
        let [low, high] = region[field];
        let parts = cut.parts(low, high);
        let base = self.entries.len();
        self.entries.resize(base + parts, Entry::default());
        self.check_bytes()?;
        let mut lists = vec![Vec::new(); parts];
        for rule in rules {
            let [first, last] = cut.of_rule(&self.rules[*rule as usize], low, high);
            lists[first..=last].iter_mut().for_each(|list| list.push(*rule));
        }
        let mut part = 0;
        while part < parts {
            let list = std::mem::take(&mut lists[part]);
            let same = lists[part + 1..].iter().take_while(|other| **other == list).count();
            let mut below = *region;
            let start = usize::from(low) + (part << shift);
            let end = usize::from(low) + ((part + same + 1) << shift) - 1;
            below[field] = [start as u16, end.min(high.into()) as u16];
            let child = self.node(below, list, depth + 1)?;
            self.entries[base + part..=base + part + same].fill(child);
            part += same + 1;
        }
        Ok(Entry { base: base as u32, low, field: field as u8 + 1, shift })
    }

    /// Returns the cut that makes the parts smallest for the copies of rules that it costs, or
    /// `None` if no cut is worth it.
    fn best_cut(&self, region: &Region, rules: &[u32]) -> Option<Cut> {
        let mut best: Option<(f64, Cut)> = None;
        let count = rules.len() as f64;
        for (field, [low, high]) in region.iter().copied().enumerate() {
            let width = u32::from(high - low) + 1;
            let mut shift = width.next_power_of_two().trailing_zeros();
            while shift > 0 {
                shift -= 1;
                let cut = Cut { field, shift: shift as u8 };
                let parts = cut.parts(low, high);
                if parts > CHILDREN {
                    break;
                }
                // Differences of the numbers of rules of adjacent parts.
                let mut steps = [0_i32; CHILDREN + 1];
                for rule in rules {
                    let [first, last] = cut.of_rule(&self.rules[*rule as usize], low, high);
                    steps[first] += 1;
                    steps[last + 1] -= 1;
                }
                let (mut now, mut sum, mut squares) = (0_i32, 0.0, 0.0);
                for step in &steps[..parts] {
                    now += step;
                    sum += f64::from(now);
                    squares += f64::from(now) * f64::from(now);
                }
                // Mean size of the part of a rule, and copies of a rule.
                let (mean, copies) = (squares / sum, sum / count);
                // A block is compared as a whole, so less than one is no gain.
                let score = mean.max(RULES as f64) * copies + parts as f64 * PART;
                if mean + GAIN < count && best.is_none_or(|(other, _)| score < other) {
                    best = Some((score, cut));
                }
            }
        }
        best.map(|(_, cut)| cut)
    }
}

/// Cut of a field.
#[derive(Clone, Copy, Debug)]
struct Cut {
    field: usize,
    shift: u8,
}

impl Cut {
    fn parts(self, low: u16, high: u16) -> usize {
        usize::from((high - low) >> self.shift) + 1
    }

    /// Returns the first and the last part that a rule intersects.
    fn of_rule(self, ranges: &Ranges, low: u16, high: u16) -> [usize; 2] {
        ranges[self.field].map(|edge| usize::from((edge.clamp(low, high) - low) >> self.shift))
    }
}

fn clip(ranges: &Ranges, region: &Region) -> Ranges {
    std::array::from_fn(|field| {
        let [low, high] = region[field];
        ranges[field].map(|edge| edge.clamp(low, high))
    })
}

fn covers(one: &Ranges, other: &Ranges) -> bool {
    one.iter().zip(other).all(|(one, other)| one[0] <= other[0] && one[1] >= other[1])
}
