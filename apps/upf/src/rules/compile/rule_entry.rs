//! PDRs with all that they refer to, in the order of evaluation: FARs as paths (destination, outer
//! header, redirection), QERs as meters.

use std::net::{IpAddr, SocketAddr};

use zerocopy::IntoBytes;

use super::compile_error::MAX_URL;
use super::{CompileError, Context};
use crate::rules::layout::session_rules::{
    AddressPrefix, Direction, ForwardingAction, OuterPath, RedirectEntry, flag, forwarding,
    redirect,
};
use crate::session::{
    Actions, Destination, Far, FarId, Filter, FlowDescription, Forwarding, Gate, InstanceId,
    Network, Pdr, PdrId, Qer, Redirect, Removal, Session, Source, Urr,
};

/// Units per nanosecond in a meter's word.
const UNITS: u128 = 64;
/// Burst in ms of a meter whose QER has no averaging window.
const BURST_MS: u32 = 100;
/// Maximum burst in ms: over ten seconds it exceeds the rate by less than 5 %.
const LONGEST_MS: u32 = 400;

/// A PDR, or a predefined rule that one activates.
#[derive(Clone, Debug)]
pub(super) struct RuleEntry<'s> {
    pub(super) pdr: &'s Pdr,
    pub(super) precedence: u32,
    pub(super) direction: Direction,
    /// Network instance of packets without a tunnel, if one is named: that of its domain.
    pub(super) instance: Option<InstanceId>,
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
                own.path.forwarding.quality &= !forwarding::QFI;
                own.path = marked(own.path, &[], rule.qfi);
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
    let network = &context.network;
    let path = match path(far, pdr, &qers, network) {
        // What does not forward needs no exit: it is judged when it does.
        Err(_) if !far.actions.forward => None,
        path => path?,
    };
    let (path, redirect) = path.unwrap_or_else(|| (no_path(), None));
    let is_forwarded = far.forwarding.is_some();
    let copies = far.duplicating.iter().filter(|_| far.actions.duplicate);
    let copies = copies.map(|it| outer_path(far.id, it, network));
    let copies: Vec<OuterPath> = copies.collect::<Result<_, _>>()?;
    let everyone = if is_indirect(pdr, far) { &[] } else { everyone };
    let users = match is_indirect(pdr, far) {
        true => Vec::new(),
        false => users(session, pdr, direction, everyone),
    };
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
        instance: instance(pdr, network)?,
        flags,
        filters: pdr.filters.clone(),
        qfis: pdr.qfis.iter().fold(0, |bits, qfi| bits | 1 << (qfi & 63)),
        users,
        path,
        redirect,
        copies,
        meters: qers.into_iter().filter(|qer| meter_cost(qer, direction).cost != 0).collect(),
        counts: counts(session, pdr, network)?,
        hold: context.hold(session, far.bar),
    })
}

/// Returns true if packets from the access network return to it: indirect forwarding at a handover
/// (TS 23.502 clause 4.9.1.3). They are on their way to the user, so their source is any host.
fn is_indirect(pdr: &Pdr, far: &Far) -> bool {
    let to = far.forwarding.as_ref().map(|it| it.destination);
    pdr.source == Source::Access && to == Some(Destination::Access)
}

/// Returns what stands for the network instance of a PDR's packets without a tunnel.
fn instance(pdr: &Pdr, network: &Network) -> Result<Option<InstanceId>, CompileError> {
    let is_from_n6 = pdr.tunnel.is_none() && matches!(pdr.source, Source::Core | Source::SgiLan);
    let Some(named) = pdr.instance.filter(|_| is_from_n6) else { return Ok(None) };
    network.domain(named).map(Some).ok_or(CompileError::NoDataNetwork { pdr: pdr.id })
}

fn no_path() -> OuterPath {
    OuterPath { forwarding: ForwardingAction::none(), peer6: [0; 16] }
}

/// Path of a FAR with its redirection, if it forwards.
type Paths = (OuterPath, Option<Vec<u8>>);

