//! Names the lanes that read the tables of an application, for those who write them.
#![allow(unsafe_code, reason = "whoever names the lanes of a table makes a promise")]

use fastlane_table::Readers;
use fastlane_table::counters::Counters;

/// Returns the readers of the tables that a session grants, by the counters that it granted. Valid
/// while `is_running` returns true.
pub(crate) fn of_session(
    counters: &Counters,
    is_running: impl Fn() -> bool + Send + Sync + 'static,
) -> Readers {
    // SAFETY: the application that grants both gives its tables to its own lanes only, which
    // publish in these counters. The memory of the counters allows no other writer.
    unsafe { Readers::lanes_while(counters, is_running) }
}

/// Names the lanes of the tables that the mirror writes.
pub(crate) fn name_lanes(readers: &Readers, counters: &Counters) {
    // SAFETY: the mirror's tables are in the memory of this process, which gives them to the lanes
    // of these counters only, and nobody else has counters that can be written.
    unsafe { readers.set_lanes(counters) };
}
