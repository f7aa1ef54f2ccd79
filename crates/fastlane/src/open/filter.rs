//! Steering by the reference: where neither Linux nor eBPF follows the rules, the lane does.

use std::sync::Arc;

use fastlane_core::{Filter, Mailbox};
use fastlane_steer::Rules;

/// The rules of a port that its lanes follow.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Those in force, and those that lanes may still hold, so that no lane frees memory.
    lists: Vec<Arc<Rules>>,
    lanes: Vec<Arc<Mailbox<Arc<Rules>>>>,
}

impl Followed {
    pub(super) fn new(rules: &Rules) -> Self {
        Self { lists: vec![Arc::new(rules.clone())], lanes: vec![] }
    }

    /// The filter of one more lane.
    pub(super) fn filter(&mut self) -> Option<Box<dyn Filter>> {
        let rules = Arc::clone(self.lists.last()?);
        let news = Arc::<Mailbox<_>>::default();
        self.lanes.push(Arc::clone(&news));
        Some(Box::new(Software { rules, news }))
    }

    /// Lets the lanes follow others, from their next frame on.
    pub(super) fn replace(&mut self, rules: &Rules) {
        let rules = Arc::new(rules.clone());
        for lane in &self.lanes {
            lane.put(Arc::clone(&rules));
        }
        self.lists.push(rules);
    }

    /// Frees what no lane holds any more.
    pub(super) fn sweep(&mut self) {
        let last = self.lists.len().saturating_sub(1);
        let mut place = 0;
        self.lists.retain(|rules| {
            place += 1;
            place > last || Arc::strong_count(rules) > 1
        });
    }
}

/// The lane's side.
struct Software {
    rules: Arc<Rules>,
    news: Arc<Mailbox<Arc<Rules>>>,
}

impl Filter for Software {
    #[inline]
    fn claims(&mut self, frame: &[u8]) -> bool {
        if let Some(rules) = self.news.take() {
            self.rules = rules; // the old ones are in the list yet
        }
        self.rules.matches(frame)
    }
}

#[cfg(test)]
mod tests {
    use fastlane_steer::Rule;

    use super::*;

    #[test]
    fn a_lane_follows_the_newest_and_frees_nothing() {
        let of = |ethertype| {
            Rules::new(vec![Rule { ethertype: Some(ethertype), ..Rule::default() }]).unwrap()
        };
        let mut frame = [0_u8; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        let mut followed = Followed::new(&of(0x0806));
        let mut lane = followed.filter().unwrap();
        assert!(lane.claims(&frame));
        followed.replace(&of(0x0800));
        followed.replace(&of(0x86dd));
        followed.sweep();
        assert_eq!(followed.lists.len(), 2, "the lane has the first yet, nobody the second");
        assert!(!lane.claims(&frame));
        followed.sweep();
        assert_eq!(followed.lists.len(), 1);
        followed.replace(&Rules::default());
        assert!(lane.claims(&frame), "no rules: everything is fast");
    }
}
