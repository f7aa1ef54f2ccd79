//! Explanation of how packets are forwarded, and the decision of the published rules about a sample
//! packet.

use std::net::IpAddr;

use fastlane::kernel::Interface;
use fastlane::mirror::query;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rule_views::{actions, by_precedence, destination, outer, source, tunnel};
use super::{NodeView, RouteSource, SessionRow, TraceSubject};
use crate::datapath::classify::{PacketFields, Ports};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;
use crate::session::{
    Destination, Far, Gate, InstanceId, LocalTunnel, Pdr, Session, Source, UsageReportTrigger,
};

/// Names of protocols (IANA protocol numbers).
const NAMES: [(&str, u8); 5] =
    [("tcp", 6), ("udp", 17), ("sctp", 132), ("icmp", 1), ("icmpv6", 58)];

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

/// A sample packet between a UE and a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Remote address.
    pub to: IpAddr,
    /// Protocol number.
    pub protocol: u8,
    /// Remote port and UE port, of a protocol with ports.
    pub ports: [u16; 2],
    /// QoS flow that the gNB sets; default: that of the first PDR.
    pub qfi: Option<u8>,
    /// Length of the IP packet in octets.
    pub length: u32,
}

/// A sample packet and the decision about it. It is not counted and uses nothing up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PacketView {
    /// `uplink` or `downlink`.
    pub direction: String,
    /// Description of the packet.
    pub packet: String,
    /// Tunnel of the ingress.
    pub tunnel: Option<String>,
    /// Action: `forward`, `hold` or `drop`.
    pub fate: String,
    /// Drop reason, by its name in the counters.
    pub cause: Option<String>,
    /// Rules that apply; null if no PDR matches.
    pub way: Option<WayView>,
}

/// Parses a protocol name or number.
///
/// # Errors
/// Returns the accepted forms.
pub fn protocol(text: &str) -> Result<u8, String> {
    let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| text.parse().ok()).ok_or_else(|| {
        format!("`{text}` is no protocol; write tcp, udp, sctp, icmp, icmpv6 or a number up to 255")
    })
}

impl Sample {
    const fn has_ports(&self) -> bool {
        matches!(self.protocol, 6 | 17 | 132)
    }

    /// Returns the packet fields that PDRs match.
    fn fields(&self, user: IpAddr, direction: Direction, from: &Ingress) -> PacketFields {
        let (family, theirs) = PacketFields::address(self.to);
        let (_, own) = PacketFields::address(user);
        let [there, here] = self.ports;
        let ((source, destination), (first, second)) = match direction {
            Direction::Uplink => ((own, theirs), (here, there)),
            Direction::Downlink => ((theirs, own), (there, here)),
        };
        let ports = if self.has_ports() { Ports::Known(first, second) } else { Ports::None };
        PacketFields {
            tunnel: from.tunnel.map(|tunnel| tunnel.teid),
            instance: from.instance,
            qfi: self.qfi.filter(|_| direction == Direction::Uplink).or(from.qfi),
            family,
            source,
            destination,
            protocol: self.protocol,
            tos: 0,
            ports,
            spi: None,
            flow_label: 0,
            length: self.length,
        }
    }

    fn text(&self, user: IpAddr, direction: Direction) -> String {
        let name = NAMES.iter().find(|(_, number)| *number == self.protocol);
        let name = name.map_or_else(|| self.protocol.to_string(), |(name, _)| (*name).to_owned());
        let end = |address: IpAddr, port: u16| match self.has_ports() {
            true => std::net::SocketAddr::new(address, port).to_string(),
            false => address.to_string(),
        };
        let (there, here) = (end(self.to, self.ports[0]), end(user, self.ports[1]));
        let (from, to) = if direction == Direction::Uplink { (here, there) } else { (there, here) };
        format!("{name} from {from} to {to}, {} octets", self.length)
    }
}

/// Ingress of a packet.
struct Ingress {
    tunnel: Option<LocalTunnel>,
    instance: InstanceId,
    /// QoS flow, unless the sample names another one.
    qfi: Option<u8>,
}

impl PacketView {
    /// Returns the decision about a packet in a direction; `user` is the UE address to use.
    pub(super) fn of(
        session: &Session,
        user: Option<IpAddr>,
        sample: &Sample,
        direction: Direction,
        node: &dyn NodeView,
    ) -> Option<Self> {
        let is_same = |address: &IpAddr| address.is_ipv4() == sample.to.is_ipv4();
        let user = user.filter(is_same).or_else(|| address_of(session, sample.to.is_ipv4()))?;
        let from = ingress_of(session, direction, node)?;
        let fields = sample.fields(user, direction, &from);
        let dry_run = node.dry_run(session, &fields)?;
        let pdr = session.pdrs.iter().find(|pdr| pdr.id == dry_run.pdr);
        let way = pdr.map(|pdr| {
            let mut way = WayView::of(session, pdr, node);
            (way.fate, way.cause) = (dry_run.fate.to_owned(), None);
            let goes = dry_run.fate == "forward";
            way.to = way.to.filter(|_| goes);
            // Without an outer header the packet's destination is routed.
            way.toward = way.toward.or_else(|| Some(sample.to.to_string())).filter(|_| goes);
            way.next_hop = way.next_hop.filter(|_| goes);
            way
        });
        Some(Self {
            direction: if direction == Direction::Uplink { "uplink" } else { "downlink" }
                .to_owned(),
            packet: sample.text(user, direction),
            tunnel: from.tunnel.as_ref().map(tunnel),
            fate: dry_run.fate.to_owned(),
            cause: dry_run.cause.map(|cause| cause.name().to_owned()),
            way,
        })
    }
}

/// Returns a UE address of the session.
fn address_of(session: &Session, is_v4: bool) -> Option<IpAddr> {
    let mut users = session.pdrs.iter().filter_map(|pdr| pdr.user);
    users.find_map(|user| match is_v4 {
        true => user.v4.map(IpAddr::V4),
        false => user.v6.map(|(prefix, _)| IpAddr::V6(prefix)),
    })
}

/// Returns the ingress of a direction: that of its first PDR.
fn ingress_of(session: &Session, direction: Direction, node: &dyn NodeView) -> Option<Ingress> {
    let is_up = direction == Direction::Uplink;
    let is_it =
        |pdr: &&Pdr| (pdr.source == Source::Access) == is_up && (!is_up || pdr.tunnel.is_some());
    let pdr = by_precedence(session).find(is_it)?;
    let instance = pdr.instance.or_else(|| node.arrival(is_up))?;
    Some(Ingress { tunnel: pdr.tunnel, instance, qfi: pdr.qfis.first().copied() })
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
