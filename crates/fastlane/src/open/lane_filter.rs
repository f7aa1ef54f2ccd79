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
        Some(Box::new(LaneFilter { rules, updates }))
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
}

impl Filter for LaneFilter {
    fn begin_burst(&mut self) {
        if let Some(rules) = self.updates.take() {
            self.rules = rules; // the old list stays in `LaneRules::lists`
        }
    }

    #[inline]
    fn claims(&mut self, frame: &[u8]) -> bool {
        self.rules.matches(frame)
    }
}

#[cfg(test)]
mod tests {
    use fastlane_steer::Rule;

    use super::*;

    #[test]
    fn a_lane_uses_the_newest_rules_and_frees_nothing() {
        let of = |ethertype| {
            Rules::new(vec![Rule { ethertype: Some(ethertype), ..Rule::default() }]).unwrap()
        };
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
