//! Messages of control plane functions: of every type, in ever other forms, and then changed.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane_pfcp::ie::{FSeid, NodeId};
use fastlane_pfcp::{Header, IeType as T, Message, MessageType};

use crate::chance::Chance;
use crate::element::{Element, change, group, leaf, raw, write};
use crate::live::Live;
use crate::rules::{bar, far, pdr, qer, remove, u32, urr};

/// When the functions of the mutants were started: seconds since 1900.
const STARTED: u32 = 3_900_000_000;
/// Room for the whole of a datagram.
const MOST: usize = 60_000;
/// Octets of bundled messages: a batch of them is not to fill the UPF's buffer.
const BUNDLE: usize = 8000;

/// A control plane function that sends mutants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) address: Ipv4Addr,
    pub(crate) name: NodeId<'static>,
}

/// Messages, changed and not.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Elements of samples of every message.
    others: Vec<Element>,
    cp_seid: u64,
}

impl Requests {
    /// Takes elements of these messages, too.
    pub(crate) fn new(samples: &[Vec<u8>]) -> Self {
        let parsed = samples.iter().filter_map(|octets| Message::parse(octets).ok());
        let others = parsed.flat_map(|(message, _)| {
            message.ies().flatten().filter(|ie| ie.enterprise.is_none()).collect::<Vec<_>>()
        });
        Self { others: others.map(|ie| raw(ie.ie_type, ie.value)).collect(), cp_seid: 0 }
    }

    /// The next message of a function, with this number, and whether it is as such functions send
    /// it; `asked` are requests of the UPF that have no answer.
    pub(crate) fn next(
        &mut self,
        chance: &mut Chance,
        from: &Function,
        live: &mut Live,
        asked: &mut Vec<(MessageType, u32)>,
        sequence: u32,
    ) -> (Vec<u8>, bool) {
        let (mut header, mut body) = self.message(chance, from, live, asked, sequence);
        if chance.is_one_in(8) {
            return (message(&header, &body, chance, false), true);
        }
        for _ in 0..chance.below(4) {
            change(chance, &mut body, &self.others);
        }
        if chance.is_one_in(12) {
            change_header(chance, &mut header);
        }
        let mut octets = message(&header, &body, chance, true);
        if chance.is_one_in(8) {
            let one = octets.clone();
            // Bundled messages; more of them than are looked at, sometimes.
            for _ in 0..chance.below(40).min(BUNDLE / one.len().max(1)) {
                octets.extend_from_slice(&one);
            }
        }
        if chance.is_one_in(4) {
            chance.change(&mut octets);
        }
        octets.truncate(MOST);
        (octets, false)
    }

    fn message(
        &mut self,
        chance: &mut Chance,
        from: &Function,
        live: &mut Live,
        asked: &mut Vec<(MessageType, u32)>,
        sequence: u32,
    ) -> (Header, Vec<Element>) {
        let node = || leaf(&from.name);
        let of_session = |kind, seid| Header::session(kind, seid, sequence);
        let of_node = |kind| Header::node(kind, sequence);
        match chance.below(1000) {
            0..=249 => {
                let kind = MessageType::SESSION_ESTABLISHMENT_REQUEST;
                (of_session(kind, 0), self.establishment(chance, from))
            }
            250..=619 => {
                let kind = MessageType::SESSION_MODIFICATION_REQUEST;
                (of_session(kind, live.seid(chance)), modification(chance, from))
            }
            620..=799 => {
                let kind = MessageType::SESSION_DELETION_REQUEST;
                (of_session(kind, live.take(chance)), Vec::new())
            }
            800..=899 => answer(chance, from, live, asked),
            900..=901 => {
                let started = u32(T::RECOVERY_TIME_STAMP, STARTED);
                (of_node(MessageType::HEARTBEAT_REQUEST), vec![started])
            }
            902..=931 => {
                let started = u32(T::RECOVERY_TIME_STAMP, STARTED);
                // To its own the UPF would remove all its sessions.
                let name = if chance.is_one_in(100) { node() } else { stranger(chance) };
                let mut body = vec![name, started, raw(T::CP_FUNCTION_FEATURES, &[3])];
                body.extend(chance.is_one_in(4).then(|| raw(T::PFCPASREQ_FLAGS, &[1])));
                body.extend(chance.is_one_in(4).then(retention));
                (of_node(MessageType::ASSOCIATION_SETUP_REQUEST), body)
            }
            932..=941 => (of_node(MessageType::ASSOCIATION_UPDATE_REQUEST), vec![node()]),
            942..=943 => {
                let csid = raw(T::FQ_CSID, &[1, 10, 40, 0, 2, 0, 1]);
                (of_node(MessageType::SESSION_SET_DELETION_REQUEST), vec![node(), csid])
            }
            944..=955 => {
                let what = if chance.is_one_in(20) {
                    MessageType::ASSOCIATION_RELEASE_REQUEST
                } else {
                    MessageType::PFD_MANAGEMENT_REQUEST
                };
                (of_node(what), vec![node()])
            }
            _ => {
                // Any other, with elements of any.
                let kind = MessageType(chance.octet());
                let body: Vec<Element> =
                    (0..chance.below(6)).map(|_| chance.pick(&self.others).clone()).collect();
                let header = if kind.is_session() {
                    of_session(kind, live.seid(chance))
                } else {
                    of_node(kind)
                };
                (header, body)
            }
        }
    }

