//! Creation and update of URRs by the control plane.

use super::thresholds::settle;
use super::urr_meter::{Meter, later};
use crate::session::{Progress, Urr, UrrUpdate, UsageReportTrigger};
use crate::time::Now;

/// Starts the measurement of a new URR on the state slot in its progress.
pub fn begin(urr: &mut Urr, meter: &Meter, now: Now) {
    let is_at_once = urr.measure.duration
        && urr.has_information(Urr::IMMEDIATE_START)
        && !urr.has_information(Urr::PAUSED);
    urr.progress = Progress {
        line: urr.progress.line,
        since: now.real,
        reported: meter.counts,
        granted: meter.counts,
        granted_at: now.monotonic,
        running: if is_at_once { now.monotonic } else { 0 },
        idle_after: meter.last,
        traffic_after: meter.last,
        ..Progress::default()
    };
    urr.progress.period_at = urr.period().map_or(0, |seconds| later(now.monotonic, seconds));
    urr.progress.is_after_monitoring = urr.monitoring_at(now).is_some_and(|at| at <= now.real);
}

/// Updates a URR. `apply` writes the new values and returns which are present. A new quota counts
/// from here and replaces the rest of the old one; measurement and thresholds continue.
pub fn update(urr: &mut Urr, meter: &Meter, now: Now, apply: impl FnOnce(&mut Urr) -> UrrUpdate) {
    settle(urr, meter, now);
    let was_paused = urr.has_information(Urr::PAUSED);
    let given = apply(urr);
    pause(urr, meter, now, was_paused);
    let elapsed = urr.elapsed(meter.last, now.monotonic);
    let period_at = urr.period().map_or(0, |seconds| later(now.monotonic, seconds));
    let progress = &mut urr.progress;
    let mut over = UsageReportTrigger::NONE;
    if given.volume_quota {
        progress.granted = meter.counts;
        over = over.with(UsageReportTrigger::VOLQU);
    }
    if given.time_quota {
        progress.elapsed_granted = elapsed;
        over = over.with(UsageReportTrigger::TIMQU);
    }
    if given.volume_quota || given.time_quota || given.validity || given.holding {
        progress.granted_at = now.monotonic;
        over = over.with(UsageReportTrigger::QUVTI).with(UsageReportTrigger::QUHTI);
    }
    progress.ended = progress.ended.without(over);
    progress.due = progress.due.without(over);
    if given.period {
        progress.period_at = period_at;
    }
    if given.monitoring {
        monitor(urr, now);
    }
}

/// Sets another monitoring time. Usage before the last one is reported first.
fn monitor(urr: &mut Urr, now: Now) {
    urr.progress.is_after_monitoring = false;
    let is_past = urr.monitoring_at(now).is_some_and(|at| at <= now.real);
    let progress = &mut urr.progress;
    progress.is_after_monitoring = is_past;
    if progress.split.is_some() {
        progress.due = progress.due.with(UsageReportTrigger::MONIT);
    }
}

/// Suspends the time of use while measurement is paused (INAM); it continues with the next packet.
fn pause(urr: &mut Urr, meter: &Meter, now: Now, was_paused: bool) {
    match (was_paused, urr.has_information(Urr::PAUSED)) {
        (false, true) => {
            urr.progress.elapsed = urr.elapsed(meter.last, now.monotonic);
            urr.progress.running = 0;
        }
        (true, false) => {
            urr.progress.idle_after = meter.last;
            urr.progress.traffic_after = meter.last;
        }
        _ => {}
    }
}
