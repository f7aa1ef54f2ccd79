//! Usage reporting rules: limits that are checked before a packet passes, and counters that are
//! updated when it does.

use fastlane::table::{EntryId, LaneState, StateWords, WritableWords};

use crate::rules::layout::counter_slots::{
    DOWNLINK_METER, DOWNLINK_OCTETS, EVENTS, LAST, UPLINK_METER, UPLINK_OCTETS, WORDS, event,
};
use crate::rules::layout::session_rules::{
    Direction, DueEndMarker, Limit, Rules, SlotCharge, events_of, flag, limit, slot_charge,
};
use crate::session::SessionIndex;

/// Words of a counter slot.
pub(super) type CounterSlot<'a> = StateWords<'a, WORDS>;

/// Returns the word of the octets of a direction; that of the packets follows it.
#[inline(always)]
pub(super) const fn octets(direction: Direction) -> usize {
    match direction {
        Direction::Uplink => UPLINK_OCTETS,
        Direction::Downlink => DOWNLINK_OCTETS,
    }
}

/// Returns the word of the meter of a direction.
#[inline(always)]
pub(super) const fn meter(direction: Direction) -> usize {
    match direction {
        Direction::Uplink => UPLINK_METER,
        Direction::Downlink => DOWNLINK_METER,
    }
}

/// Returns the events raised under a version.
#[inline(always)]
pub(super) fn events(slot: CounterSlot<'_>, version: u32) -> u64 {
    let word = slot.get(EVENTS);
    if word >> 32 == u64::from(version) { word & event::ALL } else { 0 }
}

/// Sets events; true if one of them is new.
pub(super) fn raise(slot: CounterSlot<'_>, version: u32, new: u64) -> bool {
    let before = events(slot, version);
    if before | new == before || is_later(slot.get(EVENTS), version) {
        return false;
    }
    let marker = slot.get(EVENTS) & event::MARKER;
    slot.publish(EVENTS, events_of(version) | marker | before | new);
    true
}

/// Returns true if a word of events has a version shortly after this one. Within a batch some
/// packets may have read rules that were published after those of others. Older words are not
/// later, however often versions wrap. A slot without events has version 0, which is not later than
/// the last versions before a wrap.
#[must_use]
pub fn is_later(word: u64, version: u32) -> bool {
    let of_word = (word >> 32) as u32;
    let ahead = of_word.wrapping_sub(version);
    of_word != 0 && ahead != 0 && ahead < 1 << 16
}

/// Counts a packet that passes.
#[inline(always)]
pub(super) fn count(slot: CounterSlot<'_>, direction: Direction, length: u32, now: u64) {
    slot.add(octets(direction), u64::from(length));
    slot.add(octets(direction) + 1, 1);
    slot.set(LAST, now);
}

/// Returns true if a packet of `length` octets may reach a threshold of a slot.
#[inline(always)]
pub(super) fn is_near(
    slot: WritableWords<'_, WORDS>,
    charge: &SlotCharge,
    direction: Direction,
    length: u32,
) -> bool {
    let mut after = 0_u64;
    if charge.flags & slot_charge::OWN != 0 {
        after = slot.get(octets(direction)).saturating_add(u64::from(length));
    }
    if charge.flags & slot_charge::OTHER != 0 {
        after = after.saturating_add(slot.get(octets(direction.other())));
    }
    after > charge.check_above
}

/// Result of checking a packet against a URR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UrrCheck {
    /// True if a quota is used up and the packet must not pass.
    pub(super) is_stopped: bool,
    /// Events that follow if it passes, or because it does not.
    pub(super) events: u64,
}

/// Result for a quota that is known to be used up.
pub(super) const STOPPED: UrrCheck = UrrCheck { is_stopped: true, events: 0 };

/// A packet that is checked against URRs.
pub(super) struct UrrPacket {
    /// Lower 32 bits of the version of the rules.
    pub(super) version: u32,
    pub(super) direction: Direction,
    /// Octets to check.
    pub(super) length: u32,
    /// Time in ns of `CLOCK_MONOTONIC`.
    pub(super) now: u64,
}

/// Checks a packet against the limits of a URR.
#[inline]
pub(super) fn check(slot: CounterSlot<'_>, limits: &[Limit], packet: &UrrPacket) -> UrrCheck {
    if events(slot, packet.version) & event::QUOTA != 0 {
        return STOPPED;
    }
    let counters = [slot.get(UPLINK_OCTETS), slot.get(DOWNLINK_OCTETS)];
    let mut check = UrrCheck::default();
    for limit in limits {
        let (before, after) = position(limit, counters, packet);
        let is_quota = limit.what & limit::QUOTA != 0;
        if is_quota && (after > limit.at || before >= limit.at) {
            return UrrCheck { is_stopped: true, events: event::QUOTA };
        }
        if after >= limit.at {
            check.events |= if is_quota { event::QUOTA } else { event::THRESHOLD };
        }
    }
    check
}

/// Returns the limited counter before and after a packet.
fn position(limit: &Limit, counters: [u64; 2], packet: &UrrPacket) -> (u64, u64) {
    let [uplink, downlink] = counters;
    let (before, is_counted) = match limit.what & limit::BASIS {
        limit::TOTAL => (uplink.wrapping_add(downlink), true),
        limit::UPLINK => (uplink, packet.direction == Direction::Uplink),
        limit::DOWNLINK => (downlink, packet.direction == Direction::Downlink),
        _ => return (packet.now, packet.now),
    };
    let length = if is_counted { u64::from(packet.length) } else { 0 };
    (before, before.saturating_add(length))
}

/// Returns the event that any packet raises by the flags of a URR.
#[inline(always)]
pub(super) const fn starts(flags: u32) -> u64 {
    if flags & flag::START != 0 { event::START } else { 0 }
}

/// Returns the end marker of a session's rules if it has not been sent yet.
#[must_use]
pub fn marker_due(
    rules: &Rules,
    session: SessionIndex,
    state: &LaneState<WORDS>,
) -> Option<DueEndMarker> {
    let marker = rules.marker()?;
    let word = state.at(EntryId(session.0)).get(EVENTS);
    (!marker.is_sent(word)).then_some(marker)
}

/// Records that the end marker was sent.
pub fn marker_sent(marker: DueEndMarker, session: SessionIndex, state: &LaneState<WORDS>) {
    let words = state.at(EntryId(session.0));
    words.publish(EVENTS, words.get(EVENTS) & !event::MARKER | marker.word());
}
