//! Readers of tables in tests, where the test is the lane, or knows that no lane is in a turn.
#![allow(unsafe_code, reason = "names the lanes of a test")]

use std::sync::Arc;

use fastlane_table::counters::{Counters, LaneCounter};
use fastlane_table::{Guard, Readers};

/// Returns the readers of an application with one lane, which sleeps: a writer reuses memory at
/// once. For tests that write a table only while no lane is in a turn.
///
/// # Panics
/// Panics if there is no memory for the counters.
#[must_use]
pub fn sleeping_lane() -> Arc<Readers> {
    let counters = Counters::create(1, 0).expect("memory for counters");
    counters.lane(0).publish(LaneCounter::Asleep, 1);
    Arc::new(lanes_of(&counters))
}

/// Returns the readers whose turns a test publishes in `counters`.
#[must_use]
pub fn lanes_of(counters: &Counters) -> Readers {
    // SAFETY: tests read tables between the turns that they publish; no product has this function.
    unsafe { Readers::lanes(counters) }
}

/// Returns a guard for a test that reads tables while it writes none.
#[must_use]
pub fn guard() -> Guard {
    // SAFETY: tests read tables between their writes; no product has this function.
    unsafe { Guard::new() }
}
