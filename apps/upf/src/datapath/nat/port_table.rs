//! The port slots of users: search of a mapping, a free slot for a new one, and the state of TCP.
//!
//! Only the lane that owns a session touches the slots of its block, so loads and stores are plain.
//! The search takes at most [`PROBES`] cache lines, and one for most packets.

use fastlane::table::{EntryId, LaneState};
use fastlane::wire::Tcp;

use super::segment::Segment;
use crate::config::nat_plan::BUCKET;
use crate::rules::layout::nat_tables::{NatUser, PortSlot, TcpState, Timers};

/// Words of a bucket.
pub(super) const WORDS: usize = BUCKET as usize;
/// Maximum number of buckets that are searched.
const PROBES: u32 = 8;

/// Address of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAddress {
    pub(super) bucket: u32,
    pub(super) index: usize,
}

/// Returns the bucket in which the search for an inside port begins, in the user's block.
#[inline]
pub(super) fn home(user: &NatUser, segment: &Segment) -> u32 {
    let value = u32::from(segment.port) | (segment.protocol as u32) << 16;
    ((user.key ^ value).wrapping_mul(0x9e37_79b1) >> 15) & (user.buckets - 1)
}

/// Finds the mapping of an inside port, expired or not.
#[inline(always)]
pub(super) fn find(
    ports: &LaneState<WORDS>,
    user: &NatUser,
    wanted: PortSlot,
    home: u32,
) -> Option<(SlotAddress, PortSlot)> {
    for step in 0..PROBES.min(user.buckets) {
        let bucket = user.bucket + ((home + step) & (user.buckets - 1));
        let words = ports.at(EntryId(bucket));
        for index in 0..WORDS {
            let slot = PortSlot(words.get(index));
            if slot.is_of(wanted) {
                return Some((SlotAddress { bucket, index }, slot));
            }
        }
    }
    None
}

/// Finds a slot for a new mapping, free or expired: one with the parity of the inside port (RFC
/// 4787, REQ-4), else any. `None` if all that are searched are in use.
#[cold]
pub(super) fn free(
    ports: &LaneState<WORDS>,
    user: &NatUser,
    wanted: PortSlot,
    home: u32,
    timers: &Timers,
) -> Option<SlotAddress> {
    let mut other = None;
    for step in 0..PROBES.min(user.buckets) {
        let bucket = user.bucket + ((home + step) & (user.buckets - 1));
        let words = ports.at(EntryId(bucket));
        for index in 0..WORDS {
            let slot = PortSlot(words.get(index));
            let is_free = slot
                .protocol(user.generation)
                .is_none_or(|protocol| slot.is_expired(protocol, timers, wanted.seen()));
            if !is_free {
                continue;
            }
            let place = SlotAddress { bucket, index };
            if index % 2 == usize::from(wanted.inside()) % 2 {
                return Some(place);
            }
            other = other.or(Some(place));
        }
    }
    other
}

/// Returns the external port of a slot.
#[inline]
pub(super) fn external_port(user: &NatUser, place: SlotAddress) -> u16 {
    let offset = (place.bucket - user.bucket) * BUCKET + place.index as u32;
    user.first_port.wrapping_add(offset as u16)
}

/// Returns the TCP state after a segment.
#[inline]
pub(super) fn after_segment(state: TcpState, segment: &Segment, is_inside: bool) -> TcpState {
    use TcpState::{Answered, Closed, Established, InsideClosed, New, OutsideClosed};
    let has = |bit: u8| segment.control & bit != 0;
    if has(Tcp::RST) {
        return Closed;
    }
    if has(Tcp::FIN) {
        return match (state, is_inside) {
            (Closed, _) | (OutsideClosed, true) | (InsideClosed, false) => Closed,
            (_, true) => InsideClosed,
            (_, false) => OutsideClosed,
        };
    }
    if has(Tcp::SYN) && is_inside {
        // A new connection of the same inside port.
        return if state == Closed { New } else { state };
    }
    match (state, is_inside) {
        (New, false) => Answered,
        (Answered, true) => Established,
        // Another connection goes on; data to a closed one are answered with RST.
        (Closed, _) if segment.has_data => Established,
        _ => state,
    }
}
