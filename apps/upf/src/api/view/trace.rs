//! Explanation of how packets are forwarded.

use std::net::IpAddr;

use fastlane::kernel::Interface;
use fastlane::mirror::query;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::SessionRow;
use super::rule_views::{actions, by_precedence, destination, outer, source};
use super::sample_packet::{PacketView, Sample};
use crate::api::{NodeView, RouteSource, TraceSubject};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;
use crate::session::{Destination, Far, Gate, Pdr, Session, Source, UsageTriggers};

/// Trace of a subscriber, address or tunnel.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Trace {
    /// Subject of the trace.
    pub who: String,
    /// Sessions found.
    pub sessions: Vec<TracedSession>,
}

/// A traced session.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TracedSession {
    /// Fields of the list.
    #[serde(flatten)]
    pub row: SessionRow,
    /// Forwarding by PDR, in the order of evaluation.
    pub ways: Vec<WayView>,
    /// Decisions about the sample packet, uplink and downlink.
    pub packets: Vec<PacketView>,
}

/// Forwarding of the packets that match a PDR.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct WayView {
    /// Rule ID of the PDR.
    pub pdr: u16,
    /// Precedence of the PDR.
    pub precedence: u32,
    /// Source interface.
    pub source: String,
    /// Rule ID of the FAR.
    pub far: u32,
    /// Apply Action of the FAR.
    pub actions: Vec<String>,
    /// Rule IDs of the QERs.
    pub qers: Vec<u32>,
    /// Rule IDs of the URRs.
    pub urrs: Vec<u32>,
    /// Current action: `forward`, `hold` or `drop`.
    pub fate: String,
    /// Drop reason, by its name in the counters.
    pub cause: Option<String>,
    /// Destination interface and outer header.
    pub to: Option<String>,
    /// Address that is routed; null: the packet's own destination.
    pub toward: Option<String>,
    /// Linux routing table; null: main.
    pub table: Option<u32>,
    /// Linux route to the address, or the configured next hop.
    pub next_hop: Option<String>,
}

impl Trace {
    pub(in crate::api) fn of(
        who: &TraceSubject,
        sample: Option<&Sample>,
        sessions: &[Session],
        node: &dyn NodeView,
    ) -> Self {
        let user = match who {
            TraceSubject::Address(address) => Some(*address),
            TraceSubject::Supi(_) | TraceSubject::Teid(_) => None,
        };
        let packets = |it: &Session| {
            let both = [Direction::Uplink, Direction::Downlink].into_iter();
            let of = |direction| PacketView::of(it, user, sample?, direction, node);
            both.filter_map(of).collect()
        };
        let traced = |it: &Session| TracedSession {
            row: SessionRow::of(it, node),
            ways: by_precedence(it).map(|pdr| WayView::of(it, pdr, node)).collect(),
            packets: packets(it),
        };
        Self { who: who.to_string(), sessions: sessions.iter().map(traced).collect() }
    }

    /// Adds Linux's routes from the tables that lanes use, in the network namespace of the calling
    /// thread.
    pub(in crate::api) fn add_routes(&mut self) {
        let ways = self.sessions.iter_mut().flat_map(|session| {
            let packets = session.packets.iter_mut().filter_map(|packet| packet.way.as_mut());
            session.ways.iter_mut().chain(packets)
        });
        for way in ways.filter(|way| way.next_hop.is_none()) {
            let toward = way.toward.as_ref().and_then(|toward| toward.parse().ok());
            way.next_hop = toward.map(|toward| next_hop(toward, way.table));
        }
    }

    /// Returns a summary in one sentence.
    #[must_use]
    pub fn summary(&self) -> String {
        match self.sessions.len() {
            0 => format!(
                "{} has no session: packets are dropped as {} or {}",
                self.who,
                DropReason::UnknownTunnel.name(),
                DropReason::UnknownUser.name()
            ),
            1 => format!("{} has a session", self.who),
            count => format!("{} has {count} sessions", self.who),
        }
    }
}

