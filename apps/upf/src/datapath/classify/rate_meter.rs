//! Meters: the generic cell rate algorithm (ITU-T I.371) in one word.
//!
//! The word is the theoretical arrival time of the next packet in units of 1/64 ns. A packet
//! conforms if it is not further ahead of now than the burst. Its octets then advance it by their
//! cost. So at most the burst and one packet pass beyond the rate.

/// Units per nanosecond.
pub(crate) const UNITS: u64 = 64;
/// Maximum length of a packet in octets.
const MAX_PACKET: u64 = 65_575;

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
        let now = now.saturating_mul(UNITS);
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
mod tests;
