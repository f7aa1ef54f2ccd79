//! Classification by the simple form: one cache line decides.

use fastlane::table::{EntryId, LaneState};

use super::account::{self, Line, Look};
use super::meter::Price;
use super::subject::Subject;
use super::{CHARGE, Charge, Charged, Decision, Fate, Hold, LOOK, Passing, Path, SHUT};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Direction, Limit, NEVER, Rules, Side, flag, limit, way};
use crate::rules::layout::state::{DOWNLINK_OCTETS, LAST, UPLINK_OCTETS, WORDS, event};
use crate::session::{Destination, SessionId};

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
struct Case<'t, 'a> {
    rules: &'t Rules,
    side: &'t Side,
    peer6: &'t [u8; 16],
    attention: u64,
    direction: Direction,
    line: Line<'a>,
    length: u32,
    now: u64,
    session: SessionId,
}

const NO_PEER: &[u8; 16] = &[0; 16];

#[inline(always)]
pub(super) fn decide_at_once<'t>(rules: &'t Rules, subject: &Subject) -> Option<Passing<'t>> {
    let direction = direction(rules, subject)?;
    let (side, _, peer6) = half(rules, direction);
    if side.flags & RARE != 0 || is_refused(rules, side, direction, subject).is_some() {
        return None;
    }
    let path = Path { way: &side.way, peer6, redirect: None };
    let charge = Charge::new(side.version, subject.length, direction);
    Some(Passing { path, direction, charge })
}

pub(super) fn own_path<'t>(rules: &'t Rules, subject: &Subject) -> Option<Path<'t>> {
    let direction = direction(rules, subject)?;
    let (side, _, peer6) = half(rules, direction);
    let is_stopped = side.flags & SHUT != 0;
    let is_it = !is_stopped && is_refused(rules, side, direction, subject).is_none();
    is_it.then_some(Path { way: &side.way, peer6, redirect: None })
}

pub(super) fn decide<'t>(
    rules: &'t Rules,
    subject: &Subject,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Decision<'t> {
    let Some(direction) = direction(rules, subject) else {
        return Decision::drop(Cause::NoRule, 0, direction_of(subject));
    };
    let (side, attention, peer6) = half(rules, direction);
    if let Some(cause) = is_refused(rules, side, direction, subject) {
        let pdr = if cause == Cause::NoRule { 0 } else { side.pdr };
        return Decision::drop(cause, pdr, direction);
    }
    let (line, length) = (state.at(EntryId(session.0)), subject.length);
    let case = Case { rules, side, peer6, attention, direction, line, length, now, session };
    if side.flags & RARE != 0 || side.flags & flag::COUNT != 0 && case.is_exhausted() {
        return case.rare::<LOOK>();
    }
    match case.metered() {
        Some(word) => case.pass::<LOOK>(word, 0),
        None => case.drop(Cause::RateExceeded, 0),
    }
}

/// Returns the direction whose PDR is for packets of this ingress.
#[inline(always)]
const fn direction(rules: &Rules, subject: &Subject) -> Option<Direction> {
    // A packet without a tunnel is not uplink, so that cache line is not read.
    if subject.tunnel.is_some() && rules.up.side.is_by(subject.tunnel) {
        return Some(Direction::Up);
    }
    if rules.down.side.is_by(subject.tunnel) { Some(Direction::Down) } else { None }
}

/// Returns the reason if the PDR of a direction does not match or the source address is wrong.
#[inline(always)]
fn is_refused(
    rules: &Rules,
    side: &Side,
    direction: Direction,
    subject: &Subject,
) -> Option<Cause> {
    let wanted = (side.flags >> flag::QFI) as u8;
    if direction == Direction::Down && !is_in(rules, subject)
        || wanted != 0 && subject.qfi != Some(wanted - 1)
    {
        return Some(Cause::NoRule);
    }
    let is_foreign = direction == Direction::Up && !is_users(rules, subject);
    is_foreign.then_some(Cause::ForeignSource)
}

/// Returns the rules of a direction.
#[inline(always)]
const fn half(rules: &Rules, direction: Direction) -> (&Side, u64, &[u8; 16]) {
    match direction {
        Direction::Up => (&rules.up.side, rules.up.attention, NO_PEER),
        Direction::Down => (&rules.down.side, rules.down.attention, &rules.down.peer6),
    }
}

