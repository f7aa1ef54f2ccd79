//! PDRs with all that they refer to, in the order of evaluation.

use super::{CompileError, Context, far_path, meter_cost};
use crate::rules::layout::session_rules::{AddressPrefix, Direction, OuterPath, flag};
use crate::session::{
    Actions, Far, Filter, FlowDescription, Gate, Pdr, PdrId, Qer, Session, Source, Urr,
};

/// A PDR, or a predefined rule that one activates.
#[derive(Clone, Debug)]
pub(super) struct RuleEntry<'s> {
    pub(super) pdr: &'s Pdr,
    pub(super) precedence: u32,
    pub(super) direction: Direction,
    /// Bits of [`flag`].
    pub(super) flags: u32,
    pub(super) filters: Vec<Filter>,
    pub(super) qfis: u64,
    pub(super) users: Vec<AddressPrefix>,
    pub(super) path: OuterPath,
    pub(super) redirect: Option<Vec<u8>>,
    pub(super) copies: Vec<OuterPath>,
    /// QERs with a maximum bit rate in this direction.
    pub(super) meters: Vec<&'s Qer>,
    pub(super) counts: Vec<CountedUrr<'s>>,
    pub(super) hold: (u16, u32),
}

/// A URR and the path of packets beyond its quota.
#[derive(Clone, Debug)]
pub(super) struct CountedUrr<'s> {
    pub(super) urr: &'s Urr,
    pub(super) exhausted: Option<OuterPath>,
    pub(super) redirect: Option<Vec<u8>>,
}

/// Returns all entries of a session that packets can reach, by precedence and then in the order of
/// creation.
pub(super) fn entries<'s>(
    session: &'s Session,
    context: &Context,
) -> Result<Vec<RuleEntry<'s>>, CompileError> {
    let everyone = everyone(session);
    let mut entries = Vec::with_capacity(session.pdrs.len());
    for pdr in &session.pdrs {
        let entry = entry(session, context, pdr, &everyone)?;
        for name in &pdr.predefined {
            let rule = context.predefined.get(name);
            let rule = rule.ok_or(CompileError::NoPredefined { pdr: pdr.id })?;
            let mut own = entry.clone();
            own.precedence = rule.precedence;
            own.filters = rule.flows.iter().map(of_flow).collect();
            own.flags |= if rule.drop { flag::DROP } else { 0 };
            if rule.qfi.is_some() {
                own.path.forwarding.quality &=
                    !crate::rules::layout::session_rules::forwarding::QFI;
                own.path = far_path::marked(own.path, &[], rule.qfi);
            }
            entries.push(own);
        }
        entries.push(entry);
    }
    entries.retain(is_found);
    entries.iter_mut().for_each(|entry| simplify(&mut entry.filters));
    entries.sort_by_key(|entry| entry.precedence);
    Ok(entries)
}

fn of_flow(flow: &FlowDescription) -> Filter {
    Filter { flow: Some(flow.clone()), ..Filter::default() }
}

/// Returns true if packets can reach the entry.
fn is_found(entry: &RuleEntry<'_>) -> bool {
    match entry.pdr.source {
        Source::Access | Source::Control => entry.pdr.tunnel.is_some(),
        Source::Core | Source::SgiLan => true,
    }
}

/// Returns true if a filter matches fields behind the IP header, which later fragments do not have.
fn looks_behind(filter: &Filter) -> bool {
    let ports =
        |flow: &FlowDescription| !flow.remote_ports.is_empty() || !flow.local_ports.is_empty();
    filter.spi.is_some() || filter.flow.as_ref().is_some_and(ports)
}

/// Simplifies filters: one that matches every packet makes the others redundant. Those that match
/// fields behind the IP header come last, so a fragment is decided by the others first, however the
/// filters are divided into rules.
fn simplify(filters: &mut Vec<Filter>) {
    let is_any = |filter: &Filter| {
        let is_any_flow = filter.flow.as_ref().is_none_or(|flow| flow.is_any());
        let tos = filter.tos.is_none_or(|(_, mask)| mask == 0);
        is_any_flow && tos && filter.spi.is_none() && filter.flow_label.is_none()
    };
    if filters.iter().any(is_any) {
        filters.clear();
    }
    filters.sort_by_key(looks_behind);
}

/// Returns the UE addresses of a PDR and the networks behind the UE.
fn addresses(pdr: &Pdr) -> impl Iterator<Item = AddressPrefix> {
    let user = pdr.user.unwrap_or_default();
    let v4 = user.v4.map(|it| AddressPrefix::new(it.into(), 32));
    let v6 = user.v6.map(|(it, length)| AddressPrefix::new(it.into(), length));
    let framed = pdr.framed.iter().map(|it| AddressPrefix::new(it.address, it.length));
    v4.into_iter().chain(v6).chain(framed)
}

fn unique(all: impl Iterator<Item = AddressPrefix>) -> Vec<AddressPrefix> {
    let mut unique: Vec<AddressPrefix> = Vec::new();
    for address in all {
        if !unique.contains(&address) {
            unique.push(address);
        }
    }
    unique
}

/// Returns all addresses of a session.
fn everyone(session: &Session) -> Vec<AddressPrefix> {
    unique(session.pdrs.iter().flat_map(addresses))
}

/// Returns the addresses that packets of a PDR may have at the UE's end.
fn users(
    session: &Session,
    pdr: &Pdr,
    direction: Direction,
    all: &[AddressPrefix],
) -> Vec<AddressPrefix> {
    if direction == Direction::Downlink {
        return unique(addresses(pdr));
    }
    if pdr.user.is_none() {
        return all.to_vec();
    }
    let framed = session.pdrs.iter().flat_map(|pdr| &pdr.framed);
    let framed = framed.map(|it| AddressPrefix::new(it.address, it.length));
    unique(addresses(pdr).chain(framed))
}

