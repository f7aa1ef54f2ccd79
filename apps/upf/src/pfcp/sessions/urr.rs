//! Usage reporting rules (TS 29.244 tables 7.5.2.4-1 and 7.5.4.4-1).

use fastlane_pfcp::ie::{self, Volumes};
use fastlane_pfcp::{Group, IeType};

use super::refusal::Refusal;
use crate::session::{Measure, ReportTriggers, Urr, Volume};
use crate::usage::Given;

/// Reads Create URR. The rule has no state slot yet.
pub(super) fn create(group: &Group<'_>) -> Result<Urr, Refusal> {
    group.need::<ie::MeasurementMethod>()?;
    group.need::<ie::ReportingTriggers>()?;
    let mut urr = Urr { id: group.need::<ie::UrrId>()?.0, ..Urr::default() };
    apply(&mut urr, group)?;
    Ok(urr)
}

/// Applies Update URR; absent IEs change nothing. Returns the kinds of IEs that were present.
pub(super) fn apply(urr: &mut Urr, group: &Group<'_>) -> Result<Given, Refusal> {
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

fn quotas(urr: &mut Urr, group: &Group<'_>) -> Result<Given, Refusal> {
    let mut given = Given::default();
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