/// Charges a packet of the simple form if no limit is near. If it returns false it has done
/// nothing.
#[inline(always)]
pub(super) fn charge_at_once(
    rules: &Rules,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> bool {
    let case = Case::of(rules, charge, session, state, now);
    if case.is_rare() {
        return false;
    }
    let Some(word) = case.metered() else { return false };
    case.count(word);
    true
}

/// Charges a packet of the simple form if the rules still pass it.
pub(super) fn charge<const MODE: u8>(
    rules: &Rules,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Charged {
    let case = Case::of(rules, charge, session, state, now);
    if case.is_rare() {
        return case.rare::<MODE>().into();
    }
    match case.metered() {
        Some(word) => case.pass::<MODE>(word, 0).into(),
        None => case.drop(Cause::RateExceeded, 0).into(),
    }
}

const fn direction_of(subject: &Subject) -> Direction {
    if subject.tunnel.is_some() { Direction::Up } else { Direction::Down }
}

/// Returns true if a downlink packet arrived in its PDR's network instance. Tunnels are not bound
/// to one.
#[inline(always)]
const fn is_in(rules: &Rules, subject: &Subject) -> bool {
    let named = rules.down.instance;
    named == way::NO_INSTANCE || named == subject.instance || subject.tunnel.is_some()
}

/// Returns true if the source is the UE's address (reason: TS 33.513 clause 4.2.2.6).
#[inline(always)]
fn is_users(rules: &Rules, subject: &Subject) -> bool {
    let flags = rules.up.side.flags;
    if flags & (flag::USER4 | flag::USER6) == 0 {
        return true;
    }
    let source = subject.source;
    match subject.family {
        4 => flags & flag::USER4 != 0 && (source >> 96) as u32 == rules.up.user4,
        _ => {
            flags & flag::USER6 != 0 && (source >> 64) as u64 == rules.up.user6
                || rules.up.side.way.destination() as u8 == Destination::Control as u8
                    && subject.is_solicitation()
        }
    }
}

impl<'t, 'a> Case<'t, 'a> {
    /// Creates the context of a packet that is charged.
    #[inline(always)]
    fn of(
        rules: &'t Rules,
        charge: Charge,
        session: SessionId,
        state: &'a LaneState<WORDS>,
        now: u64,
    ) -> Self {
        let direction = charge.direction();
        let (side, attention, peer6) = half(rules, direction);
        let (line, length) = (state.at(EntryId(session.0)), charge.length());
        Self { rules, side, peer6, attention, direction, line, length, now, session }
    }

    /// Returns true if anything but a meter may stop the packet.
    #[inline(always)]
    fn is_rare(&self) -> bool {
        let flags = self.side.flags;
        flags & RARE != 0
            || flags & flag::COUNT != 0 && (self.is_near(self.attention) || self.is_exhausted())
    }

    /// Returns true if this packet may reach a limit.
    #[inline(always)]
    fn is_near(&self, attention: u64) -> bool {
        self.counter().saturating_add(u64::from(self.length)) > attention
    }

    /// Returns true if a quota is used up.
    #[inline(always)]
    fn is_exhausted(&self) -> bool {
        account::events(self.line, self.side.version) & event::QUOTA != 0
    }

    /// Returns the limited counter.
    #[inline(always)]
    fn counter(&self) -> u64 {
        let own = self.line.get(account::octets(self.direction));
        if self.side.flags & flag::ONE_WAY != 0 {
            return own;
        }
        let other = match self.direction {
            Direction::Up => DOWNLINK_OCTETS,
            Direction::Down => UPLINK_OCTETS,
        };
        own.saturating_add(self.line.get(other))
    }

    /// Returns the meter's word after this packet, `Some(None)` without a meter.
    #[inline(always)]
    fn metered(&self) -> Option<Option<u64>> {
        if self.side.flags & flag::METER == 0 {
            return Some(None);
        }
        let Side { cost, burst, .. } = *self.side;
        let price = Price { cost, shift: self.side.way.shift, burst };
        let word = self.line.get(account::meter(self.direction));
        price.charge(word, self.length, self.now).map(Some)
    }

    /// Passes the packet and charges it in mode [`CHARGE`].
    fn pass<const MODE: u8>(self, word: Option<u64>, events: u64) -> Decision<'t> {
        let path = Path { way: &self.side.way, peer6: self.peer6, redirect: None };
        let fate = Fate::Forward(path);
        if MODE != CHARGE {
            return self.end(fate, 0);
        }
        self.count(word);
        self.end(fate, events)
    }

    /// Charges the meter and the URR.
    #[inline(always)]
    fn count(&self, word: Option<u64>) {
        if let Some(word) = word {
            self.line.set(account::meter(self.direction), word);
        }
        if self.side.flags & flag::COUNT != 0 {
            account::count(self.line, self.direction, self.length, self.now);
        } else {
            self.line.set(LAST, self.now);
        }
    }

    fn end(&self, fate: Fate<'t>, events: u64) -> Decision<'t> {
        let is_new = events != 0 && account::raise(self.line, self.side.version, events);
        let events = if is_new { events } else { 0 };
        let (pdr, direction, line) = (self.side.pdr, self.direction, self.session.0);
        let charge = Charge::new(self.side.version, self.length, direction);
        Decision { fate, pdr, direction, events, line, copies: &[], charge }
    }

    fn drop(&self, cause: Cause, events: u64) -> Decision<'t> {
        let is_down = self.direction == Direction::Down;
        let dropped =
            if is_down && self.side.flags & flag::DROPPED != 0 { event::DROPPED } else { 0 };
        self.end(Fate::Drop(cause), events | dropped)
    }

    /// Decides about packets with rare flags or near a limit.
    #[cold]
    #[inline(never)]
    fn rare<const MODE: u8>(self) -> Decision<'t> {
        let flags = self.side.flags;
        if let Some(cause) = self.blocked() {
            return self.dropped(cause);
        }
        let is_held = flags & flag::HOLD != 0;
        let Some(word) = self.metered().or(is_held.then_some(None)) else {
            return self.dropped(Cause::RateExceeded);
        };
        let look = self.look(if MODE == LOOK && !is_held { 0 } else { self.length });
        if look.is_stopped {
            return self.drop(Cause::QuotaExhausted, look.events);
        }
        if is_held {
            return self.hold();
        }
        self.pass::<MODE>(word, look.events | account::starts(flags))
    }

    /// Drops a packet, which a URR with MBQE counts nevertheless.
    fn dropped(&self, cause: Cause) -> Decision<'t> {
        let flags = self.side.flags;
        if flags & (flag::COUNT | flag::BEFORE) != flag::COUNT | flag::BEFORE {
            return self.drop(cause, 0);
        }
        let look = self.look(self.length);
        if look.is_stopped {
            return self.drop(cause, look.events);
        }
        account::count(self.line, self.direction, self.length, self.now);
        self.drop(cause, look.events | account::starts(flags))
    }

    const fn blocked(&self) -> Option<Cause> {
        match self.side.flags {
            flags if flags & flag::CLOSED != 0 => Some(Cause::GateClosed),
            flags if flags & flag::DROP != 0 => Some(Cause::ActionDrop),
            _ => None,
        }
    }

    fn hold(&self) -> Decision<'t> {
        let notify = self.side.flags & flag::NOTIFY != 0;
        let hold = Hold { packets: self.rules.cold.hold_packets, ms: self.rules.cold.hold_ms };
        self.end(Fate::Hold(hold), if notify { event::HELD } else { 0 })
    }

    /// Checks `length` octets against the URR.
    fn look(&self, length: u32) -> Look {
        if self.side.flags & flag::COUNT == 0 {
            return Look::default();
        }
        if self.side.flags & flag::STOPPED != 0 {
            return account::STOPPED;
        }
        let basis = match (self.side.flags & flag::ONE_WAY != 0, self.direction) {
            (false, _) => limit::TOTAL,
            (true, Direction::Up) => limit::UP,
            (true, Direction::Down) => limit::DOWN,
        };
        let cold = &self.rules.cold;
        let is_timed = self.side.flags & flag::DEADLINE != 0;
        let (threshold, quota) =
            if self.has_limits() { (cold.threshold, cold.quota) } else { (NEVER, NEVER) };
        let limit = |at, what| Limit { at, what, reserved: [0; 7] };
        let limits = [
            limit(threshold, basis),
            limit(quota, basis | limit::QUOTA),
            limit(if is_timed { cold.stop_at } else { NEVER }, limit::TIME | limit::QUOTA),
        ];
        let version = self.side.version;
        account::look(self.line, version, &limits, self.direction, length, self.now)
    }

    /// Returns true if the volume limit applies to this direction.
    fn has_limits(&self) -> bool {
        match self.direction {
            Direction::Up => self.rules.up.attention != NEVER,
            Direction::Down => self.rules.down.attention != NEVER,
        }
    }
}
