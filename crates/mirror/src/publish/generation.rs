//! Generation of the tables: a number that changes with every write, so that lanes may remember the
//! results of lookups.

use std::sync::Arc;

use fastlane_table::{EntryId, LaneState, SharedMemory, State, TableError};

/// Entry and word of the number.
pub(crate) const GENERATION: (EntryId, usize) = (EntryId(0), 0);

/// Writer of the generation. It is odd while the tables are written.
pub(super) struct GenerationWriter(LaneState<1>);

impl GenerationWriter {
    /// Attaches to new memory. The first number is the time, so that it is none of an earlier
    /// process, whose lanes may have left what they remembered.
    pub(super) fn attach(memory: &Arc<SharedMemory>) -> Result<Self, TableError> {
        let writer = Self(State::attach(memory)?.lane(0));
        writer.set(fastlane_core::now() & !1);
        Ok(writer)
    }

    /// Announces writes: lanes look up each packet until [`end`](Self::end).
    pub(super) fn begin(&self) {
        self.set(self.get() | 1);
    }

    /// Ends the writes: results of lookups from before are no longer valid.
    pub(super) fn end(&self) {
        self.set((self.get() | 1).wrapping_add(1));
    }

    fn get(&self) -> u64 {
        self.0.at(GENERATION.0).get(GENERATION.1)
    }

    /// Publishes the number after the tables that it belongs to.
    fn set(&self, number: u64) {
        self.0.at(GENERATION.0).publish(GENERATION.1, number);
    }
}
