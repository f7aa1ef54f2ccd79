//! QERs that several PDRs share: the session AMBR over flows with rates of their own.

use super::super::*;
use super::fixture::{self, RuleFixture};
use crate::session::{Filter, FlowDescription, Pdr, Qer, Rate, Session};

/// Number of flows, each with a PDR per direction.
const FLOWS: u16 = 8;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Returns a QER with a maximum bit rate in both directions.
fn rate(id: u32, line: u32, kilobits: u64) -> Qer {
    let maximum = Some(Rate { uplink: kilobits, downlink: kilobits });
    Qer { maximum, ..fixture::qer(id, line) }
}

/// Returns a session with flows by port, as free5GC and SD-Core establish it: QER 1 of the session
/// is in each PDR, besides one of the flow.
fn session(ambr: u64, of_flow: u64, filters: u16) -> Session {
    let mut session = fixture::typical();
    let [up, down] = [0, 1].map(|index| session.pdrs[index].clone());
    session.qers = vec![rate(1, 7, ambr)];
    session.pdrs.clear();
    for flow in 0..FLOWS {
        let qer = 2 + u32::from(flow);
        session.qers.push(rate(qer, 100 + qer, of_flow));
        for pdr in [&up, &down] {
            let port = |number: u16| Filter {
                flow: Some(FlowDescription {
                    remote_ports: vec![(1000 + 50 * flow + number, 1000 + 50 * flow + number)],
                    ..FlowDescription::default()
                }),
                ..Filter::default()
            };
            session.pdrs.push(Pdr {
                id: 2 * flow + pdr.id,
                precedence: 10 + u32::from(flow),
                filters: (0..filters).map(port).collect(),
                qers: vec![qer, 1],
                ..pdr.clone()
            });
        }
    }
    session
}

fn packet(fixture: &RuleFixture, flow: u16, direction: Direction) -> PacketFields {
    let port = 1000 + 50 * flow;
    let (fields, ports) = match direction {
        Direction::Uplink => (fixture.uplink(), Ports::Known(40_000, port)),
        Direction::Downlink => (fixture.downlink(), Ports::Known(port, 40_000)),
    };
    PacketFields { ports, length: 1000, ..fields }
}

/// Returns the kilobits per second that pass by flow, if each flow sends 1000 octets per ms.
fn passed(fixture: &RuleFixture, direction: Direction) -> Vec<u64> {
    let start = 1_000 * SECOND;
    let mut octets = vec![0; usize::from(FLOWS)];
    for ms in 0..10_000 {
        for step in 0..FLOWS {
            // Each flow is the first one at times.
            let flow = (step + ms as u16) % FLOWS;
            let fields = packet(fixture, flow, direction);
            let decision = fixture.decide(&fields, start + ms * MS);
            if matches!(decision.action, Action::Forward(_)) {
                octets[usize::from(flow)] += u64::from(fields.length);
            }
        }
    }
    octets.iter().map(|octets| octets * 8 / 1000 / 10).collect()
}

#[test]
fn flows_of_a_session_share_its_rate_whatever_blocks_their_rules_are_in() {
    // 8 Mbit/s per flow are offered, 64 in all.
    for filters in [1, 16] {
        let fixture = RuleFixture::of(session(16_000, 4_000, filters));
        assert_eq!(
            fixture.blocks.len() > 2,
            filters == 16,
            "rules of a direction in several blocks"
        );
        for direction in [Direction::Uplink, Direction::Downlink] {
            let passed = passed(&fixture, direction);
            let sum: u64 = passed.iter().sum();
            // The burst of 100 ms adds 1 %.
            assert!((15_800..=16_400).contains(&sum), "{direction:?}: {sum} of {passed:?}");
            assert!(passed.iter().all(|rate| *rate <= 4_100), "{passed:?}");
            assert!(passed.iter().all(|rate| *rate >= 1_000), "none starves: {passed:?}");
        }
    }
}

#[test]
fn a_flow_below_its_own_rate_is_limited_by_the_session_only() {
    let fixture = RuleFixture::of(session(4_000, 100_000, 1));
    let sum: u64 = passed(&fixture, Direction::Uplink).iter().sum();
    assert!((3_950..=4_100).contains(&sum), "{sum}");
    let fixture = RuleFixture::of(session(1_000_000, 1_000, 1));
    let passed = passed(&fixture, Direction::Uplink);
    assert!(passed.iter().all(|rate| (990..=1_030).contains(rate)), "{passed:?}");
}

#[test]
fn what_a_flow_of_its_own_rate_drops_is_not_charged_to_the_session() {
    let fixture = RuleFixture::of(session(16_000, 1_000, 1));
    let start = 1_000 * SECOND;
    let fields = packet(&fixture, 0, Direction::Uplink);
    while matches!(fixture.decide(&fields, start).action, Action::Forward(_)) {}
    let before = fixture.words(7)[4];
    for _ in 0..100 {
        let decision = fixture.decide(&fields, start);
        assert_eq!(decision.action, Action::Drop(DropReason::RateExceeded));
    }
    assert_eq!(fixture.words(7)[4], before, "the session's meter stays as it was");
    let other = packet(&fixture, 1, Direction::Uplink);
    assert!(matches!(fixture.decide(&other, start).action, Action::Forward(_)));
}

#[test]
fn a_new_rate_of_the_session_holds_for_all_its_flows() {
    let before = session(16_000, 8_000, 1);
    let mut after = before.clone();
    after.version += 1;
    after.qers[0].maximum = Some(Rate { uplink: 2_000, downlink: 2_000 });
    let fixture = RuleFixture::of(before);
    passed(&fixture, Direction::Uplink);
    let fixture = fixture.become_of(after);
    let sum: u64 = passed(&fixture, Direction::Uplink).iter().sum();
    assert!((1_950..=2_050).contains(&sum), "{sum}");
}
