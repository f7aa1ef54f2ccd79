//! Reference implementation: applies a session rule by rule as the specification says, without
//! tables and bits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::*;
use super::fixture::RuleFixture;
use crate::rules::layout::counter_slots::{EVENTS, LAST, event};
use crate::session::{
    Destination, Far, Filter, FlowDescription, Forwarding, Gate, Pdr, Prefix, Qer,
    ReportingTriggers, Session, Source, Urr,
};

/// Action without borrowed parts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlainAction {
    Forward(Destination, Option<Encapsulation>, Option<u8>, usize),
    Drop(DropReason),
    HoldLimits,
}

impl PlainAction {
    pub(super) fn of(decision: &Decision<'_>) -> Self {
        match decision.action {
            Action::Forward(path) => {
                let forwarding = path.forwarding;
                Self::Forward(
                    forwarding.destination(),
                    path.outer(),
                    forwarding.qfi(),
                    decision.copies.len(),
                )
            }
            Action::Drop(reason) => Self::Drop(reason),
            Action::Hold(_) => Self::HoldLimits,
        }
    }
}

pub(super) struct Naive<'s> {
    session: &'s Session,
    counts: BTreeMap<u32, [u64; 4]>,
    /// Time of the last packet that a URR counted.
    last: BTreeMap<u32, u64>,
    /// Time of the last packet that passed and no URR counted.
    last_uncounted: u64,
    stopped: BTreeSet<u32>,
    reached: BTreeSet<u32>,
    /// Meter word in units of 1/64 ns.
    meters: BTreeMap<(u32, bool), u128>,
}

#[derive(PartialEq)]
enum Says {
    Yes,
    No,
    Unknown,
}

