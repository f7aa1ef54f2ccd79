//! Encoding of session reports.

use std::net::IpAddr;

use fastlane_pfcp::ie::{
    DownlinkDataServiceInformation, DurationMeasurement, EndTime, EventTimeStamp, FTeid, PdrId,
    QueryUrrReference, ReportType, StartTime, TimeOfFirstPacket, TimeOfLastPacket, UrSeqn, UrrId,
    UsageInformation, UsageReportTrigger, VolumeMeasurement, Volumes,
};
use fastlane_pfcp::{Header, IeType, MessageType, Writer};

use super::collect::{DURATION, PACKETS, VOLUME};
use crate::session::{DownlinkData, Session, Unacknowledged, UsageReport};
use crate::time::ntp;

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
