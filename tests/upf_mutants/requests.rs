//! PFCP messages of CP functions: every message type in many forms, mutated.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FSeid, NodeId};
use fastlane_pfcp::{Header, IeType as T, Message, MessageType};

use crate::element::{Element, change, group, leaf, raw, write};
use crate::live_sessions::LiveSessions;
use crate::random::Random;
use crate::rules::{bar, far, pdr, qer, remove, u32, urr};

/// Recovery Time Stamp of the CP functions in seconds since 1900.
const STARTED: u32 = 3_900_000_000;
/// Maximum length of a datagram in octets.
const MAX_LENGTH: usize = 60_000;
/// Maximum length of bundled messages in octets. A batch must fit the UPF's receive buffer.
const BUNDLE: usize = 8000;

/// A CP function that sends mutants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpFunction {
    pub(crate) address: Ipv4Addr,
    pub(crate) name: NodeId<'static>,
}

/// Generator of messages.
#[derive(Debug)]
pub(crate) struct Requests {
    /// IEs of samples of every message type.
    others: Vec<Element>,
    cp_seid: u64,
}

impl Requests {
    /// Creates a generator that reuses the IEs of `samples`.
    pub(crate) fn new(samples: &[Vec<u8>]) -> Self {
        let parsed = samples.iter().filter_map(|octets| Message::parse(octets).ok());
        let others = parsed.flat_map(|(message, _)| {
            message.ies().flatten().filter(|ie| ie.enterprise.is_none()).collect::<Vec<_>>()
        });
        Self { others: others.map(|ie| raw(ie.ie_type, ie.value)).collect(), cp_seid: 0 }
    }

    /// Returns the next message of a CP function and true if it is valid. `requests` are requests
    /// of the UPF without a response.
    pub(crate) fn next(
        &mut self,
        random: &mut Random,
        from: &CpFunction,
        live: &mut LiveSessions,
        requests: &mut Vec<(MessageType, u32)>,
        sequence: u32,
    ) -> (Vec<u8>, bool) {
        let (mut header, mut body) = self.message(random, from, live, requests, sequence);
        if random.is_one_in(8) {
            return (message(&header, &body, random, false), true);
        }
        for _ in 0..random.below(4) {
            change(random, &mut body, &self.others);
        }
        if random.is_one_in(12) {
            change_header(random, &mut header);
        }
        let mut octets = message(&header, &body, random, true);
        if random.is_one_in(8) {
            let one = octets.clone();
            // Bundled messages, sometimes more than the UPF handles in one datagram.
            for _ in 0..random.below(40).min(BUNDLE / one.len().max(1)) {
                octets.extend_from_slice(&one);
            }
        }
        if random.is_one_in(4) {
            random.mutate(&mut octets);
        }
        octets.truncate(MAX_LENGTH);
        (octets, false)
    }

    fn message(
        &mut self,
        random: &mut Random,
        from: &CpFunction,
        live: &mut LiveSessions,
        requests: &mut Vec<(MessageType, u32)>,
        sequence: u32,
    ) -> (Header, Vec<Element>) {
        let node = || leaf(&from.name);
        let of_session = |kind, seid| Header::session(kind, seid, sequence);
        let of_node = |kind| Header::node(kind, sequence);
        match random.below(1000) {
            0..=249 => {
                let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
                (of_session(kind, 0), self.establishment(random, from))
            }
            250..=619 => {
                let kind = MessageType::SESSION_MODIFICATION_REQUEST;
                (of_session(kind, live.seid(random)), modification(random, from))
            }
            620..=799 => {
                let kind = MessageType::SESSION_DELETION_REQUEST;
                (of_session(kind, live.take(random)), Vec::new())
            }
            800..=899 => response(random, from, live, requests),
            900..=901 => {
                let started = u32(T::RECOVERY_TIME_STAMP, STARTED);
                (of_node(MessageType::HEARTBEAT_REQUEST), vec![started])
            }
            902..=931 => {
                let started = u32(T::RECOVERY_TIME_STAMP, STARTED);
                // A setup for a known Node ID deletes the sessions, so that is rare.
                let name = if random.is_one_in(100) { node() } else { unknown_node_id(random) };
                let mut body = vec![name, started, raw(T::CP_FUNCTION_FEATURES, &[3])];
                body.extend(random.is_one_in(4).then(|| raw(T::PFCPASREQ_FLAGS, &[1])));
                body.extend(random.is_one_in(4).then(retention));
                (of_node(MessageType::ASSOCIATION_SETUP_REQUEST), body)
            }
            932..=941 => (of_node(MessageType::ASSOCIATION_UPDATE_REQUEST), vec![node()]),
            942..=943 => {
                let csid = raw(T::FQ_CSID, &[1, 10, 40, 0, 2, 0, 1]);
                (of_node(MessageType::SESSION_SET_DELETION_REQUEST), vec![node(), csid])
            }
            944..=955 => {
                let what = if random.is_one_in(20) {
                    MessageType::ASSOCIATION_RELEASE_REQUEST
                } else {
                    MessageType::PFD_MANAGEMENT_REQUEST
                };
                (of_node(what), vec![node()])
            }
            _ => {
                // Any other type, with IEs of any message.
                let kind = MessageType(random.octet());
                let body: Vec<Element> =
                    (0..random.below(6)).map(|_| random.pick(&self.others).clone()).collect();
                let header = if kind.is_session() {
                    of_session(kind, live.seid(random))
                } else {
                    of_node(kind)
                };
                (header, body)
            }
        }
    }

