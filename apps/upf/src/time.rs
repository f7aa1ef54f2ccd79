//! The time, as it is given to everything that must not look at a clock.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Seconds from 1900, where time begins in PFCP (RFC 5905 clause 6), to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// A moment on both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC`: for deadlines and durations. It is the lanes' clock too, and goes on
    /// while this process is restarted.
    pub monotonic: u64,
    /// `CLOCK_REALTIME`: for what is told to others.
    pub real: u64,
}

impl Now {
    /// What the clocks say.
    #[must_use]
    pub fn read() -> Self {
        Self { monotonic: read(ClockId::Monotonic), real: read(ClockId::Realtime) }
    }

    /// The wall clock as PFCP has it: seconds since 1900, which wrap in 2036 (TS 29.244 clause
    /// 8.2.65).
    #[must_use]
    pub const fn ntp(self) -> u32 {
        ntp(self.real)
    }

    /// How many nanoseconds of the wall clock's second are left: never 0.
    #[must_use]
    pub const fn left_of_second(self) -> u64 {
        SECOND - self.real % SECOND
    }

    /// The moment of so many nanoseconds later.
    #[must_use]
    pub const fn after(self, nanoseconds: u64) -> Self {
        Self {
            monotonic: self.monotonic.saturating_add(nanoseconds),
            real: self.real.saturating_add(nanoseconds),
        }
    }
}

/// Seconds since 1900 of nanoseconds since 1970: their lower 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the format wraps")]
pub const fn ntp(real: u64) -> u32 {
    (real / SECOND).wrapping_add(NTP_TO_UNIX) as u32
}

/// Nanoseconds since 1970 of seconds since 1900, as near to `real` as they can be meant.
#[must_use]
pub const fn from_ntp(seconds: u32, real: u64) -> u64 {
    let difference = seconds.wrapping_sub(ntp(real)).cast_signed() as i64;
    let whole = (real / SECOND).saturating_add_signed(difference);
    whole.saturating_mul(SECOND)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(SECOND).saturating_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_1900_are_read_near_now_also_when_they_have_wrapped() {
        let in_2026 = 1_780_000_000 * SECOND;
        assert_eq!(ntp(in_2026), 1_780_000_000 + 2_208_988_800);
        assert_eq!(from_ntp(ntp(in_2026) + 60, in_2026), in_2026 + 60 * SECOND);
        assert_eq!(from_ntp(ntp(in_2026) - 60, in_2026), in_2026 - 60 * SECOND);
        let in_2037 = 2_120_000_000 * SECOND;
        assert_eq!(from_ntp(ntp(in_2037) + 1, in_2037), in_2037 + SECOND);
        let at_the_wrap = 2_085_978_495 * SECOND; // one second before
        assert_eq!(ntp(at_the_wrap), u32::MAX);
        assert_eq!(from_ntp(1, at_the_wrap), at_the_wrap + 2 * SECOND);
        assert_eq!(from_ntp(0, 0), from_ntp(0, 0));
    }

    #[test]
    fn the_clocks_go_on() {
        let (before, after) = (Now::read(), Now::read());
        assert!(before.monotonic <= after.monotonic && before.real > 1_700_000_000 * SECOND);
        assert_eq!(before.after(5).monotonic, before.monotonic + 5);
        assert_eq!(before.after(before.left_of_second()).ntp(), before.ntp() + 1);
    }
}
