//! Evaluation of single URRs, clause by clause.

use fastlane_pfcp::ie::{
    QuotaHoldingTime, QuotaValidityTime, TimeQuota, TimeThreshold, VolumeQuota, VolumeThreshold,
    Volumes,
};
use fastlane_pfcp::{Group, Writer};

use crate::rules::layout::counter_slots::event;
use crate::session::UrrUpdate;
use crate::session::{Measure, ReportingTriggers, Urr, UsageReport, UsageReportTrigger, Volume};
use crate::time::Now;
use crate::time::{SECOND, ntp};
use crate::usage::{DURATION, Meter, PACKETS, VOLUME, collect_all, next, settle, take, update};

pub(super) const REAL: u64 = 1_780_000_000 * SECOND;

pub(super) fn at(seconds: u64) -> Now {
    Now { monotonic: 1000 * SECOND, real: REAL }.after(seconds * SECOND)
}

pub(super) fn urr(id: u32, triggers: &[ReportingTriggers]) -> Urr {
    let triggers = ReportingTriggers(triggers.iter().fold(0, |all, one| all | one.0));
    let measure = Measure { duration: true, volume: true, event: false };
    Urr { id, measure, triggers, ..Urr::default() }
}

pub(super) fn total(octets: u64) -> Option<Volume> {
    Some(Volume { total: Some(octets), ..Volume::default() })
}

fn counted(up: u64, down: u64, last: Now) -> Meter {
    let counts = [up, up.div_ceil(100), down, down.div_ceil(100)];
    Meter { counts, last: last.monotonic, ..Meter::default() }
}

fn due(urr: &mut Urr, meter: &Meter, now: Now) -> Vec<UsageReport> {
    let mut reports = Vec::new();
    settle(urr, meter, now);
    take(urr, meter, now, UsageReportTrigger::NONE, &mut reports);
    reports
}

fn began(mut urr: Urr, now: Now) -> Urr {
    urr.begin([0; 4], 0, now);
    urr
}

fn triggers(reports: &[UsageReport]) -> Vec<UsageReportTrigger> {
    reports.iter().map(|it| it.triggers).collect()
}

#[test]
fn case_51_a_volume_threshold_reports_and_goes_on_and_counts_anew_from_the_report() {
    let mut urr = urr(1, &[ReportingTriggers::VOLTH]);
    urr.volume_threshold = total(1000);
    let mut urr = began(urr, at(0));
    assert_eq!(urr.watch().threshold.total, Some(1000));
    assert_eq!(due(&mut urr, &counted(500, 499, at(1)), at(1)), []);
    let reports = due(&mut urr, &counted(500, 600, at(2)), at(3));
    let [report] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.triggers, report.counts), (UsageReportTrigger::VOLTH, [500, 5, 600, 6]));
    assert_eq!((report.since, report.at), (at(0).real, at(3).real));
    assert_eq!((report.sequence, report.measured), (0, VOLUME | DURATION));
    assert_eq!((report.last, report.seconds), (at(2).real, 2)); // the first packet seen at 1
    assert_eq!(urr.watch().threshold.total, Some(2100));
    assert!(!urr.watch().is_stopped);
    assert_eq!(due(&mut urr, &counted(500, 1599, at(4)), at(4)), []);
    let reports = due(&mut urr, &counted(500, 1600, at(5)), at(5));
    assert_eq!((reports[0].sequence, reports[0].counts), (1, [0, 0, 1000, 10]));
}

#[test]
fn case_51_each_direction_has_its_threshold_and_a_threshold_of_nothing_is_one_octet() {
    for (volume, is_due) in [
        (Volume { uplink: Some(300), ..Volume::default() }, true),
        (Volume { downlink: Some(300), ..Volume::default() }, false),
        (Volume { total: Some(501), uplink: Some(301), downlink: Some(201) }, false),
        (Volume { total: Some(0), ..Volume::default() }, true),
    ] {
        let mut urr = urr(1, &[ReportingTriggers::VOLTH]);
        urr.volume_threshold = Some(volume);
        let mut urr = began(urr, at(0));
        assert_eq!(due(&mut urr, &Meter::default(), at(0)), []);
        let meter = counted(300, 200, at(1));
        assert_eq!(due(&mut urr, &meter, at(1)).len(), usize::from(is_due), "{volume:?}");
        assert_eq!(due(&mut urr, &meter, at(1)), [], "{volume:?}: again");
    }
}

