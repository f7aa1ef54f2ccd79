//! Free lists with a grace period, for the numbers of slots, entries, buckets and groups.

use std::time::{Duration, Instant};

use crate::{Readers, Snapshot, TableError};

/// Maximum time that a writer waits for a lane.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Poll interval while it waits.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// Free numbers, and released numbers that lanes may still use. The list lives on the writer's heap
/// and is rebuilt when a writer attaches.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    what: &'static str,
    free: Vec<u32>,
    /// Numbers released since the last snapshot.
    retired: Vec<u32>,
    /// Numbers released before the last snapshot.
    waiting: Vec<u32>,
    snapshot: Option<Snapshot>,
}

impl FreeList {
    /// Creates the list for a resource `what`. Unused numbers count as released, because lanes may
    /// still read them, unless the table is `fresh`.
    pub(crate) fn attach(what: &'static str, used: &[bool], fresh: bool) -> Self {
        let unused = (0..used.len()).rev().filter(|number| !used[*number]);
        let unused = unused.map(|number| number as u32).collect();
        let list = Self { what, ..Self::default() };
        if fresh { Self { free: unused, ..list } } else { Self { retired: unused, ..list } }
    }

    /// Releases a number to which no index refers any more. It becomes free after a grace period.
    pub(crate) fn retire(&mut self, number: u32) {
        self.retired.push(number);
    }

    /// Returns a number that was taken and never published.
    pub(crate) fn put_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Returns the number of free and released numbers.
    pub(crate) fn len(&self) -> usize {
        self.free.len() + self.retired.len() + self.waiting.len()
    }

    /// Takes a number that no lane uses, or returns `None` if there is none now.
    fn try_take(&mut self, readers: &Readers) -> Option<u32> {
        if self.free.is_empty() {
            self.reclaim(readers);
        }
        self.free.pop()
    }

    fn reclaim(&mut self, readers: &Readers) {
        loop {
            if let Some(snapshot) = &mut self.snapshot {
                if !readers.passed(snapshot) {
                    return;
                }
                self.free.append(&mut self.waiting);
                self.snapshot = None;
            }
            if self.retired.is_empty() {
                return;
            }
            std::mem::swap(&mut self.retired, &mut self.waiting);
            self.snapshot = Some(readers.snapshot());
        }
    }

    /// Takes a number that no lane uses. Waits for the lanes for at most [`MAX_WAIT`], and not at
    /// all if that is useless ([`Readers::is_stalled`]).
    pub(crate) fn take(&mut self, readers: &Readers, table: &str) -> Result<u32, TableError> {
        let start = Instant::now();
        loop {
            if let Some(number) = self.try_take(readers) {
                return Ok(number);
            }
            let table = || table.to_owned();
            let Some(snapshot) = &mut self.snapshot else {
                let what = format!("no {} is left", self.what);
                return Err(TableError::Full { table: table(), what });
            };
            let is_over = start.elapsed() > MAX_WAIT;
            if is_over || readers.is_stalled() {
                let laggard = readers.laggard(snapshot);
                if let (true, Some(lane)) = (is_over, laggard) {
                    readers.set_stalled(lane);
                }
                let lane = laggard.map_or("a lane".into(), |lane| format!("lane {lane}"));
                let (what, seconds) = (self.what, MAX_WAIT.as_secs());
                return Err(TableError::Stalled { table: table(), what, lane, seconds });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Counters, FENCE_TURNS, LaneCounter};

    #[test]
    fn a_number_is_taken_again_after_the_lanes_have_passed() {
        let counters = Counters::create(1, 0).unwrap();
        let readers = Readers::lanes(&counters);
        let mut list = FreeList::attach("slot", &[false, true, false], true);
        assert_eq!(list.take(&readers, "test").unwrap(), 0);
        assert_eq!(list.take(&readers, "test").unwrap(), 2);
        let error = list.take(&readers, "test").unwrap_err();
        assert!(matches!(error, TableError::Full { .. }), "{error}");
        list.retire(1);
        let start = Instant::now();
        let error = list.take(&readers, "test").unwrap_err().to_string();
        assert!(start.elapsed() >= MAX_WAIT);
        assert_eq!(
            error,
            "table 'test' has no free slot because lane 0 has passed no turn for 1 s; see why it \
             does not, or end the application"
        );
        assert_eq!(list.len(), 1);
        counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
        assert_eq!(list.take(&readers, "test").unwrap(), 1);
    }

    #[test]
    fn a_stuck_lane_is_waited_for_once_and_reported_once() {
        use std::sync::{Arc, Mutex};

        use crate::Stall;

        let counters = Counters::create(2, 0).unwrap();
        counters.lane(1).publish(LaneCounter::Asleep, 1);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&reports);
        let readers =
            Readers::lanes(&counters).on_stall(move |stall| log.lock().unwrap().push(stall));
        // Two tables of one application, each with two numbers in use by the lanes.
        let mut lists = [(); 2].map(|()| FreeList::attach("slot", &[false; 2], false));
        assert!(lists[0].take(&readers, "test").is_err());
        let start = Instant::now();
        for _ in 0..100 {
            for list in &mut lists {
                let error = list.take(&readers, "test").unwrap_err();
                assert!(matches!(&error, TableError::Stalled { lane, .. } if lane == "lane 0"));
            }
        }
        assert!(start.elapsed() < MAX_WAIT / 4, "{:?}", start.elapsed());
        assert_eq!(*reports.lock().unwrap(), [Stall::Began(0)]);
        // It goes on, and is waited for again.
        counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
        assert!(lists.iter_mut().all(|list| list.take(&readers, "test").is_ok()));
        assert!(!readers.is_stalled());
        assert_eq!(*reports.lock().unwrap(), [Stall::Began(0), Stall::Ended(0)]);
        lists[0].retire(0);
        lists[0].take(&readers, "test").unwrap();
        let start = Instant::now();
        assert!(lists[0].take(&readers, "test").is_err());
        assert!(start.elapsed() >= MAX_WAIT);
    }

    #[test]
    fn what_a_former_writer_left_may_still_be_in_use() {
        let counters = Counters::create(1, 0).unwrap();
        let readers = Readers::lanes(&counters);
        let mut list = FreeList::attach("slot", &[true, false], false);
        assert_eq!(list.try_take(&readers), None);
        counters.lane(0).publish(LaneCounter::Asleep, 1);
        assert_eq!(list.try_take(&readers), Some(1));
    }
}
