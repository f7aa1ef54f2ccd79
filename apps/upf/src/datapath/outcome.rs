//! Outcome of a packet: its label and its counter.

use fastlane::{HoldKey, Packet, PortId, Verdict};

use super::lane_tables::LaneTables;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;

/// Result of applying the rules to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forward as it is now, counted under this reason.
    Forward(PortId, DropReason),
    /// Routed together with other packets of the batch.
    Routed,
    /// Labelled by deferred work.
    Deferred,
    /// Held until the lane resumes the key.
    Hold(HoldKey),
    /// The packet is dropped.
    Drop(DropReason),
    /// Not claimed: goes to Linux.
    Linux,
    /// A UE's packet that Linux forwards, because its neighbour is not resolved yet.
    ForwardByLinux,
    /// Replaced by its reply, which leaves by the port of arrival; counted under this reason.
    Reflect(DropReason),
}

/// Returns the counter of forwarded packets of a direction.
pub(crate) const fn forwarded(direction: Direction) -> DropReason {
    match direction {
        Direction::Uplink => DropReason::ForwardedUplink,
        Direction::Downlink => DropReason::ForwardedDownlink,
    }
}

/// Forwarded packets and octets of a batch by direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ForwardedCounters([[u64; 2]; 2]);

impl ForwardedCounters {
    /// Labels a packet of `octets` octets and counts it.
    #[inline]
    pub(crate) fn label(
        &mut self,
        tables: &LaneTables,
        packet: &mut Packet,
        outcome: Outcome,
        octets: u64,
    ) {
        let (verdict, reason) = match outcome {
            Outcome::Forward(port, reason) => (Verdict::Forward(port), reason),
            Outcome::Hold(key) => (Verdict::Hold(key), DropReason::Held),
            Outcome::Drop(reason) => (Verdict::Drop, reason),
            Outcome::Reflect(reason) => (Verdict::Reflect, reason),
            Outcome::Linux => (Verdict::Kernel, DropReason::NotOurs),
            Outcome::ForwardByLinux => (Verdict::Kernel, DropReason::ForwardedByLinux),
            // A safe label in case the deferred work is lost.
            Outcome::Routed | Outcome::Deferred => return packet.set_verdict(Verdict::Drop),
        };
        packet.set_verdict(verdict);
        match reason {
            DropReason::ForwardedUplink => self.count(Direction::Uplink, octets),
            DropReason::ForwardedDownlink => self.count(Direction::Downlink, octets),
            reason => tables.count(reason, 1, octets),
        }
    }

    #[inline]
    fn count(&mut self, direction: Direction, octets: u64) {
        let [packets, sum] = &mut self.0[direction as usize];
        (*packets, *sum) = (*packets + 1, *sum + octets);
    }

    /// Adds the counters to the lane's and clears them.
    #[inline]
    pub(crate) fn publish(&mut self, tables: &LaneTables) {
        for (direction, [packets, octets]) in
            [Direction::Uplink, Direction::Downlink].into_iter().zip(self.0)
        {
            if packets > 0 {
                tables.count(forwarded(direction), packets, octets);
            }
        }
        *self = Self::default();
    }
}
