//! Session reports: creation of usage reports from due triggers, and their encoding.

use std::net::IpAddr;

use fastlane_pfcp::ie::{
    DownlinkDataServiceInformation, DurationMeasurement, EndTime, EventTimeStamp, FTeid, PdrId,
    QueryUrrReference, ReportType, StartTime, TimeOfFirstPacket, TimeOfLastPacket, UrSeqn, UrrId,
    UsageInformation, UsageReportTrigger, VolumeMeasurement, Volumes,
};
use fastlane_pfcp::{Header, IeType, MessageType, Writer};

use super::measurement::{Meter, StateSlots, between, settle};
use crate::session::{DownlinkData, ReportingTriggers, Session, Unacknowledged, Urr, UsageReport};
use crate::time::{Now, SECOND, ntp};

/// Usage Information (clause 8.2.67): before the monitoring time.
const BEFORE: u8 = 1;
/// Usage Information: after the monitoring time.
const AFTER: u8 = 1 << 1;
/// Usage Information: before QoS enforcement.
const BEFORE_QOS: u8 = 1 << 3;

/// Flag of [`UsageReport::measured`]: octets.
pub const VOLUME: u8 = 1;
/// Flag of [`UsageReport::measured`]: packets too.
pub const PACKETS: u8 = 1 << 1;
/// Flag of [`UsageReport::measured`]: seconds.
pub const DURATION: u8 = 1 << 2;

/// Maximum number of reports of one URR at a time: start and stop of traffic, before and after the
/// monitoring time.
pub const MOST: usize = 4;

/// Creates the due reports of an evaluated URR, with the additional `triggers`, and moves its
/// progress. The progress must be committed before they are sent.
pub fn take(
    urr: &mut Urr,
    meter: &Meter,
    now: Now,
    triggers: UsageReportTrigger,
    to: &mut Vec<UsageReport>,
) {
    let due = std::mem::take(&mut urr.progress.due).with(triggers);
    traffic(urr, meter, now, due, to);
    let due = due.without(UsageReportTrigger::START.with(UsageReportTrigger::STOPT));
    if due.is_empty() {
        return;
    }
    let is_split = urr.progress.split.is_some();
    if let Some(split) = urr.progress.split.take() {
        let until = Until { counters: split.counters, elapsed: split.elapsed, at: split.at };
        let last = now.real_of(meter.last);
        let last = if meter.last != 0 && last <= split.at { last } else { 0 };
        let mut report = measured(urr, until, last, UsageReportTrigger::MONIT);
        report.information |= BEFORE;
        to.push(report);
    }
    let elapsed = urr.elapsed(meter.last, now.monotonic);
    let until = Until { counters: meter.counts, elapsed, at: now.real };
    let is_new = packets(urr, meter) != 0;
    let last = if is_new && meter.last != 0 { now.real_of(meter.last) } else { 0 };
    let mut report = measured(urr, until, last, due);
    report.information |= if is_split { AFTER } else { 0 };
    to.push(report);
}

/// Returns the number of unreported packets.
fn packets(urr: &Urr, meter: &Meter) -> u64 {
    let [_, up, _, down] = between(urr.progress.reported, meter.counts);
    up.saturating_add(down)
}

/// End of the usage that a report covers.
struct Until {
    counters: [u64; 4],
    elapsed: u64,
    at: u64,
}

/// Creates the report from the last one up to `until`.
fn measured(urr: &mut Urr, until: Until, last: u64, triggers: UsageReportTrigger) -> UsageReport {
    let packets = urr.measure.volume && urr.has_information(Urr::PACKETS);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let progress = &mut urr.progress;
    let first = Some(progress.first).filter(|at| *at <= until.at).unwrap_or(0);
    let seconds = (until.elapsed / SECOND).saturating_sub(progress.elapsed_reported / SECOND);
    let report = UsageReport {
        urr: urr.id,
        sequence: progress.sequence,
        triggers,
        information: 0,
        measured: flag(urr.measure.volume, VOLUME)
            | flag(packets, PACKETS)
            | flag(urr.measure.duration, DURATION),
        counts: between(progress.reported, until.counters),
        seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
        since: progress.since,
        at: until.at.max(progress.since),
        first,
        last,
    };
    if first != 0 {
        progress.first = 0;
    }
    progress.sequence = progress.sequence.wrapping_add(1);
    progress.reported = until.counters;
    progress.elapsed_reported = until.elapsed;
    progress.since = report.at;
    UsageReport { information: qos(urr), ..report }
}

