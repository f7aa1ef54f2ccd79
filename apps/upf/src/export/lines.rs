//! Format of the lines, version 1. `apps/upf/docs/usage-export.md` documents it.

use std::net::IpAddr;

use fastlane_pfcp::ie::UsageReportTrigger;
use serde::Serialize;

use crate::session::UsageReport;
use crate::time::{MILLISECOND, Now};
use crate::transactions::{Counts, ReportCarrier, SessionIdentity, UsageEvent, UsageRecord};
use crate::usage::{CountedPeriod, DURATION, VOLUME};

/// Name of the format in the first line.
const FORMAT: &str = "upf-usage";
/// Version of the format. Fields may be added without a new one.
const VERSION: u32 = 1;

/// Names of the Usage Report Triggers (TS 29.244 clause 8.2.41).
const TRIGGERS: [(UsageReportTrigger, &str); 16] = [
    (UsageReportTrigger::PERIO, "PERIO"),
    (UsageReportTrigger::VOLTH, "VOLTH"),
    (UsageReportTrigger::TIMTH, "TIMTH"),
    (UsageReportTrigger::QUHTI, "QUHTI"),
    (UsageReportTrigger::START, "START"),
    (UsageReportTrigger::STOPT, "STOPT"),
    (UsageReportTrigger::DROTH, "DROTH"),
    (UsageReportTrigger::IMMER, "IMMER"),
    (UsageReportTrigger::VOLQU, "VOLQU"),
    (UsageReportTrigger::TIMQU, "TIMQU"),
    (UsageReportTrigger::LIUSA, "LIUSA"),
    (UsageReportTrigger::TERMR, "TERMR"),
    (UsageReportTrigger::MONIT, "MONIT"),
    (UsageReportTrigger::TEBUR, "TEBUR"),
    (UsageReportTrigger::QUVTI, "QUVTI"),
    (UsageReportTrigger::EMRRE, "EMRRE"),
];

/// Writer of lines, which numbers them.
#[derive(Debug)]
pub(super) struct LineWriter {
    node_id: String,
    interval_s: Option<u32>,
    started_unix_ms: u64,
    count: u64,
}

/// First line of each connection.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Hello<'a> {
    r#type: &'static str,
    format: &'static str,
    version: u32,
    node_id: &'a str,
    time_unix_ms: u64,
    started_unix_ms: u64,
    interval_s: Option<u32>,
    next_number: u64,
}

/// Any other line.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Line<'a> {
    r#type: &'static str,
    number: u64,
    time_unix_ms: u64,
    seid: String,
    cp_seid: String,
    cp_address: IpAddr,
    supi: Option<&'a str>,
    dnn: Option<&'a str>,
    s_nssai: Option<String>,
    addresses: Vec<String>,
    established_unix_ms: u64,
    #[serde(flatten)]
    body: Body,
}

