//! Moving of shards to other lanes while the application runs.

use fastlane_sharding::{MigrationError, ShardMigration};

/// Moves shards and reports their load.
pub(crate) struct Resharder {
    migration: ShardMigration,
}

impl std::fmt::Debug for Resharder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Resharder").finish_non_exhaustive()
    }
}

/// Lane and load of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Lane that owns the shard.
    pub(crate) lane: usize,
    /// Packets of the shard since the start.
    pub(crate) packets: u64,
}

impl Resharder {
    pub(crate) fn new(migration: ShardMigration) -> Self {
        Self { migration }
    }

    /// Moves a shard to a lane and waits for completion: a few turns of the lanes, at most about
    /// three seconds. Its packets stay in order. None is lost unless a migration buffer overflows.
    ///
    /// # Errors
    /// Fails if the lane has no application or a lane makes no progress. The shard then stays in
    /// its lane.
    pub(crate) fn move_shard(&mut self, shard: u8, lane: usize) -> Result<(), String> {
        self.migration.move_shard(shard, lane).map_err(|error| match error {
            MigrationError::NoSuchLane(lane) => {
                let lanes: Vec<String> =
                    self.migration.owners().iter().map(ToString::to_string).collect();
                format!("lane {lane} has no application; those that have one: {}", lanes.join(", "))
            }
            MigrationError::Stuck(lane) => format!(
                "lane {lane} has not finished a turn within a second, so shard {shard} stays where \
                 it is; see why its application does not return, and try again"
            ),
            MigrationError::Ended(lane) => format!("lane {lane} has ended; the application ends"),
        })
    }

    /// Returns lane and load of all 256 shards.
    pub(crate) fn shares(&self) -> Vec<Share> {
        let shards = self.migration.shards();
        let share = |shard| Share {
            lane: shards.owner(shard),
            packets: (0..shards.lanes()).map(|lane| shards.count(lane, shard)).sum(),
        };
        (0..=u8::MAX).map(share).collect()
    }
}
