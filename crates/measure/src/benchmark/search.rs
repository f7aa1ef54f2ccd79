//! Search for the highest rate at which a trial passes (RFC 2544 clause 26.1). A shared machine
//! gets more than one attempt at each rate (as in draft-ietf-bmwg-mlrsearch).

use serde::Serialize;

use super::description::Throughput;
use super::trial::{Limit, Outcome};

/// Result of a search.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Search {
    /// Passed trial at the highest rate that passes; absent if even the lowest rate fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<Outcome>,
    /// Limit of the rate.
    pub(super) limited_by: Limit,
    /// All trials in their order.
    pub(super) trials: Vec<Step>,
}

/// One trial of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Step {
    /// Requested rate; 0 means as fast as the generator can.
    pub(super) wanted_packets_per_second: u64,
    pub(super) offered_packets_per_second: f64,
    pub(super) lost_packets: u64,
    /// Reason of a failure; absent if the trial passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_by: Option<Limit>,
}

/// Search in progress.
struct Searcher<'a, F> {
    settings: &'a Throughput,
    trial: F,
    steps: Vec<Step>,
}

/// Searches with `trial`, which offers a rate (0: as fast as possible) and returns the outcome.
///
/// # Errors
/// Returns the first error of `trial`.
pub(super) fn search<E>(
    settings: &Throughput,
    trial: impl FnMut(u64) -> Result<Outcome, E>,
) -> Result<Search, E> {
    let mut searcher = Searcher { settings, trial, steps: Vec::new() };
    let (found, limited_by) = searcher.run()?;
    Ok(Search { found, limited_by, trials: searcher.steps })
}

/// Result of the attempts at a rate: an outcome that passed, or the reason and outcome of a
/// failure.
type AttemptResult = Result<Outcome, (Limit, Outcome)>;

impl<E, F: FnMut(u64) -> Result<Outcome, E>> Searcher<'_, F> {
    fn run(&mut self) -> Result<(Option<Outcome>, Limit), E> {
        let Throughput { lowest_packets_per_second, highest_packets_per_second, .. } =
            *self.settings;
        let (mut lowest, mut found) = (lowest_packets_per_second, None::<Outcome>);
        let first = self.attempts(highest_packets_per_second)?;
        let (mut limit, overload) = match first {
            Ok(outcome) if highest_packets_per_second > 0 && !outcome.is_late() => {
                return Ok((Some(outcome), Limit::Highest));
            }
            Ok(outcome) => return Ok((Some(outcome), Limit::Generator)),
            Err(failure) => failure,
        };
        let mut highest = overload.taken_packets_per_second() as u64;
        if highest_packets_per_second > 0 {
            highest = highest.min(highest_packets_per_second);
        }
        // The rate received under overload is a good first guess.
        let mut next = overload.received_packets_per_second as u64;
        while highest > lowest && !self.is_near(lowest, highest) {
            let rate =
                if (lowest + 1..highest).contains(&next) { next } else { lowest.midpoint(highest) };
            next = 0;
            match self.attempts(rate)? {
                Ok(outcome) => {
                    lowest = rate;
                    let better = |found: &Outcome| offered(&outcome) > offered(found);
                    if found.as_ref().is_none_or(better) {
                        found = Some(outcome);
                    }
                }
                Err((reason, _)) => {
                    highest = rate;
                    limit = reason;
                }
            }
        }
        if found.is_none() {
            match self.attempts(lowest)? {
                Ok(outcome) => found = Some(outcome),
                Err((reason, _)) => limit = reason,
            }
        }
        // A late generator may have offered less than the requested rate.
        let late = found.as_ref().is_some_and(Outcome::is_late);
        Ok((found, if late { Limit::Generator } else { limit }))
    }

    fn is_near(&self, lowest: u64, highest: u64) -> bool {
        let distance = highest.saturating_sub(lowest) as f64;
        distance <= (highest as f64 * self.settings.resolution_percent / 100.0).max(1.0)
    }

    /// Tries a rate until the majority of the attempts has passed or can no longer pass.
    fn attempts(&mut self, rate: u64) -> Result<AttemptResult, E> {
        let all = self.settings.attempts.max(1);
        let most = all / 2 + 1;
        let (mut passed, mut failed) = (0, 0);
        loop {
            let outcome = (self.trial)(rate)?;
            let failure = outcome.failure(self.settings.acceptable_loss_ppm);
            self.steps.push(Step {
                wanted_packets_per_second: rate,
                offered_packets_per_second: outcome.offered_packets_per_second,
                lost_packets: outcome.lost_packets,
                failed_by: failure,
            });
            match failure {
                None => passed += 1,
                Some(_) => failed += 1,
            }
            match failure {
                None if passed == most => return Ok(Ok(outcome)),
                Some(limit) if failed > all - most => return Ok(Err((limit, outcome))),
                _ => {}
            }
        }
    }
}

fn offered(outcome: &Outcome) -> f64 {
    outcome.offered_packets_per_second
}

/// Searches the longest burst from 1 to `longest` packets that `passes`. Returns `None` if even one
/// packet does not pass.
///
/// # Errors
/// Returns the first error of `passes`.
pub(super) fn longest_burst<E>(
    longest: u64,
    mut passes: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    if passes(longest)? {
        return Ok(Some(longest));
    }
    let (mut good, mut bad) = (0, longest);
    // A resolution of 1 in 64 is enough: searches are repeated and averaged.
    while bad - good > (bad / 64).max(1) {
        let length = good.midpoint(bad);
        if passes(length)? {
            good = length;
        } else {
            bad = length;
        }
    }
    Ok((good > 0).then_some(good))
}

#[cfg(test)]
mod tests;