fn address(family: u8, bits: u128) -> IpAddr {
    match family {
        4 => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

fn within(prefix: Prefix, address: IpAddr) -> bool {
    Prefix::new(address, prefix.length).map(|it| it.address) == Some(prefix.address)
        && prefix.address.is_ipv4() == address.is_ipv4()
}

const fn is_up(pdr: &Pdr) -> bool {
    matches!(pdr.source, Source::Access)
}

fn addresses(pdr: &Pdr) -> Vec<Prefix> {
    let user = pdr.user.unwrap_or_default();
    let v4 = user.v4.and_then(|it| Prefix::new(it.into(), 32));
    let v6 = user.v6.and_then(|(it, length)| Prefix::new(it.into(), length));
    v4.into_iter().chain(v6).chain(pdr.framed.iter().copied()).collect()
}

fn flow(flow: &FlowDescription, up: bool, fields: &PacketFields) -> Says {
    let source = address(fields.family, fields.source);
    let destination = address(fields.family, fields.destination);
    let (local, remote) = if up { (source, destination) } else { (destination, source) };
    if flow.protocol.is_some_and(|it| it != fields.protocol)
        || flow.remote.is_some_and(|it| !within(it, remote))
        || flow.local.is_some_and(|it| !within(it, local))
    {
        return Says::No;
    }
    if flow.remote_ports.is_empty() && flow.local_ports.is_empty() {
        return Says::Yes;
    }
    let (source, destination) = match fields.ports {
        Ports::Known(source, destination) => (source, destination),
        Ports::None => return Says::No,
        Ports::Unknown => return Says::Unknown,
    };
    let (local, remote) = if up { (source, destination) } else { (destination, source) };
    let among = |ports: &[(u16, u16)], port: u16| {
        ports.is_empty() || ports.iter().any(|(first, last)| (*first..=*last).contains(&port))
    };
    let both = among(&flow.remote_ports, remote) && among(&flow.local_ports, local);
    if both { Says::Yes } else { Says::No }
}

fn filter(filter: &Filter, up: bool, fields: &PacketFields) -> Says {
    let tos = filter.tos.is_none_or(|(value, mask)| value & mask == fields.tos & mask);
    let label = filter.flow_label.is_none_or(|it| fields.family == 6 && it == fields.flow_label);
    if !tos || !label {
        return Says::No;
    }
    let flow = filter.flow.as_ref().map_or(Says::Yes, |it| flow(it, up, fields));
    match filter.spi {
        _ if flow == Says::No => Says::No,
        Some(_) if fields.ports == Ports::Unknown => Says::Unknown,
        Some(spi) if fields.spi != Some(spi) => Says::No,
        _ => flow,
    }
}

impl<'s> Naive<'s> {
    pub(super) fn new(session: &'s Session) -> Self {
        Self {
            session,
            counts: BTreeMap::new(),
            last: BTreeMap::new(),
            last_uncounted: 0,
            stopped: BTreeSet::new(),
            reached: BTreeSet::new(),
            meters: BTreeMap::new(),
        }
    }

    fn far(&self, id: u32) -> &'s Far {
        self.session.fars.iter().find(|far| far.id == id).unwrap()
    }

    /// Returns true if the packet's ingress matches the PDR.
    fn comes(pdr: &Pdr, fields: &PacketFields) -> bool {
        let by = match (pdr.tunnel, fields.tunnel) {
            (Some(tunnel), Some(teid)) => tunnel.teid == teid,
            (None, None) => {
                matches!(pdr.source, Source::Core | Source::SgiLan)
                    && pdr.instance.is_none_or(|it| it == fields.instance)
            }
            _ => false,
        };
        by && (pdr.qfis.is_empty() || fields.qfi.is_some_and(|qfi| pdr.qfis.contains(&qfi)))
    }

    fn user(&self, pdr: &Pdr, fields: &PacketFields) -> bool {
        let all = self.session.pdrs.iter().flat_map(addresses);
        let framed = self.session.pdrs.iter().flat_map(|it| it.framed.iter().copied());
        let allowed: Vec<Prefix> = match (is_up(pdr), pdr.user) {
            (true, None) => all.collect(),
            (true, Some(_)) => addresses(pdr).into_iter().chain(framed).collect(),
            (false, _) => addresses(pdr),
        };
        let here = if is_up(pdr) { fields.source } else { fields.destination };
        let here = address(fields.family, here);
        let icmp = fields.protocol == 58;
        let is_link_local = matches!(here, IpAddr::V6(it) if it.is_unicast_link_local());
        let is_group = matches!(here, IpAddr::V6(it) if it.is_multicast());
        let to = self.far(pdr.far).forwarding.as_ref().map(|it| it.destination);
        let is_discovery = match is_up(pdr) {
            true => to == Some(Destination::Control) && is_link_local,
            false => is_link_local || is_group,
        };
        let is_indirect = is_up(pdr) && to == Some(Destination::Access);
        is_indirect
            || allowed.is_empty()
            || allowed.iter().any(|it| within(*it, here))
            || icmp && is_discovery
    }

    pub(super) fn decide(&mut self, fields: &PacketFields, now: u64) -> (PlainAction, u16) {
        let mut pdrs: Vec<&Pdr> = self.session.pdrs.iter().collect();
        pdrs.sort_by_key(|pdr| pdr.precedence);
        let has_users = self.session.pdrs.iter().any(|pdr| !addresses(pdr).is_empty());
        let mut reason = DropReason::NoRule;
        for pdr in pdrs {
            if !Self::comes(pdr, fields) {
                continue;
            }
            let says: Vec<Says> =
                pdr.filters.iter().map(|it| filter(it, is_up(pdr), fields)).collect();
            let is_meant = says.is_empty() || says.contains(&Says::Yes);
            if !is_meant && !says.contains(&Says::Unknown) {
                continue;
            }
            if !self.user(pdr, fields) {
                if is_up(pdr) && has_users {
                    reason = DropReason::ForeignSource;
                }
                continue;
            }
            if !is_meant {
                return (PlainAction::Drop(DropReason::FragmentUnknown), pdr.id);
            }
            return (self.apply(pdr, fields.length, now), pdr.id);
        }
        (PlainAction::Drop(reason), 0)
    }

    fn apply(&mut self, pdr: &'s Pdr, length: u32, now: u64) -> PlainAction {
        let up = is_up(pdr);
        let find = |id: &u32| self.session.qers.iter().find(|qer| qer.id == *id).unwrap();
        let qers: Vec<&Qer> = pdr.qers.iter().map(find).collect();
        let find = |id: &u32| self.session.urrs.iter().find(|urr| urr.id == *id).unwrap();
        let urrs: Vec<&Urr> = pdr.urrs.iter().map(find).collect();
        let urrs: Vec<&Urr> = urrs.into_iter().filter(|urr| urr.information & 2 == 0).collect();
        let far = self.far(pdr.far);
        let is_closed = |qer: &&Qer| Gate::Closed == if up { qer.uplink } else { qer.downlink };
        let is_held = far.actions.buffer && !far.actions.drop;
        let reason = match () {
            () if qers.iter().any(is_closed) => Some(DropReason::GateClosed),
            () if far.actions.drop => Some(DropReason::ActionDrop),
            () if !is_held && !self.conforms(&qers, up, now) => Some(DropReason::RateExceeded),
            () => None,
        };
        if let Some(reason) = reason {
            return self.dropped(reason, &urrs, up, length, now);
        }
        // A quota that is used up already and has no path of its own: the packet would not pass, so
        // it uses up no other quota of that kind.
        let mut is_dropped = false;
        for urr in urrs.iter().filter(|_| !is_held) {
            let length = if urr.exhausted_far.is_none() { 0 } else { length };
            is_dropped |= self.stops(urr, up, length, now) && urr.exhausted_far.is_none();
        }
        if is_dropped {
            return PlainAction::Drop(DropReason::QuotaExhausted);
        }
        let stops: Vec<&Urr> =
            urrs.iter().copied().filter(|urr| self.stops(urr, up, length, now)).collect();
        if stops.is_empty() && is_held {
            return PlainAction::HoldLimits;
        }
        if stops.iter().any(|urr| urr.exhausted_far.is_none()) {
            return PlainAction::Drop(DropReason::QuotaExhausted);
        }
        if is_held && !self.conforms(&qers, up, now) {
            return self.dropped(DropReason::RateExceeded, &urrs, up, length, now);
        }
        self.charge(&qers, up, length, now);
        if urrs.len() == stops.len() {
            self.last_uncounted = now;
        }
        for urr in urrs.iter().filter(|urr| !stops.iter().any(|it| it.id == urr.id)) {
            self.count(urr, up, length, now);
        }
        match stops.first().and_then(|urr| urr.exhausted_far) {
            Some(far) => self.forward(self.far(far).forwarding.as_ref().unwrap(), None, 0),
            None => {
                let qfi = qers.iter().find_map(|qer| qer.qfi);
                let copies = if far.actions.duplicate { far.duplicating.len() } else { 0 };
                self.forward(far.forwarding.as_ref().unwrap(), qfi, copies)
            }
        }
    }

    fn forward(&self, to: &Forwarding, qfi: Option<u8>, copies: usize) -> PlainAction {
        let outer = to.outer.map(|outer| {
            let v6 = || crate::rules::layout::session_rules::PeerAddress::V6(outer.v6.unwrap());
            let peer =
                outer.v4.map_or_else(v6, crate::rules::layout::session_rules::PeerAddress::V4);
            Encapsulation::Gtpu(peer, outer.teid.unwrap())
        });
        PlainAction::Forward(to.destination, outer, qfi, copies)
    }

    fn dropped(
        &mut self,
        reason: DropReason,
        urrs: &[&Urr],
        up: bool,
        length: u32,
        now: u64,
    ) -> PlainAction {
        for urr in urrs.iter().filter(|urr| urr.information & 1 != 0) {
            if !self.stops(urr, up, length, now) {
                self.count(urr, up, length, now);
            }
        }
        PlainAction::Drop(reason)
    }

    /// Returns the uplink, downlink and total octets after a packet.
    fn after(&self, urr: &Urr, up: bool, length: u32) -> [u64; 3] {
        let [mut ups, _, mut downs, _] = self.counts.get(&urr.id).copied().unwrap_or_default();
        *(if up { &mut ups } else { &mut downs }) += u64::from(length);
        [ups, downs, ups + downs]
    }

    fn stops(&mut self, urr: &Urr, up: bool, length: u32, now: u64) -> bool {
        let [ups, downs, total] = self.after(urr, up, length);
        let quota = urr.quota.volume.unwrap_or_default();
        let is_late = urr
            .quota
            .validity_s
            .is_some_and(|it| now >= urr.progress.granted_at + u64::from(it) * 1_000_000_000);
        let [before_up, before_down, before] = self.after(urr, up, 0);
        let is_over = quota.uplink.is_some_and(|it| ups > it || before_up >= it)
            || quota.downlink.is_some_and(|it| downs > it || before_down >= it)
            || quota.total.is_some_and(|it| total > it || before >= it);
        if is_late || is_over {
            self.stopped.insert(urr.id);
        }
        self.stopped.contains(&urr.id)
    }

    fn count(&mut self, urr: &Urr, up: bool, length: u32, now: u64) {
        self.last.insert(urr.id, now);
        let [ups, downs, total] = self.after(urr, up, length);
        let threshold = urr.volume_threshold.unwrap_or_default();
        let quota = urr.quota.volume.unwrap_or_default();
        let is_at = |limit: crate::session::Volume| {
            limit.uplink.is_some_and(|it| ups >= it)
                || limit.downlink.is_some_and(|it| downs >= it)
                || limit.total.is_some_and(|it| total >= it)
        };
        if is_at(threshold) {
            self.reached.insert(urr.id);
        }
        if is_at(quota) {
            self.stopped.insert(urr.id);
        }
        let counts = self.counts.entry(urr.id).or_default();
        let first = if up { 0 } else { 2 };
        counts[first] += u64::from(length);
        counts[first + 1] += 1;
    }

    fn rate(qer: &Qer, up: bool) -> Option<u64> {
        qer.maximum.map(|rate| if up { rate.uplink } else { rate.downlink })
    }

    fn conforms(&self, qers: &[&Qer], up: bool, now: u64) -> bool {
        qers.iter().filter(|qer| qer.maximum.is_some()).all(|qer| {
            let word = self.meters.get(&(qer.id, up)).copied().unwrap_or(0);
            word <= (u128::from(now) + 100_000_000) * 64
        })
    }

    fn charge(&mut self, qers: &[&Qer], up: bool, length: u32, now: u64) {
        for qer in qers {
            let Some(rate) = Self::rate(qer, up) else { continue };
            let word = self.meters.entry((qer.id, up)).or_default();
            let cost = u128::from(length) * 8_000_000 * 64 / u128::from(rate);
            *word = (*word).max(u128::from(now) * 64) + cost;
        }
    }

    /// Checks that counters and events equal those in the counter slots.
    pub(super) fn compare(&self, fixture: &RuleFixture, seed: u64) {
        for urr in &self.session.urrs {
            let line = urr.progress.line;
            let counted = self.counts.get(&urr.id).copied().unwrap_or_default();
            assert_eq!(fixture.counters(line), counted, "seed {seed}, URR {}", urr.id);
            let own = if line == self.session.id.0 { self.last_uncounted } else { 0 };
            let last = self.last.get(&urr.id).copied().unwrap_or(0).max(own);
            assert_eq!(fixture.words(line)[LAST], last, "seed {seed}, URR {}", urr.id);
            let word = fixture.words(line)[EVENTS];
            let events = if word >> 32 == self.session.version & 0xFFFF_FFFF { word } else { 0 };
            let has = |bit: u64| events & bit != 0;
            assert_eq!(has(event::QUOTA), self.stopped.contains(&urr.id), "seed {seed}: quota");
            assert_eq!(
                has(event::THRESHOLD),
                self.reached.contains(&urr.id),
                "seed {seed}: threshold"
            );
            let starts = urr.triggers == ReportingTriggers::START && counted != [0; 4];
            assert_eq!(has(event::START), starts, "seed {seed}: start");
        }
    }
}
