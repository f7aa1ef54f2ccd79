//! Meters: the generic cell rate algorithm (ITU-T I.371) in one word.
//!
//! The word is the theoretical arrival time of the next packet in units of 1/64 ns. A packet
//! conforms when that is not further ahead of now than the burst; its octets then put it off by
//! what they cost. So at most the burst, and one packet, passes beyond the rate.

/// Units of a nanosecond.
pub(crate) const UNITS: u64 = 64;
/// The greatest packet.
const GREATEST: u64 = 65_575;

/// What a meter asks of a packet in one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    /// What an octet costs: `octets * cost >> shift` units.
    pub(super) cost: u32,
    pub(super) shift: u8,
    /// How far ahead the word may be, in ms.
    pub(super) burst: u16,
}

impl Price {
    #[inline(always)]
    fn of(self, octets: u64) -> u64 {
        (octets * u64::from(self.cost)) >> (self.shift & 63)
    }

    /// The word after a packet of so many octets; none when it does not conform.
    #[inline(always)]
    pub(super) fn charge(self, word: u64, octets: u32, now: u64) -> Option<u64> {
        let now = now.saturating_mul(UNITS);
        let latest = now.saturating_add(u64::from(self.burst) * 1_000_000 * UNITS);
        if word > latest {
            // It was put off under another rate further than this one ever would.
            let most = latest.saturating_add(self.of(GREATEST));
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