#[test]
fn case_51_a_volume_quota_stops_and_reports_once_and_a_new_one_counts_from_where_it_is_given() {
    let mut urr = urr(1, &[ReportingTriggers::VOLQU]);
    urr.quota.volume = total(1000);
    let mut urr = began(urr, at(0));
    assert_eq!(urr.watch().quota.total, Some(1000));
    // 900 octets passed, and a packet of 200 was dropped.
    let meter = Meter { events: event::QUOTA, ..counted(900, 0, at(1)) };
    let reports = due(&mut urr, &meter, at(1));
    assert_eq!(triggers(&reports), [UsageReportTrigger::VOLQU]);
    assert_eq!(reports[0].counts[0], 900);
    assert!(urr.watch().is_stopped);
    assert_eq!(due(&mut urr, &meter, at(2)), []);
    let renew = |urr: &mut Urr| {
        urr.quota.volume = total(500);
        UrrUpdate { volume_quota: true, ..UrrUpdate::default() }
    };
    update(&mut urr, &meter, at(3), renew);
    assert!(!urr.watch().is_stopped);
    assert_eq!(urr.watch().quota.total, Some(1400)); // what was left of the old one is gone
    assert_eq!(due(&mut urr, &counted(1399, 0, at(4)), at(4)), []);
    let reports = due(&mut urr, &counted(1400, 0, at(5)), at(5));
    assert_eq!((reports[0].triggers, reports[0].counts[0]), (UsageReportTrigger::VOLQU, 500));
}

#[test]
fn case_51_a_quota_that_is_not_to_be_reported_is_kept_all_the_same() {
    let mut urr = urr(1, &[]);
    urr.quota.volume = total(1000);
    let mut urr = began(urr, at(0));
    assert_eq!(due(&mut urr, &counted(1000, 0, at(1)), at(1)), []);
    assert!(urr.watch().is_stopped);
}

#[test]
fn case_51_a_quota_of_nothing_is_reported_when_a_packet_is_refused() {
    let mut urr = urr(1, &[ReportingTriggers::VOLQU]);
    urr.quota.volume = total(0);
    let mut urr = began(urr, at(0));
    assert_eq!(due(&mut urr, &Meter::default(), at(9)), []);
    assert_eq!(urr.watch().quota.total, Some(0));
    let refused = Meter { events: event::QUOTA, ..Meter::default() };
    assert_eq!(triggers(&due(&mut urr, &refused, at(9))), [UsageReportTrigger::VOLQU]);
}

#[test]
fn case_51_time_is_used_from_the_first_packet_and_ends_by_threshold_and_quota() {
    let mut urr = urr(1, &[ReportingTriggers::TIMTH, ReportingTriggers::TIMQU]);
    (urr.time_threshold_s, urr.quota.time_s) = (Some(10), Some(25));
    let mut urr = began(urr, at(0));
    assert!(urr.watch().start && urr.watch().deadline.is_none());
    assert_eq!(due(&mut urr, &Meter::default(), at(100)), []);
    assert_eq!(next(&urr, &Meter::default(), at(100)), None);
    // A lane message reports the time of the first packet.
    let meter = Meter { first: Some(at(101).monotonic), ..counted(1, 0, at(103)) };
    assert_eq!(due(&mut urr, &meter, at(104)), []);
    assert!(!urr.watch().start);
    assert_eq!(urr.watch().deadline, Some(at(126).monotonic));
    assert_eq!(next(&urr, &meter, at(104)), Some(at(111).monotonic));
    assert_eq!(due(&mut urr, &meter, at(110)), []);
    let reports = due(&mut urr, &meter, at(111));
    assert_eq!((reports[0].triggers, reports[0].seconds), (UsageReportTrigger::TIMTH, 10));
    assert_eq!(reports[0].first, at(101).real);
    assert_eq!(next(&urr, &meter, at(111)), Some(at(121).monotonic));
    assert_eq!(due(&mut urr, &meter, at(121))[0].seconds, 10);
    assert_eq!(next(&urr, &meter, at(121)), Some(at(126).monotonic));
    let reports = due(&mut urr, &meter, at(126));
    assert_eq!((reports[0].triggers, reports[0].seconds), (UsageReportTrigger::TIMQU, 5));
    assert!(urr.watch().is_stopped);
}

