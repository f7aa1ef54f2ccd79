//! Block: 16 rules that are compared with a packet at once.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::FIELDS;

/// Number of rules in a block.
pub(crate) const RULES: usize = 16;

/// Bitwise complement of an interval's number, and the number. A number is not below the first one
/// of a range if its complement is not above that of the first one: both bounds are upper ones.
pub(crate) type Interval = [u16; 2];

/// Numbers of a packet's intervals, by field; the last two are zero.
pub(crate) type Intervals = [Interval; 8];

/// Returns the interval of a number.
#[inline(always)]
pub(crate) fn interval(number: u16) -> Interval {
    [!number, number]
}

/// Rules of a leaf in order of priority. A rule matches if each interval of the packet is between
/// its first and its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    /// Upper bounds of a packet's interval, by field and rule: the complement of the rule's first
    /// interval, and its last one.
    pub(crate) bounds: [[Interval; RULES]; FIELDS],
    /// Position of each rule in the list.
    pub(crate) rules: [u32; RULES],
}

impl Block {
    /// Block without rules: no interval is between a first one of 65,535 and a last one of 0.
    pub(crate) const EMPTY: Self =
        Self { bounds: [[[0, 0]; RULES]; FIELDS], rules: [u32::MAX; RULES] };

    /// Sets a rule of the block.
    pub(crate) fn set(&mut self, index: usize, rule: u32, ranges: &[[u16; 2]; FIELDS]) {
        self.rules[index] = rule;
        for (field, [first, last]) in self.bounds.iter_mut().zip(ranges) {
            field[index] = [!first, *last];
        }
    }
}
