//! Applies the rule of a block that matched: gates, URRs, meters, FAR.

use std::net::IpAddr;

use fastlane::table::{EntryId, LaneState};
use zerocopy::FromBytes;

use super::rate_meter::{self, MeterRate};
use super::urr_limits::{self, CounterSlot, UrrCheck, UrrPacket};
use super::{Action, CHARGE, Charge, Decision, HoldLimits, LOOK, Path, Redirect};
use crate::rules::layout::counter_slots::{LAST, WORDS, event};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Block, CHARGES, Count, Direction, Limit, Meter, NONE, OuterPath, RedirectEntry, Rule,
    SlotCharge, flag, forwarding, redirect, slot_charge,
};
use crate::session::SessionIndex;

/// A rule and a packet to apply it to.
pub(super) struct RuleApplication<'t, 'a> {
    pub(super) block: &'t Block,
    pub(super) rule: &'t Rule,
    pub(super) direction: Direction,
    /// Address family of the packet, 4 or 6: it selects the redirect address.
    pub(super) family: u8,
    pub(super) session: SessionIndex,
    pub(super) version: u32,
    pub(super) state: &'a LaneState<WORDS>,
    pub(super) now: u64,
}

/// Combined result of all URRs.
#[derive(Default)]
struct UrrChecks {
    /// One bit per URR whose quota is used up.
    stopped: u32,
    /// Path for packets beyond the quota, unless one of those URRs has none.
    exhausted: Option<u8>,
}

/// Events that were raised.
#[derive(Default)]
struct RaisedEvents {
    events: u64,
    slot: u32,
}

