//! Applies the rule of a block that matched: gates, URRs, meters, FAR.

use fastlane::table::{EntryId, LaneState};

use super::account::{self, Line, Look};
use super::meter::Price;
use super::redirect;
use super::{CHARGE, Charge, Decision, Fate, Hold, LOOK, Path};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{Block, Count, Direction, Meter, NONE, OuterPath, Rule, flag};
use crate::rules::layout::state::{LAST, WORDS, event};
use crate::session::SessionId;

/// A rule and a packet to apply it to.
pub(super) struct Applied<'t, 'a> {
    pub(super) block: &'t Block,
    pub(super) rule: &'t Rule,
    pub(super) direction: Direction,
    /// Address family of the packet, 4 or 6: it selects the redirect address.
    pub(super) family: u8,
    pub(super) session: SessionId,
    pub(super) version: u32,
    pub(super) state: &'a LaneState<WORDS>,
    pub(super) now: u64,
}

/// Combined result of all URRs.
#[derive(Default)]
struct Looks {
    /// One bit per URR whose quota is used up.
    stopped: u32,
    /// Path for packets beyond the quota, unless one of those URRs has none.
    exhausted: Option<u8>,
}

/// Events that were raised.
#[derive(Default)]
struct Raised {
    events: u64,
    line: u32,
}