    fn establishment(&mut self, random: &mut Random, from: &CpFunction) -> Vec<Element> {
        self.cp_seid += 1;
        let seid = FSeid { seid: self.cp_seid, v4: Some(from.address), v6: None };
        let mut body = vec![leaf(&from.name), leaf(&seid)];
        for id in 0..2 + random.below(3) {
            body.push(pdr(random, T::CREATE_PDR, id as u16 + 1, id % 2 == 0));
        }
        for id in 1..=4 {
            body.push(far(random, T::CREATE_FAR, id, id % 2 == 1));
            body.push(urr(random, T::CREATE_URR, id));
            body.push(qer(random, T::CREATE_QER, id));
        }
        body.push(bar(random, T::CREATE_BAR));
        body.extend(random.is_one_in(4).then(|| u32(T::USER_PLANE_INACTIVITY_TIMER, 1)));
        body.extend(random.is_one_in(4).then(|| raw(T::PDN_TYPE, &[3])));
        body.extend(random.is_one_in(8).then(|| raw(T::FQ_CSID, &[1, 10, 40, 0, 2, 0, 1])));
        body
    }
}

/// Returns a Node ID that no CP function has.
fn unknown_node_id(random: &mut Random) -> Element {
    let letter = |random: &mut Random| b'a' + random.octet() % 26;
    let [first, second] = [letter(random), letter(random)];
    raw(T::NODE_ID, &[2, 2, first, second, 7, b'm', b'u', b't', b'a', b'n', b't', b's'])
}

fn retention() -> Element {
    group(T::PFCP_SESSION_RETENTION_INFORMATION, Vec::new())
}

fn modification(random: &mut Random, from: &CpFunction) -> Vec<Element> {
    let mut body = Vec::new();
    for _ in 0..1 + random.below(4) {
        let id = random.below(4) as u8 + 1;
        let is_uplink = id % 2 == 1;
        body.push(match random.below(12) {
            0 => pdr(random, T::CREATE_PDR, u16::from(id) + 4, is_uplink),
            1 => pdr(random, T::UPDATE_PDR, id.into(), is_uplink),
            2..=4 => far(random, T::UPDATE_FAR, id, is_uplink),
            5 => urr(random, T::UPDATE_URR, id),
            6 => qer(random, T::UPDATE_QER, id),
            7 => bar(random, T::UPDATE_BAR),
            8 | 9 => remove(random),
            10 => group(T::QUERY_URR, vec![u32(T::URR_ID, id.into())]),
            // DROBU, SNDEM, QAURR.
            _ => raw(T::PFCPSMREQ_FLAGS, &[random.octet() & 7]),
        });
    }
    if random.is_one_in(20) {
        let seid = FSeid { seid: random.next(), v4: Some(from.address), v6: None };
        body.push(leaf(&seid));
    }
    body
}

