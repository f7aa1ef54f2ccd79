//! Elements that are a number.

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

numbers! {
    /// Why a request was accepted or not (clause 8.2.1), as an element.
    CauseIe(u8) = CAUSE;
    /// The lowest value is looked at first (clause 8.2.11).
    Precedence(u32) = PRECEDENCE;
    /// Correlates QERs of sessions (clause 8.2.10).
    QerCorrelationId(u32) = QER_CORRELATION_ID;
    /// Seconds (clause 8.2.14).
    TimeThreshold(u32) = TIME_THRESHOLD;
    /// The time at which counting begins anew: seconds since 1900 (clause 8.2.15).
    MonitoringTime(u32) = MONITORING_TIME;
    /// Seconds (clause 8.2.17).
    SubsequentTimeThreshold(u32) = SUBSEQUENT_TIME_THRESHOLD;
    /// Seconds without traffic after which time stops being counted (clause 8.2.18).
    InactivityDetectionTime(u32) = INACTIVITY_DETECTION_TIME;
    /// The type of the element that is missing or wrong (clause 8.2.22).
    OffendingIe(u16) = OFFENDING_IE;
    /// So many times 50 ms (clause 8.2.28).
    DownlinkDataNotificationDelay(u8) = DOWNLINK_DATA_NOTIFICATION_DELAY;
    /// Grows with each load or overload control information that is new (clause 8.2.33).
    SequenceNumber(u32) = SEQUENCE_NUMBER;
    /// Percent: load, or how much of its messages a peer shall not send (clause 8.2.34).
    Metric(u8) = METRIC;
    /// The number of a PDR in its session (clause 8.2.36).
    PdrId(u16) = PDR_ID;
    /// Seconds (clause 8.2.42).
    MeasurementPeriod(u32) = MEASUREMENT_PERIOD;
    /// Seconds (clause 8.2.45).
    DurationMeasurement(u32) = DURATION_MEASUREMENT;
    /// Seconds since 1900 (clause 8.2.46).
    TimeOfFirstPacket(u32) = TIME_OF_FIRST_PACKET;
    /// Seconds since 1900 (clause 8.2.47).
    TimeOfLastPacket(u32) = TIME_OF_LAST_PACKET;
    /// Seconds without traffic after which a quota is given back (clause 8.2.48).
    QuotaHoldingTime(u32) = QUOTA_HOLDING_TIME;
    /// Seconds (clause 8.2.51).
    TimeQuota(u32) = TIME_QUOTA;
    /// Seconds since 1900 (clause 8.2.52).
    StartTime(u32) = START_TIME;
    /// Seconds since 1900 (clause 8.2.53).
    EndTime(u32) = END_TIME;
    /// The number of a URR in its session (clause 8.2.54). Bit 32 says that the rule is
    /// predefined in the UPF.
    UrrId(u32) = URR_ID;
    /// The URR whose report makes this one report too (clause 8.2.55).
    LinkedUrrId(u32) = LINKED_URR_ID;
    /// The number of a BAR in its session (clause 8.2.57).
    BarId(u8) = BAR_ID;
    /// When the node was started: seconds since 1900 (clause 8.2.65).
    RecoveryTimeStamp(u32) = RECOVERY_TIME_STAMP;
    /// Counts the reports of a URR (clause 8.2.71).
    UrSeqn(u32) = UR_SEQN;
    /// The number of a FAR in its session (clause 8.2.74). Bit 32 says that the rule is
    /// predefined in the UPF.
    FarId(u32) = FAR_ID;
    /// The number of a QER in its session (clause 8.2.75). Bit 32 says that the rule is
    /// predefined in the UPF.
    QerId(u32) = QER_ID;
    /// Seconds without traffic in a session after which the UPF says so (clause 8.2.83); 0 stops
    /// it.
    UserPlaneInactivityTimer(u32) = USER_PLANE_INACTIVITY_TIMER;
    /// A URR that counts together with others (clause 8.2.85).
    AggregatedUrrId(u32) = AGGREGATED_URR_ID;
    /// Seconds (clause 8.2.87).
    SubsequentTimeQuota(u32) = SUBSEQUENT_TIME_QUOTA;
    /// Pairs a query with the reports that it made (clause 8.2.90).
    QueryUrrReference(u32) = QUERY_URR_REFERENCE;
    /// The number of a traffic endpoint in its session (clause 8.2.92).
    TrafficEndpointId(u8) = TRAFFIC_ENDPOINT_ID;
    /// The type of an Ethernet frame (clause 8.2.96).
    Ethertype(u16) = ETHERTYPE;
    /// The number of an Ethernet filter in its session (clause 8.2.98).
    EthernetFilterId(u32) = ETHERNET_FILTER_ID;
    /// How many packets to buffer (clause 8.2.100).
    SuggestedBufferingPacketsCount(u8) = SUGGESTED_BUFFERING_PACKETS_COUNT;
    /// Seconds (clause 8.2.105).
    EthernetInactivityTimer(u32) = ETHERNET_INACTIVITY_TIMER;
    /// Events.
    EventQuota(u32) = EVENT_QUOTA;
    /// Events.
    EventThreshold(u32) = EVENT_THRESHOLD;
    /// Events.
    SubsequentEventQuota(u32) = SUBSEQUENT_EVENT_QUOTA;
    /// Events.
    SubsequentEventThreshold(u32) = SUBSEQUENT_EVENT_THRESHOLD;
    /// How routes are learned from the network behind a user (RFC 2865).
    FramedRouting(u32) = FRAMED_ROUTING;
    /// When an event was: seconds since 1900.
    EventTimeStamp(u32) = EVENT_TIME_STAMP;
    /// Milliseconds over which rates are averaged.
    AveragingWindow(u32) = AVERAGING_WINDOW;
    /// When a PDR begins to hold: seconds since 1900 (clause 8.2.121).
    ActivationTime(u32) = ACTIVATION_TIME;
    /// When a PDR ends to hold: seconds since 1900 (clause 8.2.122).
    DeactivationTime(u32) = DEACTIVATION_TIME;
    /// Seconds for which quotas are valid (clause 8.2.136).
    QuotaValidityTime(u32) = QUOTA_VALIDITY_TIME;
    /// How many reports.
    NumberOfReports(u16) = NUMBER_OF_REPORTS;
    /// Octets of buffered packets.
    DlDataPacketsSize(u16) = DL_DATA_PACKETS_SIZE;
    /// The radio access technology of the session.
    RatType(u8) = RAT_TYPE;
}

