//! Session procedures: requests as control planes encode them, on real tables.

mod cost;
mod establish;
mod kill;
mod limits;
mod modify;
mod redirect_information;
mod removal;
mod request_properties;
mod room;
mod smf_dialects;
mod ue_addresses;
mod unsupported_ies;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fastlane::table::SharedMemory;
use fastlane_pfcp::ie::{self, FSeid, FTeid, FailedRuleId, UeIpAddress};
use fastlane_pfcp::{Cause, Header, IeType, Message, MessageType, Writer};
use fastlane_testing::sleeping_lane;

use super::*;
use crate::pfcp::{Context, Peer};
use crate::rules::compile::Context as CompileContext;
use crate::rules::layout::table;
use crate::rules::{Capacities, Private, Tables};

pub(super) const GNB: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
pub(super) const N3: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));

/// Returns the settings of most tests with some values replaced.
pub(super) fn settings(changes: serde_json::Value) -> Settings {
    let mut all = serde_json::json!({
        "node-id": "10.9.0.2",
        "n4": { "addresses": ["10.9.0.2"] },
        "interfaces": {
            "N3": { "port": "a", "role": "n3", "network-instances": ["access"],
                    "addresses": ["192.168.1.10", "2001:db8:3::10"] },
            "N9": { "port": "a", "role": "n9", "network-instances": ["between"],
                    "addresses": ["192.168.9.10"] },
            "N6": { "port": "b", "role": "n6", "network-instances": ["internet"] },
            "N6b": { "port": "b", "role": "n6", "network-instances": ["office"] },
        },
        "pools": [
            { "network-instance": "internet", "prefix": "10.45.0.0/29" },
            { "network-instance": "internet", "prefix": "2001:db8:45::/62" },
            { "network-instance": "office", "prefix": "10.45.0.0/24" },
        ],
        "sessions": 512,
        "predefined": { "no-video": {
            "precedence": 10, "flows": ["permit out ip from any to assigned"], "drop": true,
        } },
    });
    if let (Some(all), Some(changes)) = (all.as_object_mut(), changes.as_object()) {
        all.extend(changes.clone());
    }
    serde_json::from_value(all).unwrap()
}

/// Tables that outlive their process, and the process.
pub(super) struct SessionTestbed {
    memory: Private,
    pub(super) settings: Settings,
    pub(super) sessions: Sessions,
    pub(super) now: Now,
    pub(super) peer: Option<Peer>,
    /// Usage reports that the control plane function has not heard.
    pub(super) unheard: Vec<UsageReport>,
}

pub(super) fn peer(index: u16) -> Peer {
    let address = IpAddr::from([10, 9, 0, 1]);
    let address_of = SocketAddr::new(address, 8805);
    Peer {
        index,
        node_id: address.into(),
        recovery: 1,
        address: address_of,
        local: Some(LOCAL),
        features: 0,
        is_up: true,
    }
}

impl SessionTestbed {
    pub(super) fn new() -> Self {
        Self::with(serde_json::json!({}))
    }

    pub(super) fn with(changes: serde_json::Value) -> Self {
        Self::of(settings(changes), |_| {})
    }

    pub(super) fn of(settings: Settings, change: impl FnOnce(&mut Capacities)) -> Self {
        let mut capacities = Capacities::of(&settings).with_answers(4096);
        change(&mut capacities);
        Self::on(Private::new(capacities, sleeping_lane()), settings)
    }

    /// Opens the sessions on given tables.
    pub(super) fn on(memory: Private, settings: Settings) -> Self {
        let sessions = open(&memory, &settings);
        let now = Now { monotonic: 1_000 * SECOND, real: 1_790_000_000 * SECOND };
        Self { memory, settings, sessions, now, peer: Some(peer(3)), unheard: vec![] }
    }

    /// Starts a successor process.
    pub(super) fn restart(&mut self) {
        self.sessions = open(&self.memory, &self.settings);
    }

    pub(super) fn handle(&mut self, request: &[u8]) -> Vec<u8> {
        let (message, _) = Message::parse(request).unwrap();
        let peer = SocketAddr::from(([10, 9, 0, 1], 8805));
        let kind = message.header.message_type;
        let key = RequestKey::of(peer, &message);
        if let Some(answer) = self.sessions.answer(self.now, &key, &|_| 0) {
            return answer;
        }
        let peer = self.peer.clone();
        let peer = peer.as_ref().filter(|_| kind == MessageType::SESSION_ESTABLISHMENT_REQUEST);
        let answer_life = 9 * SECOND;
        let context = Context { now: self.now, key, local: LOCAL, peer, answer_life };
        match kind {
            MessageType::SESSION_ESTABLISHMENT_REQUEST => {
                self.sessions.establish(&message, &context)
            }
            MessageType::SESSION_MODIFICATION_REQUEST => self.sessions.modify(&message, &context),
            _ => self.sessions.delete(&message, &context, &self.unheard),
        }
    }

