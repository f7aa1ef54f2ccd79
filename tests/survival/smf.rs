//! An SMF that repeats what is not answered, answers what it is asked, and remembers all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use fastlane_pfcp::ie::{
    FSeid, FTeid, NodeId, OffendingIe, RecoveryTimeStamp, UeIpAddress, UrSeqn, VolumeMeasurement,
};
use fastlane_pfcp::{Cause, Group, Header, IeType, Message, MessageType};
use fastlane_tests::{Host, PATIENCE, eventually};

use crate::messages::{self, SMF, Wish, message};

/// After so long without an answer a request is sent again.
const AGAIN: Duration = Duration::from_millis(250);
/// When it was started: seconds since 1900. It never starts again.
const STARTED: u32 = 3_900_000_000;

/// A session that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) cp_seid: u64,
    pub(crate) up_seid: u64,
    /// The tunnel at the UPF.
    pub(crate) uplink: u32,
    pub(crate) user: Ipv4Addr,
}

/// What came of the UPF besides answers.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Heartbeat requests.
    pub(crate) heartbeats: u64,
    /// Recovery time stamps, in answers and in requests.
    pub(crate) stamps: BTreeSet<u32>,
    /// Usage by session (our number) and number of the report: octets of the user, to the user.
    pub(crate) usage: BTreeMap<(u64, u32), [u64; 2]>,
    /// Answers, by sequence number.
    pub(crate) answers: BTreeMap<u32, Vec<u8>>,
    /// Answers that came again.
    pub(crate) repeated: u64,
}

/// The SMF. Of its requests one is outstanding at a time, and sent as often as it takes.
#[derive(Debug)]
pub(crate) struct Smf {
    socket: UdpSocket,
    sequence: u32,
    seids: BTreeMap<u64, u64>,
    /// When each request was first sent, by sequence number.
    first: BTreeMap<u32, Instant>,
    pub(crate) heard: Heard,
}

