//! Classification by rule blocks: the first rule that matches, and what it refers to.

use fastlane::table::{ArrayReader, ArrayWriter, Guard};

use super::apply_rule::RuleApplication;
use super::filter_match::FilterMatch;
use super::{Charge, Classifier, Decision, ForwardDecision, PacketFields, Path, SHUT};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{
    Block, CHAIN, Direction, DueEndMarker, OuterPath, Rule, Rules, flag, forwarding,
};
use crate::session::{Destination, PdrId};

/// First rule of a block that matches a packet, as far as it can be decided.
enum RuleMatch<'t> {
    /// The rule, and its index in the block.
    Found(&'t Rule, u16),
    /// The rule may match: the packet is a later fragment whose first one was not seen.
    Unknown(&'t Rule),
    /// No rule matches. True if one does except for the UE's address.
    None { is_foreign: bool },
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
    /// Returns the blocks for packets of this ingress with 1 + their indices, up to the first one
    /// of another version.
    #[inline(always)]
    fn blocks_for(&self, fields: &PacketFields) -> impl Iterator<Item = (u32, &'t Block)> {
        let direction = ingress_direction(fields);
        let first = self.rules.first_block(direction).map_or(0, |first| first.index + 1);
        self.chain_from(first, self.rules.version_for(direction))
    }

    /// Returns the blocks of a chain that begins with 1 + an index, as far as they have this
    /// version.
    #[inline(always)]
    fn chain_from(&self, first: u32, version: u32) -> impl Iterator<Item = (u32, &'t Block)> {
        let mut next = first;
        std::iter::from_fn(move || {
            let number = next;
            let block = self.blocks.block(number.checked_sub(1)? as usize)?;
            let is_sound = block.is_of(self.session.0, version);
            next = if is_sound { block.next } else { 0 };
            is_sound.then_some((number, block))
        })
        .take(CHAIN)
    }

    /// Returns the end markers that are due besides that of the rules, the oldest first.
    pub fn end_markers(&self) -> impl Iterator<Item = DueEndMarker> {
        let chain = self.chain_from(self.rules.cold.block, self.rules.version());
        let entries = chain.flat_map(|(_, block)| block.end_markers());
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
    for (number, block) in classifier.blocks_for(fields) {
        match first_rule(block, fields) {
            RuleMatch::Found(rule, index) => {
                let direction = direction_of_rule(rule);
                let applied = classifier.application(block, rule, direction, fields.family);
                let mut decision = applied.decide(fields.length);
                decision.charge = decision.charge.by_rule(number, index);
                return decision;
            }
            RuleMatch::Unknown(rule) => {
                let direction = direction_of_rule(rule);
                return Decision::drop(DropReason::FragmentUnknown, rule.pdr, direction);
            }
            RuleMatch::None { is_foreign: true } => reason = DropReason::ForeignSource,
            RuleMatch::None { is_foreign: false } => {}
        }
    }
    Decision::drop(reason, 0, direction_without_match(classifier, fields))
}

/// Decides about packets whose rule only meters can stop. `None` if [`decide`] has to decide.
///
/// Fields of the packet stay in registers: functions that are called take copies.
#[inline(always)]
pub(super) fn decide_unlimited<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Option<ForwardDecision<'t>> {
    let Classifier { rules, session, blocks, .. } = classifier;
    let ingress = ingress_direction(fields);
    let first = rules.first_block(ingress)?.index;
    let block = blocks.block(first as usize)?;
    if !block.is_of(session.0, rules.version_for(ingress)) {
        return None;
    }
    let FilterMatch { matching, unknown: 0 } = FilterMatch::of(block, fields) else { return None };
    if matching == 0 {
        return decide_by_later_block(classifier, block, *fields);
    }
    let index = block.rule_of(matching.trailing_zeros());
    let rule = block.rule(index)?;
    let is_first = is_by(rule, fields) && has_qfi(rule, fields) && has_user(block, rule, fields);
    if is_first { forwarded(block, rule, first, index, fields.length) } else { None }
}

/// Decides likewise by the blocks behind the first one.
#[inline(never)]
fn decide_by_later_block<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    first: &Block,
    fields: PacketFields,
) -> Option<ForwardDecision<'t>> {
    for (number, block) in classifier.chain_from(first.next, first.version) {
        match first_rule(block, &fields) {
            RuleMatch::Found(rule, index) => {
                return forwarded(block, rule, number - 1, index.into(), fields.length);
            }
            RuleMatch::None { .. } => {}
            RuleMatch::Unknown(_) => return None,
        }
    }
    None
}

