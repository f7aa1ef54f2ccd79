//! Compiles sessions that fit the simple form: one PDR per direction, at most one QER and one URR,
//! one cache line each.

use super::rule_entry::{CountedUrr, RuleEntry, meter_cost};
use crate::rules::layout::session_rules::{
    AddressPrefix, Direction, DirectionRules, NEVER, Rules, flag, forwarding,
};
use crate::session::{Session, Source, Volume, Watch};

/// Returns the rules of a session in the simple form, or `None` if they exceed it.
pub(super) fn rules(session: &Session, entries: &[RuleEntry<'_>]) -> Option<Rules> {
    let of = |direction| entries.iter().filter(move |it| it.direction == direction);
    if of(Direction::Uplink).count() > 1 || of(Direction::Downlink).count() > 1 {
        return None;
    }
    let (up, down) = (of(Direction::Uplink).next(), of(Direction::Downlink).next());
    let mut rules = Rules::empty(session.version);
    let watch = watch(session, [up, down])?;
    if let Some(entry) = up {
        // A packet without a tunnel is downlink; its other rules are never read.
        entry.pdr.tunnel.as_ref()?;
        rules.uplink.common = direction_rules(session, entry, watch.as_ref())?;
        if entry.path.forwarding.what & forwarding::V6 != 0 {
            return None;
        }
        for address in &entry.users {
            user(&mut rules, address)?;
        }
    }
    if let Some(entry) = down {
        let by_tunnel = entry.pdr.tunnel.is_some() && !entry.users.is_empty();
        if by_tunnel || entry.pdr.source == Source::Control {
            return None;
        }
        rules.downlink.common = direction_rules(session, entry, watch.as_ref())?;
        rules.downlink.peer6 = entry.path.peer6;
        rules.downlink.instance = entry.pdr.instance.unwrap_or(forwarding::NO_INSTANCE);
    }
    let tunnels = [up, down].map(|it| it.and_then(|entry| entry.pdr.tunnel));
    if let [Some(one), Some(other)] = tunnels
        && one.teid == other.teid
    {
        return None;
    }
    (rules.cold.hold_packets, rules.cold.hold_ms) = hold([up, down])?;
    limited(&mut rules, watch.as_ref())?;
    Some(rules)
}

/// Sets a UE address that uplink packets must have.
fn user(rules: &mut Rules, address: &AddressPrefix) -> Option<()> {
    let flags = &mut rules.uplink.common.flags;
    let bit = match (address.family, address.length) {
        (4, 32) => flag::UE4,
        (6, 64) => flag::UE6,
        _ => return None,
    };
    if *flags & bit != 0 {
        return None;
    }
    *flags |= bit;
    match bit {
        flag::UE4 => rules.uplink.ue4 = (address.high >> 32) as u32,
        _ => rules.uplink.ue6 = address.high,
    }
    Some(())
}

/// Returns the hold limits if both directions agree.
fn hold(sides: [Option<&RuleEntry<'_>>; 2]) -> Option<(u16, u32)> {
    let holds = |entry: &&RuleEntry<'_>| entry.flags & flag::HOLD != 0;
    let mut limits = sides.into_iter().flatten().filter(holds).map(|entry| entry.hold);
    let first = limits.next();
    limits.all(|hold| Some(hold) == first).then_some(first.unwrap_or_default())
}

/// Returns what the only URR watches; `None` if there are several, or one whose slot is not the
/// session's.
#[expect(clippy::option_option, reason = "simple without a URR, simple with one, not simple")]
fn watch(session: &Session, sides: [Option<&RuleEntry<'_>>; 2]) -> Option<Option<Watch>> {
    let mut found: Option<&CountedUrr<'_>> = None;
    for entry in sides.into_iter().flatten() {
        match entry.counts.as_slice() {
            [] => {}
            [count] if found.is_none_or(|it| it.urr.id == count.urr.id) => found = Some(count),
            _ => return None,
        }
    }
    let Some(count) = found else { return Some(None) };
    let is_here = count.urr.progress.line == session.id.0 && count.exhausted.is_none();
    is_here.then(|| Some(count.urr.watch()))
}

fn direction_rules(
    session: &Session,
    entry: &RuleEntry<'_>,
    watch: Option<&Watch>,
) -> Option<DirectionRules> {
    let is_plain = entry.filters.is_empty() && entry.copies.is_empty() && entry.redirect.is_none();
    if !is_plain || entry.qfis.count_ones() > 1 {
        return None;
    }
    let mut common = DirectionRules { version: session.version as u32, ..DirectionRules::none() };
    common.pdr = entry.pdr.id;
    common.tunnel = entry.pdr.tunnel.map_or(0, |tunnel| tunnel.teid);
    common.flags = entry.flags & !(flag::UPLINK | flag::CHECKED);
    if entry.qfis != 0 {
        common.flags |= (entry.qfis.trailing_zeros() + 1) << flag::QFI;
    }
    common.forwarding = entry.path.forwarding;
    match entry.meters.as_slice() {
        [] => {}
        [meter] if meter.line == session.id.0 => {
            let cost = meter_cost(meter, entry.direction);
            (common.cost, common.forwarding.shift, common.burst) =
                (cost.cost, cost.shift, cost.burst);
            common.flags |= flag::METER;
        }
        _ => return None,
    }
    if let Some(watch) = watch.filter(|_| !entry.counts.is_empty()) {
        common.flags |= counted(watch);
        let drops = entry.counts.iter().any(|it| reports_drops(it.urr));
        common.flags |= if drops { flag::DROPPED } else { 0 };
    }
    Some(common)
}

/// Returns true if dropped downlink packets are reported.
pub(super) const fn reports_drops(urr: &crate::session::Urr) -> bool {
    urr.triggers.has(crate::session::ReportingTriggers::DROTH)
}

/// Returns the flags of a direction with a URR.
pub(super) const fn counted(watch: &Watch) -> u32 {
    let mut flags = flag::COUNT;
    flags |= if watch.before_qos { flag::BEFORE } else { 0 };
    flags |= if watch.start { flag::START } else { 0 };
    flags |= if watch.deadline.is_some() { flag::DEADLINE } else { 0 };
    flags | if watch.is_stopped { flag::STOPPED } else { 0 }
}

/// Counter that is limited, if at most one is.
#[derive(Clone, Copy, PartialEq)]
enum Basis {
    None,
    Total,
    Uplink,
    Downlink,
}

fn limited(rules: &mut Rules, watch: Option<&Watch>) -> Option<()> {
    let Some(watch) = watch else { return Some(()) };
    let any = |pick: fn(&Volume) -> Option<u64>| {
        pick(&watch.threshold).is_some() || pick(&watch.quota).is_some()
    };
    let basis = match (any(|it| it.total), any(|it| it.uplink), any(|it| it.downlink)) {
        (false, false, false) => Basis::None,
        (true, false, false) => Basis::Total,
        (false, true, false) => Basis::Uplink,
        (false, false, true) => Basis::Downlink,
        _ => return None,
    };
    let pick = |volume: &Volume| match basis {
        Basis::None => None,
        Basis::Total => volume.total,
        Basis::Uplink => volume.uplink,
        Basis::Downlink => volume.downlink,
    };
    let (threshold, quota) = (pick(&watch.threshold), pick(&watch.quota));
    rules.cold.threshold = threshold.unwrap_or(NEVER);
    rules.cold.quota = quota.unwrap_or(NEVER);
    rules.cold.stop_at = watch.deadline.unwrap_or(NEVER);
    if basis == Basis::None {
        return Some(());
    }
    let first = rules.cold.threshold.min(rules.cold.quota);
    // NEVER is reserved for "no limit".
    let check_above = first.saturating_sub(1).min(NEVER - 1);
    if basis != Basis::Downlink {
        rules.uplink.check_above = check_above;
    }
    if basis != Basis::Uplink {
        rules.downlink.check_above = check_above;
    }
    if basis != Basis::Total {
        rules.uplink.common.flags |= flag::ONE_WAY;
        rules.downlink.common.flags |= flag::ONE_WAY;
    }
    Some(())
}
