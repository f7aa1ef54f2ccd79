//! Decision when a port changes its driver by its load, without flapping.

use std::time::Duration;

use crate::config::raw::LoadBounds;

/// Longest time below the bound, as a multiple of the configured one.
const MOST_PATIENCE: u32 = 64;

/// Decides when a port changes to its driver under load, and when it returns.
///
/// A load between the bounds changes nothing, and a load beyond one must stay there for a time. If
/// the driver itself changes the load, the port would go back and forth: after a return that did
/// not last, the next one needs twice the time.
#[derive(Clone, Debug)]
pub(super) struct LoadSwitch {
    bounds: LoadBounds,
    /// True if the port had its driver under load at the last look.
    is_loaded: bool,
    /// First look with a load beyond the bound.
    beyond_since: Option<Duration>,
    /// Time of the last return.
    returned: Option<Duration>,
    /// Multiple of the time below the bound.
    patience: u32,
}

impl LoadSwitch {
    /// Creates it for a port that has its driver of a low load.
    pub(super) const fn new(bounds: LoadBounds) -> Self {
        Self { bounds, is_loaded: false, beyond_since: None, returned: None, patience: 1 }
    }

    /// Takes the load since the last look, and whether the port has its driver under load. Returns
    /// the time beyond the bound if the port shall change. `now` counts from any origin.
    pub(super) fn look(&mut self, now: Duration, load: f64, is_loaded: bool) -> Option<Duration> {
        if std::mem::replace(&mut self.is_loaded, is_loaded) != is_loaded {
            self.has_changed(now);
        }
        let LoadBounds { above, below, .. } = self.bounds;
        let is_beyond = if is_loaded { load < f64::from(below) } else { load > f64::from(above) };
        if !is_beyond {
            self.pause();
            return None;
        }
        let time = now - *self.beyond_since.get_or_insert(now);
        let needed = if is_loaded { self.below_time() } else { self.above_time() };
        (time >= needed).then_some(time)
    }

    /// Begins the time beyond the bound anew.
    pub(super) fn pause(&mut self) {
        self.beyond_since = None;
    }

    fn has_changed(&mut self, now: Duration) {
        self.pause();
        if !self.is_loaded {
            self.returned = Some(now);
            return;
        }
        let lasted = self.returned.take().map(|returned| now - returned);
        let is_short = lasted.is_some_and(|lasted| lasted < self.above_time() + self.below_time());
        self.patience = if is_short { (2 * self.patience).min(MOST_PATIENCE) } else { 1 };
    }

    fn above_time(&self) -> Duration {
        Duration::from_secs(self.bounds.above_s.into())
    }

    fn below_time(&self) -> Duration {
        Duration::from_secs(self.bounds.below_s.into()) * self.patience
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::raw::Load;

    /// Interval between looks.
    const STEP: Duration = Duration::from_millis(500);

    fn bounds() -> impl Strategy<Value = LoadBounds> {
        let load = Load::PacketsPerSecond;
        (1..100_u32, 1..100_u32, 1..20_u32, 1..20_u32).prop_map(
            move |(below, more, above_s, below_s)| LoadBounds {
                load,
                above: below + more,
                below,
                above_s,
                below_s,
            },
        )
    }

    /// Follows a load that depends on the driver. Returns the steps of the changes.
    fn changes(bounds: LoadBounds, steps: usize, load: impl Fn(usize, bool) -> f64) -> Vec<usize> {
        let (mut switch, mut is_loaded) = (LoadSwitch::new(bounds), false);
        let mut changes = Vec::new();
        for step in 0..steps {
            let now = STEP * u32::try_from(step).unwrap();
            if switch.look(now, load(step, is_loaded), is_loaded).is_some() {
                is_loaded = !is_loaded;
                changes.push(step);
            }
        }
        changes
    }

    proptest! {
        #[test]
        fn a_load_between_the_bounds_changes_nothing(
            bounds in bounds(),
            shares in prop::collection::vec(0.0..=1.0_f64, 1..400),
        ) {
            let span = f64::from(bounds.above - bounds.below);
            let load = |step: usize, _| f64::from(bounds.below) + shares[step] * span;
            prop_assert_eq!(changes(bounds, shares.len(), load).len(), 0);
        }

        #[test]
        fn the_load_was_beyond_the_bound_for_the_whole_time_before_a_change(
            bounds in bounds(),
            // Runs of a load, so that some last long enough.
            runs in prop::collection::vec((0.0..200.0_f64, 1..80_usize), 1..60),
        ) {
            let loads: Vec<f64> =
                runs.iter().flat_map(|(load, times)| vec![*load; *times]).collect();
            let changes = changes(bounds, loads.len(), |step, _| loads[step]);
            let mut earliest = 0;
            for (number, step) in changes.into_iter().enumerate() {
                let is_return = number % 2 == 1;
                let seconds = if is_return { bounds.below_s } else { bounds.above_s };
                let begin = step.checked_sub(2 * seconds as usize);
                prop_assert!(begin.is_some_and(|begin| begin >= earliest), "{step} {earliest}");
                let is_beyond = |load: &f64| match is_return {
                    true => *load < f64::from(bounds.below),
                    false => *load > f64::from(bounds.above),
                };
                prop_assert!(loads[begin.unwrap()..=step].iter().all(is_beyond));
                earliest = step + 1;
            }
        }

        #[test]
        fn a_load_beyond_a_bound_changes_the_driver(bounds in bounds()) {
            let wait = 2 * bounds.above_s as usize;
            let high = |_, _| f64::from(bounds.above) + 1.0;
            prop_assert_eq!(changes(bounds, 1000, high), [wait]);
        }

        /// The driver under load is so cheap that the load falls below the lower bound.
        #[test]
        fn a_load_that_the_driver_itself_changes_does_not_flap(bounds in bounds()) {
            let load = |_, is_loaded| if is_loaded { 0.0 } else { f64::from(bounds.above) + 1.0 };
            let hours = 24 * 3600 * 2;
            let count = changes(bounds, hours, load).len();
            // Six times of doubling, then one change there and back in each longest time.
            let longest = 2 * MOST_PATIENCE as usize * bounds.below_s as usize;
            prop_assert!(count <= 2 * (8 + hours / longest), "{count} changes in a day");
        }
    }
}