#[test]
fn case_51_use_of_time_ends_when_no_packet_comes_and_that_wait_is_used() {
    let mut urr = urr(1, &[]);
    urr.inactivity_s = Some(5);
    let mut urr = began(urr, at(0));
    let meter = counted(1, 0, at(10));
    settle(&mut urr, &meter, at(10));
    assert_eq!(next(&urr, &meter, at(10)), Some(at(15).monotonic));
    let meter = counted(2, 0, at(13)); // in time: it goes on
    settle(&mut urr, &meter, at(15));
    assert_eq!(next(&urr, &meter, at(15)), Some(at(18).monotonic));
    settle(&mut urr, &meter, at(18));
    assert_eq!((next(&urr, &meter, at(18)), urr.watch().start), (None, true));
    let meter = counted(3, 0, at(100));
    settle(&mut urr, &meter, at(101));
    let mut reports = Vec::new();
    take(&mut urr, &meter, at(102), UsageReportTrigger::IMMER, &mut reports);
    assert_eq!(reports[0].seconds, 8 + 2);
}

#[test]
fn case_51_immediate_start_and_pause() {
    let mut urr = urr(1, &[]);
    urr.information = Urr::IMMEDIATE_START;
    let mut urr = began(urr, at(0));
    let pause = |urr: &mut Urr| {
        urr.information |= Urr::PAUSED;
        UrrUpdate::default()
    };
    update(&mut urr, &Meter::default(), at(7), pause);
    assert!(urr.watch().is_paused && !urr.watch().start);
    let resume = |urr: &mut Urr| {
        urr.information &= !Urr::PAUSED;
        UrrUpdate::default()
    };
    update(&mut urr, &Meter::default(), at(50), resume);
    let meter = counted(1, 0, at(60));
    settle(&mut urr, &meter, at(60));
    let mut reports = Vec::new();
    take(&mut urr, &meter, at(61), UsageReportTrigger::IMMER, &mut reports);
    assert_eq!(reports[0].seconds, 7 + 1);
}

#[test]
fn case_51_periods_are_kept_whatever_else_is_reported() {
    let mut urr = urr(1, &[ReportingTriggers::PERIO]);
    urr.period_s = Some(60);
    let mut urr = began(urr, at(0));
    assert_eq!(next(&urr, &Meter::default(), at(0)), Some(at(60).monotonic));
    let mut reports = Vec::new();
    take(&mut urr, &counted(1, 0, at(30)), at(30), UsageReportTrigger::IMMER, &mut reports);
    assert_eq!(
        triggers(&due(&mut urr, &counted(2, 0, at(31)), at(61))),
        [UsageReportTrigger::PERIO]
    );
    assert_eq!(next(&urr, &Meter::default(), at(61)), Some(at(120).monotonic));
    // The process was away for three periods: one report, and the period continues.
    assert_eq!(due(&mut urr, &counted(3, 0, at(200)), at(290)).len(), 1);
    assert_eq!(next(&urr, &Meter::default(), at(290)), Some(at(300).monotonic));
}

