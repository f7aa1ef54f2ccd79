//! Word of the trie.

const ROUTE: u32 = 1 << 31;
const GROUP: u32 = 1 << 30;
/// Upper bound of values and group numbers, exclusive.
pub(super) const VALUE_LIMIT: u32 = 1 << 22;

/// Word of the trie; its bits are documented in the module `lpm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

impl Word {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn route(length: u8, value: u32) -> Self {
        Self(ROUTE | u32::from(length) << 22 | value & (VALUE_LIMIT - 1))
    }

    pub(super) fn link(group: u32) -> Self {
        Self(GROUP | group & (VALUE_LIMIT - 1))
    }

    /// Returns the number of the group that the word links to.
    #[inline(always)]
    pub(super) fn group(self) -> Option<u32> {
        (self.0 & GROUP != 0).then_some(self.0 & (VALUE_LIMIT - 1))
    }

    /// Returns the value if the word is a route.
    #[inline(always)]
    pub(super) fn value(self) -> Option<u32> {
        (self.0 & (ROUTE | GROUP) == ROUTE).then_some(self.0 & (VALUE_LIMIT - 1))
    }

    /// Returns the length of the prefix if the word is a route.
    pub(super) fn length(self) -> Option<u8> {
        self.value().map(|_| (self.0 >> 22) as u8)
    }
}
