//! Limits that a lane enforces for a URR without the control plane process.

use super::{Progress, Quota, Urr, Volume};

const SECOND: u64 = 1_000_000_000;

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

    /// Returns the time at which the time quota or the quota validity ends.
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

    /// Returns true if the first packet matters: for a report of the start of traffic, or because
    /// the time of use starts with it.
    fn awaits_start(&self) -> bool {
        let by_time = self.measure.duration && self.progress.running == 0;
        by_time || self.reports_traffic() && !self.progress.has_traffic
    }

    /// Returns true if start or stop of traffic is reported.
    #[must_use]
    pub const fn reports_traffic(&self) -> bool {
        let either = super::ReportTriggers::START.0 | super::ReportTriggers::STOPT.0;
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
