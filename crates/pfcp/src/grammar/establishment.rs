//! Establishment of sessions, and the creation of their rules (TS 29.244 clauses 7.5.2 and 7.5.3).

use super::Presence::{C, M, O};
use super::session_reports::{LOAD, OVERLOAD};
use super::{Content, Element, Grammar, create_far, create_pdr, create_urr, fields, group, octets};
use crate::ie::*;
use crate::{Cause, IeType};

/// Table 7.5.2.1-1.
pub(super) static ESTABLISHMENT_REQUEST: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(FSeid)),
    M.many(group!(CREATE_PDR, CREATE_PDR)),
    M.many(group!(CREATE_FAR, CREATE_FAR)),
    C.many(group!(CREATE_URR, CREATE_URR)),
    C.many(group!(CREATE_QER, CREATE_QER)),
    O.many(group!(CREATE_BAR, CREATE_BAR)),
    C.many(group!(CREATE_TRAFFIC_ENDPOINT, CREATE_TRAFFIC_ENDPOINT)),
    C.once(fields!(PdnType)),
    C.many(fields!(FqCsid)),
    O.once(fields!(UserPlaneInactivityTimer)),
    O.once(fields!(UserId)),
    O.once(octets!(TRACE_INFORMATION, 8)),
    O.once(fields!(ApnDnn)),
    C.many(octets!(CREATE_MAR, 0)),
    O.once(fields!(PfcpsereqFlags)),
    O.once(octets!(CREATE_BRIDGE_INFO_FOR_TSC, 1)),
    O.many(octets!(CREATE_SRR, 0)),
    O.once(octets!(PROVIDE_ATSSS_CONTROL_INFORMATION, 0)),
    O.once(fields!(RecoveryTimeStamp)),
    O.once(fields!(SNssai)),
    O.once(octets!(PROVIDE_RDS_CONFIGURATION_INFORMATION, 0)),
    O.once(fields!(RatType)),
    O.many(octets!(L2TP_TUNNEL_INFORMATION, 0)),
    O.once(octets!(L2TP_SESSION_INFORMATION, 0)),
    O.once(octets!(GROUP_ID, 0)),
    O.once(octets!(MBS_SESSION_N4MB_CONTROL_INFORMATION, 0)),
    O.many(octets!(MBS_SESSION_N4_CONTROL_INFORMATION, 0)),
    O.many(octets!(DSCP_TO_PPI_CONTROL_INFORMATION, 0)),
]);

/// Table 7.5.3.1-1.
pub(super) static ESTABLISHMENT_RESPONSE: Grammar = Grammar::new(&[
    M.once(fields!(NodeId)),
    M.once(fields!(Cause)),
    C.once(fields!(OffendingIe)),
    C.once(fields!(FSeid)),
    C.many(group!(CREATED_PDR, CREATED_PDR)),
    O.once(group!(LOAD_CONTROL_INFORMATION, LOAD)),
    O.once(group!(OVERLOAD_CONTROL_INFORMATION, OVERLOAD)),
    C.many(fields!(FqCsid)),
    C.once(fields!(FailedRuleId)),
    C.many(group!(CREATED_TRAFFIC_ENDPOINT, CREATED_TRAFFIC_ENDPOINT)),
    C.once(octets!(CREATED_BRIDGE_INFO_FOR_TSC, 0)),
    O.once(octets!(ATSSS_CONTROL_PARAMETERS, 0)),
    O.once(octets!(RDS_CONFIGURATION_INFORMATION, 1)),
    C.many(group!(PARTIAL_FAILURE_INFORMATION, PARTIAL_FAILURE)),
    C.once(octets!(CREATED_L2TP_SESSION, 0)),
]);

/// Table 7.5.2.2-1.
pub(super) static CREATE_PDR: Grammar = Grammar::new(&[
    M.once(fields!(PdrId)),
    M.once(fields!(Precedence)),
    M.once(group!(PDI, PDI)),
    C.once(fields!(OuterHeaderRemoval)),
    C.once(fields!(FarId)),
    C.many(fields!(UrrId)),
    C.many(fields!(QerId)),
    C.many(fields!(ActivatePredefinedRules)),
    O.once(fields!(ActivationTime)),
    O.once(fields!(DeactivationTime)),
    C.once(octets!(MAR_ID, 2)),
    C.once(octets!(PACKET_REPLICATION_AND_DETECTION, 1)),
    O.many(octets!(IP_MULTICAST_ADDRESSING_INFO, 0)),
    O.many(fields!(UeIpAddressPoolIdentity)),
    C.once(octets!(MPTCP_APPLICABLE_INDICATION, 1)),
    O.once(octets!(TRANSPORT_DELAY_REPORTING, 0)),
    O.once(fields!(RatType)),
])
.when(create_pdr);

