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

use std::net::IpAddr;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::counter_slots::event;
use super::slices::SliceGroup;
use crate::session::Source;

mod block;
mod forwarding_action;

pub use block::{
    Block, Bound, CHAIN, Condition, Count, EndMarkerEntry, FILTERS, FilterPrefix, FilterSet,
    FilterSets, Limit, Meter, RedirectEntry, Rule, Section, SlotCharge, field, limit, redirect,
    slot_charge,
};
pub(crate) use block::{CHARGES, LAYOUT, NONE, ROOM, SECTIONS, Span, code};
pub use forwarding_action::{Encapsulation, ForwardingAction, OuterPath, PeerAddress, forwarding};

/// Version of what the control plane writes into [`Rules`]. Rules of another version are compiled
/// anew; lanes read them meanwhile.
pub(crate) const VERSION: u32 = 1;

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
    /// 1 + index of the session's association; 0: unknown.
    pub smf: u16,
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

/// Reference to the first block for some packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// Index of the block.
    pub index: u32,
    /// Number of octets of it that most packets read, from its start.
    pub octets: u16,
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

    /// Returns the same as [`version`](Self::version), read from the cache line of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn version_for(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Uplink => self.uplink.common.version,
            Direction::Downlink => self.downlink.common.version,
        }
    }

    /// Sets the group that the session is counted in, and the index of its association.
    pub const fn set_owner(&mut self, group: SliceGroup, peer: u16) {
        let (uplink, downlink) = (&mut self.uplink.common, &mut self.downlink.common);
        uplink.flags = uplink.flags & !SliceGroup::FLAGS | group.flags();
        downlink.flags = downlink.flags & !SliceGroup::FLAGS | group.flags();
        self.downlink.smf = peer.wrapping_add(1);
    }

    /// Returns the group that the session is counted in, read from the cache line of a direction.
    #[inline(always)]
    #[must_use]
    pub const fn group(&self, direction: Direction) -> SliceGroup {
        let common = match direction {
            Direction::Uplink => &self.uplink.common,
            Direction::Downlink => &self.downlink.common,
        };
        SliceGroup::of_flags(common.flags)
    }

    /// Returns the index of the session's association, if it is known.
    #[must_use]
    pub const fn smf(&self) -> Option<u16> {
        self.downlink.smf.checked_sub(1)
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

    /// Returns the first block of packets that arrive by a tunnel or without one.
    #[inline(always)]
    #[must_use]
    pub const fn first_block(&self, direction: Direction) -> Option<BlockRef> {
        let common = match direction {
            Direction::Uplink => &self.uplink.common,
            Direction::Downlink => &self.downlink.common,
        };
        match common.tunnel.checked_sub(1) {
            Some(index) if common.flags & flag::BLOCKS != 0 => {
                Some(BlockRef { index, octets: common.burst })
            }
            _ => None,
        }
    }

    /// Returns the end marker that is due, if any.
    /// [`event::MARKER`] records that it was sent.
    #[must_use]
    pub fn marker(&self) -> Option<DueEndMarker> {
        let ColdRules { marker_peer: peer, marker_teid: teid, marker_instance: instance, .. } =
            self.cold;
        let marker = DueEndMarker { peer, teid, instance, version: self.cold.marker_version };
        (marker.teid != 0).then_some(marker)
    }
}

impl From<DueEndMarker> for EndMarkerEntry {
    fn from(marker: DueEndMarker) -> Self {
        let DueEndMarker { peer, teid, instance, version } = marker;
        Self { peer, teid, version, instance }
    }
}

impl From<EndMarkerEntry> for DueEndMarker {
    fn from(entry: EndMarkerEntry) -> Self {
        let EndMarkerEntry { peer, teid, version, instance } = entry;
        Self { peer, teid, instance, version }
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

/// Direction of a packet. Meters, gates and counters of QERs and URRs exist once per direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Direction {
    /// From the UE.
    Uplink = 0,
    /// To the UE.
    Downlink = 1,
}

impl Direction {
    /// Returns the direction of packets from a source interface: uplink from the access network,
    /// otherwise downlink.
    #[inline]
    #[must_use]
    pub const fn of(source: Source) -> Self {
        if matches!(source, Source::Access) { Self::Uplink } else { Self::Downlink }
    }

    /// Returns the other direction.
    #[inline(always)]
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Uplink => Self::Downlink,
            Self::Downlink => Self::Uplink,
        }
    }
}

