//! View of the busiest sessions and of the outcomes of packets.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::texts;
use crate::session::Session;
use crate::transactions::Counts;

/// Busiest sessions and outcomes of packets since the last request by anybody.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TopView {
    /// Seconds since that request; 0 if there was none within 90 s. Then there are no rates.
    pub elapsed_s: f64,
    /// Number of sessions.
    pub total: usize,
    /// Number of sessions with traffic.
    pub active: usize,
    /// Busiest sessions, by octets per second of both directions.
    pub sessions: Vec<TopRow>,
    /// Slices and DNNs.
    #[serde(default)]
    pub slices: Vec<SliceRates>,
    /// All outcomes of packets.
    pub outcomes: Vec<OutcomeRate>,
}

/// Rates of all sessions of a slice and a DNN.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SliceRates {
    /// Network slice, as `1-010203` or `1`; empty without S-NSSAI; `other`.
    pub slice: String,
    /// Data network name, or network instance if the sessions have none; `other`.
    pub dnn: String,
    /// Number of sessions.
    pub sessions: usize,
    /// Uplink packets forwarded per second.
    pub uplink_packets_per_s: u64,
    /// Octets of these, as they arrived, per second.
    pub uplink_octets_per_s: u64,
    /// Downlink packets forwarded per second.
    pub downlink_packets_per_s: u64,
    /// Octets of these, as they arrived, per second.
    pub downlink_octets_per_s: u64,
    /// Packets dropped per second.
    pub dropped_per_s: u64,
    /// Dropped packets by reason, as far as there are any.
    pub drops: Vec<SliceDrops>,
}

/// Packets of a slice and a DNN that were dropped for a reason.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SliceDrops {
    /// Name of the reason, as in `upf_packets_total`.
    pub reason: String,
    /// Packets per second.
    pub packets_per_s: u64,
    /// Packets since the start of the fast path.
    pub packets: u64,
}

/// Session with rates of what its first URR counts: inner IP packets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TopRow {
    /// UP SEID.
    pub seid: String,
    /// SUPI, if the control plane function provided it.
    pub supi: Option<String>,
    /// Data network name, if the control plane function provided it.
    pub network: Option<String>,
    /// Network slice, as `1-010203` or `1`, if the control plane function provided it.
    #[serde(default)]
    pub s_nssai: Option<String>,
    /// UE addresses and prefixes.
    pub addresses: Vec<String>,
    /// Uplink octets per second.
    pub uplink_octets_per_s: u64,
    /// Uplink packets per second.
    pub uplink_packets_per_s: u64,
    /// Downlink octets per second.
    pub downlink_octets_per_s: u64,
    /// Downlink packets per second.
    pub downlink_packets_per_s: u64,
}

/// Rate of an outcome of packets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct OutcomeRate {
    /// Name of the outcome, as in `upf_packets_total`.
    pub outcome: String,
    /// True if users' packets are lost by it.
    pub is_drop: bool,
    /// Packets per second.
    pub packets_per_s: u64,
    /// Octets of inner IP packets per second.
    pub octets_per_s: u64,
    /// Packets since the start of the fast path.
    pub packets: u64,
}

impl TopRow {
    pub(crate) fn of(session: &Session, rates: Counts) -> Self {
        let users = session.pdrs.iter().filter_map(|pdr| pdr.user);
        let mut addresses: Vec<String> = users.flat_map(|user| texts(&user)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let [uplink_octets_per_s, uplink_packets_per_s, downlink_octets_per_s, downlink_packets] =
            rates;
        Self {
            seid: format!("{:#x}", session.seid),
            supi: session.supi.clone(),
            network: session.network.clone(),
            s_nssai: session.s_nssai.map(|it| it.to_string()),
            addresses,
            uplink_octets_per_s,
            uplink_packets_per_s,
            downlink_octets_per_s,
            downlink_packets_per_s: downlink_packets,
        }
    }
}
