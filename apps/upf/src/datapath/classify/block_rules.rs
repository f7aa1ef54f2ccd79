//! Classification by rule blocks: the first rule that matches, and what it refers to.

use fastlane::table::{ArrayReader, ArrayWriter, Guard};

use super::apply_rule::RuleApplication;
use super::{Charge, Classifier, Decision, PacketFields, Path, Ports, SHUT};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Block, CHAIN, Direction, DueEndMarker, NONE, OuterPath, PacketFilter, Rule, Rules, flag,
    forwarding, wanted,
};
use crate::session::Destination;

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

/// Access to blocks by index.
pub trait Blocks<'t> {
    /// Returns the block at an index.
    fn block(&self, index: usize) -> Option<&'t Block>;
}

/// Blocks of the table during a turn.
#[derive(Clone, Copy, Debug)]
pub struct BlocksInTurn<'t, G: ?Sized> {
    /// Table of blocks.
    pub reader: &'t ArrayReader<Block>,
    /// Turn, which keeps blocks valid.
    pub turn: &'t G,
}

impl<'t, G: AsRef<Guard> + ?Sized> Blocks<'t> for BlocksInTurn<'t, G> {
    #[inline]
    fn block(&self, index: usize) -> Option<&'t Block> {
        self.reader.get(self.turn, index)
    }
}

/// Access for the writer, which is no lane.
impl<'t> Blocks<'t> for &'t ArrayWriter<Block> {
    fn block(&self, index: usize) -> Option<&'t Block> {
        self.get(index)
    }
}

/// Blocks in private memory by index, for tests and tools.
impl<'t> Blocks<'t> for &'t [Block] {
    fn block(&self, index: usize) -> Option<&'t Block> {
        self.get(index)
    }
}

impl<'t, B: Blocks<'t>> Classifier<'t, '_, B> {
    /// Returns the blocks of the session with 1 + their indices, up to the first one of another
    /// version.
    fn chain(&self) -> impl Iterator<Item = (u32, &'t Block)> {
        let mut next = self.rules.cold.block;
        let version = self.rules.version();
        std::iter::from_fn(move || {
            let number = next;
            let block = self.blocks.block(number.checked_sub(1)? as usize)?;
            let is_sound = block.version == version && block.session == self.session.0;
            next = if is_sound { block.next } else { 0 };
            is_sound.then_some((number, block))
        })
        .take(CHAIN)
    }

    /// Returns the end markers that are due besides that of the rules, the oldest first.
    pub fn end_markers(&self) -> impl Iterator<Item = DueEndMarker> {
        let entries = self.chain().flat_map(|(_, block)| block.end_markers());
        entries.map(|entry| DueEndMarker::from(*entry))
    }

    /// Returns a rule of a block, to be applied to a packet.
    fn application<'a>(
        &'a self,
        block: &'t Block,
        rule: &'t Rule,
        direction: Direction,
        family: u8,
    ) -> RuleApplication<'t, 'a> {
        let Self { session, state, now, .. } = *self;
        let version = block.version;
        RuleApplication { block, rule, direction, family, session, version, state, now }
    }
}

#[inline(never)]
pub(super) fn decide<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Decision<'t> {
    let mut reason = DropReason::NoRule;
    let mut direction =
        if fields.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink };
    for (number, block) in classifier.chain() {
        let addresses = AddressMatches::of(block, fields);
        let all = (0_u16..).zip(block.rules());
        for (index, rule) in all.filter(|(_, rule)| is_by(rule, fields)) {
            direction = direction_of_rule(rule);
            match addresses.matches_rule(block, rule, fields) {
                RuleMatch::Yes => {
                    let applied = classifier.application(block, rule, direction, fields.family);
                    let mut decision = applied.decide(fields.length);
                    decision.charge = decision.charge.by_rule(number, index);
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
    Decision::drop(reason, 0, direction)
}

pub(super) fn own_path<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Option<Path<'t>> {
    for (_, block) in classifier.chain() {
        let addresses = AddressMatches::of(block, fields);
        for rule in block.rules().iter().filter(|rule| is_by(rule, fields)) {
            match addresses.matches_rule(block, rule, fields) {
                RuleMatch::Yes => {
                    let path = block.paths().get(usize::from(rule.path))?;
                    let is_redirected = path.forwarding.what & forwarding::REDIRECT != 0;
                    let is_open = rule.flags & SHUT == 0 && !is_redirected;
                    return is_open.then_some(path_of(path));
                }
                RuleMatch::No | RuleMatch::ForeignSource => {}
                RuleMatch::Unknown => return None,
            }
        }
    }
    None
}

/// Returns the path of the first rule of a tunnel; `None` if its packets are dropped or held.
pub(super) fn tunnel_path<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    teid: u32,
) -> Option<Path<'t>> {
    let Classifier { rules, blocks, .. } = classifier;
    let (block, rule) = rule_of_tunnel(rules, blocks, teid)?;
    let path = block.paths().get(usize::from(rule.path))?;
    (rule.flags & (flag::DROP | flag::HOLD) == 0).then_some(path_of(path))
}

const fn path_of(path: &OuterPath) -> Path<'_> {
    Path { forwarding: &path.forwarding, peer6: &path.peer6, redirect: None }
}

/// Charges a packet that a rule of a block has passed, if the rule still passes it.
#[inline(never)]
pub(super) fn charge<'t, const MODE: u8, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    charge: Charge,
) -> Decision<'t> {
    let (version, direction) = (charge.version(), charge.direction());
    let is_sound =
        |block: &&Block| block.version == version && block.session == classifier.session.0;
    let block = charge.block().and_then(|index| classifier.blocks.block(index));
    let found = block.filter(is_sound).and_then(|block| {
        let rule = block.rules().get(charge.rule())?;
        Some((block, rule))
    });
    let Some((block, rule)) = found else {
        return Decision::drop(DropReason::NoRule, 0, direction);
    };
    let family = 0; // the redirection was decided before
    let applied = classifier.application(block, rule, direction, family);
    applied.charge::<MODE>(charge.length(), charge.path())
}

/// Returns true if a tunnel belongs to the session of the rules.
pub(super) fn has_tunnel<'t>(rules: &'t Rules, blocks: &impl Blocks<'t>, teid: u32) -> bool {
    rule_of_tunnel(rules, blocks, teid).is_some()
}

/// Returns the first rule of a tunnel, with its block.
fn rule_of_tunnel<'t>(
    rules: &'t Rules,
    blocks: &impl Blocks<'t>,
    teid: u32,
) -> Option<(&'t Block, &'t Rule)> {
    let mut next = rules.cold.block;
    for _ in 0..CHAIN {
        let block = blocks.block(next.checked_sub(1)? as usize)?;
        if block.version != rules.version() {
            return None;
        }
        let is_by = |rule: &&Rule| rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid;
        if let Some(rule) = block.rules().iter().find(is_by) {
            return Some((block, rule));
        }
        next = block.next;
    }
    None
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
        let mut matches = Self { source: 0, destination: 0 };
        for (bit, address) in block.addresses().iter().take(64).enumerate() {
            let family = fields.family;
            matches.source |= u64::from(address.holds(family, fields.source)) << bit;
            matches.destination |= u64::from(address.holds(family, fields.destination)) << bit;
        }
        matches
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
        let is_at = |bit: u8, matches: u64| bit == NONE || matches >> (bit & 63) & 1 != 0;
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
