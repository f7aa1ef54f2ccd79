//! Meters: single rate (srTCM, RFC 2697) and two rate three color markers (trTCM, RFC 2698).
//!
//! A meter has a profile, which the slow path configures, and a state of three words, which the
//! lane that meters writes ([`LaneState`](crate::LaneState)). Tokens are counted in billionths of
//! an octet. A rate in octets per second and a time in nanoseconds are whole numbers, so their
//! product is, too: nothing is rounded, and no error accumulates.
//!
//! The state has the tokens that are missing in each bucket. So zeros are full buckets, as both
//! RFCs begin, and a profile with other bursts can be used with the same state.
//!
//! Colour-blind is colour-aware metering of packets that are all green.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::StateWords;

/// Tokens of an octet.
const OCTET: u64 = 1_000_000_000;

/// Colour of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Colour {
    /// Within the committed rate and burst.
    #[default]
    Green,
    /// Within the excess burst or the peak rate.
    Yellow,
    /// Beyond both.
    Red,
}

/// Kind of a meter, as a word of [`MeterProfile`].
const SINGLE_RATE: u64 = 1;
const TWO_RATE: u64 = 2;

/// Configuration of a meter, plain data for the value of a table. Zeros mark every packet red.
///
/// # Examples
/// ```
/// use fastlane_table::{Colour, MeterProfile, MeterState};
///
/// // 1 MB/s, committed burst 1500 octets, excess burst 3000.
/// let profile = MeterProfile::single_rate(1_000_000, 1500, 3000).expect("bursts below 2^34");
/// let mut state = MeterState::default();
/// let mut meter = |now, octets| profile.meter(&mut state, now, octets, Colour::Green);
/// assert_eq!(meter(0, 1500), Colour::Green);
/// assert_eq!(meter(0, 1500), Colour::Yellow);
/// assert_eq!(meter(0, 1501), Colour::Red);
/// assert_eq!(meter(1_500_000, 1500), Colour::Green); // 1.5 ms later
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct MeterProfile {
    kind: u64,
    /// Committed information rate (CIR), in octets per second.
    committed_rate: u64,
    /// Committed burst size (CBS), in tokens.
    committed_burst: u64,
    /// Peak information rate (PIR), in octets per second; two rates only.
    peak_rate: u64,
    /// Excess burst size (EBS) or peak burst size (PBS), in tokens.
    second_burst: u64,
}

/// Maximum size of a burst, in octets: 17 GB.
pub const MAX_BURST: u64 = (1 << 34) - 1;

impl MeterProfile {
    /// Creates a single rate three color marker from CIR in octets per second, CBS and EBS in
    /// octets. Returns `None` if a burst exceeds [`MAX_BURST`] or both are 0.
    #[must_use]
    pub fn single_rate(committed_rate: u64, committed: u64, excess: u64) -> Option<Self> {
        if committed.max(excess) > MAX_BURST || committed.max(excess) == 0 {
            return None;
        }
        let (committed_burst, second_burst) = (committed * OCTET, excess * OCTET);
        Some(Self {
            kind: SINGLE_RATE,
            committed_rate,
            committed_burst,
            peak_rate: 0,
            second_burst,
        })
    }

    /// Creates a two rate three color marker from CIR and PIR in octets per second, CBS and PBS in
    /// octets. Returns `None` if a burst exceeds [`MAX_BURST`] or is 0, or PIR is below CIR.
    #[must_use]
    pub fn two_rate(
        [committed_rate, committed]: [u64; 2],
        [peak_rate, peak]: [u64; 2],
    ) -> Option<Self> {
        if committed.max(peak) > MAX_BURST || committed.min(peak) == 0 || peak_rate < committed_rate
        {
            return None;
        }
        let (committed_burst, second_burst) = (committed * OCTET, peak * OCTET);
        Some(Self { kind: TWO_RATE, committed_rate, committed_burst, peak_rate, second_burst })
    }

    /// Returns true if the meter has two rates.
    #[must_use]
    pub fn has_two_rates(&self) -> bool {
        self.kind == TWO_RATE
    }

