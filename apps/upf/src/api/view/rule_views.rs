//! JSON views of the rules of a session.

use std::fmt::Write;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{NodeView, texts};
use crate::session::{
    Actions, Destination, Far, Filter, FlowDescription, Forwarding, Gate, LocalTunnel, OuterHeader,
    Pdr, Prefix, Qer, Rate, Redirect, Session, Source, Urr,
};

/// A packet detection rule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PdrView {
    /// Rule ID.
    pub id: u16,
    /// Precedence; the lowest value is evaluated first.
    pub precedence: u32,
    /// Source interface: `access`, `core`, `sgi-lan`, `gtpu_control`.
    pub source: String,
    /// Network instance of the ingress.
    pub network_instance: Option<String>,
    /// Local tunnel.
    pub tunnel: Option<String>,
    /// UE addresses.
    pub user: Vec<String>,
    /// Networks behind the UE.
    pub framed: Vec<String>,
    /// Filters, one of which must match.
    pub filters: Vec<String>,
    /// QoS flows, one of which the packet must have.
    pub qfis: Vec<u8>,
    /// Rule ID of the FAR.
    pub far: u32,
    /// Rule IDs of the QERs.
    pub qers: Vec<u32>,
    /// Rule IDs of the URRs.
    pub urrs: Vec<u32>,
    /// Predefined rules that it activates.
    pub predefined: Vec<String>,
}

impl PdrView {
    pub(super) fn of(it: &Pdr, node: &dyn NodeView) -> Self {
        let instance = it.instance.and_then(|instance| node.instance(instance));
        Self {
            id: it.id,
            precedence: it.precedence,
            source: source(it.source).to_owned(),
            network_instance: instance.map(str::to_owned),
            tunnel: it.tunnel.as_ref().map(tunnel),
            user: it.user.iter().flat_map(texts).collect(),
            framed: it.framed.iter().map(prefix).collect(),
            filters: it.filters.iter().map(filter).collect(),
            qfis: it.qfis.clone(),
            far: it.far,
            qers: it.qers.clone(),
            urrs: it.urrs.clone(),
            predefined: it.predefined.clone(),
        }
    }
}

/// A forwarding action rule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FarView {
    /// Rule ID.
    pub id: u32,
    /// Apply Action: `drop`, `forward`, `buffer`, `notify`, `duplicate`.
    pub actions: Vec<String>,
    /// Forwarding parameters.
    pub forwarding: Option<ForwardingView>,
    /// Duplicating parameters.
    pub duplicating: Vec<ForwardingView>,
    /// Rule ID of the BAR.
    pub bar: Option<u8>,
}

impl FarView {
    pub(super) fn of(it: &Far, node: &dyn NodeView) -> Self {
        let copies = it.duplicating.iter();
        Self {
            id: it.id,
            actions: actions(it.actions).into_iter().map(str::to_owned).collect(),
            forwarding: it.forwarding.as_ref().map(|it| ForwardingView::of(it, node)),
            duplicating: copies.map(|it| ForwardingView::of(it, node)).collect(),
            bar: it.bar,
        }
    }
}

/// Forwarding parameters.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ForwardingView {
    /// Destination interface: `access`, `core`, `sgi-lan`, `gtpu_control`.
    pub destination: String,
    /// Network instance of the egress.
    pub network_instance: Option<String>,
    /// Outer header to add.
    pub outer: Option<String>,
    /// Type of service of the outer header: value and mask.
    pub marking: Option<(u8, u8)>,
    /// Redirection: a URL, an address, or an IPv4 and an IPv6 address.
    pub redirect: Option<String>,
}

impl ForwardingView {
    pub(super) fn of(it: &Forwarding, node: &dyn NodeView) -> Self {
        let instance = it.instance.and_then(|instance| node.instance(instance));
        Self {
            destination: destination(it.destination).to_owned(),
            network_instance: instance.map(str::to_owned),
            outer: it.outer.as_ref().map(outer),
            marking: it.marking,
            redirect: it.redirect.as_ref().map(|redirect| match redirect {
                Redirect::Address(address) => address.to_string(),
                Redirect::Both(v4, v6) => format!("{v4} {v6}"),
                Redirect::Url(url) | Redirect::Sip(url) => url.clone(),
            }),
        }
    }
}

/// A QoS enforcement rule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct QerView {
    /// Rule ID.
    pub id: u32,
    /// Uplink and downlink gate; true: open.
    pub open: [bool; 2],
    /// Maximum bit rates.
    pub maximum: Option<RateView>,
    /// Guaranteed bit rates, which are not enforced.
    pub guaranteed: Option<RateView>,
    /// QoS flow that downlink packets are marked with.
    pub qfi: Option<u8>,
    /// True if downlink packets carry the reflective QoS indication.
    pub reflective: bool,
}

/// Bit rates.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RateView {
    /// Uplink rate in kbit/s.
    pub uplink_kbps: u64,
    /// Downlink rate in kbit/s.
    pub downlink_kbps: u64,
}

