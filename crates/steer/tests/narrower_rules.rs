//! Containment of rules: a list within another one claims no other frames.

mod support;

use std::cell::Cell;

use fastlane_steer::{Rule, Rules};
use proptest::{collection::vec, prelude::*, test_runner::Config};
use support::{
    frames::{self, Frame},
    random_rules,
};

/// Returns the list without a condition of each rule, chosen by `choice`: it claims at least the
/// same frames. `None` if a rule has no other condition.
fn widened(rules: &Rules, choice: u8) -> Option<Rules> {
    let widened = |rule: &Rule| {
        let mut rule = rule.clone();
        match choice % 7 {
            0 => rule.ethertype = None,
            1 => rule.protocol = None,
            2 => rule.source = None,
            3 => rule.destination = None,
            4 if !rule.gtp_u => rule.udp_port = None,
            5 => rule.gtp_u = false,
            _ => rule.fragments = true,
        }
        rule
    };
    Rules::new(rules.as_slice().iter().map(widened).collect()).ok()
}

proptest! {
    #![proptest_config(Config { cases: 800, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_list_within_another_one_claims_no_other_frames(
        rules in random_rules::rules(),
        others in (random_rules::rules(), any::<u8>()),
        frames in vec(frames::frame(14..=200), 32),
    ) {
        thread_local!(static WITHIN: Cell<(u32, u32)> = const { Cell::new((0, 0)) });
        for allowed in [Some(others.0.clone()), widened(&rules, others.1)].into_iter().flatten() {
            let is_within = rules.is_within(&allowed);
            for Frame(frame) in frames.iter().filter(|_| is_within) {
                prop_assert!(
                    !rules.matches(frame) || allowed.matches(frame),
                    "{rules:?} is not within {allowed:?}"
                );
            }
            let (yes, no) = WITHIN.get();
            WITHIN.set((yes + u32::from(is_within), no + u32::from(!is_within)));
        }
        let (yes, no) = WITHIN.get();
        // Both results occur, so the property is not empty.
        prop_assert!(yes + no < 1200 || (yes > 200 && no > 200), "{yes} within, {no} not");
    }
}

#[test]
fn everything_is_within_everything_only() {
    let arp = Rules::new(vec![Rule { ethertype: Some(0x0806), ..Rule::default() }]).unwrap();
    let all = Rules::default();
    assert!(all.is_within(&all) && arp.is_within(&all) && arp.is_within(&arp));
    assert!(!all.is_within(&arp));
    assert_eq!((all.first_outside(&arp), arp.first_outside(&arp)), (Some(0), None));
}
