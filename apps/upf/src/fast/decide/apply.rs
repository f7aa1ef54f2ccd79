//! The rule that matched is applied.

use fastlane::table::{EntryId, LaneState};

use super::account::{self, Line, Look};
use super::meter::Price;
use super::redirect;
use super::{Decision, Fate, Hold, Path};
use crate::model::SessionId;
use crate::shared::cause::Cause;
use crate::shared::rules::{Block, Count, Direction, Meter, Rule, flag};
use crate::shared::state::{LAST, WORDS, event};

/// A rule and a packet.
pub(super) struct Applied<'t, 'a> {
    pub(super) block: &'t Block,
    pub(super) rule: &'t Rule,
    pub(super) direction: Direction,
    pub(super) session: SessionId,
    pub(super) version: u32,
    pub(super) state: &'a LaneState<WORDS>,
    pub(super) now: u64,
}

/// What URRs say together.
#[derive(Default)]
struct Looks {
    /// A bit for each that is stopped.
    stopped: u32,
    /// The path that the first of those gives.
    exhausted: Option<u8>,
}

/// What was raised.
#[derive(Default)]
struct Raised {
    events: u64,
    line: u32,
}

impl<'t> Applied<'t, '_> {
    pub(super) fn decide(&self, length: u32) -> Decision<'t> {
        let mut raised = Raised::default();
        let looks = self.look(length, &mut raised);
        let (fate, copies) = self.fate(length, &looks, &mut raised);
        if matches!(fate, Fate::Drop(_)) && self.direction == Direction::Down {
            for count in self.counts(|count| count.flags & flag::DROPPED != 0) {
                self.raise(count.line, event::DROPPED, &mut raised);
            }
        }
        let Raised { events, line } = raised;
        let copies = if copies { self.copies() } else { &[] };
        let (pdr, direction) = (self.rule.pdr, self.direction);
        Decision { fate, pdr, direction, events, line, copies }
    }

    fn fate(&self, length: u32, looks: &Looks, raised: &mut Raised) -> (Fate<'t>, bool) {
        let flags = self.rule.flags;
        if flags & flag::CLOSED != 0 {
            return (self.blocked(Cause::GateClosed, length, looks, raised), false);
        }
        let is_stopped = looks.stopped != 0;
        let path = match looks.exhausted {
            Some(path) => path,
            None if is_stopped => return (Fate::Drop(Cause::QuotaExhausted), false),
            None if flags & flag::DROP != 0 => {
                return (self.blocked(Cause::ActionDrop, length, looks, raised), false);
            }
            None if flags & flag::HOLD != 0 => return (self.hold(raised), false),
            None => self.rule.path,
        };
        if !self.conforms(length) {
            return (self.blocked(Cause::RateExceeded, length, looks, raised), false);
        }
        let Some(path) = self.path(path) else {
            return (self.blocked(Cause::ActionDrop, length, looks, raised), false);
        };
        for (meter, price) in self.meters() {
            let line = self.line(meter.line);
            let word = account::meter(self.direction);
            if let Some(new) = price.charge(line.get(word), length, self.now) {
                line.set(word, new);
            }
        }
        self.line(self.session.0).set(LAST, self.now);
        self.count(length, looks, raised, |_| true);
        (Fate::Forward(path), !is_stopped && flags & flag::DUPLICATE != 0)
    }

    fn hold(&self, raised: &mut Raised) -> Fate<'t> {
        if self.rule.flags & flag::NOTIFY != 0 {
            self.raise(self.session.0, event::HELD, raised);
        }
        Fate::Hold(Hold { packets: self.rule.hold_packets, ms: self.rule.hold_ms })
    }

    /// Drops a packet that URRs with MBQE count all the same.
    fn blocked(&self, cause: Cause, length: u32, looks: &Looks, raised: &mut Raised) -> Fate<'t> {
        self.count(length, looks, raised, |count| count.flags & flag::BEFORE != 0);
        Fate::Drop(cause)
    }

    /// Counts, and raises what that brings.
    fn count(
        &self,
        length: u32,
        looks: &Looks,
        raised: &mut Raised,
        which: impl Fn(&Count) -> bool,
    ) {
        for (place, count) in self.block.counts().iter().take(32).enumerate() {
            let bit = 1 << place;
            if self.rule.counts & bit == 0 || looks.stopped & bit != 0 || !which(count) {
                continue;
            }
            let line = self.line(count.line);
            let Look { events, .. } = self.look_of(count, length);
            account::count(line, self.direction, length, self.now);
            let events = events | account::starts(count.flags);
            if events != 0 {
                self.raise(count.line, events, raised);
            }
        }
    }

    fn look(&self, length: u32, raised: &mut Raised) -> Looks {
        let mut looks = Looks::default();
        for (place, count) in self.block.counts().iter().take(32).enumerate() {
            if self.rule.counts & 1 << place == 0 {
                continue;
            }
            let look = self.look_of(count, length);
            if look.is_stopped {
                if looks.stopped == 0 && usize::from(count.exhausted) < self.block.paths().len() {
                    looks.exhausted = Some(count.exhausted);
                }
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

    /// The meters that cost something.
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

    fn counts(&self, which: impl Fn(&Count) -> bool) -> impl Iterator<Item = &'t Count> {
        let chosen = self.rule.counts;
        let all = self.block.counts().iter().take(32).enumerate();
        all.filter(move |(place, count)| chosen & 1 << place != 0 && which(count))
            .map(|(_, count)| count)
    }

    fn path(&self, place: u8) -> Option<Path<'t>> {
        let path = self.block.paths().get(usize::from(place))?;
        let redirect = redirect::of(self.block, path);
        Some(Path { way: &path.way, peer6: &path.peer6, redirect })
    }

    fn copies(&self) -> &'t [crate::shared::rules::OuterPath] {
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
