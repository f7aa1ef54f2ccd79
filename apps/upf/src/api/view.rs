//! JSON views of associations, sessions and rules, and [`NodeView`], what the control plane shows
//! to the API.
//!
//! Identifiers that are usually written in hex are text (`0x...`), since not every JSON reader
//! keeps 64 bits.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::metrics::Snapshot;
use crate::config::nat_plan::BUCKET;
use crate::datapath::classify::PacketFields;
use crate::pfcp::associations::Association;
use crate::pfcp::{NodeName, ReloadReport};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::nat_tables::NatUser;
use crate::session::{InstanceId, PdrId, Session, SessionIndex, UserAddress};

mod capture_view;
mod drain_view;
mod health_view;
mod rule_views;
mod top_view;
mod trace;

pub use capture_view::{CapturePlan, CapturePort, CaptureSubject, CapturedSession, TunnelEnd};
pub use drain_view::{DrainStage, DrainView};
pub use health_view::{HealthView, Readiness};
pub use rule_views::{FarView, ForwardingView, PdrView, QerView, RateView, UrrView};
pub use top_view::{OutcomeRate, SliceDrops, SliceRates, TopRow, TopView};
pub use trace::{PacketView, Sample, Trace, TracedSession, WayView, protocol};

/// An association with a control plane function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AssociationView {
    /// Node ID.
    pub node_id: String,
    /// Address for requests.
    pub address: String,
    /// Alternative addresses (Alternative SMF IP Address).
    #[serde(default)]
    pub alternatives: Vec<String>,
    /// SMF Set ID.
    #[serde(default)]
    pub smf_set: Option<String>,
    /// Local address that it sends to.
    pub local: Option<String>,
    /// Recovery time stamp in seconds since 1970.
    pub recovery_unix_s: i64,
    /// CP Function Features (TS 29.244 clause 8.2.58), octet 5 lowest.
    pub features: String,
    /// True if the peer responds.
    pub is_up: bool,
    /// Time of the setup in seconds since 1970.
    pub since_unix_s: u64,
    /// Number of sessions.
    pub sessions: usize,
}

/// Seconds from 1900, the epoch of PFCP (clause 8.2.3), to 1970.
const FROM_1900: i64 = 2_208_988_800;
const SECOND: u64 = 1_000_000_000;

impl AssociationView {
    pub(super) fn of(it: &Association, node: &dyn NodeView) -> Self {
        Self {
            node_id: it.peer.node_id.to_string(),
            address: it.peer.address.to_string(),
            alternatives: it.alternatives.iter().map(ToString::to_string).collect(),
            smf_set: (!it.smf_set.is_empty())
                .then(|| NodeName::Name(it.smf_set.clone()).to_string()),
            local: it.peer.local.map(|local| local.to_string()),
            recovery_unix_s: i64::from(it.peer.recovery) - FROM_1900,
            features: format!("{:#x}", it.peer.features),
            is_up: it.peer.is_up,
            since_unix_s: it.since / SECOND,
            sessions: node.sessions_of(it.peer.index),
        }
    }
}

/// A page of sessions, by session index.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Page {
    /// Sessions of the page.
    pub sessions: Vec<SessionRow>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<u32>,
    /// Total number of sessions.
    pub total: usize,
}

/// A session in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionRow {
    /// UP SEID.
    pub seid: String,
    /// CP SEID.
    pub control_seid: String,
    /// CP F-SEID address.
    pub control_address: String,
    /// SUPI, if the control plane function provided it.
    pub supi: Option<String>,
    /// Data network name, if the control plane function provided it.
    pub network: Option<String>,
    /// Network slice, as `1-010203` or `1`, if the control plane function provided it.
    #[serde(default)]
    pub s_nssai: Option<String>,
    /// UE addresses and prefixes.
    pub addresses: Vec<String>,
    /// Local tunnels.
    pub tunnels: Vec<String>,
    /// Number of PDRs, FARs, QERs, URRs and BARs.
    pub rules: [usize; 5],
    /// Counters of its first URR: uplink octets and packets, downlink octets and packets.
    pub counted: [u64; 4],
    /// Time of the establishment in seconds since 1970.
    pub since_unix_s: u64,
}

