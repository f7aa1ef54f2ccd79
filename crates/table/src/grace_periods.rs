//! Grace periods of lanes, for a program that reuses identifiers of its own.

use std::sync::Arc;

use crate::{Readers, Snapshot};

/// Grace periods of the lanes that read the tables of an application: a snapshot is taken when an
/// identifier is removed from a table, and the identifier is free when all lanes have passed it.
///
/// It is not the [`Readers`] that a writer needs, so no table can be paired with lanes that do not
/// read it.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use fastlane_table::counters::{Counters, FENCE_TURNS, LaneCounter};
/// use fastlane_table::{GracePeriods, Readers};
///
/// let counters = Counters::create(1, 0)?; // one lane
/// // SAFETY: no lane reads a table whose writer has this set.
/// let lanes = GracePeriods::new(Arc::new(unsafe { Readers::lanes(&counters) }));
/// let mut removed = lanes.snapshot();
/// assert!(!lanes.have_passed(&mut removed));
/// counters.lane(0).publish(LaneCounter::Turn, FENCE_TURNS);
/// assert!(lanes.have_passed(&mut removed));
/// # Ok::<(), std::io::Error>(())
/// ```
/// A writer does not accept it:
/// ```compile_fail,E0308
/// use std::sync::Arc;
/// use fastlane_table::{GracePeriods, HashWriter, SharedMemory};
///
/// fn pair(own: &Arc<SharedMemory>, lanes: &Arc<GracePeriods>) {
///     let _ = HashWriter::<u32, u64>::attach(own, lanes);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct GracePeriods {
    readers: Arc<Readers>,
}

impl GracePeriods {
    /// Creates the grace periods of these lanes.
    #[must_use]
    pub fn new(readers: Arc<Readers>) -> Self {
        Self { readers }
    }

    /// Returns the turn numbers of all lanes, after a full fence.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.readers.snapshot()
    }

    /// Returns true if every lane has passed the snapshot: none uses what was removed before it.
    #[must_use]
    pub fn have_passed(&self, since: &mut Snapshot) -> bool {
        self.readers.passed(since)
    }
}
