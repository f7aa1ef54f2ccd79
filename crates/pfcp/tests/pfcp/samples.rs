//! One message of each type, with all elements that it may contain and that have fields here.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::*;
use fastlane_pfcp::{Cause, Header, IeType, MessageType, Writer};

pub(crate) const V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
pub(crate) const V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9);
const NODE: NodeId<'static> = NodeId::V4(V4);
const LABELS: &[u8] = b"\x03upf\x07example";

/// Returns the name and the octets of every sample.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = node();
    all.extend(session());
    all
}

fn make(message_type: MessageType, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let header = if message_type.is_session() {
        Header::session(message_type, 0x0102_0304_0506_0708, 0x00ab_cdef)
    } else {
        Header::node(message_type, 0x00ab_cdef)
    };
    let mut datagram = Vec::new();
    let mut writer = Writer::new(&mut datagram);
    writer.message(header, body);
    assert!(!writer.is_cut());
    datagram
}

fn node() -> Vec<(&'static str, Vec<u8>)> {
    use MessageType as T;
    let refusal = |w: &mut Writer<'_>| {
        w.put(&NodeId::Name(LABELS));
        w.put(&Cause::MANDATORY_IE_MISSING);
        w.put(&OffendingIe(IeType::NODE_ID.0));
    };
    vec![
        ("heartbeat-request", make(T::HEARTBEAT_REQUEST, |w| w.put(&RecoveryTimeStamp(1 << 31)))),
        ("heartbeat-response", make(T::HEARTBEAT_RESPONSE, |w| w.put(&RecoveryTimeStamp(5)))),
        ("pfd-management-request", make(T::PFD_MANAGEMENT_REQUEST, pfd_management)),
        (
            "pfd-management-response",
            make(T::PFD_MANAGEMENT_RESPONSE, |w| {
                w.put(&Cause::SERVICE_NOT_SUPPORTED);
                w.put(&OffendingIe(58));
                w.put(&NODE);
            }),
        ),
        ("association-setup-request", make(T::ASSOCIATION_SETUP_REQUEST, association_setup)),
        ("association-setup-response", make(T::ASSOCIATION_SETUP_RESPONSE, association_response)),
        ("association-update-request", make(T::ASSOCIATION_UPDATE_REQUEST, association_update)),
        (
            "association-update-response",
            make(T::ASSOCIATION_UPDATE_RESPONSE, |w| {
                w.put(&NodeId::V6(V6));
                w.put(&Cause::REQUEST_ACCEPTED);
                w.put(&CpFunctionFeatures::LOAD);
            }),
        ),
        ("association-release-request", make(T::ASSOCIATION_RELEASE_REQUEST, |w| w.put(&NODE))),
        ("association-release-response", make(T::ASSOCIATION_RELEASE_RESPONSE, refusal)),
        ("version-not-supported", make(T::VERSION_NOT_SUPPORTED_RESPONSE, |_| {})),
        ("node-report-request", make(T::NODE_REPORT_REQUEST, node_report)),
        ("node-report-response", make(T::NODE_REPORT_RESPONSE, refusal)),
        (
            "session-set-deletion-request",
            make(T::SESSION_SET_DELETION_REQUEST, |w| {
                w.put(&NODE);
                fq_csids(w);
            }),
        ),
        ("session-set-deletion-response", make(T::SESSION_SET_DELETION_RESPONSE, refusal)),
        (
            "session-set-modification-request",
            make(T::SESSION_SET_MODIFICATION_REQUEST, |w| {
                w.put(&NODE);
                w.group(IeType::PFCP_SESSION_CHANGE_INFO, |w| {
                    fq_csids(w);
                    w.put(&AlternativeSmfIpAddress { v4: Some(V4), ..Default::default() });
                });
            }),
        ),
        ("session-set-modification-response", make(T::SESSION_SET_MODIFICATION_RESPONSE, refusal)),
    ]
}

