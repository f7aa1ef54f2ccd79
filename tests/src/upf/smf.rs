//! An SMF that retransmits its requests, responds to the UPF's and records all usage reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_pfcp::ie::{
    FSeid, FTeid, GracefulReleasePeriod, NodeId, OffendingIe, PfcpAssociationReleaseRequest,
    RecoveryTimeStamp, UeIpAddress, UrSeqn, VolumeMeasurement,
};
use fastlane_pfcp::{Cause, Group, Header, IeType, Message, MessageType};

use super::messages::{self, SMF, SessionRequest, message};
use super::upf_lab::{N4, RESPONSE_LIFETIME};
use crate::{Host, PATIENCE, eventually};

/// Default interval of retransmissions. It is short, for tests that lose requests by intention.
const RETRANSMIT: Duration = Duration::from_millis(250);
/// Recovery Time Stamp of the SMF in seconds since 1900. It never restarts.
const STARTED: u32 = 3_900_000_000;

/// An established session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// SEID of the control plane.
    pub cp_seid: u64,
    /// SEID of the user plane.
    pub up_seid: u64,
    /// TEID at the UPF.
    pub uplink_teid: u32,
    /// Address of the UE.
    pub ue: Ipv4Addr,
}

impl Session {
    /// Returns the session number `cp_seid` about which `smf hold` has written this line (`tunnel
    /// USER UPF UPLINK DOWNLINK QFI`), `None` if it is another line. Its SEID at the UPF is
    /// unknown.
    #[must_use]
    pub fn held(cp_seid: u64, line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (kind, user, _upf, teid) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let uplink_teid = u32::from_str_radix(teid.trim_start_matches("0x"), 16).ok()?;
        let session = Self { cp_seid, up_seid: 0, uplink_teid, ue: user.parse().ok()? };
        (kind == "tunnel").then_some(session)
    }
}

/// Everything that the UPF has sent.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Number of Heartbeat Requests.
    pub heartbeats: u64,
    /// Recovery Time Stamps of requests and responses.
    pub stamps: BTreeSet<u32>,
    /// Uplink and downlink octets of each usage report, by CP-SEID and UR-SEQN.
    pub usage: BTreeMap<(u64, u32), [u64; 2]>,
    /// Responses by sequence number.
    pub responses: BTreeMap<u32, Vec<u8>>,
    /// Number of requests that were sent again for want of a response.
    pub retransmissions: u64,
    /// Number of repeated responses.
    pub repeated: u64,
    /// Release requests of the UPF by sequence number, with the Graceful Release Period in seconds.
    pub release_requests: BTreeMap<u32, Option<u32>>,
}

/// An SMF. It has one request outstanding at a time and sends it until it has a response.
#[derive(Debug)]
pub struct Smf {
    socket: UdpSocket,
    /// Address, which is also the Node ID.
    address: Ipv4Addr,
    sequence: u32,
    up_seids: BTreeMap<u64, u64>,
    /// Time of the first transmission of each request, by sequence number.
    first_sent: BTreeMap<u32, Instant>,
    /// Interval of retransmissions.
    pub t1: Duration,
    /// Everything that the UPF has sent.
    pub inbox: Inbox,
}

impl Smf {
    /// Opens the SMF's socket on a host.
    ///
    /// # Panics
    /// When the address is not available.
    #[must_use]
    pub fn new(host: &Host) -> Self {
        Self::at(host, SMF)
    }

    /// Opens the socket of an SMF with another address of the host.
    ///
    /// # Panics
    /// When the address is not available.
    #[must_use]
    pub fn at(host: &Host, address: Ipv4Addr) -> Self {
        let socket = host.enter(|| {
            let bound = UdpSocket::bind((address, fastlane_pfcp::PORT));
            let socket = bound.expect("the SMF's address");
            // Not connected: sending must not fail while no slow path listens.
            socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a read timeout");
            socket
        });
        let (up_seids, first_sent) = (BTreeMap::new(), BTreeMap::new());
        let (t1, inbox) = (RETRANSMIT, Inbox::default());
        Self { socket, address, sequence: 0, up_seids, first_sent, t1, inbox }
    }

    /// Returns the next sequence number.
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// Sends a datagram, which may be lost.
    ///
    /// # Panics
    /// When it is no PFCP message.
    pub fn send(&mut self, datagram: &[u8]) {
        let (message, _) = Message::parse(datagram).expect("PFCP");
        if message.header.message_type.response().is_some() {
            self.first_sent.entry(message.header.sequence).or_insert_with(Instant::now);
        }
        let upf = SocketAddr::from((N4, fastlane_pfcp::PORT));
        // The error may be an ICMP message about an earlier datagram (port unreachable).
        let _ = self.socket.send_to(&messages::of_smf(datagram.to_vec(), self.address), upf);
    }

    /// Handles one datagram of the UPF if there is one within 5 ms.
    pub fn poll(&mut self) {
        self.receive();
    }

