//! Block: 16 rules that are compared with a packet at once.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::FIELDS;

/// Number of rules in a block.
pub(crate) const RULES: usize = 16;

/// Numbers of a packet's intervals, by field; the last two are zero.
pub(crate) type Intervals = [u16; 8];

/// Rules of a leaf in order of priority. A rule matches if each interval of the packet is between
/// its first and its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    /// First and last interval of each rule, by field.
    pub(crate) ranges: [[[u16; RULES]; 2]; FIELDS],
    /// Position of each rule in the list.
    pub(crate) rules: [u32; RULES],
}

impl Block {
    /// Block without rules: no interval is between a first one of 65,535 and a last one of 0.
    pub(crate) const EMPTY: Self =
        Self { ranges: [[[u16::MAX; RULES], [0; RULES]]; FIELDS], rules: [u32::MAX; RULES] };

    /// Sets a rule of the block.
    pub(crate) fn set(&mut self, index: usize, rule: u32, ranges: &[[u16; 2]; FIELDS]) {
        self.rules[index] = rule;
        for (field, [first, last]) in self.ranges.iter_mut().zip(ranges) {
            (field[0][index], field[1][index]) = (*first, *last);
        }
    }
}
