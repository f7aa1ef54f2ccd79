//! Who must pass a turn before memory is used again.
//!
//! A lane publishes the number of each turn that it has finished, and after every
//! [`FENCE_TURNS`]th a full fence follows ([`LaneCounters::publish`]). A writer unpublishes a slot,
//! fences, and reads the numbers: that is a [`Snapshot`]. A lane has passed it when it has
//! published the next multiple of `FENCE_TURNS`: either the lane's fence came first, and then the
//! writer saw that number; or the writer's came first, and then the lane no longer finds the slot
//! in any turn after that number. (Without the lane's fence a turn may read tables while the number
//! of the turn before is still on its way to memory, and the writer would reuse a slot under it.)
//!
//! A lane that sleeps says so and fences when it wakes, so it has passed, too; so has one that
//! ended.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::counters::{Counters, FENCE_TURNS, LaneCounter, LaneCounters};

/// The lanes that read a writer's tables. One is shared by all writers of a process.
pub struct Readers {
    lanes: Mutex<Lanes>,
    is_running: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Grows when the lanes are others.
    epoch: u64,
    lanes: Vec<LaneCounters>,
}

/// How far each lane was at a time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    epoch: u64,
    turns: Vec<u64>,
}

impl Readers {
    /// Nobody reads while the writer writes.
    #[must_use]
    pub fn none() -> Self {
        Self { lanes: Mutex::default(), is_running: None }
    }

    /// All lanes of an application.
    #[must_use]
    pub fn lanes(counters: &Counters) -> Self {
        let readers = Self::none();
        readers.replace(counters);
        readers
    }

    /// All lanes of an application, while it `runs`. Afterwards nobody has passed anything: its
    /// successor may have lanes that read the same tables, and their turns are counted elsewhere.
    /// It is flag each time that memory is about to be used again.
    #[must_use]
    pub fn lanes_while(
        counters: &Counters,
        is_running: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { is_running: Some(Box::new(is_running)), ..Self::lanes(counters) }
    }

    /// The application was replaced by another, or there is one now. To be called before the new
    /// one is handed the tables.
    pub fn replace(&self, counters: &Counters) {
        let mut lanes = self.lock();
        lanes.epoch += 1;
        lanes.lanes = (0..counters.lanes()).map(|lane| counters.lane(lane)).collect();
    }

    /// The application is dead: its lanes read nothing any more.
    pub fn remove_all(&self) {
        let mut lanes = self.lock();
        lanes.epoch += 1;
        lanes.lanes.clear();
    }

    /// How far each lane is, after everything that the caller wrote before.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// Whether every lane has passed a turn since. A snapshot of lanes that were replaced is taken
    /// anew, of those that are there now.
    pub fn passed(&self, since: &mut Snapshot) -> bool {
        self.laggard(since).is_none()
    }

    /// The first lane that has not passed a turn since.
    pub fn laggard(&self, since: &mut Snapshot) -> Option<usize> {
        let lanes = self.lock();
        if since.epoch != lanes.epoch {
            *since = lanes.snapshot();
        }
        if self.is_running.as_ref().is_some_and(|is_running| !is_running()) {
            return Some(0);
        }
        // What the lane says from here on, it says after what the writer wrote.
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
