//! The search for the highest rate at which a trial passes: RFC 2544 clause 26.1, with more than
//! one attempt at each rate for machines that are shared (as draft-ietf-bmwg-mlrsearch has it).

use serde::Serialize;

use super::description::Throughput;
use super::trial::{Limit, Outcome};

/// What a search has found.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Search {
    /// A trial that has passed at the highest rate that does; absent when even the lowest fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<Outcome>,
    /// What keeps it from being higher.
    pub(super) limited_by: Limit,
    /// All trials, in their order.
    pub(super) trials: Vec<Step>,
}

/// One trial of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Step {
    /// What was asked for; 0 is as fast as the generator can.
    pub(super) wanted_packets_per_second: u64,
    pub(super) offered_packets_per_second: f64,
    pub(super) lost_packets: u64,
    /// Why it has failed; absent when it has passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed_by: Option<Limit>,
}

/// A search in progress; `E` is what makes it impossible to go on.
struct Searcher<'a, F> {
    settings: &'a Throughput,
    trial: F,
    steps: Vec<Step>,
}

/// Searches with `trial`, which offers a rate (0: as fast as it can) and says what came of it.
///
/// # Errors
/// That of `trial`.
pub(super) fn search<E>(
    settings: &Throughput,
    trial: impl FnMut(u64) -> Result<Outcome, E>,
) -> Result<Search, E> {
    let mut searcher = Searcher { settings, trial, steps: Vec::new() };
    let (found, limited_by) = searcher.run()?;
    Ok(Search { found, limited_by, trials: searcher.steps })
}

/// A rate that was tried: an outcome that passed, or why it failed.
type Tried = Result<Outcome, (Limit, Outcome)>;

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
        // What comes through an overload is a good guess.
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
        // What was found may be less than what was asked for.
        let late = found.as_ref().is_some_and(Outcome::is_late);
        Ok((found, if late { Limit::Generator } else { limit }))
    }

    fn is_near(&self, lowest: u64, highest: u64) -> bool {
        let distance = highest.saturating_sub(lowest) as f64;
        distance <= (highest as f64 * self.settings.resolution_percent / 100.0).max(1.0)
    }

    /// Tries a rate until most of the attempts have passed, or can no longer.
    fn attempts(&mut self, rate: u64) -> Result<Tried, E> {
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

/// The longest burst, from 1 to `longest`, that `passes`; `None` when even one packet does not.
///
/// # Errors
/// That of `passes`.
pub(super) fn longest_burst<E>(
    longest: u64,
    mut passes: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    if passes(longest)? {
        return Ok(Some(longest));
    }
    let (mut good, mut bad) = (0, longest);
    // To one in 64: a search is repeated, and the average is what counts.
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
