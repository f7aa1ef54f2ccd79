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
//! 80 sections, each offset u16 and count u16    144 what is in them, one after the other
//! ```
//! What most packets read comes first. A lane prefetches that part.
//!
//! A reader checks the offsets of sections. A damaged block has no rules.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

mod block_entries;
mod filter_sets;

pub(crate) use block_entries::{CHARGES, NONE};
pub use block_entries::{
    Count, EndMarkerEntry, Limit, Meter, RedirectEntry, Rule, SlotCharge, limit, redirect,
    slot_charge,
};
pub(crate) use filter_sets::code;
pub use filter_sets::{Bound, Condition, FILTERS, FilterPrefix, FilterSet, FilterSets, field};

use super::{AddressPrefix, OuterPath};

/// Bytes of a block for sections.
pub(crate) const ROOM: usize = 872;
/// Maximum number of blocks of a session.
pub const CHAIN: usize = 256;
/// Number of section kinds.
pub(crate) const SECTIONS: usize = 16;
/// Number of this layout. Blocks of another one have no rules. The control plane publishes all
/// sessions anew if it takes over tables that were written with another number.
pub(crate) const LAYOUT: u32 = 3;

/// Section kinds in their order in a block: first those that each packet reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// List of [`Condition`]s.
    Conditions = 0,
    /// Upper bounds of intervals of source ports: `i16` in ascending order, a multiple of eight,
    /// and a code for each interval.
    SourcePorts = 1,
    /// Upper bounds of intervals of destination ports.
    DestinationPorts = 2,
    /// Upper bounds of intervals of IPv4 sources: `i32` in ascending order, a multiple of four, and
    /// a code for each interval.
    Sources = 3,
    /// Upper bounds of intervals of IPv4 destinations.
    Destinations = 4,
    /// [`FilterSet`]s that codes refer to.
    Sets = 5,
    /// List of [`FilterPrefix`]es.
    Prefixes = 6,
    /// List of [`Rule`]s.
    Rules = 7,
    /// [`AddressPrefix`]es of UEs.
    Users = 8,
    /// List of [`OuterPath`]s.
    Paths = 9,
    /// List of [`SlotCharge`]s.
    Charges = 10,
    /// List of [`Count`]s.
    Counts = 11,
    /// List of [`Meter`]s.
    Meters = 12,
    /// [`Limit`]s of counts.
    Limits = 13,
    /// Redirections in bytes, each behind its [`RedirectEntry`].
    Text = 14,
    /// List of [`EndMarkerEntry`]s.
    EndMarkers = 15,
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

    /// Returns the number of octets, from the start of the block, that packets read whose rule has
    /// a list of charges.
    #[must_use]
    pub fn octets(&self) -> u16 {
        let Span { offset, count } = self.spans[Section::Charges as usize];
        let start = std::mem::offset_of!(Self, room) + usize::from(offset);
        u16::try_from(start + usize::from(count) * size_of::<SlotCharge>()).unwrap_or(u16::MAX)
    }

    /// Returns the values of a section; empty if it is not within the block.
    #[inline(always)]
    fn section<T: FromBytes + Immutable + KnownLayout>(&self, section: Section) -> &[T] {
        let Span { offset, count } = self.spans[section as usize];
        let Some(bytes) = self.room.get(usize::from(offset)..) else { return &[] };
        <[T]>::ref_from_prefix_with_elems(bytes, usize::from(count)).map_or(&[], |(it, _)| it)
    }

    /// Returns a value of a section. It takes half as long as to take it from all values.
    #[inline(always)]
    fn entry<T: FromBytes + Immutable + KnownLayout>(
        &self,
        section: Section,
        index: usize,
    ) -> Option<&T> {
        let Span { offset, count } = self.spans[section as usize];
        if index >= usize::from(count) {
            return None;
        }
        let bytes = self.room.get(usize::from(offset) + index * size_of::<T>()..)?;
        T::ref_from_prefix(bytes).ok().map(|(value, _)| value)
    }

    /// Returns a rule.
    #[inline(always)]
    #[must_use]
    pub fn rule(&self, index: usize) -> Option<&Rule> {
        self.entry(Section::Rules, index)
    }

    /// Returns a path.
    #[inline(always)]
    #[must_use]
    pub fn path(&self, index: u8) -> Option<&OuterPath> {
        self.entry(Section::Paths, index.into())
    }

    /// Returns the set of filters that match a source port, if it is known.
    #[inline(always)]
    #[must_use]
    pub fn source_port(&self, port: u16) -> FilterSet {
        self.set_of::<i16>(Section::SourcePorts, self.filters.any_source_port, port.into())
    }

    /// Returns the set of filters that match a destination port, if it is known.
    #[inline(always)]
    #[must_use]
    pub fn destination_port(&self, port: u16) -> FilterSet {
        let any = self.filters.any_destination_port;
        self.set_of::<i16>(Section::DestinationPorts, any, port.into())
    }

    /// Returns the set of filters that match an IPv4 source.
    #[inline(always)]
    #[must_use]
    pub fn source_v4(&self, address: u32) -> FilterSet {
        self.set_of::<i32>(Section::Sources, self.filters.any_source, address)
    }

    /// Returns the set of filters that match an IPv4 destination.
    #[inline(always)]
    #[must_use]
    pub fn destination_v4(&self, address: u32) -> FilterSet {
        self.set_of::<i32>(Section::Destinations, self.filters.any_destination, address)
    }

    /// Returns the set of filters that match a value of a field. `any` are those without a
    /// condition on the field.
    #[inline(always)]
    fn set_of<B: Bound>(&self, section: Section, any: FilterSet, value: u32) -> FilterSet {
        let Span { offset, count } = self.spans[section as usize];
        if count == 0 {
            return any;
        }
        let bounds: &[B] = self.section(section);
        let interval = B::count_below(bounds, B::of(value));
        let codes = usize::from(offset) + size_of_val(bounds);
        match self.room.get(codes + interval).copied().unwrap_or(code::NONE) {
            filter if filter < code::STORED => any | 1 << filter,
            code::NONE => any,
            stored => self.stored_set(stored - code::STORED),
        }
    }

    fn stored_set(&self, index: u8) -> FilterSet {
        self.section(Section::Sets).get(usize::from(index)).copied().unwrap_or(0)
    }

    /// Returns the index of the rule of a filter.
    #[inline(always)]
    #[must_use]
    pub const fn rule_of(&self, filter: u32) -> usize {
        let up_to = FilterSet::MAX >> (FilterSet::BITS - 1).saturating_sub(filter);
        ((self.filters.first & up_to).count_ones() as usize).wrapping_sub(1)
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

    /// Returns the IPv6 prefixes of filters.
    #[inline]
    #[must_use]
    pub fn prefixes(&self) -> &[FilterPrefix] {
        self.section(Section::Prefixes)
    }

    /// Returns the addresses of UEs.
    #[inline]
    #[must_use]
    pub fn users(&self) -> &[AddressPrefix] {
        self.section(Section::Users)
    }

    /// Returns the charges of counter slots.
    #[inline]
    #[must_use]
    pub fn charges(&self) -> &[SlotCharge] {
        self.section(Section::Charges)
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