/// Table 7.5.2.2-2.
pub(super) static PDI: Grammar = Grammar::new(&[
    M.once(fields!(SourceInterface)),
    O.once(fields!(FTeid)),
    O.once(fields!(NetworkInstance)),
    O.once(octets!(REDUNDANT_TRANSMISSION_DETECTION, 0)),
    O.many(fields!(UeIpAddress)),
    C.many(fields!(TrafficEndpointId)),
    O.many(fields!(SdfFilter)),
    O.once(fields!(ApplicationId)),
    O.once(fields!(EthernetPduSessionInformation)),
    O.many(octets!(ETHERNET_PACKET_FILTER, 0)),
    O.many(fields!(Qfi)),
    O.many(fields!(FramedRoute)),
    O.once(fields!(FramedRouting)),
    O.many(fields!(FramedIpv6Route)),
    O.once(fields!(ThreeGppInterfaceType)),
    O.many(octets!(IP_MULTICAST_ADDRESSING_INFO, 0)),
    O.many(octets!(DNS_QUERY_FILTER, 1)),
    O.once(octets!(MBS_SESSION_IDENTIFIER, 1)),
    O.once(octets!(AREA_SESSION_ID, 2)),
]);

/// Table 7.5.2.3-1.
pub(super) static CREATE_FAR: Grammar = Grammar::new(&[
    M.once(fields!(FarId)),
    M.once(fields!(ApplyAction)),
    C.once(group!(FORWARDING_PARAMETERS, FORWARDING_PARAMETERS)),
    C.many(group!(DUPLICATING_PARAMETERS, DUPLICATING_PARAMETERS)),
    O.once(fields!(BarId)),
    C.once(octets!(REDUNDANT_TRANSMISSION_FORWARDING, 0)),
    O.once(octets!(MBS_MULTICAST_PARAMETERS, 0)),
    O.many(octets!(ADD_MBS_UNICAST_PARAMETERS, 0)),
])
.when(create_far);

/// Table 7.5.2.3-2.
static FORWARDING_PARAMETERS: Grammar = Grammar::new(&[
    M.once(fields!(DestinationInterface)),
    O.once(fields!(NetworkInstance)),
    C.once(fields!(RedirectInformation)),
    C.once(fields!(OuterHeaderCreation)),
    O.once(fields!(TransportLevelMarking)),
    C.once(fields!(ForwardingPolicy)),
    O.many(fields!(HeaderEnrichment)),
    C.many(fields!(TrafficEndpointId)),
    C.once(fields!(Proxying)),
    O.once(fields!(ThreeGppInterfaceType)),
    C.once(fields!(DataNetworkAccessIdentifier)),
    O.once(octets!(IP_ADDRESS_AND_PORT_NUMBER_REPLACEMENT, 1)),
]);

/// Table 7.5.2.3-3.
static DUPLICATING_PARAMETERS: Grammar = Grammar::new(&[
    M.once(fields!(DestinationInterface)),
    C.once(fields!(OuterHeaderCreation)),
    C.once(fields!(TransportLevelMarking)),
    C.once(fields!(ForwardingPolicy)),
]);

/// Table 7.5.2.4-1.
pub(super) static CREATE_URR: Grammar = Grammar::new(&[
    M.once(fields!(UrrId)),
    M.once(fields!(MeasurementMethod)),
    M.once(fields!(ReportingTriggers)),
    C.once(fields!(MeasurementPeriod)),
    C.once(fields!(VolumeThreshold)),
    C.once(fields!(VolumeQuota)),
    C.once(fields!(EventThreshold)),
    C.once(fields!(EventQuota)),
    C.once(fields!(TimeThreshold)),
    C.once(fields!(TimeQuota)),
    C.once(fields!(QuotaHoldingTime)),
    C.once(fields!(DroppedDlTrafficThreshold)),
    C.once(fields!(QuotaValidityTime)),
    O.once(fields!(MonitoringTime)),
    O.once(fields!(SubsequentVolumeThreshold)),
    O.once(fields!(SubsequentTimeThreshold)),
    O.once(fields!(SubsequentVolumeQuota)),
    O.once(fields!(SubsequentTimeQuota)),
    O.once(fields!(SubsequentEventThreshold)),
    O.once(fields!(SubsequentEventQuota)),
    C.once(fields!(InactivityDetectionTime)),
    C.many(fields!(LinkedUrrId)),
    C.once(fields!(MeasurementInformation)),
    C.once(fields!(TimeQuotaMechanism)),
    C.many(group!(AGGREGATED_URRS, AGGREGATED_URRS)),
    C.once(fields!(FarId)),
    C.once(fields!(EthernetInactivityTimer)),
    O.many(group!(ADDITIONAL_MONITORING_TIME, ADDITIONAL_MONITORING_TIME)),
    O.once(fields!(NumberOfReports)),
    O.many(fields!(ApplicationId)),
    O.many(fields!(SdfFilter)),
    O.once(fields!(UserPlaneInactivityTimer)),
])
.when(create_urr);

