//! Word of the trie.

use crate::layout::{LINK, NUMBER, ROUTE};
use crate::prefix_value::PrefixValue;

/// Upper bound of values and group numbers, exclusive.
pub(super) const VALUE_LIMIT: u32 = NUMBER + 1;

/// Word of the trie; its bits are documented in the module `lpm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

impl Word {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn route(length: u8, value: u32) -> Self {
        Self(ROUTE | u32::from(length) << 22 | value & NUMBER)
    }

    pub(super) fn link(group: u32) -> Self {
        Self(LINK | group & NUMBER)
    }

    /// Returns the number of the group that the word links to.
    #[inline(always)]
    pub(super) fn group(self) -> Option<u32> {
        (self.0 & LINK != 0).then_some(self.0 & NUMBER)
    }

    /// Returns the value if the word is a route.
    #[inline(always)]
    pub(super) fn value(self) -> Option<u32> {
        (self.0 & (ROUTE | LINK) == ROUTE).then_some(self.0 & NUMBER)
    }

    /// Returns the value if the word is a route, in four bytes.
    #[inline(always)]
    pub(super) fn prefix_value(self) -> Option<PrefixValue> {
        self.value().and_then(PrefixValue::new)
    }

    /// Returns the length of the prefix if the word is a route.
    pub(super) fn length(self) -> Option<u8> {
        self.value().map(|_| (self.0 >> 22) as u8)
    }
}
