//! Classification by rule blocks: the first rule that matches, and what it refers to.

use fastlane::table::LaneState;

use super::apply::Applied;
use super::blocks::Blocks;
use super::subject::{Ports, Subject};
use super::{Charge, Decision, Fate, Path, SHUT};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::rules::{
    Block, CHAIN, Direction, Match, NONE, Rule, Rules, flag, wants, way,
};
use crate::rules::layout::state::WORDS;
use crate::session::{Destination, SessionId};

/// Result of matching a packet against a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meant {
    Yes,
    No,
    /// Matches except for the UE's address.
    ForeignSource,
    /// Undecidable: a later fragment whose first one was not seen.
    Unknown,
}

/// Returns the blocks of a session with 1 + their indices, up to the first one of another version.
fn chain<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    session: SessionId,
) -> impl Iterator<Item = (u32, &'t Block)> {
    let mut next = rules.cold.block;
    let version = rules.version();
    std::iter::from_fn(move || {
        let place = next;
        let block = blocks.block(place.checked_sub(1)? as usize)?;
        let is_sound = block.version == version && block.session == session.0;
        next = if is_sound { block.next } else { 0 };
        is_sound.then_some((place, block))
    })
    .take(CHAIN)
}

#[inline(never)]
pub(super) fn decide<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    subject: &Subject,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Decision<'t> {
    let mut cause = Cause::NoRule;
    let mut direction = if subject.tunnel.is_some() { Direction::Up } else { Direction::Down };
    for (place, block) in chain(rules, blocks, session) {
        let users = Users::of(block, subject);
        let all = block.rules().iter().enumerate();
        for (number, rule) in all.filter(|(_, rule)| is_by(rule, subject)) {
            direction = way_of(rule);
            match users.meant(block, rule, subject) {
                Meant::Yes => {
                    let (version, family) = (rules.version(), subject.family);
                    let applied =
                        Applied { block, rule, direction, family, session, version, state, now };
                    let mut decision = applied.decide(subject.length);
                    decision.charge = decision.charge.by_rule(place, number as u16);
                    return decision;
                }
                Meant::No => {}
                Meant::ForeignSource => cause = Cause::ForeignSource,
                Meant::Unknown => {
                    return Decision::drop(Cause::FragmentUnknown, rule.pdr, direction);
                }
            }
        }
    }
    Decision { fate: Fate::Drop(cause), ..Decision::drop(cause, 0, direction) }
}

pub(super) fn own_path<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    subject: &Subject,
    session: SessionId,
) -> Option<Path<'t>> {
    for (_, block) in chain(rules, blocks, session) {
        let users = Users::of(block, subject);
        for rule in block.rules().iter().filter(|rule| is_by(rule, subject)) {
            match users.meant(block, rule, subject) {
                Meant::Yes => {
                    let path = block.paths().get(usize::from(rule.path))?;
                    let goes = rule.flags & SHUT == 0 && path.way.what & way::REDIRECT == 0;
                    let path = Path { way: &path.way, peer6: &path.peer6, redirect: None };
                    return goes.then_some(path);
                }
                Meant::No | Meant::ForeignSource => {}
                Meant::Unknown => return None,
            }
        }
    }
    None
}

/// Charges a packet that a rule of a block has passed, if the rule still passes it.
#[inline(never)]
pub(super) fn charge<'t, const MODE: u8>(
    blocks: &impl Blocks<'t>,
    charge: Charge,
    session: SessionId,
    state: &LaneState<WORDS>,
    now: u64,
) -> Decision<'t> {
    let (version, direction) = (charge.version(), charge.direction());
    let is_sound = |block: &&Block| block.version == version && block.session == session.0;
    let block = charge.block().and_then(|place| blocks.block(place));
    let found = block.filter(is_sound).and_then(|block| {
        let rule = block.rules().get(charge.rule())?;
        Some((block, rule))
    });
    let Some((block, rule)) = found else { return Decision::drop(Cause::NoRule, 0, direction) };
    let family = 0; // the redirection was decided before
    let applied = Applied { block, rule, direction, family, session, version, state, now };
    applied.charge::<MODE>(charge.length(), charge.path())
}

pub(super) fn has_tunnel<'t>(rules: &'t Rules, blocks: &impl Blocks<'t>, teid: u32) -> bool {
    let mut next = rules.cold.block;
    for _ in 0..CHAIN {
        let Some(place) = next.checked_sub(1) else { return false };
        let Some(block) = blocks.block(place as usize) else { return false };
        if block.version != rules.version() {
            return false;
        }
        let is_by = |rule: &Rule| rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid;
        if block.rules().iter().any(is_by) {
            return true;
        }
        next = block.next;
    }
    false
}

#[inline(always)]
const fn way_of(rule: &Rule) -> Direction {
    if rule.flags & flag::UP != 0 { Direction::Up } else { Direction::Down }
}

