use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::config::nat_plan::NatPlan;
use crate::rules::layout::TeidLayout;
use crate::rules::layout::session_rules::flag;
use crate::rules::layout::slices::SliceGroup;
use crate::session::{FlowDescription, Network, Source};
use crate::store::{any_session, typical};

fn context() -> Context {
    let rule = |precedence, flow, drop| PredefinedRule {
        precedence,
        flows: vec![FlowDescription::parse(flow).unwrap()],
        drop,
        qfi: Some(3),
    };
    Context {
        shape: TeidLayout::of(256),
        network: Network::of_data_networks(&[0, 1, 2]),
        predefined: BTreeMap::from([
            ("web".to_owned(), rule(9, "permit out 6 from any 80 to assigned", false)),
            ("none".to_owned(), rule(8, "permit out ip from 192.0.2.0/24 to assigned", true)),
        ]),
        held_packets: 64,
        held_ms: 1000,
        nat: NatPlan::default(),
    }
}

proptest! {
    #[test]
    fn any_session_is_compiled_or_refused(session in any_session(), again in 0..4_u16) {
        let first = compile(&session, &context());
        // Made consistent, most sessions are valid.
        let mut whole = session;
        whole.pdrs.iter_mut().for_each(|pdr| {
            pdr.far = whole.fars.first().map_or(0, |far| far.id);
            pdr.qers = whole.qers.iter().map(|qer| qer.id).collect();
            pdr.urrs = whole.urrs.iter().map(|urr| urr.id).collect();
            pdr.predefined.clear();
        });
        for step in 0..again * 30 {
            let pdr = whole.pdrs.first().cloned();
            whole.pdrs.extend(pdr.map(|pdr| crate::session::Pdr { id: step, ..pdr }));
        }
        let second = compile(&whole, &context());
        for compiled in first.into_iter().chain(second) {
            prop_assert_eq!(compiled.rules.has_blocks(), !compiled.blocks.is_empty());
            let rules: usize = compiled.blocks.iter().map(|block| block.rules().len()).sum();
            prop_assert!(compiled.blocks.len() <= rules);
        }
    }
}

#[test]
fn an_ordinary_session_needs_no_block() {
    let mut session = typical(3);
    session.urrs[0].progress.line = 3;
    session.qers[0].line = 3;
    let compiled = compile(&session, &context()).unwrap();
    assert!(compiled.blocks.is_empty() && compiled.users.len() == 1);
    let (up, down) = (compiled.rules.uplink, compiled.rules.downlink);
    let both = flag::PRESENT | flag::METER | flag::COUNT;
    assert_eq!(up.common.flags & both, both);
    assert_eq!(down.common.flags & both, both);
    assert_eq!(up.common.flags & flag::UE4, flag::UE4);
}

#[test]
fn packets_of_a_much_later_version_are_not_those_that_were_given_up() {
    let mut session = typical(3);
    session.urrs[0].progress.line = 3;
    session.qers[0].line = 3;
    for (later, is_given_up) in [(1, true), (1 << 20, true), (3 << 30, false), (9 << 32, false)] {
        (session.discarded, session.version) = (500, 500 + later);
        let rules = compile(&session, &context()).unwrap().rules;
        assert_eq!(rules.gives_up(499), is_given_up, "{later} versions later");
        assert!(!rules.gives_up(session.version as u32), "{later} versions later");
    }
}

#[test]
fn predefined_rules_are_tried_before_the_pdr_that_activates_them() {
    let mut session = typical(3);
    let down = session.pdrs.iter_mut().find(|pdr| pdr.source == Source::Core).unwrap();
    down.predefined = vec!["web".to_owned(), "none".to_owned()];
    let pdr = down.id;
    let compiled = compile(&session, &context()).unwrap();
    let rules: Vec<_> = compiled.blocks.iter().flat_map(|block| block.rules()).collect();
    let found: Vec<(u16, u8, bool)> = rules
        .iter()
        .map(|rule| (rule.pdr, rule.first_filter, rule.flags & flag::DROP != 0))
        .filter(|(id, ..)| *id == pdr)
        .collect();
    assert_eq!(found, [(pdr, 1, true), (pdr, 2, false), (pdr, 3, false)]);
    session.pdrs[0].predefined = vec!["other".to_owned()];
    let error = compile(&session, &context()).unwrap_err();
    assert_eq!(error, CompileError::NoPredefined { pdr: session.pdrs[0].id });
}

#[test]
fn what_is_not_there_is_named() {
    let mut session = typical(3);
    session.fars.remove(0);
    assert!(matches!(compile(&session, &context()), Err(CompileError::NoFar { .. })));
    let mut session = typical(3);
    session.pdrs[0].urrs = vec![77];
    let error = compile(&session, &context()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "PDR 1 refers to URR 77, which does not exist; create it with the PDR"
    );
}

#[test]
fn groups_use_bits_that_no_flag_of_a_direction_has() {
    // These are flags of rules in blocks only.
    let of_blocks = flag::UPLINK | flag::DUPLICATE | flag::CHECKED | flag::UNLIMITED;
    let below = (1 << flag::QFI) - 1;
    let others = (0..24).map(|bit| 1 << bit).filter(|bit| bit & SliceGroup::FLAGS == 0);
    assert_eq!(others.fold(0, |all, bit| all | bit) | SliceGroup::FLAGS, below);
    assert_eq!(SliceGroup::FLAGS & of_blocks, of_blocks);
    assert_eq!(SliceGroup::FLAGS & flag::STOPPED, 0);
    assert_eq!(SliceGroup::of_flags(flag::STOPPED), SliceGroup::NONE);
}
