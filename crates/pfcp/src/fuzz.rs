//! Body of the fuzz target. It is here so that the tests can replay the corpus through it. Not for
//! applications: these functions panic when an invariant is violated.

use alloc::vec::Vec;

use crate::ie::*;
use crate::{Cause, Group, HeaderError, IeType, Message, MessageType, Writer};

/// Parses all messages of a datagram and checks the crate's invariants.
pub fn datagram(datagram: &[u8]) {
    let mut rest = datagram;
    loop {
        match Message::parse(rest) {
            Ok((message, after)) => {
                assert!(message.body.len() + after.len() < rest.len(), "it does not end");
                check_message(&message);
                rest = after;
            }
            Err(error) => return check_error(error),
        }
        if rest.is_empty() {
            return;
        }
    }
}

fn check_error(error: HeaderError) {
    match error {
        HeaderError::TooShort => {}
        HeaderError::Version { version, sequence, .. } => {
            assert!(version != 1 && sequence < 1 << 24);
        }
        HeaderError::Length(header) | HeaderError::SeidFlag(header) => {
            assert!(header.sequence < 1 << 24);
        }
    }
}

fn check_message(message: &Message<'_>) {
    let header = message.header;
    assert!(header.sequence < 1 << 24 && header.priority.is_none_or(|priority| priority < 16));
    let is_complete = message.ies().all(|ie| ie.is_ok());
    let verdict = message.check();
    if header.message_type.name().is_some() && header.message_type.0 != 11 {
        assert!(is_complete || verdict.is_err(), "a message that is cut short passes");
    }
    if let Err(fault) = verdict {
        assert!((66..=69).contains(&fault.cause.0), "{fault}");
    }
    // A parsed message must be encoded as it was.
    if is_complete {
        let mut copy = Vec::new();
        let mut writer = Writer::new(&mut copy);
        writer.message(header, |w| put_all(w, message));
        assert!(!writer.is_cut());
        let (again, rest) = Message::parse(&copy).expect("what is written can be read");
        assert!(again == *message && rest.is_empty(), "{header:?} is another message again");
    }
    walk(message.group(), 0);
}

fn put_all(w: &mut Writer<'_>, message: &Message<'_>) {
    for ie in message.ies().flatten() {
        let mut value = Vec::new();
        value.extend(ie.enterprise.into_iter().flat_map(u16::to_be_bytes));
        value.extend_from_slice(ie.value);
        w.raw(ie.ie_type, &value);
    }
}

/// Decodes all elements, at every depth of groups.
fn walk(group: Group<'_>, depth: usize) {
    for ie in group.ies().flatten() {
        assert!(ie.enterprise.is_some() == ie.ie_type.is_enterprise());
        let decoded = again(ie.ie_type, ie.value);
        if decoded.is_none() && depth < 6 {
            walk(Group::new(ie.value), depth + 1);
        }
    }
}

/// Decodes a value and encodes it again, if the type has fields. Decoding the result must give the
/// same fields.
#[must_use]
pub fn again(ie_type: IeType, value: &[u8]) -> Option<Result<Vec<u8>, Cause>> {
    macro_rules! each {
        ($($ie:ident)*) => {
            match ie_type {
                $(<$ie as Ie>::TYPE => Some($ie::decode(value).map(|ie| {
                    let mut copy = Vec::new();
                    ie.encode(&mut copy);
                    assert_eq!($ie::decode(&copy), Ok(ie), "{ie_type}: {copy:?}");
                    copy
                })),)*
                _ => None,
            }
        };
    }
    each! {
        ActivatePredefinedRules ActivationTime AdditionalUsageReportsInformation AggregatedUrrId
        AlternativeSmfIpAddress ApnDnn ApplicationId ApplicationInstanceId ApplyAction
        AveragingWindow BarId Cause CpFunctionFeatures CpPfcpEntityIpAddress
        DataNetworkAccessIdentifier DataStatus DeactivatePredefinedRules DeactivationTime
        DestinationInterface DlBufferingDuration DlBufferingSuggestedPacketCount DlDataPacketsSize
        DlFlowLevelMarking DownlinkDataNotificationDelay DownlinkDataServiceInformation
        DroppedDlTrafficThreshold DurationMeasurement EndTime EthernetFilterId
        EthernetFilterProperties EthernetInactivityTimer EthernetPduSessionInformation Ethertype
        EventQuota EventThreshold EventTimeStamp FSeid FTeid FailedRuleId FarId FlowInformation
        ForwardingPolicy FqCsid FramedIpv6Route FramedRoute FramedRouting GateStatus Gbr
        GracefulReleasePeriod HeaderEnrichment InactivityDetectionTime IpVersion LinkedUrrId Mbr
        MeasurementInformation MeasurementMethod MeasurementPeriod Metric MonitoringTime Multiplier
        NetworkInstance NodeId NodeReportType NumberOfReports OciFlags OffendingIe
        OuterHeaderCreation OuterHeaderRemoval PacketRate PagingPolicyIndicator PdnType PdrId
        PfcpAssociationReleaseRequest PfcpasreqFlags PfcpasrspFlags PfcpaureqFlags PfcpsdrspFlags
        PfcpsereqFlags PfcpsmreqFlags PfcpsrreqFlags PfcpsrrspFlags PfdContents Precedence
        PredefinedRulesName Proxying QerControlIndications QerCorrelationId QerId Qfi
        QueryUrrReference QuotaHoldingTime QuotaValidityTime RatType RecoveryTimeStamp
        RedirectInformation RemoteGtpUPeer ReportType ReportingTriggers Rqi SNssai SdfFilter
        SequenceNumber SmfSetId SourceInterface StartTime SubsequentEventQuota
        SubsequentEventThreshold SubsequentTimeQuota SubsequentTimeThreshold SubsequentVolumeQuota
        SubsequentVolumeThreshold SuggestedBufferingPacketsCount ThreeGppInterfaceType
        TimeOfFirstPacket TimeOfLastPacket TimeQuota TimeQuotaMechanism TimeThreshold Timer
        TrafficEndpointId TransportLevelMarking UeIpAddress UeIpAddressPoolIdentity
        UpFunctionFeatures UrSeqn UrrId UsageInformation UsageReportTrigger UserId
        UserPlaneInactivityTimer UserPlaneIpResourceInformation VolumeMeasurement VolumeQuota
        VolumeThreshold
    }
}

/// Checks `value` as the only element of a message of each type.
pub fn element(ie_type: IeType, value: &[u8]) {
    for message_type in (0..=u8::MAX).map(MessageType).filter(|message| message.name().is_some()) {
        let mut copy = Vec::new();
        let seid = message_type.is_session().then_some(1);
        let header = crate::Header { seid, ..crate::Header::node(message_type, 1) };
        Writer::new(&mut copy).message(header, |w| w.raw(ie_type, value));
        datagram(&copy);
    }
}
