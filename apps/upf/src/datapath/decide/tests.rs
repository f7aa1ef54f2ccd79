mod random;
mod reference;
mod world;

use self::random::Random;
use self::reference::{Fated, Naive};
use self::world::World;
use super::*;
use crate::rules::layout::state::event;
use crate::session::{Gate, Quota, Rate, ReportTriggers, Volume};

/// Returns the number of random sessions.
fn sessions() -> u64 {
    if std::env::var_os("FASTLANE_SOAK").is_some() { 200_000 } else { 3000 }
}

/// Compares the compiled rules with the reference implementation: decisions and counters.
#[test]
fn compiled_rules_decide_as_the_session_is_read() {
    let (mut simple, mut forwarded, mut complex, mut long) = (0, 0, 0, 0);
    for seed in 0..sessions() {
        let mut random = Random::new(seed);
        let session = random.session();
        let world = World::of(session.clone());
        simple += usize::from(!world.rules.has_blocks());
        complex += usize::from(world.rules.has_blocks());
        long += usize::from(world.blocks.len() > 1);
        let mut naive = Naive::new(&session);
        let mut now = 1_000_000_000_000;
        for step in 0..60 {
            now += random.below(3_000_000);
            let subject = random.subject();
            if !world.finds(&subject) {
                continue;
            }
            let decision = world.decide(&subject, now);
            let (expected, pdr) = naive.decide(&subject, now);
            let found = Fated::of(&decision);
            assert_eq!(
                (found, decision.pdr * u16::from(pdr != 0)),
                (expected, pdr),
                "seed {seed}, step {step}: {subject:?} of {session:#?}"
            );
            forwarded += usize::from(matches!(decision.fate, Fate::Forward(_)));
        }
        naive.compare(&world, seed);
    }
    let sessions = sessions() as usize;
    assert!(simple > sessions / 20 && complex > sessions / 4, "{simple}, {complex}");
    assert!(forwarded > sessions && long > 10, "{forwarded}, {long}");
}

fn limited(quota: u64, threshold: Option<u64>) -> World {
    let mut session = world::typical();
    let total = |value| Some(Volume { total: Some(value), ..Volume::default() });
    session.urrs[0].quota = Quota { volume: total(quota), ..Quota::default() };
    session.urrs[0].volume_threshold = threshold.and_then(total);
    session.qers[0].maximum = None;
    World::of(session)
}

#[test]
fn a_quota_is_not_exceeded_by_one_octet_and_nothing_passes_after_it() {
    for blocks in [false, true] {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let quota = 1 + random.below(20_000);
            let mut world = limited(quota, None);
            if blocks {
                world = world.in_blocks();
            }
            assert_eq!(world.rules.has_blocks(), blocks);
            let (mut sum, mut is_over) = (0, false);
            for now in 0..200 {
                let mut subject = if random.flip() { world.uplink() } else { world.downlink() };
                subject.length = 20 + random.below(1480) as u32;
                let decision = world.decide(&subject, now);
                match decision.fate {
                    Fate::Forward(_) => sum += u64::from(subject.length),
                    fate => assert_eq!(fate, Fate::Drop(Cause::QuotaExhausted)),
                }
                let raised = decision.events & event::QUOTA != 0;
                let ends = sum == quota || !matches!(decision.fate, Fate::Forward(_));
                assert_eq!(raised, ends && !is_over, "once, at the end");
                assert!(!is_over || !matches!(decision.fate, Fate::Forward(_)));
                is_over |= ends;
                assert!(sum <= quota);
            }
            let counted = world.counters(7);
            assert_eq!(counted[0] + counted[2], sum);
            assert!(is_over);
        }
    }
}

#[test]
fn a_threshold_is_an_event_once_and_packets_go_on() {
    let world = limited(1 << 40, Some(1000));
    let mut subject = world.uplink();
    subject.length = 400;
    let events: Vec<u64> = (0..6).map(|now| world.decide(&subject, now).events).collect();
    assert_eq!(events, [0, 0, event::THRESHOLD, 0, 0, 0]);
    assert_eq!(world.counters(7), [2400, 6, 0, 0]);
    // A new version raises it again.
    let mut session = world.session.clone();
    session.version += 1;
    let world = world.become_of(session);
    assert_eq!(world.decide(&subject, 7).events, event::THRESHOLD);
}

#[test]
fn a_deadline_stops_packets_and_the_first_packet_is_an_event() {
    let mut session = world::typical();
    session.urrs[0].quota.validity_s = Some(5);
    session.urrs[0].progress.granted_at = 1_000_000_000;
    session.urrs[0].triggers = ReportTriggers::START;
    for world in [World::of(session.clone()), World::of(session).in_blocks()] {
        let subject = world.uplink();
        let first = world.decide(&subject, 5_999_999_999);
        assert!(matches!(first.fate, Fate::Forward(_)) && first.events == event::START);
        let late = world.decide(&subject, 6_000_000_000);
        assert_eq!((late.fate, late.events), (Fate::Drop(Cause::QuotaExhausted), event::QUOTA));
        assert_eq!(world.decide(&subject, 6_000_000_001).events, 0);
    }
}

