//! Shard table: the lane of each shard, written by one thread and read by all lanes.

use std::fmt;
use std::sync::Arc;

use fastlane_core::ShardOwnership;
use fastlane_table::{SharedMemory, SharedWords};

/// Number of words of a cache line. No two writers share one.
const LINE: usize = 8;
/// Number of shards.
const SHARDS: usize = 256;
/// Flag in the word of a shard: it migrates.
const MIGRATING: u64 = 1 << 63;
/// Acknowledgement of a lane that passes on no arrivals any more; one more when it has ended.
const LEFT: u64 = u64::MAX - 1;

/// Shard table in shared memory.
///
/// ```text
/// line 0          epoch: number of changes so far
/// 256 words       for each shard the number of its lane, and bit 63 while it migrates
/// then for each lane, written by it:
///   line          last epoch that it has acknowledged
///   256 words     for each shard the number of packets that the lane has assigned
/// ```
/// The first two have one writer, the thread of [`ShardMigration`](crate::ShardMigration).
#[derive(Clone, Debug)]
pub struct Shards {
    epoch: SharedWords,
    table: SharedWords,
    lanes: Vec<LaneWords>,
}

/// Reason why memory cannot be a shard table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardsError {
    /// No lane is to own shards.
    NoOwner,
    /// An owner is no lane.
    UnknownOwner {
        /// Number of the owner.
        owner: usize,
        /// Number of lanes.
        lanes: usize,
    },
    /// The memory is too small, or mapped read-only.
    Size {
        /// Length of the memory, in bytes.
        length: usize,
        /// Bytes that the lanes need.
        needed: usize,
    },
}

impl fmt::Display for ShardsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOwner => formatter.write_str("no lane has the application; name at least one"),
            Self::UnknownOwner { owner, lanes } => {
                write!(formatter, "lane {owner} cannot own shards: there are {lanes} lanes")
            }
            Self::Size { length, needed } => write!(
                formatter,
                "the shard table needs {needed} bytes of writable memory, not {length}"
            ),
        }
    }
}

impl std::error::Error for ShardsError {}

#[derive(Clone, Debug)]
struct LaneWords {
    seen: SharedWords,
    counts: SharedWords,
}

impl Shards {
    /// Returns the length of the table in bytes.
    #[must_use]
    pub fn bytes(lanes: usize) -> usize {
        8 * (LINE + SHARDS + lanes * (LINE + SHARDS))
    }

    /// Creates the shard table of `lanes` lanes in zeroed memory. Shards are assigned to `owners`
    /// in turn: shard 0 to the first of them.
    ///
    /// # Errors
    /// Returns an error if the memory is too small or an owner is missing or unknown. The memory is
    /// unchanged then.
    pub fn new(
        memory: &Arc<SharedMemory>,
        lanes: usize,
        owners: &[usize],
    ) -> Result<Self, ShardsError> {
        if owners.is_empty() {
            return Err(ShardsError::NoOwner);
        }
        if let Some(owner) = owners.iter().find(|owner| **owner >= lanes) {
            return Err(ShardsError::UnknownOwner { owner: *owner, lanes });
        }
        let (length, needed) = (memory.len(), Self::bytes(lanes));
        let shards = Self::attach(memory, lanes).ok_or(ShardsError::Size { length, needed })?;
        (0..SHARDS)
            .for_each(|shard| shards.table.store(shard, owners[shard % owners.len()] as u64));
        shards.epoch.store_release(0, 1);
        shards.lanes.iter().for_each(|lane| lane.seen.store_release(0, 1));
        Ok(shards)
    }

    fn attach(memory: &Arc<SharedMemory>, lanes: usize) -> Option<Self> {
        let own = LINE + SHARDS;
        let lane = |lane: usize| {
            let first = own * (1 + lane);
            let seen = SharedWords::new(memory, first, LINE).ok()?;
            Some(LaneWords { seen, counts: SharedWords::new(memory, first + LINE, SHARDS).ok()? })
        };
        let epoch = SharedWords::new(memory, 0, LINE).ok()?;
        let table = SharedWords::new(memory, LINE, SHARDS).ok()?;
        let lanes = (0..lanes).map(lane).collect::<Option<_>>()?;
        Some(Self { epoch, table, lanes })
    }