impl SessionRow {
    pub(super) fn of(it: &Session, node: &dyn NodeView) -> Self {
        let mut addresses: Vec<String> =
            it.pdrs.iter().filter_map(|pdr| pdr.user).flat_map(|user| texts(&user)).collect();
        addresses.extend(it.pdrs.iter().flat_map(|pdr| &pdr.framed).map(rule_views::prefix));
        addresses.sort_unstable();
        addresses.dedup();
        let tunnels = it.pdrs.iter().filter_map(|pdr| pdr.tunnel);
        let mut tunnels: Vec<String> = tunnels.map(|it| rule_views::tunnel(&it)).collect();
        tunnels.sort_unstable();
        tunnels.dedup();
        Self {
            seid: format!("{:#x}", it.seid),
            control_seid: format!("{:#x}", it.cp_fseid.seid),
            control_address: it.cp_fseid.address.to_string(),
            supi: it.supi.clone(),
            network: it.network.clone(),
            s_nssai: it.s_nssai.map(|it| it.to_string()),
            addresses,
            tunnels,
            rules: it.rules(),
            counted: node.counted(it.id.0),
            since_unix_s: it.established / SECOND,
        }
    }
}

/// Returns the UE addresses as text.
fn texts(user: &UserAddress) -> impl Iterator<Item = String> + use<> {
    let v4 = user.v4.map(|it| it.to_string());
    v4.into_iter().chain(user.v6.map(|(address, length)| format!("{address}/{length}")))
}

/// A session with all its rules.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionView {
    /// Fields of the list.
    #[serde(flatten)]
    pub row: SessionRow,
    /// Session index in the tables.
    pub place: u32,
    /// Version, which increases with each change of any session.
    pub version: u64,
    /// Packet detection rules in the order of evaluation.
    pub pdrs: Vec<PdrView>,
    /// Forwarding action rules.
    pub fars: Vec<FarView>,
    /// QoS enforcement rules.
    pub qers: Vec<QerView>,
    /// Usage reporting rules.
    pub urrs: Vec<UrrView>,
    /// External address and ports, if NAT translates the UE's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalView>,
}

/// Block of external ports of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ExternalView {
    /// External address.
    pub address: String,
    /// First port.
    pub first_port: u16,
    /// Last port.
    pub last_port: u16,
}

impl From<&NatUser> for ExternalView {
    fn from(user: &NatUser) -> Self {
        let last = u32::from(user.first_port) + user.buckets * BUCKET - 1;
        Self {
            address: Ipv4Addr::from(user.external).to_string(),
            first_port: user.first_port,
            last_port: u16::try_from(last).unwrap_or(u16::MAX),
        }
    }
}

impl SessionView {
    pub(super) fn of(it: &Session, node: &dyn NodeView) -> Self {
        Self {
            row: SessionRow::of(it, node),
            place: it.id.0,
            version: it.version,
            pdrs: rule_views::by_precedence(it).map(|pdr| PdrView::of(pdr, node)).collect(),
            fars: it.fars.iter().map(|far| FarView::of(far, node)).collect(),
            qers: it.qers.iter().map(QerView::of).collect(),
            urrs: it.urrs.iter().map(|urr| UrrView::of(urr, node)).collect(),
            external: node.external(it.id),
        }
    }
}

