//! Time of the next evaluation of a URR.

use super::meter::{Meter, later};
use crate::session::{ReportTriggers, Urr};
use crate::time::Now;
use crate::time::SECOND;

/// Returns the time in nanoseconds of `CLOCK_MONOTONIC` at which an evaluated URR may become due;
/// none if only packets can make it due.
#[must_use]
pub fn next(urr: &Urr, meter: &Meter, now: Now) -> Option<u64> {
    let progress = &urr.progress;
    let is_paused = urr.has_information(Urr::PAUSED);
    let is_running = urr.measure.duration && progress.running != 0;
    let suspended = urr.suspended_at(meter.last).filter(|_| is_running);
    let stop = Some(urr.stop_of_traffic(meter.last))
        .filter(|_| urr.reports_traffic() && progress.has_traffic && !is_paused);
    let monitoring = urr.monitoring_at(now).map(|at| now.monotonic_of(at));
    let period = Some(progress.period_at).filter(|at| *at != 0 && urr.period().is_some());
    let threshold =
        urr.time_threshold_now().filter(|_| is_running && urr.triggers.has(ReportTriggers::TIMTH));
    let threshold = threshold.map(|seconds| when(urr, urr.time_threshold_base(), seconds.max(1)));
    let quota = quota(urr, meter, is_running);
    [suspended, stop, monitoring, period, threshold, quota].into_iter().flatten().min()
}

/// Returns the time at which the quota ends.
fn quota(urr: &Urr, meter: &Meter, is_running: bool) -> Option<u64> {
    let progress = &urr.progress;
    if !progress.ended.is_empty() {
        return None;
    }
    let quota = urr.quota_now();
    let used_up = quota
        .time_s
        .filter(|seconds| is_running && *seconds != 0)
        .map(|seconds| when(urr, progress.elapsed_granted, seconds));
    let invalid = quota.validity_s.map(|seconds| later(progress.granted_at, seconds));
    let from = progress.granted_at.max(meter.last);
    let held = urr.quota_holding_s.map(|seconds| later(from, seconds));
    [used_up, invalid, held].into_iter().flatten().min()
}

/// Returns the time at which `seconds` of use from `base` are reached, if use continues.
fn when(urr: &Urr, base: u64, seconds: u32) -> u64 {
    let used = urr.progress.elapsed.saturating_sub(base);
    let before = base.saturating_sub(urr.progress.elapsed);
    let left = (u64::from(seconds) * SECOND).saturating_sub(used).saturating_add(before);
    urr.progress.running.saturating_add(left)
}
