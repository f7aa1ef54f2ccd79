//! Meters: the generic cell rate algorithm (ITU-T I.371) in one word.
//!
//! The word is the theoretical arrival time of the next packet in units of 1/64 ns. A packet
//! conforms if it is not further ahead of now than the burst. Its octets then advance it by their
//! cost. So at most the burst and one packet pass beyond the rate.

/// Units per nanosecond.
pub(crate) const UNITS: u64 = 64;
/// Maximum length of a packet in octets.
const MAX_PACKET: u64 = 65_575;

/// Returns a time in ns as units.
#[inline(always)]
pub(super) const fn units(now: u64) -> u64 {
    now.saturating_mul(UNITS)
}

/// Parameters of a meter in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeterRate {
    /// Cost: `octets * cost >> shift` units.
    pub(super) cost: u32,
    pub(super) shift: u8,
    /// Burst in ms: how far ahead of now the word may be.
    pub(super) burst: u16,
}

impl MeterRate {
    #[inline(always)]
    fn of(self, octets: u64) -> u64 {
        (octets * u64::from(self.cost)) >> (self.shift & 63)
    }

    /// Returns the word after a packet of `octets`, or `None` if it does not conform.
    #[inline(always)]
    pub(super) fn charge(self, word: u64, octets: u32, now: u64) -> Option<u64> {
        self.charge_at(word, octets, units(now))
    }

    /// Returns the same as [`charge`](Self::charge); the time is in [`units`].
    #[inline(always)]
    pub(super) fn charge_at(self, word: u64, octets: u32, now: u64) -> Option<u64> {
        let latest = now.saturating_add(u64::from(self.burst) * 1_000_000 * UNITS);
        if word > latest {
            // A former, lower rate advanced it further than this one ever would.
            let most = latest.saturating_add(self.of(MAX_PACKET));
            if word <= most {
                return None;
            }
            return Some(latest.saturating_add(self.of(u64::from(octets))));
        }
        Some(word.max(now).saturating_add(self.of(u64::from(octets))))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the octets that pass a meter of a rate in kbit/s during a time, with packets of
    /// `octets` every `gap` ns.
    fn passed(rate: MeterRate, word: &mut u64, octets: u32, gap: u64, time: Range<u64>) -> u64 {
        let mut sum = 0;
        let mut now = time.start;
        while now < time.end {
            if let Some(new) = rate.charge(*word, octets, now) {
                *word = new;
                sum += u64::from(octets);
            }
            now += gap;
        }
        sum
    }

    /// Returns the parameters that the rule compiler produces.
    fn rate(kilobits: u64, burst: u16) -> MeterRate {
        let exact = ((8 * 1_000_000 * u128::from(UNITS)) << 60) / u128::from(kilobits);
        let surplus = (128 - exact.leading_zeros()).saturating_sub(32);
        MeterRate { cost: (exact >> surplus) as u32, shift: (60 - surplus) as u8, burst }
    }

    #[test]
    fn the_rate_holds_within_5_percent_over_10_seconds_and_the_burst_is_bounded() {
        let start = 1_000_000 * SECOND;
        for kilobits in [64, 1000, 10_000, 1_000_000, 100_000_000] {
            for octets in [64, 1400] {
                // Three times the rate.
                let gap = (u64::from(octets) * 8 * 1_000_000 / kilobits / 3).max(1);
                // A hundredth of the burst and of the time where it would be too many packets.
                let is_fast = 10 * SECOND / gap > 4_000_000;
                let (burst, time) = if is_fast { (1, SECOND / 10) } else { (100, 10 * SECOND) };
                let (rate, mut word) = (rate(kilobits, burst), 0);
                let sum = passed(rate, &mut word, octets, gap, start..start + time);
                let allowed = (kilobits * 1000 / 8 * (time / 1000) / (SECOND / 1000)) as f64;
                let share = sum as f64 / allowed;
                let most = 1.0 + 1.01e6 * f64::from(burst) / time as f64 + 0.02;
                let most = most + f64::from(octets) / allowed;
                assert!((0.95..most).contains(&share), "{kilobits} kbit/s, {octets}: {share}");
                // All at once: at most the burst and one packet pass.
                let mut word = 0;
                let at_once = (0..100_000).take_while(|_| {
                    rate.charge(word, octets, start).map(|new| word = new).is_some()
                });
                let sum = at_once.count() as u64 * u64::from(octets);
                assert!(
                    sum <= kilobits * u64::from(burst) / 8 + 2 * u64::from(octets),
                    "{kilobits}: {sum}"
                );
            }
        }
    }

    #[test]
    fn a_faster_rate_is_not_kept_waiting_by_what_a_slower_one_put_off() {
        let (slow, fast) = (rate(1, 100), rate(1_000_000, 100));
        let now = 5 * SECOND;
        let word = slow.charge(0, 65_000, now).unwrap();
        assert!(word > (now + 500 * SECOND) * UNITS);
        assert!(slow.charge(word, 100, now + SECOND).is_none());
        let word = fast.charge(word, 1400, now + SECOND).unwrap();
        assert!(word < (now + SECOND + SECOND / 5) * UNITS);
    }

    #[test]
    fn the_greatest_numbers_do_not_wrap() {
        let rate = MeterRate { cost: u32::MAX, shift: 0, burst: u16::MAX };
        assert_eq!(rate.charge(0, u32::MAX, u64::MAX), Some(u64::MAX));
        assert!(rate.charge(u64::MAX, 1, 0).is_some(), "nothing waits for ever");
    }
}
