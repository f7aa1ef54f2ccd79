//! Grace periods: tracks when every lane has finished a turn, so that memory can be reused.
//!
//! A lane publishes the number of each finished turn, and after every [`FENCE_TURNS`]th it executes
//! a full fence ([`LaneCounters::publish`]). A writer unpublishes a slot, fences, and reads the
//! numbers into a [`Snapshot`]. A lane has passed the snapshot when it has published the next
//! multiple of `FENCE_TURNS`.
//!
//! There are two cases. If the lane's fence came first, the writer saw that number. If the writer's
//! came first, the lane does not find the slot in any later turn. Without the lane's fence, a turn
//! might read tables while the previous turn's number is still in the store buffer, and the writer
//! would reuse a slot under it.
//!
//! A lane that sleeps announces it and fences when it wakes, so it has passed, too. So has a lane
//! that ended.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::counters::{Counters, FENCE_TURNS, LaneCounter, LaneCounters};

/// Lanes that read a writer's tables. All writers of a process share one.
///
/// # Examples
/// ```
/// use fastlane_table::Readers;
/// use fastlane_table::counters::{Counters, FENCE_TURNS, LaneCounter};
///
/// let counters = Counters::create(1, 0)?; // one lane
/// let readers = Readers::lanes(&counters);
/// let mut snapshot = readers.snapshot(); // after a slot was unpublished
/// assert!(!readers.passed(&mut snapshot));
/// counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
/// assert!(readers.passed(&mut snapshot)); // the slot can be reused
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Readers {
    lanes: Mutex<Lanes>,
    is_running: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Number of changes of the set of lanes.
    epoch: u64,
    lanes: Vec<LaneCounters>,
}

/// Turn numbers of all lanes at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    epoch: u64,
    turns: Vec<u64>,
}

impl Readers {
    /// Creates an empty set, for a writer whose tables no lane reads concurrently.
    #[must_use]
    pub fn none() -> Self {
        Self { lanes: Mutex::default(), is_running: None }
    }

    /// Creates the set of all lanes of an application.
    #[must_use]
    pub fn lanes(counters: &Counters) -> Self {
        let readers = Self::none();
        readers.replace(counters);
        readers
    }

    /// Creates the set of all lanes of an application while `is_running` returns true. Afterwards
    /// no snapshot is passed: a successor's lanes may read the same tables, and their turns are in
    /// other counters. `is_running` is called each time before memory is reused.
    #[must_use]
    pub fn lanes_while(
        counters: &Counters,
        is_running: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { is_running: Some(Box::new(is_running)), ..Self::lanes(counters) }
    }

    /// Replaces the lanes by those of another application instance. Call it before that instance
    /// gets the tables.
    pub fn replace(&self, counters: &Counters) {
        let mut lanes = self.lock();
        lanes.epoch += 1;
        lanes.lanes = (0..counters.lanes()).map(|lane| counters.lane(lane)).collect();
    }

    /// Removes all lanes, after the application has died.
    pub fn remove_all(&self) {
        let mut lanes = self.lock();
        lanes.epoch += 1;
        lanes.lanes.clear();
    }

    /// Returns the turn numbers of all lanes, after a full fence.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// Returns true if every lane has passed the snapshot. A snapshot of replaced lanes is renewed
    /// for the current ones.
    pub fn passed(&self, since: &mut Snapshot) -> bool {
        self.laggard(since).is_none()
    }

    /// Returns the first lane that has not passed the snapshot.
    pub fn laggard(&self, since: &mut Snapshot) -> Option<usize> {
        let lanes = self.lock();
        if since.epoch != lanes.epoch {
            *since = lanes.snapshot();
        }
        if self.is_running.as_ref().is_some_and(|is_running| !is_running()) {
            return Some(0);
        }
        // Orders the loads of the lanes' words after the writer's stores.
        fence(Ordering::SeqCst);
        lanes.lanes.iter().zip(&since.turns).position(|(lane, then)| {
            lane.load(LaneCounter::Turn) / FENCE_TURNS <= then / FENCE_TURNS
                && lane.load(LaneCounter::Asleep) != 1
                && lane.load(LaneCounter::Ended) != 1
        })
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Readers").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl Lanes {
    fn snapshot(&self) -> Snapshot {
        fence(Ordering::SeqCst);
        let turns = self.lanes.iter().map(|lane| lane.load(LaneCounter::Turn)).collect();
        Snapshot { epoch: self.epoch, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: u64 = FENCE_TURNS;

    #[test]
    fn a_lane_passes_by_a_turn_by_sleep_or_by_its_end() {
        let counters = Counters::create(3, 0).unwrap();
        let readers = Readers::lanes(&counters);
        let mut since = readers.snapshot();
        assert_eq!(readers.laggard(&mut since), Some(0));
        counters.lane(0).publish(LaneCounter::Turn, PASSED - 1);
        assert_eq!(readers.laggard(&mut since), Some(0), "it has not fenced yet");
        counters.lane(0).publish(LaneCounter::Turn, PASSED);
        assert_eq!(readers.laggard(&mut since), Some(1));
        counters.lane(1).publish(LaneCounter::Asleep, 1);
        assert_eq!(readers.laggard(&mut since), Some(2));
        counters.lane(1).publish(LaneCounter::Asleep, 0);
        assert_eq!(readers.laggard(&mut since), Some(1), "it was not looked at while it slept");
        counters.lane(1).publish(LaneCounter::Turn, PASSED);
        counters.lane(2).publish(LaneCounter::Ended, 1);
        assert!(readers.passed(&mut since));
        assert!(!readers.passed(&mut readers.snapshot()));
    }

    #[test]
    fn nobody_passes_once_the_application_has_ended() {
        use std::sync::Arc;
        use std::sync::atomic::AtomicBool;

        let (counters, is_running) =
            (Counters::create(1, 0).unwrap(), Arc::new(AtomicBool::new(true)));
        let flag = Arc::clone(&is_running);
        let readers = Readers::lanes_while(&counters, move || flag.load(Ordering::Relaxed));
        let mut since = readers.snapshot();
        counters.lane(0).publish(LaneCounter::Ended, 1);
        assert!(readers.passed(&mut since));
        is_running.store(false, Ordering::Relaxed);
        assert!(!readers.passed(&mut since), "its successor's lanes are not known");
    }

    #[test]
    fn other_lanes_are_counted_from_when_they_are_known() {
        let (first, second) = (Counters::create(1, 0).unwrap(), Counters::create(2, 0).unwrap());
        let readers = Readers::lanes(&first);
        let mut since = readers.snapshot();
        (0..2).for_each(|lane| second.lane(lane).publish(LaneCounter::Turn, 10 * PASSED));
        readers.replace(&second);
        assert!(!readers.passed(&mut since), "the new lanes have passed nothing since");
        (0..2).for_each(|lane| second.lane(lane).publish(LaneCounter::Turn, 11 * PASSED));
        assert!(readers.passed(&mut since));
        let mut since = readers.snapshot();
        assert!(!readers.passed(&mut since));
        readers.remove_all();
        assert!(readers.passed(&mut since));
        assert!(Readers::none().passed(&mut Snapshot::default()));
    }
}
