//! Rate limiter for replies.

/// One second in ns.
const SECOND: u64 = 1_000_000_000;

/// Token bucket with a burst of a tenth of a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimiter {
    /// Interval per token in ns; 0 means no tokens at all.
    interval: u64,
    /// Burst in ns.
    burst: u64,
    /// Time at which the bucket is full again, in ns.
    paid: u64,
}

impl RateLimiter {
    /// Creates a limiter of `per_second` tokens per second.
    pub(crate) fn new(per_second: u32) -> Self {
        let interval = SECOND.checked_div(u64::from(per_second)).unwrap_or(0);
        Self { interval, burst: (SECOND / 10).max(interval), paid: 0 }
    }

    /// Returns true if a token is available.
    #[inline]
    pub(crate) fn has(&self, now: u64) -> bool {
        self.interval != 0 && self.paid.max(now) - now + self.interval <= self.burst
    }

    /// Takes a token; false if there is none.
    #[inline]
    pub(crate) fn take(&mut self, now: u64) -> bool {
        let has = self.has(now);
        if has {
            self.paid = self.paid.max(now) + self.interval;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_in_a_second() {
        for rate in [1, 7, 100, 1000, 100_000] {
            let mut limit = RateLimiter::new(rate);
            let steps = 0..30_000_u64;
            let taken = steps.filter(|step| limit.take(SECOND + step * (SECOND / 10_000))).count();
            let least = u64::from(rate.min(10_000)) * 3 - 1;
            let most = u64::from(rate) * 3 + u64::from(rate / 10) + 1;
            assert!((least..=most).contains(&(taken as u64)), "{rate}: {taken}");
        }
        let mut burst = RateLimiter::new(100);
        assert_eq!((0..100).filter(|_| burst.take(5 * SECOND)).count(), 10);
        assert!(!RateLimiter::new(0).take(SECOND));
    }
}