/// Returns the decision to forward `length` octets by a rule; `None` if more than meters can stop
/// them.
#[inline(always)]
fn forwarded<'t>(
    block: &'t Block,
    rule: &Rule,
    number: u32,
    index: usize,
    length: u32,
) -> Option<ForwardDecision<'t>> {
    let path = block.path(rule.path)?;
    if rule.flags & flag::UNLIMITED == 0 {
        return None;
    }
    let direction = direction_of_rule(rule);
    let charge = Charge::new(block.version, length, direction);
    let charge = charge.by_path(rule.path).by_rule(number + 1, index as u16);
    Some(ForwardDecision { path: path_of(path), direction, charge })
}

/// Returns the direction of a packet that no rule matches: that of the last rule of its ingress.
#[cold]
fn direction_without_match<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Direction {
    let rules = classifier.blocks_for(fields).flat_map(|(_, block)| block.rules());
    let last = rules.filter(|rule| is_by(rule, fields)).last();
    last.map_or(ingress_direction(fields), direction_of_rule)
}

pub(super) fn own_path<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    fields: &PacketFields,
) -> Option<Path<'t>> {
    for (_, block) in classifier.blocks_for(fields) {
        match first_rule(block, fields) {
            RuleMatch::Found(rule, _) => {
                let path = block.path(rule.path)?;
                let is_redirected = path.forwarding.what & forwarding::REDIRECT != 0;
                let is_open = rule.flags & SHUT == 0 && !is_redirected;
                return is_open.then_some(path_of(path));
            }
            RuleMatch::Unknown(_) => return None,
            RuleMatch::None { .. } => {}
        }
    }
    None
}

/// Returns the first rule of a block that matches a packet.
#[inline(always)]
fn first_rule<'t>(block: &'t Block, fields: &PacketFields) -> RuleMatch<'t> {
    let FilterMatch { mut matching, mut unknown } = FilterMatch::of(block, fields);
    let mut is_foreign = false;
    while matching | unknown != 0 {
        let first = (matching | unknown).trailing_zeros();
        let index = block.rule_of(first);
        let Some(rule) = block.rule(index) else { break };
        if is_by(rule, fields) && has_qfi(rule, fields) {
            if !is_ue(block, rule, fields) {
                let checked = flag::UPLINK | flag::CHECKED;
                is_foreign |= rule.flags & checked == checked;
            } else if unknown == 0 || matching & rule.filter_set() != 0 {
                return RuleMatch::Found(rule, index as u16);
            } else {
                return RuleMatch::Unknown(rule);
            }
        }
        let set = rule.filter_set() | 1 << first;
        (matching, unknown) = (matching & !set, unknown & !set);
    }
    RuleMatch::None { is_foreign }
}

/// Returns true if a packet has one of the QoS flows of a rule.
#[inline(always)]
fn has_qfi(rule: &Rule, fields: &PacketFields) -> bool {
    rule.qfis == 0 || fields.qfi.is_some_and(|qfi| rule.qfis >> (qfi & 63) & 1 != 0)
}

/// Returns true if the UE's address of the packet is one of the rule's, or if it is exempt.
#[inline(always)]
fn is_ue(block: &Block, rule: &Rule, fields: &PacketFields) -> bool {
    has_user(block, rule, fields) || is_neighbour(block, rule, fields)
}

/// Returns true if the UE's address of the packet is one of the rule's.
#[inline(always)]
fn has_user(block: &Block, rule: &Rule, fields: &PacketFields) -> bool {
    if rule.users == 0 {
        return true;
    }
    let address = match direction_of_rule(rule) {
        Direction::Uplink => fields.source,
        Direction::Downlink => fields.destination,
    };
    let first = usize::from(rule.first_user);
    let users = block.users().get(first..first + usize::from(rule.users)).unwrap_or_default();
    match fields.family {
        4 => users.iter().any(|user| user.holds_v4((address >> 64) as u64)),
        family => users.iter().any(|user| user.holds(family, address)),
    }
}

/// Returns true for Neighbour Discovery between the UE and its router.
#[inline(never)]
fn is_neighbour(block: &Block, rule: &Rule, fields: &PacketFields) -> bool {
    match direction_of_rule(rule) {
        Direction::Uplink => {
            let path = block.path(rule.path);
            let is_control =
                path.is_some_and(|path| path.forwarding.destination() == Destination::Control);
            is_control && fields.is_solicitation()
        }
        Direction::Downlink => fields.is_advertisement(),
    }
}

