//! Rule compiler: turns a PFCP session into the values that lanes read.
//!
//! [`compile`] takes a session and returns [`Compiled`]: its [`Rules`], its blocks, and the keys by
//! which its packets find it. It is total: every session yields rules or an error that names the
//! rule at fault. A PDR that no packet can reach (for example from the access network without a
//! tunnel) is left out; requests that create one are refused before.
//!
//! Most sessions fit the simple form: one PDR per direction, at most one QER and one URR, one cache
//! line each. Others get blocks, which `block_packer` makes.
//!
//! A session may have more UE addresses than one IPv4 address and one /64, and networks behind the
//! UE. If it has any, uplink packets must have one of them as their source, whatever PDR they
//! match.

use std::net::IpAddr;

use self::block_packer::PackedBlocks;
use self::rule_entry::{CountedUrr, RuleEntry, meter_cost};
use super::layout::session_rules::{
    AddressPrefix, Direction, DirectionRules, DueEndMarker, EndMarkerEntry, NEVER, Rules, flag,
    forwarding,
};
use super::layout::{TunnelKey, UeKey};
use crate::session::{
    InstanceId, Pdr, Prefix, ReportingTriggers, Session, Source, Urr, Volume, Watch,
};

mod block_builder;
mod block_packer;
mod compile_error;
mod compiled;
mod context;
mod filter_compiler;
mod rule_entry;
mod slot_charges;

pub use self::compile_error::CompileError;
pub use self::compiled::Compiled;
pub use self::context::{Context, PredefinedRule};

/// A network behind a UE, or UE addresses that a [`UeKey`] cannot express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FramedRoute {
    /// Network instance.
    pub instance: InstanceId,
    /// First address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub length: u8,
}

/// Compiles a session.
///
/// URRs and QERs must have their counter slots (`Published::assign`).
///
/// # Errors
/// If a rule refers to a missing one, or cannot be carried out.
pub fn compile(session: &Session, context: &Context) -> Result<Compiled, CompileError> {
    let entries = rule_entry::entries(session, context)?;
    let keys = keys(session, context);
    let (newest, others) = end_markers(session, context);
    let (mut rules, packed) = match simple_rules(session, &entries) {
        Some(rules) if others.is_empty() => (rules, PackedBlocks::default()),
        Some(rules) => (rules, block_packer::blocks(session, &[], others)?.1),
        None => block_packer::blocks(session, &entries, others)?,
    };
    rules.cold.discarded = discarded(session);
    if let Some(DueEndMarker { peer, teid, instance, version }) = newest {
        (rules.cold.marker_peer, rules.cold.marker_teid) = (peer, teid);
        (rules.cold.marker_instance, rules.cold.marker_version) = (instance, version);
    }
    let LookupKeys { users, tunnels, framed } = keys;
    let PackedBlocks { blocks, untunnelled } = packed;
    Ok(Compiled { rules, blocks, untunnelled, users, tunnels, framed })
}

/// Returns the lower 32 bits of the version before which held packets are discarded; 0 if none are
/// left. Half of the numbers later a new version would seem to be older.
fn discarded(session: &Session) -> u32 {
    let age = session.version.saturating_sub(session.discarded);
    if age < 1 << 30 { session.discarded as u32 } else { 0 }
}

/// Returns the newest end marker, and the others of its version, the oldest first: one for each
/// tunnel that packets no longer take. Those of other versions are sent.
fn end_markers(
    session: &Session,
    context: &Context,
) -> (Option<DueEndMarker>, Vec<EndMarkerEntry>) {
    let markers = session.fars.iter().flat_map(|far| &far.end_markers);
    let due = markers.filter_map(|marker| {
        let peer = context.network.peer((marker.to.v4, marker.to.v6), marker.instance)?;
        let peer = match peer {
            IpAddr::V4(peer) => peer.to_ipv6_mapped().octets(),
            IpAddr::V6(peer) => peer.octets(),
        };
        let instance = context.network.exit(marker.instance).unwrap_or(forwarding::NO_INSTANCE);
        let version = marker.version as u32;
        Some((marker.version, DueEndMarker { peer, teid: marker.to.teid?, instance, version }))
    });
    let mut due: Vec<(u64, DueEndMarker)> = due.collect();
    due.sort_by_key(|(version, _)| *version);
    let Some((newest_version, newest)) = due.pop() else { return (None, Vec::new()) };
    due.retain(|(version, _)| *version == newest_version);
    let mut others: Vec<EndMarkerEntry> = Vec::with_capacity(due.len());
    for (_, marker) in due {
        // Several FARs may share a tunnel, which has one end.
        let is_same = |other: &EndMarkerEntry| {
            let other = DueEndMarker::from(*other);
            (other.peer, other.teid) == (marker.peer, marker.teid)
        };
        if (marker.peer, marker.teid) != (newest.peer, newest.teid) {
            others.retain(|other| !is_same(other));
            others.push(marker.into());
        }
    }
    (Some(newest), others)
}

/// Lookup keys of a session, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupKeys {
    /// UE addresses.
    pub users: Vec<UeKey>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind the UE.
    pub framed: Vec<FramedRoute>,
}

fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// Returns the lookup keys of a session.
#[must_use]
pub fn keys(session: &Session, context: &Context) -> LookupKeys {
    let mut keys = LookupKeys::default();
    for pdr in &session.pdrs {
        if let Some(tunnel) = pdr.tunnel {
            if tunnel.teid != 0 && context.shape.session(tunnel.teid) != session.id {
                add(&mut keys.tunnels, TunnelKey { teid: tunnel.teid });
            }
        } else if matches!(pdr.source, Source::Core | Source::SgiLan) {
            let network = &context.network;
            let of = |instance| network.domain(instance).into_iter().collect();
            let instances = pdr.instance.map_or_else(|| network.domains(), of);
            instances.iter().for_each(|instance| keys.of_user(pdr, *instance));
        }
    }
    keys
}

impl LookupKeys {
    /// Returns the keys that are not among `others`.
    #[must_use]
    pub fn without(mut self, others: &Self) -> Self {
        self.users.retain(|key| !others.users.contains(key));
        self.tunnels.retain(|key| !others.tunnels.contains(key));
        self.framed.retain(|route| !others.framed.contains(route));
        self
    }

    fn of_user(&mut self, pdr: &Pdr, instance: InstanceId) {
        if let Some(v4) = pdr.user.and_then(|user| user.v4) {
            add(&mut self.users, UeKey::v4(instance, v4));
        }
        match pdr.user.and_then(|user| user.v6) {
            Some((v6, 64)) => add(&mut self.users, UeKey::v6(instance, v6)),
            Some((v6, length)) => self.route(instance, v6.into(), length),
            None => {}
        }
        for prefix in &pdr.framed {
            self.route(instance, prefix.address, prefix.length);
        }
    }

    fn route(&mut self, instance: InstanceId, address: IpAddr, length: u8) {
        let Some(prefix) = Prefix::new(address, length) else { return };
        let (address, length) = (prefix.address, prefix.length);
        add(&mut self.framed, FramedRoute { instance, address, length });
    }
}

/// Returns the rules of a session in the simple form, or `None` if they exceed it.
fn simple_rules(session: &Session, entries: &[RuleEntry<'_>]) -> Option<Rules> {
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
        rules.downlink.instance = entry.instance.unwrap_or(forwarding::NO_INSTANCE);
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
const fn reports_drops(urr: &Urr) -> bool {
    urr.triggers.has(ReportingTriggers::DROTH)
}

/// Returns the flags of a direction with a URR.
const fn counted(watch: &Watch) -> u32 {
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

#[cfg(test)]
mod tests;
