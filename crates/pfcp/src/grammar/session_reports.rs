//! Session reports (TS 29.244 clauses 7.5.8 and 7.5.9), and groups that other responses share.

use super::Presence::{C, M, O};
use super::{Content, Element, Grammar, fields, group, octets};
use crate::ie::*;
use crate::{Cause, IeType};

/// Table 7.5.8.1-1.
pub(super) static SESSION_REPORT_REQUEST: Grammar = Grammar::new(&[
    M.once(fields!(ReportType)),
    C.many(group!(DOWNLINK_DATA_REPORT, DOWNLINK_DATA_REPORT)),
    C.many(group!(USAGE_REPORT_IN_REPORT, USAGE_REPORT)),
    C.once(group!(ERROR_INDICATION_REPORT, ERROR_INDICATION_REPORT)),
    O.once(group!(LOAD_CONTROL_INFORMATION, LOAD)),
    O.once(group!(OVERLOAD_CONTROL_INFORMATION, OVERLOAD)),
    C.once(fields!(AdditionalUsageReportsInformation)),
    O.once(fields!(PfcpsrreqFlags)),
    O.once(fields!(FSeid)),
    C.many(octets!(PACKET_RATE_STATUS_REPORT, 0)),
    C.many(octets!(TSC_MANAGEMENT_INFORMATION_IN_REPORT, 0)),
    C.many(octets!(SESSION_REPORT, 0)),
    O.once(fields!(Cause)),
])
.when(super::session_report);

/// Table 7.5.8.2-1.
static DOWNLINK_DATA_REPORT: Grammar = Grammar::new(&[
    M.many(fields!(PdrId)),
    C.many(fields!(DownlinkDataServiceInformation)),
    C.once(fields!(DlDataPacketsSize)),
    C.once(fields!(DataStatus)),
]);

/// Usage report; a superset of tables 7.5.5.2-1, 7.5.7.2-1 and 7.5.8.3-1.
pub(super) static USAGE_REPORT: Grammar = Grammar::new(&[
    M.once(fields!(UrrId)),
    M.once(fields!(UrSeqn)),
    M.once(fields!(UsageReportTrigger)),
    C.once(fields!(StartTime)),
    C.once(fields!(EndTime)),
    C.once(fields!(VolumeMeasurement)),
    C.once(fields!(DurationMeasurement)),
    C.once(group!(APPLICATION_DETECTION_INFORMATION, APPLICATION_DETECTION_INFORMATION)),
    C.once(fields!(UeIpAddress)),
    C.once(fields!(NetworkInstance)),
    C.once(fields!(TimeOfFirstPacket)),
    C.once(fields!(TimeOfLastPacket)),
    C.once(fields!(UsageInformation)),
    C.once(fields!(QueryUrrReference)),
    C.many(fields!(EventTimeStamp)),
    C.once(octets!(ETHERNET_TRAFFIC_INFORMATION, 0)),
    C.many(octets!(JOIN_IP_MULTICAST_INFORMATION, 0)),
    C.many(octets!(LEAVE_IP_MULTICAST_INFORMATION, 0)),
]);

/// Table 7.5.8.3-2.
static APPLICATION_DETECTION_INFORMATION: Grammar = Grammar::new(&[
    M.once(fields!(ApplicationId)),
    C.once(fields!(ApplicationInstanceId)),
    C.once(fields!(FlowInformation)),
    O.once(fields!(PdrId)),
]);

/// Table 7.5.8.4-1.
static ERROR_INDICATION_REPORT: Grammar = Grammar::new(&[M.many(fields!(FTeid))]);

/// Table 7.5.3.3-1.
pub(super) static LOAD: Grammar =
    Grammar::new(&[M.once(fields!(SequenceNumber)), M.once(fields!(Metric))]);

/// Table 7.5.3.4-1.
pub(super) static OVERLOAD: Grammar = Grammar::new(&[
    M.once(fields!(SequenceNumber)),
    M.once(fields!(Metric)),
    M.once(fields!(Timer)),
    C.once(fields!(OciFlags)),
]);

/// Table 7.5.9.1-1.
pub(super) static SESSION_REPORT_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    C.many(group!(UPDATE_BAR_IN_REPORT, UPDATE_BAR_IN_REPORT)),
    C.once(fields!(PfcpsrrspFlags)),
    C.once(fields!(FSeid)),
    C.once(fields!(NodeId)),
    O.many(fields!(AlternativeSmfIpAddress)),
    C.many(fields!(FqCsid)),
    O.once(octets!(GROUP_ID, 0)),
]);

/// Table 7.5.9.2-1.
static UPDATE_BAR_IN_REPORT: Grammar = Grammar::new(&[
    M.once(fields!(BarId)),
    C.once(fields!(DownlinkDataNotificationDelay)),
    C.once(fields!(DlBufferingDuration)),
    O.once(fields!(DlBufferingSuggestedPacketCount)),
    C.once(fields!(SuggestedBufferingPacketsCount)),
]);
