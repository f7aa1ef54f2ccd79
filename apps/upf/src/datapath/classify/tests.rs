mod due_charge;
mod filters;
mod fixture;
mod random;
mod reference;
mod shared_meters;

use self::fixture::RuleFixture;
use self::random::Random;
use self::reference::{Naive, PlainAction};
use super::*;
use crate::rules::layout::counter_slots::event;
use crate::rules::layout::session_rules::Block;
use crate::session::{Gate, Quota, Rate, ReportingTriggers, Volume};

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
        let fixture = RuleFixture::of(session.clone());
        simple += usize::from(!fixture.rules.has_blocks());
        complex += usize::from(fixture.rules.has_blocks());
        long += usize::from(fixture.blocks.len() > 1);
        let mut naive = Naive::new(&session);
        let mut now = 1_000_000_000_000;
        for step in 0..60 {
            now += random.below(3_000_000);
            let fields = random.fields();
            if !fixture.finds(&fields) {
                continue;
            }
            let decision = fixture.decide(&fields, now);
            let (expected, pdr) = naive.decide(&fields, now);
            let found = PlainAction::of(&decision);
            assert_eq!(
                (found, decision.pdr * u16::from(pdr != 0)),
                (expected, pdr),
                "seed {seed}, step {step}: {fields:?} of {session:#?}"
            );
            forwarded += usize::from(matches!(decision.action, Action::Forward(_)));
        }
        naive.compare(&fixture, seed);
    }
    let sessions = sessions() as usize;
    assert!(simple > sessions / 20 && complex > sessions / 4, "{simple}, {complex}");
    assert!(forwarded > sessions && long > 10, "{forwarded}, {long}");
}

fn limited(quota: u64, threshold: Option<u64>) -> RuleFixture {
    let mut session = fixture::typical();
    let total = |value| Some(Volume { total: Some(value), ..Volume::default() });
    session.urrs[0].quota = Quota { volume: total(quota), ..Quota::default() };
    session.urrs[0].volume_threshold = threshold.and_then(total);
    session.qers[0].maximum = None;
    RuleFixture::of(session)
}

#[test]
fn a_quota_is_not_exceeded_by_one_octet_and_nothing_passes_after_it() {
    for blocks in [false, true] {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let quota = 1 + random.below(20_000);
            let mut fixture = limited(quota, None);
            if blocks {
                fixture = fixture.in_blocks();
            }
            assert_eq!(fixture.rules.has_blocks(), blocks);
            let (mut sum, mut is_over) = (0, false);
            for now in 0..200 {
                let mut fields = if random.flip() { fixture.uplink() } else { fixture.downlink() };
                fields.length = 20 + random.below(1480) as u32;
                let decision = fixture.decide(&fields, now);
                match decision.action {
                    Action::Forward(_) => sum += u64::from(fields.length),
                    action => assert_eq!(action, Action::Drop(DropReason::QuotaExhausted)),
                }
                let raised = decision.events & event::QUOTA != 0;
                let is_last = sum == quota || !matches!(decision.action, Action::Forward(_));
                assert_eq!(raised, is_last && !is_over, "once, at the end");
                assert!(!is_over || !matches!(decision.action, Action::Forward(_)));
                is_over |= is_last;
                assert!(sum <= quota);
            }
            let counted = fixture.counters(7);
            assert_eq!(counted[0] + counted[2], sum);
            assert!(is_over);
        }
    }
}

#[test]
fn a_threshold_is_an_event_once_and_packets_go_on() {
    let fixture = limited(1 << 40, Some(1000));
    let mut fields = fixture.uplink();
    fields.length = 400;
    let events: Vec<u64> = (0..6).map(|now| fixture.decide(&fields, now).events).collect();
    assert_eq!(events, [0, 0, event::THRESHOLD, 0, 0, 0]);
    assert_eq!(fixture.counters(7), [2400, 6, 0, 0]);
    // A new version raises it again.
    let mut session = fixture.session.clone();
    session.version += 1;
    let fixture = fixture.become_of(session);
    assert_eq!(fixture.decide(&fields, 7).events, event::THRESHOLD);
}

