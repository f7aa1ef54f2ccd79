//! Usage reporting rules (TS 29.244 tables 7.5.2.4-1 and 7.5.4.4-1), and the limits that lanes
//! enforce for them without the control plane process.

use fastlane_pfcp::ie::{self, ReportingTriggers, Volumes};
use fastlane_pfcp::{Group, IeType};

use super::{FarId, Progress, Refusal, UrrId};
use crate::time::{Now, SECOND, from_ntp};

/// Usage reporting rule (TS 29.244 table 7.5.2.4-1) with its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urr {
    /// URR ID.
    pub id: UrrId,
    /// Measurement Method (clause 8.2.40).
    pub measure: Measure,
    /// Reporting Triggers (clause 8.2.19).
    pub triggers: ReportingTriggers,
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
        // Octets 5 to 7 (clause 8.2.19).
        urr.triggers = ReportingTriggers(triggers.0 & 0x00FF_FFFF);
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

/// IEs of a URR that are not supported: application events, which are not detected here, further
/// monitoring times, a limited number of reports, time quotas in intervals and credit pools.
const UNSUPPORTED: [IeType; 8] = [
    IeType::EVENT_THRESHOLD,
    IeType::EVENT_QUOTA,
    IeType::SUBSEQUENT_EVENT_THRESHOLD,
    IeType::SUBSEQUENT_EVENT_QUOTA,
    IeType::ADDITIONAL_MONITORING_TIME,
    IeType::NUMBER_OF_REPORTS,
    IeType::TIME_QUOTA_MECHANISM,
    IeType::AGGREGATED_URRS,
];

/// Refuses IEs that have no effect here, and limits that would never be reached: dropped-traffic
/// thresholds would need a counter per URR. A refused rule is better than a quota that stops
/// nothing or a report that never comes.
fn refuse(group: &Group<'_>) -> Result<(), Refusal> {
    use ie::ReportingTriggers as Trigger;
    Refusal::any_unsupported(group, &UNSUPPORTED)?;
    let unsupported =
        Trigger::EVETH | Trigger::EVEQU | Trigger::ENVCL | Trigger::REEMR | Trigger::UPINT;
    if let Some(triggers) = group.find::<Trigger>()?
        && triggers.has_any(unsupported)
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
    let is_after = is_after_monitoring(urr, group)?;
    let volume = group.find::<ie::VolumeThreshold>()?.map(|it| self::volume(it.0));
    let is_new = replace(&mut urr.volume_threshold, volume);
    let volume = group.find::<ie::SubsequentVolumeThreshold>()?.map(|it| self::volume(it.0));
    replace_subsequent(&mut urr.subsequent_volume_threshold, volume, is_new && is_after);
    let time = group.find::<ie::TimeThreshold>()?.map(|it| it.0);
    let is_new = replace(&mut urr.time_threshold_s, time);
    let time = group.find::<ie::SubsequentTimeThreshold>()?.map(|it| it.0);
    replace_subsequent(&mut urr.subsequent_time_threshold_s, time, is_new && is_after);
    Ok(())
}

/// Returns true if the monitoring time has passed and an update does not set another one.
fn is_after_monitoring(urr: &Urr, group: &Group<'_>) -> Result<bool, Refusal> {
    Ok(urr.progress.is_after_monitoring && group.find::<ie::MonitoringTime>()?.is_none())
}

fn quotas(urr: &mut Urr, group: &Group<'_>) -> Result<UrrUpdate, Refusal> {
    let mut given = UrrUpdate::default();
    let is_after = is_after_monitoring(urr, group)?;
    let volume = group.find::<ie::VolumeQuota>()?.map(|it| self::volume(it.0));
    given.volume_quota = replace(&mut urr.quota.volume, volume);
    let time = group.find::<ie::TimeQuota>()?.map(|it| it.0);
    given.time_quota = replace(&mut urr.quota.time_s, time);
    let validity = group.find::<ie::QuotaValidityTime>()?.map(|it| it.0);
    given.validity = replace(&mut urr.quota.validity_s, validity);
    // SMFs relay a zero, which switches these times off as in TS 32.299 (Quota-Holding-Time).
    urr.quota.validity_s = urr.quota.validity_s.filter(|seconds| *seconds != 0);
    let holding = group.find::<ie::QuotaHoldingTime>()?.map(|it| it.0);
    given.holding = replace(&mut urr.quota_holding_s, holding);
    urr.quota_holding_s = urr.quota_holding_s.filter(|seconds| *seconds != 0);
    let volume = group.find::<ie::SubsequentVolumeQuota>()?.map(|it| self::volume(it.0));
    let subsequent = &mut urr.subsequent_quota;
    replace_subsequent(&mut subsequent.volume, volume, given.volume_quota && is_after);
    let time = group.find::<ie::SubsequentTimeQuota>()?.map(|it| it.0);
    replace_subsequent(&mut subsequent.time_s, time, given.time_quota && is_after);
    Ok(given)
}

