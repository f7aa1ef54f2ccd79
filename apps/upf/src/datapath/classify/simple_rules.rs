//! Classification by the simple form: one cache line decides.

use fastlane::table::{EntryId, LaneState};

use super::rate_meter::MeterRate;
use super::urr_limits::{self, CounterSlot, UrrCheck, UrrPacket};
use super::{
    Action, CHARGE, Charge, ChargeResult, Classifier, Decision, ForwardDecision, HoldLimits, LOOK,
    PacketFields, Path, SHUT,
};
use crate::rules::layout::counter_slots::{DOWNLINK_OCTETS, LAST, UPLINK_OCTETS, WORDS, event};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Direction, DirectionRules, Limit, NEVER, Rules, flag, forwarding, limit,
};
use crate::session::{Destination, SessionIndex};

/// Flags that need the long path.
const RARE: u32 = flag::DROP
    | flag::HOLD
    | flag::CLOSED
    | flag::BEFORE
    | flag::DEADLINE
    | flag::START
    | flag::DROPPED
    | flag::STOPPED;

/// A packet with the rules of its direction.
struct SimpleCase<'t, 'a> {
    rules: &'t Rules,
    direction_rules: &'t DirectionRules,
    peer6: &'t [u8; 16],
    check_above: u64,
    direction: Direction,
    slot: CounterSlot<'a>,
    length: u32,
    now: u64,
    session: SessionIndex,
}

const NO_PEER: &[u8; 16] = &[0; 16];

#[inline(always)]
pub(super) fn decide_simple<'t>(
    rules: &'t Rules,
    fields: &PacketFields,
) -> Option<ForwardDecision<'t>> {
    let direction = direction(rules, fields)?;
    let (direction_rules, _, peer6) = rules_of(rules, direction);
    if direction_rules.flags & RARE != 0
        || is_refused(rules, direction_rules, direction, fields).is_some()
    {
        return None;
    }
    let path = Path { forwarding: &direction_rules.forwarding, peer6, redirect: None };
    let charge = Charge::new(direction_rules.version, fields.length, direction);
    Some(ForwardDecision { path, direction, charge })
}

pub(super) fn own_path<'t>(rules: &'t Rules, fields: &PacketFields) -> Option<Path<'t>> {
    let direction = direction(rules, fields)?;
    let (direction_rules, _, peer6) = rules_of(rules, direction);
    let is_open = direction_rules.flags & SHUT == 0
        && is_refused(rules, direction_rules, direction, fields).is_none();
    is_open.then_some(Path { forwarding: &direction_rules.forwarding, peer6, redirect: None })
}

/// Returns the path of a tunnel's packets; `None` if they are dropped or held.
pub(super) fn tunnel_path(rules: &Rules, teid: u32) -> Option<Path<'_>> {
    let is_by = |direction: &Direction| rules_of(rules, *direction).0.is_by(Some(teid));
    let direction = [Direction::Uplink, Direction::Downlink].into_iter().find(is_by)?;
    let (direction_rules, _, peer6) = rules_of(rules, direction);
    let is_open = direction_rules.flags & (flag::DROP | flag::HOLD) == 0;
    is_open.then_some(Path { forwarding: &direction_rules.forwarding, peer6, redirect: None })
}

/// Returns the TEID of the tunnel of downlink packets.
pub(super) fn downlink_tunnel(rules: &Rules) -> Option<u32> {
    let downlink = &rules.downlink.common;
    downlink.is_by(Some(downlink.tunnel)).then_some(downlink.tunnel)
}