#[test]
fn all_meters_must_conform_before_any_is_charged() {
    let mut session = world::typical();
    let mut second = session.qers[0];
    (second.id, second.line) = (2, 200);
    session.qers[0].maximum = Some(Rate { uplink: 8000, downlink: 8000 });
    second.maximum = Some(Rate { uplink: 80, downlink: 8000 });
    session.qers.push(second);
    session.pdrs.iter_mut().for_each(|pdr| pdr.qers.push(2));
    let world = World::of(session);
    let mut subject = world.uplink();
    subject.length = 1000;
    let start = 100_000_000_000;
    let passed = (0..1000_u64)
        .filter(|step| {
            let now = start + step * 10_000_000;
            matches!(world.decide(&subject, now).fate, Fate::Forward(_))
        })
        .count();
    // 80 kbit/s are 10 packets of 1000 octets per second, and the burst one or two more.
    assert!((100..=103).contains(&passed), "{passed}");
    let [session, flow] = [7, 200].map(|line| world.words(line)[4]);
    assert!(session < flow, "the faster meter was charged for what did not pass: {session} {flow}");
    assert_eq!(world.counters(7)[1], passed as u64);
}

#[test]
fn gates_are_closed_each_for_itself() {
    let mut session = world::typical();
    session.qers[0].uplink = Gate::Closed;
    let world = World::of(session);
    assert_eq!(world.decide(&world.uplink(), 1).fate, Fate::Drop(Cause::GateClosed));
    assert!(matches!(world.decide(&world.downlink(), 1).fate, Fate::Forward(_)));
    assert_eq!(world.counters(7)[..2], [0, 0]);
}

#[test]
fn the_source_must_be_the_users() {
    let world = World::of(world::typical());
    let mut subject = world.uplink();
    subject.source += 1 << 96;
    for world in [&world, &World::of(world::typical()).in_blocks()] {
        let decision = world.decide(&subject, 1);
        assert_eq!(decision.fate, Fate::Drop(Cause::ForeignSource));
    }
    let mut mapped = world.uplink();
    (mapped.family, mapped.source) = (6, 0xFFFF << 32 | mapped.source >> 96);
    assert_eq!(world.decide(&mapped, 1).fate, Fate::Drop(Cause::ForeignSource));
}

#[test]
fn what_is_held_is_counted_when_it_passes() {
    let mut session = world::typical();
    session.fars[1].actions = world::actions("buffer notify");
    session.version = 9;
    let world = World::of(session.clone());
    let subject = world.downlink();
    let held = world.decide(&subject, 1);
    assert_eq!(held.fate, Fate::Hold(Hold { packets: 64, ms: 60_000 }));
    assert_eq!((held.events, held.pdr), (event::HELD, 2));
    assert_eq!(world.decide(&subject, 2).events, 0);
    assert_eq!(world.counters(7), [0; 4]);
    session.fars[1].actions = world::actions("forward");
    session.version = 10;
    let world = world.become_of(session);
    assert!(matches!(world.decide(&subject, 3).fate, Fate::Forward(_)));
    assert_eq!(world.counters(7), [0, 0, u64::from(subject.length), 1]);
}

#[test]
fn an_end_marker_is_due_once_whatever_is_modified_after() {
    let mut session = world::typical();
    let to = session.fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    session.version = 0x1_0000_0007;
    let marker = crate::session::EndMarker { to, instance: None, version: session.version };
    session.fars[1].end_marker = Some(marker);
    let world = World::of(session.clone());
    let due = marker_due(&world.rules, session.id, &world.state).unwrap();
    assert_eq!((due.teid, due.version), (to.teid.unwrap(), 7));
    marker_sent(due, session.id, &world.state);
    assert_eq!(marker_due(&world.rules, session.id, &world.state), None);
    world.decide(&world.uplink(), 1);
    session.version += 1;
    let mut world = world.become_of(session.clone());
    assert_eq!(marker_due(&world.rules, session.id, &world.state), None);
    session.version += 1;
    let marker = crate::session::EndMarker { version: session.version, ..marker };
    session.fars[1].end_marker = Some(marker);
    world = world.become_of(session.clone());
    assert!(marker_due(&world.rules, session.id, &world.state).is_some());
}

#[test]
fn blocks_of_another_version_or_session_and_damaged_ones_have_no_rules() {
    let world = World::of(world::typical()).in_blocks();
    let subject = world.uplink();
    let passes = |blocks: &[Block]| {
        let decision = decide(&world.rules, &blocks, &subject, SessionId(7), &world.state, 1);
        matches!(decision.fate, Fate::Forward(_))
    };
    assert!(passes(&world.blocks));
    for damage in [0_usize, 4, 8] {
        let mut blocks = world.blocks.clone();
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut blocks[0]);
        bytes[damage] ^= 1;
        let expected = damage == 0; // the next one is not looked at
        assert_eq!(passes(&blocks), expected, "{damage}");
    }
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut blocks = world.blocks.clone();
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut blocks[0]);
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = random.below(256) as u8;
        }
        let _ = passes(&blocks);
    }
    assert!(!passes(&[]));
}
