//! A PFCP session and its rules, as the control plane describes them.
//!
//! These are plain values: read from PFCP requests, stored in the session's record and compiled
//! into the rules that lanes read. Rule IDs are those of the control plane and unique within their
//! session (TS 29.244 clause 5.2.1).

pub(crate) mod bar;
pub(crate) mod far;
mod network;
pub(crate) mod pdr;
mod progress;
pub(crate) mod qer;
mod refusal;
pub(crate) mod sdf_filter;
pub(crate) mod urr;
mod watch;

use std::net::IpAddr;

pub use bar::Buffering;
pub use far::{Actions, Destination, EndMarker, Far, Forwarding, OuterHeader, Redirect};
pub use network::Network;
pub use pdr::{LocalTunnel, Pdr, Removal, Source, UserAddress};
pub use progress::{
    DownlinkData, Progress, Reporting, Split, Unacknowledged, UsageReport, UsageTriggers,
};
pub use qer::{Gate, Qer, Rate};
pub use refusal::Refusal;
pub use sdf_filter::{Filter, FlowDescription, FlowError, Ports, Prefix};
pub use urr::{Measure, Quota, ReportTriggers, Urr, UrrId, UrrUpdate, Volume};
pub use watch::Watch;

/// PDR ID, unique in its session.
pub type PdrId = u16;
/// FAR ID, unique in its session.
pub type FarId = u32;
/// QER ID, unique in its session.
pub type QerId = u32;
/// BAR ID, unique in its session.
pub type BarId = u8;
/// Index of a network instance in the configuration.
pub type InstanceId = u16;

/// Session index: the slot of a session, less than the capacity of the tables. The lower 8 bits are
/// its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionIndex(pub u32);

/// CP F-SEID (TS 29.244 clause 8.2.37).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpFSeid {
    /// SEID of the control plane.
    pub seid: u64,
    /// Address for our requests.
    pub address: IpAddr,
}

/// PFCP session and all its rules, in the order of their creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Session index.
    pub id: SessionIndex,
    /// UP SEID: the index in the lower 32 bits, a generation that never repeats in the upper ones.
    pub seid: u64,
    /// CP F-SEID.
    pub cp_fseid: CpFSeid,
    /// Index of its association.
    pub peer: u16,
    /// Version, increased by each change of any session. Published rules and stored responses refer
    /// to it.
    pub version: u64,
    /// Generation of the next TEID of this index, increased by each allocation.
    pub generation: u32,
    /// Last version that discarded all packets buffered before (DROBU, clause 8.2.70); 0 if none.
    pub discarded: u64,
    /// The record is a tombstone, kept while a request can be retransmitted.
    pub is_deleted: bool,
    /// Time of establishment, in nanoseconds of `CLOCK_REALTIME`.
    pub established: u64,
    /// PDN type (clause 8.2.79): 1 IPv4, 2 IPv6, 3 both; 0 if absent.
    pub pdn_type: u8,
    /// SUPI, as the digits of the IMSI, if the control plane sends it (User ID, clause 8.2.101).
    pub supi: Option<String>,
    /// DNN (clause 8.2.117).
    pub network: Option<String>,
    /// User plane inactivity timer in seconds (clause 8.2.57).
    pub inactivity_s: Option<u32>,
    /// FQ-CSIDs of the session as received (clause 8.2.61).
    pub fq_csids: Vec<Vec<u8>>,
    /// Packet detection rules.
    pub pdrs: Vec<Pdr>,
    /// Forwarding action rules.
    pub fars: Vec<Far>,
    /// QoS enforcement rules.
    pub qers: Vec<Qer>,
    /// Usage reporting rules.
    pub urrs: Vec<Urr>,
    /// Buffering action rules.
    pub bars: Vec<Buffering>,
    /// Reports sent to the control plane and not acknowledged.
    pub reporting: Reporting,
}

impl Session {
    /// Returns the number of PDRs, FARs, QERs, URRs and BARs.
    #[must_use]
    pub const fn rules(&self) -> [usize; 5] {
        let Self { pdrs, fars, qers, urrs, bars, .. } = self;
        [pdrs.len(), fars.len(), qers.len(), urrs.len(), bars.len()]
    }
}