    pub(super) fn ask(&mut self, request: &[u8]) -> Answered {
        Answered::of(&self.handle(request))
    }

    pub(super) fn ids(&self) -> Vec<SessionIndex> {
        self.sessions.ids().collect()
    }

    pub(super) fn only(&self) -> Session {
        let all: Vec<Session> = self.sessions.iter().collect();
        assert_eq!(all.len(), 1);
        all.into_iter().next().unwrap()
    }

    /// Adds a packet of the current time to the counters of a state slot.
    pub(super) fn count(&self, line: u32, octets_up: u64) {
        count(&self.state(), self.now, line, octets_up);
    }

    /// Returns the memory of the state slots.
    pub(super) fn state(&self) -> Arc<SharedMemory> {
        self.memory.memory(table::STATE, |_| unreachable!()).unwrap()
    }
}

/// Adds a packet to the counters of a state slot, as lanes do.
pub(super) fn count(state: &Arc<SharedMemory>, now: Now, line: u32, octets_up: u64) {
    use crate::rules::layout::counter_slots;
    let all = fastlane::table::State::<{ counter_slots::WORDS }>::attach(state).unwrap();
    let lane = all.lane(0);
    let words = lane.at(fastlane::table::EntryId(line));
    words.add(counter_slots::UPLINK_OCTETS, octets_up);
    words.add(counter_slots::UPLINK_PACKETS, 1);
    words.set(counter_slots::LAST, now.monotonic);
}

fn open(memory: &Private, settings: &Settings) -> Sessions {
    let sessions = memory.array(table::SESSIONS).unwrap();
    let parts = memory.array(table::SESSION_PARTS).unwrap();
    let store = Store::open(sessions, parts, memory.array(table::ANSWERS).unwrap());
    let context = CompileContext::new(settings).unwrap();
    let published = Published::open(Tables::private(memory).unwrap(), context);
    Sessions::open(settings, LOCAL.into(), store, published)
}

/// Decoded response.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) bytes: Vec<u8>,
    pub(super) seid: u64,
    pub(super) cause: u8,
    pub(super) offending: Option<u16>,
    pub(super) failed: Option<FailedRuleId>,
    pub(super) up: Option<FSeid>,
    /// Created PDRs with their F-TEID and UE IP address.
    pub(super) created: Vec<(u16, Option<FTeid>, Option<UeIpAddress>)>,
    /// Usage reports: URR ID, UR-SEQN, trigger, uplink octets.
    pub(super) usage: Vec<(u32, u32, u64, Option<u64>)>,
}

impl Answered {
    fn of(bytes: &[u8]) -> Self {
        let (message, _) = Message::parse(bytes).unwrap();
        message.check().unwrap();
        let group = message.group();
        let created = group.groups(IeType::CREATED_PDR).chain(group.groups(IeType::UPDATED_PDR));
        let created = created.map(|it| {
            let id = it.need::<ie::PdrId>().unwrap().0;
            (id, it.find().unwrap(), it.find().unwrap())
        });
        let kinds = [IeType::USAGE_REPORT_IN_MODIFICATION, IeType::USAGE_REPORT_IN_DELETION];
        let usage = kinds.into_iter().flat_map(|kind| group.groups(kind)).map(|it| {
            let volume = it.find::<ie::VolumeMeasurement>().unwrap();
            (
                it.need::<ie::UrrId>().unwrap().0,
                it.need::<ie::UrSeqn>().unwrap().0,
                it.need::<ie::UsageReportTrigger>().unwrap().0,
                volume.and_then(|volume| volume.octets.uplink),
            )
        });
        Self {
            bytes: bytes.to_vec(),
            seid: message.header.seid.unwrap(),
            cause: group.need::<Cause>().unwrap().0,
            offending: group.find::<ie::OffendingIe>().unwrap().map(|it| it.0),
            failed: group.find().unwrap(),
            up: group.find().unwrap(),
            created: created.collect(),
            usage: usage.collect(),
        }
    }

    /// Returns the cause, the offending IE and the failed rule.
    pub(super) fn why(&self) -> (u8, Option<u16>, Option<FailedRuleId>) {
        (self.cause, self.offending, self.failed)
    }

    pub(super) fn tunnel(&self, pdr: u16) -> FTeid {
        self.created.iter().find(|it| it.0 == pdr).unwrap().1.unwrap()
    }

    pub(super) fn user(&self, pdr: u16) -> UeIpAddress {
        self.created.iter().find(|it| it.0 == pdr).unwrap().2.unwrap()
    }
}