#[test]
fn case_51_usage_is_split_at_the_monitoring_time() {
    let mut urr = urr(1, &[ReportingTriggers::VOLTH]);
    urr.monitoring_time = Some(ntp(at(10).real));
    urr.volume_threshold = total(1000);
    urr.subsequent_volume_threshold = total(300);
    urr.information = Urr::PACKETS;
    let mut urr = began(urr, at(0));
    let before = counted(800, 0, at(9));
    assert_eq!(next(&urr, &before, at(9)), Some(at(10).monotonic));
    assert_eq!(due(&mut urr, &before, at(10)), []);
    assert_eq!(urr.watch().threshold.total, Some(1100));
    let reports = due(&mut urr, &counted(1100, 0, at(12)), at(12));
    let [first, second] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((first.triggers, first.information), (UsageReportTrigger::MONIT, 1));
    assert_eq!((second.triggers, second.information), (UsageReportTrigger::VOLTH, 2));
    assert_eq!((first.counts[0], second.counts[0]), (800, 300));
    assert_eq!((first.since, first.at), (at(0).real, at(10).real));
    assert_eq!((second.since, second.at), (at(10).real, at(12).real));
    assert_eq!((first.sequence, second.sequence), (0, 1));
    assert_eq!(second.measured, VOLUME | PACKETS | DURATION);
    // The subsequent threshold applies from then on.
    assert_eq!(urr.watch().threshold.total, Some(1400));
}

#[test]
fn case_51_without_subsequent_values_the_rest_goes_on_and_with_them_a_quota_is_new() {
    let mut urr = urr(1, &[ReportingTriggers::VOLTH, ReportingTriggers::VOLQU]);
    urr.monitoring_time = Some(ntp(at(10).real));
    urr.volume_threshold = total(1000);
    urr.quota.volume = total(900);
    urr.subsequent_quota.volume = total(5000);
    let mut urr = began(urr, at(0));
    let reports = due(&mut urr, &counted(900, 0, at(9)), at(9));
    assert_eq!(triggers(&reports), [UsageReportTrigger::VOLQU]);
    assert!(urr.watch().is_stopped);
    assert_eq!(due(&mut urr, &counted(900, 0, at(9)), at(10)), []);
    assert_eq!((urr.watch().is_stopped, urr.watch().quota.total), (false, Some(5900)));
    assert_eq!(urr.watch().threshold.total, Some(1900));
}

#[test]
fn after_the_monitoring_time_a_new_grant_counts_and_not_what_was_to_follow_the_old_one() {
    let monitored = |triggers| {
        let mut urr = urr(1, triggers);
        urr.monitoring_time = Some(ntp(at(10).real));
        (urr.quota.volume, urr.subsequent_quota.volume) = (total(1000), total(50));
        (urr.quota.time_s, urr.subsequent_quota.time_s) = (Some(1000), Some(50));
        (urr.volume_threshold, urr.subsequent_volume_threshold) = (total(900), total(40));
        (urr.time_threshold_s, urr.subsequent_time_threshold_s) = (Some(900), Some(40));
        began(urr, at(0))
    };
    let change = |urr: &mut Urr, now, write: &dyn Fn(&mut Writer<'_>)| {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        let apply = |urr: &mut Urr| crate::session::urr::apply(urr, &Group::new(&bytes)).unwrap();
        update(urr, &counted(100, 0, at(5)), now, apply);
    };
    let grant = |to: &mut Writer<'_>| {
        let volumes = Volumes { total: Some(2000), ..Volumes::default() };
        to.put(&VolumeQuota(volumes));
        to.put(&TimeQuota(2000));
        to.put(&VolumeThreshold(volumes));
        to.put(&TimeThreshold(1800));
    };
    // Before the monitoring time both are in force, one after the other.
    let mut before = monitored(&[]);
    change(&mut before, at(6), &grant);
    assert_eq!(before.quota_now().volume, total(2000));
    settle(&mut before, &counted(100, 0, at(5)), at(11));
    assert_eq!((before.quota_now().volume, before.quota_now().time_s), (total(50), Some(50)));
    // After it only the new ones are.
    let mut after = monitored(&[]);
    change(&mut after, at(11), &grant);
    assert!(after.progress.is_after_monitoring);
    assert_eq!((after.quota_now().volume, after.quota_now().time_s), (total(2000), Some(2000)));
    assert_eq!(after.volume_threshold_now(), total(2000));
    assert_eq!(after.time_threshold_now(), Some(1800));
    // A change of something else leaves them.
    let mut other = monitored(&[]);
    change(&mut other, at(11), &|to| to.put(&TimeQuota(7)));
    assert_eq!((other.quota_now().volume, other.quota_now().time_s), (total(50), Some(7)));
}