fn session() -> Vec<(&'static str, Vec<u8>)> {
    use MessageType as T;
    vec![
        ("session-establishment-request", make(T::SESSION_ESTABLISHMENT_REQUEST, establishment)),
        ("session-establishment-typical", make(T::SESSION_ESTABLISHMENT_REQUEST, typical)),
        ("session-establishment-response", make(T::SESSION_ESTABLISHMENT_RESPONSE, established)),
        ("session-modification-request", make(T::SESSION_MODIFICATION_REQUEST, modification)),
        ("session-modification-response", make(T::SESSION_MODIFICATION_RESPONSE, modified)),
        ("session-deletion-request", make(T::SESSION_DELETION_REQUEST, |_| {})),
        ("session-deletion-response", make(T::SESSION_DELETION_RESPONSE, deleted)),
        ("session-report-request", make(T::SESSION_REPORT_REQUEST, report)),
        ("session-report-response", make(T::SESSION_REPORT_RESPONSE, report_response)),
    ]
}

fn fq_csids(w: &mut Writer<'_>) {
    let v4 = V4.octets();
    let numbers = &[0, 5, 1, 6];
    w.put(&FqCsid { node_id_type: 0, node: &v4, numbers, node_type: Some(1) });
    let v6 = V6.octets();
    w.put(&FqCsid { node_id_type: 1, node: &v6, numbers: &[0, 9], node_type: Some(5) });
}

fn pfd_management(w: &mut Writer<'_>) {
    w.group(IeType::APPLICATION_IDS_PFDS, |w| {
        w.put(&ApplicationId(b"video"));
        w.group(IeType::PFD_CONTEXT, |w| {
            w.put(&PfdContents {
                flow_description: Some(b"permit out ip from 198.51.100.0/24 to assigned"),
                url: Some(b"https://example.org/*"),
                domain_name: Some(b"example.org"),
                custom: Some(b"x"),
                ..Default::default()
            });
        });
    });
    w.put(&NODE);
}

fn association_setup(w: &mut Writer<'_>) {
    w.put(&NodeId::Name(LABELS));
    w.put(&RecoveryTimeStamp(3_900_000_000));
    w.put(&(UpFunctionFeatures::FTUP | UpFunctionFeatures::UEIP | UpFunctionFeatures::UPIDP));
    w.put(&(CpFunctionFeatures::LOAD | CpFunctionFeatures::RPGUR));
    w.put(&UserPlaneIpResourceInformation {
        teid_range: Some((3, 0x60)),
        v4: Some(V4),
        v6: Some(V6),
        instance: Some(NetworkInstance(b"internet")),
        source: Some(SourceInterface::CORE),
    });
    w.group(IeType::UE_IP_ADDRESS_POOL_INFORMATION, |w| {
        w.put(&UeIpAddressPoolIdentity(b"pool-1"));
        w.put(&NetworkInstance(b"internet"));
        w.put(&SNssai { sst: 1, sd: 0x00ff_ee01 });
        w.put(&IpVersion { v4: true, v6: true });
    });
    w.put(&AlternativeSmfIpAddress { v4: Some(V4), v6: Some(V6), is_preferred: true });
    w.put(&SmfSetId(b"\x03set\x03smf"));
    w.group(IeType::PFCP_SESSION_RETENTION_INFORMATION, |w| {
        w.put(&CpPfcpEntityIpAddress { v4: Some(V4), v6: Some(V6) });
    });
    w.put(&PfcpasreqFlags::UUPSI);
}

fn association_response(w: &mut Writer<'_>) {
    w.put(&NodeId::V6(V6));
    w.put(&Cause::REQUEST_ACCEPTED);
    w.put(&RecoveryTimeStamp(3_900_000_001));
    w.put(&UpFunctionFeatures(0x003f_ffff_ffff_ffff));
    w.put(&PfcpasrspFlags::PSREI);
}

fn association_update(w: &mut Writer<'_>) {
    w.put(&NODE);
    w.put(&UpFunctionFeatures::BUCP);
    w.put(&PfcpAssociationReleaseRequest::SARR);
    w.put(&GracefulReleasePeriod(Duration5::at_least(3600)));
    w.put(&PfcpaureqFlags::PARPS);
}

