//! The SMF's side of N4: sends the recorded messages, checks the responses, and answers the UPF.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_pfcp::ie::{
    FSeid, FTeid, FailedRuleId, NodeId, OffendingIe, PdrId, RecoveryTimeStamp, ReportType,
    SourceInterface, UrSeqn, UrrId, VolumeMeasurement,
};
use fastlane_pfcp::{Cause, Group, Header, IeType, Message, MessageType, Writer};
use fastlane_tests::{Host, PATIENCE};

use crate::life::{Part, Uplink};
use crate::namespaces::{N3, UPF};
use crate::rule_model::RuleModel;
use crate::volumes::{Octets, Volumes};

/// Interval of retransmissions, while the UPF starts.
const RETRANSMIT: Duration = Duration::from_secs(1);

/// Next sequence number, of all lives: the same request with the same number is a retransmission.
static SEQUENCE: AtomicU32 = AtomicU32::new(1);

/// An SMF that plays recorded messages.
pub(crate) struct RecordedSmf {
    socket: UdpSocket,
    address: Ipv4Addr,
    sequence: u32,
    recovery: RecoveryTimeStamp,
    up_seid: u64,
    /// TEIDs that the UPF gave, by PDR.
    teids: BTreeMap<u16, u32>,
    /// TEIDs that the UPF gave, by CHOOSE ID.
    chosen: BTreeMap<u8, u32>,
    /// PDR created last, with the TEID that the SMF chose for it.
    last_created: Option<(u16, Option<u32>)>,
    /// Octets that the URRs of the session have to report.
    pub(crate) volumes: Volumes,
    /// Rules of the session.
    pub(crate) rules: RuleModel,
    /// Sequence numbers of session reports.
    report_numbers: BTreeSet<u32>,
    /// Number of downlink data reports.
    pub(crate) reports: usize,
    /// Octets of all usage reports by URR, uplink and downlink.
    usage: BTreeMap<u32, Octets>,
    /// The UPF has requested the release of the association.
    is_asked_to_release: bool,
    /// Responds to a release request, though with a refusal.
    pub(crate) responds_to_release: bool,
}

impl RecordedSmf {
    pub(crate) fn new(host: &Host, address: Ipv4Addr) -> Self {
        let socket = host.enter(|| {
            let socket =
                UdpSocket::bind((address, fastlane_pfcp::PORT)).expect("the SMF's address");
            socket.set_read_timeout(Some(Duration::from_millis(10))).expect("a read timeout");
            socket
        });
        Self {
            socket,
            address,
            sequence: 0,
            recovery: RecoveryTimeStamp(0),
            up_seid: 0,
            teids: BTreeMap::new(),
            chosen: BTreeMap::new(),
            last_created: None,
            volumes: Volumes::default(),
            rules: RuleModel::default(),
            report_numbers: BTreeSet::new(),
            reports: 0,
            usage: BTreeMap::new(),
            is_asked_to_release: false,
            responds_to_release: true,
        }
    }

    /// Returns the TEID of the UPF in which uplink packets are sent.
    #[track_caller]
    pub(crate) fn teid(&self, uplink: Uplink) -> u32 {
        match uplink {
            Uplink::Teid(teid) => teid,
            Uplink::Pdr(pdr) => *self.teids.get(&pdr).expect("the UPF gave the PDR a TEID"),
        }
    }

    /// Returns the TEID of the UPF for uplink packets, if there is one yet.
    pub(crate) fn known_teid(&self, uplink: Uplink) -> Option<u32> {
        match uplink {
            Uplink::Teid(teid) => Some(teid),
            Uplink::Pdr(pdr) => self.teids.get(&pdr).copied(),
        }
    }

    /// Returns the TEID of the PDR created last.
    #[track_caller]
    pub(crate) fn last_teid(&self) -> u32 {
        let (pdr, own) = self.last_created.expect("a PDR was created");
        own.or_else(|| self.teids.get(&pdr).copied()).expect("the PDR has a TEID")
    }

