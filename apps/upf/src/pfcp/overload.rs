//! Rate limits and overload control.

use crate::time::Now;
use crate::time::SECOND;

/// Rate limiter (generic cell rate algorithm).
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// Interval per event in nanoseconds.
    interval: u64,
    /// Tolerance ahead of the theoretical arrival time, in nanoseconds.
    tolerance: u64,
    /// Theoretical arrival time of the next event (ITU-T I.371).
    next: u64,
}

impl Limiter {
    /// Creates a limiter of `per_second` events with bursts of `burst`.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        let per_second = if per_second == 0 { 1 } else { per_second };
        let interval = SECOND / per_second as u64;
        let ahead = if burst == 0 { 0 } else { burst - 1 };
        Self { interval, tolerance: interval * ahead as u64, next: 0 }
    }

    /// Admits and counts an event. Returns false if the rate is exceeded.
    pub fn admit(&mut self, now: Now) -> bool {
        let arrival = self.next.max(now.monotonic);
        if arrival > now.monotonic.saturating_add(self.tolerance) {
            return false;
        }
        self.next = arrival.saturating_add(self.interval);
        true
    }
}

/// Period of validity of overload control information, in nanoseconds.
pub const VALIDITY: u64 = 10 * SECOND;

/// Overload control of establishments (TS 29.244 clause 6.2.4). Those above the rate are refused
/// with cause 74, and the peer is told the reduction in percent.
#[derive(Debug)]
pub struct Overload {
    limit: u32,
    limiter: Limiter,
    /// Current second, and the establishments requested in it.
    second: u64,
    asked: u32,
    /// Establishments requested in the previous second.
    asked_before: u32,
    metric: u8,
    /// Overload Control Sequence Number (clause 8.2.34), increased with each change of the metric.
    sequence: u32,
}

/// Overload Control Information (table 7.5.3.2-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverloadControl {
    /// Overload Control Sequence Number.
    pub sequence: u32,
    /// Overload Reduction Metric in percent (clause 8.2.35).
    pub metric: u8,
    /// Period of Validity in nanoseconds.
    pub validity: u64,
}

impl Overload {
    /// Creates overload control with `limit` establishments per second.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        let burst = if limit / 10 == 0 { 1 } else { limit / 10 };
        let limiter = Limiter::new(limit, burst);
        Self { limit, limiter, second: 0, asked: 0, asked_before: 0, metric: 0, sequence: 0 }
    }

    /// Admits an establishment.
    ///
    /// # Errors
    /// Returns the overload control information for the peer if the rate is exceeded.
    pub fn admit(&mut self, now: Now) -> Result<(), OverloadControl> {
        let second = now.monotonic / SECOND;
        if second != self.second {
            let is_next = second == self.second + 1;
            self.asked_before = if is_next { self.asked } else { 0 };
            (self.second, self.asked) = (second, 0);
        }
        self.asked = self.asked.saturating_add(1);
        if self.limiter.admit(now) {
            return Ok(());
        }
        let offered = self.asked.max(self.asked_before).max(1);
        let excess = u64::from(offered.saturating_sub(self.limit)) * 100;
        // The metric has steps of 5, because each change needs a new sequence number. It is at
        // least one step.
        let metric = (excess / u64::from(offered)).div_ceil(5).clamp(1, 20) as u8 * 5;
        if metric != self.metric {
            self.metric = metric;
            self.sequence = now.ntp().max(self.sequence.wrapping_add(1));
        }
        Err(OverloadControl { sequence: self.sequence, metric, validity: VALIDITY })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic: u64) -> Now {
        Now { monotonic, real: 1_780_000_000 * SECOND + monotonic }
    }

    #[test]
    fn a_limiter_admits_its_rate_and_its_burst() {
        let mut limiter = Limiter::new(10, 5);
        let admitted = |limiter: &mut Limiter, from, until, step| {
            (from..until).step_by(step).filter(|time| limiter.admit(at(*time))).count()
        };
        assert_eq!(admitted(&mut limiter, SECOND, SECOND + 100, 1), 5);
        let in_ten_seconds = admitted(&mut limiter, 2 * SECOND, 12 * SECOND, 1_000_000);
        assert!((100..=105).contains(&in_ten_seconds), "{in_ten_seconds}");
        // No credit accumulates beyond the burst.
        assert_eq!(admitted(&mut limiter, 100 * SECOND, 100 * SECOND + 100, 1), 5);
    }

    #[test]
    fn at_the_limit_all_are_admitted() {
        let mut overload = Overload::new(100);
        let step = SECOND as usize / 100;
        assert!((0..10 * SECOND).step_by(step).all(|time| overload.admit(at(time)).is_ok()));
    }

    #[test]
    fn a_flood_is_told_to_reduce_what_is_above_the_limit() {
        let mut overload = Overload::new(100);
        let flood = (0..5 * SECOND).step_by(SECOND as usize / 400);
        let answers: Vec<_> = flood.map(|time| overload.admit(at(time))).collect();
        let admitted = answers.iter().filter(|answer| answer.is_ok()).count();
        assert!((500..=511).contains(&admitted), "{admitted}");
        let told: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert_eq!(told.last().unwrap().metric, 75);
        assert!(told.windows(2).all(|two| two[0].sequence <= two[1].sequence));
        let changed = |two: &[OverloadControl]| two[0].metric != two[1].metric;
        let renumbered = |two: &[OverloadControl]| two[0].sequence != two[1].sequence;
        assert!(told.windows(2).all(|two| changed(two) == renumbered(two)));
    }
}