impl<'t> Applied<'t, '_> {
    /// Decides about a packet of `length` octets.
    pub(super) fn decide(&self, length: u32) -> Decision<'t> {
        self.apply::<LOOK>(length, None)
    }

    /// Charges a packet that was decided to take this path, if the decision still holds.
    pub(super) fn charge<const MODE: u8>(&self, length: u32, path: u8) -> Decision<'t> {
        self.apply::<MODE>(length, Some(path))
    }

    fn apply<const MODE: u8>(&self, length: u32, wanted: Option<u8>) -> Decision<'t> {
        let mut raised = Raised::default();
        let mut path = 0;
        let (fate, copies) = match self.blocked() {
            Some(cause) => (self.dropped(cause, length, &mut raised), false),
            None => self.fate::<MODE>(length, wanted, &mut path, &mut raised),
        };
        if matches!(fate, Fate::Drop(_)) && self.direction == Direction::Down {
            for (_, count) in self.counts().filter(|(_, it)| it.flags & flag::DROPPED != 0) {
                self.raise(count.line, event::DROPPED, &mut raised);
            }
        }
        let Raised { events, line } = raised;
        let copies = if copies { self.copies() } else { &[] };
        let charge = Charge::new(self.version, length, self.direction).by_path(path);
        let (pdr, direction) = (self.rule.pdr, self.direction);
        Decision { fate, pdr, direction, events, line, copies, charge }
    }

    /// Returns the reason if a packet is dropped regardless of URRs.
    fn blocked(&self) -> Option<Cause> {
        match self.rule.flags {
            flags if flags & flag::CLOSED != 0 => Some(Cause::GateClosed),
            flags if flags & flag::DROP != 0 => Some(Cause::ActionDrop),
            _ => None,
        }
    }

    fn fate<const MODE: u8>(
        &self,
        length: u32,
        wanted: Option<u8>,
        chosen: &mut u8,
        raised: &mut Raised,
    ) -> (Fate<'t>, bool) {
        let flags = self.rule.flags;
        let is_held = flags & flag::HOLD != 0;
        if !is_held && !self.conforms(length) {
            return (self.dropped(Cause::RateExceeded, length, raised), false);
        }
        let looks = self.look::<MODE>(length, raised);
        let is_stopped = looks.stopped != 0;
        let path = match looks.exhausted {
            _ if !is_stopped && is_held => return (self.hold(raised), false),
            _ if !is_stopped => self.rule.path,
            Some(path) => path,
            None => return (Fate::Drop(Cause::QuotaExhausted), false),
        };
        if wanted.is_some_and(|wanted| wanted != path) {
            // Earlier packets have used up the quota since the path was chosen.
            return (Fate::Drop(Cause::QuotaExhausted), false);
        }
        *chosen = path;
        if is_held && !self.conforms(length) {
            return (self.dropped(Cause::RateExceeded, length, raised), false);
        }
        let Some(path) = self.path(path) else {
            return (self.dropped(Cause::ActionDrop, length, raised), false);
        };
        if MODE == CHARGE {
            self.charge_all(length, &looks, raised);
        }
        (Fate::Forward(path), !is_stopped && flags & flag::DUPLICATE != 0)
    }

    /// Charges meters and URRs.
    fn charge_all(&self, length: u32, looks: &Looks, raised: &mut Raised) {
        let word = account::meter(self.direction);
        for (meter, price) in self.meters() {
            let line = self.line(meter.line);
            if let Some(new) = price.charge(line.get(word), length, self.now) {
                line.set(word, new);
            }
        }
        self.line(self.session.0).set(LAST, self.now);
        for (place, count) in self.counts() {
            if looks.stopped & 1 << place == 0 {
                self.count(count, length, raised);
            }
        }
    }

    fn hold(&self, raised: &mut Raised) -> Fate<'t> {
        if self.rule.flags & flag::NOTIFY != 0 {
            self.raise(self.session.0, event::HELD, raised);
        }
        Fate::Hold(Hold { packets: self.rule.hold_packets, ms: self.rule.hold_ms })
    }

    /// Drops a packet, which URRs with MBQE count nevertheless.
    fn dropped(&self, cause: Cause, length: u32, raised: &mut Raised) -> Fate<'t> {
        for (_, count) in self.counts().filter(|(_, it)| it.flags & flag::BEFORE != 0) {
            let look = self.look_of(count, length);
            if look.is_stopped {
                self.raise(count.line, look.events, raised);
            } else {
                self.count(count, length, raised);
            }
        }
        Fate::Drop(cause)
    }

    /// Counts the packet and raises the events that follow.
    fn count(&self, count: &Count, length: u32, raised: &mut Raised) {
        let Look { events, .. } = self.look_of(count, length);
        account::count(self.line(count.line), self.direction, length, self.now);
        self.raise(count.line, events | account::starts(count.flags), raised);
    }

    fn look<const MODE: u8>(&self, length: u32, raised: &mut Raised) -> Looks {
        let mut looks = Looks::default();
        let mut drops = false;
        for (place, count) in self.counts() {
            // A quota with an exhausted path must be checked before the path is looked up.
            let is_held = self.rule.flags & flag::HOLD != 0;
            let is_early = MODE == LOOK && count.exhausted == NONE && !is_held;
            let look = self.look_of(count, if is_early { 0 } else { length });
            if look.is_stopped {
                let path = Some(count.exhausted).filter(|it| *it != NONE);
                drops |= path.is_none();
                looks.exhausted = looks.exhausted.or(path).filter(|_| !drops);
                looks.stopped |= 1 << place;
                self.raise(count.line, look.events, raised);
            }
        }
        looks
    }

    fn look_of(&self, count: &Count, length: u32) -> Look {
        if count.flags & flag::STOPPED != 0 {
            return account::STOPPED;
        }
        let first = usize::from(count.first_limit);
        let limits = self.block.limits().get(first..first + usize::from(count.limits));
        let (line, limits) = (self.line(count.line), limits.unwrap_or(&[]));
        account::look(line, self.version, limits, self.direction, length, self.now)
    }

    fn conforms(&self, length: u32) -> bool {
        let word = account::meter(self.direction);
        self.meters().all(|(meter, price)| {
            price.charge(self.line(meter.line).get(word), length, self.now).is_some()
        })
    }

    /// Returns the meters with a limit in this direction.
    fn meters(&self) -> impl Iterator<Item = (&'t Meter, Price)> {
        let (chosen, way) = (self.rule.meters, self.direction as usize);
        let all = self.block.meters().iter().take(32).enumerate();
        let those =
            all.filter(move |(place, meter)| chosen & 1 << place != 0 && meter.cost[way] != 0);
        those.map(move |(_, meter)| {
            let (cost, shift, burst) = (meter.cost[way], meter.shift[way], meter.burst[way]);
            (meter, Price { cost, shift, burst })
        })
    }

    /// Returns the rule's counters with their indices.
    fn counts(&self) -> impl Iterator<Item = (usize, &'t Count)> {
        let chosen = self.rule.counts;
        let all = self.block.counts().iter().take(32).enumerate();
        all.filter(move |(place, _)| chosen & 1 << place != 0)
    }

    fn path(&self, place: u8) -> Option<Path<'t>> {
        let path = self.block.paths().get(usize::from(place))?;
        let redirect = redirect::of(self.block, path, self.family);
        Some(Path { way: &path.way, peer6: &path.peer6, redirect })
    }

    fn copies(&self) -> &'t [OuterPath] {
        let first = usize::from(self.rule.first_copy);
        self.block.paths().get(first..first + usize::from(self.rule.copies)).unwrap_or(&[])
    }

    fn line(&self, number: u32) -> Line<'_> {
        self.state.at(EntryId(number))
    }

    fn raise(&self, line: u32, events: u64, raised: &mut Raised) {
        if events != 0 && account::raise(self.line(line), self.version, events) {
            raised.events |= events;
            raised.line = line;
        }
    }
}