fn path(
    far: &Far,
    pdr: &Pdr,
    qers: &[&Qer],
    network: &Network,
) -> Result<Option<Paths>, CompileError> {
    let Some(forwarding) = &far.forwarding else { return Ok(None) };
    let path = outer_path(far.id, forwarding, network)?;
    let path = marked(removing(path, pdr.removal), qers, None);
    let redirect = forwarding.redirect.as_ref();
    let is_tunnelled = forwarding.outer.is_some();
    let redirect = redirect.map(|it| redirection(far.id, it, is_tunnelled));
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
        gate == Gate::Closed || is_rate_zero(qer, direction)
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

fn counts<'s>(
    session: &'s Session,
    pdr: &'s Pdr,
    network: &Network,
) -> Result<Vec<CountedUrr<'s>>, CompileError> {
    let mut counts: Vec<CountedUrr<'s>> = Vec::with_capacity(pdr.urrs.len());
    for id in &pdr.urrs {
        let found = session.urrs.iter().find(|urr| urr.id == *id);
        let urr = found.ok_or(CompileError::NoUrr { pdr: pdr.id, urr: *id })?;
        if urr.watch().is_paused || counts.iter().any(|it| it.urr.id == urr.id) {
            continue;
        }
        let (exhausted, redirect) = exhausted(session, pdr, urr, network)?.unzip();
        counts.push(CountedUrr { urr, exhausted, redirect: redirect.flatten() });
    }
    Ok(counts)
}

/// Returns the path of packets beyond the quota; `None` if they are dropped.
fn exhausted(
    session: &Session,
    pdr: &Pdr,
    urr: &Urr,
    network: &Network,
) -> Result<Option<Paths>, CompileError> {
    let Some(far) = urr.exhausted_far else { return Ok(None) };
    let far = find_far(session, pdr.id, far)?;
    let forwards = far.actions.forward && !far.actions.drop;
    if forwards { path(far, pdr, &[], network) } else { Ok(None) }
}

/// Returns the path of a FAR's forwarding parameters.
fn outer_path(
    far: FarId,
    forwarding: &Forwarding,
    network: &Network,
) -> Result<OuterPath, CompileError> {
    let mut path = OuterPath { forwarding: ForwardingAction::none(), peer6: [0; 16] };
    let instance = exit(far, forwarding, network)?;
    path.forwarding.instance = instance.unwrap_or(forwarding::NO_INSTANCE);
    path.forwarding.what = forwarding.destination as u8;
    if let Some((value, mask)) = forwarding.marking {
        (path.forwarding.marking, path.forwarding.mask) = (value, mask);
    }
    let Some(outer) = &forwarding.outer else {
        let is_to_n4 = forwarding.destination == Destination::Control;
        return if is_to_n4 { Err(CompileError::NoControlTunnel { far }) } else { Ok(path) };
    };
    let error = CompileError::OuterHeader { far };
    match (outer.teid, outer.port) {
        (Some(teid), _) => {
            path.forwarding.teid = teid;
            path.forwarding.what |= forwarding::GTPU;
        }
        (None, Some(port)) => {
            path.forwarding.teid = port.into();
            path.forwarding.what |= forwarding::UDP;
        }
        (None, None) => return Err(error),
    }
    let addresses = (outer.v4, outer.v6);
    let peer = match forwarding.destination {
        Destination::Control => network.control_peer(addresses),
        _ => network.peer(addresses, forwarding.instance),
    };
    match peer.ok_or(error)? {
        IpAddr::V4(v4) => path.forwarding.peer = v4.octets(),
        IpAddr::V6(v6) => {
            path.peer6 = v6.octets();
            path.forwarding.what |= forwarding::V6;
        }
    }
    Ok(path)
}

/// Returns what stands for the network instance in which packets of a FAR leave, if one is named.
/// Without an outer header packets leave by N6 only; those to the access network wait for the
/// header, which SMFs add when they know the tunnel of the gNB.
fn exit(
    far: FarId,
    forwarding: &Forwarding,
    network: &Network,
) -> Result<Option<InstanceId>, CompileError> {
    let is_to_n6 = forwarding.outer.is_none()
        && matches!(forwarding.destination, Destination::Core | Destination::SgiLan);
    match forwarding.instance {
        Some(named) if is_to_n6 => {
            network.domain(named).map(Some).ok_or(CompileError::NoExit { far })
        }
        None if is_to_n6 && !network.has_n6() => Err(CompileError::NoN6 { far }),
        named => Ok(network.exit(named)),
    }
}