const fn volume(volumes: Volumes) -> Volume {
    Volume { total: volumes.total, uplink: volumes.uplink, downlink: volumes.downlink }
}

/// Replaces a value for the time after the monitoring time. If that has passed, it also ends with a
/// new value that is not bound to that time, which would have no effect otherwise.
fn replace_subsequent<T>(value: &mut Option<T>, new: Option<T>, is_superseded: bool) {
    if !replace(value, new) && is_superseded {
        *value = None;
    }
}

/// Replaces `value` if `new` is present. Returns true if it is.
fn replace<T>(value: &mut Option<T>, new: Option<T>) -> bool {
    let is_there = new.is_some();
    if is_there {
        *value = new;
    }
    is_there
}

/// Limits that a lane enforces for a URR, in absolute counts of its state slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The event THRESHOLD is raised when a count reaches this.
    pub threshold: Volume,
    /// A packet that would exceed this count is dropped, and the event QUOTA is raised.
    pub quota: Volume,
    /// From this time on packets are dropped and QUOTA is raised, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub deadline: Option<u64>,
    /// All packets are dropped.
    pub is_stopped: bool,
    /// The event START is raised at the first packet that passes.
    pub start: bool,
    /// Counting is paused (INAM).
    pub is_paused: bool,
    /// Packets are counted before QoS enforcement (MBQE), including those that it drops.
    pub before_qos: bool,
}

impl Urr {
    /// MBQE: packets are counted before QoS is enforced.
    pub const BEFORE_QOS: u8 = 1;
    /// INAM: measuring is paused.
    pub const PAUSED: u8 = 1 << 1;
    /// ISTM: the time of use starts when the URR is created.
    pub const IMMEDIATE_START: u8 = 1 << 3;
    /// MNOP: packets are reported too.
    pub const PACKETS: u8 = 1 << 4;

    /// Returns true if a flag of the Measurement Information is set.
    #[must_use]
    pub const fn has_information(&self, flag: u8) -> bool {
        self.information & flag != 0
    }

    /// Returns the volume threshold in force: after the monitoring time the subsequent one.
    #[must_use]
    pub fn volume_threshold_now(&self) -> Option<Volume> {
        self.subsequent(self.subsequent_volume_threshold).or(self.volume_threshold)
    }

    /// Returns the time threshold in force, in seconds.
    #[must_use]
    pub fn time_threshold_now(&self) -> Option<u32> {
        self.subsequent(self.subsequent_time_threshold_s).or(self.time_threshold_s)
    }

    /// Returns the quotas in force.
    #[must_use]
    pub fn quota_now(&self) -> Quota {
        Quota {
            volume: self.subsequent(self.subsequent_quota.volume).or(self.quota.volume),
            time_s: self.subsequent(self.subsequent_quota.time_s).or(self.quota.time_s),
            validity_s: self.quota.validity_s,
        }
    }

    fn subsequent<T>(&self, value: Option<T>) -> Option<T> {
        value.filter(|_| self.progress.is_after_monitoring)
    }

    /// Returns the counters that the volume threshold is relative to: those of the last report, or
    /// those of the monitoring time if a subsequent threshold applies.
    #[must_use]
    pub fn threshold_base(&self) -> [u64; 4] {
        match (self.progress.split, self.subsequent_volume_threshold) {
            (Some(split), Some(_)) => split.counters,
            _ => self.progress.reported,
        }
    }

    /// Returns the time of use that the time threshold is relative to, in nanoseconds.
    #[must_use]
    pub fn time_threshold_base(&self) -> u64 {
        match (self.progress.split, self.subsequent_time_threshold_s) {
            (Some(split), Some(_)) => split.elapsed,
            _ => self.progress.elapsed_reported,
        }
    }