impl QerView {
    pub(super) fn of(it: &Qer) -> Self {
        let rate = |rate: Rate| RateView { uplink_kbps: rate.uplink, downlink_kbps: rate.downlink };
        Self {
            id: it.id,
            open: [it.uplink == Gate::Open, it.downlink == Gate::Open],
            maximum: it.maximum.map(rate),
            guaranteed: it.guaranteed.map(rate),
            qfi: it.qfi,
            reflective: it.reflective,
        }
    }
}

/// A usage reporting rule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct UrrView {
    /// Rule ID.
    pub id: u32,
    /// Measurement method: `duration`, `volume`, `event`.
    pub measures: Vec<String>,
    /// Reporting triggers (TS 29.244 clause 8.2.19), octet 5 lowest.
    pub triggers: String,
    /// Counters: uplink octets and packets, downlink octets and packets.
    pub counted: [u64; 4],
    /// Reported part of the counters.
    pub reported: [u64; 4],
    /// Sequence number of the next report.
    pub sequence: u32,
}

impl UrrView {
    pub(super) fn of(it: &Urr, node: &dyn NodeView) -> Self {
        let measure = it.measure;
        let measures =
            [(measure.duration, "duration"), (measure.volume, "volume"), (measure.event, "event")];
        Self {
            id: it.id,
            measures: measures.iter().filter(|it| it.0).map(|it| it.1.to_owned()).collect(),
            triggers: format!("{:#x}", it.triggers.0),
            counted: node.counted(it.progress.line),
            reported: it.progress.reported,
            sequence: it.progress.sequence,
        }
    }
}

/// Returns the PDRs in the order of evaluation.
pub(super) fn by_precedence(session: &Session) -> impl Iterator<Item = &Pdr> {
    let mut pdrs: Vec<&Pdr> = session.pdrs.iter().collect();
    pdrs.sort_by_key(|pdr| pdr.precedence);
    pdrs.into_iter()
}

pub(super) fn source(source: Source) -> &'static str {
    match source {
        Source::Access => "access",
        Source::Core => "core",
        Source::SgiLan => "sgi-lan",
        Source::Control => "control",
    }
}

pub(super) fn destination(destination: Destination) -> &'static str {
    match destination {
        Destination::Access => "access",
        Destination::Core => "core",
        Destination::SgiLan => "sgi-lan",
        Destination::Control => "control",
    }
}

pub(super) fn actions(actions: Actions) -> Vec<&'static str> {
    let all = [
        (actions.drop, "drop"),
        (actions.forward, "forward"),
        (actions.buffer, "buffer"),
        (actions.notify, "notify"),
        (actions.duplicate, "duplicate"),
    ];
    all.iter().filter(|it| it.0).map(|it| it.1).collect()
}

pub(super) fn tunnel(it: &LocalTunnel) -> String {
    let addresses = it.v4.map(IpAddr::from).into_iter().chain(it.v6.map(IpAddr::from));
    let addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    format!("{:#010x} at {}", it.teid, addresses.join(", "))
}

pub(super) fn outer(it: &OuterHeader) -> String {
    let far = it.v4.map(IpAddr::from).or(it.v6.map(IpAddr::from));
    let far = far.map_or_else(|| "nowhere".to_owned(), |far| far.to_string());
    match (it.teid, it.port) {
        (Some(teid), _) => format!("GTP-U {teid:#010x} at {far}"),
        (None, Some(port)) => format!("UDP port {port} at {far}"),
        (None, None) => format!("IP to {far}"),
    }
}

pub(super) fn prefix(it: &Prefix) -> String {
    format!("{}/{}", it.address, it.length)
}

fn filter(it: &Filter) -> String {
    let mut text = it.flow.as_ref().map_or_else(|| "any packet".to_owned(), flow);
    // Writing into a String does not fail.
    if let Some((value, mask)) = it.tos {
        let _ = write!(text, " tos {value:#04x}/{mask:#04x}");
    }
    if let Some(spi) = it.spi {
        let _ = write!(text, " spi {spi:#x}");
    }
    if let Some(label) = it.flow_label {
        let _ = write!(text, " flow label {label:#x}");
    }
    if let Some(id) = it.id {
        let _ = write!(text, " (filter {id})");
    }
    text
}

fn flow(it: &FlowDescription) -> String {
    let protocol = it.protocol.map_or_else(|| "ip".to_owned(), |protocol| protocol.to_string());
    let end = |address: Option<Prefix>, ports: &[(u16, u16)], any: &str| {
        let mut text = address.as_ref().map_or_else(|| any.to_owned(), prefix);
        for (place, (low, high)) in ports.iter().enumerate() {
            text.push(if place == 0 { ' ' } else { ',' });
            let _ = if low == high { write!(text, "{low}") } else { write!(text, "{low}-{high}") };
        }
        text
    };
    let from = end(it.remote, &it.remote_ports, "any");
    let to = end(it.local, &it.local_ports, "assigned");
    format!("permit out {protocol} from {from} to {to}")
}