fn node_report(w: &mut Writer<'_>) {
    w.put(&NODE);
    w.put(&(NodeReportType::UPFR | NodeReportType::UPRR));
    for report in [IeType::USER_PLANE_PATH_FAILURE_REPORT, IeType::USER_PLANE_PATH_RECOVERY_REPORT]
    {
        w.group(report, |w| {
            w.put(&RemoteGtpUPeer {
                v4: Some(V4),
                destination: Some(DestinationInterface::ACCESS),
                instance: Some(NetworkInstance(b"access")),
                ..Default::default()
            });
            w.put(&RemoteGtpUPeer { v6: Some(V6), ..Default::default() });
        });
    }
}

/// Writes an establishment as control plane functions send it: two PDRs and FARs, a QER, a URR.
fn typical(w: &mut Writer<'_>) {
    w.put(&NODE);
    w.put(&FSeid { seid: 0x0102_0304_0506_0708, v4: Some(V4), v6: None });
    typical_pdrs(w);
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&FarId(1));
        w.put(&ApplyAction::FORW);
        w.group(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(&DestinationInterface::CORE);
            w.put(&NetworkInstance(b"internet"));
        });
    });
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&FarId(2));
        w.put(&ApplyAction::FORW);
        w.group(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(&DestinationInterface::ACCESS);
            w.put(&OuterHeaderCreation::gtp_u_v4(0x0a0b_0c0d, V4));
        });
    });
    w.group(IeType::CREATE_URR, |w| {
        w.put(&UrrId(1));
        w.put(&MeasurementMethod::VOLUM);
        w.put(&ReportingTriggers::VOLTH);
        w.put(&VolumeThreshold(Volumes { total: Some(1 << 30), ..Default::default() }));
    });
    w.group(IeType::CREATE_QER, |w| {
        w.put(&QerId(1));
        w.put(&GateStatus { uplink: Gate::Open, downlink: Gate::Open });
        w.put(&Mbr { uplink: 100_000, downlink: 1_000_000 });
        w.put(&Qfi(9));
    });
    w.put(&PdnType::IPV4);
}

fn typical_pdrs(w: &mut Writer<'_>) {
    let user = UeIpAddress { v4: Some(Ipv4Addr::new(10, 1, 2, 3)), ..Default::default() };
    w.group(IeType::CREATE_PDR, |w| {
        w.put(&PdrId(1));
        w.put(&Precedence(255));
        w.group(IeType::PDI, |w| {
            w.put(&SourceInterface::ACCESS);
            w.put(&FTeid { choose_v4: true, ..Default::default() });
            w.put(&NetworkInstance(b"access"));
            w.put(&user);
            w.put(&Qfi(9));
        });
        w.put(&OuterHeaderRemoval::default());
        w.put(&FarId(1));
        w.put(&UrrId(1));
        w.put(&QerId(1));
    });
    w.group(IeType::CREATE_PDR, |w| {
        w.put(&PdrId(2));
        w.put(&Precedence(255));
        w.group(IeType::PDI, |w| {
            w.put(&SourceInterface::CORE);
            w.put(&NetworkInstance(b"internet"));
            w.put(&UeIpAddress { is_destination: true, ..user });
        });
        w.put(&FarId(2));
        w.put(&UrrId(1));
        w.put(&QerId(1));
    });
}