    /// Returns the limits that lanes enforce.
    #[must_use]
    pub fn watch(&self) -> Watch {
        let progress = &self.progress;
        let is_paused = self.has_information(Self::PAUSED);
        let by_volume = |volume: Option<Volume>| volume.filter(|_| self.measure.volume);
        let threshold = by_volume(self.volume_threshold_now());
        let volume = by_volume(self.quota_now().volume);
        Watch {
            threshold: above(threshold, self.threshold_base()),
            quota: above(volume, progress.granted),
            deadline: self.deadline(),
            is_stopped: !progress.ended.is_empty(),
            start: !is_paused && self.awaits_start(),
            is_paused,
            before_qos: self.has_information(Self::BEFORE_QOS),
        }
    }

    /// Starts the measurement of a new URR on the state slot in its progress. `counts` are the
    /// counters of that slot, `last` is the time of its last packet, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(crate) fn begin(&mut self, counts: [u64; 4], last: u64, now: Now) {
        let is_at_once = self.measure.duration
            && self.has_information(Self::IMMEDIATE_START)
            && !self.has_information(Self::PAUSED);
        self.progress = Progress {
            line: self.progress.line,
            since: now.real,
            reported: counts,
            granted: counts,
            granted_at: now.monotonic,
            running: if is_at_once { now.monotonic } else { 0 },
            idle_after: last,
            traffic_after: last,
            ..Progress::default()
        };
        let after = |seconds| now.monotonic.saturating_add(u64::from(seconds) * SECOND);
        self.progress.period_at = self.period().map_or(0, after);
        self.progress.is_after_monitoring =
            self.monitoring_at(now).is_some_and(|at| at <= now.real);
    }

    /// Returns the measurement period in seconds, if periodic reports are enabled.
    pub(crate) fn period(&self) -> Option<u32> {
        let is_asked = self.triggers.has(ReportingTriggers::PERIO);
        self.period_s.filter(|seconds| is_asked && *seconds != 0)
    }

    /// Returns the next monitoring time, in nanoseconds of `CLOCK_REALTIME`.
    pub(crate) fn monitoring_at(&self, now: Now) -> Option<u64> {
        let seconds = self.monitoring_time.filter(|_| !self.progress.is_after_monitoring)?;
        Some(from_ntp(seconds, now.real))
    }

    /// Returns the time at which `seconds` of use from `base` are reached, if use continues.
    pub(crate) fn end_of_use(&self, base: u64, seconds: u32) -> u64 {
        let Progress { running, elapsed, .. } = self.progress;
        let used = elapsed.saturating_sub(base);
        let before = base.saturating_sub(elapsed);
        let left = (u64::from(seconds) * SECOND).saturating_sub(used).saturating_add(before);
        running.saturating_add(left)
    }

    /// Returns the time at which the time quota or the quota validity ends.
    fn deadline(&self) -> Option<u64> {
        let Progress { running, elapsed_granted, granted_at, .. } = self.progress;
        let quota = self.quota_now();
        let is_running = self.measure.duration && running != 0;
        let by_time = quota.time_s.filter(|_| is_running);
        let by_time = by_time.map(|seconds| self.end_of_use(elapsed_granted, seconds));
        let by_validity =
            quota.validity_s.map(|seconds| granted_at.saturating_add(u64::from(seconds) * SECOND));
        by_time.into_iter().chain(by_validity).min()
    }

    /// Returns true if the first packet matters: for a report of the start of traffic, or because
    /// the time of use starts with it.
    fn awaits_start(&self) -> bool {
        let by_time = self.measure.duration && self.progress.running == 0;
        by_time || self.reports_traffic() && !self.progress.has_traffic
    }

    /// Returns true if start or stop of traffic is reported.
    #[must_use]
    pub const fn reports_traffic(&self) -> bool {
        let either = ReportingTriggers::START.0 | ReportingTriggers::STOPT.0;
        self.triggers.0 & either != 0
    }
}

/// Adds a volume to counters.
fn above(volume: Option<Volume>, base: [u64; 4]) -> Volume {
    let [up, _, down, _] = base;
    let at = |base: u64, value: Option<u64>| value.map(|value| base.saturating_add(value));
    let volume = volume.unwrap_or_default();
    Volume {
        total: at(up.saturating_add(down), volume.total),
        uplink: at(up, volume.uplink),
        downlink: at(down, volume.downlink),
    }
}