    fn establishment(&mut self, chance: &mut Chance, from: &Function) -> Vec<Element> {
        self.cp_seid += 1;
        let seid = FSeid { seid: self.cp_seid, v4: Some(from.address), v6: None };
        let mut body = vec![leaf(&from.name), leaf(&seid)];
        for id in 0..2 + chance.below(3) {
            body.push(pdr(chance, T::CREATE_PDR, id as u16 + 1, id % 2 == 0));
        }
        for id in 1..=4 {
            body.push(far(chance, T::CREATE_FAR, id, id % 2 == 1));
            body.push(urr(chance, T::CREATE_URR, id));
            body.push(qer(chance, T::CREATE_QER, id));
        }
        body.push(bar(chance, T::CREATE_BAR));
        body.extend(chance.is_one_in(4).then(|| u32(T::USER_PLANE_INACTIVITY_TIMER, 1)));
        body.extend(chance.is_one_in(4).then(|| raw(T::PDN_TYPE, &[3])));
        body.extend(chance.is_one_in(8).then(|| raw(T::FQ_CSID, &[1, 10, 40, 0, 2, 0, 1])));
        body
    }
}

/// A name of a function that is not there.
fn stranger(chance: &mut Chance) -> Element {
    let letter = |chance: &mut Chance| b'a' + chance.octet() % 26;
    let [first, second] = [letter(chance), letter(chance)];
    raw(T::NODE_ID, &[2, 2, first, second, 7, b'm', b'u', b't', b'a', b'n', b't', b's'])
}

fn retention() -> Element {
    group(T::PFCP_SESSION_RETENTION_INFORMATION, Vec::new())
}

fn modification(chance: &mut Chance, from: &Function) -> Vec<Element> {
    let mut body = Vec::new();
    for _ in 0..1 + chance.below(4) {
        let id = chance.below(4) as u8 + 1;
        let is_up = id % 2 == 1;
        body.push(match chance.below(12) {
            0 => pdr(chance, T::CREATE_PDR, u16::from(id) + 4, is_up),
            1 => pdr(chance, T::UPDATE_PDR, id.into(), is_up),
            2..=4 => far(chance, T::UPDATE_FAR, id, is_up),
            5 => urr(chance, T::UPDATE_URR, id),
            6 => qer(chance, T::UPDATE_QER, id),
            7 => bar(chance, T::UPDATE_BAR),
            8 | 9 => remove(chance),
            10 => group(T::QUERY_URR, vec![u32(T::URR_ID, id.into())]),
            // DROBU, SNDEM, QAURR.
            _ => raw(T::PFCPSMREQ_FLAGS, &[chance.octet() & 7]),
        });
    }
    if chance.is_one_in(20) {
        let seid = FSeid { seid: chance.next(), v4: Some(from.address), v6: None };
        body.push(leaf(&seid));
    }
    body
}

