//! Modification and deletion of sessions (TS 29.244 clauses 7.5.4 to 7.5.7).

use super::Presence::{C, M, O};
use super::establishment::{
    CREATE_BAR, CREATE_FAR, CREATE_PDR, CREATE_QER, CREATE_TRAFFIC_ENDPOINT, CREATE_URR,
    CREATED_PDR, CREATED_TRAFFIC_ENDPOINT, PARTIAL_FAILURE,
};
use super::session_reports::{LOAD, OVERLOAD, USAGE_REPORT};
use super::update::{
    REMOVE_BAR, REMOVE_FAR, REMOVE_PDR, REMOVE_QER, REMOVE_TRAFFIC_ENDPOINT, REMOVE_URR,
    UPDATE_BAR, UPDATE_FAR, UPDATE_PDR, UPDATE_QER, UPDATE_TRAFFIC_ENDPOINT, UPDATE_URR,
};
use super::{Content, Element, Grammar, fields, group, octets};
use crate::ie::*;
use crate::{Cause, IeType};

/// Table 7.5.4.1-1.
pub(super) static MODIFICATION_REQUEST: Grammar = Grammar::new(&[
    C.once(fields!(FSeid)),
    C.many(group!(REMOVE_PDR, REMOVE_PDR)),
    C.many(group!(REMOVE_FAR, REMOVE_FAR)),
    C.many(group!(REMOVE_URR, REMOVE_URR)),
    C.many(group!(REMOVE_QER, REMOVE_QER)),
    C.many(group!(REMOVE_BAR, REMOVE_BAR)),
    C.many(group!(REMOVE_TRAFFIC_ENDPOINT, REMOVE_TRAFFIC_ENDPOINT)),
    C.many(group!(CREATE_PDR, CREATE_PDR)),
    C.many(group!(CREATE_FAR, CREATE_FAR)),
    C.many(group!(CREATE_URR, CREATE_URR)),
    C.many(group!(CREATE_QER, CREATE_QER)),
    C.many(group!(CREATE_BAR, CREATE_BAR)),
    C.many(group!(CREATE_TRAFFIC_ENDPOINT, CREATE_TRAFFIC_ENDPOINT)),
    C.many(group!(UPDATE_PDR, UPDATE_PDR)),
    C.many(group!(UPDATE_FAR, UPDATE_FAR)),
    C.many(group!(UPDATE_URR, UPDATE_URR)),
    C.many(group!(UPDATE_QER, UPDATE_QER)),
    C.many(group!(UPDATE_BAR, UPDATE_BAR)),
    C.many(group!(UPDATE_TRAFFIC_ENDPOINT, UPDATE_TRAFFIC_ENDPOINT)),
    C.once(fields!(PfcpsmreqFlags)),
    C.many(group!(QUERY_URR, REMOVE_URR)),
    C.many(fields!(FqCsid)),
    C.once(fields!(UserPlaneInactivityTimer)),
    O.once(fields!(QueryUrrReference)),
    O.once(octets!(TRACE_INFORMATION, 0)),
    C.many(octets!(REMOVE_MAR, 0)),
    C.many(octets!(UPDATE_MAR, 0)),
    C.many(octets!(CREATE_MAR, 0)),
    C.once(fields!(NodeId)),
    C.many(octets!(TSC_MANAGEMENT_INFORMATION, 0)),
    C.many(octets!(REMOVE_SRR, 0)),
    C.many(octets!(CREATE_SRR, 0)),
    C.many(octets!(UPDATE_SRR, 0)),
    C.once(octets!(PROVIDE_ATSSS_CONTROL_INFORMATION, 0)),
    C.once(octets!(ACCESS_AVAILABILITY_INFORMATION, 1)),
    O.many(octets!(QUERY_PACKET_RATE_STATUS, 0)),
    O.once(fields!(SNssai)),
    O.once(fields!(RatType)),
    O.once(octets!(GROUP_ID, 0)),
]);

/// Table 7.5.5.1-1.
pub(super) static MODIFICATION_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    C.many(group!(CREATED_PDR, CREATED_PDR)),
    O.once(group!(LOAD_CONTROL_INFORMATION, LOAD)),
    O.once(group!(OVERLOAD_CONTROL_INFORMATION, OVERLOAD)),
    C.many(group!(USAGE_REPORT_IN_MODIFICATION, USAGE_REPORT)),
    C.once(fields!(FailedRuleId)),
    C.once(fields!(AdditionalUsageReportsInformation)),
    C.many(group!(CREATED_TRAFFIC_ENDPOINT, CREATED_TRAFFIC_ENDPOINT)),
    C.many(octets!(TSC_MANAGEMENT_INFORMATION_IN_RESPONSE, 0)),
    O.once(octets!(ATSSS_CONTROL_PARAMETERS, 0)),
    C.many(group!(UPDATED_PDR, CREATED_PDR)),
    C.many(octets!(PACKET_RATE_STATUS_REPORT_IN_MODIFICATION, 0)),
    C.many(group!(PARTIAL_FAILURE_INFORMATION, PARTIAL_FAILURE)),
]);

/// Table 7.5.6-1.
pub(super) static DELETION_REQUEST: Grammar =
    Grammar::new(&[O.once(fields!(FSeid)), O.once(fields!(NodeId))]);

/// Table 7.5.7.1-1.
pub(super) static DELETION_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    O.once(group!(LOAD_CONTROL_INFORMATION, LOAD)),
    O.once(group!(OVERLOAD_CONTROL_INFORMATION, OVERLOAD)),
    C.many(group!(USAGE_REPORT_IN_DELETION, USAGE_REPORT)),
    C.once(fields!(AdditionalUsageReportsInformation)),
    C.many(octets!(PACKET_RATE_STATUS_REPORT, 0)),
    C.many(octets!(SESSION_REPORT, 0)),
    O.once(fields!(PfcpsdrspFlags)),
]);
