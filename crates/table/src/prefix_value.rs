//! Value of a prefix, as a lookup of many addresses returns it.

use std::fmt;
use std::num::NonZeroU32;

use crate::layout::{NUMBER, ROUTE};

/// Value of a prefix, below 2^22. An `Option` of it takes four bytes, so that vector instructions
/// write the results of many lookups as they are.
///
/// # Examples
/// ```
/// # use fastlane_table::PrefixValue;
/// let value = PrefixValue::new(7).expect("below 2^22");
/// assert_eq!(value.get(), 7);
/// assert_eq!(size_of::<Option<PrefixValue>>(), 4);
/// ```
// The word of the route without the length of its prefix. Because the type is transparent, the
// bits of `None` are zero, and any 32 bits are an `Option` of it (std::option, "Representation").
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PrefixValue(NonZeroU32);

impl PrefixValue {
    /// Creates the value, or returns `None` if it is 2^22 or greater.
    #[must_use]
    pub const fn new(value: u32) -> Option<Self> {
        if value > NUMBER {
            return None;
        }
        match NonZeroU32::new(ROUTE | value) {
            Some(word) => Some(Self(word)),
            None => None,
        }
    }

    /// Returns the value as it was inserted.
    #[inline(always)]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get() & NUMBER
    }
}

impl fmt::Debug for PrefixValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl From<PrefixValue> for u32 {
    fn from(value: PrefixValue) -> Self {
        value.get()
    }
}
