//! Steering in the lane: the Rust matcher, for devices that Linux does not have.

use std::sync::Arc;

use fastlane_core::{Filter, Mailbox};
use fastlane_steer::Rules;

/// Rules of a port that its lanes match themselves.
#[derive(Debug, Default)]
pub(super) struct LaneRules {
    /// The list in force, last, and older ones that lanes may still use. Kept so that no lane frees
    /// memory.
    lists: Vec<Arc<Rules>>,
    lanes: Vec<Arc<Mailbox<Arc<Rules>>>>,
}

impl LaneRules {
    pub(super) fn new(rules: &Rules) -> Self {
        Self { lists: vec![Arc::new(rules.clone())], lanes: vec![] }
    }

    /// Creates the filter of one more lane.
    pub(super) fn filter(&mut self) -> Option<Box<dyn Filter>> {
        let rules = Arc::clone(self.lists.last()?);
        let updates = Arc::<Mailbox<_>>::default();
        self.lanes.push(Arc::clone(&updates));
        Some(Box::new(LaneFilter { rules, updates, trusts_marks: true }))
    }

    /// Returns the rules in force.
    pub(super) fn in_force(&self) -> Option<&Rules> {
        self.lists.last().map(AsRef::as_ref)
    }

    /// Replaces the rules. Lanes use the new ones from their next burst on.
    pub(super) fn replace(&mut self, rules: &Rules) {
        let rules = Arc::new(rules.clone());
        for lane in &self.lanes {
            lane.put(Arc::clone(&rules));
        }
        self.lists.push(rules);
    }

    /// Frees older lists that no lane uses.
    pub(super) fn sweep(&mut self) {
        let last = self.lists.len().saturating_sub(1);
        let mut index = 0;
        self.lists.retain(|rules| {
            index += 1;
            index > last || Arc::strong_count(rules) > 1
        });
    }
}

/// Filter of one lane.
struct LaneFilter {
    rules: Arc<Rules>,
    /// Newer rules, set by the main thread.
    updates: Arc<Mailbox<Arc<Rules>>>,
    /// True until the rules are replaced: the device keeps those that it was opened with.
    trusts_marks: bool,
}

impl Filter for LaneFilter {
    fn begin_burst(&mut self) {
        if let Some(rules) = self.updates.take() {
            self.rules = rules; // the old list stays in `LaneRules::lists`
            self.trusts_marks = false;
        }
    }

    fn trusts_marks(&self) -> bool {
        self.trusts_marks
    }

    #[inline]
    fn claims(&mut self, frame: &[u8]) -> bool {
        self.rules.matches(frame)
    }
}

#[cfg(test)]
mod tests {
    use fastlane_core::{PacketOwnership, Pool, PortId};
    use fastlane_steer::Rule;
    use fastlane_table::SharedMemory;

    use super::*;

    fn of(ethertype: u16) -> Rules {
        Rules::new(vec![Rule { ethertype: Some(ethertype), ..Rule::default() }]).unwrap()
    }

    #[test]
    fn the_marks_of_a_device_hold_until_the_rules_are_replaced() {
        let memory = SharedMemory::create("marks", 4 * 2048).unwrap();
        let mut pool = Pool::new(memory, 2048, 0).unwrap();
        let mut packets = [pool.alloc_packet(60, PortId(0)).unwrap()];
        packets[0].bytes_mut().fill(0);
        let mut rules = LaneRules::new(&of(0x0806));
        let mut lane = rules.filter().unwrap();
        assert_eq!(lane.claim_burst(&mut packets), 0);
        packets[0].set_arrival_flags(u16::MAX);
        assert_eq!(lane.claim_burst(&mut packets), 1, "the device has matched it");
        rules.replace(&of(0x0800));
        assert_eq!(lane.claim_burst(&mut packets), 0, "the device has the former rules");
        assert!(!packets[0].is_claimed());
        pool.release(&mut packets[0]);
    }

    #[test]
    fn a_lane_uses_the_newest_rules_and_frees_nothing() {
        let mut frame = [0_u8; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        let mut rules = LaneRules::new(&of(0x0806));
        let mut lane = rules.filter().unwrap();
        lane.begin_burst();
        assert!(lane.claims(&frame));
        rules.replace(&of(0x0800));
        rules.replace(&of(0x86dd));
        rules.sweep();
        assert_eq!(rules.lists.len(), 2, "the lane still uses the first list, no lane the second");
        assert!(lane.claims(&frame), "all frames of a burst meet the same list");
        lane.begin_burst();
        assert!(!lane.claims(&frame));
        rules.sweep();
        assert_eq!(rules.lists.len(), 1);
        rules.replace(&Rules::default());
        lane.begin_burst();
        assert!(lane.claims(&frame), "without rules every frame is claimed");
    }
}
