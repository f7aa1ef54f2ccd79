//! Classification by rule blocks: the first rule that matches, and what it refers to.

use fastlane::table::LaneState;

use super::apply_rule::RuleApplication;
use super::block_access::Blocks;
use super::packet_fields::{PacketFields, Ports};
use super::{Action, Charge, Decision, Path, SHUT};
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Block, CHAIN, Direction, NONE, PacketFilter, Rule, Rules, flag, forwarding, wanted,
};
use crate::session::{Destination, SessionIndex};

/// Result of matching a packet against a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleMatch {
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
    session: SessionIndex,
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
    fields: &PacketFields,
    session: SessionIndex,
    state: &LaneState<WORDS>,
    now: u64,
) -> Decision<'t> {
    let mut reason = DropReason::NoRule;
    let mut direction =
        if fields.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink };
    for (place, block) in chain(rules, blocks, session) {
        let users = AddressMatches::of(block, fields);
        let all = block.rules().iter().enumerate();
        for (number, rule) in all.filter(|(_, rule)| is_by(rule, fields)) {
            direction = direction_of_rule(rule);
            match users.matches_rule(block, rule, fields) {
                RuleMatch::Yes => {
                    let (version, family) = (rules.version(), fields.family);
                    let applied = RuleApplication {
                        block,
                        rule,
                        direction,
                        family,
                        session,
                        version,
                        state,
                        now,
                    };
                    let mut decision = applied.decide(fields.length);
                    decision.charge = decision.charge.by_rule(place, number as u16);
                    return decision;
                }
                RuleMatch::No => {}
                RuleMatch::ForeignSource => reason = DropReason::ForeignSource,
                RuleMatch::Unknown => {
                    return Decision::drop(DropReason::FragmentUnknown, rule.pdr, direction);
                }
            }
        }
    }
    Decision { action: Action::Drop(reason), ..Decision::drop(reason, 0, direction) }
}

