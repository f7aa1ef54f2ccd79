//! Packs the entries of complex sessions into blocks, in order.

use super::rule_entry::{CountedUrr, RuleEntry, meter_cost};
use super::{CompileError, counted, reports_drops};
use crate::rules::layout::session_rules::{
    AddressPrefix, Block, Builder, CHAIN, Count, Direction, EndMarkerEntry, Limit, Meter, NONE,
    OuterPath, PacketFilter, Rule, Rules, flag, forwarding, limit, wanted,
};
use crate::session::{Filter, FlowDescription, PdrId, Ports, Prefix, Session, Urr, Volume};

/// Returns the rules and blocks of a session that exceeds the simple form, with the end markers
/// that are due besides the newest. Without entries the blocks have only these.
pub(super) fn blocks(
    session: &Session,
    entries: &[RuleEntry<'_>],
    end_markers: Vec<EndMarkerEntry>,
) -> Result<(Rules, Vec<Block>), CompileError> {
    let mut pack = BlockPacker { session, blocks: Vec::new(), current: Builder::default() };
    for entry in entries {
        pack.add(entry)?;
    }
    for marker in end_markers {
        pack.add_end_marker(marker)?;
    }
    let blocks = pack.finish()?;
    let mut rules = Rules::empty(session.version);
    rules.uplink.common.flags |= flag::BLOCKS;
    rules.downlink.common.flags |= flag::BLOCKS;
    Ok((rules, blocks))
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

impl BlockPacker<'_> {
    fn add(&mut self, entry: &RuleEntry<'_>) -> Result<(), CompileError> {
        self.part(entry, &EntryPart { filters: &entry.filters, users: &entry.users })
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
        if full.rules.is_empty() && full.end_markers.is_empty() {
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
    let mut users = 0;
    for address in part.users {
        let place = Builder::place(&mut block.addresses, *address);
        users |= 1_u64.checked_shl(u32::try_from(place).ok()?)?;
    }
    let first_match = u8::try_from(block.matches.len()).ok()?;
    for filter in part.filters {
        let filter = filter_match(block, filter)?;
        block.matches.push(filter);
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
    Some(Rule {
        qfis: entry.qfis,
        users,
        flags: entry.flags,
        tunnel: entry.pdr.tunnel.map_or(0, |tunnel| tunnel.teid),
        meters,
        counts,
        hold_ms: entry.hold.1,
        instance: entry.instance.unwrap_or(forwarding::NO_INSTANCE),
        pdr: entry.pdr.id,
        hold_packets: entry.hold.0,
        first_match,
        matches: u8::try_from(part.filters.len()).ok()?,
        path,
        first_copy,
        copies: u8::try_from(entry.copies.len()).ok()?,
        reserved: 0,
    })
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
    let first = block.limits.windows(limits.len().max(1)).position(|it| it == limits);
    let first = first.unwrap_or_else(|| {
        block.limits.extend(&limits);
        block.limits.len() - limits.len()
    });
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

fn filter_match(block: &mut Builder, filter: &Filter) -> Option<PacketFilter> {
    let mut all = PacketFilter {
        wanted: 0,
        protocol: 0,
        tos: 0,
        tos_mask: 0,
        remote: NONE,
        local: NONE,
        reserved: 0,
        remote_ports: [0; 2],
        local_ports: [0; 2],
        spi: filter.spi.unwrap_or(0),
        label: filter.flow_label.unwrap_or(0) & 0xF_FFFF,
    };
    all.wanted |= if filter.spi.is_some() { wanted::SPI } else { 0 };
    all.wanted |= if filter.flow_label.is_some() { wanted::LABEL } else { 0 };
    if let Some((value, mask)) = filter.tos {
        all.wanted |= wanted::TOS;
        (all.tos, all.tos_mask) = (value, mask);
    }
    let Some(flow) = &filter.flow else { return Some(all) };
    let FlowDescription { protocol, remote, remote_ports, local, local_ports } = flow;
    if let Some(protocol) = protocol {
        all.wanted |= wanted::PROTOCOL;
        all.protocol = *protocol;
    }
    all.remote = prefix(block, *remote)?;
    all.local = prefix(block, *local)?;
    let remote = [wanted::REMOTE_PORT, wanted::REMOTE_PORTS];
    let local = [wanted::LOCAL_PORT, wanted::LOCAL_PORTS];
    all.remote_ports = ports(block, remote_ports, remote, &mut all.wanted)?;
    all.local_ports = ports(block, local_ports, local, &mut all.wanted)?;
    Some(all)
}

fn prefix(block: &mut Builder, prefix: Option<Prefix>) -> Option<u8> {
    let Some(prefix) = prefix else { return Some(NONE) };
    let address = AddressPrefix::new(prefix.address, prefix.length);
    let place = Builder::place(&mut block.addresses, address);
    u8::try_from(place).ok().filter(|place| *place < 64)
}

/// Stores a single range inline, several as their index among the block's ranges and their number.
fn ports(block: &mut Builder, ports: &Ports, bits: [u16; 2], wanted: &mut u16) -> Option<[u16; 2]> {
    match ports.as_slice() {
        [] => Some([0; 2]),
        [(first, last)] => {
            *wanted |= bits[0];
            Some([*first, *last])
        }
        several => {
            *wanted |= bits[1];
            let first = u16::try_from(block.ports.len()).ok()?;
            block.ports.extend(several.iter().map(|(first, last)| [*first, *last]));
            Some([first, u16::try_from(several.len()).ok()?])
        }
    }
}