fn establishment(w: &mut Writer<'_>) {
    w.put(&NODE);
    w.put(&FSeid { seid: 7, v4: Some(V4), v6: Some(V6) });
    w.group(IeType::CREATE_PDR, create_pdr);
    w.group(IeType::CREATE_FAR, create_far);
    w.group(IeType::CREATE_URR, create_urr);
    w.group(IeType::CREATE_QER, create_qer);
    w.group(IeType::CREATE_BAR, |w| {
        w.put(&BarId(4));
        w.put(&DownlinkDataNotificationDelay(20));
        w.put(&SuggestedBufferingPacketsCount(64));
    });
    w.group(IeType::CREATE_TRAFFIC_ENDPOINT, |w| {
        w.put(&TrafficEndpointId(3));
        w.put(&FTeid {
            choose_v4: true,
            choose_v6: true,
            choose_id: Some(5),
            ..Default::default()
        });
        w.put(&NetworkInstance(b"access"));
        w.put(&UeIpAddress { choose_v4: true, choose_v6: true, ..Default::default() });
        w.put(&FramedRoute(b"203.0.113.0/24 0.0.0.0 1"));
        w.put(&FramedRouting(3));
        w.put(&FramedIpv6Route(b"2001:db8:1::/48 :: 1"));
    });
    w.put(&PdnType::IPV4V6);
    fq_csids(w);
    w.put(&UserPlaneInactivityTimer(600));
    w.put(&UserId {
        imsi: Some(&[0x00, 0x01, 0x01, 0x21, 0x43, 0x65, 0x87, 0xf9]),
        imei: Some(&[0x53, 0x61, 0x20, 0x00, 0x91, 0x78, 0x84, 0x00]),
        msisdn: Some(&[0x21, 0x43, 0x65]),
        nai: Some(b"user@example.org"),
        supi: Some(b"imsi-001010123456789"),
        gpsi: Some(b"msisdn-123456"),
        pei: Some(b"imei-353456789012347"),
    });
    w.put(&ApnDnn(b"\x08internet"));
    w.put(&PfcpsereqFlags::RESTI);
    w.put(&RecoveryTimeStamp(3_900_000_000));
    w.put(&SNssai { sst: 1, sd: 0x00ff_ee01 });
    w.put(&RatType(10));
}

fn create_pdr(w: &mut Writer<'_>) {
    w.put(&PdrId(1));
    w.put(&Precedence(32));
    w.group(IeType::PDI, |w| {
        w.put(&SourceInterface::ACCESS);
        w.put(&FTeid { teid: 0x0102_0304, v4: Some(V4), v6: Some(V6), ..Default::default() });
        w.put(&NetworkInstance(b"access"));
        w.put(&UeIpAddress {
            v4: Some(V4),
            v6: Some(V6),
            prefix_delegation_bits: Some(8),
            prefix_length: Some(56),
            ..Default::default()
        });
        w.put(&TrafficEndpointId(3));
        w.put(&SdfFilter {
            flow_description: Some(b"permit out 17 from any 53 to assigned"),
            tos_traffic_class: Some([0xb8, 0xfc]),
            security_parameter_index: Some(0x0001_0203),
            flow_label: Some(0x000a_bcde),
            filter_id: Some(77),
        });
        w.put(&SdfFilter { filter_id: Some(78), ..Default::default() });
        w.put(&ApplicationId(b"video"));
        w.put(&EthernetPduSessionInformation::ETHI);
        w.put(&Qfi(9));
        w.put(&Qfi(63));
        w.put(&FramedRoute(b"203.0.113.0/24 0.0.0.0 1"));
        w.put(&FramedRouting(1));
        w.put(&FramedIpv6Route(b"2001:db8:1::/48 :: 1"));
        w.put(&ThreeGppInterfaceType::N3);
    });
    w.put(&OuterHeaderRemoval { description: 6, extension_headers: 1 });
    w.put(&FarId(1));
    w.put(&UrrId(1));
    w.put(&UrrId(0x8000_0002));
    w.put(&QerId(1));
    w.put(&ActivatePredefinedRules(b"gold"));
    w.put(&ActivationTime(3_900_000_000));
    w.put(&DeactivationTime(3_900_000_100));
    w.put(&UeIpAddressPoolIdentity(b"pool-1"));
    w.put(&RatType(10));
}

