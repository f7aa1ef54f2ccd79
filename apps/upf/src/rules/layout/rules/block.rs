//! Rules of sessions that need more than a line.
//!
//! A block holds rules in the order in which they are tried, and all that they refer to; a session
//! has a chain of them, and a rule is in one block whole. So a lane that has found the rule has
//! found everything. A PDR with more filters than a block has room for is several rules in a row,
//! each with some of the filters: one of them matches when one of the filters does.
//!
//! ```text
//! 0 next    4 version    8 session    12 sections, each offset u16 and count u16
//! 48 what is in them, one after the other
//! ```
//! A reader checks where sections are: a damaged block is one that has no rules.

mod builder;
mod parts;

pub use builder::Builder;
pub(crate) use parts::NONE;
pub use parts::{
    AnyAddress, Count, Limit, Match, Meter, OuterPath, RedirectEntry, Rule, limit, redirect, wants,
};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Bytes of a block that are for sections.
pub(crate) const ROOM: usize = 968;
/// The most blocks of a session.
pub const CHAIN: usize = 256;
/// How many kinds of sections there are.
const SECTIONS: usize = 9;

/// The kinds of sections, in the order in which they lie: greater alignments first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// [`Rule`]s.
    Rules = 0,
    /// [`AnyAddress`]es of users and filters.
    Addresses = 1,
    /// [`Limit`]s of counts.
    Limits = 2,
    /// [`Count`]s.
    Counts = 3,
    /// [`OuterPath`]s.
    Paths = 4,
    /// [`Meter`]s.
    Meters = 5,
    /// [`Match`]es.
    Matches = 6,
    /// [`RedirectEntry`]s and ranges of ports: pairs of u16.
    Ports = 7,
    /// Bytes of redirections.
    Text = 8,
}

/// Where a section is.
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
    /// 1 + the place of the next one; 0: this is the last.
    pub next: u32,
    /// Lower bits of the session's version.
    pub version: u32,
    /// The session.
    pub session: u32,
    pub(crate) spans: [Span; SECTIONS],
    pub(crate) room: [u8; ROOM],
}

impl Block {
    /// Without rules.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// The values of a section; none if it is not within the block.
    #[inline]
    fn section<T: FromBytes + Immutable + KnownLayout>(&self, section: Section) -> &[T] {
        let Span { offset, count } = self.spans[section as usize];
        let Some(bytes) = self.room.get(usize::from(offset)..) else { return &[] };
        <[T]>::ref_from_prefix_with_elems(bytes, usize::from(count)).map_or(&[], |(it, _)| it)
    }

    /// The rules, those first that are tried first.
    #[inline]
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        self.section(Section::Rules)
    }

    /// Addresses of users, and of filters.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> &[AnyAddress] {
        self.section(Section::Addresses)
    }

    /// Limits of counts.
    #[inline]
    #[must_use]
    pub fn limits(&self) -> &[Limit] {
        self.section(Section::Limits)
    }

    /// What is counted.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> &[Count] {
        self.section(Section::Counts)
    }

    /// Where packets go.
    #[inline]
    #[must_use]
    pub fn paths(&self) -> &[OuterPath] {
        self.section(Section::Paths)
    }

    /// Meters.
    #[inline]
    #[must_use]
    pub fn meters(&self) -> &[Meter] {
        self.section(Section::Meters)
    }

    /// Filters.
    #[inline]
    #[must_use]
    pub fn matches(&self) -> &[Match] {
        self.section(Section::Matches)
    }

    /// Ranges of ports.
    #[inline]
    #[must_use]
    pub fn ports(&self) -> &[[u16; 2]] {
        self.section(Section::Ports)
    }

    /// Bytes of redirections, each with its [`RedirectEntry`] before it.
    #[inline]
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.section(Section::Text)
    }
}
