//! Usage reporting rules.

use super::{FarId, Progress};

/// The number of a URR in its session.
pub type UrrId = u32;

/// A usage reporting rule (TS 29.244 table 7.5.2.4-1), and its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urr {
    /// Its number.
    pub id: UrrId,
    /// What is measured (clause 8.2.40).
    pub measure: Measure,
    /// What makes a report (clause 8.2.19).
    pub triggers: ReportTriggers,
    /// Measurement information (clause 8.2.68), as written: bit 0 MBQE, 1 INAM, 2 RADI, 3 ISTM,
    /// 4 MNOP, 5 SSPOC.
    pub information: u8,
    /// A report each so many seconds (clause 8.2.42).
    pub period_s: Option<u32>,
    /// A report after so much.
    pub volume_threshold: Option<Volume>,
    /// A report after so many seconds.
    pub time_threshold_s: Option<u32>,
    /// Not more than this.
    pub quota: Quota,
    /// No packet for so long ends the measurement of time (clause 8.2.46).
    pub inactivity_s: Option<u32>,
    /// A report when packets stay away for so long ends the quota's use (clause 8.2.48).
    pub quota_holding_s: Option<u32>,
    /// Usage is split at this moment: seconds since 1900 (clause 8.2.21).
    pub monitoring_time: Option<u32>,
    /// A threshold that holds after the monitoring time.
    pub subsequent_volume_threshold: Option<Volume>,
    /// A threshold that holds after the monitoring time.
    pub subsequent_time_threshold_s: Option<u32>,
    /// Not more than this after the monitoring time.
    pub subsequent_quota: Quota,
    /// Reports of these make one of this (clause 8.2.55).
    pub linked: Vec<UrrId>,
    /// What becomes of packets when a quota is used up; none drops them.
    pub exhausted_far: Option<FarId>,
    /// How far it has come.
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

/// Octets, each of which may be absent (clauses 8.2.13 and 8.2.50); in reports all are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// In both directions.
    pub total: Option<u64>,
    /// From the user.
    pub uplink: Option<u64>,
    /// To the user.
    pub downlink: Option<u64>,
}

/// Quotas: a zero is one that is used up at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Octets.
    pub volume: Option<Volume>,
    /// Seconds.
    pub time_s: Option<u32>,
    /// Seconds from now for which what was granted is valid (clause 8.2.66).
    pub validity_s: Option<u32>,
}

/// Reporting triggers (clause 8.2.19): bits as in octets 5 to 7, octet 5 lowest.
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

    /// End marker reception: from the first bit of octet 7 on, none of which makes a report here.
    pub const REEMR: Self = Self(1 << 16);

    /// Whether all of these are set.
    #[must_use]
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }
}
