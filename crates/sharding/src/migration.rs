//! Migration of shards to other lanes while packets flow.

use std::time::{Duration, Instant};

use crate::Shards;

/// Longest time that a lane may take for a step. After it the shard stays with its old lane.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval while waiting for lanes.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Migration of shards between lanes. It waits, so it runs in a thread that is no lane.
///
/// A migration has four steps:
/// 1. The shard is marked as migrating. After each lane that receives has finished a turn, all
///    packets of the shard wait in the migration buffers of the lanes where they arrive.
/// 2. The old lane finishes the packets that were passed to it before.
/// 3. The lanes that carry out its verdicts finish them.
/// 4. The shard table names the new lane, and each lane passes on its buffered packets before newer
///    ones.
///
/// So no key is ever processed by two lanes, and its packets stay in order. Packets that the old
/// lane *holds* ([`Hold`](fastlane_core::Verdict::Hold)) are shown to its own application when that
/// resumes them.
pub struct ShardMigration {
    shards: Shards,
    /// Lanes that receive from ports.
    arrivals: Vec<usize>,
    /// Lanes that have the application.
    owners: Vec<usize>,
    /// Function that wakes a lane.
    wake: Box<dyn Fn(usize) + Send>,
}

/// Reason why a shard was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationError {
    /// The lane does not exist or has no application.
    NoSuchLane(usize),
    /// This lane has not finished a turn in time: its application is stuck, or it gets no CPU time.
    Stuck(usize),
    /// This lane has ended.
    Ended(usize),
}

impl ShardMigration {
    /// Creates the migration of `shards`, which must have no other. `arrivals` are the lanes that
    /// receive from ports, `owners` those that have the application; they may be the same. `wake`
    /// wakes a sleeping lane.
    #[must_use]
    pub fn new(
        shards: Shards,
        arrivals: Vec<usize>,
        owners: Vec<usize>,
        wake: Box<dyn Fn(usize) + Send>,
    ) -> Self {
        Self { shards, arrivals, owners, wake }
    }

    /// Moves a shard to a lane and waits until it has moved: some turns of the lanes, at most about
    /// three seconds.
    ///
    /// # Errors
    /// Returns an error if the lane cannot own shards or some lane is stuck. The shard stays with
    /// its old lane then.
    pub fn move_shard(&mut self, shard: u8, to: usize) -> Result<(), MigrationError> {
        if !self.owners.contains(&to) {
            return Err(MigrationError::NoSuchLane(to));
        }
        let from = self.shards.owner(shard);
        if from == to {
            return Ok(());
        }
        self.shards.assign(shard, from, true);
        let drained = self.drain(from, to);
        let owner = if drained.is_ok() { to } else { from };
        self.shards.assign(shard, owner, false);
        self.shards.advance();
        self.arrivals.iter().for_each(|lane| (self.wake)(*lane));
        drained
    }

    fn drain(&self, from: usize, to: usize) -> Result<(), MigrationError> {
        if self.shards.has_ended(to) {
            return Err(MigrationError::Ended(to));
        }
        self.wait_for(&self.arrivals)?;
        self.wait_for(&[from])?;
        self.wait_for(&self.arrivals)
    }

    /// Waits until the lanes have finished a turn that begins after this call, and all packets that
    /// were passed to them before.
    fn wait_for(&self, lanes: &[usize]) -> Result<(), MigrationError> {
        let epoch = self.shards.advance();
        let end = Instant::now() + TIMEOUT;
        lanes.iter().for_each(|lane| (self.wake)(*lane));
        for lane in lanes {
            while !self.shards.has_seen(*lane, epoch) {
                if Instant::now() >= end {
                    return Err(MigrationError::Stuck(*lane));
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            if self.shards.has_ended(*lane) {
                return Err(MigrationError::Ended(*lane));
            }
        }
        Ok(())
    }

    /// Returns the lanes that have the application.
    #[must_use]
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// Returns the shard table.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }
}