/// Returns the usage information flag for measurement before QoS enforcement.
const fn qos(urr: &Urr) -> u8 {
    if urr.has_information(Urr::BEFORE_QOS) { BEFORE_QOS } else { 0 }
}

/// Creates reports of start and stop of traffic; they carry no measurement (table 7.5.8.3-1, NOTE
/// 2).
fn traffic(
    urr: &mut Urr,
    meter: &Meter,
    now: Now,
    due: UsageReportTrigger,
    to: &mut Vec<UsageReport>,
) {
    let last = if meter.last == 0 { 0 } else { now.real_of(meter.last) };
    let (id, progress) = (urr.id, &mut urr.progress);
    let mut report = |triggers, at, first, last| {
        let sequence = progress.sequence;
        progress.sequence = sequence.wrapping_add(1);
        to.push(UsageReport { urr: id, sequence, triggers, at, first, last, ..Default::default() });
    };
    let (started, stopped) = (progress.started_at, progress.stopped_at);
    // The current traffic state tells which came first.
    let both = UsageReportTrigger::START.with(UsageReportTrigger::STOPT);
    let stop_first = due.has(both) && stopped < started;
    if stop_first {
        report(UsageReportTrigger::STOPT, stopped, 0, 0);
    }
    if due.has(UsageReportTrigger::START) {
        report(UsageReportTrigger::START, started, started, 0);
    }
    if due.has(UsageReportTrigger::STOPT) && !stop_first {
        report(UsageReportTrigger::STOPT, stopped, 0, last);
    }
}

/// Creates the due reports of all URRs of a session, including linked ones (clause 5.2.2.4): a URR
/// with the trigger LIUSA reports with the URRs that it links.
pub fn collect_all(
    urrs: &mut [Urr],
    meters: &[Meter],
    now: Now,
    asked: impl Fn(&Urr) -> UsageReportTrigger,
) -> Vec<UsageReport> {
    let mut triggers: Vec<UsageReportTrigger> = urrs.iter().map(asked).collect();
    link(urrs, &mut triggers);
    let mut reports = Vec::new();
    for ((urr, meter), triggers) in urrs.iter_mut().zip(meters).zip(triggers) {
        take(urr, meter, now, triggers, &mut reports);
    }
    reports
}

fn link(urrs: &[Urr], triggers: &mut [UsageReportTrigger]) {
    let events = UsageReportTrigger::START.with(UsageReportTrigger::STOPT);
    let measures = |urr: &Urr, asked: UsageReportTrigger| {
        !urr.progress.due.with(asked).without(events).is_empty()
    };
    // Each round adds at least one URR, or is the last.
    for _ in 0..urrs.len() {
        let drawn: Vec<usize> = (0..urrs.len())
            .filter(|i| urrs[*i].triggers.has(ReportingTriggers::LIUSA))
            .filter(|i| !measures(&urrs[*i], triggers[*i]))
            .filter(|i| {
                let is_reported = |j: usize| measures(&urrs[j], triggers[j]);
                (0..urrs.len()).any(|j| urrs[*i].linked.contains(&urrs[j].id) && is_reported(j))
            })
            .collect();
        if drawn.is_empty() {
            return;
        }
        for i in drawn {
            triggers[i] = triggers[i].with(UsageReportTrigger::LIUSA);
        }
    }
}

/// Creates the usage reports of a response. `asked` returns the trigger of a URR:
/// [`UsageReportTrigger::IMMER`] if it was queried (clause 5.2.2.3.1),
/// [`UsageReportTrigger::TERMR`] if it or the session ends. Other due reports and those of linked
/// URRs are included. The session must be committed together with the response.
///
/// For exact final reports, lanes must not count any more: the session is withdrawn, or the
/// remaining rules are published, and all lanes have passed a turn.
pub fn collect_for_response<L: StateSlots + ?Sized>(
    urrs: &mut [Urr],
    version: u64,
    lines: &L,
    now: Now,
    asked: impl Fn(&Urr) -> UsageReportTrigger,
) -> Vec<UsageReport> {
    let meters: Vec<Meter> = urrs.iter().map(|urr| Meter::read(lines, urr, version)).collect();
    for (urr, meter) in urrs.iter_mut().zip(&meters) {
        settle(urr, meter, now);
    }
    if urrs.iter().all(|urr| asked(urr).is_empty()) {
        return Vec::new();
    }
    collect_all(urrs, &meters, now, asked)
}