/// The list of charges checks several thresholds by the least of them. The events are nevertheless
/// those of each.
#[test]
fn thresholds_of_blocks_are_events_at_the_packet_that_reaches_them() {
    let mut raised = 0;
    for seed in 0..sessions() / 4 {
        let mut random = Random::new(seed);
        let mut session = fixture::typical();
        let limit = |random: &mut Random| random.flip().then(|| 100 * (1 + random.below(200)));
        let volume = Volume {
            total: limit(&mut random),
            uplink: limit(&mut random),
            downlink: limit(&mut random),
        };
        session.urrs[0].volume_threshold = Some(volume);
        session.qers[0].maximum =
            random.flip().then_some(Rate { uplink: 1 << 30, downlink: 1 << 30 });
        let fixture = RuleFixture::of(session).in_blocks();
        assert!(fixture.rules.has_blocks());
        let (mut sums, mut is_reached) = ([0_u64; 2], false);
        for now in 0..60 {
            let is_up = random.flip();
            let mut fields = if is_up { fixture.uplink() } else { fixture.downlink() };
            // Multiples of 100, as the thresholds: many are reached exactly.
            fields.length = 100 * (1 + random.below(14)) as u32;
            let decision = fixture.decide(&fields, now);
            assert!(matches!(decision.action, Action::Forward(_)));
            sums[usize::from(!is_up)] += u64::from(fields.length);
            let [up, down] = sums;
            let reached = [(volume.total, up + down), (volume.uplink, up), (volume.downlink, down)];
            let is_over = reached.iter().any(|(limit, sum)| limit.is_some_and(|it| *sum >= it));
            let expected = if is_over && !is_reached { event::THRESHOLD } else { 0 };
            assert_eq!(
                decision.events, expected,
                "seed {seed}, packet {now}: {volume:?}, {sums:?}"
            );
            is_reached |= is_over;
        }
        assert_eq!(fixture.counters(7).map(|it| it > 0), [true; 4]);
        assert_eq!([fixture.counters(7)[0], fixture.counters(7)[2]], sums);
        raised += u64::from(is_reached);
    }
    assert!(raised > sessions() / 16, "{raised}");
}

#[test]
fn events_are_raised_in_the_last_versions_before_they_wrap_too() {
    for version in [1, 0xFFFF_0000, 0xFFFF_0001, 0xFFFF_FFFF, 1 << 32] {
        let mut session = fixture::typical();
        session.version = version;
        session.urrs[0].triggers = ReportingTriggers::START;
        for fixture in [RuleFixture::of(session.clone()), RuleFixture::of(session).in_blocks()] {
            let events = fixture.decide(&fixture.uplink(), 1).events;
            assert_eq!(events, event::START, "version {version:#x}");
        }
    }
}

#[test]
fn a_deadline_stops_packets_and_the_first_packet_is_an_event() {
    let mut session = fixture::typical();
    session.urrs[0].quota.validity_s = Some(5);
    session.urrs[0].progress.granted_at = 1_000_000_000;
    session.urrs[0].triggers = ReportingTriggers::START;
    for fixture in [RuleFixture::of(session.clone()), RuleFixture::of(session).in_blocks()] {
        let fields = fixture.uplink();
        let first = fixture.decide(&fields, 5_999_999_999);
        assert!(matches!(first.action, Action::Forward(_)) && first.events == event::START);
        let late = fixture.decide(&fields, 6_000_000_000);
        assert_eq!(
            (late.action, late.events),
            (Action::Drop(DropReason::QuotaExhausted), event::QUOTA)
        );
        assert_eq!(fixture.decide(&fields, 6_000_000_001).events, 0);
    }
}

#[test]
fn all_meters_must_conform_before_any_is_charged() {
    let mut session = fixture::typical();
    let mut second = session.qers[0];
    (second.id, second.line) = (2, 200);
    session.qers[0].maximum = Some(Rate { uplink: 8000, downlink: 8000 });
    second.maximum = Some(Rate { uplink: 80, downlink: 8000 });
    session.qers.push(second);
    session.pdrs.iter_mut().for_each(|pdr| pdr.qers.push(2));
    let fixture = RuleFixture::of(session);
    let mut fields = fixture.uplink();
    fields.length = 1000;
    let start = 100_000_000_000;
    let passed = (0..1000_u64)
        .filter(|step| {
            let now = start + step * 10_000_000;
            matches!(fixture.decide(&fields, now).action, Action::Forward(_))
        })
        .count();
    // 80 kbit/s are 10 packets of 1000 octets per second, and the fixture one or two more.
    assert!((100..=103).contains(&passed), "{passed}");
    let [session, flow] = [7, 200].map(|line| fixture.words(line)[4]);
    assert!(session < flow, "the faster meter was charged for what did not pass: {session} {flow}");
    assert_eq!(fixture.counters(7)[1], passed as u64);
}

