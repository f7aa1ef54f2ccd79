//! Outcome of a packet: its label and its counter.

use fastlane::{HoldKey, Packet, PortId, Verdict};

use super::lane_tables::LaneTables;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Direction, Rules};
use crate::rules::layout::slices::{GROUP_ENTRIES, GROUPS, SliceGroup};

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

/// Both directions, in the order of their numbers.
const DIRECTIONS: [Direction; 2] = [Direction::Uplink, Direction::Downlink];

/// Packets and octets of a direction.
type Counts = [u64; 2];

/// Forwarded packets and octets of a batch, by the group of their sessions and by direction.
#[derive(Clone, Debug)]
pub(crate) struct ForwardedCounters {
    by_group: [[Counts; 2]; GROUP_ENTRIES],
    /// Group counted last: the next packet is often of the same one.
    last: SliceGroup,
    /// Groups that have counters; the first one, which had the last packet of the batch before, may
    /// have none, or be there twice.
    counted: [SliceGroup; GROUPS + 1],
    count: usize,
}

impl Default for ForwardedCounters {
    fn default() -> Self {
        let (last, by_group) = (SliceGroup::NONE, [[[0; 2]; 2]; GROUP_ENTRIES]);
        Self { by_group, last, counted: [last; GROUPS + 1], count: 1 }
    }
}

impl ForwardedCounters {
    /// Labels a packet of `octets` octets and counts it: `rules` are those of its session, if that
    /// is known.
    #[inline]
    pub(crate) fn label(
        &mut self,
        tables: &LaneTables,
        packet: &mut Packet,
        outcome: Outcome,
        octets: u64,
        rules: Option<&Rules>,
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
            DropReason::ForwardedUplink => self.count(Direction::Uplink, rules, octets),
            DropReason::ForwardedDownlink => self.count(Direction::Downlink, rules, octets),
            reason => count_other(tables, rules, reason, octets),
        }
    }

    #[inline]
    fn count(&mut self, direction: Direction, rules: Option<&Rules>, octets: u64) {
        let group = rules.map_or(SliceGroup::NONE, |rules| rules.group(direction));
        if group != self.last {
            self.switch(group);
        }
        let [packets, sum] = &mut self.by_group[group.index()][direction as usize];
        (*packets, *sum) = (*packets + 1, *sum + octets);
    }

    /// Continues with another group.
    #[inline(never)]
    fn switch(&mut self, group: SliceGroup) {
        self.last = group;
        let is_listed = self.by_group[group.index()].iter().any(|counts| counts[0] > 0);
        if let Some(slot) = self.counted.get_mut(self.count).filter(|_| !is_listed) {
            *slot = group;
            self.count += 1;
        }
    }

    /// Adds the counters to the lane's and clears them.
    #[inline]
    pub(crate) fn publish(&mut self, tables: &LaneTables) {
        let mut sums = [[0; 2]; 2];
        for group in self.counted.iter().take(self.count) {
            let of_group = self.by_group[group.index()].iter_mut().zip(&mut sums);
            for ((counts, sums), direction) in of_group.zip(DIRECTIONS) {
                if counts[0] > 0 {
                    tables.add_forwarded(*group, direction, *counts);
                    *sums = [sums[0] + counts[0], sums[1] + counts[1]];
                    *counts = [0; 2];
                }
            }
        }
        for (direction, [packets, octets]) in DIRECTIONS.into_iter().zip(sums) {
            if packets > 0 {
                tables.count(forwarded(direction), packets, octets);
            }
        }
        (self.counted[0], self.count) = (self.last, 1);
    }
}

/// Counts a packet that is not forwarded.
#[inline]
fn count_other(tables: &LaneTables, rules: Option<&Rules>, reason: DropReason, octets: u64) {
    tables.count(reason, 1, octets);
    if let Some(rules) = rules {
        tables.count_in_group(rules.group(Direction::Downlink), reason, 1);
    }
}