impl Smf {
    /// On this host.
    pub(crate) fn new(host: &Host) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind((SMF, fastlane_pfcp::PORT)).expect("our address");
            // Not connected: while nobody listens there, sending must not fail.
            socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a time limit");
            socket
        });
        let (seids, first) = (BTreeMap::new(), BTreeMap::new());
        Self { socket, sequence: 0, seids, first, heard: Heard::default() }
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// Sends a datagram, which may be lost.
    pub(crate) fn send(&mut self, datagram: &[u8]) {
        let (message, _) = Message::parse(datagram).expect("PFCP");
        if message.header.message_type.answer().is_some() {
            self.first.entry(message.header.sequence).or_insert_with(Instant::now);
        }
        let upf = SocketAddr::from((crate::place::N4, fastlane_pfcp::PORT));
        // An answer of Linux to what was sent before (nobody listens) may be told here.
        let _ = self.socket.send_to(datagram, upf);
    }

    /// Takes what there is, waiting for a moment at most.
    pub(crate) fn turn(&mut self) {
        self.take();
    }

    /// The same for one datagram; whether there was one.
    fn take(&mut self) -> bool {
        let mut room = [0; 4096];
        let Ok((length, _)) = self.socket.recv_from(&mut room) else { return false };
        let (message, rest) = Message::parse(&room[..length]).expect("PFCP");
        assert!(rest.is_empty() && message.check().is_ok(), "{:?}", message.header);
        if let Some(answer) = message.header.message_type.answer() {
            self.asked(&message, answer);
            return true;
        }
        if let Some(RecoveryTimeStamp(stamp)) = message.group().find().expect("a time stamp") {
            self.heard.stamps.insert(stamp);
        }
        let before = self.heard.answers.insert(message.header.sequence, room[..length].to_vec());
        if let Some(before) = before {
            self.heard.repeated += 1;
            let is_heartbeat = message.header.message_type == MessageType::HEARTBEAT_RESPONSE;
            // One that is asked for later than N1 times T1 is forgotten: the machine stood still.
            let asked = self.first.get(&message.header.sequence).map(Instant::elapsed);
            let is_late = asked.is_none_or(|asked| asked >= crate::place::ANSWERS_KEPT);
            assert!(
                is_heartbeat || is_late || before == room[..length],
                "another answer to the same request: {before:x?}, then {:x?}",
                &room[..length]
            );
        }
        true
    }

    /// Answers a request.
    fn asked(&mut self, request: &Message<'_>, answer: MessageType) {
        let ours = request.header.seid;
        let theirs = ours.map(|ours| self.seids.get(&ours).copied().unwrap_or(0));
        let group = request.group();
        match request.header.message_type {
            MessageType::HEARTBEAT_REQUEST => {
                self.heard.heartbeats += 1;
                let RecoveryTimeStamp(stamp) = group.need().expect("a time stamp");
                self.heard.stamps.insert(stamp);
            }
            MessageType::SESSION_REPORT_REQUEST => {
                self.used(ours.expect("a session"), group, IeType::USAGE_REPORT_IN_REPORT);
            }
            // A path has failed.
            MessageType::NODE_REPORT_REQUEST => {}
            other => panic!("the UPF asks for {other}"),
        }
        let header = Header { message_type: answer, seid: theirs, ..request.header };
        let datagram = message(header, |w| match answer {
            MessageType::HEARTBEAT_RESPONSE => w.put(&RecoveryTimeStamp(STARTED)),
            _ => {
                w.maybe((answer == MessageType::NODE_REPORT_RESPONSE).then_some(&NodeId::V4(SMF)));
                w.put(&Cause::REQUEST_ACCEPTED);
            }
        });
        self.send(&datagram);
    }

    /// Remembers usage reports; one that comes again says the same.
    fn used(&mut self, cp_seid: u64, group: Group<'_>, kind: IeType) {
        for report in group.groups(kind) {
            let UrSeqn(number) = report.need().expect("a number");
            let volume = report.find::<VolumeMeasurement>().expect("a volume").unwrap_or_default();
            let [total, up, down] =
                [volume.octets.total, volume.octets.uplink, volume.octets.downlink];
            let counts = [up.unwrap_or(0), down.unwrap_or(0)];
            assert_eq!(total.unwrap_or(0), counts[0] + counts[1], "{volume:?}");
            let before = self.heard.usage.insert((cp_seid, number), counts);
            assert!(before.is_none_or(|it| it == counts), "{number} {before:?} {counts:?}");
        }
    }

    /// Sends a request as often as it takes; its answer.
    #[track_caller]
    pub(crate) fn exchange(&mut self, datagram: &[u8]) -> Vec<u8> {
        let (request, _) = Message::parse(datagram).expect("PFCP");
        let (sequence, end) = (request.header.sequence, Instant::now() + PATIENCE);
        while Instant::now() < end {
            self.send(datagram);
            let again = Instant::now() + AGAIN;
            // All that has come is taken before it is sent again: we may have stood still.
            while self.take() || Instant::now() < again {
                if let Some(answer) = self.heard.answers.get(&sequence) {
                    return answer.clone();
                }
            }
        }
        panic!("no answer of the UPF to {}", request.header.message_type);
    }

    /// Sets the association up.
    #[track_caller]
    pub(crate) fn associate(&mut self) {
        let sequence = self.next();
        let answer = self.exchange(&messages::associate(sequence, STARTED));
        accepted(&answer);
    }

    /// Asks whether the UPF is there, until it answers; its recovery time stamp.
    #[track_caller]
    pub(crate) fn heartbeat(&mut self) -> u32 {
        let sequence = self.next();
        let answer = self.exchange(&messages::heartbeat(sequence, STARTED));
        let (message, _) = Message::parse(&answer).expect("PFCP");
        message.group().need::<RecoveryTimeStamp>().expect("a time stamp").0
    }

    /// Sets a session up.
    #[track_caller]
    pub(crate) fn establish(&mut self, wish: &Wish) -> Session {
        let sequence = self.next();
        let answer = self.exchange(&messages::establish(sequence, wish));
        self.established(wish, &answer)
    }

    /// Sets a session up when there is room: places and users' addresses rest before
    /// they are used again.
    #[track_caller]
    pub(crate) fn establish_when_there_is_room(&mut self, wish: &Wish) -> Session {
        let mut answer = Vec::new();
        eventually("there is room for a session", || {
            let sequence = self.next();
            answer = self.exchange(&messages::establish(sequence, wish));
            let group = Message::parse(&answer).expect("PFCP").0.group();
            let cause = group.need::<Cause>().expect("a cause");
            let none = [Cause::NO_RESOURCES_AVAILABLE, Cause::ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED];
            !none.contains(&cause)
        });
        self.established(wish, &answer)
    }

    /// What the answer to an establishment says.
    #[track_caller]
    pub(crate) fn established(&mut self, wish: &Wish, answer: &[u8]) -> Session {
        let group = accepted(answer);
        let up_seid = group.need::<FSeid>().expect("a number of the session").seid;
        self.seids.insert(wish.cp_seid, up_seid);
        let created = || group.groups(IeType::CREATED_PDR);
        let tunnel = created().find_map(|pdr| pdr.find::<FTeid>().ok()?).expect("a tunnel");
        let user = created().find_map(|pdr| pdr.find::<UeIpAddress>().ok()?).expect("an address");
        let user = user.v4.expect("IPv4");
        Session { cp_seid: wish.cp_seid, up_seid, uplink: tunnel.teid, user }
    }

    /// Remembers the usage that is reported with the answer to a modification.
    #[track_caller]
    pub(crate) fn modified(&mut self, session: &Session, answer: &[u8]) {
        self.used(session.cp_seid, accepted(answer), IeType::USAGE_REPORT_IN_MODIFICATION);
    }

    /// Remembers the usage that is reported with the answer to a deletion.
    #[track_caller]
    pub(crate) fn deleted(&mut self, session: &Session, answer: &[u8]) {
        self.used(session.cp_seid, accepted(answer), IeType::USAGE_REPORT_IN_DELETION);
    }

    /// Deletes a session, and remembers the usage that was left.
    #[track_caller]
    pub(crate) fn delete(&mut self, session: &Session) {
        let sequence = self.next();
        let answer = self.exchange(&messages::delete(sequence, session.up_seid));
        self.deleted(session, &answer);
    }

    /// The usage of a session that was reported, each report once, none left out.
    #[track_caller]
    pub(crate) fn usage(&self, session: &Session) -> [u64; 2] {
        let of = (session.cp_seid, 0)..=(session.cp_seid, u32::MAX);
        let reports: Vec<_> = self.heard.usage.range(of).collect();
        let numbers: Vec<u32> = reports.iter().map(|((_, number), _)| *number).collect();
        let expected: Vec<u32> = (0..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "the reports of session {}", session.cp_seid);
        reports.iter().fold([0, 0], |sum, (_, it)| [sum[0] + it[0], sum[1] + it[1]])
    }
}

/// The content of an answer, which must be an acceptance.
#[track_caller]
pub(crate) fn accepted(answer: &[u8]) -> Group<'_> {
    let (message, _) = Message::parse(answer).expect("PFCP");
    let group = message.group();
    let cause = group.need::<Cause>().expect("a cause");
    let offending = group.find::<OffendingIe>();
    assert!(cause.is_accepted(), "{} {cause} {offending:?}", message.header.message_type);
    group
}
