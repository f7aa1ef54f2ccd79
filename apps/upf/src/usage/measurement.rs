//! Measurement of a URR: its meter, the triggers that become due (thresholds, quotas, periods,
//! start and stop of traffic), and its update by the control plane. [`Urr::begin`] starts it.

use crate::rules::layout::counter_slots::{
    DOWNLINK_OCTETS, DOWNLINK_PACKETS, EVENTS, LAST, UPLINK_OCTETS, UPLINK_PACKETS, WORDS, event,
};
use crate::rules::layout::message::SessionEvent;
use crate::session::{
    Progress, ReportingTriggers, Split, Urr, UrrUpdate, UsageReportTrigger, Volume,
};
use crate::time::{Now, SECOND};

/// Time without packets that ends traffic, in seconds, unless the URR has an inactivity detection
/// time.
pub const STOP_OF_TRAFFIC_S: u32 = 10;

/// Access to the state slots that lanes write.
pub trait StateSlots {
    /// Returns the words of a state slot; zeros if it does not exist.
    fn line(&self, line: u32) -> [u64; WORDS];
}

/// State slot of a URR as read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Uplink octets, uplink packets, downlink octets, downlink packets; they never decrease.
    pub counts: [u64; 4],
    /// Time of the last counted packet, in nanoseconds of `CLOCK_MONOTONIC`; 0 if none.
    pub last: u64,
    /// Bits of [`event`] raised under the current
    /// rules.
    pub events: u64,
    /// First packet under the current rules, if a lane message reported it, in nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub first: Option<u64>,
}

impl Meter {
    /// Returns true if an event was raised.
    #[must_use]
    pub const fn has(&self, event: u64) -> bool {
        self.events & event != 0
    }

    /// Creates a meter from the words of a state slot. Only events of this version count.
    #[must_use]
    pub fn of(words: [u64; WORDS], version: u64) -> Self {
        let is_of_now = words[EVENTS] >> 32 == version & 0xFFFF_FFFF;
        Self {
            counts: [UPLINK_OCTETS, UPLINK_PACKETS, DOWNLINK_OCTETS, DOWNLINK_PACKETS]
                .map(|word| words[word]),
            last: words[LAST],
            events: if is_of_now { words[EVENTS] & EVENT_BITS } else { 0 },
            first: None,
        }
    }

    /// Reads the meter of a URR.
    #[must_use]
    pub fn read<L: StateSlots + ?Sized>(lines: &L, urr: &Urr, version: u64) -> Self {
        Self::of(lines.line(urr.progress.line), version)
    }

    /// Adds the time of the first packet from a lane message about this slot.
    pub(super) fn told(self, line: u32, hint: Option<&SessionEvent>) -> Self {
        let is_start = |it: &&SessionEvent| it.line == line && it.events & event::START != 0;
        let first = hint.filter(is_start).map(|hint| hint.at);
        Self { first, ..self }
    }
}

/// Returns the time `seconds` after `moment`.
pub(super) const fn later(moment: u64, seconds: u32) -> u64 {
    moment.saturating_add(seconds as u64 * SECOND)
}

/// Returns the difference of two readings.
pub(super) fn between(before: [u64; 4], after: [u64; 4]) -> [u64; 4] {
    std::array::from_fn(|i| after[i].saturating_sub(before[i]))
}

impl Urr {
    /// Returns the time of use since the URR was created, up to `at`, in nanoseconds.
    pub(super) fn elapsed(&self, last: u64, at: u64) -> u64 {
        let Progress { running, elapsed, .. } = self.progress;
        if running == 0 {
            return elapsed;
        }
        let end = self.suspended_at(last).map_or(at, |end| end.min(at));
        elapsed.saturating_add(end.saturating_sub(running))
    }

    /// Returns the end of the time of use if no other packet arrives, if it is limited.
    pub(super) fn suspended_at(&self, last: u64) -> Option<u64> {
        let seconds = self.inactivity_s?;
        Some(later(last.max(self.progress.running), seconds))
    }
}

/// Updates the progress of a URR with all events since the last call and the triggers that became
/// due. It may be called at any time and repeatedly.
pub fn settle(urr: &mut Urr, meter: &Meter, now: Now) {
    time(urr, meter, now);
    traffic(urr, meter, now);
    monitoring(urr, meter, now);
    quota(urr, meter, now);
    thresholds(urr, meter, now);
    period(urr, now);
}

/// Starts the time of use with a packet, and ends it after the inactivity detection time.
fn time(urr: &mut Urr, meter: &Meter, now: Now) {
    note_first(urr, meter, now);
    if !urr.measure.duration || urr.has_information(Urr::PAUSED) {
        return;
    }
    if urr.progress.running == 0 && meter.last > urr.progress.idle_after && is_counted(urr, meter) {
        urr.progress.running = first_packet(urr, meter).min(now.monotonic).max(1);
    }
    let end = urr.suspended_at(meter.last).filter(|end| *end <= now.monotonic);
    if let Some(end) = end.filter(|_| urr.progress.running != 0) {
        urr.progress.elapsed = urr.elapsed(meter.last, end);
        urr.progress.running = 0;
        urr.progress.idle_after = meter.last;
    }
}