pub(super) type Body<'b> = &'b dyn Fn(&mut Writer<'_>);

fn message(
    kind: MessageType,
    seid: u64,
    sequence: u32,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).message(Header::session(kind, seid, sequence), body);
    bytes
}

/// Returns an establishment with the CP SEID `seid`.
pub(super) fn establishment(sequence: u32, seid: u64, body: Body<'_>) -> Vec<u8> {
    message(MessageType::SESSION_ESTABLISHMENT_REQUEST, 0, sequence, |w| {
        w.put(&ie::NodeId::V4(Ipv4Addr::new(10, 9, 0, 1)));
        w.put(&FSeid { seid, v4: Some(Ipv4Addr::new(10, 9, 0, 1)), v6: None });
        body(w);
    })
}

pub(super) fn modification(sequence: u32, seid: u64, body: Body<'_>) -> Vec<u8> {
    message(MessageType::SESSION_MODIFICATION_REQUEST, seid, sequence, |w| body(w))
}

pub(super) fn deletion(sequence: u32, seid: u64) -> Vec<u8> {
    message(MessageType::SESSION_DELETION_REQUEST, seid, sequence, |_| {})
}

pub(super) fn choose(id: Option<u8>) -> FTeid {
    FTeid { choose_v4: true, choose_id: id, ..FTeid::default() }
}

pub(super) fn address(v4: Ipv4Addr) -> UeIpAddress {
    UeIpAddress { v4: Some(v4), ..UeIpAddress::default() }
}

/// Appends a Create PDR with the given IDs of its FAR, QERs and URRs.
pub(super) fn pdr(w: &mut Writer<'_>, id: u16, far: u32, pdi: Body<'_>, more: Body<'_>) {
    w.group(IeType::CREATE_PDR, |w| {
        w.put(&ie::PdrId(id));
        w.put(&ie::Precedence(100));
        w.group(IeType::PDI, |w| pdi(w));
        w.put(&ie::FarId(far));
        more(w);
    });
}

pub(super) fn access(w: &mut Writer<'_>, tunnel: &FTeid) {
    w.put(&ie::SourceInterface::ACCESS);
    w.put(tunnel);
    w.put(&ie::NetworkInstance(b"access"));
}

pub(super) fn core(w: &mut Writer<'_>, instance: &[u8], user: &UeIpAddress) {
    w.put(&ie::SourceInterface::CORE);
    w.put(&ie::NetworkInstance(instance));
    w.put(user);
}

pub(super) fn far_up(w: &mut Writer<'_>, id: u32) {
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&ie::FarId(id));
        w.put(&ie::ApplyAction::FORW);
        w.group(IeType::FORWARDING_PARAMETERS, |w| w.put(&ie::DestinationInterface::CORE));
    });
}

pub(super) fn far_down(w: &mut Writer<'_>, id: u32, teid: u32) {
    w.group(IeType::CREATE_FAR, |w| {
        w.put(&ie::FarId(id));
        w.put(&ie::ApplyAction::FORW);
        w.group(IeType::FORWARDING_PARAMETERS, |w| {
            w.put(&ie::DestinationInterface::ACCESS);
            w.put(&ie::OuterHeaderCreation::gtp_u_v4(teid, GNB));
        });
    });
}

pub(super) fn urr(w: &mut Writer<'_>, id: u32) {
    w.group(IeType::CREATE_URR, |w| {
        w.put(&ie::UrrId(id));
        w.put(&ie::MeasurementMethod::VOLUM);
        w.put(&ie::ReportingTriggers::VOLTH);
        let octets = ie::Volumes { total: Some(1 << 30), ..ie::Volumes::default() };
        w.put(&ie::VolumeThreshold(octets));
    });
}

pub(super) fn qer(w: &mut Writer<'_>, id: u32) {
    w.group(IeType::CREATE_QER, |w| {
        w.put(&ie::QerId(id));
        w.put(&ie::GateStatus { uplink: ie::Gate::Open, downlink: ie::Gate::Open });
        w.put(&ie::Mbr { uplink: 1000, downlink: 2000 });
        w.put(&ie::Qfi(9));
    });
}

/// Appends the rules of a typical session: two PDRs, two FARs, a QER and a URR.
pub(super) fn usual(w: &mut Writer<'_>, user: &UeIpAddress) {
    let rules: Body<'_> = &|w| {
        w.put(&ie::UrrId(1));
        w.put(&ie::QerId(1));
    };
    let removal: Body<'_> = &|w| {
        w.put(&ie::OuterHeaderRemoval { description: 0, extension_headers: 0 });
        rules(w);
    };
    pdr(w, 1, 1, &|w| access(w, &choose(None)), removal);
    pdr(w, 2, 2, &|w| core(w, b"internet", user), rules);
    far_up(w, 1);
    far_down(w, 2, 0x100);
    urr(w, 1);
    qer(w, 1);
}