pub(super) fn decide<'t, B>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Decision<'t> {
    let Classifier { rules, session, state, now, .. } = *classifier;
    let Some(direction) = direction(rules, fields) else {
        return Decision::drop(DropReason::NoRule, 0, direction_of(fields));
    };
    let (direction_rules, check_above, peer6) = rules_of(rules, direction);
    if let Some(reason) = is_refused(rules, direction_rules, direction, fields) {
        let pdr = if reason == DropReason::NoRule { 0 } else { direction_rules.pdr };
        return Decision::drop(reason, pdr, direction);
    }
    let (slot, length) = (state.at(EntryId(session.0)), fields.length);
    let case = SimpleCase {
        rules,
        direction_rules,
        peer6,
        check_above,
        direction,
        slot,
        length,
        now,
        session,
    };
    if direction_rules.flags & RARE != 0
        || direction_rules.flags & flag::COUNT != 0 && case.is_exhausted()
    {
        return case.rare::<LOOK>();
    }
    match case.metered() {
        Some(word) => case.pass::<LOOK>(word, 0),
        None => case.drop(DropReason::RateExceeded, 0),
    }
}

/// Returns the direction whose PDR is for packets of this ingress.
#[inline(always)]
const fn direction(rules: &Rules, fields: &PacketFields) -> Option<Direction> {
    // A packet without a tunnel is not uplink, so that cache line is not read.
    if fields.tunnel.is_some() && rules.uplink.common.is_by(fields.tunnel) {
        return Some(Direction::Uplink);
    }
    if rules.downlink.common.is_by(fields.tunnel) { Some(Direction::Downlink) } else { None }
}

/// Returns the reason if the PDR of a direction does not match or the source address is wrong.
#[inline(always)]
fn is_refused(
    rules: &Rules,
    direction_rules: &DirectionRules,
    direction: Direction,
    fields: &PacketFields,
) -> Option<DropReason> {
    let wanted = (direction_rules.flags >> flag::QFI) as u8;
    if direction == Direction::Downlink && !is_in_instance(rules, fields)
        || wanted != 0 && fields.qfi != Some(wanted - 1)
    {
        return Some(DropReason::NoRule);
    }
    let is_foreign = direction == Direction::Uplink && !is_ue(rules, fields);
    is_foreign.then_some(DropReason::ForeignSource)
}

/// Returns the rules of a direction.
#[inline(always)]
const fn rules_of(rules: &Rules, direction: Direction) -> (&DirectionRules, u64, &[u8; 16]) {
    match direction {
        Direction::Uplink => (&rules.uplink.common, rules.uplink.check_above, NO_PEER),
        Direction::Downlink => {
            (&rules.downlink.common, rules.downlink.check_above, &rules.downlink.peer6)
        }
    }
}

/// Charges a packet of the simple form if no limit is near. If it returns false it has done
/// nothing.
#[inline(always)]
pub(super) fn charge_simple(
    rules: &Rules,
    charge: Charge,
    session: SessionIndex,
    state: &LaneState<WORDS>,
    now: u64,
) -> bool {
    let Some(slot) = state.writable(EntryId(session.0)) else { return false };
    let case = SimpleCase::of(rules, charge, session, slot.into(), now);
    if case.is_rare() {
        return false;
    }
    let Some(word) = case.metered() else { return false };
    case.count(word);
    true
}

/// Charges a packet of the simple form if the rules still pass it.
pub(super) fn charge<const MODE: u8, B>(
    classifier: &Classifier<'_, '_, B>,
    charge: Charge,
) -> ChargeResult {
    let Classifier { rules, session, state, now, .. } = *classifier;
    let case = SimpleCase::of(rules, charge, session, state.at(EntryId(session.0)), now);
    if case.is_rare() {
        return case.rare::<MODE>().into();
    }
    match case.metered() {
        Some(word) => case.pass::<MODE>(word, 0).into(),
        None => case.drop(DropReason::RateExceeded, 0).into(),
    }
}

const fn direction_of(fields: &PacketFields) -> Direction {
    if fields.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink }
}

/// Returns true if a downlink packet arrived in its PDR's network instance. Tunnels are not bound
/// to one.
#[inline(always)]
const fn is_in_instance(rules: &Rules, fields: &PacketFields) -> bool {
    let named = rules.downlink.instance;
    named == forwarding::NO_INSTANCE || named == fields.instance || fields.tunnel.is_some()
}