fn create_far(w: &mut Writer<'_>) {
    w.put(&FarId(1));
    w.put(&(ApplyAction::FORW | ApplyAction::DUPL));
    w.group(IeType::FORWARDING_PARAMETERS, |w| {
        w.put(&DestinationInterface::CORE);
        w.put(&NetworkInstance(b"internet"));
        w.put(&RedirectInformation {
            address_type: RedirectAddress::Url,
            address: b"http://portal.example.org/",
            other: b"",
        });
        w.put(&OuterHeaderCreation {
            description: OuterHeaderCreation::GTP_U_UDP_IPV4
                | OuterHeaderCreation::GTP_U_UDP_IPV6
                | OuterHeaderCreation::N19,
            teid: Some(0x0a0b_0c0d),
            v4: Some(V4),
            v6: Some(V6),
            ..Default::default()
        });
        w.put(&TransportLevelMarking { value: 0xb8, mask: 0xfc });
        w.put(&ForwardingPolicy(b"policy"));
        w.put(&HeaderEnrichment { header_type: 0, name: b"X-User", value: b"12" });
        w.put(&TrafficEndpointId(3));
        w.put(&(Proxying::ARP | Proxying::INS));
        w.put(&ThreeGppInterfaceType::N6);
        w.put(&DataNetworkAccessIdentifier(b"edge-1"));
    });
    w.group(IeType::DUPLICATING_PARAMETERS, |w| {
        w.put(&DestinationInterface::LI_FUNCTION);
        w.put(&OuterHeaderCreation {
            description: OuterHeaderCreation::UDP_IPV4,
            v4: Some(V4),
            port: Some(4000),
            ..Default::default()
        });
        w.put(&TransportLevelMarking { value: 0, mask: 0xfc });
        w.put(&ForwardingPolicy(b"copy"));
    });
    w.put(&BarId(4));
}

fn create_urr(w: &mut Writer<'_>) {
    let volumes = Volumes { total: Some(3 << 40), uplink: Some(1 << 40), downlink: Some(2) };
    w.put(&UrrId(1));
    w.put(&(MeasurementMethod::VOLUM | MeasurementMethod::DURAT | MeasurementMethod::EVENT));
    w.put(&ReportingTriggers(0x0003_ffff));
    w.put(&MeasurementPeriod(60));
    w.put(&VolumeThreshold(volumes));
    w.put(&VolumeQuota(volumes));
    w.put(&EventThreshold(10));
    w.put(&EventQuota(20));
    w.put(&TimeThreshold(3600));
    w.put(&TimeQuota(7200));
    w.put(&QuotaHoldingTime(30));
    w.put(&DroppedDlTrafficThreshold { packets: Some(5), octets: Some(5000) });
    w.put(&QuotaValidityTime(86_400));
    w.put(&MonitoringTime(3_900_000_000));
    subsequent(w);
    w.put(&InactivityDetectionTime(10));
    w.put(&LinkedUrrId(2));
    w.put(&LinkedUrrId(3));
    w.put(&(MeasurementInformation::MBQE | MeasurementInformation::MNOP));
    w.put(&TimeQuotaMechanism { base_time_interval_type: 1, base_time_interval: 900 });
    w.group(IeType::AGGREGATED_URRS, |w| {
        w.put(&AggregatedUrrId(2));
        w.put(&Multiplier { digits: -3, exponent: -1 });
    });
    w.put(&FarId(2));
    w.put(&EthernetInactivityTimer(90));
    w.group(IeType::ADDITIONAL_MONITORING_TIME, |w| {
        w.put(&MonitoringTime(3_900_003_600));
        subsequent(w);
    });
    w.put(&NumberOfReports(12));
}

fn subsequent(w: &mut Writer<'_>) {
    let volumes = Volumes { uplink: Some(9), ..Default::default() };
    w.put(&SubsequentVolumeThreshold(volumes));
    w.put(&SubsequentTimeThreshold(100));
    w.put(&SubsequentVolumeQuota(volumes));
    w.put(&SubsequentTimeQuota(200));
    w.put(&SubsequentEventThreshold(3));
    w.put(&SubsequentEventQuota(4));
}