#[test]
fn a_packet_that_another_rule_counts_starts_nothing() {
    let mut urr = urr(1, &[ReportingTriggers::START, ReportingTriggers::TIMTH]);
    urr.time_threshold_s = Some(5);
    let mut urr = began(urr, at(0));
    // The first URR shares the session's slot, where every packet leaves its time.
    assert_eq!(due(&mut urr, &counted(0, 0, at(1)), at(1)), []);
    assert_eq!(due(&mut urr, &counted(0, 0, at(30)), at(30)), []);
    let reports = due(&mut urr, &counted(10, 0, at(31)), at(31));
    assert_eq!(triggers(&reports), [UsageReportTrigger::START]);
    let reports = due(&mut urr, &counted(20, 0, at(36)), at(36));
    assert_eq!(triggers(&reports), [UsageReportTrigger::TIMTH]);
}

#[test]
fn case_51_start_and_stop_of_traffic_are_reports_without_usage() {
    let mut urr = urr(1, &[ReportingTriggers::START, ReportingTriggers::STOPT]);
    urr.inactivity_s = Some(3);
    let mut urr = began(urr, at(0));
    assert!(urr.watch().start);
    let meter = Meter { first: Some(at(5).monotonic), ..counted(10, 0, at(6)) };
    let reports = due(&mut urr, &meter, at(6));
    let [report] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.triggers, report.measured), (UsageReportTrigger::START, 0));
    assert_eq!((report.at, report.first), (at(5).real, at(5).real));
    assert_eq!(due(&mut urr, &meter, at(8)), []);
    let reports = due(&mut urr, &meter, at(9));
    assert_eq!(triggers(&reports), [UsageReportTrigger::STOPT]);
    assert_eq!(reports[0].at, at(9).real);
    assert!(urr.watch().start);
    // Traffic started and stopped between two evaluations.
    let reports = due(&mut urr, &counted(20, 0, at(20)), at(60));
    assert_eq!(triggers(&reports), [UsageReportTrigger::START, UsageReportTrigger::STOPT]);
    let mut reports = Vec::new();
    take(&mut urr, &counted(20, 0, at(20)), at(61), UsageReportTrigger::TERMR, &mut reports);
    assert_eq!((reports[0].counts[0], reports[0].sequence), (20, 4));
}

#[test]
fn a_renewed_time_quota_counts_from_its_grant() {
    let mut urr = urr(1, &[ReportingTriggers::TIMQU]);
    urr.quota.time_s = Some(60);
    let mut urr = began(urr, at(0));
    let meter = |seconds| counted(100, 0, at(seconds));
    assert_eq!(due(&mut urr, &meter(1), at(1)), []);
    assert_eq!(urr.watch().deadline, Some(at(61).monotonic));
    for granted in [51, 101] {
        let renew = |urr: &mut Urr| {
            urr.quota.time_s = Some(60);
            UrrUpdate { time_quota: true, ..UrrUpdate::default() }
        };
        update(&mut urr, &meter(granted), at(granted), renew);
        let end = at(granted + 60).monotonic;
        assert_eq!(urr.watch().deadline, Some(end), "what lanes know");
        assert_eq!(next(&urr, &meter(granted), at(granted)), Some(end), "what the timer knows");
    }
    assert_eq!(due(&mut urr, &meter(160), at(160)), []);
    let reports = due(&mut urr, &meter(161), at(161));
    assert_eq!(triggers(&reports), [UsageReportTrigger::TIMQU]);
}

