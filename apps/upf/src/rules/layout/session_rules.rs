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
mod direction_rules;

pub(crate) use block::NONE;
pub use block::{
    AddressPrefix, Block, Builder, CHAIN, Count, Limit, Meter, OuterPath, PacketFilter,
    RedirectEntry, Rule, Section, limit, redirect, wanted,
};
pub use direction_rules::{
    Direction, DirectionRules, Encapsulation, ForwardingAction, PeerAddress, flag, forwarding,
};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::counter_slots::event;

/// No volume limit, no deadline.
pub const NEVER: u64 = u64::MAX;

/// Rules of a session, which a lane reads once per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rules {
    /// Uplink packets.
    pub uplink: UplinkRules,
    /// Downlink packets.
    pub downlink: DownlinkRules,
    /// Rarely used fields.
    pub cold: ColdRules,
}

/// Rules of uplink packets. With the 8 bytes before it in its slot it is one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct UplinkRules {
    /// Highest value of the limited counter at which no limit needs to be checked.
    pub check_above: u64,
    /// Upper half of the UE's IPv6 addresses (`flag::UE6`).
    pub ue6: u64,
    /// The UE's IPv4 address (`flag::UE4`).
    pub ue4: u32,
    /// Fields common to both directions.
    pub common: DirectionRules,
}

/// Rules of downlink packets: one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DownlinkRules {
    /// Highest value of the limited counter at which no limit needs to be checked.
    pub check_above: u64,
    /// IPv6 address of the far end, if it has one.
    pub peer6: [u8; 16],
    /// Fields common to both directions.
    pub common: DirectionRules,
    /// Network instance of packets without a tunnel, or [`forwarding::NO_INSTANCE`].
    pub instance: u16,
    /// Reserved, zero.
    pub reserved: u16,
}

/// Rarely used fields of session rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ColdRules {
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
    /// Network instance of the peer, or [`forwarding::NO_INSTANCE`].
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
pub struct DueEndMarker {
    /// Peer address, IPv4 mapped into IPv6.
    pub peer: [u8; 16],
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Network instance, or [`forwarding::NO_INSTANCE`].
    pub instance: u16,
    /// Lower 32 bits of the version in which it became due.
    pub version: u32,
}

impl DueEndMarker {
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
        for common in [&mut rules.uplink.common, &mut rules.downlink.common] {
            *common = DirectionRules { version: version as u32, ..DirectionRules::none() };
        }
        (rules.uplink.check_above, rules.downlink.check_above) = (NEVER, NEVER);
        let cold = &mut rules.cold;
        (cold.threshold, cold.quota, cold.stop_at) = (NEVER, NEVER, NEVER);
        cold.marker_instance = forwarding::NO_INSTANCE;
        rules.downlink.instance = forwarding::NO_INSTANCE;
        rules
    }

    /// Returns the lower 32 bits of the session's version.
    #[inline]
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.downlink.common.version
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
        self.downlink.common.flags & flag::BLOCKS != 0
    }

    /// Returns true if blocks decide, read from the cache line of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn has_blocks_for(&self, direction: Direction) -> bool {
        let common = match direction {
            Direction::Uplink => &self.uplink.common,
            Direction::Downlink => &self.downlink.common,
        };
        common.flags & flag::BLOCKS != 0
    }

    /// Returns the end marker that is due, if any.
    /// [`state::event::MARKER`](super::counter_slots::event::MARKER) records that it was sent.
    #[must_use]
    pub fn marker(&self) -> Option<DueEndMarker> {
        let ColdRules { marker_peer: peer, marker_teid: teid, marker_instance: instance, .. } =
            self.cold;
        let marker = DueEndMarker { peer, teid, instance, version: self.cold.marker_version };
        (marker.teid != 0).then_some(marker)
    }
}

/// Returns the event word of a version without events.
#[inline]
#[must_use]
pub const fn events_of(version: u32) -> u64 {
    (version as u64) << 32
}

const _: () = assert!(
    size_of::<UplinkRules>() == 56
        && size_of::<DownlinkRules>() == 64
        && size_of::<ColdRules>() == 64
);
const _: () = assert!(size_of::<Rules>() == 184 && size_of::<Block>() == 1016);