/// Returns true if packets were counted since the last report. The time of the last packet does
/// not tell that: the first URR of a session has the session's slot, where every packet leaves it.
fn is_counted(urr: &Urr, meter: &Meter) -> bool {
    let [_, up, _, down] = between(urr.progress.reported, meter.counts);
    up + down != 0
}

/// Notes the time of the first unreported packet, if there is only one or a lane message reported
/// it.
fn note_first(urr: &mut Urr, meter: &Meter, now: Now) {
    let progress = &mut urr.progress;
    let [_, up, _, down] = between(progress.reported, meter.counts);
    if progress.first != 0 || up + down == 0 || meter.last == 0 {
        return;
    }
    let alone = (up + down == 1).then_some(meter.last);
    let told = meter.first.map(|at| now.real_of(at)).filter(|at| *at >= progress.since);
    progress.first = told.or(alone.map(|at| now.real_of(at))).unwrap_or(0);
}

/// Returns the first packet since the time of use ended, from a lane message, else the last packet.
fn first_packet(urr: &Urr, meter: &Meter) -> u64 {
    let is_of_now = |at: &u64| *at > urr.progress.idle_after && *at <= meter.last;
    meter.first.filter(is_of_now).unwrap_or(meter.last)
}

/// Detects start and stop of traffic.
fn traffic(urr: &mut Urr, meter: &Meter, now: Now) {
    if !urr.reports_traffic() || urr.has_information(Urr::PAUSED) {
        return;
    }
    let is_of_now = |at: &u64| *at > urr.progress.traffic_after && *at <= meter.last;
    let first = meter.first.filter(is_of_now).unwrap_or(meter.last);
    let end = urr.stop_of_traffic(meter.last);
    let asked = |urr: &Urr, trigger| urr.triggers.has(trigger);
    let (start, stop) =
        (asked(urr, ReportingTriggers::START), asked(urr, ReportingTriggers::STOPT));
    let is_counted = is_counted(urr, meter);
    let progress = &mut urr.progress;
    if !progress.has_traffic && meter.last > progress.traffic_after && is_counted {
        progress.has_traffic = true;
        if start {
            progress.due = progress.due.with(UsageReportTrigger::START);
            progress.started_at = now.real_of(first.max(1));
        }
    }
    if progress.has_traffic && end <= now.monotonic {
        progress.has_traffic = false;
        progress.traffic_after = meter.last;
        if stop {
            progress.due = progress.due.with(UsageReportTrigger::STOPT);
            progress.stopped_at = now.real_of(end);
        }
    }
}

/// Stores the counters at the monitoring time and activates subsequent thresholds and quotas.
fn monitoring(urr: &mut Urr, meter: &Meter, now: Now) {
    let Some(at) = urr.monitoring_at(now).filter(|at| *at <= now.real) else { return };
    let elapsed = urr.elapsed(meter.last, now.monotonic_of(at));
    let split = Split { counters: meter.counts, elapsed, at };
    let (volume, time) = (urr.subsequent_quota.volume, urr.subsequent_quota.time_s);
    let progress = &mut urr.progress;
    progress.split = Some(split);
    progress.is_after_monitoring = true;
    if volume.is_some() {
        progress.granted = meter.counts;
        progress.ended = progress.ended.without(UsageReportTrigger::VOLQU);
    }
    if time.is_some() {
        progress.elapsed_granted = elapsed;
        progress.ended = progress.ended.without(UsageReportTrigger::TIMQU);
    }
}

/// Ends the quota once, for one or several reasons.
fn quota(urr: &mut Urr, meter: &Meter, now: Now) {
    if !urr.progress.ended.is_empty() {
        return;
    }
    let by_time = timed_quota(urr, meter, now);
    let found = if by_time.is_empty() { volume_quota(urr, meter) } else { by_time };
    let wanted = [
        (ReportingTriggers::VOLQU, UsageReportTrigger::VOLQU),
        (ReportingTriggers::TIMQU, UsageReportTrigger::TIMQU),
        (ReportingTriggers::QUHTI, UsageReportTrigger::QUHTI),
        (ReportingTriggers::QUVTI, UsageReportTrigger::QUVTI),
    ];
    urr.progress.ended = found;
    for (asked, trigger) in wanted {
        if urr.triggers.has(asked) && found.has(trigger) {
            urr.progress.due = urr.progress.due.with(trigger);
        }
    }
}