    /// Returns the committed rate in octets per second and the committed burst in octets.
    #[must_use]
    pub fn committed(&self) -> [u64; 2] {
        [self.committed_rate, self.committed_burst / OCTET]
    }

    /// Returns the peak rate in octets per second, which is 0 with a single rate, and the peak or
    /// excess burst in octets.
    #[must_use]
    pub fn second(&self) -> [u64; 2] {
        [self.peak_rate, self.second_burst / OCTET]
    }

    /// Returns the profile of one of `lanes` meters that share the rates. Each has whole bursts.
    #[must_use]
    pub fn share_of(self, lanes: usize) -> Self {
        let share = |rate: u64| rate / lanes.max(1) as u64;
        let (committed_rate, peak_rate) = (share(self.committed_rate), share(self.peak_rate));
        Self { committed_rate, peak_rate, ..self }
    }

    /// Meters a packet of `octets` that arrives at `now`, in nanoseconds, with a colour: green in
    /// colour-blind mode. Returns its new colour, which is never a better one. A time before that
    /// of an earlier packet counts as equal to it.
    #[inline]
    #[must_use]
    pub fn meter(&self, state: &mut MeterState, now: u64, octets: u64, colour: Colour) -> Colour {
        let elapsed = now.saturating_sub(state.time);
        state.time = state.time.max(now);
        let tokens = octets.saturating_mul(OCTET);
        let fits = |missing: u64, burst: u64| burst.checked_sub(missing) >= Some(tokens);
        if self.kind == SINGLE_RATE {
            state.refill_both(self.committed_rate, elapsed);
            if colour == Colour::Green && fits(state.committed, self.committed_burst) {
                state.committed += tokens;
                Colour::Green
            } else if colour != Colour::Red && fits(state.second, self.second_burst) {
                state.second += tokens;
                Colour::Yellow
            } else {
                Colour::Red
            }
        } else {
            refill(&mut state.committed, self.committed_rate, elapsed);
            refill(&mut state.second, self.peak_rate, elapsed);
            if colour == Colour::Red || !fits(state.second, self.second_burst) {
                return Colour::Red;
            }
            state.second += tokens;
            if colour == Colour::Yellow || !fits(state.committed, self.committed_burst) {
                return Colour::Yellow;
            }
            state.committed += tokens;
            Colour::Green
        }
    }
}

/// State of a meter. Zeros are full buckets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterState {
    /// Time of the last packet, in nanoseconds.
    time: u64,
    /// Tokens that the committed bucket lacks.
    committed: u64,
    /// Tokens that the excess bucket or peak bucket lacks.
    second: u64,
}

impl MeterState {
    /// Number of words in lane state.
    pub const WORDS: usize = 3;

    /// Loads the state from words of an entry, the first of which is `first`.
    #[inline]
    #[must_use]
    pub fn load<const W: usize>(words: StateWords<'_, W>, first: usize) -> Self {
        let [time, committed, second] = [0, 1, 2].map(|word| words.get(first + word));
        Self { time, committed, second }
    }

    /// Stores the state in words of an entry, the first of which is `first`.
    #[inline]
    pub fn store<const W: usize>(self, words: StateWords<'_, W>, first: usize) {
        let all = [self.time, self.committed, self.second];
        all.into_iter().zip(first..).for_each(|(value, word)| words.set(word, value));
    }

    /// Adds the tokens of a time to the committed bucket, and those beyond its size to the other
    /// one.
    #[inline]
    fn refill_both(&mut self, rate: u64, elapsed: u64) {
        let tokens = u128::from(rate) * u128::from(elapsed);
        let beyond = tokens.saturating_sub(self.committed.into());
        self.committed = u128::from(self.committed).saturating_sub(tokens) as u64;
        self.second = u128::from(self.second).saturating_sub(beyond) as u64;
    }
}

/// Adds the tokens of a time to a bucket.
#[inline]
fn refill(missing: &mut u64, rate: u64, elapsed: u64) {
    let tokens = u128::from(rate) * u128::from(elapsed);
    *missing = u128::from(*missing).saturating_sub(tokens) as u64;
}
