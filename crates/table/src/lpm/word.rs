//! Word of the trie.

use crate::layout::{LINK, NUMBER, ROUTE};
use crate::prefix_value::PrefixValue;

/// Upper bound of values and of the numbers of groups and pairs, exclusive.
pub(super) const VALUE_LIMIT: u32 = NUMBER + 1;

/// Word of the trie; its bits are documented in the module `lpm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

/// Link of a word, to the words for the next eight bits of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A group, by its number.
    Group(u32),
    /// A pair.
    Pair(PairLink),
}

/// Link to a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairLink {
    /// Number of the pair.
    pub(super) number: u32,
    /// An octet of the addresses inside.
    pub(super) octet: u8,
}

impl Word {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn route(length: u8, value: u32) -> Self {
        Self(ROUTE | u32::from(length) << 22 | value & NUMBER)
    }

    pub(super) fn group(number: u32) -> Self {
        Self(LINK | number & NUMBER)
    }

    pub(super) fn pair(pair: PairLink) -> Self {
        Self(ROUTE | LINK | u32::from(pair.octet) << 22 | pair.number & NUMBER)
    }

    /// Returns what the word links to.
    #[inline(always)]
    pub(super) fn link(self) -> Option<Link> {
        let number = self.0 & NUMBER;
        match (self.0 & LINK != 0, self.0 & ROUTE != 0) {
            (false, _) => None,
            (true, false) => Some(Link::Group(number)),
            (true, true) => Some(Link::Pair(PairLink { number, octet: self.bits_22_to_29() })),
        }
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
        self.value().map(|_| self.bits_22_to_29())
    }

    /// Returns the bits of an octet that are equal for all addresses inside a pair whose first word
    /// this is. The octet ends at bit `to` of the address. A link is for one octet. No bits need to
    /// be equal if the prefix ends before the octet.
    #[inline(always)]
    pub(super) fn equal_bits(self, to: u8) -> u8 {
        if self.0 & LINK != 0 {
            return 0xFF;
        }
        let free = u32::from(to).wrapping_sub(u32::from(self.bits_22_to_29()));
        0xFF_u32.checked_shl(free).unwrap_or(0) as u8
    }

    #[inline(always)]
    fn bits_22_to_29(self) -> u8 {
        (self.0 >> 22) as u8
    }
}