pub(super) fn own_path<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    fields: &PacketFields,
    session: SessionIndex,
) -> Option<Path<'t>> {
    for (_, block) in chain(rules, blocks, session) {
        let users = AddressMatches::of(block, fields);
        for rule in block.rules().iter().filter(|rule| is_by(rule, fields)) {
            match users.matches_rule(block, rule, fields) {
                RuleMatch::Yes => {
                    let path = block.paths().get(usize::from(rule.path))?;
                    let goes =
                        rule.flags & SHUT == 0 && path.forwarding.what & forwarding::REDIRECT == 0;
                    let path =
                        Path { forwarding: &path.forwarding, peer6: &path.peer6, redirect: None };
                    return goes.then_some(path);
                }
                RuleMatch::No | RuleMatch::ForeignSource => {}
                RuleMatch::Unknown => return None,
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
    session: SessionIndex,
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
    let Some((block, rule)) = found else {
        return Decision::drop(DropReason::NoRule, 0, direction);
    };
    let family = 0; // the redirection was decided before
    let applied = RuleApplication { block, rule, direction, family, session, version, state, now };
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
const fn direction_of_rule(rule: &Rule) -> Direction {
    if rule.flags & flag::UPLINK != 0 { Direction::Uplink } else { Direction::Downlink }
}

/// Returns true if a rule is for packets of this ingress.
#[inline(always)]
fn is_by(rule: &Rule, fields: &PacketFields) -> bool {
    match fields.tunnel {
        Some(teid) => rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid,
        None => {
            rule.flags & flag::TUNNEL == 0
                && (rule.instance == forwarding::NO_INSTANCE || rule.instance == fields.instance)
        }
    }
}

/// Addresses of a block that a packet matches, one bit each.
struct AddressMatches {
    /// By its source.
    source: u64,
    /// By its destination.
    destination: u64,
}

impl AddressMatches {
    fn of(block: &Block, fields: &PacketFields) -> Self {
        let mut users = Self { source: 0, destination: 0 };
        for (place, address) in block.addresses().iter().take(64).enumerate() {
            let family = fields.family;
            users.source |= u64::from(address.holds(family, fields.source)) << place;
            users.destination |= u64::from(address.holds(family, fields.destination)) << place;
        }
        users
    }

    fn matches_rule(&self, block: &Block, rule: &Rule, fields: &PacketFields) -> RuleMatch {
        if rule.qfis != 0 && fields.qfi.is_none_or(|qfi| rule.qfis >> (qfi & 63) & 1 == 0) {
            return RuleMatch::No;
        }
        let filters = self.filters(block, rule, fields);
        if filters == RuleMatch::No || self.is_ue(block, rule, fields) {
            return filters;
        }
        if rule.flags & (flag::UPLINK | flag::CHECKED) == flag::UPLINK | flag::CHECKED {
            RuleMatch::ForeignSource
        } else {
            RuleMatch::No
        }
    }

    /// Returns true if the UE's address of the packet is one of the rule's.
    fn is_ue(&self, block: &Block, rule: &Rule, fields: &PacketFields) -> bool {
        let (here, is_neighbour) = match direction_of_rule(rule) {
            Direction::Uplink => {
                let path = block.paths().get(usize::from(rule.path));
                let is_control =
                    path.is_some_and(|path| path.forwarding.destination() == Destination::Control);
                (self.source, is_control && fields.is_solicitation())
            }
            Direction::Downlink => (self.destination, fields.is_advertisement()),
        };
        rule.users == 0 || rule.users & here != 0 || is_neighbour
    }

    fn filters(&self, block: &Block, rule: &Rule, fields: &PacketFields) -> RuleMatch {
        if rule.matches == 0 {
            return RuleMatch::Yes;
        }
        let first = usize::from(rule.first_match);
        let filters = block.matches().get(first..first + usize::from(rule.matches));
        let mut matches_rule = RuleMatch::No;
        for filter in filters.unwrap_or(&[]) {
            match self.filter(block, filter, direction_of_rule(rule), fields) {
                RuleMatch::Yes => return RuleMatch::Yes,
                RuleMatch::Unknown => matches_rule = RuleMatch::Unknown,
                _ => {}
            }
        }
        matches_rule
    }

    fn filter(
        &self,
        block: &Block,
        filter: &PacketFilter,
        direction: Direction,
        fields: &PacketFields,
    ) -> RuleMatch {
        let (local, remote) = match direction {
            Direction::Uplink => (self.source, self.destination),
            Direction::Downlink => (self.destination, self.source),
        };
        let is_at = |place: u8, here: u64| place == NONE || here >> (place & 63) & 1 != 0;
        let wanted = filter.wanted;
        let has = |bit: u16, it: bool| wanted & bit == 0 || it;
        let is_meant = is_at(filter.local, local)
            && is_at(filter.remote, remote)
            && has(wanted::PROTOCOL, filter.protocol == fields.protocol)
            && has(wanted::TOS, (filter.tos ^ fields.tos) & filter.tos_mask == 0)
            && has(wanted::LABEL, fields.family == 6 && filter.label == fields.flow_label);
        if !is_meant {
            return RuleMatch::No;
        }
        if wanted & (wanted::PORTS | wanted::SPI) == 0 {
            return RuleMatch::Yes;
        }
        transport(block, filter, direction, fields)
    }
}

/// Matches the transport header.
fn transport(
    block: &Block,
    filter: &PacketFilter,
    direction: Direction,
    fields: &PacketFields,
) -> RuleMatch {
    if fields.ports == Ports::Unknown {
        return RuleMatch::Unknown;
    }
    let wanted = filter.wanted;
    if wanted & wanted::SPI != 0 && fields.spi != Some(filter.spi) {
        return RuleMatch::No;
    }
    if wanted & wanted::PORTS == 0 {
        return RuleMatch::Yes;
    }
    let Ports::Known(source, destination) = fields.ports else { return RuleMatch::No };
    let (local, remote) = match direction {
        Direction::Uplink => (source, destination),
        Direction::Downlink => (destination, source),
    };
    let within = |port: u16, [first, last]: [u16; 2]| first <= port && port <= last;
    let among = |port: u16, [first, count]: [u16; 2]| {
        let ranges = usize::from(first)..usize::from(first) + usize::from(count);
        block.ports().get(ranges).is_some_and(|it| it.iter().any(|range| within(port, *range)))
    };
    let has = |bit: u16, it: bool| wanted & bit == 0 || it;
    let is_meant = has(wanted::REMOTE_PORT, within(remote, filter.remote_ports))
        && has(wanted::LOCAL_PORT, within(local, filter.local_ports))
        && has(wanted::REMOTE_PORTS, among(remote, filter.remote_ports))
        && has(wanted::LOCAL_PORTS, among(local, filter.local_ports));
    if is_meant { RuleMatch::Yes } else { RuleMatch::No }
}
