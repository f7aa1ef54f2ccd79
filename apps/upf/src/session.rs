//! A PFCP session and its rules, as the control plane describes them.
//!
//! These are plain values: read from PFCP requests, stored in the session's record and compiled
//! into the rules that lanes read. Rule IDs are those of the control plane and unique within their
//! session (TS 29.244 clause 5.2.1).

use std::net::IpAddr;

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, Fault, IeType};

pub use fastlane_pfcp::ie::{ReportingTriggers, UsageReportTrigger};

pub(crate) mod far;
mod interface;
pub(crate) mod pdr;
mod progress;
pub(crate) mod qer;
pub(crate) mod sdf_filter;
pub(crate) mod urr;

pub use far::{Actions, Buffering, EndMarker, Far, Forwarding, OuterHeader, Redirect};
pub use interface::{Destination, Network, Role, Source};
pub use pdr::{LocalTunnel, Pdr, Removal, UserAddress};
pub use progress::{DownlinkData, Progress, Reporting, Split, Unacknowledged, UsageReport};
pub use qer::{Gate, Qer, Rate};
pub use sdf_filter::{Filter, FlowDescription, FlowError, Ports, Prefix};
pub use urr::{Measure, Quota, Urr, UrrUpdate, Volume, Watch};

/// PDR ID, unique in its session.
pub type PdrId = u16;
/// FAR ID, unique in its session.
pub type FarId = u32;
/// QER ID, unique in its session.
pub type QerId = u32;
/// URR ID, unique in its session.
pub type UrrId = u32;
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

/// IEs of a response that refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cause of the refusal.
    pub cause: Cause,
    /// IE that is missing or wrong.
    pub offending: Option<IeType>,
    /// Rule that could not be created or modified.
    pub failed: Option<FailedRuleId>,
}

impl Refusal {
    /// Creates a refusal with a cause only.
    #[must_use]
    pub const fn because(cause: Cause) -> Self {
        Self { cause, offending: None, failed: None }
    }

    /// Creates a refusal that names the offending IE.
    #[must_use]
    pub const fn of(cause: Cause, offending: IeType) -> Self {
        Self { cause, offending: Some(offending), failed: None }
    }

    /// Creates a refusal that names the failed rule (cause 73).
    #[must_use]
    pub const fn rule(failed: FailedRuleId) -> Self {
        let cause = Cause::RULE_CREATION_MODIFICATION_FAILURE;
        Self { cause, offending: None, failed: Some(failed) }
    }

    /// Creates a refusal that names the failed rule and the offending IE.
    #[must_use]
    pub const fn rule_by(failed: FailedRuleId, offending: IeType) -> Self {
        Self { offending: Some(offending), ..Self::rule(failed) }
    }

    /// Creates a refusal of an IE that is not supported.
    #[must_use]
    pub const fn unsupported(offending: IeType) -> Self {
        Self::of(Cause::SERVICE_NOT_SUPPORTED, offending)
    }

    /// Creates a refusal of an IE with an invalid value.
    #[must_use]
    pub const fn incorrect(offending: IeType) -> Self {
        Self::of(Cause::MANDATORY_IE_INCORRECT, offending)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { cause: fault.cause, offending: fault.offending, failed: None }
    }
}