    /// Handles one datagram of the UPF. Returns false if there was none within 5 ms.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let Ok((length, _)) = self.socket.recv_from(&mut buffer) else { return false };
        let (message, rest) = Message::parse(&buffer[..length]).expect("PFCP");
        assert!(rest.is_empty() && message.check().is_ok(), "{:?}", message.header);
        if let Some(response) = message.header.message_type.response() {
            self.respond(&message, response);
            return true;
        }
        if let Some(RecoveryTimeStamp(stamp)) = message.group().find().expect("a time stamp") {
            self.inbox.stamps.insert(stamp);
        }
        let datagram = buffer[..length].to_vec();
        let before = self.inbox.responses.insert(message.header.sequence, datagram);
        if let Some(before) = before {
            self.inbox.repeated += 1;
            let is_heartbeat = message.header.message_type == MessageType::HEARTBEAT_RESPONSE;
            // After N1 times T1 the UPF forgets its response. A machine that stood still gets here.
            let age = self.first_sent.get(&message.header.sequence).map(Instant::elapsed);
            let is_late = age.is_none_or(|age| age >= RESPONSE_LIFETIME);
            assert!(
                is_heartbeat || is_late || before == buffer[..length],
                "two responses to one request: {before:x?}, then {:x?}",
                &buffer[..length]
            );
        }
        true
    }

    /// Responds to a request of the UPF.
    fn respond(&mut self, request: &Message<'_>, response: MessageType) {
        let cp_seid = request.header.seid;
        let up_seid = cp_seid.map(|seid| self.up_seids.get(&seid).copied().unwrap_or(0));
        let group = request.group();
        match request.header.message_type {
            MessageType::HEARTBEAT_REQUEST => {
                self.inbox.heartbeats += 1;
                let RecoveryTimeStamp(stamp) = group.need().expect("a time stamp");
                self.inbox.stamps.insert(stamp);
            }
            MessageType::SESSION_REPORT_REQUEST => {
                let cp_seid = cp_seid.expect("a session");
                self.record_usage(cp_seid, group, IeType::USAGE_REPORT_IN_REPORT);
            }
            // A user plane path report.
            MessageType::NODE_REPORT_REQUEST => {}
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                let flags = group.need::<PfcpAssociationReleaseRequest>();
                assert_eq!(flags, Ok(PfcpAssociationReleaseRequest::SARR));
                let period = group.find::<GracefulReleasePeriod>().expect("a period");
                let period = period.and_then(|period| period.0.seconds());
                self.inbox.release_requests.insert(request.header.sequence, period);
            }
            other => panic!("unexpected request of the UPF: {other}"),
        }
        let header = Header { message_type: response, seid: up_seid, ..request.header };
        let datagram = message(header, |w| match response {
            MessageType::HEARTBEAT_RESPONSE => w.put(&RecoveryTimeStamp(STARTED)),
            _ => {
                w.maybe((!response.is_session()).then_some(&NodeId::V4(SMF)));
                w.put(&Cause::REQUEST_ACCEPTED);
            }
        });
        self.send(&datagram);
    }

    /// Records usage reports. A repeated report must equal the first one.
    fn record_usage(&mut self, cp_seid: u64, group: Group<'_>, kind: IeType) {
        for report in group.groups(kind) {
            let UrSeqn(number) = report.need().expect("a number");
            let volume = report.find::<VolumeMeasurement>().expect("a volume").unwrap_or_default();
            let [total, uplink, downlink] =
                [volume.octets.total, volume.octets.uplink, volume.octets.downlink];
            let counts = [uplink.unwrap_or(0), downlink.unwrap_or(0)];
            assert_eq!(total.unwrap_or(0), counts[0] + counts[1], "{volume:?}");
            let before = self.inbox.usage.insert((cp_seid, number), counts);
            assert!(before.is_none_or(|it| it == counts), "{number} {before:?} {counts:?}");
        }
    }

    /// Sends a request until there is a response, and returns that.
    ///
    /// # Panics
    /// When there is none within [`PATIENCE`].
    #[track_caller]
    pub fn request(&mut self, datagram: &[u8]) -> Vec<u8> {
        let (request, _) = Message::parse(datagram).expect("PFCP");
        let (sequence, end) = (request.header.sequence, Instant::now() + PATIENCE);
        let mut attempts = 0;
        while Instant::now() < end {
            self.inbox.retransmissions += attempts.min(1);
            attempts += 1;
            self.send(datagram);
            let retransmit_at = Instant::now() + self.t1;
            // The socket is emptied before a retransmission: this process may have stood still.
            while self.receive() || Instant::now() < retransmit_at {
                if let Some(response) = self.inbox.responses.get(&sequence) {
                    return response.clone();
                }
            }
        }
        panic!("no response of the UPF to {}", request.header.message_type);
    }

    /// Sets up the association.
    #[track_caller]
    pub fn associate(&mut self) {
        let sequence = self.next_sequence();
        let response = self.request(&messages::associate(sequence, STARTED));
        let _ = accepted(&response);
    }

    /// Releases the association.
    #[track_caller]
    pub fn release(&mut self) {
        let sequence = self.next_sequence();
        let response = self.request(&messages::release(sequence));
        let _ = accepted(&response);
    }

    /// Waits until the UPF has sent `count` release requests; returns the period of the last one
    /// in seconds.
    #[track_caller]
    pub fn wait_for_release_request(&mut self, count: usize) -> Option<u32> {
        eventually("the UPF requests the release", || {
            self.poll();
            self.inbox.release_requests.len() >= count
        });
        self.inbox.release_requests.last_key_value().and_then(|(_, period)| *period)
    }

    /// Tries to establish a session; returns the cause.
    ///
    /// # Panics
    /// When the response has none.
    #[track_caller]
    pub fn try_establish(&mut self, request: &SessionRequest) -> Cause {
        let sequence = self.next_sequence();
        let response = self.request(&messages::establish(sequence, request));
        let (message, _) = Message::parse(&response).expect("PFCP");
        message.group().need().expect("a cause")
    }

    /// Sends heartbeats until the UPF responds; returns its Recovery Time Stamp.
    ///
    /// # Panics
    /// When the response has none.
    #[track_caller]
    pub fn heartbeat(&mut self) -> u32 {
        let sequence = self.next_sequence();
        let response = self.request(&messages::heartbeat(sequence, STARTED));
        let (message, _) = Message::parse(&response).expect("PFCP");
        message.group().need::<RecoveryTimeStamp>().expect("a time stamp").0
    }

    /// Establishes a session.
    #[track_caller]
    pub fn establish(&mut self, request: &SessionRequest) -> Session {
        let sequence = self.next_sequence();
        let response = self.request(&messages::establish(sequence, request));
        self.record_establishment(request, &response)
    }

    /// Establishes a session as soon as resources allow it. The UPF reuses session slots and UE
    /// addresses only after a quarantine.
    ///
    /// # Panics
    /// When the response has no cause.
    #[track_caller]
    pub fn establish_when_possible(&mut self, request: &SessionRequest) -> Session {
        let mut response = Vec::new();
        eventually("the UPF has resources for a session", || {
            let sequence = self.next_sequence();
            response = self.request(&messages::establish(sequence, request));
            let group = Message::parse(&response).expect("PFCP").0.group();
            let cause = group.need::<Cause>().expect("a cause");
            let none = [Cause::NO_RESOURCES_AVAILABLE, Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED];
            !none.contains(&cause)
        });
        self.record_establishment(request, &response)
    }

    /// Returns the session of a Session Establishment Response.
    ///
    /// # Panics
    /// When the request was not accepted or an IE is missing.
    #[track_caller]
    pub fn record_establishment(&mut self, request: &SessionRequest, response: &[u8]) -> Session {
        let group = accepted(response);
        let up_seid = group.need::<FSeid>().expect("a UP F-SEID").seid;
        self.up_seids.insert(request.cp_seid, up_seid);
        let created = || group.groups(IeType::CREATED_PDR);
        let tunnel = created().find_map(|pdr| pdr.find::<FTeid>().ok()?).expect("an F-TEID");
        let ue = created().find_map(|pdr| pdr.find::<UeIpAddress>().ok()?).expect("a UE address");
        let ue = ue.v4.expect("IPv4");
        Session { cp_seid: request.cp_seid, up_seid, uplink_teid: tunnel.teid, ue }
    }

    /// Records the usage reports of a Session Modification Response.
    #[track_caller]
    pub fn record_modification(&mut self, session: &Session, response: &[u8]) {
        let kind = IeType::USAGE_REPORT_IN_MODIFICATION;
        self.record_usage(session.cp_seid, accepted(response), kind);
    }

    /// Records the usage reports of a Session Deletion Response.
    #[track_caller]
    pub fn record_deletion(&mut self, session: &Session, response: &[u8]) {
        self.record_usage(session.cp_seid, accepted(response), IeType::USAGE_REPORT_IN_DELETION);
    }

    /// Deletes a session and records its last usage reports.
    #[track_caller]
    pub fn delete(&mut self, session: &Session) {
        let sequence = self.next_sequence();
        let response = self.request(&messages::delete(sequence, session.up_seid));
        self.record_deletion(session, &response);
    }

    /// Returns the uplink and downlink octets that were reported for a session.
    ///
    /// # Panics
    /// When a report is missing: UR-SEQN counts from 0 without gaps.
    #[track_caller]
    #[must_use]
    pub fn usage(&self, session: &Session) -> [u64; 2] {
        let of = (session.cp_seid, 0)..=(session.cp_seid, u32::MAX);
        let reports: Vec<_> = self.inbox.usage.range(of).collect();
        let numbers: Vec<u32> = reports.iter().map(|((_, number), _)| *number).collect();
        let expected: Vec<u32> = (0..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "UR-SEQN of session {}", session.cp_seid);
        reports.iter().fold([0, 0], |sum, (_, it)| [sum[0] + it[0], sum[1] + it[1]])
    }
}

/// Returns the IEs of a response that accepts its request.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn accepted(response: &[u8]) -> Group<'_> {
    let (message, _) = Message::parse(response).expect("PFCP");
    let group = message.group();
    let cause = group.need::<Cause>().expect("a cause");
    let offending = group.find::<OffendingIe>();
    assert!(cause.is_accepted(), "{} {cause} {offending:?}", message.header.message_type);
    group
}