/// Bits of [`DirectionRules::flags`] and `Rule::flags`.
pub mod flag {
    /// The direction has a PDR.
    pub const PRESENT: u32 = 1;
    /// Apply Action of the FAR: drop.
    pub const DROP: u32 = 1 << 1;
    /// Apply Action of the FAR: buffer.
    pub const HOLD: u32 = 1 << 2;
    /// Held packets are reported to the control plane function.
    pub const NOTIFY: u32 = 1 << 3;
    /// The gate is closed.
    pub const CLOSED: u32 = 1 << 4;
    /// The session's own slot has a meter.
    pub const METER: u32 = 1 << 5;
    /// The session's own slot has a URR.
    pub const COUNT: u32 = 1 << 6;
    /// The URR counts before QoS enforcement (MBQE).
    pub const BEFORE: u32 = 1 << 7;
    /// The limit is per direction instead of both together.
    pub const ONE_WAY: u32 = 1 << 8;
    /// The quota has a deadline.
    pub const DEADLINE: u32 = 1 << 9;
    /// The first packet raises an event.
    pub const START: u32 = 1 << 10;
    /// A dropped downlink packet raises an event (DROTH).
    pub const DROPPED: u32 = 1 << 11;
    /// Uplink packets may have the IPv4 address in `ue4`.
    pub const UE4: u32 = 1 << 12;
    /// Uplink packets may have an IPv6 address that starts with `ue6`.
    pub const UE6: u32 = 1 << 13;
    /// Packets arrive through a tunnel.
    pub const TUNNEL: u32 = 1 << 14;
    /// Rules are in blocks. Both directions have this bit, or neither.
    pub const BLOCKS: u32 = 1 << 15;
    /// In a block: packets from the access network.
    pub const UPLINK: u32 = 1 << 16;
    /// In a block: packets are duplicated.
    pub const DUPLICATE: u32 = 1 << 17;
    /// In a block: the session has UE addresses, one of which uplink packets must have.
    pub const CHECKED: u32 = 1 << 18;
    /// A quota of the URR is used up already.
    pub const STOPPED: u32 = 1 << 19;
    /// In a block: packets are forwarded, and only meters can stop them. The rule has a list of
    /// charges.
    pub const UNLIMITED: u32 = 1 << 20;
    /// First bit (24) of 1 + the QoS flow that packets must have; 0: any.
    pub const QFI: u32 = 24;
}

/// Fields common to both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirectionRules {
    /// Local TEID (`flag::TUNNEL`), or 1 + index of the first block (`flag::BLOCKS`).
    pub tunnel: u32,
    /// Lower 32 bits of the session's version.
    pub version: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Meter cost of an octet, see [`ForwardingAction::shift`].
    pub cost: u32,
    /// Burst of the meter in ms, or octets of the first block that most packets read
    /// (`flag::BLOCKS`).
    pub burst: u16,
    /// Rule ID of the PDR.
    pub pdr: u16,
    /// Compiled FAR.
    pub forwarding: ForwardingAction,
}

impl DirectionRules {
    /// Creates the rules of a direction without a PDR.
    #[must_use]
    pub const fn none() -> Self {
        let forwarding = ForwardingAction::none();
        Self { tunnel: 0, version: 0, flags: 0, cost: 0, burst: 0, pdr: 0, forwarding }
    }
}

impl DirectionRules {
    /// Returns true if the PDR is for packets with this TEID, or without a tunnel.
    #[inline]
    #[must_use]
    pub const fn is_by(&self, tunnel: Option<u32>) -> bool {
        let by = self.flags & (flag::PRESENT | flag::TUNNEL);
        match tunnel {
            Some(teid) => by == flag::PRESENT | flag::TUNNEL && self.tunnel == teid,
            None => by == flag::PRESENT,
        }
    }
}

const _: () = assert!(size_of::<ForwardingAction>() == 16 && size_of::<DirectionRules>() == 36);

/// An IPv4 or IPv6 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AddressPrefix {
    /// Upper 64 bits; an IPv4 address is in the upper 32 of them.
    pub high: u64,
    /// Lower 64 bits.
    pub low: u64,
    /// Prefix length in bits.
    pub length: u8,
    /// IP version, 4 or 6.
    pub family: u8,
    /// Reserved, zero.
    pub reserved: [u8; 6],
}

impl AddressPrefix {
    /// Creates a prefix. Bits beyond the length are cleared.
    #[must_use]
    pub fn new(address: IpAddr, length: u8) -> Self {
        let (bits, family, most) = match address {
            IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 4, 32),
            IpAddr::V6(address) => (address.to_bits(), 6, 128),
        };
        let length = length.min(most);
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        let bits = bits & mask;
        let (high, low) = ((bits >> 64) as u64, bits as u64);
        Self { high, low, length, family, reserved: [0; 6] }
    }

    /// Returns true if the prefix contains an address, which is given in the form of
    /// [`new`](Self::new), first bit most significant.
    #[inline]
    #[must_use]
    pub fn holds(&self, family: u8, bits: u128) -> bool {
        let own = u128::from(self.high) << 64 | u128::from(self.low);
        let shift = 128_u32.wrapping_sub(u32::from(self.length));
        family == self.family && (own ^ bits).checked_shr(shift).unwrap_or(0) == 0
    }

    /// Returns true if the prefix contains an IPv4 address, which is given in the upper half of a
    /// word.
    #[inline(always)]
    #[must_use]
    pub const fn holds_v4(&self, address: u64) -> bool {
        // Two shifts, since the length may be 0.
        let differs = (self.high ^ address) >> 1 >> (63_u32.wrapping_sub(self.length as u32) & 63);
        (self.family == 4) & (differs == 0)
    }
}