#[test]
fn gates_are_closed_each_for_itself() {
    let mut session = fixture::typical();
    session.qers[0].uplink = Gate::Closed;
    let fixture = RuleFixture::of(session);
    assert_eq!(fixture.decide(&fixture.uplink(), 1).action, Action::Drop(DropReason::GateClosed));
    assert!(matches!(fixture.decide(&fixture.downlink(), 1).action, Action::Forward(_)));
    assert_eq!(fixture.counters(7)[..2], [0, 0]);
}

#[test]
fn the_source_must_be_the_users() {
    let fixture = RuleFixture::of(fixture::typical());
    let mut fields = fixture.uplink();
    fields.source += 1 << 96;
    for fixture in [&fixture, &RuleFixture::of(fixture::typical()).in_blocks()] {
        let decision = fixture.decide(&fields, 1);
        assert_eq!(decision.action, Action::Drop(DropReason::ForeignSource));
    }
    let mut mapped = fixture.uplink();
    (mapped.family, mapped.source) = (6, 0xFFFF << 32 | mapped.source >> 96);
    assert_eq!(fixture.decide(&mapped, 1).action, Action::Drop(DropReason::ForeignSource));
}

#[test]
fn what_is_held_is_counted_when_it_passes() {
    let mut session = fixture::typical();
    session.fars[1].actions = fixture::actions("buffer notify");
    session.version = 9;
    let fixture = RuleFixture::of(session.clone());
    let fields = fixture.downlink();
    let held = fixture.decide(&fields, 1);
    assert_eq!(held.action, Action::Hold(HoldLimits { packets: 64, ms: 60_000 }));
    assert_eq!((held.events, held.pdr), (event::HELD, 2));
    assert_eq!(fixture.decide(&fields, 2).events, 0);
    assert_eq!(fixture.counters(7), [0; 4]);
    session.fars[1].actions = fixture::actions("forward");
    session.version = 10;
    let fixture = fixture.become_of(session);
    assert!(matches!(fixture.decide(&fields, 3).action, Action::Forward(_)));
    assert_eq!(fixture.counters(7), [0, 0, u64::from(fields.length), 1]);
}

#[test]
fn an_end_marker_is_due_once_whatever_is_modified_after() {
    let mut session = fixture::typical();
    let to = session.fars[1].forwarding.as_ref().unwrap().outer.unwrap();
    session.version = 0x1_0000_0007;
    let marker = crate::session::EndMarker { to, instance: None, version: session.version, at: 0 };
    session.fars[1].end_markers = vec![marker];
    let fixture = RuleFixture::of(session.clone());
    let due = marker_due(&fixture.rules, session.id, &fixture.state).unwrap();
    assert_eq!((due.teid, due.version), (to.teid.unwrap(), 7));
    marker_sent(due, session.id, &fixture.state);
    assert_eq!(marker_due(&fixture.rules, session.id, &fixture.state), None);
    fixture.decide(&fixture.uplink(), 1);
    session.version += 1;
    let mut fixture = fixture.become_of(session.clone());
    assert_eq!(marker_due(&fixture.rules, session.id, &fixture.state), None);
    session.version += 1;
    let marker = crate::session::EndMarker { version: session.version, ..marker };
    session.fars[1].end_markers = vec![marker];
    fixture = fixture.become_of(session.clone());
    assert!(marker_due(&fixture.rules, session.id, &fixture.state).is_some());
}

#[test]
fn blocks_of_another_version_or_session_and_damaged_ones_have_no_rules() {
    let fixture = RuleFixture::of(fixture::typical()).in_blocks();
    let fields = fixture.uplink();
    let passes = |blocks: &[Block]| {
        let decision = fixture.classifier(blocks, 1).decide(&fields);
        matches!(decision.action, Action::Forward(_))
    };
    assert!(passes(&fixture.blocks));
    for damage in [0_usize, 4, 8, 12] {
        let mut blocks = fixture.blocks.clone();
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut blocks[0]);
        bytes[damage] ^= 1;
        let expected = damage == 0; // the next one is not looked at
        assert_eq!(passes(&blocks), expected, "{damage}");
    }
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let mut blocks = fixture.blocks.clone();
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut blocks[0]);
        for _ in 0..=random.below(4) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = random.below(256) as u8;
        }
        let _ = passes(&blocks);
    }
    assert!(!passes(&[]));
}
