//! Interface of a tier inside the kernel: a second table of flows, beside that of the lanes.

use std::io;
use std::ops::AddAssign;

use fastlane_table::EntryId;

use super::{FlowKey, FlowRecord, FlowStatus};

/// A direction of a flow in the table of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierFlow {
    /// Packets as they arrive.
    pub key: FlowKey,
    /// Packets as they leave.
    pub record: FlowRecord,
    /// Entry of the direction in the table of the lanes.
    pub entry: EntryId,
}

/// Totals of a flow, or of a direction of it, in one tier or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierTotals {
    /// Packets that were forwarded.
    pub packets: u64,
    /// Their bytes, from the Ethernet header on.
    pub octets: u64,
    /// Time of the last packet, in nanoseconds of `CLOCK_MONOTONIC`; 0: none was seen.
    pub last_seen: u64,
    /// True if a packet that closes the connection was seen.
    pub is_closing: bool,
    /// True if the route has led to another exit than the first one.
    pub is_rerouted: bool,
}

impl AddAssign for TierTotals {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.octets += other.octets;
        self.last_seen = self.last_seen.max(other.last_seen);
        self.is_closing |= other.is_closing;
        self.is_rerouted |= other.is_rerouted;
    }
}

/// A tier inside the kernel. A [`FlowFollower`](super::FlowFollower) writes the flows of its table
/// here too. A flow that is missing here is handled by Linux.
pub trait FlowTier: Send {
    /// Adds a direction of a flow, or replaces it. Its totals begin at zero.
    ///
    /// # Errors
    /// Returns the refusal of the kernel. The direction is not in the table then.
    fn insert(&mut self, flow: &TierFlow) -> io::Result<()>;

    /// Removes a direction of a flow, if it is in the table.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    fn remove(&mut self, key: &FlowKey) -> io::Result<()>;

    /// Returns all directions of flows, at the start those that a predecessor has left.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    fn flows(&self) -> io::Result<Vec<TierFlow>>;

    /// Returns the totals of the direction with an entry; zeros if it is not in the table.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    fn totals(&self, entry: EntryId) -> io::Result<TierTotals>;

    /// Publishes that the slow path lives, and whether flows may be forwarded. After the return no
    /// packet is forwarded by an earlier status, except for those being processed.
    ///
    /// # Errors
    /// Returns the refusal of the kernel.
    fn publish(&mut self, status: &FlowStatus) -> io::Result<()>;
}
