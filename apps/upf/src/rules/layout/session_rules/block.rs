//! Blocks: rules of sessions that exceed the simple form.
//!
//! A block holds rules in the order of evaluation and all that they refer to. A session has a chain
//! of blocks, and no rule spans two. So a lane that has found the rule has found everything it
//! refers to. A PDR with more filters than a block can hold becomes several rules in a row, each
//! with some of the filters; it matches if one of them does.
//!
//! ```text
//! 0 next    4 version    8 session    12 sections, each offset u16 and count u16
//! 48 what is in them, one after the other
//! ```
//! A reader checks the offsets of sections. A damaged block has no rules.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

mod block_entries;

pub(crate) use block_entries::NONE;
pub use block_entries::{
    AddressPrefix, Count, Limit, Meter, OuterPath, PacketFilter, RedirectEntry, Rule, limit,
    redirect, wanted,
};

/// Bytes of a block for sections.
pub(crate) const ROOM: usize = 968;
/// Maximum number of blocks of a session.
pub const CHAIN: usize = 256;
/// Number of section kinds.
const SECTIONS: usize = 9;

/// Section kinds in their order in a block: greater alignments first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Section {
    /// List of [`Rule`]s.
    Rules = 0,
    /// Addresses of users and filters.
    Addresses = 1,
    /// [`Limit`]s of counts.
    Limits = 2,
    /// List of [`Count`]s.
    Counts = 3,
    /// List of [`OuterPath`]s.
    Paths = 4,
    /// List of [`Meter`]s.
    Meters = 5,
    /// List of [`PacketFilter`]es.
    Matches = 6,
    /// [`RedirectEntry`]s and ranges of ports: pairs of u16.
    Ports = 7,
    /// Redirections in bytes, each behind its [`RedirectEntry`].
    Text = 8,
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
    pub(crate) spans: [Span; SECTIONS],
    pub(crate) room: [u8; ROOM],
}

impl Block {
    /// Creates a block without rules.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// Returns the values of a section; empty if it is not within the block.
    #[inline]
    fn section<T: FromBytes + Immutable + KnownLayout>(&self, section: Section) -> &[T] {
        let Span { offset, count } = self.spans[section as usize];
        let Some(bytes) = self.room.get(usize::from(offset)..) else { return &[] };
        <[T]>::ref_from_prefix_with_elems(bytes, usize::from(count)).map_or(&[], |(it, _)| it)
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
    pub fn addresses(&self) -> &[AddressPrefix] {
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

    /// Returns the filters.
    #[inline]
    #[must_use]
    pub fn matches(&self) -> &[PacketFilter] {
        self.section(Section::Matches)
    }

    /// Returns the port ranges.
    #[inline]
    #[must_use]
    pub fn ports(&self) -> &[[u16; 2]] {
        self.section(Section::Ports)
    }

    /// Returns the redirections in bytes, each behind its [`RedirectEntry`].
    #[inline]
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.section(Section::Text)
    }
}

/// Content of a block to be built. The lists may exceed a block; [`build`](Self::build) then
/// returns `None`.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    /// Rules in the order of evaluation.
    pub rules: Vec<Rule>,
    /// Addresses of UEs and filters.
    pub addresses: Vec<AddressPrefix>,
    /// Limits of the counters.
    pub limits: Vec<Limit>,
    /// Counters of URRs.
    pub counts: Vec<Count>,
    /// Paths of packets and copies.
    pub paths: Vec<OuterPath>,
    /// Meters of QERs.
    pub meters: Vec<Meter>,
    /// Packet filters of the rules.
    pub matches: Vec<PacketFilter>,
    /// Ranges of ports.
    pub ports: Vec<[u16; 2]>,
    /// Redirections in bytes.
    pub text: Vec<u8>,
}

impl Builder {
    /// Returns the index of a value in a list, which is appended if it is missing.
    pub fn place<T: PartialEq>(list: &mut Vec<T>, value: T) -> usize {
        list.iter().position(|it| *it == value).unwrap_or_else(|| {
            list.push(value);
            list.len() - 1
        })
    }

    /// Returns true if the content fits the block and the widths of the indices in rules.
    #[must_use]
    pub fn fits(&self) -> bool {
        let bytes: usize = self.sections().iter().map(|(_, bytes)| bytes.len()).sum();
        bytes <= ROOM
            && self.meters.len() <= 32
            && self.counts.len() <= 32
            && self.addresses.len() <= 64
    }

    fn sections(&self) -> [(usize, &[u8]); SECTIONS] {
        fn of<T: IntoBytes + Immutable>(list: &[T]) -> (usize, &[u8]) {
            (list.len(), list.as_bytes())
        }
        let mut sections: [(usize, &[u8]); SECTIONS] = [(0, &[]); SECTIONS];
        sections[Section::Rules as usize] = of(&self.rules);
        sections[Section::Addresses as usize] = of(&self.addresses);
        sections[Section::Limits as usize] = of(&self.limits);
        sections[Section::Counts as usize] = of(&self.counts);
        sections[Section::Paths as usize] = of(&self.paths);
        sections[Section::Meters as usize] = of(&self.meters);
        sections[Section::Matches as usize] = of(&self.matches);
        sections[Section::Ports as usize] = of(&self.ports);
        sections[Section::Text as usize] = of(&self.text);
        sections
    }

    /// Returns the block as the last of its chain, or `None` if the content does not fit.
    #[must_use]
    pub fn build(&self, session: u32, version: u32) -> Option<Block> {
        if !self.fits() {
            return None;
        }
        let mut block = Block { session, version, ..Block::empty() };
        let mut offset = 0;
        for ((count, bytes), span) in self.sections().into_iter().zip(&mut block.spans) {
            block.room.get_mut(offset..offset + bytes.len())?.copy_from_slice(bytes);
            *span = Span { offset: u16::try_from(offset).ok()?, count: u16::try_from(count).ok()? };
            offset += bytes.len();
        }
        Some(block)
    }
}
