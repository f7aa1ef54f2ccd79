//! Blocks: rules of sessions that exceed the simple form.
//!
//! A block holds rules in the order of evaluation and all that they refer to. A session has a chain
//! of blocks, and no rule spans two. So a lane that has found the rule has found everything it
//! refers to. A PDR with more filters than a block can hold becomes several rules in a row, each
//! with some of the filters; it matches if one of them does.
//!
//! The filters of a block are compiled into a classifier: bit vectors (Lakshman and Stiliadis,
//! SIGCOMM 1998). Each field of a packet selects a [`FilterSet`], and the intersection of these
//! sets has the filters that match. The first bit is the first filter by precedence.
//!
//! ```text
//! 0 next    4 version    8 session    12 layout    16 sets of filters
//! 40 sections, each offset u16 and count u16    104 what is in them, one after the other
//! ```
//! A reader checks the offsets of sections. A damaged block has no rules.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

mod block_entries;
mod filter_sets;

pub(crate) use block_entries::NONE;
pub use block_entries::{
    Count, EndMarkerEntry, Limit, Meter, RedirectEntry, Rule, limit, redirect,
};
pub(crate) use filter_sets::BOUNDS;
pub use filter_sets::{BlockAddress, Condition, FILTERS, FilterSet, FilterSets, field};

use super::OuterPath;

/// Bytes of a block for sections.
pub(crate) const ROOM: usize = 912;
/// Maximum number of blocks of a session.
pub const CHAIN: usize = 256;
/// Number of section kinds.
pub(crate) const SECTIONS: usize = 15;
/// Number of this layout. Blocks of another one have no rules: its first section began at 0 where
/// this number is.
pub(crate) const LAYOUT: u32 = 2;

/// Section kinds in their order in a block: first those that each packet reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// Upper bounds of intervals of source ports: u16, in ascending order, a multiple of eight.
    SourcePorts = 0,
    /// Upper bounds of intervals of destination ports.
    DestinationPorts = 1,
    /// [`FilterSet`]s that sections of indices refer to.
    Sets = 2,
    /// Index of the set of each interval of source ports: u8.
    SourceSets = 3,
    /// Index of the set of each interval of destination ports.
    DestinationSets = 4,
    /// Index of the rule of each filter: u8.
    RuleIndices = 5,
    /// List of [`Condition`]s.
    Conditions = 6,
    /// [`BlockAddress`]es of UEs and filters.
    Addresses = 7,
    /// List of [`Rule`]s.
    Rules = 8,
    /// List of [`OuterPath`]s.
    Paths = 9,
    /// List of [`Count`]s.
    Counts = 10,
    /// List of [`Meter`]s.
    Meters = 11,
    /// [`Limit`]s of counts.
    Limits = 12,
    /// Redirections in bytes, each behind its [`RedirectEntry`].
    Text = 13,
    /// List of [`EndMarkerEntry`]s.
    EndMarkers = 14,
}

/// Position of a section.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Span {
    pub(crate) offset: u16,
    pub(crate) count: u16,
}

/// A block. With the 8 bytes before it in its slot it has 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Block {
    /// 1 + index of the next block; 0: this is the last one.
    pub next: u32,
    /// Lower 32 bits of the session's version.
    pub version: u32,
    /// Session index.
    pub session: u32,
    layout: u32,
    /// Sets of filters by properties that need no search.
    pub filters: FilterSets,
    pub(crate) spans: [Span; SECTIONS],
    /// Reserved, zero.
    pub reserved: u32,
    pub(crate) room: [u8; ROOM],
}

impl Block {
    /// Creates a block without rules.
    #[must_use]
    pub fn empty() -> Self {
        Self { layout: LAYOUT, ..Self::new_zeroed() }
    }

    /// Returns true if the block has this layout and belongs to a version (lower 32 bits) of a
    /// session.
    #[inline]
    #[must_use]
    pub const fn is_of(&self, session: u32, version: u32) -> bool {
        self.layout == LAYOUT && self.version == version && self.session == session
    }

    /// Returns the number of octets in use, from the start of the block.
    #[must_use]
    pub fn octets(&self) -> u16 {
        let start = std::mem::offset_of!(Self, room);
        let room = self.room.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
        u16::try_from(start + room).unwrap_or(u16::MAX)
    }

    /// Returns the values of a section; empty if it is not within the block.
    #[inline]
    fn section<T: FromBytes + Immutable + KnownLayout>(&self, section: Section) -> &[T] {
        let Span { offset, count } = self.spans[section as usize];
        let Some(bytes) = self.room.get(usize::from(offset)..) else { return &[] };
        <[T]>::ref_from_prefix_with_elems(bytes, usize::from(count)).map_or(&[], |(it, _)| it)
    }

    /// Returns the set of filters that match a source port, if it is known.
    #[inline]
    #[must_use]
    pub fn source_port(&self, port: u16) -> FilterSet {
        self.port(Section::SourcePorts, Section::SourceSets, port)
    }

    /// Returns the set of filters that match a destination port, if it is known.
    #[inline]
    #[must_use]
    pub fn destination_port(&self, port: u16) -> FilterSet {
        self.port(Section::DestinationPorts, Section::DestinationSets, port)
    }

    #[inline(always)]
    fn port(&self, bounds: Section, sets: Section, port: u16) -> FilterSet {
        let bounds: &[u16] = self.section(bounds);
        if bounds.is_empty() {
            return FilterSet::MAX;
        }
        let index = self.section::<u8>(sets).get(filter_sets::interval(bounds, port));
        let set = index.and_then(|index| self.section(Section::Sets).get(usize::from(*index)));
        set.copied().unwrap_or(0)
    }

    /// Returns the index of the rule of each filter.
    #[inline]
    #[must_use]
    pub fn rule_indices(&self) -> &[u8] {
        self.section(Section::RuleIndices)
    }

    /// Returns the conditions of filters on other fields than addresses and ports.
    #[inline]
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        self.section(Section::Conditions)
    }

    /// Returns the rules in the order of evaluation.
    #[inline]
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.section(Section::Rules)
    }

    /// Returns the addresses of UEs and filters.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> &[BlockAddress] {
        self.section(Section::Addresses)
    }

    /// Returns the limits of counters.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        self.section(Section::Limits)
    }

    /// Returns the counters.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> &[Count] {
        self.section(Section::Counts)
    }

    /// Returns the paths.
    #[inline]
    #[must_use]
    pub fn paths(&self) -> &[OuterPath] {
        self.section(Section::Paths)
    }

    /// Returns the meters.
    #[inline]
    #[must_use]
    pub fn meters(&self) -> &[Meter] {
        self.section(Section::Meters)
    }

    /// Returns the redirections in bytes, each behind its [`RedirectEntry`].
    #[inline]
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.section(Section::Text)
    }

    /// Returns the end markers that are due besides that of the session's rules.
    #[must_use]
    pub fn end_markers(&self) -> &[EndMarkerEntry] {
        self.section(Section::EndMarkers)
    }
}
