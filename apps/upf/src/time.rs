//! Clock readings. Code that must not read a clock receives them as [`Now`].

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Seconds from 1900, the NTP epoch (RFC 5905 clause 6), to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

/// Time on both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// `CLOCK_MONOTONIC`, for deadlines and durations. The lanes use it too, and it continues
    /// across a restart of this process.
    pub monotonic: u64,
    /// `CLOCK_REALTIME`, for times in messages.
    pub real: u64,
}

impl Now {
    /// Reads both clocks.
    #[must_use]
    pub fn read() -> Self {
        Self { monotonic: read(ClockId::Monotonic), real: read(ClockId::Realtime) }
    }

    /// Returns the time in PFCP format: seconds since 1900, which wrap in 2036 (TS 29.244 clause
    /// 8.2.65).
    #[must_use]
    pub const fn ntp(self) -> u32 {
        ntp(self.real)
    }

    /// Converts a time of `CLOCK_MONOTONIC` to `CLOCK_REALTIME`.
    #[must_use]
    pub const fn real_of(self, monotonic: u64) -> u64 {
        let ago = self.monotonic.saturating_sub(monotonic);
        let ahead = monotonic.saturating_sub(self.monotonic);
        self.real.saturating_sub(ago).saturating_add(ahead)
    }

    /// Converts a time of `CLOCK_REALTIME` to `CLOCK_MONOTONIC`.
    #[must_use]
    pub const fn monotonic_of(self, real: u64) -> u64 {
        let ago = self.real.saturating_sub(real);
        let ahead = real.saturating_sub(self.real);
        self.monotonic.saturating_sub(ago).saturating_add(ahead)
    }

    /// Returns the nanoseconds until the next full second of the wall clock, never 0.
    #[must_use]
    pub const fn left_of_second(self) -> u64 {
        SECOND - self.real % SECOND
    }

    /// Returns the time `nanoseconds` later.
    #[must_use]
    pub const fn after(self, nanoseconds: u64) -> Self {
        Self {
            monotonic: self.monotonic.saturating_add(nanoseconds),
            real: self.real.saturating_add(nanoseconds),
        }
    }
}

/// Converts nanoseconds since 1970 to seconds since 1900, lower 32 bits.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the format wraps")]
pub const fn ntp(real: u64) -> u32 {
    (real / SECOND).wrapping_add(NTP_TO_UNIX) as u32
}

/// Converts seconds since 1900 to nanoseconds since 1970, choosing the wrap closest to `real`.
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
