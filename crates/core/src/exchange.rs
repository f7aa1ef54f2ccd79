//! Exchange of packets between lanes: the seam of `fastlane-sharding`.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;

use fastlane_table::counters::{LaneCounters, PortCounters};

use crate::{Burst, Filter, Packet, Pool, Sent};

/// Part of one lane in an exchange: it passes packets to other lanes and receives theirs, before
/// the application sees them.
///
/// Like a [`Queue`](crate::Queue) it neither allocates, locks, waits nor fails after start.
pub trait Exchange: Send {
    /// Returns true if packets that arrive at a port can belong to other lanes.
    fn distributes(&self, port: usize) -> bool;

    /// Returns the shards of this lane, for [`Turn::owns`](crate::Turn::owns).
    fn ownership(&self) -> Box<dyn ShardOwnership>;

    /// Begins a turn.
    fn begin_turn(&mut self);

    /// Determines the lane of each claimed packet of a burst that has arrived at a port. Packets
    /// for Linux are no longer claimed afterwards. `shard` is the application's choice. Returns
    /// true if all packets stay; otherwise [`send_away`](Self::send_away) must follow.
    fn assign(
        &mut self,
        port: usize,
        packets: &mut [Packet],
        shard: &mut dyn FnMut(&Packet) -> u8,
    ) -> bool;

    /// Passes the packets of the burst to the lanes that they were assigned to. Packets of this
    /// lane stay in the burst. Returns the number of packets that wait for the migration of their
    /// shard. `counters` are those of the port of arrival.
    fn send_away(&mut self, counters: &PortCounters, burst: &mut Burst, pool: &mut Pool) -> u64;

    /// Fills an empty burst with packets that other lanes have passed, or whose shard has migrated
    /// here. Returns the number of the lane that passed them, or `None` if there are no more in
    /// this turn.
    fn next_burst(
        &mut self,
        counters: &[PortCounters],
        burst: &mut Burst,
        pool: &mut Pool,
    ) -> Option<usize>;

    /// Passes labelled packets to the lane that has the exit `to`. Returns `None` if there is no
    /// such lane.
    fn hand_over(&mut self, to: usize, run: &mut [Packet], pool: &mut Pool) -> Option<Sent>;

    /// Returns true if another lane sends packets for the exit `to`.
    fn hands_over(&self, to: usize) -> bool;

    /// Ends a turn: publishes the packets that were passed. Returns true if the lane must not
    /// sleep.
    fn flush(&mut self, pool: &mut Pool) -> bool;

    /// Announces that the lane is about to sleep. Returns true if it must not.
    fn arm(&mut self) -> bool;

    /// Returns the descriptor that becomes readable when another lane has passed packets.
    fn interrupt(&self) -> Option<BorrowedFd<'_>>;

    /// Publishes statistics.
    fn publish(&mut self, counters: &LaneCounters);

    /// Announces that the lane passes on no arrivals any more, and with `done` nothing at all.
    fn leave(&mut self, done: bool);

    /// Returns true if other lanes can still pass packets to this one, or have not read all of
    /// its packets. `done` is that of [`leave`](Self::leave).
    fn is_busy(&mut self, done: bool) -> bool;

    /// Closes the exchange: drops and counts what is left, and takes all frames back. Returns the
    /// number of frames that are missing in its own memory.
    fn close(&mut self, counters: &[PortCounters], pool: &mut Pool) -> usize;
}

/// Shards of one lane.
pub trait ShardOwnership: Debug + Send {
    /// Returns true if packets of a shard are shown to this lane.
    fn owns(&self, shard: u8) -> bool;
}

/// Filter that claims every packet, for a port without rules whose packets change lanes: one flag
/// marks both claimed packets and packets to distribute.
pub(crate) struct ClaimAll;

impl Filter for ClaimAll {
    fn claims(&mut self, _: &[u8]) -> bool {
        true
    }

    fn claims_all(&self) -> bool {
        true
    }
}