/// Adds the outer header removal of a PDR.
fn removing(mut path: OuterPath, removal: Option<Removal>) -> OuterPath {
    if let Some(removal) = removal {
        path.forwarding.what |= forwarding::REMOVE;
        path.forwarding.what |= if removal.extension { forwarding::REMOVE_EXTENSION } else { 0 };
    }
    path
}

/// Adds the marks of QERs; the first one that sets a mark wins.
fn marked(mut path: OuterPath, qers: &[&Qer], qfi: Option<u8>) -> OuterPath {
    let quality = &mut path.forwarding.quality;
    if let Some(qfi) = qfi.or_else(|| qers.iter().find_map(|qer| qer.qfi)) {
        *quality |= u16::from(qfi & 63) + 1;
    }
    if qers.iter().any(|qer| qer.reflective) {
        *quality |= forwarding::REFLECTIVE;
    }
    if let Some(policy) = qers.iter().find_map(|qer| qer.paging_policy) {
        *quality |= forwarding::PAGING | u16::from(policy & 7) << forwarding::PAGING_SHIFT;
    }
    path
}

/// Encodes a redirection; `None` for one that is not supported. It occupies the space of an outer
/// header. With an outer header (`is_tunnelled`) packets cannot be forwarded to an address, so an
/// address becomes a URL. Two addresses become two entries, selected by the packet's family.
fn redirection(
    far: FarId,
    redirect: &Redirect,
    is_tunnelled: bool,
) -> Result<Option<Vec<u8>>, CompileError> {
    let entry = |kind, bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).map_err(|_| CompileError::Redirect { far })?;
        Ok([RedirectEntry { kind, reserved: 0, length }.as_bytes(), bytes].concat())
    };
    let address = |of, to: IpAddr| match to {
        _ if is_tunnelled => {
            let url = format!("http://{}/", SocketAddr::from((to, 80)));
            entry(redirect::URL | of, url.as_bytes())
        }
        IpAddr::V4(address) => entry(redirect::ADDRESS | of, &address.octets()),
        IpAddr::V6(address) => entry(redirect::ADDRESS | of, &address.octets()),
    };
    let bytes = match redirect {
        Redirect::Address(to) => address(0, *to)?,
        Redirect::Both(v4, v6) => {
            [address(redirect::IPV4, (*v4).into())?, address(0, (*v6).into())?].concat()
        }
        Redirect::Url(url) if url.len() > MAX_URL => return Err(CompileError::Redirect { far }),
        Redirect::Url(url) => entry(redirect::URL, url.as_bytes())?,
        Redirect::Sip(_) => return Ok(None),
    };
    Ok(Some(bytes))
}

/// Meter parameters of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MeterCost {
    /// Cost: `octets * cost >> shift` units of 1/64 ns; 0: unlimited.
    pub(super) cost: u32,
    pub(super) shift: u8,
    /// Burst in ms.
    pub(super) burst: u16,
}

/// Returns true if nothing may pass: the maximum is zero.
fn is_rate_zero(qer: &Qer, direction: Direction) -> bool {
    kilobits(qer, direction) == Some(0)
}

fn kilobits(qer: &Qer, direction: Direction) -> Option<u64> {
    let rate = qer.maximum?;
    Some(match direction {
        Direction::Uplink => rate.uplink,
        Direction::Downlink => rate.downlink,
    })
}

/// Returns the meter parameters of a direction; zeros without a maximum.
pub(super) fn meter_cost(qer: &Qer, direction: Direction) -> MeterCost {
    let Some(kilobits) = kilobits(qer, direction).filter(|it| *it != 0) else {
        return MeterCost::default();
    };
    // The time of 8 bits in meter units as a fixed point number with as many fractional bits as
    // fit: at least 31 significant bits.
    let octet = (8 * 1_000_000 * UNITS) << 60;
    let exact = octet / u128::from(kilobits);
    let surplus = (128 - exact.leading_zeros()).saturating_sub(32);
    let cost = u32::try_from(exact >> surplus).unwrap_or(u32::MAX);
    let shift = 60_u32.checked_sub(surplus);
    let burst = qer.window_ms.unwrap_or(BURST_MS).clamp(1, LONGEST_MS) as u16;
    // Only rates below 1 kbit/s would have no fractional bits, and there are none.
    MeterCost { cost, shift: shift.unwrap_or(0) as u8, burst }
}
