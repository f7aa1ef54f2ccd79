//! Node messages (TS 29.244 clause 7.4).

use super::Presence::{C, M, O};
use super::{Content, Element, Grammar, fields, group, octets};
use crate::ie::*;
use crate::{Cause, IeType};

/// Table 7.4.2.1-1.
pub(super) static HEARTBEAT_REQUEST: Grammar =
    Grammar::new(&[M.once(fields!(RecoveryTimeStamp)), O.once(octets!(SOURCE_IP_ADDRESS, 1))]);

/// Table 7.4.2.2-1.
pub(super) static HEARTBEAT_RESPONSE: Grammar = Grammar::new(&[M.once(fields!(RecoveryTimeStamp))]);

/// Table 7.4.3.1-1.
pub(super) static PFD_MANAGEMENT_REQUEST: Grammar = Grammar::new(&[
    C.many(group!(APPLICATION_IDS_PFDS, APPLICATION_IDS_PFDS)),
    O.once(fields!(NodeId)),
]);

/// Table 7.4.3.1-2.
static APPLICATION_IDS_PFDS: Grammar =
    Grammar::new(&[M.once(fields!(ApplicationId)), C.many(group!(PFD_CONTEXT, PFD_CONTEXT))]);

/// Table 7.4.3.1-3.
static PFD_CONTEXT: Grammar = Grammar::new(&[M.many(fields!(PfdContents))]);

/// Table 7.4.3.2-1.
pub(super) static PFD_MANAGEMENT_RESPONSE: Grammar =
    Grammar::new(&[M.once(fields!(Cause)), C.once(fields!(OffendingIe)), O.once(fields!(NodeId))]);

/// Table 7.4.4.1-1.
pub(super) static ASSOCIATION_SETUP_REQUEST: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(RecoveryTimeStamp)),
    C.once(fields!(UpFunctionFeatures)),
    C.once(fields!(CpFunctionFeatures)),
    O.many(fields!(UserPlaneIpResourceInformation)),
    O.many(group!(UE_IP_ADDRESS_POOL_INFORMATION, UE_IP_ADDRESS_POOL_INFORMATION)),
    O.many(fields!(AlternativeSmfIpAddress)),
    C.once(fields!(SmfSetId)),
    O.once(group!(PFCP_SESSION_RETENTION_INFORMATION, SESSION_RETENTION_INFORMATION)),
    O.many(octets!(GTP_U_PATH_QOS_CONTROL_INFORMATION, 0)),
    O.many(octets!(CLOCK_DRIFT_CONTROL_INFORMATION, 0)),
    O.once(octets!(NF_INSTANCE_ID, 16)),
    O.once(fields!(PfcpasreqFlags)),
]);

/// Table 7.4.4.1-2.
static SESSION_RETENTION_INFORMATION: Grammar =
    Grammar::new(&[O.many(fields!(CpPfcpEntityIpAddress))]);

/// Table 7.4.4.1-3.
static UE_IP_ADDRESS_POOL_INFORMATION: Grammar = Grammar::new(&[
    M.many(fields!(UeIpAddressPoolIdentity)),
    O.once(fields!(NetworkInstance)),
    O.many(fields!(SNssai)),
    C.once(fields!(IpVersion)),
]);

/// Table 7.4.4.2-1.
pub(super) static ASSOCIATION_SETUP_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    M.once(fields!(RecoveryTimeStamp)),
    C.once(fields!(UpFunctionFeatures)),
    C.once(fields!(CpFunctionFeatures)),
    O.many(fields!(UserPlaneIpResourceInformation)),
    O.many(fields!(AlternativeSmfIpAddress)),
    C.once(fields!(SmfSetId)),
    O.once(fields!(PfcpasrspFlags)),
    O.many(octets!(CLOCK_DRIFT_CONTROL_INFORMATION, 0)),
    O.many(group!(UE_IP_ADDRESS_POOL_INFORMATION, UE_IP_ADDRESS_POOL_INFORMATION)),
    O.many(octets!(GTP_U_PATH_QOS_CONTROL_INFORMATION, 0)),
    O.once(octets!(NF_INSTANCE_ID, 16)),
]);

/// Table 7.4.4.3-1.
pub(super) static ASSOCIATION_UPDATE_REQUEST: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    O.once(fields!(UpFunctionFeatures)),
    O.once(fields!(CpFunctionFeatures)),
    C.once(fields!(PfcpAssociationReleaseRequest)),
    C.once(fields!(GracefulReleasePeriod)),
    O.many(fields!(UserPlaneIpResourceInformation)),
    O.once(fields!(PfcpaureqFlags)),
    O.many(fields!(AlternativeSmfIpAddress)),
    O.once(fields!(SmfSetId)),
    O.many(octets!(CLOCK_DRIFT_CONTROL_INFORMATION, 0)),
    O.many(group!(UE_IP_ADDRESS_POOL_INFORMATION, UE_IP_ADDRESS_POOL_INFORMATION)),
    O.many(octets!(GTP_U_PATH_QOS_CONTROL_INFORMATION, 0)),
    O.many(octets!(UE_IP_ADDRESS_USAGE_INFORMATION, 0)),
]);

/// Table 7.4.4.4-1.
pub(super) static ASSOCIATION_UPDATE_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    O.once(fields!(UpFunctionFeatures)),
    O.once(fields!(CpFunctionFeatures)),
    O.many(octets!(UE_IP_ADDRESS_USAGE_INFORMATION, 0)),
]);

/// Table 7.4.4.5-1.
pub(super) static ASSOCIATION_RELEASE_REQUEST: Grammar = Grammar::new(&[M.once(fields!(NodeId))]);

/// Responses with a Node ID and a Cause only: tables 7.4.4.6-1, 7.4.5.2.1-1, 7.4.6.2-1 and
/// 7.4.7.2-1.
pub(super) static NODE_RESPONSE: Grammar =
    Grammar::new(&[M.once(fields!(NodeId)), M.once(fields!(Cause)), C.once(fields!(OffendingIe))]);

/// Table 7.4.5.1.1-1.
pub(super) static NODE_REPORT_REQUEST: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(NodeReportType)),
    C.once(group!(USER_PLANE_PATH_FAILURE_REPORT, PEERS)),
    C.once(group!(USER_PLANE_PATH_RECOVERY_REPORT, PEERS)),
    C.many(octets!(CLOCK_DRIFT_REPORT, 0)),
    C.many(octets!(GTP_U_PATH_QOS_REPORT, 0)),
    C.once(group!(PEER_UP_RESTART_REPORT, PEERS)),
    C.many(octets!(VENDOR_SPECIFIC_NODE_REPORT_TYPE, 0)),
])
.when(super::node_report);

/// Tables 7.4.5.1.2-1 and 7.4.5.1.3-1.
static PEERS: Grammar = Grammar::new(&[M.many(fields!(RemoteGtpUPeer))]);

/// Table 7.4.6.1-1.
pub(super) static SESSION_SET_DELETION_REQUEST: Grammar =
    Grammar::new(&[M.once(fields!(NodeId)), C.many(fields!(FqCsid))]);

/// Table 7.4.7.1-1.
pub(super) static SESSION_SET_MODIFICATION: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.many(group!(PFCP_SESSION_CHANGE_INFO, SESSION_CHANGE_INFO)),
]);

/// Table 7.4.7.1-2.
static SESSION_CHANGE_INFO: Grammar = Grammar::new(&[
    C.many(fields!(FqCsid)),
    C.many(octets!(GROUP_ID, 0)),
    C.many(octets!(CP_IP_ADDRESS, 1)),
    M.once(fields!(AlternativeSmfIpAddress)),
]);
