//! Update and removal of the rules of a session (TS 29.244 clause 7.5.4).

use super::Presence::{C, M, O};
use super::establishment::{ADDITIONAL_MONITORING_TIME, AGGREGATED_URRS, PDI};
use super::{Content, Element, Grammar, fields, group, octets};
use crate::IeType;
use crate::ie::*;

/// Table 7.5.4.2-1.
pub(super) static UPDATE_PDR: Grammar = Grammar::new(&[
    M.once(fields!(PdrId)),
    C.once(fields!(OuterHeaderRemoval)),
    C.once(fields!(Precedence)),
    C.once(group!(PDI, PDI)),
    C.once(fields!(FarId)),
    C.many(fields!(UrrId)),
    C.many(fields!(QerId)),
    C.many(fields!(ActivatePredefinedRules)),
    C.many(fields!(DeactivatePredefinedRules)),
    O.once(fields!(ActivationTime)),
    O.once(fields!(DeactivationTime)),
    O.many(octets!(IP_MULTICAST_ADDRESSING_INFO, 0)),
    O.once(octets!(TRANSPORT_DELAY_REPORTING, 0)),
    O.once(fields!(RatType)),
]);

/// Table 7.5.4.3-1.
pub(super) static UPDATE_FAR: Grammar = Grammar::new(&[
    M.once(fields!(FarId)),
    C.once(fields!(ApplyAction)),
    C.once(group!(UPDATE_FORWARDING_PARAMETERS, UPDATE_FORWARDING_PARAMETERS)),
    C.many(group!(UPDATE_DUPLICATING_PARAMETERS, UPDATE_DUPLICATING_PARAMETERS)),
    C.once(octets!(REDUNDANT_TRANSMISSION_FORWARDING, 0)),
    C.once(fields!(BarId)),
    O.many(octets!(ADD_MBS_UNICAST_PARAMETERS, 0)),
    O.many(octets!(REMOVE_MBS_UNICAST_PARAMETERS, 0)),
]);

/// Table 7.5.4.3-2.
static UPDATE_FORWARDING_PARAMETERS: Grammar = Grammar::new(&[
    C.once(fields!(DestinationInterface)),
    C.once(fields!(NetworkInstance)),
    C.once(fields!(RedirectInformation)),
    C.once(fields!(OuterHeaderCreation)),
    C.once(fields!(TransportLevelMarking)),
    C.once(fields!(ForwardingPolicy)),
    C.many(fields!(HeaderEnrichment)),
    C.once(fields!(PfcpsmreqFlags)),
    C.many(fields!(TrafficEndpointId)),
    C.once(fields!(ThreeGppInterfaceType)),
    C.once(fields!(DataNetworkAccessIdentifier)),
    O.once(octets!(IP_ADDRESS_AND_PORT_NUMBER_REPLACEMENT, 1)),
]);

/// Table 7.5.4.3-3.
static UPDATE_DUPLICATING_PARAMETERS: Grammar = Grammar::new(&[
    C.once(fields!(DestinationInterface)),
    C.once(fields!(OuterHeaderCreation)),
    C.once(fields!(TransportLevelMarking)),
    C.once(fields!(ForwardingPolicy)),
]);

/// Table 7.5.4.4-1.
pub(super) static UPDATE_URR: Grammar = Grammar::new(&[
    M.once(fields!(UrrId)),
    C.once(fields!(MeasurementMethod)),
    C.once(fields!(ReportingTriggers)),
    C.once(fields!(MeasurementPeriod)),
    C.once(fields!(VolumeThreshold)),
    C.once(fields!(VolumeQuota)),
    C.once(fields!(TimeThreshold)),
    C.once(fields!(TimeQuota)),
    C.once(fields!(EventThreshold)),
    C.once(fields!(EventQuota)),
    C.once(fields!(QuotaHoldingTime)),
    C.once(fields!(DroppedDlTrafficThreshold)),
    C.once(fields!(QuotaValidityTime)),
    C.once(fields!(MonitoringTime)),
    C.once(fields!(SubsequentVolumeThreshold)),
    C.once(fields!(SubsequentTimeThreshold)),
    C.once(fields!(SubsequentVolumeQuota)),
    C.once(fields!(SubsequentTimeQuota)),
    C.once(fields!(SubsequentEventThreshold)),
    C.once(fields!(SubsequentEventQuota)),
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
]);

/// Table 7.5.4.5-1.
pub(super) static UPDATE_QER: Grammar = Grammar::new(&[
    M.once(fields!(QerId)),
    C.once(fields!(QerCorrelationId)),
    C.once(fields!(GateStatus)),
    C.once(fields!(Mbr)),
    C.once(fields!(Gbr)),
    C.once(fields!(PacketRate)),
    C.once(fields!(DlFlowLevelMarking)),
    C.once(fields!(Qfi)),
    C.once(fields!(Rqi)),
    C.once(fields!(PagingPolicyIndicator)),
    O.once(fields!(AveragingWindow)),
    C.once(fields!(QerControlIndications)),
    C.once(octets!(QER_INDICATIONS, 1)),
]);

/// Table 7.5.4.6-1.
pub(super) static REMOVE_PDR: Grammar = Grammar::new(&[M.once(fields!(PdrId))]);

/// Table 7.5.4.7-1.
pub(super) static REMOVE_FAR: Grammar = Grammar::new(&[M.once(fields!(FarId))]);

/// Tables 7.5.4.8-1 and 7.5.4.10-1.
pub(super) static REMOVE_URR: Grammar = Grammar::new(&[M.once(fields!(UrrId))]);

/// Table 7.5.4.9-1.
pub(super) static REMOVE_QER: Grammar = Grammar::new(&[M.once(fields!(QerId))]);

/// Table 7.5.4.11-1.
pub(super) static UPDATE_BAR: Grammar = Grammar::new(&[
    M.once(fields!(BarId)),
    C.once(fields!(DownlinkDataNotificationDelay)),
    C.once(fields!(SuggestedBufferingPacketsCount)),
    C.once(octets!(MT_EDT_CONTROL_INFORMATION, 1)),
]);

/// Table 7.5.4.12-1.
pub(super) static REMOVE_BAR: Grammar = Grammar::new(&[M.once(fields!(BarId))]);

/// Table 7.5.4.13-1.
pub(super) static UPDATE_TRAFFIC_ENDPOINT: Grammar = Grammar::new(&[
    M.once(fields!(TrafficEndpointId)),
    C.once(fields!(FTeid)),
    O.once(fields!(NetworkInstance)),
    O.once(octets!(REDUNDANT_TRANSMISSION_DETECTION, 0)),
    C.many(fields!(UeIpAddress)),
    C.many(fields!(FramedRoute)),
    C.once(fields!(FramedRouting)),
    C.many(fields!(FramedIpv6Route)),
    C.many(fields!(Qfi)),
    O.once(fields!(ThreeGppInterfaceType)),
]);

/// Table 7.5.4.14-1.
pub(super) static REMOVE_TRAFFIC_ENDPOINT: Grammar =
    Grammar::new(&[M.once(fields!(TrafficEndpointId))]);