    /// Returns the recorded message with what the UPF gave and a new sequence number.
    fn fill(&mut self, parts: &[Part]) -> Vec<u8> {
        let mut datagram = Vec::new();
        for part in parts {
            match part {
                Part::Octets(octets) => datagram.extend(octets),
                Part::UpSeid => datagram.extend(self.up_seid.to_be_bytes()),
                Part::Teid(pdr) => {
                    datagram.extend(self.teid(Uplink::Pdr(*pdr)).to_be_bytes());
                }
            }
        }
        self.sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let at = if datagram[0] & 1 == 1 { 12 } else { 4 };
        datagram[at..at + 3].copy_from_slice(&self.sequence.to_be_bytes()[1..]);
        datagram
    }

    /// Sends a recorded request and checks the response.
    #[track_caller]
    pub(crate) fn request(&mut self, name: &str, parts: &[Part]) {
        let datagram = self.fill(parts);
        let (request, _) = Message::parse(&datagram).expect("PFCP");
        self.note(&request);
        let response = self.exchange(name, &datagram, request.header);
        let (response, _) = Message::parse(&response).expect("PFCP");
        assert_eq!(response.check(), Ok(()), "{name}");
        let group = response.group();
        if request.header.message_type == MessageType::HEARTBEAT_REQUEST {
            assert!(group.has(IeType::RECOVERY_TIME_STAMP), "{name}");
            return;
        }
        let cause = group.need::<Cause>().expect("a cause");
        let offending = group.find::<OffendingIe>();
        let failed = group.find::<FailedRuleId>();
        assert!(cause.is_accepted(), "{name}: {cause}, {offending:?}, {failed:?}");
        self.accepted(name, &request, group);
    }

    /// Remembers what the request says.
    fn note(&mut self, request: &Message<'_>) {
        let group = request.group();
        if let Ok(Some(recovery)) = group.find() {
            self.recovery = recovery;
        }
        for pdr in group.groups(IeType::REMOVE_PDR) {
            self.teids.remove(&pdr.need::<PdrId>().expect("a PDR ID").0);
        }
        // The TEID of a CHOOSE ID exists as long as one of its PDRs.
        let teids = &self.teids;
        self.chosen.retain(|_, chosen| teids.values().any(|teid| teid == chosen));
        for pdr in group.groups(IeType::CREATE_PDR) {
            let id = pdr.need::<PdrId>().expect("a PDR ID").0;
            let pdi = pdr.group(IeType::PDI).expect("a PDI");
            let tunnel = pdi.find::<FTeid>().expect("an F-TEID");
            let own = tunnel.filter(|tunnel| !tunnel.is_choose()).map(|tunnel| tunnel.teid);
            self.last_created = Some((id, own));
        }
        self.volumes.learn(request);
    }

    /// Checks the contents of a response that accepts its request.
    #[track_caller]
    fn accepted(&mut self, name: &str, request: &Message<'_>, response: Group<'_>) {
        if request.header.message_type == MessageType::SESSION_ESTABLISHMENT_REQUEST {
            self.up_seid = response.need::<FSeid>().expect("a UP F-SEID").seid;
        }
        let created = |id: PdrId| {
            let mut all = response.groups(IeType::CREATED_PDR);
            let found = all.find(|pdr| pdr.need::<PdrId>() == Ok(id));
            found.and_then(|pdr| pdr.find::<FTeid>().expect("an F-TEID"))
        };
        for pdr in request.group().groups(IeType::CREATE_PDR) {
            let id = pdr.need::<PdrId>().expect("a PDR ID");
            let pdi = pdr.group(IeType::PDI).expect("a PDI");
            let asked = pdi.find::<FTeid>().expect("an F-TEID").filter(FTeid::is_choose);
            let Some(asked) = asked else { continue };
            let given = created(id).unwrap_or_else(|| panic!("{name}: no F-TEID for {id:?}"));
            // An SMF sends user packets to N4, which it reaches in any case.
            let is_own = pdi.need::<SourceInterface>() == Ok(SourceInterface::CP_FUNCTION);
            assert_eq!(given.v4, Some(if is_own { UPF } else { N3 }), "{name}");
            let known =
                asked.choose_id.map(|choose| *self.chosen.entry(choose).or_insert(given.teid));
            assert_eq!(known.unwrap_or(given.teid), given.teid, "{name}: one TEID per CHOOSE ID");
            self.teids.insert(id.0, given.teid);
        }
        self.rules.apply(request, &self.teids);
        let kinds = [IeType::USAGE_REPORT_IN_MODIFICATION, IeType::USAGE_REPORT_IN_DELETION];
        kinds.into_iter().for_each(|kind| self.count_usage(response, kind));
        if request.header.message_type == MessageType::SESSION_DELETION_REQUEST {
            assert_eq!(self.usage, self.volumes.expected(), "{name}: octets of each URR");
        }
    }

