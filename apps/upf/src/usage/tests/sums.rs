//! Properties of any order of packets, ticks, queries and changes: each counted octet is reported
//! once.

use proptest::prelude::*;

use super::arithmetic::{at, total, urr};
use crate::rules::layout::counter_slots::event;
use crate::session::UrrUpdate;
use crate::session::{ReportingTriggers, Urr, UsageReport, UsageReportTrigger};
use crate::time::Now;
use crate::time::{SECOND, ntp};
use crate::usage::{MOST, Meter, next, settle, take, update};

#[derive(Clone, Debug)]
enum Step {
    Packet { is_up: bool, octets: u16 },
    Wait { milliseconds: u16 },
    Look,
    Ask,
    Renew { volume: u16, time: u8 },
    Threshold { volume: u16 },
    Monitor { in_seconds: u8 },
    Pause(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 1..2000u16).prop_map(|(is_up, octets)| Step::Packet { is_up, octets }),
        3 => (1..5000u16).prop_map(|milliseconds| Step::Wait { milliseconds }),
        4 => Just(Step::Look),
        1 => Just(Step::Ask),
        1 => (0..5000u16, 0..20u8).prop_map(|(volume, time)| Step::Renew { volume, time }),
        1 => (0..5000u16).prop_map(|volume| Step::Threshold { volume }),
        1 => (0..10u8).prop_map(|in_seconds| Step::Monitor { in_seconds }),
        1 => any::<bool>().prop_map(Step::Pause),
    ]
}

/// A URR of everything, the lane that counts it, and the control plane that adds up its reports.
struct CountedUrr {
    urr: Urr,
    meter: Meter,
    now: Now,
    reports: Vec<UsageReport>,
    refused: u64,
}

impl CountedUrr {
    fn new(triggers: u32, information: u8, inactivity: u8) -> Self {
        let mut urr = urr(1, &[ReportingTriggers(triggers.into())]);
        urr.volume_threshold = total(3000);
        urr.time_threshold_s = Some(4);
        urr.period_s = Some(7);
        urr.quota.volume = total(9000);
        urr.quota.time_s = Some(30);
        urr.quota.validity_s = Some(60);
        urr.quota_holding_s = Some(15);
        urr.monitoring_time = Some(ntp(at(12).real));
        urr.subsequent_volume_threshold = total(1000);
        urr.information = information;
        urr.inactivity_s = (inactivity != 0).then_some(u32::from(inactivity));
        // The slot has counted for another URR before.
        let meter = Meter { counts: [1 << 40, 7, 1 << 41, 9], last: 5, ..Meter::default() };
        urr.begin(meter.counts, meter.last, at(0));
        Self { urr, meter, now: at(0), reports: Vec::new(), refused: 0 }
    }

    /// Counts a packet if the limits allow it, as a lane does.
    fn packet(&mut self, is_up: bool, octets: u64) {
        let watch = self.urr.watch();
        if watch.is_paused {
            return;
        }
        let [up, _, down, _] = self.meter.counts;
        let (up, down) =
            (up + if is_up { octets } else { 0 }, down + if is_up { 0 } else { octets });
        let fits = watch.quota.total.is_none_or(|most| up + down <= most);
        let in_time = watch.deadline.is_none_or(|deadline| self.now.monotonic < deadline);
        if watch.is_stopped || !fits || !in_time {
            self.meter.events |= event::QUOTA;
            self.refused += octets;
            return;
        }
        let [_, up_packets, _, down_packets] = self.meter.counts;
        let (is_up, is_down) = (u64::from(is_up), u64::from(!is_up));
        self.meter.counts = [up, up_packets + is_up, down, down_packets + is_down];
        self.meter.last = self.now.monotonic;
    }

    fn look(&mut self, triggers: UsageReportTrigger) {
        let before = self.urr.watch();
        settle(&mut self.urr, &self.meter, self.now);
        let count = self.reports.len();
        take(&mut self.urr, &self.meter, self.now, triggers, &mut self.reports);
        assert!(self.reports.len() - count <= MOST);
        if before != self.urr.watch() {
            self.meter.events = 0;
        }
        let next = next(&self.urr, &self.meter, self.now);
        assert!(next.is_none_or(|at| at > self.now.monotonic), "{next:?} {:?}", self.now);
    }

