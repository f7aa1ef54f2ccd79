//! Waiting for lanes: the last packets of a session or URR are in its last report.

use std::time::{Duration, Instant};

use fastlane::table::{GracePeriods, Snapshot};

/// Maximum time to wait for lanes. A lane that has no CPU for so long is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two checks of the lanes.
const PAUSE: Duration = Duration::from_micros(20);

/// Wait for lanes to begin another turn.
#[derive(Debug, Default)]
pub(super) struct LaneWait {
    /// Snapshot that the lanes have not passed within [`PATIENCE`].
    overdue: Option<Snapshot>,
}

impl LaneWait {
    /// Waits until each lane has begun another turn. Returns false if one has not within
    /// [`PATIENCE`]; until it does, no other request waits for it.
    pub(super) fn wait(&mut self, lanes: &GracePeriods) -> bool {
        if self.overdue.as_mut().is_some_and(|since| !lanes.have_passed(since)) {
            return false;
        }
        self.overdue = None;
        let mut since = lanes.snapshot();
        let begun = Instant::now();
        while !lanes.have_passed(&mut since) {
            if begun.elapsed() >= PATIENCE {
                self.overdue = Some(since);
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fastlane::counters::{Counters, FENCE_TURNS, LaneCounter};

    use super::*;

    #[test]
    fn a_stuck_lane_is_waited_for_once_until_it_goes_on() {
        let counters = Counters::create(1, 0).unwrap();
        let lanes = GracePeriods::new(Arc::new(fastlane_testing::lanes_of(&counters)));
        let mut lane_wait = LaneWait::default();
        assert!(!lane_wait.wait(&lanes));
        let begun = Instant::now();
        assert!(!lane_wait.wait(&lanes));
        assert!(begun.elapsed() < PATIENCE);
        counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
        counters.lane(0).publish(LaneCounter::Asleep, 1);
        assert!(lane_wait.wait(&lanes));
    }
}
