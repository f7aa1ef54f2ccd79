//! Usage reporting rules.

use super::{FarId, Progress};

/// URR ID, unique in its session.
pub type UrrId = u32;

/// Usage reporting rule (TS 29.244 table 7.5.2.4-1) with its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urr {
    /// URR ID.
    pub id: UrrId,
    /// Measurement Method (clause 8.2.40).
    pub measure: Measure,
    /// Reporting Triggers (clause 8.2.19).
    pub triggers: ReportTriggers,
    /// Measurement Information (clause 8.2.68) as encoded: bit 0 MBQE, 1 INAM, 2 RADI, 3 ISTM, 4
    /// MNOP, 5 SSPOC.
    pub information: u8,
    /// Measurement Period in seconds (clause 8.2.42).
    pub period_s: Option<u32>,
    /// Volume threshold of a report.
    pub volume_threshold: Option<Volume>,
    /// Time threshold of a report, in seconds.
    pub time_threshold_s: Option<u32>,
    /// Quotas.
    pub quota: Quota,
    /// Inactivity detection time in seconds: without a packet for this time, the time of use ends
    /// (clause 8.2.46).
    pub inactivity_s: Option<u32>,
    /// Quota holding time in seconds: without a packet for this time, the quota ends with a report
    /// (clause 8.2.48).
    pub quota_holding_s: Option<u32>,
    /// Monitoring time at which usage is split, in seconds since 1900 (clause 8.2.21).
    pub monitoring_time: Option<u32>,
    /// Volume threshold after the monitoring time.
    pub subsequent_volume_threshold: Option<Volume>,
    /// Time threshold after the monitoring time, in seconds.
    pub subsequent_time_threshold_s: Option<u32>,
    /// Quotas after the monitoring time.
    pub subsequent_quota: Quota,
    /// Linked URRs: a report of one of them triggers a report of this URR (clause 8.2.55).
    pub linked: Vec<UrrId>,
    /// FAR for packets beyond the quota; none drops them.
    pub exhausted_far: Option<FarId>,
    /// Reporting progress.
    pub progress: Progress,
}

/// Measurement method (clause 8.2.40).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// DURAT.
    pub duration: bool,
    /// VOLUM.
    pub volume: bool,
    /// EVENT.
    pub event: bool,
}

/// Octets per direction, each optional (clauses 8.2.13 and 8.2.50). Reports contain all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Uplink and downlink together.
    pub total: Option<u64>,
    /// Uplink.
    pub uplink: Option<u64>,
    /// Downlink.
    pub downlink: Option<u64>,
}

/// Quotas. A quota of zero is exhausted at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Volume in octets.
    pub volume: Option<Volume>,
    /// Time in seconds.
    pub time_s: Option<u32>,
    /// Quota validity time in seconds after the grant (clause 8.2.66).
    pub validity_s: Option<u32>,
}

/// Reporting Triggers (clause 8.2.19): bits of octets 5 to 7, octet 5 lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportTriggers(pub u32);

impl ReportTriggers {
    /// Periodic.
    pub const PERIO: Self = Self(1);
    /// Volume threshold.
    pub const VOLTH: Self = Self(1 << 1);
    /// Time threshold.
    pub const TIMTH: Self = Self(1 << 2);
    /// Quota holding time.
    pub const QUHTI: Self = Self(1 << 3);
    /// Start of traffic.
    pub const START: Self = Self(1 << 4);
    /// Stop of traffic.
    pub const STOPT: Self = Self(1 << 5);
    /// Dropped downlink traffic.
    pub const DROTH: Self = Self(1 << 6);
    /// Linked usage reporting.
    pub const LIUSA: Self = Self(1 << 7);
    /// Volume quota.
    pub const VOLQU: Self = Self(1 << 8);
    /// Time quota.
    pub const TIMQU: Self = Self(1 << 9);
    /// Envelope closure.
    pub const ENVCL: Self = Self(1 << 10);
    /// Event threshold.
    pub const EVETH: Self = Self(1 << 12);
    /// Event quota.
    pub const EVEQU: Self = Self(1 << 13);
    /// Quota validity time.
    pub const QUVTI: Self = Self(1 << 15);

    /// End marker reception: the lowest bit of octet 7. No bit of octet 7 triggers a report here.
    pub const REEMR: Self = Self(1 << 16);

    /// Returns true if all of these are set.
    #[must_use]
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }
}
