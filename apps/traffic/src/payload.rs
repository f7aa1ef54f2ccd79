//! Mark of a frame: the first 18 bytes of its UDP payload.
//!
//! ```text
//! 0      2      4      6      8          12               18
//! | FA57 | run  |check | flow | sequence | sent, measured |   big endian
//! ```
//! A frame of 60 bytes has 18 bytes left after Ethernet, IPv4 and UDP. `check` is a hash of the
//! other fields. It distinguishes a damaged frame from a foreign one even if a device on the path
//! has recomputed the UDP checksum.

/// Length of a mark in bytes.
pub const MARK_LENGTH: usize = 18;

const MAGIC: u16 = 0xfa57;
/// Position of `check` in the first eight bytes.
const CHECK_MASK: u64 = 0xffff << 16;
/// Width of the time in a mark: nanoseconds modulo 2^47, about 39 hours.
const SENT_BITS: u32 = 47;
const SENT_MASK: u64 = (1 << SENT_BITS) - 1;
const MEASURED: u64 = 1 << SENT_BITS;

/// Identity and departure time of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Number of the run. Late frames of another run are not counted.
    pub run: u16,
    /// Flow number, from 0.
    pub flow: u16,
    /// Sequence number in the flow, from 0; it wraps.
    pub sequence: u32,
    /// Departure time in nanoseconds of `CLOCK_MONOTONIC`; the mark carries the low 47 bits.
    pub sent: u64,
    /// True if the latency counts; false during the warm-up.
    pub measured: bool,
}

/// Classification of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A frame of this run.
    Ours(Mark),
    /// A frame of this run whose mark was changed on the way.
    Damaged,
    /// A frame of another run.
    OtherRun,
    /// A frame that this program did not send.
    Foreign,
}

impl Mark {
    /// Encodes the mark.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> [u8; MARK_LENGTH] {
        let sent = (self.sent & SENT_MASK) | if self.measured { MEASURED } else { 0 };
        let first = name(self.run) | u64::from(self.flow);
        let second = u64::from(self.sequence) << 32 | sent >> 16;
        let third = sent as u16;
        let first = first | u64::from(check(first, second, third)) << 16;
        let mut bytes = [0; MARK_LENGTH];
        bytes[..8].copy_from_slice(&first.to_be_bytes());
        bytes[8..16].copy_from_slice(&second.to_be_bytes());
        bytes[16..].copy_from_slice(&third.to_be_bytes());
        bytes
    }

    /// Decodes and classifies a mark for the receiver of `run`.
    #[inline]
    #[must_use]
    pub fn read(bytes: &[u8; MARK_LENGTH], run: u16) -> Finding {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = *bytes;
        let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let second = u64::from_be_bytes([i, j, k, l, m, n, o, p]);
        let third = u16::from_be_bytes([q, r]);
        let written = (first >> 16) as u16;
        let rest = first & !CHECK_MASK;
        if rest & !0xffff == name(run) {
            if check(rest, second, third) != written {
                return Finding::Damaged;
            }
            let sent = second << 16 | u64::from(third);
            return Finding::Ours(Self {
                run,
                flow: first as u16,
                sequence: (second >> 32) as u32,
                sent: sent & SENT_MASK,
                measured: sent & MEASURED != 0,
            });
        }
        if (first >> 48) as u16 == MAGIC && check(rest, second, third) == written {
            return Finding::OtherRun;
        }
        // If `check` is right with the expected magic and run, the damage is in these two fields.
        let renamed = name(run) | rest & 0xffff;
        if check(renamed, second, third) == written { Finding::Damaged } else { Finding::Foreign }
    }

    /// Returns the nanoseconds from sending to `now`. Returns `None` if `now` is before the time of
    /// sending (clocks of two machines differ) or more than 19 hours after it.
    #[inline]
    #[must_use]
    pub fn age(&self, now: u64) -> Option<u64> {
        let age = now.wrapping_sub(self.sent) & SENT_MASK;
        (age < 1 << (SENT_BITS - 1)).then_some(age)
    }
}

/// Returns magic and run at their positions in the first eight bytes.
#[inline]
fn name(run: u16) -> u64 {
    u64::from(MAGIC) << 48 | u64::from(run) << 32
}

/// Returns a hash of all fields. Different fields have equal hashes once in 65,536 times.
///
/// Multiplication by an odd number and xor with a shifted self are both reversible, so no
/// difference is lost before the final shift.
#[inline]
fn check(first: u64, second: u64, third: u16) -> u16 {
    let hash = (first | u64::from(third) << 16).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (hash ^ hash >> 32 ^ second).wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 48) as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mark() -> impl Strategy<Value = Mark> {
        (any::<u16>(), any::<u16>(), any::<u32>(), any::<u64>(), any::<bool>()).prop_map(
            |(run, flow, sequence, sent, measured)| Mark {
                run,
                flow,
                sequence,
                sent: sent & SENT_MASK,
                measured,
            },
        )
    }

    proptest! {
        #[test]
        fn a_mark_reads_what_was_written(mark in mark()) {
            prop_assert_eq!(Mark::read(&mark.bytes(), mark.run), Finding::Ours(mark));
            prop_assert_eq!(Mark::read(&mark.bytes(), mark.run ^ 1), Finding::OtherRun);
        }

        #[test]
        fn noise_is_never_ours(bytes in any::<[u8; MARK_LENGTH]>()) {
            prop_assume!(bytes[..2] != MAGIC.to_be_bytes());
            prop_assert!(!matches!(Mark::read(&bytes, 7), Finding::Ours(_) | Finding::OtherRun));
        }
    }

    #[test]
    fn a_change_of_any_byte_is_seen() {
        let mark = Mark { run: 7, flow: 3, sequence: 12345, sent: 987_654_321, measured: true };
        let mut seen = 0;
        for index in 0..MARK_LENGTH {
            for change in 1..=255 {
                let mut bytes = mark.bytes();
                bytes[index] ^= change;
                seen += usize::from(Mark::read(&bytes, 7) == Finding::Damaged);
            }
        }
        // The hash has 16 bits, so one change in 65,536 may pass; for this mark none does.
        assert_eq!(seen, MARK_LENGTH * 255);
    }

    #[test]
    fn the_age_outlives_the_wrap_of_the_clock() {
        let mark = |sent| Mark { run: 0, flow: 0, sequence: 0, sent, measured: true };
        assert_eq!(mark(SENT_MASK - 9).age(SENT_MASK + 91), Some(100));
        assert_eq!(mark(100).age((5 << SENT_BITS) + 350), Some(250));
        assert_eq!(mark(100).age(99), None, "sent in the future");
    }
}
