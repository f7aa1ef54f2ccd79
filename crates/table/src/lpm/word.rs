//! A word of the trie.

const ROUTE: u32 = 1 << 31;
const GROUP: u32 = 1 << 30;
/// Values and numbers of groups are smaller.
pub(super) const VALUE_LIMIT: u32 = 1 << 22;

/// See the module's documentation.
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

    /// The number of the group that it links to.
    #[inline(always)]
    pub(super) fn group(self) -> Option<u32> {
        (self.0 & GROUP != 0).then_some(self.0 & (VALUE_LIMIT - 1))
    }

    /// Its value, if it is a route.
    #[inline(always)]
    pub(super) fn value(self) -> Option<u32> {
        (self.0 & (ROUTE | GROUP) == ROUTE).then_some(self.0 & (VALUE_LIMIT - 1))
    }

    /// The length of its prefix, if it is a route.
    pub(super) fn length(self) -> Option<u8> {
        self.value().map(|_| (self.0 >> 22) as u8)
    }
}
