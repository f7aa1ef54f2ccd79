//! Supported limits of URRs.

use super::establish::{down, refused};
use super::*;

/// Sends an establishment whose URR measures everything and has additional IEs.
fn with_urr(world: &mut SessionTestbed, more: Body<'_>) -> (u8, Option<u16>, Option<FailedRuleId>) {
    refused(world, &|w| {
        down(w);
        far_up(w, 2);
        w.group(IeType::CREATE_URR, |w| {
            w.put(&ie::UrrId(1));
            w.put(&(ie::MeasurementMethod::VOLUM | ie::MeasurementMethod::EVENT));
            more(w);
        });
    })
}

#[test]
fn case_51_limits_that_would_never_be_reached_are_refused() {
    type Triggers = ie::ReportingTriggers;
    let mut world = SessionTestbed::new();
    let why = with_urr(&mut world, &|w| {
        w.put(&Triggers::EVETH);
        w.put(&ie::EventThreshold(5));
    });
    assert_eq!(why, (76, Some(IeType::EVENT_THRESHOLD.0), None));
    let quota = |w: &mut Writer<'_>| w.put(&ie::EventQuota(5));
    let why = with_urr(&mut world, &|w| (w.put(&Triggers::START), quota(w)).1);
    assert_eq!(why, (76, Some(IeType::EVENT_QUOTA.0), None));
    let why = with_urr(&mut world, &|w| w.put(&(Triggers::EVEQU | Triggers::START)));
    assert_eq!(why, (76, Some(IeType::REPORTING_TRIGGERS.0), None));
    let dropped = |packets, octets| ie::DroppedDlTrafficThreshold { packets, octets };
    for threshold in [dropped(Some(2), None), dropped(None, Some(1500)), dropped(None, None)] {
        let why = with_urr(&mut world, &|w| (w.put(&Triggers::DROTH), w.put(&threshold)).1);
        assert_eq!(why, (76, Some(IeType::DROPPED_DL_TRAFFIC_THRESHOLD.0), None));
    }
    // Supported triggers: start and stop of traffic as events, and the first dropped packet.
    let answered = world.ask(&establishment(999, 77, &|w| {
        down(w);
        far_up(w, 2);
        w.group(IeType::CREATE_URR, |w| {
            w.put(&ie::UrrId(1));
            w.put(&ie::MeasurementMethod::EVENT);
            w.put(&(Triggers::START | Triggers::STOPT | Triggers::DROTH));
            w.put(&dropped(Some(1), Some(1500)));
        });
    }));
    assert_eq!(answered.cause, 1);
}