impl<'t> RuleApplication<'t, '_> {
    /// Decides about a packet of `length` octets.
    pub(super) fn decide(&self, length: u32) -> Decision<'t> {
        let Self { rule, version, direction, .. } = *self;
        let path = if rule.flags & flag::UNLIMITED == 0 { None } else { self.path(rule.path) };
        let Some(path) = path else { return self.apply::<LOOK>(length, None) };
        // Meters are checked when the packet is charged.
        let charge = Charge::new(version, length, direction).by_path(rule.path);
        let action = Action::Forward(path);
        Decision { action, pdr: rule.pdr, direction, events: 0, slot: 0, copies: &[], charge }
    }

    /// Charges a packet that was decided to take this path, if the decision still holds.
    pub(super) fn charge<const MODE: u8>(&self, length: u32, path: u8) -> Decision<'t> {
        self.apply::<MODE>(length, Some(path))
    }

    /// Charges the slots of a rule that only meters can stop. If it returns false it has done
    /// nothing: a meter stops the packet, or an event is due.
    #[inline(always)]
    pub(super) fn charge_slots(&self, length: u32) -> bool {
        let Self { direction, version, state, now, .. } = *self;
        let charges = self.block.charges();
        let (word, octets) = (urr_limits::meter(direction), urr_limits::octets(direction));
        let units = rate_meter::units(now);
        let Some(own) = state.writable(EntryId(self.session.0)) else { return false };
        let mut due = [None; CHARGES];
        let (mut left, mut count) = (self.rule.charges_or_hold_ms, 0);
        while left != 0 {
            let Some(charge) = charges.get(left.trailing_zeros() as usize) else { return false };
            let Some(words) = state.writable(EntryId(charge.line)) else { return false };
            let Some(due) = due.get_mut(count) else { return false };
            let SlotCharge { cost, shift, burst, flags, .. } = *charge;
            let mut meter = words.get(word);
            if flags & slot_charge::METER != 0 {
                let rate = MeterRate { cost, shift, burst };
                match rate.charge_at(meter, length, units) {
                    Some(after) => meter = after,
                    None => return false,
                }
            }
            let is_start = flags & slot_charge::START != 0
                && urr_limits::events(words.into(), version) & event::START == 0;
            if is_start || urr_limits::is_near(words, charge, direction, length) {
                return false;
            }
            *due = Some((words, meter, flags));
            (left, count) = (left & (left - 1), count + 1);
        }
        let mut is_counted = false;
        // A slot without a meter gets its own word again, which only this lane writes.
        for (words, meter, flags) in due.iter().take(count).flatten() {
            words.set(word, *meter);
            if flags & slot_charge::COUNT != 0 {
                words.add(octets, u64::from(length));
                words.add(octets + 1, 1);
                words.set(LAST, now);
                is_counted = true;
            }
        }
        if !is_counted {
            own.set(LAST, now);
        }
        true
    }

    fn apply<const MODE: u8>(&self, length: u32, wanted: Option<u8>) -> Decision<'t> {
        let mut raised = RaisedEvents::default();
        let mut path = 0;
        let (action, copies) = match self.drop_flag() {
            Some(reason) => (self.dropped(reason, length, &mut raised), false),
            None => self.action::<MODE>(length, wanted, &mut path, &mut raised),
        };
        if matches!(action, Action::Drop(_)) && self.direction == Direction::Downlink {
            for (_, count) in self.counts().filter(|(_, it)| it.flags & flag::DROPPED != 0) {
                self.raise(count.line, event::DROPPED, &mut raised);
            }
        }
        let RaisedEvents { events, slot } = raised;
        let copies = if copies { self.copies() } else { &[] };
        let charge = Charge::new(self.version, length, self.direction).by_path(path);
        let (pdr, direction) = (self.rule.pdr, self.direction);
        Decision { action, pdr, direction, events, slot, copies, charge }
    }

    /// Returns the reason if a packet is dropped regardless of URRs.
    fn drop_flag(&self) -> Option<DropReason> {
        match self.rule.flags {
            flags if flags & flag::CLOSED != 0 => Some(DropReason::GateClosed),
            flags if flags & flag::DROP != 0 => Some(DropReason::ActionDrop),
            _ => None,
        }
    }

    fn action<const MODE: u8>(
        &self,
        length: u32,
        wanted: Option<u8>,
        chosen: &mut u8,
        raised: &mut RaisedEvents,
    ) -> (Action<'t>, bool) {
        let flags = self.rule.flags;
        let is_held = flags & flag::HOLD != 0;
        if !is_held && !self.conforms(length) {
            return (self.dropped(DropReason::RateExceeded, length, raised), false);
        }
        let checks = self.check::<MODE>(length, raised);
        let is_stopped = checks.stopped != 0;
        let path = match checks.exhausted {
            _ if !is_stopped && is_held => return (self.hold(raised), false),
            _ if !is_stopped => self.rule.path,
            Some(path) => path,
            None => return (Action::Drop(DropReason::QuotaExhausted), false),
        };
        if wanted.is_some_and(|wanted| wanted != path) {
            // Earlier packets have used up the quota since the path was chosen.
            return (Action::Drop(DropReason::QuotaExhausted), false);
        }
        *chosen = path;
        if is_held && !self.conforms(length) {
            return (self.dropped(DropReason::RateExceeded, length, raised), false);
        }
        let Some(path) = self.path(path) else {
            return (self.dropped(DropReason::ActionDrop, length, raised), false);
        };
        if MODE == CHARGE {
            self.charge_all(length, &checks, raised);
        }
        (Action::Forward(path), !is_stopped && flags & flag::DUPLICATE != 0)
    }

    /// Charges meters and URRs.
    fn charge_all(&self, length: u32, checks: &UrrChecks, raised: &mut RaisedEvents) {
        let word = urr_limits::meter(self.direction);
        for (meter, rate) in self.meters() {
            let slot = self.slot(meter.line);
            if let Some(new) = rate.charge(slot.get(word), length, self.now) {
                slot.set(word, new);
            }
        }
        let mut is_counted = false;
        for (_, count) in self.counts().filter(|(bit, _)| checks.stopped & 1 << bit == 0) {
            self.count(count, length, raised);
            is_counted = true;
        }
        if !is_counted {
            self.slot(self.session.0).set(LAST, self.now);
        }
    }

    fn hold(&self, raised: &mut RaisedEvents) -> Action<'t> {
        if self.rule.flags & flag::NOTIFY != 0 {
            self.raise(self.session.0, event::HELD, raised);
        }
        Action::Hold(HoldLimits {
            packets: self.rule.hold_packets,
            ms: self.rule.charges_or_hold_ms,
        })
    }

    /// Drops a packet, which URRs with MBQE count nevertheless.
    fn dropped(&self, reason: DropReason, length: u32, raised: &mut RaisedEvents) -> Action<'t> {
        for (_, count) in self.counts().filter(|(_, it)| it.flags & flag::BEFORE != 0) {
            let check = self.check_urr(count, length);
            if check.is_stopped {
                self.raise(count.line, check.events, raised);
            } else {
                self.count(count, length, raised);
            }
        }
        Action::Drop(reason)
    }

    /// Counts the packet and raises the events that follow.
    fn count(&self, count: &Count, length: u32, raised: &mut RaisedEvents) {
        let UrrCheck { events, .. } = self.check_urr(count, length);
        urr_limits::count(self.slot(count.line), self.direction, length, self.now);
        self.raise(count.line, events | urr_limits::starts(count.flags), raised);
    }

    fn check<const MODE: u8>(&self, length: u32, raised: &mut RaisedEvents) -> UrrChecks {
        let mut checks = UrrChecks::default();
        let mut drops = false;
        for (bit, count) in self.counts() {
            // A quota with an exhausted path must be checked before the path is looked up.
            let is_held = self.rule.flags & flag::HOLD != 0;
            let is_early = MODE == LOOK && count.exhausted == NONE && !is_held;
            let check = self.check_urr(count, if is_early { 0 } else { length });
            if check.is_stopped {
                let path = Some(count.exhausted).filter(|it| *it != NONE);
                drops |= path.is_none();
                checks.exhausted = checks.exhausted.or(path).filter(|_| !drops);
                checks.stopped |= 1 << bit;
                self.raise(count.line, check.events, raised);
            }
        }
        checks
    }

    fn check_urr(&self, count: &Count, length: u32) -> UrrCheck {
        if count.flags & flag::STOPPED != 0 {
            return urr_limits::STOPPED;
        }
        let Self { version, direction, now, .. } = *self;
        let packet = UrrPacket { version, direction, length, now };
        urr_limits::check(self.slot(count.line), self.limits(count), &packet)
    }

    #[inline(always)]
    fn limits(&self, count: &Count) -> &'t [Limit] {
        let first = usize::from(count.first_limit);
        let limits = self.block.limits().get(first..first + usize::from(count.limits));
        limits.unwrap_or(&[])
    }

    fn conforms(&self, length: u32) -> bool {
        let word = urr_limits::meter(self.direction);
        self.meters().all(|(meter, rate)| {
            rate.charge(self.slot(meter.line).get(word), length, self.now).is_some()
        })
    }

    /// Returns the meters with a limit in this direction.
    fn meters(&self) -> impl Iterator<Item = (&'t Meter, MeterRate)> {
        let (all, direction) = (self.block.meters(), self.direction);
        let chosen = bits(self.rule.meters).filter_map(move |bit| all.get(bit));
        chosen.filter_map(move |meter| Some((meter, rate_of(meter, direction)?)))
    }

    /// Returns the rule's counters with their indices.
    fn counts(&self) -> impl Iterator<Item = (usize, &'t Count)> {
        let all = self.block.counts();
        bits(self.rule.counts).filter_map(move |bit| Some((bit, all.get(bit)?)))
    }

    fn path(&self, index: u8) -> Option<Path<'t>> {
        let path = self.block.path(index)?;
        let redirect = redirection_of(self.block, path, self.family);
        Some(Path { forwarding: &path.forwarding, peer6: &path.peer6, redirect })
    }

    fn copies(&self) -> &'t [OuterPath] {
        let first = usize::from(self.rule.first_copy);
        self.block.paths().get(first..first + usize::from(self.rule.copies)).unwrap_or(&[])
    }

    fn slot(&self, number: u32) -> CounterSlot<'_> {
        self.state.at(EntryId(number))
    }

    fn raise(&self, slot: u32, events: u64, raised: &mut RaisedEvents) {
        if events != 0 && urr_limits::raise(self.slot(slot), self.version, events) {
            raised.events |= events;
            raised.slot = slot;
        }
    }
}

