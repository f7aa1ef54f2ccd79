//! Session rules: what lanes do with the packets of a session, as one immutable value.
//!
//! [`Rules`] has a cache line per direction and a third one for rarely used fields. In the simple
//! form a direction has one PDR without filters and at most one meter and one URR, and one cache
//! line decides. Everything else is in [`Block`]s, the first of which `Rules` names.
//!
//! All numbers are in native byte order, addresses in network byte order.
//!
//! # Memory
//! A slot of an array has 8 bytes of its own, so `Rules` takes 192 bytes, of which a packet touches
//! one cache line. For a million simple sessions with one IPv4 address each: 192 MB of rules, 64 MB
//! of state, 4 MB of slot indices, 16 MB of events, 32 MB and 25 MB (slots and buckets) for UE
//! lookup: 333 MB, which is 318 MiB. The bound is 450 MiB. A second address of a session takes
//! another 32 bytes, each [`Block`] 1024 bytes.

mod block;
mod side;

pub(crate) use block::NONE;
pub use block::{
    AnyAddress, Block, Builder, CHAIN, Count, Limit, Match, Meter, OuterPath, RedirectEntry, Rule,
    Section, limit, redirect, wants,
};
pub use side::{Direction, Outer, PeerAddress, Side, Way, flag, way};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::state::event;

/// No volume limit, no deadline.
pub const NEVER: u64 = u64::MAX;

/// Rules of a session, which a lane reads once per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rules {
    /// Uplink packets.
    pub up: Up,
    /// Downlink packets.
    pub down: Down,
    /// Rarely used fields.
    pub cold: Cold,
}

/// Rules of uplink packets. With the 8 bytes before it in its slot it is one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Up {
    /// Highest value of the limited counter at which no limit needs to be checked.
    pub attention: u64,
    /// Upper half of the UE's IPv6 addresses (`flag::USER6`).
    pub user6: u64,
    /// The UE's IPv4 address (`flag::USER4`).
    pub user4: u32,
    /// Fields common to both directions.
    pub side: Side,
}

/// Rules of downlink packets: one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Down {
    /// Highest value of the limited counter at which no limit needs to be checked.
    pub attention: u64,
    /// IPv6 address of the far end, if it has one.
    pub peer6: [u8; 16],
    /// Fields common to both directions.
    pub side: Side,
    /// Network instance of packets without a tunnel, or [`way::NO_INSTANCE`].
    pub instance: u16,
    /// Reserved, zero.
    pub reserved: u16,
}

/// Rarely used fields of session rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cold {
    /// Counter value at which the threshold is reached.
    pub threshold: u64,
    /// Counter value that must not be exceeded.
    pub quota: u64,
    /// End of a time quota or of a quota's validity, in ns of `CLOCK_MONOTONIC`.
    pub stop_at: u64,
    /// Peer address of the end marker that is due, IPv4 mapped into IPv6.
    pub marker_peer: [u8; 16],
    /// TEID of the end marker; 0: none is due.
    pub marker_teid: u32,
    /// Lower 32 bits of the version in which it became due; see [`Rules::marker`].
    pub marker_version: u32,
    /// Network instance of the peer, or [`way::NO_INSTANCE`].
    pub marker_instance: u16,
    /// Maximum number of held packets, in the simple form.
    pub hold_packets: u16,
    /// Maximum hold time in ms.
    pub hold_ms: u32,
    /// 1 + index of the first block; 0: none.
    pub block: u32,
    /// Packets held under versions before this one are discarded (lower 32 bits; DROBU).
    pub discarded: u32,
}

/// An end marker that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Peer address, IPv4 mapped into IPv6.
    pub peer: [u8; 16],
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Network instance, or [`way::NO_INSTANCE`].
    pub instance: u16,
    /// Lower 32 bits of the version in which it became due.
    pub version: u32,
}

impl Marker {
    /// Returns the bits of the event word that record this marker as sent: bit 31 and 15 bits of
    /// its version.
    #[must_use]
    pub fn word(&self) -> u64 {
        (u64::from(self.version) << event::MARKER_SHIFT | 1 << 31) & event::MARKER
    }

    /// Returns true if a word of events records this marker as sent.
    #[must_use]
    pub fn is_sent(&self, word: u64) -> bool {
        word & event::MARKER == self.word()
    }
}

impl Rules {
    /// Creates rules that match nothing.
    #[must_use]
    pub fn empty(version: u64) -> Self {
        let mut rules = Self::new_zeroed();
        for side in [&mut rules.up.side, &mut rules.down.side] {
            *side = Side { version: version as u32, ..Side::none() };
        }
        (rules.up.attention, rules.down.attention) = (NEVER, NEVER);
        let cold = &mut rules.cold;
        (cold.threshold, cold.quota, cold.stop_at) = (NEVER, NEVER, NEVER);
        cold.marker_instance = way::NO_INSTANCE;
        rules.down.instance = way::NO_INSTANCE;
        rules
    }

    /// Returns the lower 32 bits of the session's version.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.down.side.version
    }

    /// Returns true if packets held under a version (lower 32 bits) are discarded (DROBU).
    #[inline]
    #[must_use]
    pub const fn gives_up(&self, held: u32) -> bool {
        let discarded = self.cold.discarded;
        discarded != 0 && (held.wrapping_sub(discarded) as i32) < 0
    }

    /// Returns true if blocks decide.
    #[inline]
    #[must_use]
    pub const fn has_blocks(&self) -> bool {
        self.down.side.flags & flag::BLOCKS != 0
    }

    /// Returns true if blocks decide, read from the cache line of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn has_blocks_for(&self, direction: Direction) -> bool {
        let side = match direction {
            Direction::Up => &self.up.side,
            Direction::Down => &self.down.side,
        };
        side.flags & flag::BLOCKS != 0
    }

    /// Returns the end marker that is due, if any.
    /// [`state::event::MARKER`](super::state::event::MARKER) records that it was sent.
    #[must_use]
    pub fn marker(&self) -> Option<Marker> {
        let Cold { marker_peer: peer, marker_teid: teid, marker_instance: instance, .. } =
            self.cold;
        let marker = Marker { peer, teid, instance, version: self.cold.marker_version };
        (marker.teid != 0).then_some(marker)
    }
}

/// Returns the event word of a version without events.
#[inline]
#[must_use]
pub const fn events_of(version: u32) -> u64 {
    (version as u64) << 32
}

const _: () = assert!(size_of::<Up>() == 56 && size_of::<Down>() == 64 && size_of::<Cold>() == 64);
const _: () = assert!(size_of::<Rules>() == 184 && size_of::<Block>() == 1016);