    /// Returns the number of lanes.
    #[must_use]
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the lane of a shard; while it migrates, the old one.
    #[must_use]
    pub fn owner(&self, shard: u8) -> usize {
        (self.table.load_acquire(shard.into()) & !MIGRATING) as usize
    }

    /// Returns the number of packets of a shard that a lane has assigned since the start.
    ///
    /// # Panics
    /// Panics if the lane does not exist.
    #[must_use]
    pub fn count(&self, lane: usize, shard: u8) -> u64 {
        self.lanes[lane].counts.load(shard.into())
    }

    /// Assigns a shard to a lane. Lanes see it at the latest with the next
    /// [`advance`](Self::advance).
    pub(super) fn assign(&self, shard: u8, lane: usize, is_migrating: bool) {
        let word = lane as u64 | if is_migrating { MIGRATING } else { 0 };
        self.table.store_release(shard.into(), word);
    }

    /// Begins a new epoch and returns it.
    pub(super) fn advance(&self) -> u64 {
        let epoch = self.epoch.load(0) + 1;
        self.epoch.store_release(0, epoch);
        epoch
    }

    /// Returns true if a lane has finished a turn that began in this epoch, and all packets that
    /// were passed to it before that turn.
    pub(super) fn has_seen(&self, lane: usize, epoch: u64) -> bool {
        self.lanes[lane].seen.load_acquire(0) >= epoch
    }

    /// Returns true if a lane has ended.
    pub(super) fn has_ended(&self, lane: usize) -> bool {
        self.lanes[lane].seen.load_acquire(0) >= LEFT
    }

    /// Returns the view of one lane.
    pub(super) fn lane(self, number: usize) -> LaneShards {
        LaneShards { shards: self, number: number as u64, before: [0; SHARDS] }
    }
}

/// Owner of a shard, as one lane sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Here,
    Lane(u16),
    Migrating,
}

/// Shards of one lane, for its turn.
#[derive(Debug)]
pub(super) struct OwnShards {
    shards: Shards,
    lane: usize,
}

impl ShardOwnership for OwnShards {
    fn owns(&self, shard: u8) -> bool {
        self.shards.owner(shard) == self.lane
    }
}

/// View of one lane on the shard table.
pub(super) struct LaneShards {
    shards: Shards,
    number: u64,
    /// Counts at the last call of `busiest`.
    before: [u64; SHARDS],
}

impl LaneShards {
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        self.shards.epoch.load_acquire(0)
    }

    #[inline]
    pub(super) fn owner(&self, shard: u8) -> Owner {
        match self.shards.table.load_acquire(shard.into()) {
            word if word == self.number => Owner::Here,
            word if word & MIGRATING != 0 => Owner::Migrating,
            word => Owner::Lane(word as u16),
        }
    }

    /// Returns the shards of this lane.
    pub(super) fn ownership(&self) -> OwnShards {
        OwnShards { shards: self.shards.clone(), lane: self.number as usize }
    }

    fn own(&self) -> &LaneWords {
        &self.shards.lanes[self.number as usize]
    }

    #[inline]
    pub(super) fn count(&self, shard: u8) {
        self.own().counts.add(shard.into(), 1);
    }

    pub(super) fn acknowledge(&self, epoch: u64) {
        self.own().seen.store_release(0, epoch);
    }

    pub(super) fn leave(&self, done: bool) {
        self.own().seen.store_release(0, LEFT + u64::from(done));
    }

    pub(super) fn has_left(&self, lane: usize, done: bool) -> bool {
        self.shards.lanes[lane].seen.load_acquire(0) >= LEFT + u64::from(done)
    }

    /// Returns the share of the busiest shard in the packets since the last call, in thousandths,
    /// or `None` if there were none.
    pub(super) fn busiest(&mut self) -> Option<u64> {
        let (mut most, mut all) = (0, 0);
        for shard in 0..SHARDS {
            let count = self.own().counts.load(shard);
            let grown = count.wrapping_sub(std::mem::replace(&mut self.before[shard], count));
            most = grown.max(most);
            all += grown;
        }
        (most * 1000).checked_div(all)
    }
}
