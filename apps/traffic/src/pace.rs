//! Pacing: computes the number of packets that are due at a given rate.

/// Nanoseconds per second. It is also the credit that one packet costs.
const SECOND: u64 = 1_000_000_000;

/// Token bucket in integers. Each nanosecond adds `rate` to the credit, each packet costs 10^9.
///
/// No remainder is lost, so the rate does not drift. The credit is at most one burst, so packets
/// missed in a stall are not sent all at once.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    rate: u64,
    credit: u64,
    limit: u64,
    last: u64,
    /// Credit discarded because it exceeded the limit.
    lost: u128,
}

impl Pace {
    /// Creates a bucket for `rate` packets a second (at least 1) and at most `burst` packets at
    /// once. The first packet is due at `start`, in nanoseconds.
    #[must_use]
    pub fn new(rate: u64, burst: u16, start: u64) -> Self {
        let limit = u64::from(burst.max(1)) * SECOND;
        Self { rate: rate.max(1), credit: SECOND, limit, last: start, lost: 0 }
    }

    /// Returns the number of packets that may be sent at `now`.
    #[inline]
    pub fn due(&mut self, now: u64) -> u64 {
        let earned = now.saturating_sub(self.last).saturating_mul(self.rate);
        self.credit = self.credit.saturating_add(earned);
        if self.credit > self.limit {
            self.lost += u128::from(self.credit - self.limit);
            self.credit = self.limit;
        }
        self.last = self.last.max(now);
        self.credit / SECOND
    }

    /// Takes the credit of `packets` sent packets.
    #[inline]
    pub fn spend(&mut self, packets: u64) {
        self.credit = self.credit.saturating_sub(packets.saturating_mul(SECOND));
    }

    /// Returns the number of packets that were due but will never be sent, because
    /// [`due`](Self::due) was called too late.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        u64::try_from(self.lost / u128::from(SECOND)).unwrap_or(u64::MAX)
    }

    /// Returns the time at which the next packet is due, in nanoseconds.
    #[must_use]
    pub fn next(&self) -> u64 {
        let missing = SECOND.saturating_sub(self.credit);
        self.last.saturating_add(missing.div_ceil(self.rate))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends all due packets at times `gaps` nanoseconds apart. Returns the last time, the number
    /// of packets and the largest burst.
    fn send(pace: &mut Pace, start: u64, gaps: &[u64]) -> (u64, u64, u64) {
        let (mut now, mut sent, mut most) = (start, 0, 0);
        for gap in gaps {
            now += gap;
            let due = pace.due(now);
            pace.spend(due);
            sent += due;
            most = most.max(due);
        }
        (now, sent, most)
    }

    proptest! {
        /// Checks that without a stall longer than a burst the count is exact at every time.
        #[test]
        fn the_count_is_exact(
            rate in 1..50_000_000u64,
            burst in 2..64u16,
            shares in prop::collection::vec(0..1000u64, 1..500),
        ) {
            let longest = u64::from(burst - 1) * SECOND / rate;
            let gaps: Vec<u64> = shares.iter().map(|share| longest * share / 1000).collect();
            let start = 77;
            let (now, sent, _) = send(&mut Pace::new(rate, burst, start), start, &gaps);
            let exact = 1 + u128::from(now - start) * u128::from(rate) / u128::from(SECOND);
            prop_assert_eq!(u128::from(sent), exact);
        }

        /// Checks that sent, available and skipped packets add up to the due ones, with any stalls.
        #[test]
        fn what_is_skipped_is_counted(
            rate in 1..50_000_000u64,
            burst in 1..64u16,
            gaps in prop::collection::vec(0..100_000_000u64, 1..100),
        ) {
            let mut pace = Pace::new(rate, burst, 0);
            let (now, sent, _) = send(&mut pace, 0, &gaps);
            let exact = 1 + u128::from(now) * u128::from(rate) / u128::from(SECOND);
            let counted = u128::from(sent + pace.skipped());
            prop_assert!(exact == counted || exact == counted + 1, "{} {}", exact, counted);
        }

        /// Checks that stalls never cause more than one burst at once, nor more than the rate plus
        /// one burst in all.
        #[test]
        fn a_stall_is_not_made_up_for(
            rate in 1..u64::MAX,
            burst in 1..64u16,
            gaps in prop::collection::vec(0..10_000_000_000u64, 1..100),
        ) {
            let (now, sent, most) = send(&mut Pace::new(rate, burst, 0), 0, &gaps);
            prop_assert!(most <= u64::from(burst));
            let exact = u128::from(now) * u128::from(rate) / u128::from(SECOND);
            prop_assert!(u128::from(sent) <= exact + u128::from(burst));
        }

        /// Checks that a packet is due at `next` and none before it.
        #[test]
        fn the_next_packet_is_due_when_it_says(
            rate in 1..SECOND,
            gaps in prop::collection::vec(0..SECOND, 1..20),
        ) {
            let mut pace = Pace::new(rate, 8, 0);
            send(&mut pace, 0, &gaps);
            let next = pace.next();
            prop_assert_eq!(pace.clone().due(next - 1), 0);
            prop_assert!(pace.due(next) >= 1);
        }
    }

    #[test]
    fn a_day_at_an_odd_rate_does_not_drift() {
        let (rate, day) = (1_234_567, 86_400);
        let mut pace = Pace::new(rate, 32, 0);
        let gaps = vec![13_331; 1_000_000];
        let (now, sent, _) = send(&mut pace, 0, &gaps);
        assert_eq!(sent, 1 + now * rate / SECOND);
        assert!(now < day * SECOND);
    }
}