    fn step(&mut self, step: &Step) {
        let change: Box<dyn FnOnce(&mut Urr) -> UrrUpdate> = match *step {
            Step::Packet { is_up, octets } => return self.packet(is_up, octets.into()),
            Step::Wait { milliseconds } => {
                self.now = self.now.after(u64::from(milliseconds) * SECOND / 1000);
                return;
            }
            Step::Look => return self.look(UsageReportTrigger::NONE),
            Step::Ask => return self.look(UsageReportTrigger::IMMER),
            Step::Renew { volume, time } => Box::new(move |urr| {
                urr.quota.volume = total(volume.into());
                urr.quota.time_s = Some(time.into());
                UrrUpdate { volume_quota: true, time_quota: true, ..UrrUpdate::default() }
            }),
            Step::Threshold { volume } => Box::new(move |urr| {
                urr.volume_threshold = total(volume.into());
                UrrUpdate::default()
            }),
            Step::Monitor { in_seconds } => {
                let time = ntp(self.now.real) + u32::from(in_seconds);
                Box::new(move |urr| {
                    urr.monitoring_time = Some(time);
                    UrrUpdate { monitoring: true, ..UrrUpdate::default() }
                })
            }
            Step::Pause(is_paused) => Box::new(move |urr| {
                urr.information &= !Urr::PAUSED;
                urr.information |= if is_paused { Urr::PAUSED } else { 0 };
                UrrUpdate::default()
            }),
        };
        update(&mut self.urr, &self.meter, self.now, change);
        self.meter.events = 0;
    }

    fn sum(&self) -> ([u64; 4], u64) {
        let add = |sum: [u64; 4], it: &UsageReport| std::array::from_fn(|i| sum[i] + it.counts[i]);
        let counts = self.reports.iter().fold([0; 4], add);
        (counts, self.reports.iter().map(|it| u64::from(it.seconds)).sum())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn case_81_the_sum_of_reports_is_what_was_counted(
        triggers in any::<u32>(),
        information in 0..32u8,
        inactivity in 0..6u8,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut world = CountedUrr::new(triggers, information & !Urr::PAUSED, inactivity);
        for step in &steps {
            world.step(step);
        }
        world.look(UsageReportTrigger::TERMR);
        let begun = [1 << 40, 7, 1 << 41, 9];
        let counted: [u64; 4] = std::array::from_fn(|i| world.meter.counts[i] - begun[i]);
        let (counts, seconds) = world.sum();
        prop_assert_eq!(counts, counted);
        let elapsed = world.urr.elapsed(world.meter.last, world.now.monotonic);
        prop_assert_eq!(seconds, elapsed / SECOND);
        prop_assert!(elapsed <= world.now.monotonic - at(0).monotonic);
        // UR-SEQNs have no gap, and measured times have none either.
        for (number, report) in world.reports.iter().enumerate() {
            prop_assert_eq!(report.sequence as usize, number);
            prop_assert!(!report.triggers.is_empty());
        }
        let measuring: Vec<_> = world.reports.iter().filter(|it| it.measured != 0).collect();
        for pair in measuring.windows(2) {
            prop_assert_eq!(pair[0].at, pair[1].since);
        }
    }

    #[test]
    fn case_51_looking_twice_reports_nothing_twice(
        triggers in any::<u32>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut world = CountedUrr::new(triggers, 0, 2);
        for step in &steps {
            world.step(step);
            world.look(UsageReportTrigger::NONE);
            let (count, progress) = (world.reports.len(), world.urr.progress);
            world.look(UsageReportTrigger::NONE);
            if !world.urr.triggers.has(ReportingTriggers::DROTH) {
                prop_assert_eq!(world.reports.len(), count);
                prop_assert_eq!(world.urr.progress, progress);
            }
        }
    }
}