#[test]
fn a_time_threshold_whose_report_waits_asks_for_no_timer() {
    let mut urr = urr(1, &[ReportingTriggers::TIMTH]);
    urr.time_threshold_s = Some(10);
    let mut urr = began(urr, at(0));
    let meter = |seconds| counted(100, 0, at(seconds));
    settle(&mut urr, &meter(1), at(1));
    assert_eq!(next(&urr, &meter(1), at(1)), Some(at(11).monotonic));
    settle(&mut urr, &meter(12), at(12));
    assert_eq!(next(&urr, &meter(12), at(12)), None, "only the report can go on");
    let reports = due(&mut urr, &meter(15), at(15));
    assert_eq!(triggers(&reports), [UsageReportTrigger::TIMTH]);
    assert_eq!(next(&urr, &meter(15), at(15)), Some(at(25).monotonic));
}

#[test]
fn holding_and_validity_times_of_zero_end_no_quota() {
    let mut urr = urr(1, &[ReportingTriggers::QUHTI, ReportingTriggers::QUVTI]);
    urr.quota.volume = total(1000);
    (urr.quota_holding_s, urr.quota.validity_s) = (Some(20), Some(50));
    let mut urr = began(urr, at(0));
    let mut bytes = Vec::new();
    let mut zeros = Writer::new(&mut bytes);
    zeros.put(&QuotaHoldingTime(0));
    zeros.put(&QuotaValidityTime(0));
    let meter = counted(100, 0, at(5));
    let apply = |urr: &mut Urr| crate::session::urr::apply(urr, &Group::new(&bytes)).unwrap();
    update(&mut urr, &meter, at(5), apply);
    assert_eq!(due(&mut urr, &meter, at(500)), []);
    assert_eq!((next(&urr, &meter, at(500)), urr.watch().deadline), (None, None));
    assert!(!urr.watch().is_stopped);
}

#[test]
fn case_51_quota_holding_and_validity_end_a_quota() {
    let mut urr = urr(1, &[ReportingTriggers::QUHTI, ReportingTriggers::QUVTI]);
    urr.quota.volume = total(1000);
    (urr.quota_holding_s, urr.quota.validity_s) = (Some(20), Some(50));
    let mut held = began(urr.clone(), at(0));
    let meter = counted(100, 0, at(5));
    assert_eq!(next(&held, &meter, at(5)), Some(at(25).monotonic));
    assert_eq!(triggers(&due(&mut held, &meter, at(25))), [UsageReportTrigger::QUHTI]);
    assert!(held.watch().is_stopped);
    let mut invalid = began(urr, at(0));
    let meter = counted(100, 0, at(45));
    assert_eq!(invalid.watch().deadline, Some(at(50).monotonic));
    assert_eq!(triggers(&due(&mut invalid, &meter, at(50))), [UsageReportTrigger::QUVTI]);
    let renew = |_: &mut Urr| UrrUpdate { volume_quota: true, ..UrrUpdate::default() };
    update(&mut invalid, &meter, at(55), renew);
    assert_eq!(invalid.watch().deadline, Some(at(105).monotonic));
}

#[test]
fn case_51_linked_urrs_report_together_also_by_way_of_others() {
    let linked = |id, to: &[u32]| {
        let mut urr = urr(id, &[ReportingTriggers::LIUSA]);
        urr.linked = to.to_vec();
        urr
    };
    let mut plain = urr(1, &[ReportingTriggers::VOLTH]);
    plain.volume_threshold = total(1000);
    let mut urrs = vec![linked(3, &[2]), linked(2, &[1]), plain, linked(4, &[9])];
    let meters = [counted(1000, 0, at(1)); 4];
    for urr in &mut urrs {
        urr.begin([0; 4], 0, at(0));
        settle(urr, &counted(1000, 0, at(1)), at(1));
    }
    let reports = collect_all(&mut urrs, &meters, at(1), |_| UsageReportTrigger::NONE);
    let found: Vec<_> = reports.iter().map(|it| (it.urr, it.triggers)).collect();
    let linked = UsageReportTrigger::LIUSA;
    assert_eq!(found, [(3, linked), (2, linked), (1, UsageReportTrigger::VOLTH)]);
}
