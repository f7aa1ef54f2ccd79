//! Elements that are a number.

use alloc::vec::Vec;

use super::Ie;
use crate::{Cause, IeType};

numbers! {
    /// Cause of a response, as an element (clause 8.2.1).
    CauseIe(u8) = CAUSE;
    /// Precedence of a PDR; the lowest value is evaluated first (clause 8.2.11).
    Precedence(u32) = PRECEDENCE;
    /// Correlation of QERs across sessions (clause 8.2.10).
    QerCorrelationId(u32) = QER_CORRELATION_ID;
    /// Time threshold of a URR, in seconds (clause 8.2.14).
    TimeThreshold(u32) = TIME_THRESHOLD;
    /// Monitoring time, at which counting restarts, in seconds since 1900 (clause 8.2.15).
    MonitoringTime(u32) = MONITORING_TIME;
    /// Time threshold after the monitoring time, in seconds (clause 8.2.17).
    SubsequentTimeThreshold(u32) = SUBSEQUENT_TIME_THRESHOLD;
    /// Time without traffic after which the time measurement stops, in seconds (clause 8.2.18).
    InactivityDetectionTime(u32) = INACTIVITY_DETECTION_TIME;
    /// Type of the missing or wrong element (clause 8.2.22).
    OffendingIe(u16) = OFFENDING_IE;
    /// Delay in units of 50 ms (clause 8.2.28).
    DownlinkDataNotificationDelay(u8) = DOWNLINK_DATA_NOTIFICATION_DELAY;
    /// Sequence number that grows with each new load or overload control information (clause
    /// 8.2.33).
    SequenceNumber(u32) = SEQUENCE_NUMBER;
    /// Load, or share of messages that a peer shall not send, in percent (clause 8.2.34).
    Metric(u8) = METRIC;
    /// Number of a PDR in its session (clause 8.2.36).
    PdrId(u16) = PDR_ID;
    /// Measurement period, in seconds (clause 8.2.42).
    MeasurementPeriod(u32) = MEASUREMENT_PERIOD;
    /// Measured duration, in seconds (clause 8.2.45).
    DurationMeasurement(u32) = DURATION_MEASUREMENT;
    /// Time of the first packet, in seconds since 1900 (clause 8.2.46).
    TimeOfFirstPacket(u32) = TIME_OF_FIRST_PACKET;
    /// Time of the last packet, in seconds since 1900 (clause 8.2.47).
    TimeOfLastPacket(u32) = TIME_OF_LAST_PACKET;
    /// Time without traffic after which a quota is returned, in seconds (clause 8.2.48).
    QuotaHoldingTime(u32) = QUOTA_HOLDING_TIME;
    /// Time quota, in seconds (clause 8.2.51).
    TimeQuota(u32) = TIME_QUOTA;
    /// Start time of a report, in seconds since 1900 (clause 8.2.52).
    StartTime(u32) = START_TIME;
    /// End time of a report, in seconds since 1900 (clause 8.2.53).
    EndTime(u32) = END_TIME;
    /// Number of a URR in its session (clause 8.2.54). Bit 32 marks a rule that is predefined in
    /// the UPF.
    UrrId(u32) = URR_ID;
    /// URR whose report triggers this one too (clause 8.2.55).
    LinkedUrrId(u32) = LINKED_URR_ID;
    /// Number of a BAR in its session (clause 8.2.57).
    BarId(u8) = BAR_ID;
    /// Start time of the node, in seconds since 1900 (clause 8.2.65).
    RecoveryTimeStamp(u32) = RECOVERY_TIME_STAMP;
    /// Sequence number of a URR's reports (clause 8.2.71).
    UrSeqn(u32) = UR_SEQN;
    /// Number of a FAR in its session (clause 8.2.74). Bit 32 marks a rule that is predefined in
    /// the UPF.
    FarId(u32) = FAR_ID;
    /// Number of a QER in its session (clause 8.2.75). Bit 32 marks a rule that is predefined in
    /// the UPF.
    QerId(u32) = QER_ID;
    /// Time without traffic in a session after which the UPF reports, in seconds (clause 8.2.83). 0
    /// stops the timer.
    UserPlaneInactivityTimer(u32) = USER_PLANE_INACTIVITY_TIMER;
    /// URR whose usage is aggregated with others (clause 8.2.85).
    AggregatedUrrId(u32) = AGGREGATED_URR_ID;
    /// Time quota after the monitoring time, in seconds (clause 8.2.87).
    SubsequentTimeQuota(u32) = SUBSEQUENT_TIME_QUOTA;
    /// Reference of a query in the reports that it caused (clause 8.2.90).
    QueryUrrReference(u32) = QUERY_URR_REFERENCE;
    /// Number of a traffic endpoint in its session (clause 8.2.92).
    TrafficEndpointId(u8) = TRAFFIC_ENDPOINT_ID;
    /// EtherType of a frame (clause 8.2.96).
    Ethertype(u16) = ETHERTYPE;
    /// Number of an Ethernet filter in its session (clause 8.2.98).
    EthernetFilterId(u32) = ETHERNET_FILTER_ID;
    /// Suggested number of packets to buffer (clause 8.2.100).
    SuggestedBufferingPacketsCount(u8) = SUGGESTED_BUFFERING_PACKETS_COUNT;
    /// Ethernet inactivity timer, in seconds (clause 8.2.105).
    EthernetInactivityTimer(u32) = ETHERNET_INACTIVITY_TIMER;
    /// Event quota: number of events.
    EventQuota(u32) = EVENT_QUOTA;
    /// Event threshold: number of events.
    EventThreshold(u32) = EVENT_THRESHOLD;
    /// Event quota after the monitoring time: number of events.
    SubsequentEventQuota(u32) = SUBSEQUENT_EVENT_QUOTA;
    /// Event threshold after the monitoring time: number of events.
    SubsequentEventThreshold(u32) = SUBSEQUENT_EVENT_THRESHOLD;
    /// Routing protocol with the network behind a UE (RFC 2865).
    FramedRouting(u32) = FRAMED_ROUTING;
    /// Time of an event, in seconds since 1900.
    EventTimeStamp(u32) = EVENT_TIME_STAMP;
    /// Averaging window of rates, in milliseconds.
    AveragingWindow(u32) = AVERAGING_WINDOW;
    /// Time at which a PDR becomes active, in seconds since 1900 (clause 8.2.121).
    ActivationTime(u32) = ACTIVATION_TIME;
    /// Time at which a PDR becomes inactive, in seconds since 1900 (clause 8.2.122).
    DeactivationTime(u32) = DEACTIVATION_TIME;
    /// Validity of quotas, in seconds (clause 8.2.136).
    QuotaValidityTime(u32) = QUOTA_VALIDITY_TIME;
    /// Maximum number of reports.
    NumberOfReports(u16) = NUMBER_OF_REPORTS;
    /// Size of buffered packets, in octets.
    DlDataPacketsSize(u16) = DL_DATA_PACKETS_SIZE;
    /// Radio access technology of the session.
    RatType(u8) = RAT_TYPE;
}