/// Returns true if the source is the UE's address (reason: TS 33.513 clause 4.2.2.6).
#[inline(always)]
fn is_ue(rules: &Rules, fields: &PacketFields) -> bool {
    let flags = rules.uplink.common.flags;
    if flags & (flag::UE4 | flag::UE6) == 0 {
        return true;
    }
    let source = fields.source;
    match fields.family {
        4 => flags & flag::UE4 != 0 && (source >> 96) as u32 == rules.uplink.ue4,
        _ => {
            flags & flag::UE6 != 0 && (source >> 64) as u64 == rules.uplink.ue6
                || rules.uplink.common.forwarding.destination() as u8 == Destination::Control as u8
                    && fields.is_solicitation()
        }
    }
}

impl<'t, 'a> SimpleCase<'t, 'a> {
    /// Creates the context of a packet that is charged.
    #[inline(always)]
    fn of(
        rules: &'t Rules,
        charge: Charge,
        session: SessionIndex,
        slot: CounterSlot<'a>,
        now: u64,
    ) -> Self {
        let direction = charge.direction();
        let (direction_rules, check_above, peer6) = rules_of(rules, direction);
        let length = charge.length();
        Self { rules, direction_rules, peer6, check_above, direction, slot, length, now, session }
    }

    /// Returns true if anything but a meter may stop the packet.
    #[inline(always)]
    fn is_rare(&self) -> bool {
        let flags = self.direction_rules.flags;
        flags & RARE != 0
            || flags & flag::COUNT != 0 && (self.is_near(self.check_above) || self.is_exhausted())
    }

    /// Returns true if this packet may reach a limit.
    #[inline(always)]
    fn is_near(&self, check_above: u64) -> bool {
        self.counter().saturating_add(u64::from(self.length)) > check_above
    }

    /// Returns true if a quota is used up.
    #[inline(always)]
    fn is_exhausted(&self) -> bool {
        urr_limits::events(self.slot, self.direction_rules.version) & event::QUOTA != 0
    }

    /// Returns the limited counter.
    #[inline(always)]
    fn counter(&self) -> u64 {
        let own = self.slot.get(urr_limits::octets(self.direction));
        if self.direction_rules.flags & flag::ONE_WAY != 0 {
            return own;
        }
        let other = match self.direction {
            Direction::Uplink => DOWNLINK_OCTETS,
            Direction::Downlink => UPLINK_OCTETS,
        };
        own.saturating_add(self.slot.get(other))
    }

    /// Returns the meter's word after this packet, `Some(None)` without a meter.
    #[inline(always)]
    fn metered(&self) -> Option<Option<u64>> {
        if self.direction_rules.flags & flag::METER == 0 {
            return Some(None);
        }
        let DirectionRules { cost, burst, .. } = *self.direction_rules;
        let rate = MeterRate { cost, shift: self.direction_rules.forwarding.shift, burst };
        let word = self.slot.get(urr_limits::meter(self.direction));
        rate.charge(word, self.length, self.now).map(Some)
    }

