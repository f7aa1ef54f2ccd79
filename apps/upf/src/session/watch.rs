//! What a lane watches for a URR, so that it acts without the slow half.

use super::{Progress, Quota, Urr, Volume};

const SECOND: u64 = 1_000_000_000;

/// What a lane watches for a URR. Counts are those of its line of state, absolute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The event THRESHOLD is raised when a count is this or more.
    pub threshold: Volume,
    /// A packet that would make a count greater than this does not pass: the event QUOTA is raised.
    pub quota: Volume,
    /// From this moment on no packet passes, and QUOTA is raised: nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub deadline: Option<u64>,
    /// No packet passes.
    pub is_stopped: bool,
    /// The event START is raised at the first packet that passes.
    pub start: bool,
    /// Nothing is counted (INAM).
    pub is_paused: bool,
    /// Packets are counted before QoS is enforced (MBQE), also those that then do not pass.
    pub before_qos: bool,
}

impl Urr {
    /// MBQE: packets are counted before QoS is enforced.
    pub const BEFORE_QOS: u8 = 1;
    /// INAM: measuring is paused.
    pub const PAUSED: u8 = 1 << 1;
    /// ISTM: time is in use from the moment that the URR is given.
    pub const IMMEDIATE_START: u8 = 1 << 3;
    /// MNOP: packets are reported too.
    pub const PACKETS: u8 = 1 << 4;

    /// Whether a flag of the measurement information is set.
    #[must_use]
    pub const fn has_information(&self, flag: u8) -> bool {
        self.information & flag != 0
    }

    /// The volume threshold in force: the subsequent one after the monitoring time.
    #[must_use]
    pub fn volume_threshold_now(&self) -> Option<Volume> {
        self.subsequent(self.subsequent_volume_threshold).or(self.volume_threshold)
    }

    /// The time threshold in force, in seconds.
    #[must_use]
    pub fn time_threshold_now(&self) -> Option<u32> {
        self.subsequent(self.subsequent_time_threshold_s).or(self.time_threshold_s)
    }

    /// The quotas in force.
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

    /// The counters from which the volume threshold counts: those of the last report, or of the
    /// monitoring time if another threshold holds from there.
    #[must_use]
    pub fn threshold_base(&self) -> [u64; 4] {
        match (self.progress.split, self.subsequent_volume_threshold) {
            (Some(split), Some(_)) => split.counters,
            _ => self.progress.reported,
        }
    }

    /// The same for the time threshold: nanoseconds of use.
    #[must_use]
    pub fn time_threshold_base(&self) -> u64 {
        match (self.progress.split, self.subsequent_time_threshold_s) {
            (Some(split), Some(_)) => split.elapsed,
            _ => self.progress.elapsed_reported,
        }
    }

    /// What a lane watches.
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

    /// When no packet passes any more because time is used up or the quota not valid any longer.
    fn deadline(&self) -> Option<u64> {
        let Progress { running, elapsed, elapsed_granted, granted_at, .. } = self.progress;
        let quota = self.quota_now();
        let is_running = self.measure.duration && running != 0;
        let by_time = quota.time_s.filter(|_| is_running).map(|seconds| {
            let used = elapsed.saturating_sub(elapsed_granted);
            running.saturating_add((u64::from(seconds) * SECOND).saturating_sub(used))
        });
        let by_validity =
            quota.validity_s.map(|seconds| granted_at.saturating_add(u64::from(seconds) * SECOND));
        by_time.into_iter().chain(by_validity).min()
    }

    /// Whether the first packet is waited for: by a report of the start of traffic, or because use
    /// of time begins with it.
    fn awaits_start(&self) -> bool {
        let by_time = self.measure.duration && self.progress.running == 0;
        by_time || self.reports_traffic() && !self.progress.has_traffic
    }

    /// Whether the start or the stop of traffic is reported.
    #[must_use]
    pub const fn reports_traffic(&self) -> bool {
        let either = super::ReportTriggers::START.0 | super::ReportTriggers::STOPT.0;
        self.triggers.0 & either != 0
    }
}

/// Octets above what the counters were.
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
