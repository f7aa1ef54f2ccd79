//! Tests of the free lists.

#![allow(unsafe_code, reason = "names the lanes of the tests")]

use super::*;
use crate::counters::{Counters, FENCE_TURNS, LaneCounter};

fn lanes(counters: &Counters) -> Readers {
    // SAFETY: no lane reads a table.
    unsafe { Readers::lanes(counters) }
}

#[test]
fn a_number_is_taken_again_after_the_lanes_have_passed() {
    let counters = Counters::create(1, 0).unwrap();
    let readers = lanes(&counters);
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
fn released_numbers_are_used_again_before_new_ones() {
    let counters = Counters::create(1, 0).unwrap();
    let readers = lanes(&counters);
    let mut list = FreeList::attach("slot", &[false; 10_000], true);
    for turn in 1..10_000 {
        let number = list.take(&readers, "test").unwrap();
        assert!(number as usize <= 2 * REUSE + 8, "number {number} after {turn}");
        list.retire(number);
        counters.lane(0).publish(LaneCounter::Turn, turn * FENCE_TURNS);
    }
}

#[test]
fn a_stuck_lane_is_waited_for_once_and_reported_once() {
    use std::sync::{Arc, Mutex};

    use crate::Stall;

    let counters = Counters::create(2, 0).unwrap();
    counters.lane(1).publish(LaneCounter::Asleep, 1);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reports);
    let readers = lanes(&counters).on_stall(move |stall| log.lock().unwrap().push(stall));
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
    let readers = lanes(&counters);
    let mut list = FreeList::attach("slot", &[true, false], false);
    assert_eq!(list.try_take(&readers), None);
    counters.lane(0).publish(LaneCounter::Asleep, 1);
    assert_eq!(list.try_take(&readers), Some(1));
}
