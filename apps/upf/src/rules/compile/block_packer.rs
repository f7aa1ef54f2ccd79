//! Packs the entries of complex sessions into blocks, in order.

use super::block_builder::Builder;
use super::filter_compiler::{FieldValue, PacketEnd, PacketFilter};
use super::rule_entry::{CountedUrr, RuleEntry, meter_cost};
use super::slot_charges::slot_charges;
use super::{CompileError, counted, reports_drops};
use crate::rules::layout::session_rules::{
    AddressPrefix, Block, CHAIN, Count, Direction, EndMarkerEntry, Limit, Meter, NONE, OuterPath,
    Rule, Rules, field, flag, forwarding, limit,
};
use crate::session::{Filter, PdrId, Prefix, Session, Urr, Volume};

/// Maximum number of octets that packets read of a block for both directions: ten cache lines. In a
/// longer one each packet would fetch the classifier and the rules of the other direction, too.
const SHARED: u16 = 640;

/// Blocks of a session in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedBlocks {
    pub(super) blocks: Vec<Block>,
    /// Index of the first one with rules for packets without a tunnel, if there are any.
    pub(super) untunnelled: usize,
}

/// Returns the rules and blocks of a session that exceeds the simple form, with the end markers
/// that are due besides the newest. Without entries the blocks have only these.
///
/// A packet matches either rules with a tunnel or rules without one. Those with a tunnel come
/// first. If not all are in one block, or packets would read much of it in vain, the others begin
/// with a block of their own.
pub(super) fn blocks(
    session: &Session,
    entries: &[RuleEntry<'_>],
    end_markers: Vec<EndMarkerEntry>,
) -> Result<(Rules, PackedBlocks), CompileError> {
    let mut pack = BlockPacker { session, blocks: Vec::new(), current: Builder::default() };
    let is_tunnelled = |entry: &&RuleEntry<'_>| entry.pdr.tunnel.is_some();
    for entry in entries.iter().filter(is_tunnelled) {
        pack.add(entry)?;
    }
    let others = entries.iter().filter(|entry| !is_tunnelled(entry));
    let all = others.clone().try_fold(pack.current.clone(), |block, entry| {
        with_rule(&block, entry, &EntryPart::of(entry))
    });
    let is_short = |all: &Builder| all.build(0, 0).is_some_and(|block| block.octets() <= SHARED);
    let is_alone = pack.current.is_empty() || others.clone().next().is_none();
    let untunnelled = match all {
        Some(all) if is_alone || is_short(&all) => {
            pack.current = all;
            pack.blocks.len()
        }
        _ => {
            pack.close(0)?;
            let first = pack.blocks.len();
            others.clone().try_for_each(|entry| pack.add(entry))?;
            first
        }
    };
    for marker in end_markers {
        pack.add_end_marker(marker)?;
    }
    let blocks = pack.finish()?;
    let mut rules = Rules::empty(session.version);
    rules.uplink.common.flags |= flag::BLOCKS;
    rules.downlink.common.flags |= flag::BLOCKS;
    Ok((rules, PackedBlocks { blocks, untunnelled }))
}

struct BlockPacker<'s> {
    session: &'s Session,
    blocks: Vec<Block>,
    current: Builder,
}

/// Part of an entry that becomes one rule.
struct EntryPart<'e> {
    filters: &'e [Filter],
    users: &'e [AddressPrefix],
}

impl<'e> EntryPart<'e> {
    fn of(entry: &'e RuleEntry<'_>) -> Self {
        Self { filters: &entry.filters, users: &entry.users }
    }
}

