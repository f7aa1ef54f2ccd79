//! A PFCP session, its rules and the interfaces of the user plane, as the control plane describes
//! them.
//!
//! These are plain values: read from PFCP requests, stored in the session's record and compiled
//! into the rules that lanes read. Rule IDs are those of the control plane and unique within their
//! session (TS 29.244 clause 5.2.1).
//!
//! The reporting state of a session is written before a report is sent, so that a successor process
//! neither repeats nor loses an octet.

use std::net::IpAddr;

use fastlane_pfcp::ie::FailedRuleId;
use fastlane_pfcp::{Cause, Fault, Group, IeType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use fastlane_pfcp::ie::{ReportingTriggers, SNssai, UsageReportTrigger};

pub(crate) mod far;
mod network;
pub(crate) mod pdr;
pub(crate) mod qer;
pub(crate) mod sdf_filter;
pub(crate) mod urr;

pub use far::{Actions, Buffering, EndMarker, Far, Forwarding, OuterHeader, Redirect};
pub use network::Network;
pub use pdr::{LocalTunnel, Pdr, Removal, UserAddress};
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
    /// Network slice (S-NSSAI, table 7.5.2-1), if the control plane sends it.
    pub s_nssai: Option<SNssai>,
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

    /// Refuses a group that contains an IE of `unsupported`.
    ///
    /// # Errors
    /// Returns the refusal that names the first of them.
    pub fn any_unsupported(group: &Group<'_>, unsupported: &[IeType]) -> Result<(), Self> {
        let mut types = group.ies().map_while(Result::ok).map(|ie| ie.ie_type);
        let found = types.find(|ie_type| unsupported.contains(ie_type));
        found.map_or(Ok(()), |ie_type| Err(Self::unsupported(ie_type)))
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

/// Reporting progress of a URR. Counters are those of its state slot, which never decrease: uplink
/// octets, uplink packets, downlink octets, downlink packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Lane state slot with its counters, once assigned.
    pub line: u32,
    /// UR-SEQN of its next report (TS 29.244 clause 8.2.71), starting at 0.
    pub sequence: u32,
    /// Start of the unreported usage, in nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// Counters at the last report.
    pub reported: [u64; 4],
    /// Counters when the current volume quota was granted.
    pub granted: [u64; 4],
    /// Time when the last quota was granted, in nanoseconds of `CLOCK_MONOTONIC`.
    pub granted_at: u64,
    /// Time of use up to `running` since the URR was created, in nanoseconds. It never decreases.
    pub elapsed: u64,
    /// Start of the current time of use, in nanoseconds of `CLOCK_MONOTONIC`; 0 if none.
    pub running: u64,
    /// Last packet before the time of use ended or the URR was created, in nanoseconds of
    /// `CLOCK_MONOTONIC`. A later packet starts it again.
    pub idle_after: u64,
    /// Part of `elapsed` that was reported.
    pub elapsed_reported: u64,
    /// `elapsed` when the current time quota was granted.
    pub elapsed_granted: u64,
    /// First unreported packet, in nanoseconds of `CLOCK_REALTIME`; 0 if unknown.
    pub first: u64,
    /// Time of the next periodic report, in nanoseconds of `CLOCK_MONOTONIC`; 0 for never.
    pub period_at: u64,
    /// Detected reasons why the current quota ended: VOLQU, TIMQU, QUHTI, QUVTI. They were reported
    /// if the URR asks for that.
    pub ended: UsageReportTrigger,
    /// Triggers of the next report.
    pub due: UsageReportTrigger,
    /// Time of the start of traffic to report, in nanoseconds of `CLOCK_REALTIME`.
    pub started_at: u64,
    /// Time of the stop of traffic to report, in nanoseconds of `CLOCK_REALTIME`.
    pub stopped_at: u64,
    /// A start of traffic was detected, and no stop since.
    pub has_traffic: bool,
    /// Last packet before traffic stopped, in nanoseconds of `CLOCK_MONOTONIC`. A later packet is
    /// the start of traffic.
    pub traffic_after: u64,
    /// Counters at the monitoring time, if no report was made since.
    pub split: Option<Split>,
    /// The monitoring time has passed: subsequent thresholds and quotas apply.
    pub is_after_monitoring: bool,
}

/// Counters at the monitoring time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Octets and packets.
    pub counters: [u64; 4],
    /// Value of `elapsed`.
    pub elapsed: u64,
    /// The monitoring time, in nanoseconds of `CLOCK_REALTIME`.
    pub at: u64,
}

/// Usage report (tables 7.5.5.2-1, 7.5.7.2-1 and 7.5.8.3-1). It holds all values of the IEs, so
/// that a retransmission is identical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// URR ID.
    pub urr: UrrId,
    /// UR-SEQN of the report.
    pub sequence: u32,
    /// Usage Report Trigger.
    pub triggers: UsageReportTrigger,
    /// Usage Information (clause 8.2.67) as encoded: bit 0 before, bit 1 after the monitoring time,
    /// bit 2 after, bit 3 before QoS enforcement. The IE is omitted if 0.
    pub information: u8,
    /// Measurements in the report: bit 0 volume, bit 1 packets too, bit 2 duration.
    pub measured: u8,
    /// Uplink octets, uplink packets, downlink octets, downlink packets.
    pub counts: [u64; 4],
    /// Duration in seconds.
    pub seconds: u32,
    /// Start time, in nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// End time, or time of the event, in nanoseconds of `CLOCK_REALTIME`.
    pub at: u64,
    /// Time of the first packet; 0 if unknown.
    pub first: u64,
    /// Time of the last packet; 0 if there was none.
    pub last: u64,
}

/// Reporting state of a session beyond that of its URRs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reporting {
    /// PDRs with packets in the downlink buffer of which the control plane was notified.
    pub notified: Vec<PdrId>,
    /// Start of user plane inactivity detection, in nanoseconds of `CLOCK_MONOTONIC`.
    pub awaited_from: u64,
    /// Inactivity was reported, and no packet has arrived since.
    pub is_inactive: bool,
    /// Session report requests without a response: at most one with usage or inactivity and one
    /// with downlink data.
    pub unacknowledged: Vec<Unacknowledged>,
}

/// Contents of a session report request without a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unacknowledged {
    /// PFCP sequence number.
    pub message: u32,
    /// It is a user plane inactivity report.
    pub is_inactivity: bool,
    /// Buffered packet of a downlink data report.
    pub downlink: Option<DownlinkData>,
    /// Usage reports.
    pub usage: Vec<UsageReport>,
}

/// Packet that a downlink data report describes (table 7.5.8.2-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownlinkData {
    /// PDR that the packet matched.
    pub pdr: PdrId,
    /// QFI, if known.
    pub qfi: Option<u8>,
    /// DSCP, if known: the paging policy indication (clause 8.2.27).
    pub dscp: Option<u8>,
}

/// Reference point of a user plane interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// GTP-U from and to the access network.
    N3,
    /// GTP-U from and to other UPFs.
    N9,
    /// IP from and to the data network.
    N6,
}

/// Source Interface (TS 29.244 clause 8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Source {
    /// Access network: N3, or N9 from a UPF closer to it.
    Access = 0,
    /// Core: N6, or N9 from a UPF closer to the data network.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}

/// Destination Interface (clause 8.2.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Destination {
    /// Access network.
    Access = 0,
    /// Core network.
    Core = 1,
    /// SGi-LAN or N6-LAN: a local network beside the data network.
    SgiLan = 2,
    /// Control plane function (N4-u).
    Control = 3,
}
