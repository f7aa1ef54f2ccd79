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
//!
//! A writer believes the counters. Safe code can publish any number in counters of its own, so it
//! takes unsafe code to say which counters are those of a table's lanes.
#![allow(unsafe_code, reason = "whoever names the lanes makes a promise")]

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
/// // SAFETY: no lane reads a table whose writer has this set.
/// let readers = unsafe { Readers::lanes(&counters) };
/// let mut snapshot = readers.snapshot(); // after a slot was unpublished
/// assert!(!readers.passed(&mut snapshot));
/// counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
/// assert!(readers.passed(&mut snapshot)); // the slot can be reused
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Readers {
    lanes: Mutex<Lanes>,
    is_running: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Lane for which a writer has waited in vain, with its turn number then.
    stalled: Mutex<Option<(usize, u64)>>,
    on_stall: Option<Box<dyn Fn(Stall) + Send + Sync>>,
}

/// Event of a lane for which writers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// A writer has waited in vain for this lane. Writers fail without waiting until it passes.
    Began(usize),
    /// The lane has passed a turn again.
    Ended(usize),
}

#[derive(Debug, Default)]
struct Lanes {
    is_known: bool,
    lanes: Vec<LaneCounters>,
}

/// Turn numbers of all lanes at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    is_known: bool,
    turns: Vec<u64>,
}

impl Readers {
    /// Creates the set for a table that no lane can read, as the routes of a prefix table.
    pub(crate) fn of_no_lane() -> Self {
        let lanes = Mutex::new(Lanes { is_known: true, ..Lanes::default() });
        Self { lanes, ..Self::unknown() }
    }

    /// Creates a set whose lanes are not known yet: no snapshot is passed until
    /// [`set_lanes`](Self::set_lanes).
    #[must_use]
    pub fn unknown() -> Self {
        let (lanes, stalled) = (Mutex::default(), Mutex::default());
        Self { lanes, is_running: None, stalled, on_stall: None }
    }

    /// Creates the set of all lanes of an application.
    ///
    /// # Safety
    /// Every lane that reads a table whose writer has the set publishes its turns, its sleep and
    /// its end in these counters, and nobody else publishes them: a lane that they call asleep is
    /// not waited for.
    ///
    /// # Examples
    /// Safe code cannot give a writer counters of its own, in which it calls the lanes asleep:
    /// ```compile_fail,E0133
    /// use fastlane_table::Readers;
    /// use fastlane_table::counters::{Counters, LaneCounter};
    ///
    /// let counters = Counters::create(1, 0).unwrap();
    /// counters.lane(0).publish(LaneCounter::Asleep, 1);
    /// let readers = Readers::lanes(&counters);
    /// ```
    #[must_use]
    pub unsafe fn lanes(counters: &Counters) -> Self {
        let readers = Self::unknown();
        // SAFETY: the caller's promise.
        unsafe { readers.set_lanes(counters) };
        readers
    }

    /// Creates the set of all lanes of an application while `is_running` returns true. Afterwards
    /// no snapshot is passed: a successor's lanes may read the same tables, and their turns are in
    /// other counters. `is_running` is called each time before memory is reused.
    ///
    /// # Safety
    /// That of [`lanes`](Self::lanes), while `is_running` returns true.
    ///
    /// # Examples
    /// ```compile_fail,E0133
    /// fn believe(counters: &fastlane_table::counters::Counters) -> fastlane_table::Readers {
    ///     fastlane_table::Readers::lanes_while(counters, || true)
    /// }
    /// ```
    #[must_use]
    pub unsafe fn lanes_while(
        counters: &Counters,
        is_running: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        // SAFETY: the caller's promise; `passed` asks `is_running` first.
        Self { is_running: Some(Box::new(is_running)), ..unsafe { Self::lanes(counters) } }
    }

    /// Calls `report` when writers stop to wait for a lane, and when that lane passes turns again.
    #[must_use]
    pub fn on_stall(self, report: impl Fn(Stall) + Send + Sync + 'static) -> Self {
        Self { on_stall: Some(Box::new(report)), ..self }
    }