    fn count_usage(&mut self, group: Group<'_>, kind: IeType) {
        for report in group.groups(kind) {
            let urr = report.need::<UrrId>().expect("a URR ID").0;
            assert!(report.has(<UrSeqn as fastlane_pfcp::Ie<'_>>::TYPE), "a report has a number");
            let volume = report.find::<VolumeMeasurement>().expect("a volume").unwrap_or_default();
            let octets = volume.octets;
            let sum = self.usage.entry(urr).or_default();
            for (sum, more) in sum.iter_mut().zip([octets.uplink, octets.downlink]) {
                *sum += more.unwrap_or(0);
            }
        }
    }

    /// Sends a request until there is a response.
    #[track_caller]
    fn exchange(&mut self, name: &str, datagram: &[u8], request: Header) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            // The error may be an ICMP message about an earlier datagram.
            let _ = self.socket.send_to(datagram, (UPF, fastlane_pfcp::PORT));
            let again = Instant::now() + RETRANSMIT;
            while Instant::now() < again {
                let Some(received) = self.poll() else { continue };
                let (message, _) = Message::parse(&received).expect("PFCP");
                if message.header.sequence == request.sequence {
                    assert_eq!(Some(message.header.message_type), request.message_type.response());
                    return received;
                }
            }
        }
        panic!("{name}: no response");
    }

    /// Handles what the UPF sends within 10 ms. Returns a response.
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let datagram = &buffer[..length];
        let (message, rest) = Message::parse(datagram).expect("PFCP");
        assert!(rest.is_empty() && message.check().is_ok(), "{message:?}");
        let Some(response) = message.header.message_type.response() else {
            return Some(datagram.to_vec());
        };
        match message.header.message_type {
            MessageType::SESSION_REPORT_REQUEST => {
                let report = message.group().need::<ReportType>().expect("a report type");
                // A repeated report is the same one.
                let is_new = self.report_numbers.insert(message.header.sequence);
                self.reports += usize::from(is_new && report.has(ReportType::DLDR));
                self.count_usage(message.group(), IeType::USAGE_REPORT_IN_REPORT);
            }
            MessageType::ASSOCIATION_UPDATE_REQUEST => {
                self.is_asked_to_release = true;
                if !self.responds_to_release {
                    return None;
                }
            }
            MessageType::HEARTBEAT_REQUEST | MessageType::NODE_REPORT_REQUEST => {}
            other => panic!("unexpected request of the UPF: {other}"),
        }
        let seid = message.header.seid.map(|_| self.up_seid);
        let header = Header { message_type: response, seid, ..message.header };
        let mut answer = Vec::new();
        Writer::new(&mut answer).message(header, |to| match response {
            MessageType::HEARTBEAT_RESPONSE => to.put(&self.recovery),
            // SMFs hardly support the release on request of the UPF.
            MessageType::ASSOCIATION_UPDATE_RESPONSE => {
                to.put(&NodeId::V4(self.address));
                to.put(&Cause::SERVICE_NOT_SUPPORTED);
            }
            _ => {
                let is_node = response == MessageType::NODE_REPORT_RESPONSE;
                to.maybe(is_node.then_some(&NodeId::V4(self.address)));
                to.put(&Cause::REQUEST_ACCEPTED);
            }
        });
        self.socket.send_to(&answer, from).expect("the SMF sends");
        None
    }

    /// Responds to the UPF until `over` is true.
    pub(crate) fn serve(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            self.poll();
        }
    }

    /// Waits until the UPF has requested the release of the association.
    #[track_caller]
    pub(crate) fn wait_for_release_request(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.is_asked_to_release {
            assert!(Instant::now() < end, "no release request");
            self.poll();
        }
    }

    /// Waits until there are `count` downlink data reports.
    #[track_caller]
    pub(crate) fn wait_for_reports(&mut self, count: usize) {
        let end = Instant::now() + PATIENCE;
        while self.reports < count {
            assert!(Instant::now() < end, "no downlink data report");
            self.poll();
        }
    }
}