/// Builds a response to a pending request of the UPF, or to none.
fn response(
    random: &mut Random,
    from: &CpFunction,
    live: &mut LiveSessions,
    requests: &mut Vec<(MessageType, u32)>,
) -> (Header, Vec<Element>) {
    let any = [
        MessageType::HEARTBEAT_REQUEST,
        MessageType::SESSION_REPORT_REQUEST,
        MessageType::NODE_REPORT_REQUEST,
        MessageType::ASSOCIATION_UPDATE_REQUEST,
    ];
    let unsolicited = (*random.pick(&any), random.below(1 << 24) as u32);
    let (kind, sequence) = requests.pop().unwrap_or(unsolicited);
    let kind = kind.response().unwrap_or(MessageType::HEARTBEAT_RESPONSE);
    if kind == MessageType::HEARTBEAT_RESPONSE {
        return (Header::node(kind, sequence), vec![u32(T::RECOVERY_TIME_STAMP, STARTED)]);
    }
    let cause = raw(T::CAUSE, &[*random.pick(&[1, 1, 1, 1, 64, 65, 72])]);
    if !kind.is_session() {
        return (Header::node(kind, sequence), vec![leaf(&from.name), cause]);
    }
    let mut body = vec![cause];
    if random.is_one_in(4) {
        let wait = raw(T::DL_BUFFERING_DURATION, &[random.octet() & 3]);
        let count = raw(T::DL_BUFFERING_SUGGESTED_PACKET_COUNT, &[random.octet() & 15]);
        let bar = raw(T::BAR_ID, &[1]);
        body.push(group(T::UPDATE_BAR_IN_REPORT, vec![bar, wait, count]));
    }
    body.extend(random.is_one_in(4).then(|| raw(T::PFCPSRRSP_FLAGS, &[1])));
    (Header::session(kind, live.seid(random), sequence), body)
}

fn change_header(random: &mut Random, header: &mut Header) {
    match random.below(5) {
        0 => header.message_type = MessageType(random.octet()),
        1 => header.seid = random.is_one_in(2).then(|| random.next()),
        2 => header.sequence = random.below(1 << 24) as u32,
        3 => header.priority = Some(random.octet() & 15),
        _ => header.follow_on = true,
    }
}

/// Encodes a message. If it `may_err`, its length field is sometimes wrong.
fn message(header: &Header, body: &[Element], random: &mut Random, may_err: bool) -> Vec<u8> {
    let mut octets = Vec::with_capacity(1024);
    fastlane_pfcp::Writer::new(&mut octets).message(*header, |_| {});
    write(body, &mut octets);
    octets.truncate(MAX_LENGTH);
    let mut length = (octets.len() - 4) as u16;
    if may_err && random.is_one_in(20) {
        length = length.wrapping_add(*random.pick(&[1, 4, 0xffff, 0xfffc, 100, 0x8000]));
    }
    octets[2..4].copy_from_slice(&length.to_be_bytes());
    octets
}

/// Returns the CP function with this number.
pub(crate) fn function(number: u8) -> CpFunction {
    let names: [NodeId<'static>; 4] = [
        NodeId::Name(b"\x03one\x07mutants"),
        NodeId::Name(b"\x03two\x07mutants"),
        NodeId::V6(Ipv6Addr::new(0xfd40, 0, 0, 0, 0, 0, 0, 0x99)),
        NodeId::V4(Ipv4Addr::new(192, 0, 2, 77)),
    ];
    let name = names[usize::from(number) % names.len()];
    CpFunction { address: Ipv4Addr::new(10, 40, 0, 16 + number), name }
}

/// Encodes an Association Setup Request.
pub(crate) fn association(from: &CpFunction, sequence: u32) -> Vec<u8> {
    let header = Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence);
    let body = [leaf(&from.name), u32(T::RECOVERY_TIME_STAMP, STARTED)];
    message(&header, &body, &mut Random::new(0), false)
}

/// Encodes a Heartbeat Request.
pub(crate) fn heartbeat(sequence: u32) -> Vec<u8> {
    let header = Header::node(MessageType::HEARTBEAT_REQUEST, sequence);
    message(&header, &[u32(T::RECOVERY_TIME_STAMP, STARTED)], &mut Random::new(0), false)
}