/// Removes the downlink data notifications of PDRs that no longer buffer packets, so that buffering
/// is reported again. Called before each commit of a changed session.
pub fn forget_notified(session: &mut Session) {
    let (pdrs, fars) = (&session.pdrs, &session.fars);
    let is_held = |id: &u16| {
        let far = pdrs.iter().find(|pdr| pdr.id == *id).map(|pdr| pdr.far);
        let far = fars.iter().find(|it| Some(it.id) == far);
        far.is_some_and(|far| far.actions.buffer && far.actions.notify)
    };
    session.reporting.notified.retain(is_held);
}

/// Appends usage reports as IEs of type `ie_type` (tables 7.5.5.2-1, 7.5.7.2-1, 7.5.8.3-1). `query`
/// is the Query URR Reference of the request; it goes into the queried reports.
pub fn write_usage(
    to: &mut Writer<'_>,
    ie_type: IeType,
    reports: &[UsageReport],
    query: Option<u32>,
) {
    for report in reports {
        let query = query.filter(|_| report.triggers.has(UsageReportTrigger::IMMER));
        to.group(ie_type, |to| write_report(to, report, query));
    }
}

fn write_report(to: &mut Writer<'_>, report: &UsageReport, query: Option<u32>) {
    let events = UsageReportTrigger::START.with(UsageReportTrigger::STOPT);
    let is_event = report.triggers.has_any(events);
    to.put(&UrrId(report.urr));
    to.put(&UrSeqn(report.sequence));
    to.put(&report.triggers);
    if !is_event {
        to.put(&StartTime(ntp(report.since)));
        to.put(&EndTime(ntp(report.at)));
    }
    if report.measured & VOLUME != 0 {
        to.put(&volume(report));
    }
    if report.measured & DURATION != 0 {
        to.put(&DurationMeasurement(report.seconds));
    }
    if report.first != 0 {
        to.put(&TimeOfFirstPacket(ntp(report.first)));
    }
    if report.last != 0 {
        to.put(&TimeOfLastPacket(ntp(report.last)));
    }
    if report.information != 0 {
        to.put(&UsageInformation(report.information.into()));
    }
    to.maybe(query.map(QueryUrrReference).as_ref());
    if is_event {
        to.put(&EventTimeStamp(ntp(report.at)));
    }
}

fn volume(report: &UsageReport) -> VolumeMeasurement {
    let [up, up_packets, down, down_packets] = report.counts;
    let volumes = |up: u64, down: u64| Volumes {
        total: Some(up.saturating_add(down)),
        uplink: Some(up),
        downlink: Some(down),
    };
    let has_packets = report.measured & PACKETS != 0;
    let packets = if has_packets { volumes(up_packets, down_packets) } else { Volumes::default() };
    VolumeMeasurement { octets: volumes(up, down), packets }
}

/// Encodes the session report request for `report`: the same bytes each time.
#[must_use]
pub(super) fn report_request(session: &Session, report: &Unacknowledged) -> Vec<u8> {
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    let kind = bit(report.downlink.is_some(), ReportType::DLDR.0)
        | bit(!report.usage.is_empty(), ReportType::USAR.0)
        | bit(report.is_inactivity, ReportType::UPIR.0);
    request(session, report.message, kind, |to| {
        if let Some(data) = report.downlink {
            write_downlink(to, data);
        }
        write_usage(to, IeType::USAGE_REPORT_IN_REPORT, &report.usage, None);
    })
}

/// Encodes the session report request for an error indication.
#[must_use]
pub(super) fn error_request(session: &Session, sequence: u32, peer: IpAddr, teid: u32) -> Vec<u8> {
    let (v4, v6) = match peer {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    request(session, sequence, ReportType::ERIR.0, |to| {
        to.group(IeType::ERROR_INDICATION_REPORT, |to| {
            to.put(&FTeid { teid, v4, v6, choose_v4: false, choose_v6: false, choose_id: None });
        });
    })
}

fn request(
    session: &Session,
    sequence: u32,
    kind: u64,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let (kind, seid) = (ReportType(kind), session.cp_fseid.seid);
    let header = Header::session(MessageType::SESSION_REPORT_REQUEST, seid, sequence);
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).message(header, |to| {
        to.put(&kind);
        body(to);
    });
    bytes
}

fn write_downlink(to: &mut Writer<'_>, data: DownlinkData) {
    to.group(IeType::DOWNLINK_DATA_REPORT, |to| {
        to.put(&PdrId(data.pdr));
        let DownlinkData { qfi, dscp: paging_policy_indication, .. } = data;
        if qfi.is_some() || paging_policy_indication.is_some() {
            to.put(&DownlinkDataServiceInformation { paging_policy_indication, qfi });
        }
    });
}