fn create_qer(w: &mut Writer<'_>) {
    w.put(&QerId(1));
    w.put(&QerCorrelationId(11));
    w.put(&GateStatus { uplink: Gate::Closed, downlink: Gate::Open });
    w.put(&Mbr { uplink: 1_000_000, downlink: (1 << 40) - 1 });
    w.put(&Gbr { uplink: 5000, downlink: 6000 });
    w.put(&PacketRate {
        uplink: Some(Rate { unit: 2, packets: 100 }),
        downlink: Some(Rate { unit: 3, packets: 200 }),
        // The additional rates are left out: tshark 4.0 does not know them.
        ..Default::default()
    });
    w.put(&DlFlowLevelMarking {
        tos_traffic_class: Some([0xb8, 0xfc]),
        service_class_indicator: Some([1, 2]),
    });
    w.put(&Qfi(9));
    w.put(&Rqi::RQI);
    w.put(&PagingPolicyIndicator(5));
    w.put(&AveragingWindow(2000));
    w.put(&QerControlIndications::RCSR);
}

fn load(w: &mut Writer<'_>) {
    w.group(IeType::LOAD_CONTROL_INFORMATION, |w| {
        w.put(&SequenceNumber(2));
        w.put(&Metric(40));
    });
    w.group(IeType::OVERLOAD_CONTROL_INFORMATION, |w| {
        w.put(&SequenceNumber(3));
        w.put(&Metric(30));
        w.put(&Timer(Duration5::at_least(20)));
        w.put(&OciFlags::AOCI);
    });
}

fn created(w: &mut Writer<'_>) {
    w.group(IeType::CREATED_PDR, |w| {
        w.put(&PdrId(1));
        w.put(&FTeid { teid: 0x0102_0304, v4: Some(V4), v6: Some(V6), ..Default::default() });
        w.put(&UeIpAddress { v4: Some(V4), is_destination: true, ..Default::default() });
    });
}

fn created_endpoint(w: &mut Writer<'_>) {
    w.group(IeType::CREATED_TRAFFIC_ENDPOINT, |w| {
        w.put(&TrafficEndpointId(3));
        w.put(&FTeid { teid: 0x0102_0305, v6: Some(V6), ..Default::default() });
        w.put(&UeIpAddress { v6: Some(V6), ..Default::default() });
    });
}

fn established(w: &mut Writer<'_>) {
    w.put(&NODE);
    w.put(&Cause::RULE_CREATION_MODIFICATION_FAILURE);
    w.put(&OffendingIe(108));
    w.put(&FSeid { seid: 0x1122_3344_5566_7788, v4: Some(V4), v6: None });
    created(w);
    load(w);
    w.put(&FailedRuleId::Pdr(1));
    created_endpoint(w);
}

fn modification(w: &mut Writer<'_>) {
    w.put(&FSeid { seid: 8, v4: None, v6: Some(V6) });
    w.group(IeType::REMOVE_PDR, |w| w.put(&PdrId(2)));
    w.group(IeType::REMOVE_FAR, |w| w.put(&FarId(2)));
    w.group(IeType::REMOVE_URR, |w| w.put(&UrrId(2)));
    w.group(IeType::REMOVE_QER, |w| w.put(&QerId(2)));
    w.group(IeType::REMOVE_BAR, |w| w.put(&BarId(2)));
    w.group(IeType::REMOVE_TRAFFIC_ENDPOINT, |w| w.put(&TrafficEndpointId(2)));
    w.group(IeType::CREATE_QER, create_qer);
    w.group(IeType::UPDATE_PDR, |w| {
        w.put(&PdrId(1));
        w.put(&OuterHeaderRemoval::default());
        w.put(&Precedence(31));
        w.group(IeType::PDI, |w| w.put(&SourceInterface::CORE));
        w.put(&FarId(1));
        w.put(&UrrId(1));
        w.put(&QerId(1));
        w.put(&ActivatePredefinedRules(b"gold"));
        w.put(&DeactivatePredefinedRules(b"silver"));
    });
    w.group(IeType::UPDATE_FAR, update_far);
    w.group(IeType::UPDATE_URR, create_urr);
    w.group(IeType::UPDATE_QER, create_qer);
    w.group(IeType::UPDATE_BAR, |w| {
        w.put(&BarId(4));
        w.put(&DownlinkDataNotificationDelay(1));
        w.put(&SuggestedBufferingPacketsCount(2));
    });
    w.group(IeType::UPDATE_TRAFFIC_ENDPOINT, |w| {
        w.put(&TrafficEndpointId(3));
        w.put(&Qfi(1));
    });
    w.put(&(PfcpsmreqFlags::DROBU | PfcpsmreqFlags::QAURR));
    w.group(IeType::QUERY_URR, |w| w.put(&UrrId(1)));
    w.put(&UserPlaneInactivityTimer(0));
    w.put(&QueryUrrReference(99));
    w.put(&NODE);
}