/// Returns the path of the first rule of a tunnel; `None` if its packets are dropped or held.
pub(super) fn tunnel_path<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    teid: u32,
) -> Option<Path<'t>> {
    let Classifier { rules, blocks, .. } = classifier;
    let (block, rule) = rule_of_tunnel(rules, blocks, teid)?;
    let path = block.path(rule.path)?;
    (rule.flags & (flag::DROP | flag::HOLD) == 0).then_some(path_of(path))
}

/// Returns the TEID of the first rule for downlink packets from a tunnel.
pub(super) fn downlink_tunnel<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
) -> Option<u32> {
    let rules = classifier.rules;
    let first = rules.first_block(Direction::Uplink).map_or(0, |first| first.index + 1);
    let chain = classifier.chain_from(first, rules.version_for(Direction::Uplink));
    let mut rules = chain.flat_map(|(_, block)| block.rules());
    let is_it = |rule: &&Rule| {
        rule.flags & flag::TUNNEL != 0 && direction_of_rule(rule) == Direction::Downlink
    };
    rules.find(is_it).map(|rule| rule.ingress)
}

const fn path_of(path: &OuterPath) -> Path<'_> {
    Path { forwarding: &path.forwarding, peer6: &path.peer6, redirect: None }
}

/// Charges a packet by a rule that only meters can stop, and returns its PDR. If it returns `None`
/// it has done nothing, and [`charge`] has to charge.
#[inline(never)]
pub(super) fn charge_unlimited<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    charge: Charge,
) -> Option<PdrId> {
    let (block, rule) = rule_of_charge(classifier, charge)?;
    let is_unlimited = rule.flags & flag::UNLIMITED != 0;
    let applied = classifier.application(block, rule, charge.direction(), 0);
    (is_unlimited && applied.charge_slots(charge.length())).then_some(rule.pdr)
}

/// Charges a packet that a rule of a block has passed, if the rule still passes it.
#[inline(never)]
pub(super) fn charge<'t, const MODE: u8, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    charge: Charge,
) -> Decision<'t> {
    let direction = charge.direction();
    let Some((block, rule)) = rule_of_charge(classifier, charge) else {
        return Decision::drop(DropReason::NoRule, 0, direction);
    };
    let family = 0; // the redirection was decided before
    let applied = classifier.application(block, rule, direction, family);
    applied.charge::<MODE>(charge.length(), charge.path())
}

/// Returns the rule that a charge names, with its block.
#[inline(always)]
fn rule_of_charge<'t, B: Blocks<'t>>(
    classifier: &Classifier<'t, '_, B>,
    charge: Charge,
) -> Option<(&'t Block, &'t Rule)> {
    let block = classifier.blocks.block(charge.block()?)?;
    let rule = block.rule(charge.rule())?;
    block.is_of(classifier.session.0, charge.version()).then_some((block, rule))
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
    let mut next = rules.first_block(Direction::Uplink).map_or(0, |first| first.index + 1);
    for _ in 0..CHAIN {
        let block = blocks.block(next.checked_sub(1)? as usize)?;
        if !block.is_of(block.session, rules.version_for(Direction::Uplink)) {
            return None;
        }
        let is_by = |rule: &&Rule| rule.flags & flag::TUNNEL != 0 && rule.ingress == teid;
        if let Some(rule) = block.rules().iter().find(is_by) {
            return Some((block, rule));
        }
        next = block.next;
    }
    None
}

/// Returns the direction of most packets of an ingress.
#[inline(always)]
const fn ingress_direction(fields: &PacketFields) -> Direction {
    if fields.tunnel.is_some() { Direction::Uplink } else { Direction::Downlink }
}

#[inline(always)]
const fn direction_of_rule(rule: &Rule) -> Direction {
    if rule.flags & flag::UPLINK != 0 { Direction::Uplink } else { Direction::Downlink }
}

/// Returns true if a rule is for packets of this ingress.
#[inline(always)]
fn is_by(rule: &Rule, fields: &PacketFields) -> bool {
    match fields.tunnel {
        Some(teid) => rule.flags & flag::TUNNEL != 0 && rule.ingress == teid,
        None => {
            let is_named = |instance: u16| rule.ingress == u32::from(instance);
            rule.flags & flag::TUNNEL == 0
                && (is_named(forwarding::NO_INSTANCE) || is_named(fields.instance))
        }
    }
}