/// An answer to what the UPF has asked, or to what it has not.
fn answer(
    chance: &mut Chance,
    from: &Function,
    live: &mut Live,
    asked: &mut Vec<(MessageType, u32)>,
) -> (Header, Vec<Element>) {
    let any = [
        MessageType::HEARTBEAT_REQUEST,
        MessageType::SESSION_REPORT_REQUEST,
        MessageType::NODE_REPORT_REQUEST,
        MessageType::ASSOCIATION_UPDATE_REQUEST,
    ];
    let unasked = (*chance.pick(&any), chance.below(1 << 24) as u32);
    let (kind, sequence) = asked.pop().unwrap_or(unasked);
    let kind = kind.answer().unwrap_or(MessageType::HEARTBEAT_RESPONSE);
    if kind == MessageType::HEARTBEAT_RESPONSE {
        return (Header::node(kind, sequence), vec![u32(T::RECOVERY_TIME_STAMP, STARTED)]);
    }
    let cause = raw(T::CAUSE, &[*chance.pick(&[1, 1, 1, 1, 64, 65, 72])]);
    if !kind.is_session() {
        return (Header::node(kind, sequence), vec![leaf(&from.name), cause]);
    }
    let mut body = vec![cause];
    if chance.is_one_in(4) {
        let wait = raw(T::DL_BUFFERING_DURATION, &[chance.octet() & 3]);
        let count = raw(T::DL_BUFFERING_SUGGESTED_PACKET_COUNT, &[chance.octet() & 15]);
        let bar = raw(T::BAR_ID, &[1]);
        body.push(group(T::UPDATE_BAR_IN_REPORT, vec![bar, wait, count]));
    }
    body.extend(chance.is_one_in(4).then(|| raw(T::PFCPSRRSP_FLAGS, &[1])));
    (Header::session(kind, live.seid(chance), sequence), body)
}

fn change_header(chance: &mut Chance, header: &mut Header) {
    match chance.below(5) {
        0 => header.message_type = MessageType(chance.octet()),
        1 => header.seid = chance.is_one_in(2).then(|| chance.next()),
        2 => header.sequence = chance.below(1 << 24) as u32,
        3 => header.priority = Some(chance.octet() & 15),
        _ => header.follow_on = true,
    }
}

/// The octets of a message; some of those that may be wrong have a length that is.
fn message(header: &Header, body: &[Element], chance: &mut Chance, may_err: bool) -> Vec<u8> {
    let mut octets = Vec::with_capacity(1024);
    fastlane_pfcp::Writer::new(&mut octets).message(*header, |_| {});
    write(body, &mut octets);
    octets.truncate(MOST);
    let mut length = (octets.len() - 4) as u16;
    if may_err && chance.is_one_in(20) {
        length = length.wrapping_add(*chance.pick(&[1, 4, 0xffff, 0xfffc, 100, 0x8000]));
    }
    octets[2..4].copy_from_slice(&length.to_be_bytes());
    octets
}

/// The function with this number, of those that send mutants.
pub(crate) fn function(number: u8) -> Function {
    let names: [NodeId<'static>; 4] = [
        NodeId::Name(b"\x03one\x07mutants"),
        NodeId::Name(b"\x03two\x07mutants"),
        NodeId::V6(Ipv6Addr::new(0xfd40, 0, 0, 0, 0, 0, 0, 0x99)),
        NodeId::V4(Ipv4Addr::new(192, 0, 2, 77)),
    ];
    let name = names[usize::from(number) % names.len()];
    Function { address: Ipv4Addr::new(10, 40, 0, 16 + number), name }
}

/// An association is asked for by a function.
pub(crate) fn association(from: &Function, sequence: u32) -> Vec<u8> {
    let header = Header::node(MessageType::ASSOCIATION_SETUP_REQUEST, sequence);
    let body = [leaf(&from.name), u32(T::RECOVERY_TIME_STAMP, STARTED)];
    message(&header, &body, &mut Chance::new(0), false)
}

/// Whether the UPF is there is asked by a function.
pub(crate) fn heartbeat(sequence: u32) -> Vec<u8> {
    let header = Header::node(MessageType::HEARTBEAT_REQUEST, sequence);
    message(&header, &[u32(T::RECOVERY_TIME_STAMP, STARTED)], &mut Chance::new(0), false)
}
