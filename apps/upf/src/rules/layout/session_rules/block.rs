//! Blocks: rules of sessions that exceed the simple form.
//!
//! A block holds rules in the order of evaluation and all that they refer to. A session has a chain
//! of blocks, and no rule spans two. So a lane that has found the rule has found everything it
//! refers to. A PDR with more filters than a block can hold becomes several rules in a row, each
//! with some of the filters; it matches if one of them does.
//!
//! ```text
//! 0 next    4 version    8 session    12 sections, each offset u16 and count u16
//! 56 what is in them, one after the other
//! ```
//! A reader checks the offsets of sections. A damaged block has no rules.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{AddressPrefix, OuterPath};

/// Bytes of a block for sections.
pub(crate) const ROOM: usize = 960;
/// Maximum number of blocks of a session.
pub const CHAIN: usize = 256;
/// Number of section kinds.
const SECTIONS: usize = 10;

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
    /// List of [`EndMarkerEntry`]s.
    EndMarkers = 9,
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
    /// Reserved, zero.
    pub reserved: u32,
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

    /// Returns the end markers that are due besides that of the session's rules.
    #[must_use]
    pub fn end_markers(&self) -> &[EndMarkerEntry] {
        self.section(Section::EndMarkers)
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
    /// End markers that are due.
    pub end_markers: Vec<EndMarkerEntry>,
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
        sections[Section::EndMarkers as usize] = of(&self.end_markers);
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

/// Index that means "none".
pub(crate) const NONE: u8 = u8::MAX;

/// A PDR, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// Bit set of QoS flows, one of which the packet must have; 0: any or none.
    pub qfis: u64,
    /// Bit set of the block's first 64 addresses, one of which must be the uplink source or
    /// downlink destination; 0: any.
    pub users: u64,
    /// Bits of [`flag`](super::flag).
    pub flags: u32,
    /// TEID that packets arrive with (`flag::TUNNEL`).
    pub tunnel: u32,
    /// Bit set of the block's first 32 meters, all of which packets must conform to.
    pub meters: u32,
    /// Bit set of the block's first 32 counters.
    pub counts: u32,
    /// Maximum hold time in ms.
    pub hold_ms: u32,
    /// Network instance of the ingress, or
    /// [`NO_INSTANCE`](super::forwarding).
    pub instance: u16,
    /// Rule ID of the PDR.
    pub pdr: u16,
    /// Maximum number of held packets.
    pub hold_packets: u16,
    /// Index of the first filter.
    pub first_match: u8,
    /// Number of filters, one of which must match; 0: every packet matches.
    pub matches: u8,
    /// Index of the path.
    pub path: u8,
    /// Index of the first path of copies (`flag::DUPLICATE`).
    pub first_copy: u8,
    /// Number of copies.
    pub copies: u8,
    /// Reserved, zero.
    pub reserved: u8,
}

/// Bits of [`PacketFilter::wanted`].
pub mod wanted {
    /// The protocol must match.
    pub const PROTOCOL: u16 = 1;
    /// The type of service must match.
    pub const TOS: u16 = 1 << 1;
    /// The security parameter index must match.
    pub const SPI: u16 = 1 << 2;
    /// The flow label must match.
    pub const LABEL: u16 = 1 << 3;
    /// The remote port must be in the range.
    pub const REMOTE_PORT: u16 = 1 << 4;
    /// The remote port must be in one of the ranges: first and count among the block's.
    pub const REMOTE_PORTS: u16 = 1 << 5;
    /// The UE's port must be in the range.
    pub const LOCAL_PORT: u16 = 1 << 6;
    /// The UE's port must be in one of the ranges: first and count among the block's.
    pub const LOCAL_PORTS: u16 = 1 << 7;
    /// All bits that need ports.
    pub const PORTS: u16 = REMOTE_PORT | REMOTE_PORTS | LOCAL_PORT | LOCAL_PORTS;
}

/// A packet filter. All conditions must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PacketFilter {
    /// Bits of [`wanted`].
    pub wanted: u16,
    /// Protocol behind extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Mask of the type of service.
    pub tos_mask: u8,
    /// Remote end: index of an address; 255: any.
    pub remote: u8,
    /// UE's end: index of an address; 255: any.
    pub local: u8,
    /// Reserved, zero.
    pub reserved: u8,
    /// Remote ports.
    pub remote_ports: [u16; 2],
    /// UE's ports.
    pub local_ports: [u16; 2],
    /// Security parameter index.
    pub spi: u32,
    /// Flow label.
    pub label: u32,
}

/// Meter of a QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Meter {
    /// Counter slot.
    pub line: u32,
    /// Cost of an octet by direction; 0: unlimited.
    pub cost: [u32; 2],
    /// Burst in ms, by direction.
    pub burst: [u16; 2],
    /// Scale of the cost by direction, as in `ForwardingAction::shift`.
    pub shift: [u8; 2],
    /// Reserved, zero.
    pub reserved: u16,
}

/// Counter of a URR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Count {
    /// Counter slot.
    pub line: u32,
    /// Bits of [`flag`](super::flag): `BEFORE`, `START`, `DROPPED`.
    pub flags: u32,
    /// Index of its first limit.
    pub first_limit: u8,
    /// Number of limits.
    pub limits: u8,
    /// Index of the path of packets beyond the quota; 255: dropped.
    pub exhausted: u8,
    /// Reserved, zero.
    pub reserved: u8,
}

/// Bits of [`Limit::what`].
pub mod limit {
    /// Both directions together.
    pub const TOTAL: u8 = 0;
    /// Uplink octets.
    pub const UPLINK: u8 = 1;
    /// Downlink octets.
    pub const DOWNLINK: u8 = 2;
    /// A time in ns of `CLOCK_MONOTONIC` instead of octets.
    pub const TIME: u8 = 3;
    /// Mask of the limited quantity.
    pub const BASIS: u8 = 3;
    /// A quota: packets that would exceed it are dropped. Without this bit it is a threshold.
    pub const QUOTA: u8 = 1 << 2;
}

/// Limit of a URR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    /// Counter value, or time.
    pub at: u64,
    /// Bits of [`limit`].
    pub what: u8,
    /// Reserved, zero.
    pub reserved: [u8; 7],
}

/// Kinds of [`RedirectEntry`].
pub mod redirect {
    /// To an address.
    pub const ADDRESS: u8 = 0;
    /// By a response with a URL.
    pub const URL: u8 = 1;
    /// Flag: for IPv4 packets; the entry for IPv6 packets follows behind its bytes.
    pub const IPV4: u8 = 1 << 7;
}

/// Redirection, in the text section, followed by `length` bytes: 4 or 16 for `ADDRESS`, the URL for
/// `URL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct RedirectEntry {
    /// Kind, see [`redirect`].
    pub kind: u8,
    /// Reserved, zero.
    pub reserved: u16,
    /// Number of bytes that follow.
    pub length: u16,
}

/// An end marker that is due besides that of the session's rules, which is the newest. See
/// [`DueEndMarker`](super::DueEndMarker).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
pub struct EndMarkerEntry {
    /// Peer address, IPv4 mapped into IPv6.
    pub peer: [u8; 16],
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Lower 32 bits of the version in which it became due.
    pub version: u32,
    /// Network instance, or [`NO_INSTANCE`](super::forwarding).
    pub instance: u16,
}

const _: () = assert!(size_of::<Rule>() == 48 && size_of::<PacketFilter>() == 24);
const _: () = assert!(size_of::<Count>() == 12 && size_of::<Limit>() == 16);
const _: () = assert!(size_of::<AddressPrefix>() == 24 && size_of::<OuterPath>() == 32);