/// Fields of one type of line.
#[derive(Serialize)]
#[serde(untagged)]
enum Body {
    Start {},
    Usage(Usage),
    Interval(Interval),
    End(End),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Usage {
    message: &'static str,
    urr: u32,
    ur_seqn: u32,
    triggers: Vec<&'static str>,
    start_unix_ms: Option<u64>,
    end_unix_ms: u64,
    #[serde(flatten)]
    volume: MaybeVolume,
    duration_s: Option<u32>,
    first_packet_unix_ms: Option<u64>,
    last_packet_unix_ms: Option<u64>,
    monitoring_time: Option<&'static str>,
    is_before_qos_enforcement: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Interval {
    start_unix_ms: u64,
    end_unix_ms: u64,
    #[serde(flatten)]
    volume: Volume,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct End {
    reason: &'static str,
    unreported: Vec<Unreported>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Unreported {
    urr: u32,
    #[serde(flatten)]
    volume: Volume,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Volume {
    uplink_octets: u64,
    uplink_packets: u64,
    downlink_octets: u64,
    downlink_packets: u64,
}

/// Volume; all null if it was not measured.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct MaybeVolume {
    uplink_octets: Option<u64>,
    uplink_packets: Option<u64>,
    downlink_octets: Option<u64>,
    downlink_packets: Option<u64>,
}

impl From<Counts> for Volume {
    fn from([uplink_octets, uplink_packets, downlink_octets, downlink_packets]: Counts) -> Self {
        Self { uplink_octets, uplink_packets, downlink_octets, downlink_packets }
    }
}

impl MaybeVolume {
    fn of(counts: Counts, is_measured: bool) -> Self {
        let [uplink_octets, uplink_packets, downlink_octets, downlink_packets] =
            counts.map(|count| is_measured.then_some(count));
        Self { uplink_octets, uplink_packets, downlink_octets, downlink_packets }
    }
}

impl LineWriter {
    pub(super) fn new(node_id: &str, interval_s: Option<u32>, now: Now) -> Self {
        let node_id = node_id.to_owned();
        Self { node_id, interval_s, started_unix_ms: now.real / MILLISECOND, count: 0 }
    }

    /// Returns the number of lines.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the first line of a connection.
    pub(super) fn hello(&self, now: Now) -> Vec<u8> {
        encode(&Hello {
            r#type: "hello",
            format: FORMAT,
            version: VERSION,
            node_id: &self.node_id,
            time_unix_ms: now.real / MILLISECOND,
            started_unix_ms: self.started_unix_ms,
            interval_s: self.interval_s,
            next_number: self.count,
        })
    }

    /// Numbers the line of a record. Returns it if somebody reads it.
    pub(super) fn record(&mut self, record: &UsageRecord, now: Now, is_read: bool) -> Vec<u8> {
        if !is_read {
            self.count += 1;
            return Vec::new();
        }
        let (kind, body) = match &record.event {
            UsageEvent::Start => ("session-start", Body::Start {}),
            UsageEvent::Report(carrier, report) => ("usage", Body::Usage(usage(*carrier, report))),
            UsageEvent::End { is_deleted, unreported } => {
                let reason = if *is_deleted { "deleted" } else { "removed" };
                let unreported = unreported.iter();
                let unreported =
                    unreported.map(|&(urr, counts)| Unreported { urr, volume: counts.into() });
                ("session-end", Body::End(End { reason, unreported: unreported.collect() }))
            }
        };
        self.line(kind, &record.session, now, body)
    }

    /// Numbers the line of a session's usage in an interval. Returns it if somebody reads it.
    pub(super) fn interval(
        &mut self,
        session: &SessionIdentity,
        period: &CountedPeriod,
        now: Now,
        is_read: bool,
    ) -> Vec<u8> {
        if !is_read {
            self.count += 1;
            return Vec::new();
        }
        let body = Body::Interval(Interval {
            start_unix_ms: now.real_of(period.since) / MILLISECOND,
            end_unix_ms: now.real / MILLISECOND,
            volume: period.counts.into(),
        });
        self.line("interval", session, now, body)
    }

    fn line(
        &mut self,
        r#type: &'static str,
        session: &SessionIdentity,
        now: Now,
        body: Body,
    ) -> Vec<u8> {
        let number = self.count;
        self.count += 1;
        encode(&Line {
            r#type,
            number,
            time_unix_ms: now.real / MILLISECOND,
            seid: format!("{:#x}", session.seid),
            cp_seid: format!("{:#x}", session.cp_seid),
            cp_address: session.cp_address,
            supi: session.supi.as_deref(),
            dnn: session.dnn.as_deref(),
            s_nssai: session.s_nssai.map(|it| it.to_string()),
            addresses: session.users.iter().map(|user| address(user.0, user.1)).collect(),
            established_unix_ms: session.established / MILLISECOND,
            body,
        })
    }
}

/// Formats a UE address as the API does: IPv4 without a length, IPv6 with it.
fn address(address: IpAddr, length: u8) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("{address}/{length}"),
    }
}

/// Returns the fields of a usage report.
fn usage(carrier: ReportCarrier, report: &UsageReport) -> Usage {
    let known = |at: u64| (at != 0).then_some(at / MILLISECOND);
    let triggers = TRIGGERS.iter().filter(|(trigger, _)| report.triggers.has(*trigger));
    Usage {
        message: match carrier {
            ReportCarrier::ReportRequest => "session-report-request",
            ReportCarrier::ModificationResponse => "session-modification-response",
            ReportCarrier::DeletionResponse => "session-deletion-response",
        },
        urr: report.urr,
        ur_seqn: report.sequence,
        triggers: triggers.map(|(_, name)| *name).collect(),
        start_unix_ms: known(report.since),
        end_unix_ms: report.at / MILLISECOND,
        volume: MaybeVolume::of(report.counts, report.measured & VOLUME != 0),
        duration_s: (report.measured & DURATION != 0).then_some(report.seconds),
        first_packet_unix_ms: known(report.first),
        last_packet_unix_ms: known(report.last),
        monitoring_time: match report.information & 3 {
            1 => Some("before"),
            2 => Some("after"),
            _ => None,
        },
        is_before_qos_enforcement: report.information & 1 << 3 != 0,
    }
}

/// Encodes a line with its end.
fn encode(line: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default(); // strings and numbers only
    bytes.push(b'\n');
    bytes
}
