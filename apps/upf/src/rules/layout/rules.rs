//! What lanes do with the packets of a session: one immutable value.
//!
//! [`Rules`] has a line for each direction and a third for what is seldom looked at. In the simple
//! form a direction has one PDR without filters, at most one meter and one URR, and a packet is
//! decided by its line alone. Everything else is in [`Block`]s, of which `Rules` names the first.
//!
//! All numbers are in the machine's byte order; addresses are as on the wire.
//!
//! # Memory
//! A slot of an array has 8 bytes of its own, so `Rules` takes 192 bytes of which a packet touches
//! one line. For a million simple sessions with one IPv4 address each: 192 MB of rules, 64 MB of
//! state, 4 MB of places, 16 MB of events, 32 MB and 25 MB (slots and buckets) to find users by:
//! 333 MB, which is 318 MiB. The bound is 450 MiB. A second address of a session is another 32
//! bytes; each [`Block`] 1024 bytes.

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

/// No limit of octets, no deadline.
pub const NEVER: u64 = u64::MAX;

/// The rules of a session: what a lane reads once for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rules {
    /// For packets from the access network.
    pub up: Up,
    /// For packets to it.
    pub down: Down,
    /// What is seldom looked at.
    pub cold: Cold,
}

/// Packets from the user. With the 8 bytes before it in its slot it is a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Up {
    /// Up to this value of the counter that is limited, nothing has to be looked at.
    pub attention: u64,
    /// The first half of the user's IPv6 addresses (`flag::USER6`).
    pub user6: u64,
    /// The user's IPv4 address (`flag::USER4`).
    pub user4: u32,
    /// What both directions have.
    pub side: Side,
}

/// Packets to the user: a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Down {
    /// As in [`Up`].
    pub attention: u64,
    /// The far end's IPv6 address, if it has one.
    pub peer6: [u8; 16],
    /// What both directions have.
    pub side: Side,
    /// The network instance that packets arrive in as they are, or [`way::NO_INSTANCE`].
    pub instance: u16,
    /// Zero.
    pub reserved: u16,
}

/// What is seldom looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Cold {
    /// The counter's value from which on a threshold is reached.
    pub threshold: u64,
    /// The counter's value that must not be exceeded.
    pub quota: u64,
    /// When a quota of time or its validity ends: nanoseconds of `CLOCK_MONOTONIC`.
    pub stop_at: u64,
    /// Where an end marker is due: the tunnel's address, IPv4 mapped into IPv6.
    pub marker_peer: [u8; 16],
    /// The tunnel.
    pub marker_teid: u32,
    /// Lower bits of the version in which it became due; see [`Rules::marker`].
    pub marker_version: u32,
    /// The network instance that it is reached in, or [`way::NO_INSTANCE`].
    pub marker_instance: u16,
    /// The most packets held at a time, in the simple form.
    pub hold_packets: u16,
    /// For how long, in ms.
    pub hold_ms: u32,
    /// 1 + the place of the first block; 0: there is none.
    pub block: u32,
    /// Packets held under versions before this one are given up (lower bits; DROBU).
    pub discarded: u32,
}

/// An end marker that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The far end, IPv4 mapped into IPv6.
    pub peer: [u8; 16],
    /// The tunnel.
    pub teid: u32,
    /// The network instance, or [`way::NO_INSTANCE`].
    pub instance: u16,
    /// Lower bits of the version in which it became due.
    pub version: u32,
}

impl Marker {
    /// How the word of events says that this one was sent: a bit, and 15 of its version.
    #[must_use]
    pub fn word(&self) -> u64 {
        (u64::from(self.version) << event::MARKER_SHIFT | 1 << 31) & event::MARKER
    }

    /// Whether a word of events says so.
    #[must_use]
    pub fn is_sent(&self, word: u64) -> bool {
        word & event::MARKER == self.word()
    }
}

impl Rules {
    /// Of nobody: nothing matches.
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

    /// Lower bits of the session's version.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.down.side.version
    }

    /// Whether packets that were held under a version, by its lower bits, are given up (DROBU).
    #[inline]
    #[must_use]
    pub const fn gives_up(&self, held: u32) -> bool {
        let discarded = self.cold.discarded;
        discarded != 0 && (held.wrapping_sub(discarded) as i32) < 0
    }

    /// Whether all is decided by blocks.
    #[inline]
    #[must_use]
    pub const fn has_blocks(&self) -> bool {
        self.down.side.flags & flag::BLOCKS != 0
    }

    /// As [`has_blocks`](Self::has_blocks), by the line of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn has_blocks_for(&self, direction: Direction) -> bool {
        let side = match direction {
            Direction::Up => &self.up.side,
            Direction::Down => &self.down.side,
        };
        side.flags & flag::BLOCKS != 0
    }

    /// The end marker that is due, if there is one. That it was sent is known by
    /// [`state::marker`](super::state).
    #[must_use]
    pub fn marker(&self) -> Option<Marker> {
        let Cold { marker_peer: peer, marker_teid: teid, marker_instance: instance, .. } =
            self.cold;
        let marker = Marker { peer, teid, instance, version: self.cold.marker_version };
        (marker.teid != 0).then_some(marker)
    }
}

/// The event word that says of which version events are.
#[inline]
#[must_use]
pub const fn events_of(version: u32) -> u64 {
    (version as u64) << 32
}

const _: () = assert!(size_of::<Up>() == 56 && size_of::<Down>() == 64 && size_of::<Cold>() == 64);
const _: () = assert!(size_of::<Rules>() == 184 && size_of::<Block>() == 1016);