fn entry<'s>(
    session: &'s Session,
    context: &Context,
    pdr: &'s Pdr,
    everyone: &[AddressPrefix],
) -> Result<RuleEntry<'s>, CompileError> {
    let direction = Direction::of(pdr.source);
    let far = find_far(session, pdr.id, pdr.far)?;
    let qers = qers(session, pdr)?;
    let (path, redirect) = path(far, pdr, &qers)?.unwrap_or_else(|| (no_path(), None));
    let is_forwarded = far.forwarding.is_some();
    let copies = far.duplicating.iter().map(|it| far_path::path(far.id, it));
    let copies: Vec<OuterPath> = copies.collect::<Result<_, _>>()?;
    let copies = if far.actions.duplicate { copies } else { Vec::new() };
    let users = users(session, pdr, direction, everyone);
    let mut flags = of_actions(far.actions, is_forwarded) | of_qers(&qers, direction);
    if direction == Direction::Uplink {
        flags |= flag::UPLINK | if everyone.is_empty() { 0 } else { flag::CHECKED };
    }
    flags |= if pdr.tunnel.is_some() { flag::TUNNEL } else { 0 };
    flags |= if copies.is_empty() { 0 } else { flag::DUPLICATE };
    Ok(RuleEntry {
        pdr,
        precedence: pdr.precedence,
        direction,
        flags,
        filters: pdr.filters.clone(),
        qfis: pdr.qfis.iter().fold(0, |bits, qfi| bits | 1 << (qfi & 63)),
        users,
        path,
        redirect,
        copies,
        meters: qers.into_iter().filter(|qer| meter_cost::cost(qer, direction).cost != 0).collect(),
        counts: counts(session, pdr)?,
        hold: context.hold(session, far.bar),
    })
}

fn no_path() -> OuterPath {
    OuterPath {
        forwarding: crate::rules::layout::session_rules::ForwardingAction::none(),
        peer6: [0; 16],
    }
}

/// Path of a FAR with its redirection, if it forwards.
type Paths = (OuterPath, Option<Vec<u8>>);

fn path(far: &Far, pdr: &Pdr, qers: &[&Qer]) -> Result<Option<Paths>, CompileError> {
    let Some(forwarding) = &far.forwarding else { return Ok(None) };
    let path = far_path::path(far.id, forwarding)?;
    let path = far_path::marked(far_path::removing(path, pdr.removal), qers, None);
    let redirect = forwarding.redirect.as_ref();
    let is_tunnelled = forwarding.outer.is_some();
    let redirect = redirect.map(|it| far_path::redirection(far.id, it, is_tunnelled));
    let redirect = redirect.transpose()?.flatten();
    Ok(Some((path, redirect)))
}

const fn of_actions(actions: Actions, is_forwarded: bool) -> u32 {
    let Actions { drop, forward, buffer, notify, .. } = actions;
    if buffer && !drop {
        return flag::PRESENT | flag::HOLD | if notify { flag::NOTIFY } else { 0 };
    }
    let forwards = forward && is_forwarded && !drop;
    flag::PRESENT | if forwards { 0 } else { flag::DROP }
}

fn of_qers(qers: &[&Qer], direction: Direction) -> u32 {
    let is_closed = |qer: &&Qer| {
        let gate = match direction {
            Direction::Uplink => qer.uplink,
            Direction::Downlink => qer.downlink,
        };
        gate == Gate::Closed || meter_cost::is_nothing(qer, direction)
    };
    if qers.iter().any(is_closed) { flag::CLOSED } else { 0 }
}

fn find_far(session: &Session, pdr: PdrId, far: u32) -> Result<&Far, CompileError> {
    session.fars.iter().find(|it| it.id == far).ok_or(CompileError::NoFar { pdr, far })
}

fn qers<'s>(session: &'s Session, pdr: &Pdr) -> Result<Vec<&'s Qer>, CompileError> {
    let find = |id: &u32| {
        let found = session.qers.iter().find(|qer| qer.id == *id);
        found.ok_or(CompileError::NoQer { pdr: pdr.id, qer: *id })
    };
    let mut qers = pdr.qers.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let mut seen = Vec::new();
    qers.retain(|qer| {
        !seen.contains(&qer.id) && {
            seen.push(qer.id);
            true
        }
    });
    Ok(qers)
}

fn counts<'s>(session: &'s Session, pdr: &'s Pdr) -> Result<Vec<CountedUrr<'s>>, CompileError> {
    let mut counts: Vec<CountedUrr<'s>> = Vec::with_capacity(pdr.urrs.len());
    for id in &pdr.urrs {
        let found = session.urrs.iter().find(|urr| urr.id == *id);
        let urr = found.ok_or(CompileError::NoUrr { pdr: pdr.id, urr: *id })?;
        if urr.watch().is_paused || counts.iter().any(|it| it.urr.id == urr.id) {
            continue;
        }
        let (exhausted, redirect) = exhausted(session, pdr, urr)?.unzip();
        counts.push(CountedUrr { urr, exhausted, redirect: redirect.flatten() });
    }
    Ok(counts)
}

/// Returns the path of packets beyond the quota; `None` if they are dropped.
fn exhausted(session: &Session, pdr: &Pdr, urr: &Urr) -> Result<Option<Paths>, CompileError> {
    let Some(far) = urr.exhausted_far else { return Ok(None) };
    let far = find_far(session, pdr.id, far)?;
    if far.actions.forward && !far.actions.drop { path(far, pdr, &[]) } else { Ok(None) }
}
