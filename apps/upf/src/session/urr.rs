//! Usage reporting rules (TS 29.244 tables 7.5.2.4-1 and 7.5.4.4-1).

use fastlane_pfcp::ie::{self, Volumes};
use fastlane_pfcp::{Group, IeType};

use super::refusal::Refusal;
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
    /// Volume, time and validity quotas.
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
    /// DURAT flag.
    pub duration: bool,
    /// VOLUM flag.
    pub volume: bool,
    /// EVENT flag.
    pub event: bool,
}

/// Octets per direction, each optional (clauses 8.2.13 and 8.2.50). Reports contain all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Uplink and downlink together.
    pub total: Option<u64>,
    /// Uplink octets.
    pub uplink: Option<u64>,
    /// Downlink octets.
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
    /// Periodic reporting.
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

/// IEs present in an Update URR (table 7.5.4.4-1). A repeated quota is a new grant even if its
/// value is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UrrUpdate {
    /// Volume Quota.
    pub volume_quota: bool,
    /// Time Quota.
    pub time_quota: bool,
    /// Quota Validity Time.
    pub validity: bool,
    /// Quota Holding Time.
    pub holding: bool,
    /// Measurement Period, or Reporting Triggers.
    pub period: bool,
    /// Monitoring Time.
    pub monitoring: bool,
}

/// Reads Create URR. The rule has no state slot yet.
pub(crate) fn create(group: &Group<'_>) -> Result<Urr, Refusal> {
    group.need::<ie::MeasurementMethod>()?;
    group.need::<ie::ReportingTriggers>()?;
    let mut urr = Urr { id: group.need::<ie::UrrId>()?.0, ..Urr::default() };
    apply(&mut urr, group)?;
    Ok(urr)
}

/// Applies Update URR; absent IEs change nothing. Returns the kinds of IEs that were present.
pub(crate) fn apply(urr: &mut Urr, group: &Group<'_>) -> Result<UrrUpdate, Refusal> {
    refuse(group)?;
    if let Some(method) = group.find::<ie::MeasurementMethod>()? {
        urr.measure = measure(method)?;
    }
    let triggers = group.find::<ie::ReportingTriggers>()?;
    if let Some(triggers) = triggers {
        urr.triggers = ReportTriggers(triggers.0 as u32 & 0x00FF_FFFF);
    }
    if let Some(information) = group.find::<ie::MeasurementInformation>()? {
        urr.information = information.0 as u8;
    }
    let period = group.find::<ie::MeasurementPeriod>()?.map(|it| it.0);
    replace(&mut urr.period_s, period);
    thresholds(urr, group)?;
    let mut given = quotas(urr, group)?;
    given.period = period.is_some() || triggers.is_some();
    let monitoring = group.find::<ie::MonitoringTime>()?.map(|it| it.0);
    given.monitoring = replace(&mut urr.monitoring_time, monitoring);
    replace(&mut urr.inactivity_s, group.find::<ie::InactivityDetectionTime>()?.map(|it| it.0));
    let mut linked = Vec::new();
    for it in group.all::<ie::LinkedUrrId>() {
        let id = it?.0;
        if !linked.contains(&id) {
            linked.push(id);
        }
    }
    if !linked.is_empty() {
        urr.linked = linked;
    }
    replace(&mut urr.exhausted_far, group.find::<ie::FarId>()?.map(|it| it.0));
    Ok(given)
}

/// Refuses limits that would never be reached: application events, which are not detected here, and
/// dropped-traffic thresholds that would need a counter per URR. A refused rule is better than a
/// quota that stops nothing or a report that never comes.
fn refuse(group: &Group<'_>) -> Result<(), Refusal> {
    let events = [
        IeType::EVENT_THRESHOLD,
        IeType::EVENT_QUOTA,
        IeType::SUBSEQUENT_EVENT_THRESHOLD,
        IeType::SUBSEQUENT_EVENT_QUOTA,
    ];
    if let Some(ie) = events.into_iter().find(|ie| group.has(*ie)) {
        return Err(Refusal::unsupported(ie));
    }
    if let Some(triggers) = group.find::<ie::ReportingTriggers>()?
        && triggers.has_any(ie::ReportingTriggers::EVETH | ie::ReportingTriggers::EVEQU)
    {
        return Err(Refusal::unsupported(IeType::REPORTING_TRIGGERS));
    }
    match group.find::<ie::DroppedDlTrafficThreshold>()? {
        // The first dropped packet reaches a threshold of 1.
        Some(it) if [it.packets, it.octets].into_iter().flatten().all(|limit| limit > 1) => {
            Err(Refusal::unsupported(IeType::DROPPED_DL_TRAFFIC_THRESHOLD))
        }
        _ => Ok(()),
    }
}

/// Reads the measurement method. Events are only start and stop of traffic; application events are
/// not supported.
fn measure(method: ie::MeasurementMethod) -> Result<Measure, Refusal> {
    let measure = Measure {
        duration: method.has(ie::MeasurementMethod::DURAT),
        volume: method.has(ie::MeasurementMethod::VOLUM),
        event: method.has(ie::MeasurementMethod::EVENT),
    };
    let is_any = measure.duration || measure.volume || measure.event;
    if is_any { Ok(measure) } else { Err(Refusal::incorrect(IeType::MEASUREMENT_METHOD)) }
}

fn thresholds(urr: &mut Urr, group: &Group<'_>) -> Result<(), Refusal> {
    let volume = group.find::<ie::VolumeThreshold>()?.map(|it| self::volume(it.0));
    replace(&mut urr.volume_threshold, volume);
    replace(&mut urr.time_threshold_s, group.find::<ie::TimeThreshold>()?.map(|it| it.0));
    let volume = group.find::<ie::SubsequentVolumeThreshold>()?.map(|it| self::volume(it.0));
    replace(&mut urr.subsequent_volume_threshold, volume);
    let time = group.find::<ie::SubsequentTimeThreshold>()?.map(|it| it.0);
    replace(&mut urr.subsequent_time_threshold_s, time);
    Ok(())
}

fn quotas(urr: &mut Urr, group: &Group<'_>) -> Result<UrrUpdate, Refusal> {
    let mut given = UrrUpdate::default();
    let volume = group.find::<ie::VolumeQuota>()?.map(|it| self::volume(it.0));
    given.volume_quota = replace(&mut urr.quota.volume, volume);
    let time = group.find::<ie::TimeQuota>()?.map(|it| it.0);
    given.time_quota = replace(&mut urr.quota.time_s, time);
    let validity = group.find::<ie::QuotaValidityTime>()?.map(|it| it.0);
    given.validity = replace(&mut urr.quota.validity_s, validity);
    let holding = group.find::<ie::QuotaHoldingTime>()?.map(|it| it.0);
    given.holding = replace(&mut urr.quota_holding_s, holding);
    let volume = group.find::<ie::SubsequentVolumeQuota>()?.map(|it| self::volume(it.0));
    replace(&mut urr.subsequent_quota.volume, volume);
    let time = group.find::<ie::SubsequentTimeQuota>()?.map(|it| it.0);
    replace(&mut urr.subsequent_quota.time_s, time);
    Ok(given)
}

const fn volume(volumes: Volumes) -> Volume {
    Volume { total: volumes.total, uplink: volumes.uplink, downlink: volumes.downlink }
}

/// Replaces `value` if `new` is present. Returns true if it is.
fn replace<T>(value: &mut Option<T>, new: Option<T>) -> bool {
    let is_there = new.is_some();
    if is_there {
        *value = new;
    }
    is_there
}