/// Table 7.5.2.4-2.
pub(super) static AGGREGATED_URRS: Grammar =
    Grammar::new(&[M.once(fields!(AggregatedUrrId)), M.once(fields!(Multiplier))]);

/// Table 7.5.2.4-3.
pub(super) static ADDITIONAL_MONITORING_TIME: Grammar = Grammar::new(&[
    M.once(fields!(MonitoringTime)),
    O.once(fields!(SubsequentVolumeThreshold)),
    O.once(fields!(SubsequentTimeThreshold)),
    O.once(fields!(SubsequentVolumeQuota)),
    O.once(fields!(SubsequentTimeQuota)),
    O.once(fields!(SubsequentEventThreshold)),
    O.once(fields!(SubsequentEventQuota)),
]);

/// Table 7.5.2.5-1.
pub(super) static CREATE_QER: Grammar = Grammar::new(&[
    M.once(fields!(QerId)),
    C.once(fields!(QerCorrelationId)),
    M.once(fields!(GateStatus)),
    C.once(fields!(Mbr)),
    C.once(fields!(Gbr)),
    C.once(fields!(PacketRate)),
    C.once(octets!(PACKET_RATE_STATUS, 1)),
    C.once(fields!(DlFlowLevelMarking)),
    C.once(fields!(Qfi)),
    C.once(fields!(Rqi)),
    C.once(fields!(PagingPolicyIndicator)),
    O.once(fields!(AveragingWindow)),
    C.once(fields!(QerControlIndications)),
    C.once(octets!(QER_INDICATIONS, 1)),
]);

/// Table 7.5.2.6-1.
pub(super) static CREATE_BAR: Grammar = Grammar::new(&[
    M.once(fields!(BarId)),
    C.once(fields!(DownlinkDataNotificationDelay)),
    C.once(fields!(SuggestedBufferingPacketsCount)),
    O.once(octets!(MT_EDT_CONTROL_INFORMATION, 1)),
]);

/// Table 7.5.2.7-1.
pub(super) static CREATE_TRAFFIC_ENDPOINT: Grammar = Grammar::new(&[
    M.once(fields!(TrafficEndpointId)),
    O.once(fields!(FTeid)),
    O.once(fields!(NetworkInstance)),
    O.once(octets!(REDUNDANT_TRANSMISSION_DETECTION, 0)),
    O.many(fields!(UeIpAddress)),
    O.once(fields!(EthernetPduSessionInformation)),
    O.many(fields!(FramedRoute)),
    O.once(fields!(FramedRouting)),
    O.many(fields!(FramedIpv6Route)),
    O.many(fields!(Qfi)),
    O.once(fields!(ThreeGppInterfaceType)),
    O.many(octets!(IP_MULTICAST_ADDRESSING_INFO, 0)),
]);

/// Tables 7.5.3.2-1 and 7.5.5.5-1.
pub(super) static CREATED_PDR: Grammar =
    Grammar::new(&[M.once(fields!(PdrId)), C.many(fields!(FTeid)), C.many(fields!(UeIpAddress))]);

/// Table 7.5.3.5-1.
pub(super) static CREATED_TRAFFIC_ENDPOINT: Grammar = Grammar::new(&[
    M.once(fields!(TrafficEndpointId)),
    C.many(fields!(FTeid)),
    C.many(fields!(UeIpAddress)),
]);

/// Table 7.5.3.1-2.
pub(super) static PARTIAL_FAILURE: Grammar = Grammar::new(&[
    M.once(fields!(FailedRuleId)),
    M.once(fields!(Cause)),
    C.many(octets!(OFFENDING_IE_INFORMATION, 2)),
]);