fn update_far(w: &mut Writer<'_>) {
    w.put(&FarId(1));
    w.put(&(ApplyAction::BUFF | ApplyAction::NOCP | ApplyAction::BDPN));
    w.group(IeType::UPDATE_FORWARDING_PARAMETERS, |w| {
        w.put(&DestinationInterface::ACCESS);
        w.put(&NetworkInstance(b"access"));
        w.put(&RedirectInformation {
            address_type: RedirectAddress::V4V6,
            address: b"192.0.2.1",
            other: b"2001:db8::1",
        });
        w.put(&OuterHeaderCreation::gtp_u_v6(5, V6));
        w.put(&TransportLevelMarking { value: 0xb8, mask: 0xfc });
        w.put(&ForwardingPolicy(b"policy"));
        w.put(&HeaderEnrichment { header_type: 0, name: b"X-User", value: b"12" });
        w.put(&PfcpsmreqFlags::SNDEM);
        w.put(&TrafficEndpointId(3));
        w.put(&ThreeGppInterfaceType::N9);
    });
    w.group(IeType::UPDATE_DUPLICATING_PARAMETERS, |w| w.put(&DestinationInterface::LI_FUNCTION));
    w.put(&BarId(4));
}

fn usage(w: &mut Writer<'_>) {
    w.put(&UrrId(1));
    w.put(&UrSeqn(6));
    w.put(&(UsageReportTrigger::VOLTH | UsageReportTrigger::TERMR | UsageReportTrigger::QUVTI));
    w.put(&StartTime(3_900_000_000));
    w.put(&EndTime(3_900_000_060));
    let volumes = Volumes { total: Some(3000), uplink: Some(1000), downlink: Some(2000) };
    let packets = Volumes { total: Some(3), uplink: Some(1), downlink: Some(2) };
    w.put(&VolumeMeasurement { octets: volumes, packets });
    w.put(&DurationMeasurement(60));
    w.put(&TimeOfFirstPacket(3_900_000_001));
    w.put(&TimeOfLastPacket(3_900_000_059));
    w.put(&(UsageInformation::BEF | UsageInformation::UAE));
    w.put(&QueryUrrReference(99));
    w.put(&EventTimeStamp(3_900_000_030));
}

fn modified(w: &mut Writer<'_>) {
    w.put(&Cause::REQUEST_ACCEPTED);
    created(w);
    load(w);
    w.group(IeType::USAGE_REPORT_IN_MODIFICATION, usage);
    w.put(&FailedRuleId::Qer(2));
    w.put(&AdditionalUsageReportsInformation { more: true, count: 3 });
    created_endpoint(w);
    w.group(IeType::UPDATED_PDR, |w| {
        w.put(&PdrId(4));
        w.put(&FTeid { teid: 6, v4: Some(V4), ..Default::default() });
    });
}

fn deleted(w: &mut Writer<'_>) {
    w.put(&Cause::MORE_USAGE_REPORT_TO_SEND);
    load(w);
    w.group(IeType::USAGE_REPORT_IN_DELETION, usage);
    w.put(&AdditionalUsageReportsInformation { more: true, count: 0 });
    w.put(&PfcpsdrspFlags::PURU);
}