impl CauseIe {
    /// Returns the cause.
    #[must_use]
    pub const fn cause(self) -> Cause {
        Cause(self.0)
    }
}

impl OffendingIe {
    /// Returns the type.
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
    /// QoS flow identifier (clause 8.2.89).
    Qfi & 0x3f = QFI {}
    /// Paging policy indicator for marking downlink packets (clause 8.2.116).
    PagingPolicyIndicator & 0x07 = PAGING_POLICY_INDICATOR {}
    /// PDN type of the session (clause 8.2.79).
    PdnType & 0x07 = PDN_TYPE {
        /// IPv4 only.
        IPV4 = 1,
        /// IPv6 only.
        IPV6 = 2,
        /// IPv4 and IPv6.
        IPV4V6 = 3,
        /// Unstructured: neither IP nor Ethernet.
        NON_IP = 4,
        /// Ethernet frames.
        ETHERNET = 5,
    }
}

/// Duration as a five-bit count of a three-bit unit (clause 8.2.29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duration5(u8);

impl Duration5 {
    /// Infinite duration.
    pub const INFINITE: Self = Self(0xe0);
    /// Units 0 to 4, in seconds.
    const UNITS: [u32; 5] = [2, 60, 600, 3600, 36_000];

    /// Returns the shortest duration of at least `seconds`, or an infinite one if none is long
    /// enough.
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

    /// Returns the longest duration of at most `seconds`.
    #[must_use]
    pub fn at_most(seconds: u32) -> Self {
        let of = |(number, unit): (u8, u32)| Self(number << 5 | (seconds / unit).min(31) as u8);
        let all = (0..).zip(Self::UNITS).map(of);
        all.max_by_key(|it| it.seconds()).unwrap_or(Self(0))
    }

    /// Returns the duration in seconds, or `None` if it is infinite. Undefined units are minutes.
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
    /// Maximum time for which the UPF may buffer packets (clause 8.2.29).
    DlBufferingDuration = DL_BUFFERING_DURATION;
    /// Validity of overload control information (clause 8.2.35).
    Timer = TIMER;
    /// Remaining time of an association (clause 8.2.78).
    GracefulReleasePeriod = GRACEFUL_RELEASE_PERIOD;
}

/// Suggested number of packets to buffer in the UPF (clause 8.2.30); one or two octets.
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