/// Returns the numbers of the bits that are set, in ascending order.
#[inline(always)]
fn bits(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit as usize)
    })
}

/// Returns the rate of a meter in a direction, if it has a limit there.
#[inline(always)]
fn rate_of(meter: &Meter, direction: Direction) -> Option<MeterRate> {
    let direction = direction as usize;
    let (cost, shift, burst) =
        (meter.cost[direction], meter.shift[direction], meter.burst[direction]);
    (cost != 0).then_some(MeterRate { cost, shift, burst })
}

/// Returns the redirection of a path, if it has one, for a family (4 or 6).
#[inline]
fn redirection_of<'t>(block: &'t Block, path: &OuterPath, family: u8) -> Option<Redirect<'t>> {
    if path.forwarding.what & forwarding::REDIRECT == 0 {
        None
    } else {
        read_redirection(block, path, family)
    }
}

#[cold]
fn read_redirection<'t>(block: &'t Block, path: &OuterPath, family: u8) -> Option<Redirect<'t>> {
    let offset = u16::from_ne_bytes([path.peer6[0], path.peer6[1]]);
    let bytes = block.text().get(usize::from(offset)..)?;
    let (mut entry, mut rest) = RedirectEntry::read_from_prefix(bytes).ok()?;
    if entry.kind & redirect::IPV4 != 0 && family == 6 {
        let second = rest.get(usize::from(entry.length)..)?;
        (entry, rest) = RedirectEntry::read_from_prefix(second).ok()?;
    }
    let RedirectEntry { kind, length, .. } = entry;
    let text = rest.get(..usize::from(length))?;
    let address = || match length {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(text).ok()?)),
        _ => Some(IpAddr::from(<[u8; 16]>::try_from(text).ok()?)),
    };
    match kind & !redirect::IPV4 {
        redirect::ADDRESS => Some(Redirect::Address(address()?)),
        _ => Some(Redirect::Url(text)),
    }
}