impl BlockPacker<'_> {
    fn add(&mut self, entry: &RuleEntry<'_>) -> Result<(), CompileError> {
        self.part(entry, &EntryPart::of(entry))
    }

    /// Adds a part of an entry: to this block, to the next one, or divided in two.
    fn part(&mut self, entry: &RuleEntry<'_>, part: &EntryPart<'_>) -> Result<(), CompileError> {
        if let Some(with_rule) = with_rule(&self.current, entry, part) {
            self.current = with_rule;
            return Ok(());
        }
        if let Some(alone) = with_rule(&Builder::default(), entry, part) {
            self.close(entry.pdr.id)?;
            self.current = alone;
            return Ok(());
        }
        let EntryPart { filters, users } = *part;
        let parts = if filters.len() > 1 {
            let (one, other) = filters.split_at(filters.len() / 2);
            [EntryPart { filters: one, users }, EntryPart { filters: other, users }]
        } else if users.len() > 1 {
            let (one, other) = users.split_at(users.len() / 2);
            [EntryPart { filters, users: one }, EntryPart { filters, users: other }]
        } else {
            return Err(CompileError::TooMuch { pdr: entry.pdr.id });
        };
        parts.iter().try_for_each(|part| self.part(entry, part))
    }

    fn add_end_marker(&mut self, marker: EndMarkerEntry) -> Result<(), CompileError> {
        self.current.end_markers.push(marker);
        if !self.current.fits() {
            self.current.end_markers.pop();
            self.close(0)?;
            self.current.end_markers.push(marker);
        }
        Ok(())
    }

    fn close(&mut self, pdr: PdrId) -> Result<(), CompileError> {
        let full = std::mem::take(&mut self.current);
        if full.is_empty() {
            return Ok(());
        }
        if self.blocks.len() == CHAIN {
            return Err(CompileError::TooLong);
        }
        let block = full.build(self.session.id.0, self.session.version as u32);
        self.blocks.push(block.ok_or(CompileError::TooMuch { pdr })?);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Block>, CompileError> {
        self.close(0)?;
        Ok(self.blocks)
    }
}

/// Returns a block with one more rule, or `None` if it does not fit.
fn with_rule(block: &Builder, entry: &RuleEntry<'_>, part: &EntryPart<'_>) -> Option<Builder> {
    let mut block = block.clone();
    let rule = rule(&mut block, entry, part)?;
    block.rules.push(rule);
    block.fits().then_some(block)
}

fn rule(block: &mut Builder, entry: &RuleEntry<'_>, part: &EntryPart<'_>) -> Option<Rule> {
    let first_user = u8::try_from(Builder::place_list(&mut block.users, part.users)).ok()?;
    let users = u8::try_from(part.users.len()).ok()?;
    let first_filter = u8::try_from(block.filters.len()).ok()?;
    let any = [Filter::default()];
    let filters = if part.filters.is_empty() { &any } else { part.filters };
    for filter in filters {
        let filter = packet_filter(filter, entry.direction);
        let rule = block.rules.len();
        let is_tunnelled = entry.pdr.tunnel.is_some();
        block.filters.push(PacketFilter { rule, is_tunnelled, ..filter });
    }
    let mut meters = 0;
    for qer in &entry.meters {
        let [up, down] =
            [Direction::Uplink, Direction::Downlink].map(|direction| meter_cost(qer, direction));
        let meter = Meter {
            line: qer.line,
            cost: [up.cost, down.cost],
            burst: [up.burst, down.burst],
            shift: [up.shift, down.shift],
            reserved: 0,
        };
        meters |= bit(Builder::place(&mut block.meters, meter))?;
    }
    let mut counts = 0;
    for count in &entry.counts {
        let count = urr(block, count)?;
        counts |= bit(Builder::place(&mut block.counts, count))?;
    }
    let first_copy = u8::try_from(block.paths.len()).ok()?;
    block.paths.extend(&entry.copies);
    let path = path(block, entry.path, entry.redirect.as_deref())?;
    let charges = if is_unlimited(entry) { slot_charges(entry, limits) } else { None };
    let mut set = 0;
    for charge in charges.iter().flatten() {
        set |= bit(Builder::place(&mut block.charges, *charge))?;
    }
    let instance = entry.instance.unwrap_or(forwarding::NO_INSTANCE);
    Some(Rule {
        qfis: entry.qfis,
        flags: entry.flags | if charges.is_some() { flag::UNLIMITED } else { 0 },
        ingress: entry.pdr.tunnel.map_or(instance.into(), |tunnel| tunnel.teid),
        meters,
        counts,
        charges_or_hold_ms: if charges.is_some() { set } else { entry.hold.1 },
        pdr: entry.pdr.id,
        hold_packets: entry.hold.0,
        first_filter,
        filters: u8::try_from(filters.len()).ok()?,
        path,
        first_copy,
        copies: u8::try_from(entry.copies.len()).ok()?,
        first_user,
        users,
        reserved: 0,
    })
}

