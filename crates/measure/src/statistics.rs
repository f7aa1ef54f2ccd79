//! Estimates with confidence intervals from series of paired slices.

use serde::{Deserialize, Serialize};

/// Number of bootstrap resamples for an interval.
const RESAMPLES: usize = 4000;
/// Maximum width of the interval of a resolved ratio.
const RESOLUTION: f64 = 0.04;

/// Returns the interpolated quantile `at` (0 to 1) of the values, or NaN if there are none.
#[must_use]
pub fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    quantile_in_place(&mut sorted, at)
}

/// Returns the median.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

fn quantile_in_place(values: &mut [f64], at: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_unstable_by(f64::total_cmp);
    let place = at.clamp(0.0, 1.0) * (values.len() - 1) as f64;
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

/// Value with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Median over the pairs.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Returns the median of `values` with its bootstrap interval (percentile method). The same
    /// values always give the same interval.
    #[must_use]
    pub fn of_median(values: &[f64]) -> Self {
        let mut generator = SplitMix(0x5eed);
        let mut sample = vec![0.0; values.len()];
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                sample.fill_with(|| values[generator.below(values.len())]);
                quantile_in_place(&mut sample, 0.5)
            })
            .collect();
        Self {
            value: median(values),
            low: quantile_in_place(&mut medians, 0.025),
            high: quantile_in_place(&mut medians, 0.975),
        }
    }

    /// Estimates the ratio of our cost to the rival's from pairs.
    #[must_use]
    pub fn of_ratio(ours: &[f64], rival: &[f64]) -> Self {
        Self::of_median(&pairwise(ours, rival, |ours, rival| ours / rival))
    }

    /// Estimates the difference of our cost and the rival's from pairs.
    #[must_use]
    pub fn of_difference(ours: &[f64], rival: &[f64]) -> Self {
        Self::of_median(&pairwise(ours, rival, |ours, rival| ours - rival))
    }

    /// Returns true if the interval is no wider than 4 % of `whole`: 1 for a ratio, the measured
    /// time for a difference.
    #[must_use]
    pub fn is_resolved(&self, whole: f64) -> bool {
        self.high - self.low <= RESOLUTION * whole
    }

    /// Compares the interval with `bound`. The interval must be resolved to 4 % of
    /// `whole`: 1 for a ratio, the measured time for a difference.
    #[must_use]
    pub fn verdict(&self, bound: f64, whole: f64) -> Verdict {
        match (self.is_resolved(whole), self.high <= bound) {
            (false, _) => Verdict::NotResolved,
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::DoesNotHold,
        }
    }
}

fn pairwise(ours: &[f64], rival: &[f64], combine: fn(f64, f64) -> f64) -> Vec<f64> {
    ours.iter().zip(rival).map(|(ours, rival)| combine(*ours, *rival)).collect()
}

/// Median over rounds with the lowest and highest round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median round.
    pub median: f64,
    /// Lowest round.
    pub low: f64,
    /// Highest round.
    pub high: f64,
}

impl Spread {
    /// Computes the spread of the values of all rounds.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        Self { median: median(values), low: quantile(values, 0.0), high: quantile(values, 1.0) }
    }
}

/// Result of comparing an interval with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The upper end of the interval is at most the bound.
    Holds,
    /// The upper end of the interval is above the bound.
    DoesNotHold,
    /// The interval is too wide to decide; this does not pass.
    NotResolved,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::NotResolved => "not resolved",
        })
    }
}

/// Random number generator SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). It is reproducible and
/// sufficient to draw samples.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Returns a number below `bound`, evenly distributed for small bounds.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_values() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), 2.5);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 1.0), 4.0);
        assert_eq!(quantile(&values, 0.25), 1.75);
        assert_eq!(median(&[7.0]), 7.0);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_generator_gives_its_published_numbers() {
        let mut generator = SplitMix(0);
        assert_eq!(generator.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(generator.next(), 0x6e78_9e6a_a1b9_65f4);
        let mut generator = SplitMix(1);
        let mut seen = [0; 5];
        (0..5000).for_each(|_| seen[generator.below(5)] += 1);
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
    }

    #[test]
    fn equal_values_have_an_interval_without_width() {
        let estimate = Estimate::of_median(&[3.0; 31]);
        assert_eq!(estimate, Estimate { value: 3.0, low: 3.0, high: 3.0 });
    }

    #[test]
    fn an_interval_holds_the_median_of_what_was_drawn_from() {
        // 0, 0.01, .. 1: for the median of n evenly spread values the 95 % interval is about
        // 0.5 +- 1.96 / (2 sqrt n), here 0.5 +- 0.0975.
        let values: Vec<f64> = (0..=100).map(|n| f64::from(n) / 100.0).collect();
        let estimate = Estimate::of_median(&values);
        assert_eq!(estimate.value, 0.5);
        assert!((estimate.low - 0.4025).abs() < 0.02, "{estimate:?}");
        assert!((estimate.high - 0.5975).abs() < 0.02, "{estimate:?}");
        assert_eq!(estimate, Estimate::of_median(&values), "the same each time");
    }

    #[test]
    fn a_pair_is_compared_with_itself_and_not_with_others() {
        // The machine gets ten times slower on the way: the pairs still agree.
        let rival: Vec<f64> = (1..=31).map(f64::from).collect();
        let ours: Vec<f64> = rival.iter().map(|value| value * 1.02).collect();
        let ratio = Estimate::of_ratio(&ours, &rival);
        assert!((ratio.value - 1.02).abs() < 1e-9 && ratio.high - ratio.low < 1e-9, "{ratio:?}");
        let ours: Vec<f64> = rival.iter().map(|value| value + 2.0).collect();
        assert_eq!(Estimate::of_difference(&ours, &rival).value, 2.0);
    }

    #[test]
    fn a_bound_holds_only_under_the_upper_end_of_a_narrow_interval() {
        let of = |low, high| Estimate { value: (low + high) / 2.0, low, high };
        assert_eq!(of(1.00, 1.03).verdict(1.05, 1.0), Verdict::Holds);
        assert_eq!(of(1.02, 1.05).verdict(1.05, 1.0), Verdict::Holds);
        assert_eq!(of(1.03, 1.06).verdict(1.05, 1.0), Verdict::DoesNotHold);
        assert_eq!(of(0.90, 1.00).verdict(1.05, 1.0), Verdict::NotResolved);
        assert_eq!(of(1.9, 2.0).verdict(2.0, 5.0), Verdict::Holds);
        assert_eq!(of(1.5, 2.0).verdict(2.0, 5.0), Verdict::NotResolved);
    }
}
