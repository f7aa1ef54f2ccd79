//! Intervals: the edges of all rules divide a field; a search finds the interval of a value.
//!
//! The edges are the keys of a static search tree whose nodes are whole cache lines. A node of
//! `KEYS` keys has `KEYS + 1` children, whose numbers follow from its own, so there are no
//! pointers. All levels are in one array, the lowest one first.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::instructions::Instructions;

/// Maximum number of intervals of a field: their numbers have 16 bits.
pub(crate) const MAX_INTERVALS: usize = 1 << 16;
/// Maximum number of levels of a search tree: 8 * 9^5 keys are more than 65,535.
pub(crate) const LEVELS: usize = 6;

/// Node with keys of up to 32 bits. Keys are signed: the value minus 2^31.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Node4 {
    pub(crate) keys: [i32; 16],
}

/// Node with keys of 128 bits. Both halves of a key are signed: the value minus 2^63.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Node6 {
    pub(crate) high: [i64; 8],
    pub(crate) low: [i64; 8],
}

/// Node of a search tree.
pub trait SearchNode: FromBytes + IntoBytes + Immutable + Copy {
    /// Number of keys.
    const KEYS: usize;
    /// Key of the node.
    type Key: Copy;
    /// Node whose keys are all greater than any value that is searched, or equal to it.
    const LAST: Self;
    /// Returns the key of a value.
    fn key(value: u128) -> Self::Key;
    /// Sets a key.
    fn set(&mut self, index: usize, key: Self::Key);
    /// Returns the number of keys that are less than `key`.
    fn count<I: Instructions>(&self, key: Self::Key) -> usize;
}

impl SearchNode for Node4 {
    const KEYS: usize = 16;
    type Key = i32;
    const LAST: Self = Self { keys: [i32::MAX; 16] };

    fn key(value: u128) -> i32 {
        (value as u32 ^ 1 << 31).cast_signed()
    }

    fn set(&mut self, index: usize, key: i32) {
        self.keys[index] = key;
    }

    #[inline(always)]
    fn count<I: Instructions>(&self, key: i32) -> usize {
        I::count4(&self.keys, key)
    }
}

impl SearchNode for Node6 {
    const KEYS: usize = 8;
    type Key = [i64; 2];
    const LAST: Self = Self { high: [i64::MAX; 8], low: [i64::MAX; 8] };

    #[inline(always)]
    fn key(value: u128) -> [i64; 2] {
        [(value >> 64) as u64, value as u64].map(|half| (half ^ 1 << 63).cast_signed())
    }

    fn set(&mut self, index: usize, key: [i64; 2]) {
        (self.high[index], self.low[index]) = (key[0], key[1]);
    }

    #[inline(always)]
    fn count<I: Instructions>(&self, key: [i64; 2]) -> usize {
        I::count6([&self.high, &self.low], key)
    }
}

/// Edges of a field: the first values of all intervals but the first one, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Edges(Vec<u128>);

impl Edges {
    /// Collects the edges of ranges of a field whose greatest value is `max`.
    pub(crate) fn new(ranges: impl Iterator<Item = [u128; 2]>, max: u128) -> Self {
        let ends = ranges.flat_map(|[first, last]| [Some(first), last.checked_add(1)]);
        let mut edges: Vec<u128> = ends.flatten().filter(|edge| (1..=max).contains(edge)).collect();
        edges.sort_unstable();
        edges.dedup();
        Self(edges)
    }

    /// Returns the number of intervals.
    pub(crate) fn intervals(&self) -> usize {
        self.0.len() + 1
    }

    /// Returns the number of the interval that contains a value.
    pub(crate) fn interval(&self, value: u128) -> u16 {
        self.0.partition_point(|edge| *edge <= value) as u16
    }

    /// Returns the nodes of the search tree, and the index of the first node of each level.
    pub(crate) fn nodes<N: SearchNode>(&self) -> (Vec<N>, Vec<u32>) {
        let (mut nodes, mut starts) = (Vec::new(), Vec::new());
        // A key is the last value before an edge, so that the greatest value is no key.
        let keys: Vec<u128> = self.0.iter().map(|edge| edge - 1).collect();
        let mut level: Vec<Vec<u128>> = keys.chunks(N::KEYS).map(<[u128]>::to_vec).collect();
        // First key of each node of a level but the first node.
        let mut between: Vec<u128> = level.iter().skip(1).map(|keys| keys[0]).collect();
        while !level.is_empty() {
            starts.push(nodes.len() as u32);
            for keys in &level {
                let mut node = N::LAST;
                keys.iter().enumerate().for_each(|(index, key)| node.set(index, N::key(*key)));
                nodes.push(node);
            }
            let parents = if level.len() > 1 { level.len().div_ceil(N::KEYS + 1) } else { 0 };
            // The key between two parents is in the level above them.
            let children = |parent| {
                let from = between.iter().skip(parent * (N::KEYS + 1));
                from.take(N::KEYS).copied().collect()
            };
            level = (0..parents).map(children).collect();
            between = between.into_iter().skip(N::KEYS).step_by(N::KEYS + 1).collect();
        }
        (nodes, starts)
    }
}

/// Search tree of a field, as lanes read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'t, N> {
    pub(crate) nodes: &'t [N],
    /// Index of the first node of each level, the lowest level first.
    pub(crate) starts: [u32; LEVELS],
    /// Number of levels; without one there is one interval.
    pub(crate) levels: usize,
}

impl<N: SearchNode> Search<'_, N> {
    /// Finds the intervals of values. `set` gets the index of each value and its interval.
    ///
    /// Each value goes through all levels before the next one does. The processor overlaps them
    /// nevertheless, and the number of a node stays in a register.
    #[inline(always)]
    pub(crate) fn find<I: Instructions>(
        &self,
        count: usize,
        key: impl Fn(usize) -> N::Key,
        mut set: impl FnMut(usize, u16),
    ) {
        for index in 0..count.min(super::BURST) {
            let (key, mut at) = (key(index), 0_u32);
            for level in (0..self.levels.min(LEVELS)).rev() {
                let start = self.starts[level];
                let children = if level > 0 { N::KEYS + 1 } else { N::KEYS };
                let node = self.nodes.get(start.wrapping_add(at) as usize);
                let less = node.map_or(0, |node| node.count::<I>(key));
                at = at.wrapping_mul(children as u32).wrapping_add(less as u32);
            }
            set(index, at as u16);
        }
    }
}
