//! Reporting state of a session.
//!
//! All of it is in the session's record and is written before a report is sent, so that a successor
//! process neither repeats nor loses an octet.

use fastlane_pfcp::ie::UsageReportTrigger;

use super::{PdrId, UrrId};

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
