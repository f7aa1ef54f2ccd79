//! Moving a shard to another lane while traffic flows.

use std::time::{Duration, Instant};

use super::Shards;

/// How long a lane that is busy may take before it is given up: the shard stays where it was then.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether all lanes are that far.
const STEP: Duration = Duration::from_micros(50);

/// The one who moves shards; it may wait, so it is not a lane.
///
/// A move takes four steps. The word of the shard says that it moves, and each lane that receives
/// has finished a turn since, so that all packets of the shard are parked where they arrive. The
/// old lane has finished with what it was passed before. The lanes that carry out its verdicts have
/// done so. The word names the new lane, and each lane passes on what it has parked, before what is
/// newer. So no key is ever processed by two lanes, and its packets stay in order.
///
/// What the old lane *holds* of the shard ([`Hold`](crate::Verdict::Hold)) it shows to its own
/// application when that resumes it.
pub struct ShardMigration {
    shards: Shards,
    /// The lanes that receive from ports.
    arrivals: Vec<usize>,
    /// The lanes that have the application.
    owners: Vec<usize>,
    /// Wakes a lane.
    wake: Box<dyn Fn(usize) + Send>,
}

/// Why a shard has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveError {
    /// The lane has no application, or there is none of this number.
    NoSuchLane(usize),
    /// This lane has not finished a turn in time: its application is stuck, or it has no CPU.
    Stuck(usize),
    /// This lane has ended.
    Ended(usize),
}

impl ShardMigration {
    /// `arrivals` are the lanes that receive from ports, `owners` those that have the application;
    /// they may be the same. `wake` wakes a lane that sleeps. There must be only one for `shards`.
    #[must_use]
    pub fn new(
        shards: Shards,
        arrivals: Vec<usize>,
        owners: Vec<usize>,
        wake: Box<dyn Fn(usize) + Send>,
    ) -> Self {
        Self { shards, arrivals, owners, wake }
    }

    /// Moves a shard to a lane, and waits until that is done: some turns of the lanes, at most
    /// about three seconds.
    ///
    /// # Errors
    /// When the lane cannot have it, or some lane does not get on; then the shard stays where it
    /// was.
    pub fn move_shard(&mut self, shard: u8, to: usize) -> Result<(), MoveError> {
        if !self.owners.contains(&to) {
            return Err(MoveError::NoSuchLane(to));
        }
        let from = self.shards.owner(shard);
        if from == to {
            return Ok(());
        }
        self.shards.place(shard, from, true);
        let drained = self.drain(from, to);
        let owner = if drained.is_ok() { to } else { from };
        self.shards.place(shard, owner, false);
        self.shards.advance();
        self.arrivals.iter().for_each(|lane| (self.wake)(*lane));
        drained
    }

    fn drain(&self, from: usize, to: usize) -> Result<(), MoveError> {
        if self.shards.has_ended(to) {
            return Err(MoveError::Ended(to));
        }
        self.wait_for(&self.arrivals)?;
        self.wait_for(&[from])?;
        self.wait_for(&self.arrivals)
    }

    /// Waits until the lanes have finished a turn that begins from now on, and with all that they
    /// had been passed until then.
    fn wait_for(&self, lanes: &[usize]) -> Result<(), MoveError> {
        let epoch = self.shards.advance();
        let end = Instant::now() + PATIENCE;
        lanes.iter().for_each(|lane| (self.wake)(*lane));
        for lane in lanes {
            while !self.shards.has_seen(*lane, epoch) {
                if Instant::now() >= end {
                    return Err(MoveError::Stuck(*lane));
                }
                std::thread::sleep(STEP);
            }
            if self.shards.has_ended(*lane) {
                return Err(MoveError::Ended(*lane));
            }
        }
        Ok(())
    }

    /// The lanes that have the application.
    #[must_use]
    pub fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// The shards.
    #[must_use]
    pub fn shards(&self) -> &Shards {
        &self.shards
    }
}
