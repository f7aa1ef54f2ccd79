//! Generation of the nftables rules by which the flows were judged.

/// Knowledge of which rules have judged the flows. Linux numbers the rule sets of a network
/// namespace: each transaction has a new generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct JudgedRules {
    /// False if nothing is judged again.
    is_followed: bool,
    /// Generation that was learned last, `None` before the first.
    in_force: Option<u32>,
    /// True if another one was learned since [`take_change`](Self::take_change).
    has_changed: bool,
    /// Generation of the rules, `None` if it is unknown.
    judged: Option<u32>,
    must_rejudge: bool,
}

impl JudgedRules {
    /// Creates the knowledge from what a predecessor has [published](Self::published).
    pub(super) fn new(is_followed: bool, published: u64) -> Self {
        let judged = published.checked_sub(1).and_then(|generation| generation.try_into().ok());
        Self { is_followed, in_force: None, has_changed: false, judged, must_rejudge: false }
    }

    /// Returns the knowledge for a successor; 0 if there is none.
    pub(super) fn published(&self) -> u64 {
        let judged = self.judged.filter(|_| self.is_followed);
        judged.map_or(0, |generation| u64::from(generation) + 1)
    }

    /// Returns true if other rules than those in force have judged the flows, or may have.
    pub(super) fn must_rejudge(&self) -> bool {
        self.must_rejudge
    }

    /// Learns the generation that is in force.
    pub(super) fn learn(&mut self, in_force: u32) {
        self.must_rejudge |= self.is_followed && self.judged != Some(in_force);
        self.has_changed |= self.in_force.replace(in_force) != Some(in_force);
    }

    /// Returns true if the rules have changed since the last call, or were learned first.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Notes that the rules of a generation judge all flows from now on.
    pub(super) fn rejudged(&mut self, generation: u32) {
        self.judged = Some(generation);
        self.must_rejudge = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_judged_again_after_other_or_unknown_rules() {
        let mut rules = JudgedRules::new(true, 0);
        rules.learn(7);
        assert!(rules.must_rejudge(), "unknown");
        assert_eq!(rules.published(), 0, "until they are judged");
        rules.rejudged(7);
        rules.learn(7);
        assert!(!rules.must_rejudge());
        let mut successor = JudgedRules::new(true, rules.published());
        successor.learn(7);
        assert!(!successor.must_rejudge());
        successor.learn(8);
        assert!(successor.must_rejudge());
        assert_eq!(successor.published(), rules.published(), "for a successor of it");
    }

    #[test]
    fn rules_that_are_not_followed_judge_nothing() {
        let mut rules = JudgedRules::new(false, 5);
        rules.learn(9);
        assert!(!rules.must_rejudge());
        assert_eq!(rules.published(), 0);
        assert!(rules.take_change() && !rules.take_change());
        rules.learn(9);
        assert!(!rules.take_change());
        rules.learn(10);
        assert!(rules.take_change());
    }
}
