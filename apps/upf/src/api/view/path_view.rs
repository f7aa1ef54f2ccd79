//! Forwarding of the packets that match a PDR.

use std::net::IpAddr;

use fastlane::kernel::Interface;
use fastlane::mirror::query;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::node_view::{NodeView, RouteSource};
use super::rule_views::{actions, destination, outer, source};
use crate::rules::layout::drop_reason::DropReason;
use crate::session::{Destination, Far, Gate, Pdr, Session, Source, UsageReportTrigger};

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
pub(super) fn next_hop(toward: IpAddr, table: Option<u32>) -> String {
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
    let quotas = [UsageReportTrigger::VOLQU, UsageReportTrigger::TIMQU, UsageReportTrigger::QUHTI];
    let ended = quotas.into_iter().fold(UsageReportTrigger::QUVTI, UsageReportTrigger::with);
    if urrs.any(|urr| urr.progress.ended.has_any(ended) && urr.exhausted_far.is_none()) {
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