impl CauseIe {
    /// Its cause.
    #[must_use]
    pub const fn cause(self) -> Cause {
        Cause(self.0)
    }
}

impl OffendingIe {
    /// Its type.
    #[must_use]
    pub const fn ie_type(self) -> IeType {
        IeType(self.0)
    }
}

impl Ie<'_> for Cause {
    const TYPE: IeType = IeType::CAUSE;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        CauseIe::decode(value).map(CauseIe::cause)
    }

    fn encode(&self, to: &mut Vec<u8>) {
        to.push(self.0);
    }
}

small! {
    /// The QoS flow (clause 8.2.89).
    Qfi & 0x3f = QFI {}
    /// The paging policy indicator that downlink packets are marked with (clause 8.2.116).
    PagingPolicyIndicator & 0x07 = PAGING_POLICY_INDICATOR {}
    /// What the session carries (clause 8.2.79).
    PdnType & 0x07 = PDN_TYPE {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
        /// Both.
        IPV4V6 = 3,
        /// Neither IP nor Ethernet.
        NON_IP = 4,
        /// Ethernet.
        ETHERNET = 5,
    }
}

/// A time of five bits in a unit of three (clause 8.2.29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duration5(u8);

impl Duration5 {
    /// For ever.
    pub const INFINITE: Self = Self(0xe0);
    /// Units 0 to 4, in seconds.
    const UNITS: [u32; 5] = [2, 60, 600, 3600, 36_000];

    /// The shortest that is not shorter than that; for ever if none is.
    #[must_use]
    pub fn at_least(seconds: u32) -> Self {
        let fits = (0..).zip(Self::UNITS).find(|(_, unit)| seconds.div_ceil(*unit) < 32);
        match fits {
            Some((number, unit)) => {
                let value = u8::try_from(seconds.div_ceil(unit)).unwrap_or(31);
                Self(number << 5 | value)
            }
            None => Self::INFINITE,
        }
    }

    /// In seconds; nothing for ever. Units that are not defined are minutes.
    #[must_use]
    pub fn seconds(self) -> Option<u32> {
        let unit = match self.0 >> 5 {
            7 => return None,
            unit => Self::UNITS.get(usize::from(unit)).copied().unwrap_or(60),
        };
        Some(u32::from(self.0 & 0x1f) * unit)
    }
}

macro_rules! durations {
    ($($(#[$doc:meta])* $name:ident = $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub Duration5);

        impl Ie<'_> for $name {
            const TYPE: IeType = IeType::$type;

            fn decode(value: &[u8]) -> Result<Self, Cause> {
                let octet = value.first().ok_or(Cause::INVALID_LENGTH)?;
                Ok(Self(Duration5(*octet)))
            }

            fn encode(&self, to: &mut Vec<u8>) {
                to.push(self.0.0);
            }
        }
    )*};
}

durations! {
    /// How long packets may be buffered in the UPF (clause 8.2.29).
    DlBufferingDuration = DL_BUFFERING_DURATION;
    /// How long overload control information is valid (clause 8.2.35).
    Timer = TIMER;
    /// How long an association still lives (clause 8.2.78).
    GracefulReleasePeriod = GRACEFUL_RELEASE_PERIOD;
}

/// How many packets to buffer in the UPF (clause 8.2.30): one or two octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DlBufferingSuggestedPacketCount(pub u16);

impl Ie<'_> for DlBufferingSuggestedPacketCount {
    const TYPE: IeType = IeType::DL_BUFFERING_SUGGESTED_PACKET_COUNT;

    fn decode(value: &[u8]) -> Result<Self, Cause> {
        match *value {
            [] => Err(Cause::INVALID_LENGTH),
            [count] => Ok(Self(count.into())),
            [high, low, ..] => Ok(Self(u16::from_be_bytes([high, low]))),
        }
    }

    fn encode(&self, to: &mut Vec<u8>) {
        match u8::try_from(self.0) {
            Ok(count) => to.push(count),
            Err(_) => to.extend_from_slice(&self.0.to_be_bytes()),
        }
    }
}
