//! What is answered, as JSON: associations, sessions, rules.
//!
//! Identifiers of 64 and 32 bits that people compare in hex are text (`0x...`): not every reader of
//! JSON keeps 64 bits.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::facts::Facts;
use crate::pfcp::peer::peers::Association;
use crate::session::{Session, UserAddress};

mod packet;
mod rules;
mod trace;

pub use packet::{Judged, PacketView, Sample, protocol};
pub use rules::{FarView, ForwardingView, PdrView, QerView, RateView, UrrView};
pub use trace::{Trace, TracedSession, WayView};

/// An association with a control plane function.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AssociationView {
    /// Its Node ID.
    pub node_id: String,
    /// Where requests to it go.
    pub address: String,
    /// The address of this UPF that it speaks to.
    pub local: Option<String>,
    /// Its recovery time stamp: seconds since 1970.
    pub recovery_unix_s: i64,
    /// CP Function Features (TS 29.244 clause 8.2.58), octet 5 lowest.
    pub features: String,
    /// Whether it is heard.
    pub is_up: bool,
    /// When it was set up: seconds since 1970.
    pub since_unix_s: u64,
    /// How many sessions it has.
    pub sessions: usize,
}

/// Seconds from 1900, from which PFCP counts (clause 8.2.3), to 1970.
const FROM_1900: i64 = 2_208_988_800;
const SECOND: u64 = 1_000_000_000;

impl AssociationView {
    pub(super) fn of(it: &Association, facts: &dyn Facts) -> Self {
        Self {
            node_id: it.peer.node_id.to_string(),
            address: it.peer.address.to_string(),
            local: it.peer.local.map(|local| local.to_string()),
            recovery_unix_s: i64::from(it.peer.recovery) - FROM_1900,
            features: format!("{:#x}", it.peer.features),
            is_up: it.peer.is_up,
            since_unix_s: it.since / SECOND,
            sessions: facts.sessions_of(it.peer.place),
        }
    }
}

/// Some sessions, in the order of their places.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Page {
    /// They.
    pub sessions: Vec<SessionRow>,
    /// What to ask for as `after` to get the next page; none when this is the last.
    pub next: Option<u32>,
    /// How many sessions there are in all.
    pub total: usize,
}

/// A session in a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionRow {
    /// Its SEID at this UPF.
    pub seid: String,
    /// Its SEID at the control plane function.
    pub control_seid: String,
    /// The control plane function's address of it.
    pub control_address: String,
    /// The subscriber, if the control plane said.
    pub supi: Option<String>,
    /// The data network's name, if the control plane said.
    pub network: Option<String>,
    /// The user's addresses and prefixes.
    pub addresses: Vec<String>,
    /// Tunnels of this UPF, by which its packets arrive.
    pub tunnels: Vec<String>,
    /// Rules: PDRs, FARs, QERs, URRs, BARs.
    pub rules: [usize; 5],
    /// What its first URR has counted: octets and packets from the user, then to the user.
    pub counted: [u64; 4],
    /// When it was established: seconds since 1970.
    pub since_unix_s: u64,
}

impl SessionRow {
    pub(super) fn of(it: &Session, facts: &dyn Facts) -> Self {
        let mut addresses: Vec<String> =
            it.pdrs.iter().filter_map(|pdr| pdr.user).flat_map(|user| texts(&user)).collect();
        addresses.extend(it.pdrs.iter().flat_map(|pdr| &pdr.framed).map(rules::prefix));
        addresses.sort_unstable();
        addresses.dedup();
        let tunnels = it.pdrs.iter().filter_map(|pdr| pdr.tunnel);
        let mut tunnels: Vec<String> = tunnels.map(|it| rules::tunnel(&it)).collect();
        tunnels.sort_unstable();
        tunnels.dedup();
        Self {
            seid: format!("{:#x}", it.seid),
            control_seid: format!("{:#x}", it.control.seid),
            control_address: it.control.address.to_string(),
            supi: it.supi.clone(),
            network: it.network.clone(),
            addresses,
            tunnels,
            rules: it.rules(),
            counted: facts.counted(it.id.0),
            since_unix_s: it.established / SECOND,
        }
    }
}

/// A user's addresses as people write them.
fn texts(user: &UserAddress) -> impl Iterator<Item = String> + use<> {
    let v4 = user.v4.map(|it| it.to_string());
    v4.into_iter().chain(user.v6.map(|(address, length)| format!("{address}/{length}")))
}

/// A session with all its rules.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SessionView {
    /// What lists show.
    #[serde(flatten)]
    pub row: SessionRow,
    /// Its place in the tables.
    pub place: u32,
    /// Grows with each change of any session.
    pub version: u64,
    /// Packet detection rules, the first to be looked at first.
    pub pdrs: Vec<PdrView>,
    /// Forwarding action rules.
    pub fars: Vec<FarView>,
    /// QoS enforcement rules.
    pub qers: Vec<QerView>,
    /// Usage reporting rules.
    pub urrs: Vec<UrrView>,
}

impl SessionView {
    pub(super) fn of(it: &Session, facts: &dyn Facts) -> Self {
        Self {
            row: SessionRow::of(it, facts),
            place: it.id.0,
            version: it.version,
            pdrs: rules::by_precedence(it).map(|pdr| PdrView::of(pdr, facts)).collect(),
            fars: it.fars.iter().map(|far| FarView::of(far, facts)).collect(),
            qers: it.qers.iter().map(QerView::of).collect(),
            urrs: it.urrs.iter().map(|urr| UrrView::of(urr, facts)).collect(),
        }
    }
}