    /// Passes the packet and charges it in mode [`CHARGE`].
    fn pass<const MODE: u8>(self, word: Option<u64>, events: u64) -> Decision<'t> {
        let path = Path {
            forwarding: &self.direction_rules.forwarding,
            peer6: self.peer6,
            redirect: None,
        };
        let action = Action::Forward(path);
        if MODE != CHARGE {
            return self.end(action, 0);
        }
        self.count(word);
        self.end(action, events)
    }

    /// Charges the meter and the URR.
    #[inline(always)]
    fn count(&self, word: Option<u64>) {
        if let Some(word) = word {
            self.slot.set(urr_limits::meter(self.direction), word);
        }
        if self.direction_rules.flags & flag::COUNT != 0 {
            urr_limits::count(self.slot, self.direction, self.length, self.now);
        } else {
            self.slot.set(LAST, self.now);
        }
    }

    fn end(&self, action: Action<'t>, events: u64) -> Decision<'t> {
        let is_new =
            events != 0 && urr_limits::raise(self.slot, self.direction_rules.version, events);
        let events = if is_new { events } else { 0 };
        let (pdr, direction, slot) = (self.direction_rules.pdr, self.direction, self.session.0);
        let charge = Charge::new(self.direction_rules.version, self.length, direction);
        Decision { action, pdr, direction, events, slot, copies: &[], charge }
    }

    fn drop(&self, reason: DropReason, events: u64) -> Decision<'t> {
        let is_down = self.direction == Direction::Downlink;
        let dropped = if is_down && self.direction_rules.flags & flag::DROPPED != 0 {
            event::DROPPED
        } else {
            0
        };
        self.end(Action::Drop(reason), events | dropped)
    }

    /// Decides about packets with rare flags or near a limit.
    #[cold]
    #[inline(never)]
    fn rare<const MODE: u8>(self) -> Decision<'t> {
        let flags = self.direction_rules.flags;
        if let Some(reason) = self.drop_flag() {
            return self.dropped(reason);
        }
        let is_held = flags & flag::HOLD != 0;
        let Some(word) = self.metered().or(is_held.then_some(None)) else {
            return self.dropped(DropReason::RateExceeded);
        };
        let check = self.check(if MODE == LOOK && !is_held { 0 } else { self.length });
        if check.is_stopped {
            return self.drop(DropReason::QuotaExhausted, check.events);
        }
        if is_held {
            return self.hold();
        }
        self.pass::<MODE>(word, check.events | urr_limits::starts(flags))
    }

    /// Drops a packet, which a URR with MBQE counts nevertheless.
    fn dropped(&self, reason: DropReason) -> Decision<'t> {
        let flags = self.direction_rules.flags;
        if flags & (flag::COUNT | flag::BEFORE) != flag::COUNT | flag::BEFORE {
            return self.drop(reason, 0);
        }
        let check = self.check(self.length);
        if check.is_stopped {
            return self.drop(reason, check.events);
        }
        urr_limits::count(self.slot, self.direction, self.length, self.now);
        self.drop(reason, check.events | urr_limits::starts(flags))
    }

    const fn drop_flag(&self) -> Option<DropReason> {
        match self.direction_rules.flags {
            flags if flags & flag::CLOSED != 0 => Some(DropReason::GateClosed),
            flags if flags & flag::DROP != 0 => Some(DropReason::ActionDrop),
            _ => None,
        }
    }

    fn hold(&self) -> Decision<'t> {
        let notify = self.direction_rules.flags & flag::NOTIFY != 0;
        let hold =
            HoldLimits { packets: self.rules.cold.hold_packets, ms: self.rules.cold.hold_ms };
        self.end(Action::Hold(hold), if notify { event::HELD } else { 0 })
    }

    /// Checks `length` octets against the URR.
    fn check(&self, length: u32) -> UrrCheck {
        if self.direction_rules.flags & flag::COUNT == 0 {
            return UrrCheck::default();
        }
        if self.direction_rules.flags & flag::STOPPED != 0 {
            return urr_limits::STOPPED;
        }
        let basis = match (self.direction_rules.flags & flag::ONE_WAY != 0, self.direction) {
            (false, _) => limit::TOTAL,
            (true, Direction::Uplink) => limit::UPLINK,
            (true, Direction::Downlink) => limit::DOWNLINK,
        };
        let cold = &self.rules.cold;
        let is_timed = self.direction_rules.flags & flag::DEADLINE != 0;
        let (threshold, quota) =
            if self.has_limits() { (cold.threshold, cold.quota) } else { (NEVER, NEVER) };
        let limit = |at, what| Limit { at, what, reserved: [0; 7] };
        let limits = [
            limit(threshold, basis),
            limit(quota, basis | limit::QUOTA),
            limit(if is_timed { cold.stop_at } else { NEVER }, limit::TIME | limit::QUOTA),
        ];
        let (version, direction, now) = (self.direction_rules.version, self.direction, self.now);
        urr_limits::check(self.slot, &limits, &UrrPacket { version, direction, length, now })
    }

    /// Returns true if the volume limit applies to this direction.
    fn has_limits(&self) -> bool {
        match self.direction {
            Direction::Uplink => self.rules.uplink.check_above != NEVER,
            Direction::Downlink => self.rules.downlink.check_above != NEVER,
        }
    }
}
