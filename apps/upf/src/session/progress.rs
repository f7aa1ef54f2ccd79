//! How far the reports of a session have come.
//!
//! All of it is in the session's record: it is written before a report is sent, so that the next
//! process neither repeats nor loses an octet.

use super::{PdrId, UrrId};

/// How far a URR has come. Counters are those of its line of state, which only ever grow; octets
/// up, packets up, octets down, packets down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The line of state that counts it, once it has one.
    pub line: u32,
    /// The number of its next report (TS 29.244 clause 8.2.71): starts at 0, one more each.
    pub sequence: u32,
    /// When what is not reported yet began: nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// What was reported before.
    pub reported: [u64; 4],
    /// The counters when the volume quota in force was given.
    pub granted: [u64; 4],
    /// When the last quota was given: nanoseconds of `CLOCK_MONOTONIC`.
    pub granted_at: u64,
    /// Nanoseconds of use up to `running`, since the URR was created; they only ever grow.
    pub elapsed: u64,
    /// Since when time is in use: nanoseconds of `CLOCK_MONOTONIC`; 0: it is not.
    pub running: u64,
    /// The last packet before use of time ended, or before the URR was created: nanoseconds of
    /// `CLOCK_MONOTONIC`. A later one begins it again.
    pub idle_after: u64,
    /// How much of `elapsed` was reported before.
    pub elapsed_reported: u64,
    /// `elapsed` when the time quota in force was given.
    pub elapsed_granted: u64,
    /// The first packet that is not reported yet: nanoseconds of `CLOCK_REALTIME`; 0: not known.
    pub first: u64,
    /// When the next periodic report is due: nanoseconds of `CLOCK_MONOTONIC`; 0: never.
    pub period_at: u64,
    /// Why the quota in force has ended, as far as that was found: VOLQU, TIMQU, QUHTI, QUVTI.
    /// It was reported if the URR asks for that.
    pub ended: UsageTriggers,
    /// What a report is due for and not yet made of.
    pub due: UsageTriggers,
    /// When the start of traffic was that is due: nanoseconds of `CLOCK_REALTIME`.
    pub started_at: u64,
    /// When the stop of traffic was that is due: nanoseconds of `CLOCK_REALTIME`.
    pub stopped_at: u64,
    /// Whether the start of traffic was found, and no stop since.
    pub has_traffic: bool,
    /// The last packet before traffic stopped: nanoseconds of `CLOCK_MONOTONIC`. A later one is
    /// the start of traffic.
    pub traffic_after: u64,
    /// The monitoring time has passed, and there was no report since.
    pub split: Option<Split>,
    /// The monitoring time has passed: subsequent thresholds and quotas are in force.
    pub is_after_monitoring: bool,
}

/// What the counters were at the monitoring time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The counters.
    pub counters: [u64; 4],
    /// `elapsed`.
    pub elapsed: u64,
    /// When: nanoseconds of `CLOCK_REALTIME`.
    pub at: u64,
}

/// Usage report trigger (clause 8.2.41): bits as in octets 5 to 7, octet 5 lowest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTriggers(pub u32);

impl UsageTriggers {
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
    /// The control plane asked.
    pub const IMMER: Self = Self(1 << 7);
    /// Volume quota.
    pub const VOLQU: Self = Self(1 << 8);
    /// Time quota.
    pub const TIMQU: Self = Self(1 << 9);
    /// A linked URR was reported.
    pub const LIUSA: Self = Self(1 << 10);
    /// The URR or its session ends.
    pub const TERMR: Self = Self(1 << 11);
    /// Monitoring time.
    pub const MONIT: Self = Self(1 << 12);
    /// This end ends the session.
    pub const TEBUR: Self = Self(1 << 17);
    /// Quota validity time.
    pub const QUVTI: Self = Self(1 << 19);

    /// None.
    pub const NONE: Self = Self(0);

    /// Whether all of these are set.
    #[must_use]
    pub const fn has(self, these: Self) -> bool {
        self.0 & these.0 == these.0
    }

    /// Whether any of these is set.
    #[must_use]
    pub const fn any(self, these: Self) -> bool {
        self.0 & these.0 != 0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, these: Self) -> Self {
        Self(self.0 | these.0)
    }

    /// Without these.
    #[must_use]
    pub const fn without(self, these: Self) -> Self {
        Self(self.0 & !these.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// A usage report (tables 7.5.5.2-1, 7.5.7.2-1 and 7.5.8.3-1): all that is written into one, so
/// that the same can be written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// The URR.
    pub urr: UrrId,
    /// Its number (UR-SEQN).
    pub sequence: u32,
    /// Why it was made.
    pub triggers: UsageTriggers,
    /// Usage information (clause 8.2.67) as written: bit 0 before, bit 1 after the monitoring
    /// time, bit 2 after, bit 3 before enforcement of QoS; 0: it is left out.
    pub information: u8,
    /// Which of the measurements it carries: bit 0 volume, bit 1 packets too, bit 2 duration.
    pub measured: u8,
    /// Octets up, packets up, octets down, packets down.
    pub counts: [u64; 4],
    /// Seconds of use.
    pub seconds: u32,
    /// From when: nanoseconds of `CLOCK_REALTIME`.
    pub since: u64,
    /// Until when; of an event, when it was.
    pub at: u64,
    /// The first packet; 0: not known.
    pub first: u64,
    /// The last packet; 0: there was none.
    pub last: u64,
}

/// What the control plane has been told of a session, apart from what its URRs say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reporting {
    /// PDRs of whose held packets it was told, and whose packets are still held.
    pub notified: Vec<PdrId>,
    /// From when packets are awaited, if their absence is reported: nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub awaited_from: u64,
    /// Whether their absence was reported, and none has come since.
    pub is_inactive: bool,
    /// What was sent and not answered: not more than one with usage or inactivity, and one with
    /// downlink data.
    pub unacknowledged: Vec<Unacknowledged>,
}

/// A session report request that was sent and not answered: what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unacknowledged {
    /// Its PFCP sequence number.
    pub message: u32,
    /// Whether it is a user plane inactivity report.
    pub is_inactivity: bool,
    /// The packet that was held, if it is a downlink data report.
    pub downlink: Option<DownlinkData>,
    /// Its usage reports.
    pub usage: Vec<UsageReport>,
}

/// The packet that a downlink data report is about (table 7.5.8.2-1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownlinkData {
    /// The PDR that it matched.
    pub pdr: PdrId,
    /// Its QoS flow, if it is known.
    pub qfi: Option<u8>,
    /// Its DSCP: the paging policy indication (clause 8.2.27), if it is known.
    pub dscp: Option<u8>,
}
