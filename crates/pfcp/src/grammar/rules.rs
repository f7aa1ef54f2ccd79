//! Creation of the rules of a session (TS 29.244 clause 7.5.2).

use super::Presence::{C, M, O};
use super::{Content, Element, Grammar, condition, fields, group, octets};
use crate::IeType;
use crate::ie::*;

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
.when(condition::create_pdr);

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
.when(condition::create_far);

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
.when(condition::create_urr);

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