fn report(w: &mut Writer<'_>) {
    let report_type = ReportType::DLDR | ReportType::USAR | ReportType::ERIR | ReportType::UPIR;
    w.put(&report_type);
    w.group(IeType::DOWNLINK_DATA_REPORT, |w| {
        w.put(&PdrId(2));
        w.put(&DownlinkDataServiceInformation { paging_policy_indication: Some(46), qfi: Some(9) });
        w.put(&DlDataPacketsSize(1500));
        w.put(&DataStatus::BUFF);
    });
    w.group(IeType::USAGE_REPORT_IN_REPORT, |w| {
        usage(w);
        w.group(IeType::APPLICATION_DETECTION_INFORMATION, |w| {
            w.put(&ApplicationId(b"video"));
            w.put(&ApplicationInstanceId(b"1"));
            w.put(&FlowInformation { direction: 1, description: b"permit out ip from any to any" });
            w.put(&PdrId(2));
        });
        w.put(&UeIpAddress { v4: Some(V4), ..Default::default() });
        w.put(&NetworkInstance(b"internet"));
    });
    w.group(IeType::ERROR_INDICATION_REPORT, |w| {
        w.put(&FTeid { teid: 0x0a0b_0c0d, v4: Some(V4), ..Default::default() });
    });
    load(w);
    w.put(&AdditionalUsageReportsInformation { more: true, count: 3 });
    w.put(&PfcpsrreqFlags::PSDBU);
    w.put(&FSeid { seid: 9, v4: Some(V4), v6: None });
}

fn report_response(w: &mut Writer<'_>) {
    w.put(&Cause::REQUEST_ACCEPTED);
    w.group(IeType::UPDATE_BAR_IN_REPORT, |w| {
        w.put(&BarId(4));
        w.put(&DownlinkDataNotificationDelay(2));
        w.put(&DlBufferingDuration(Duration5::at_least(601)));
        w.put(&DlBufferingSuggestedPacketCount(300));
        w.put(&SuggestedBufferingPacketsCount(16));
    });
    w.put(&PfcpsrrspFlags::DROBU);
    w.put(&FSeid { seid: 10, v4: Some(V4), v6: None });
    w.put(&NODE);
    w.put(&AlternativeSmfIpAddress { v6: Some(V6), ..Default::default() });
}

/// Returns malformed datagrams and messages with one fault.
pub(crate) fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let whole = make(MessageType::SESSION_ESTABLISHMENT_REQUEST, typical);
    let cut = |length: usize| whole[..length].to_vec();
    let changed = |at: usize, octet: u8| {
        let mut datagram = whole.clone();
        datagram[at] = octet;
        datagram
    };
    let mut bundle = make(MessageType::HEARTBEAT_REQUEST, |w| w.put(&RecoveryTimeStamp(1)));
    bundle[0] |= 4;
    bundle.extend_from_slice(&whole);
    vec![
        ("broken-bundle", bundle),
        ("broken-cut-3", cut(3)),
        ("broken-cut-15", cut(15)),
        ("broken-cut-60", cut(60)),
        (
            "broken-enterprise",
            make(MessageType::HEARTBEAT_REQUEST, |w| {
                w.raw(IeType(0x8001), &[0, 9, 1, 2, 3]);
                w.raw(IeType(0x8001), &[0]);
            }),
        ),
        ("broken-group-overrun", changed(whole.len() - 60, 0xff)),
        ("broken-length", changed(2, 0xff)),
        ("broken-no-seid", changed(0, 0x20)),
        ("broken-version", changed(0, 0x41)),
        ("broken-type", changed(1, 99)),
        (
            "broken-nested",
            make(MessageType::SESSION_ESTABLISHMENT_REQUEST, |w| {
                w.group(IeType::CREATE_PDR, |w| {
                    w.group(IeType::PDI, |w| w.raw(IeType::SDF_FILTER, &[1, 0, 0xff, 0xff]));
                });
            }),
        ),
    ]
}
