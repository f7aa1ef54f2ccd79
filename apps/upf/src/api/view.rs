//! JSON views of associations, sessions and rules.
//!
//! Identifiers that are usually written in hex are text (`0x...`), since not every JSON reader
//! keeps 64 bits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::pfcp::associations::Association;
use crate::session::{Session, UserAddress};

mod node_view;
mod path_view;
mod rule_views;
mod trace;

pub use node_view::{DryRun, NodeView, RouteSource, TraceSubject};
pub use path_view::WayView;
pub use rule_views::{FarView, ForwardingView, PdrView, QerView, RateView, UrrView};
pub use trace::{PacketView, Sample, Trace, TracedSession, protocol};

/// An association with a control plane function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AssociationView {
    /// Node ID.
    pub node_id: String,
    /// Address for requests.
    pub address: String,
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
            local: it.peer.local.map(|local| local.to_string()),
            recovery_unix_s: i64::from(it.peer.recovery) - FROM_1900,
            features: format!("{:#x}", it.peer.features),
            is_up: it.peer.is_up,
            since_unix_s: it.since / SECOND,
            sessions: node.sessions_of(it.peer.place),
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
        }
    }
}