/// Returns true if a rule is for packets of this ingress.
#[inline(always)]
fn is_by(rule: &Rule, subject: &Subject) -> bool {
    match subject.tunnel {
        Some(teid) => rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid,
        None => {
            rule.flags & flag::TUNNEL == 0
                && (rule.instance == way::NO_INSTANCE || rule.instance == subject.instance)
        }
    }
}

/// Addresses of a block that a packet matches, one bit each.
struct Users {
    /// By its source.
    source: u64,
    /// By its destination.
    destination: u64,
}

impl Users {
    fn of(block: &Block, subject: &Subject) -> Self {
        let mut users = Self { source: 0, destination: 0 };
        for (place, address) in block.addresses().iter().take(64).enumerate() {
            let family = subject.family;
            users.source |= u64::from(address.holds(family, subject.source)) << place;
            users.destination |= u64::from(address.holds(family, subject.destination)) << place;
        }
        users
    }

    fn meant(&self, block: &Block, rule: &Rule, subject: &Subject) -> Meant {
        if rule.qfis != 0 && subject.qfi.is_none_or(|qfi| rule.qfis >> (qfi & 63) & 1 == 0) {
            return Meant::No;
        }
        let filters = self.filters(block, rule, subject);
        if filters == Meant::No || self.is_users(block, rule, subject) {
            return filters;
        }
        if rule.flags & (flag::UP | flag::CHECKED) == flag::UP | flag::CHECKED {
            Meant::ForeignSource
        } else {
            Meant::No
        }
    }

    /// Returns true if the UE's address of the packet is one of the rule's.
    fn is_users(&self, block: &Block, rule: &Rule, subject: &Subject) -> bool {
        let (here, is_neighbour) = match way_of(rule) {
            Direction::Up => {
                let path = block.paths().get(usize::from(rule.path));
                let is_control =
                    path.is_some_and(|path| path.way.destination() == Destination::Control);
                (self.source, is_control && subject.is_solicitation())
            }
            Direction::Down => (self.destination, subject.is_advertisement()),
        };
        rule.users == 0 || rule.users & here != 0 || is_neighbour
    }

    fn filters(&self, block: &Block, rule: &Rule, subject: &Subject) -> Meant {
        if rule.matches == 0 {
            return Meant::Yes;
        }
        let first = usize::from(rule.first_match);
        let filters = block.matches().get(first..first + usize::from(rule.matches));
        let mut meant = Meant::No;
        for filter in filters.unwrap_or(&[]) {
            match self.filter(block, filter, way_of(rule), subject) {
                Meant::Yes => return Meant::Yes,
                Meant::Unknown => meant = Meant::Unknown,
                _ => {}
            }
        }
        meant
    }

    fn filter(
        &self,
        block: &Block,
        filter: &Match,
        direction: Direction,
        subject: &Subject,
    ) -> Meant {
        let (local, remote) = match direction {
            Direction::Up => (self.source, self.destination),
            Direction::Down => (self.destination, self.source),
        };
        let is_at = |place: u8, here: u64| place == NONE || here >> (place & 63) & 1 != 0;
        let wants = filter.wants;
        let has = |bit: u16, it: bool| wants & bit == 0 || it;
        let is_meant = is_at(filter.local, local)
            && is_at(filter.remote, remote)
            && has(wants::PROTOCOL, filter.protocol == subject.protocol)
            && has(wants::TOS, (filter.tos ^ subject.tos) & filter.tos_mask == 0)
            && has(wants::LABEL, subject.family == 6 && filter.label == subject.flow_label);
        if !is_meant {
            return Meant::No;
        }
        if wants & (wants::PORTS | wants::SPI) == 0 {
            return Meant::Yes;
        }
        transport(block, filter, direction, subject)
    }
}

/// Matches the transport header.
fn transport(block: &Block, filter: &Match, direction: Direction, subject: &Subject) -> Meant {
    if subject.ports == Ports::Unknown {
        return Meant::Unknown;
    }
    let wants = filter.wants;
    if wants & wants::SPI != 0 && subject.spi != Some(filter.spi) {
        return Meant::No;
    }
    if wants & wants::PORTS == 0 {
        return Meant::Yes;
    }
    let Ports::Known(source, destination) = subject.ports else { return Meant::No };
    let (local, remote) = match direction {
        Direction::Up => (source, destination),
        Direction::Down => (destination, source),
    };
    let within = |port: u16, [first, last]: [u16; 2]| first <= port && port <= last;
    let among = |port: u16, [first, count]: [u16; 2]| {
        let ranges = usize::from(first)..usize::from(first) + usize::from(count);
        block.ports().get(ranges).is_some_and(|it| it.iter().any(|range| within(port, *range)))
    };
    let has = |bit: u16, it: bool| wants & bit == 0 || it;
    let is_meant = has(wants::REMOTE_PORT, within(remote, filter.remote_ports))
        && has(wants::LOCAL_PORT, within(local, filter.local_ports))
        && has(wants::REMOTE_PORTS, among(remote, filter.remote_ports))
        && has(wants::LOCAL_PORTS, among(local, filter.local_ports));
    if is_meant { Meant::Yes } else { Meant::No }
}
