//! Groups of sessions by slice and DNN: what lanes count them by, and what limits their held
//! packets.
//!
//! The rules of a session name its group, in bits that both directions' cache lines have. The
//! control plane gives each pair of S-NSSAI and DNN a group when its first session is published,
//! and never takes it back, so counters never decrease. When all are given, further pairs are
//! counted together: of a configured slice by slice, all others as one.

use fastlane::table::EntryId;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::drop_reason::{DROP_REASONS, DropReason};
use crate::session::SNssai;

/// `Array<SliceRecord>` by group: its slice and DNN.
pub const SLICES: &str = "slices";
/// Lane state by group: packets and octets forwarded, and packets by other outcomes.
pub const SLICE_COUNTERS: &str = "slice-counters";
/// `Array<HoldBudget>` by group, and behind these by association index: limits of held packets.
pub const HOLD_BUDGETS: &str = "hold-budgets";

/// Number of groups.
pub const GROUPS: usize = 128;
/// Entries of the tables by group: indices have gaps, see [`SliceGroup`].
pub const GROUP_ENTRIES: usize = 256;
/// Words of [`SLICE_COUNTERS`]. Forwarded packets and octets, uplink before downlink; from
/// [`OUTCOMES`] on packets by outcome.
pub const SLICE_WORDS: usize = 128;
/// First word of packets by outcome.
pub const OUTCOMES: usize = 8;

const _: () = assert!(OUTCOMES + DROP_REASONS.len() <= SLICE_WORDS);

/// Group of sessions by slice and DNN. Its index has 7 bits, which are bits 16 to 18 and 20 to 23
/// of the flags of a direction: bit 19 is another flag. Entries of tables have the same gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceGroup(u8);

impl SliceGroup {
    /// Group of sessions with neither S-NSSAI nor DNN.
    pub const NONE: Self = Self::new(0);
    /// Group of all pairs that have got no group.
    pub const OTHER: Self = Self::new(1);
    /// Bits of the flags of a direction.
    pub const FLAGS: u32 = 0xF7 << Self::SHIFT;
    /// First bit in the flags.
    const SHIFT: u32 = 16;

    /// Creates the group with an index below [`GROUPS`].
    const fn new(index: u8) -> Self {
        Self(index & 7 | (index & 0x78) << 1)
    }

    /// Returns all groups, in the order in which they are given.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..GROUPS as u8).map(Self::new)
    }

    /// Reads the group from the flags of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn of_flags(flags: u32) -> Self {
        Self((flags >> Self::SHIFT) as u8 & 0xF7)
    }

    /// Returns the bits of the group in the flags of a direction.
    #[must_use]
    pub const fn flags(self) -> u32 {
        (self.0 as u32) << Self::SHIFT
    }

    /// Returns the index of its entry in tables.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns its entry in [`SLICE_COUNTERS`].
    #[inline]
    #[must_use]
    pub const fn entry(self) -> EntryId {
        EntryId(self.0 as u32)
    }
}

/// Returns the words of forwarded packets and octets of a direction: 0 uplink, 1 downlink.
#[must_use]
pub const fn forwarded_words(direction: usize) -> [usize; 2] {
    [2 * direction, 2 * direction + 1]
}

/// Returns the word of packets with another outcome.
#[must_use]
pub const fn outcome_word(reason: DropReason) -> usize {
    OUTCOMES + reason as usize
}

/// Maximum length of a DNN in octets (TS 23.003 clause 9.1).
pub const DNN: usize = 100;

/// Kinds of [`SliceRecord`].
pub mod kind {
    /// Slice and DNN as named.
    pub const EXACT: u8 = 0;
    /// All further DNNs of the slice.
    pub const OTHER_DNN: u8 = 1;
    /// All further slices.
    pub const OTHER: u8 = 2;
}

/// Slice and DNN of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SliceRecord {
    /// Slice differentiator; all ones for none.
    pub sd: u32,
    /// Slice or service type.
    pub sst: u8,
    /// 1 if the sessions have an S-NSSAI.
    pub has_slice: u8,
    /// A value of [`kind`].
    pub kind: u8,
    /// Length of the DNN.
    pub length: u8,
    /// DNN in UTF-8.
    pub dnn: [u8; DNN],
    /// Reserved, zero.
    pub reserved: u32,
}

/// Limit of held packets that several sessions have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HoldBudget {
    /// Number of the budget, from 1 to [`BUDGETS`]: sessions with the same one share it.
    pub number: u32,
    /// Maximum number of packets that a lane holds of these sessions.
    pub packets: u32,
}

/// Highest number of a budget.
pub const BUDGETS: usize = 128;

/// Returns the index of an association in [`HOLD_BUDGETS`].
#[must_use]
pub const fn smf_entry(peer: u16) -> usize {
    GROUP_ENTRIES + peer as usize
}

/// Name of what has no group of its own.
const OTHER_NAME: &str = "other";

/// Slice and DNN of a group, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceLabels {
    /// Slice, as `1-010203` or `1`; empty without S-NSSAI; `other` for those without a group.
    pub slice: String,
    /// DNN, or network instance if the session has none; `other` for those without a group.
    pub dnn: String,
}

impl SliceRecord {
    /// Creates the record of a slice and a DNN of up to [`DNN`] octets.
    #[must_use]
    pub fn new(slice: Option<SNssai>, kind: u8, dnn: &str) -> Self {
        let mut record = Self { kind, ..Self::new_zeroed() };
        if let Some(SNssai { sst, sd }) = slice {
            (record.sst, record.sd, record.has_slice) = (sst, sd, 1);
        }
        let dnn = &dnn.as_bytes()[..dnn.len().min(DNN)];
        record.length = dnn.len() as u8;
        record.dnn[..dnn.len()].copy_from_slice(dnn);
        record
    }

    /// Returns the slice of the sessions.
    #[must_use]
    pub fn slice(&self) -> Option<SNssai> {
        (self.has_slice != 0).then_some(SNssai { sst: self.sst, sd: self.sd })
    }

    /// Returns slice and DNN as text.
    #[must_use]
    pub fn labels(&self) -> SliceLabels {
        let slice = self.slice().map(|it| it.to_string()).unwrap_or_default();
        match self.kind {
            kind::EXACT => SliceLabels { slice, dnn: self.dnn().to_owned() },
            kind::OTHER_DNN => SliceLabels { slice, dnn: OTHER_NAME.to_owned() },
            _ => SliceLabels { slice: OTHER_NAME.to_owned(), dnn: OTHER_NAME.to_owned() },
        }
    }

    /// Returns the DNN.
    #[must_use]
    pub fn dnn(&self) -> &str {
        let octets = self.dnn.get(..usize::from(self.length)).unwrap_or_default();
        std::str::from_utf8(octets).unwrap_or_default()
    }
}

const _: () = assert!(size_of::<SliceRecord>() == 112 && size_of::<HoldBudget>() == 8);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_group_has_an_entry_of_its_own() {
        let all: BTreeSet<SliceGroup> = SliceGroup::all().collect();
        assert_eq!(all.len(), GROUPS);
        for group in all {
            assert!(group.index() < GROUP_ENTRIES);
            assert_eq!(group.flags() & !SliceGroup::FLAGS, 0);
            for others in [0, !SliceGroup::FLAGS] {
                assert_eq!(SliceGroup::of_flags(group.flags() | others), group);
            }
        }
    }
}
