//! Compiles sessions that fit the simple form: one PDR per direction, at most one QER and one URR,
//! one cache line each.

use super::entry::{Counted, Entry};
use super::rate;
use crate::rules::layout::rules::{AnyAddress, Direction, NEVER, Rules, Side, flag, way};
use crate::session::{Session, Source, Volume, Watch};

/// Returns the rules of a session in the simple form, or `None` if they exceed it.
pub(super) fn rules(session: &Session, entries: &[Entry<'_>]) -> Option<Rules> {
    let of = |direction| entries.iter().filter(move |it| it.direction == direction);
    if of(Direction::Up).count() > 1 || of(Direction::Down).count() > 1 {
        return None;
    }
    let (up, down) = (of(Direction::Up).next(), of(Direction::Down).next());
    let mut rules = Rules::empty(session.version);
    let watch = watch(session, [up, down])?;
    if let Some(entry) = up {
        // A packet without a tunnel is downlink; its other rules are never read.
        entry.pdr.tunnel.as_ref()?;
        rules.up.side = side(session, entry, watch.as_ref())?;
        if entry.path.way.what & way::V6 != 0 {
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
        rules.down.side = side(session, entry, watch.as_ref())?;
        rules.down.peer6 = entry.path.peer6;
        rules.down.instance = entry.pdr.instance.unwrap_or(way::NO_INSTANCE);
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
fn user(rules: &mut Rules, address: &AnyAddress) -> Option<()> {
    let flags = &mut rules.up.side.flags;
    let bit = match (address.family, address.length) {
        (4, 32) => flag::USER4,
        (6, 64) => flag::USER6,
        _ => return None,
    };
    if *flags & bit != 0 {
        return None;
    }
    *flags |= bit;
    match bit {
        flag::USER4 => rules.up.user4 = (address.high >> 32) as u32,
        _ => rules.up.user6 = address.high,
    }
    Some(())
}

/// Returns the hold limits if both directions agree.
fn hold(sides: [Option<&Entry<'_>>; 2]) -> Option<(u16, u32)> {
    let holds = |entry: &&Entry<'_>| entry.flags & flag::HOLD != 0;
    let mut said = sides.into_iter().flatten().filter(holds).map(|entry| entry.hold);
    let first = said.next();
    said.all(|hold| Some(hold) == first).then_some(first.unwrap_or_default())
}

/// Returns what the only URR watches; `None` if there are several, or one whose slot is not the
/// session's.
#[expect(clippy::option_option, reason = "simple without a URR, simple with one, not simple")]
fn watch(session: &Session, sides: [Option<&Entry<'_>>; 2]) -> Option<Option<Watch>> {
    let mut found: Option<&Counted<'_>> = None;
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

fn side(session: &Session, entry: &Entry<'_>, watch: Option<&Watch>) -> Option<Side> {
    let is_plain = entry.filters.is_empty() && entry.copies.is_empty() && entry.redirect.is_none();
    if !is_plain || entry.qfis.count_ones() > 1 {
        return None;
    }
    let mut side = Side { version: session.version as u32, ..Side::none() };
    side.pdr = entry.pdr.id;
    side.tunnel = entry.pdr.tunnel.map_or(0, |tunnel| tunnel.teid);
    side.flags = entry.flags & !(flag::UP | flag::CHECKED);
    if entry.qfis != 0 {
        side.flags |= (entry.qfis.trailing_zeros() + 1) << flag::QFI;
    }
    side.way = entry.path.way;
    match entry.meters.as_slice() {
        [] => {}
        [meter] if meter.line == session.id.0 => {
            let cost = rate::cost(meter, entry.direction);
            (side.cost, side.way.shift, side.burst) = (cost.cost, cost.shift, cost.burst);
            side.flags |= flag::METER;
        }
        _ => return None,
    }
    if let Some(watch) = watch.filter(|_| !entry.counts.is_empty()) {
        side.flags |= counted(watch);
        let drops = entry.counts.iter().any(|it| reports_drops(it.urr));
        side.flags |= if drops { flag::DROPPED } else { 0 };
    }
    Some(side)
}

/// Returns true if dropped downlink packets are reported.
pub(super) const fn reports_drops(urr: &crate::session::Urr) -> bool {
    urr.triggers.has(crate::session::ReportTriggers::DROTH)
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
    Up,
    Down,
}

fn limited(rules: &mut Rules, watch: Option<&Watch>) -> Option<()> {
    let Some(watch) = watch else { return Some(()) };
    let any = |pick: fn(&Volume) -> Option<u64>| {
        pick(&watch.threshold).is_some() || pick(&watch.quota).is_some()
    };
    let basis = match (any(|it| it.total), any(|it| it.uplink), any(|it| it.downlink)) {
        (false, false, false) => Basis::None,
        (true, false, false) => Basis::Total,
        (false, true, false) => Basis::Up,
        (false, false, true) => Basis::Down,
        _ => return None,
    };
    let pick = |volume: &Volume| match basis {
        Basis::None => None,
        Basis::Total => volume.total,
        Basis::Up => volume.uplink,
        Basis::Down => volume.downlink,
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
    let attention = first.saturating_sub(1).min(NEVER - 1);
    if basis != Basis::Down {
        rules.up.attention = attention;
    }
    if basis != Basis::Up {
        rules.down.attention = attention;
    }
    if basis != Basis::Total {
        rules.up.side.flags |= flag::ONE_WAY;
        rules.down.side.flags |= flag::ONE_WAY;
    }
    Some(())
}