    /// Names the lanes of a set that was [`unknown`](Self::unknown). Call it before they get the
    /// tables. Returns false and changes nothing if the lanes are known: what a lane has borrowed
    /// is overwritten if its set is exchanged.
    ///
    /// # Safety
    /// That of [`lanes`](Self::lanes).
    ///
    /// # Examples
    /// Naming them takes unsafe code:
    /// ```compile_fail,E0133
    /// fn name(readers: &fastlane_table::Readers, counters: &fastlane_table::counters::Counters) {
    ///     readers.set_lanes(counters);
    /// }
    /// ```
    /// The lanes of a set can neither be exchanged nor declared dead:
    /// ```compile_fail,E0599
    /// fn exchange(of: &fastlane_table::Readers, by: &fastlane_table::counters::Counters) {
    ///     of.replace(by);
    /// }
    /// ```
    /// ```compile_fail,E0599
    /// fn bury(lanes: &fastlane_table::Readers) {
    ///     lanes.remove_all();
    /// }
    /// ```
    pub unsafe fn set_lanes(&self, counters: &Counters) -> bool {
        let mut lanes = self.lock();
        if lanes.is_known {
            return false;
        }
        let all = (0..counters.lanes()).map(|lane| counters.lane(lane)).collect();
        *lanes = Lanes { is_known: true, lanes: all };
        true
    }

    /// Returns the turn numbers of all lanes, after a full fence.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// Returns true if every lane has passed the snapshot. A snapshot from before the lanes were
    /// known is renewed for them.
    pub fn passed(&self, since: &mut Snapshot) -> bool {
        self.laggard(since).is_none()
    }

    /// Returns the first lane that has not passed the snapshot.
    pub fn laggard(&self, since: &mut Snapshot) -> Option<usize> {
        let lanes = self.lock();
        if !lanes.is_known {
            return Some(0);
        }
        if !since.is_known {
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

    /// Returns true if waiting is useless: a writer has waited in vain for a lane that has passed
    /// no turn since, the application has ended, or the lanes are not known yet.
    pub(crate) fn is_stalled(&self) -> bool {
        if !self.lock().is_known || self.is_running.as_ref().is_some_and(|is_running| !is_running())
        {
            return true;
        }
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((lane, turn)) = *stalled else { return false };
        let now = self.lock().lanes.get(lane).map(|lane| {
            let is_away = [LaneCounter::Asleep, LaneCounter::Ended]
                .into_iter()
                .any(|state| lane.load(state) == 1);
            (lane.load(LaneCounter::Turn), is_away)
        });
        let is_stalled = now == Some((turn, false));
        if !is_stalled {
            *stalled = None;
            drop(stalled);
            self.report(Stall::Ended(lane));
        }
        is_stalled
    }

    /// Records that a writer has waited in vain for a lane.
    pub(crate) fn set_stalled(&self, lane: usize) {
        let mut stalled = self.stalled.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(turn) = self.lock().lanes.get(lane).map(|it| it.load(LaneCounter::Turn)) else {
            return; // the lanes are not known
        };
        let is_new = stalled.is_none_or(|(other, _)| other != lane);
        *stalled = Some((lane, turn));
        drop(stalled);
        if is_new {
            self.report(Stall::Began(lane));
        }
    }

    fn report(&self, stall: Stall) {
        if let Some(report) = &self.on_stall {
            report(stall);
        }
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
        Snapshot { is_known: self.is_known, turns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: u64 = FENCE_TURNS;

    fn lanes(counters: &Counters) -> Readers {
        // SAFETY: no lane reads a table.
        unsafe { Readers::lanes(counters) }
    }

    #[test]
    fn a_lane_passes_by_a_turn_by_sleep_or_by_its_end() {
        let counters = Counters::create(3, 0).unwrap();
        let readers = lanes(&counters);
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
        // SAFETY: no lane reads a table.
        let readers =
            unsafe { Readers::lanes_while(&counters, move || flag.load(Ordering::Relaxed)) };
        let mut since = readers.snapshot();
        counters.lane(0).publish(LaneCounter::Ended, 1);
        assert!(readers.passed(&mut since));
        is_running.store(false, Ordering::Relaxed);
        assert!(!readers.passed(&mut since), "its successor's lanes are not known");
    }

    #[test]
    fn nobody_passes_before_the_lanes_are_known() {
        let counters = Counters::create(2, 0).unwrap();
        let readers = Readers::unknown();
        let mut since = readers.snapshot();
        assert_eq!(readers.laggard(&mut since), Some(0));
        (0..2).for_each(|lane| counters.lane(lane).publish(LaneCounter::Turn, 10 * PASSED));
        // SAFETY: no lane reads a table.
        assert!(unsafe { readers.set_lanes(&counters) });
        assert!(!readers.passed(&mut since), "the lanes have passed nothing since");
        (0..2).for_each(|lane| counters.lane(lane).publish(LaneCounter::Turn, 11 * PASSED));
        assert!(readers.passed(&mut since));
        let mut since = readers.snapshot();
        // SAFETY: as above.
        assert!(!unsafe { readers.set_lanes(&Counters::create(1, 0).unwrap()) }, "they are known");
        assert!(!readers.passed(&mut since));
        assert!(Readers::of_no_lane().passed(&mut Snapshot::default()));
    }
}