/// Returns true if nothing but meters can stop the packets of an entry, which are neither copied
/// nor redirected.
fn is_unlimited(entry: &RuleEntry<'_>) -> bool {
    let is_quota = |limit: &Limit| limit.what & limit::QUOTA != 0;
    let is_limited = |count: &CountedUrr<'_>| {
        count.urr.watch().is_stopped || limits(count.urr).iter().any(is_quota)
    };
    entry.flags & (flag::DROP | flag::HOLD | flag::CLOSED | flag::DUPLICATE) == 0
        && entry.redirect.is_none()
        && !entry.counts.iter().any(is_limited)
}

fn bit(place: usize) -> Option<u32> {
    1_u32.checked_shl(u32::try_from(place).ok()?)
}

/// Returns the index of a path, whose redirection goes into the text.
fn path(block: &mut Builder, mut path: OuterPath, redirect: Option<&[u8]>) -> Option<u8> {
    if let Some(bytes) = redirect {
        let found = block.text.windows(bytes.len()).position(|it| it == bytes);
        let place = found.unwrap_or_else(|| {
            block.text.extend_from_slice(bytes);
            block.text.len() - bytes.len()
        });
        path.forwarding.what |= forwarding::REDIRECT;
        path.forwarding.what &= !(forwarding::GTPU | forwarding::UDP | forwarding::V6);
        [path.peer6[0], path.peer6[1]] = u16::try_from(place).ok()?.to_ne_bytes();
    }
    u8::try_from(Builder::place(&mut block.paths, path)).ok().filter(|it| *it != NONE)
}

fn urr(block: &mut Builder, count: &CountedUrr<'_>) -> Option<Count> {
    let CountedUrr { urr, exhausted, redirect } = count;
    let watch = urr.watch();
    let limits = limits(urr);
    let first = Builder::place_list(&mut block.limits, &limits);
    let exhausted = match exhausted {
        Some(to) => path(block, *to, redirect.as_deref())?,
        None => NONE,
    };
    Some(Count {
        line: urr.progress.line,
        flags: counted(&watch) | if reports_drops(urr) { flag::DROPPED } else { 0 },
        first_limit: u8::try_from(first).ok()?,
        limits: u8::try_from(limits.len()).ok()?,
        exhausted,
        reserved: 0,
    })
}

/// Returns the limits of a URR.
fn limits(urr: &Urr) -> Vec<Limit> {
    let watch = urr.watch();
    let mut limits = Vec::new();
    let mut add = |at: Option<u64>, what: u8| {
        limits.extend(at.map(|at| Limit { at, what, reserved: [0; 7] }));
    };
    for (Volume { total, uplink, downlink }, quota) in
        [(watch.threshold, 0), (watch.quota, limit::QUOTA)]
    {
        add(total, limit::TOTAL | quota);
        add(uplink, limit::UPLINK | quota);
        add(downlink, limit::DOWNLINK | quota);
    }
    add(watch.deadline, limit::TIME | limit::QUOTA);
    limits
}

/// Returns a filter by source and destination, which are those of the remote end and the UE or the
/// other way round.
fn packet_filter(filter: &Filter, direction: Direction) -> PacketFilter {
    let Filter { id: _, flow, tos, spi, flow_label } = filter;
    let mut packet_filter = PacketFilter::default();
    let others = &mut packet_filter.others;
    let value = |field, value| FieldValue { field, value, mask: 0 };
    let protocol = flow.as_ref().and_then(|flow| flow.protocol);
    others.extend(protocol.map(|protocol| value(field::PROTOCOL, protocol.into())));
    let tos = tos.map(|(tos, mask)| (u32::from(tos & mask), mask));
    others.extend(tos.map(|(tos, mask)| FieldValue { mask, ..value(field::TOS, tos) }));
    others.extend(flow_label.map(|label| value(field::FLOW_LABEL, label & 0xF_FFFF)));
    others.extend(spi.map(|spi| value(field::SPI, spi)));
    let Some(flow) = flow else { return packet_filter };
    let prefix = |prefix: Prefix| AddressPrefix::new(prefix.address, prefix.length);
    let remote = PacketEnd { prefix: flow.remote.map(prefix), ports: flow.remote_ports.clone() };
    let local = PacketEnd { prefix: flow.local.map(prefix), ports: flow.local_ports.clone() };
    (packet_filter.source, packet_filter.destination) = match direction {
        Direction::Uplink => (local, remote),
        Direction::Downlink => (remote, local),
    };
    packet_filter
}