impl WayView {
    pub(super) fn of(session: &Session, pdr: &Pdr, node: &dyn NodeView) -> Self {
        let far = session.fars.iter().find(|far| far.id == pdr.far);
        let (fate, cause) = fate(session, pdr, far);
        let forwarding = far.and_then(|far| far.forwarding.as_ref());
        let forwarding = forwarding.filter(|_| fate == "forward");
        let header = forwarding.and_then(|it| it.outer.as_ref());
        let to = forwarding.map(|it| {
            let side = destination(it.destination);
            header.map_or_else(|| side.to_owned(), |it| format!("{side} by {}", outer(it)))
        });
        let route_source = forwarding.map(|it| {
            let instance = it.instance.filter(|_| it.destination != Destination::Control);
            node.route_source(instance, header.is_none())
        });
        let (table, next_hop) = match route_source {
            Some(RouteSource::Table(table)) => (table, None),
            Some(RouteSource::Fixed(hop, port)) => (None, Some(format!("to {hop} by port {port}"))),
            None => (None, None),
        };
        Self {
            pdr: pdr.id,
            precedence: pdr.precedence,
            source: source(pdr.source).to_owned(),
            far: pdr.far,
            actions: far
                .map(|far| actions(far.actions))
                .unwrap_or_default()
                .iter()
                .map(|it| (*it).to_owned())
                .collect(),
            qers: pdr.qers.clone(),
            urrs: pdr.urrs.clone(),
            fate: fate.to_owned(),
            cause: cause.map(|cause| cause.name().to_owned()),
            to,
            toward: header
                .and_then(|it| it.v4.map(IpAddr::from).or(it.v6.map(IpAddr::from)))
                .map(|it| it.to_string()),
            table,
            next_hop,
        }
    }
}

/// Describes the route to an address.
fn next_hop(toward: IpAddr, table: Option<u32>) -> String {
    let of = table.map_or_else(String::new, |table| format!(" in table {table}"));
    match table.map_or_else(|| query::route(toward), |table| query::route_in_table(table, toward)) {
        Ok(way) => {
            let all = Interface::all().unwrap_or_default();
            let found = all.into_iter().find(|it| it.index == way.interface);
            let name = found.map_or_else(|| way.interface.to_string(), |it| it.name);
            let hop = way.gateway.map_or_else(String::new, |gateway| format!("via {gateway} "));
            format!("{hop}on {name}{of}")
        }
        Err(error) => format!("no route{of} ({error})"),
    }
}

/// Returns the action for a matching packet as far as rules decide it. Meters, addresses and routes
/// depend on the packet.
fn fate(session: &Session, pdr: &Pdr, far: Option<&Far>) -> (&'static str, Option<DropReason>) {
    let mut qers = session.qers.iter().filter(|qer| pdr.qers.contains(&qer.id));
    let closed = qers.any(|qer| {
        let gate = if pdr.source == Source::Access { qer.uplink } else { qer.downlink };
        gate == Gate::Closed
    });
    if closed {
        return ("drop", Some(DropReason::GateClosed));
    }
    let Some(far) = far else { return ("drop", Some(DropReason::NoRule)) };
    let mut urrs = session.urrs.iter().filter(|urr| pdr.urrs.contains(&urr.id));
    let quotas = [UsageTriggers::VOLQU, UsageTriggers::TIMQU, UsageTriggers::QUHTI];
    let ended = quotas.into_iter().fold(UsageTriggers::QUVTI, UsageTriggers::with);
    if urrs.any(|urr| urr.progress.ended.any(ended) && urr.exhausted_far.is_none()) {
        return ("drop", Some(DropReason::QuotaExhausted));
    }
    if far.actions.forward {
        ("forward", None)
    } else if far.actions.buffer {
        ("hold", None)
    } else {
        ("drop", Some(DropReason::ActionDrop))
    }
}
