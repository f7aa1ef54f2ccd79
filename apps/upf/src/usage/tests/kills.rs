//! Kills before each table operation; a successor continues.

use proptest::prelude::*;

use super::arithmetic::{total, urr};
use super::testbed::Testbed;
use crate::session::UrrUpdate;
use crate::session::{ReportingTriggers, Session, UsageReportTrigger};
use crate::tests::stop_after;
use crate::usage::{Meter, update};

#[derive(Clone, Copy, Debug)]
enum Step {
    Packet {
        session: u32,
        is_up: bool,
        octets: u16,
    },
    Wait(u16),
    Tick,
    /// Requests arrive at the control plane; responses arrive or get lost.
    Deliver {
        is_answered: bool,
    },
    /// Requests get lost.
    Lose,
    Query(u32),
    Renew(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 1..4u32;
    prop_oneof![
        6 => (session(), any::<bool>(), 1..1500u16)
            .prop_map(|(session, is_up, octets)| Step::Packet { session, is_up, octets }),
        2 => (1..4000u16).prop_map(Step::Wait),
        5 => Just(Step::Tick),
        3 => any::<bool>().prop_map(|is_answered| Step::Deliver { is_answered }),
        1 => Just(Step::Lose),
        1 => session().prop_map(Step::Query),
        1 => session().prop_map(Step::Renew),
    ]
}

fn everything(session: &mut Session) {
    let triggers = [
        ReportingTriggers::VOLTH,
        ReportingTriggers::VOLQU,
        ReportingTriggers::PERIO,
        ReportingTriggers::TIMTH,
        ReportingTriggers::START,
        ReportingTriggers::STOPT,
    ];
    let mut first = urr(1, &triggers);
    first.volume_threshold = total(2000);
    first.quota.volume = total(20_000);
    first.period_s = Some(7);
    first.time_threshold_s = Some(4);
    first.inactivity_s = Some(2);
    let mut second = urr(2, &[ReportingTriggers::LIUSA]);
    second.linked = vec![1];
    session.urrs = vec![first, second];
    session.pdrs.iter_mut().for_each(|pdr| pdr.urrs = vec![1, 2]);
    session.inactivity_s = Some(5);
}

/// Runs a step and kills the process after `left` table operations.
fn killed(world: &mut Testbed, left: u32, what: impl FnOnce(&mut Testbed)) {
    if stop_after(left, || what(world)).is_none() {
        world.restart();
    }
}

fn run(world: &mut Testbed, step: Step, left: u32) {
    match step {
        Step::Packet { session, is_up, octets } => {
            world.packet(session, is_up, octets.into());
        }
        Step::Wait(milliseconds) => world.wait(milliseconds.into()),
        Step::Tick => killed(world, left, Testbed::tick),
        Step::Deliver { is_answered } => {
            for datagram in world.sent() {
                if is_answered {
                    killed(world, left, |world| {
                        world.exchange(&datagram, fastlane_pfcp::Cause::REQUEST_ACCEPTED, |_| ());
                    });
                } else {
                    world.smf.receive(&datagram);
                }
            }
        }
        Step::Lose => drop(world.sent()),
        // The response is committed by the store and is not interrupted here.
        Step::Query(session) => world.query(session, UsageReportTrigger::IMMER),
        Step::Renew(session) => world.modify(session, |session, published, now| {
            let meter = Meter::read(published, &session.urrs[0], session.version);
            update(&mut session.urrs[0], &meter, now, |_| UrrUpdate {
                volume_quota: true,
                ..UrrUpdate::default()
            });
        }),
    }
}

fn check(world: &mut Testbed) {
    world.restart();
    for _ in 0..3 {
        world.wait(40_000);
        world.settle();
    }
    for session in 1..4 {
        world.query(session, UsageReportTrigger::TERMR);
    }
    world.settle();
    for id in 1..4 {
        let session = world.session(id);
        assert!(session.reporting.unacknowledged.is_empty());
        for urr in &session.urrs {
            let [up, _, down, _] = world.counted(urr.progress.line);
            let (octets, reports) = world.smf.sum(session.cp_fseid.seid, urr.id);
            assert_eq!(octets, [up, down], "session {id}, URR {}", urr.id);
            assert_eq!(reports, urr.progress.sequence);
        }
    }
}

/// Returns the number of cases; attaching to tables takes most of the time.
fn cases() -> u32 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 2000 } else { 64 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn case_81_sums_are_exact_whenever_it_is_killed(
        steps in prop::collection::vec((step(), 0..12u32), 1..120),
    ) {
        let mut world = Testbed::new();
        (1..4).for_each(|session| world.establish(session, everything));
        for (step, left) in steps {
            run(&mut world, step, left);
        }
        check(&mut world);
    }
}

#[test]
fn case_81_killed_at_every_operation_in_turn() {
    let script = [
        Step::Packet { session: 1, is_up: true, octets: 1400 },
        Step::Tick,
        Step::Deliver { is_answered: true },
        Step::Packet { session: 1, is_up: false, octets: 1400 },
        Step::Tick,
        Step::Deliver { is_answered: false },
        Step::Wait(3100),
        Step::Tick,
        Step::Deliver { is_answered: true },
        Step::Packet { session: 1, is_up: true, octets: 1400 },
        Step::Wait(4000),
        Step::Tick,
        Step::Lose,
        Step::Wait(3100),
        Step::Tick,
        Step::Deliver { is_answered: true },
    ];
    let has_operations =
        |it: &usize| matches!(script[*it], Step::Tick | Step::Deliver { is_answered: true });
    for victim in (0..script.len()).filter(has_operations) {
        for left in 0..8 {
            let mut world = Testbed::new();
            (1..4).for_each(|session| world.establish(session, everything));
            for (place, step) in script.into_iter().enumerate() {
                run(&mut world, step, if place == victim { left } else { u32::MAX });
            }
            check(&mut world);
        }
    }
}