/// Read-only view of the control plane.
pub trait NodeView {
    /// Returns the associations.
    fn associations(&self) -> Vec<&Association>;
    /// Returns the number of sessions of the association with this index.
    fn sessions_of(&self, peer: u16) -> usize;
    /// Returns the number of sessions.
    fn sessions(&self) -> usize;
    /// Returns up to `limit` sessions behind a cursor, by session index.
    fn after(&self, place: Option<SessionIndex>, limit: usize) -> Vec<Session>;
    /// Returns the session with this UP SEID.
    fn session(&self, seid: u64) -> Option<Session>;
    /// Returns up to `limit` sessions of a subscriber, address or tunnel.
    fn find(&self, who: &TraceSubject, limit: usize) -> Vec<Session>;
    /// Returns the counters of a slot: uplink octets, uplink packets, downlink octets, downlink
    /// packets.
    fn counted(&self, line: u32) -> [u64; 4];
    /// Returns the block of external ports of a session.
    fn external(&self, session: SessionIndex) -> Option<ExternalView>;
    /// Returns the name of a network instance.
    fn instance(&self, instance: InstanceId) -> Option<&str>;
    /// Returns the network instance in which uplink or downlink packets arrive if a PDR names none.
    fn arrival(&self, is_uplink: bool) -> Option<InstanceId>;
    /// Returns what routes packets that leave by N6, or through a tunnel, in a network instance if
    /// one is named.
    fn route_source(&self, instance: Option<InstanceId>, is_n6: bool) -> RouteSource;
    /// Returns the decision of the published rules about a packet of a session. Nothing is charged.
    fn dry_run(&self, session: &Session, fields: &PacketFields) -> Option<DryRun>;
    /// Returns the busiest sessions, as the last scan has found them.
    fn top(&self) -> TopView;
    /// Returns what a capture of these sessions needs.
    fn capture_plan(&self, sessions: &[Session]) -> CapturePlan;
    /// Returns the state of the drain.
    fn drain(&self) -> DrainView;
    /// Returns the result of the reload that was asked for.
    fn reload(&self) -> ReloadReport;
    /// Returns all counters.
    fn numbers(&self) -> Snapshot;
}

/// Source of egress routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteSource {
    /// Linux routing table by number; `None`: main.
    Table(Option<u32>),
    /// Configured next hop: Ethernet address and port.
    Fixed(String, String),
}

/// Decision of the rules about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryRun {
    /// PDR that matches; 0: none.
    pub pdr: PdrId,
    /// `forward`, `hold` or `drop`.
    pub fate: &'static str,
    /// Drop reason.
    pub cause: Option<DropReason>,
}

/// Subject of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSubject {
    /// Subscriber: digits of the SUPI.
    Supi(String),
    /// UE address.
    Address(IpAddr),
    /// Local TEID.
    Teid(u32),
}

/// Parses an address; a TEID as `0x` and hex digits or a number of at most 10 digits; a SUPI with
/// or without `imsi-`.
impl FromStr for TraceSubject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        if let Some(hex) = text.strip_prefix("0x") {
            let teid = u32::from_str_radix(hex, 16);
            return teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"));
        }
        let supi = text.strip_prefix("imsi-");
        match supi.unwrap_or(text) {
            number if supi.is_none() && number.len() <= 10 && digits(number) => {
                let teid = number.parse();
                teid.map(Self::Teid).map_err(|_| format!("`{text}` is no TEID of 32 bits"))
            }
            number if digits(number) && number.len() <= 15 => Ok(Self::Supi(number.to_owned())),
            _ => Err(format!(
                "`{text}` is neither SUPI, address nor TEID; write a SUPI (imsi-001010000000001), \
                 an address of a UE, or a TEID (0x1234)"
            )),
        }
    }
}

impl fmt::Display for TraceSubject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supi(digits) => write!(to, "imsi-{digits}"),
            Self::Address(address) => address.fmt(to),
            Self::Teid(teid) => write!(to, "{teid:#010x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_who_in_four_ways() {
        let of = |text: &str| text.parse::<TraceSubject>();
        assert_eq!(of("10.45.0.2"), Ok(TraceSubject::Address("10.45.0.2".parse().unwrap())));
        assert_eq!(of("2001:db8::1"), Ok(TraceSubject::Address("2001:db8::1".parse().unwrap())));
        assert_eq!(of("0x1f"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("31"), Ok(TraceSubject::Teid(31)));
        assert_eq!(of("4294967295"), Ok(TraceSubject::Teid(u32::MAX)));
        assert!(of("4294967296").is_err());
        assert!(of("0x100000000").is_err());
        assert_eq!(of("imsi-31"), Ok(TraceSubject::Supi("31".to_owned())));
        assert_eq!(of("001010000000001"), Ok(TraceSubject::Supi("001010000000001".to_owned())));
        for nobody in ["", "x", "imsi-", "imsi-1x", "1234567890123456", "10.45.0"] {
            assert!(of(nobody).is_err(), "{nobody}");
        }
        for who in ["imsi-31", "10.45.0.2", "0x0000001f"] {
            assert_eq!(of(who).unwrap().to_string(), who);
        }
    }
}