/// Returns the time-based reasons that end the quota: time used up, validity, holding time.
fn timed_quota(urr: &Urr, meter: &Meter, now: Now) -> UsageReportTrigger {
    let Progress { elapsed_granted, granted_at, .. } = urr.progress;
    let quota = urr.quota_now();
    let used = urr.elapsed(meter.last, now.monotonic).saturating_sub(elapsed_granted);
    let time = quota.time_s.filter(|_| urr.measure.duration);
    let is_time_up = time.is_some_and(|time| match time {
        0 => meter.has(event::QUOTA),
        time => used >= u64::from(time) * SECOND,
    });
    let is_passed = |from: u64, seconds: Option<u32>| {
        seconds.is_some_and(|seconds| later(from, seconds) <= now.monotonic)
    };
    let all = [
        (is_time_up, UsageReportTrigger::TIMQU),
        (is_passed(granted_at, quota.validity_s), UsageReportTrigger::QUVTI),
        (is_passed(granted_at.max(meter.last), urr.quota_holding_s), UsageReportTrigger::QUHTI),
    ];
    let found = all.iter().filter(|(is_found, _)| *is_found);
    found.fold(UsageReportTrigger::NONE, |all, (_, one)| all.with(*one))
}

/// Returns VOLQU if the volume is used up, or a packet did not fit. A quota of zero is reported
/// when the first packet is dropped.
fn volume_quota(urr: &Urr, meter: &Meter) -> UsageReportTrigger {
    let Some(quota) = urr.quota_now().volume.filter(|_| urr.measure.volume) else {
        return UsageReportTrigger::NONE;
    };
    let is_refused = meter.has(event::QUOTA);
    let is_up = is_refused || reaches(between(urr.progress.granted, meter.counts), quota);
    if is_up { UsageReportTrigger::VOLQU } else { UsageReportTrigger::NONE }
}

/// Returns true if octets reach one of the marks, each at least one octet.
fn reaches([up, _, down, _]: [u64; 4], marks: Volume) -> bool {
    let reaches = |octets: u64, mark: Option<u64>| mark.is_some_and(|mark| octets >= mark.max(1));
    reaches(up.saturating_add(down), marks.total)
        || reaches(up, marks.uplink)
        || reaches(down, marks.downlink)
}

fn thresholds(urr: &mut Urr, meter: &Meter, now: Now) {
    let mut found = UsageReportTrigger::NONE;
    let volume = urr.volume_threshold_now().filter(|_| urr.measure.volume);
    let octets = between(urr.threshold_base(), meter.counts);
    if urr.triggers.has(ReportingTriggers::VOLTH) && volume.is_some_and(|it| reaches(octets, it)) {
        found = found.with(UsageReportTrigger::VOLTH);
    }
    if urr.triggers.has(ReportingTriggers::TIMTH) && urr.measure.duration {
        let used = urr.elapsed(meter.last, now.monotonic).saturating_sub(urr.time_threshold_base());
        if urr.time_threshold_now().is_some_and(|time| used >= u64::from(time.max(1)) * SECOND) {
            found = found.with(UsageReportTrigger::TIMTH);
        }
    }
    if urr.triggers.has(ReportingTriggers::DROTH) && meter.has(event::DROPPED) {
        found = found.with(UsageReportTrigger::DROTH);
    }
    urr.progress.due = urr.progress.due.with(found);
}

/// Adds PERIO. Periods count from the creation or update of the URR; other reports do not move
/// them.
fn period(urr: &mut Urr, now: Now) {
    let Some(seconds) = urr.period() else { return };
    let progress = &mut urr.progress;
    if progress.period_at == 0 || progress.period_at > now.monotonic {
        return;
    }
    let length = u64::from(seconds) * SECOND;
    let passed = (now.monotonic - progress.period_at) / length;
    progress.period_at = progress.period_at.saturating_add((passed + 1).saturating_mul(length));
    progress.due = progress.due.with(UsageReportTrigger::PERIO);
}

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
    // One that was reached counts anew from its report, which may have to wait for others.
    let is_due = progress.due.has(UsageReportTrigger::TIMTH);
    let threshold = urr
        .time_threshold_now()
        .filter(|_| is_running && !is_due && urr.triggers.has(ReportingTriggers::TIMTH));
    let threshold =
        threshold.map(|seconds| urr.end_of_use(urr.time_threshold_base(), seconds.max(1)));
    let quota = quota_end(urr, meter, is_running);
    [suspended, stop, monitoring, period, threshold, quota].into_iter().flatten().min()
}

/// Returns the time at which the quota ends.
fn quota_end(urr: &Urr, meter: &Meter, is_running: bool) -> Option<u64> {
    let progress = &urr.progress;
    if !progress.ended.is_empty() {
        return None;
    }
    let quota = urr.quota_now();
    let used_up = quota
        .time_s
        .filter(|seconds| is_running && *seconds != 0)
        .map(|seconds| urr.end_of_use(progress.elapsed_granted, seconds));
    let invalid = quota.validity_s.map(|seconds| later(progress.granted_at, seconds));
    let from = progress.granted_at.max(meter.last);
    let held = urr.quota_holding_s.map(|seconds| later(from, seconds));
    [used_up, invalid, held].into_iter().flatten().min()
}

impl Urr {
    /// Returns the time at which traffic has stopped if no other packet arrives.
    pub(super) fn stop_of_traffic(&self, last: u64) -> u64 {
        later(last, self.inactivity_s.unwrap_or(STOP_OF_TRAFFIC_S))
    }
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

/// Event bits in the word of events.
const EVENT_BITS: u64 = 0xFFFF;
