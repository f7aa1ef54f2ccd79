//! Real tables, a lane that counts by the published session, and a control plane that decodes each
//! request.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fastlane::table::{EntryId, GracePeriods};
use fastlane_pfcp::ie::{
    CauseIe, DownlinkDataServiceInformation, PdrId, ReportType, UrSeqn, UrrId, UsageInformation,
    UsageReportTrigger, VolumeMeasurement,
};
use fastlane_pfcp::{Cause, Group, Header, IeType, Message, MessageType, Writer};
use fastlane_testing::sleeping_lane;

use super::table_backend::TableBackend;
use crate::config::nat_plan::NatPlan;
use crate::pfcp::{Outbox, Request, Requests};
use crate::rules::compile::Context;
use crate::rules::layout::counter_slots::{EVENTS, LAST, WORDS, event};
use crate::rules::layout::message::{PathMessage, SessionEvent};
use crate::rules::layout::nat_tables::{NAT_BLOCKS, NAT_USERS};
use crate::rules::layout::slices::{HOLD_BUDGETS, SLICES};
use crate::rules::layout::{TeidLayout, table};
use crate::rules::publish::Published;
use crate::rules::{Capacities, Events, Private, Tables};
use crate::session::{Network, Session, SessionIndex, Watch};
use crate::store::{Store, typical};
use crate::time::{Now, SECOND};
use crate::usage::{Meter, Outcome, ReportContext, Usage, collect_for_response};

const SESSIONS: usize = 8;
/// Address of the control plane.
pub(super) const SMF: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), fastlane_pfcp::PORT);

/// Usage report as decoded by the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReceivedUsage {
    pub(super) triggers: UsageReportTrigger,
    pub(super) information: u64,
    /// Octets: total, uplink, downlink.
    pub(super) octets: Option<[u64; 3]>,
}

/// Control plane: usage by session, URR and UR-SEQN.
#[derive(Debug, Default)]
pub(super) struct Smf {
    pub(super) usage: BTreeMap<(u64, u32, u32), ReceivedUsage>,
    /// Report types and sequence numbers of received requests, including retransmissions.
    pub(super) requests: Vec<(u64, u32)>,
    pub(super) notified: Vec<u16>,
    /// QoS flow of each notification.
    pub(super) flows: Vec<Option<u8>>,
}

/// The process under test, which may be killed.
pub(super) struct Process {
    pub(super) store: Store,
    pub(super) published: Published,
    pub(super) usage: Option<Usage>,
    pub(super) requests: Requests,
    pub(super) out: Outbox,
}

pub(super) struct Testbed {
    pub(super) memory: Private,
    pub(super) process: Process,
    pub(super) smf: Smf,
    pub(super) now: Now,
    starts: u32,
}

fn context() -> Context {
    Context {
        shape: TeidLayout::of(SESSIONS),
        network: Network::of_data_networks(&[1, 2]),
        predefined: BTreeMap::default(),
        held_packets: 64,
        held_ms: 60_000,
        nat: NatPlan::default(),
    }
}

/// Opens tables like [`Tables::private`], with shared prefix tables.
fn tables(memory: &Private) -> Tables {
    Tables {
        rules: memory.array(table::RULES).unwrap(),
        blocks: memory.array(table::BLOCKS).unwrap(),
        tunnels: memory.hash(table::TUNNELS).unwrap(),
        users: memory.hash(table::USERS).unwrap(),
        framed4: super::pool::lpm4(memory),
        framed6: super::pool::lpm6(memory),
        framed: memory.array(table::FRAMED).unwrap(),
        state: memory.state(table::STATE).unwrap(),
        nat_users: memory.array(NAT_USERS).unwrap(),
        nat_blocks: memory.array(NAT_BLOCKS).unwrap(),
        slices: memory.array(SLICES).unwrap(),
        hold_budgets: memory.array(HOLD_BUDGETS).unwrap(),
        events: Events::Private(memory.pending(table::EVENTS).unwrap()),
        grace_periods: GracePeriods::new(memory.readers().clone()),
    }
}

impl Process {
    pub(super) fn new(memory: &Private, starts: u32) -> Self {
        let store = Store::open(
            memory.array(table::SESSIONS).unwrap(),
            memory.array(table::SESSION_PARTS).unwrap(),
            memory.array(table::ANSWERS).unwrap(),
        );
        let mut published = Published::open(tables(memory), context());
        published.recover(|id| store.get(id));
        let requests = Requests::new(3 * SECOND, 3, starts << 16);
        Self { store, published, usage: None, requests, out: Outbox::new() }
    }

    /// Calls the usage engine of the process, which is opened on the first call.
    pub(super) fn with<T>(
        &mut self,
        now: Now,
        what: impl FnOnce(&mut Usage, &mut ReportContext<'_, TableBackend<'_>>) -> T,
    ) -> T {
        let Self { store, published, usage, requests, out } = self;
        let mut on =
            ReportContext { backend: &mut TableBackend { store, published }, requests, out, now };
        let usage = match usage {
            Some(usage) => usage,
            none => none.insert(Usage::open(&mut on)),
        };
        what(usage, &mut on)
    }
}

impl Testbed {
    pub(super) fn new() -> Self {
        let memory = Private::new(
            Capacities {
                sessions: SESSIONS,
                complex: 4,
                lines: 4 * SESSIONS,
                blocks: 64,
                tunnels: 64,
                users: 64,
                framed: 16,
                parts: 256,
                answers: 64,
                nat: [1; 3],
            },
            sleeping_lane(),
        );
        let now = Now { monotonic: 1000 * SECOND, real: 1_780_000_000 * SECOND };
        let process = Process::new(&memory, 0);
        Self { memory, process, smf: Smf::default(), now, starts: 0 }
    }

    /// Kills the process and starts a successor. Unsent messages are lost.
    pub(super) fn restart(&mut self) {
        self.starts += 1;
        self.process = Process::new(&self.memory, self.starts);
        self.process.with(self.now, |_, _| ());
    }

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.after(milliseconds * SECOND / 1000);
    }

    pub(super) fn session(&self, id: u32) -> Session {
        self.process.store.get(SessionIndex(id)).unwrap()
    }

    /// Establishes a session, as the session handlers do.
    pub(super) fn establish(&mut self, id: u32, shape: impl FnOnce(&mut Session)) {
        let now = self.now;
        let mut session = Session { established: now.real, ..typical(id) };
        session.urrs[0].volume_threshold = None;
        shape(&mut session);
        let Process { store, published, .. } = &mut self.process;
        session.version = store.next_version();
        published.assign(None, &mut session).unwrap();
        for urr in &mut session.urrs {
            let meter = Meter::read(published, urr, session.version);
            urr.begin(meter.counts, meter.last, now);
        }
        store.commit(&session, None, now.monotonic).unwrap();
        published.publish(None, &session).unwrap();
        self.process.with(now, |usage, on| usage.changed(on, None, Some(&session)));
    }

    /// Modifies a session.
    pub(super) fn modify(&mut self, id: u32, change: impl FnOnce(&mut Session, &Published, Now)) {
        let (before, now) = (self.session(id), self.now);
        let mut after = before.clone();
        let Process { store, published, .. } = &mut self.process;
        change(&mut after, published, now);
        super::super::forget_notified(&mut after);
        after.version = store.next_version();
        store.commit(&after, None, now.monotonic).unwrap();
        published.publish(Some(&before), &after).unwrap();
        self.process.with(now, |usage, on| usage.changed(on, Some(&before), Some(&after)));
    }

    /// Queries all URRs and decodes the reports.
    pub(super) fn query(&mut self, id: u32, why: UsageReportTrigger) {
        let (mut reports, now) = (Vec::new(), self.now);
        self.modify(id, |session, published, _| {
            let version = session.version;
            reports = collect_for_response(&mut session.urrs, version, published, now, |_| why);
        });
        let mut bytes = Vec::new();
        let header = Header::session(MessageType::SESSION_MODIFICATION_RESPONSE, 1, 1);
        Writer::new(&mut bytes).message(header, |to| {
            super::super::write_usage(to, IeType::USAGE_REPORT_IN_MODIFICATION, &reports, Some(7));
        });
        let (message, _) = Message::parse(&bytes).unwrap();
        self.smf.read(self.control_seid(id), message.group(), IeType::USAGE_REPORT_IN_MODIFICATION);
    }

    fn control_seid(&self, id: u32) -> u64 {
        u64::from(id) + 1
    }

    /// Handles a packet as a lane does: all URRs count it, or none. Returns true if it passed.
    pub(super) fn packet(&mut self, id: u32, is_up: bool, octets: u64) -> bool {
        let session = self.session(id);
        let state = self.memory.state::<WORDS>(table::STATE).unwrap();
        let lane = state.lane(0);
        let read = |line: u32| Meter::of(state.read(EntryId(line)), session.version);
        let watches: Vec<(u32, Watch, Meter)> = session
            .urrs
            .iter()
            .map(|urr| (urr.progress.line, urr.watch(), read(urr.progress.line)))
            .filter(|(_, watch, _)| !watch.is_paused)
            .collect();
        let stopped = watches.iter().find(|(_, watch, meter)| {
            let total = meter.counts[0] + meter.counts[2] + octets;
            watch.is_stopped
                || watch.quota.total.is_some_and(|quota| total > quota)
                || watch.deadline.is_some_and(|deadline| self.now.monotonic >= deadline)
        });
        if let Some((line, ..)) = stopped {
            self.raise(&session, *line, event::QUOTA);
            return false;
        }
        if watches.is_empty() {
            lane.at(EntryId(id)).set(LAST, self.now.monotonic);
        }
        for (line, watch, meter) in watches {
            let words = lane.at(EntryId(line));
            let (count, packets) = if is_up { (0, 1) } else { (2, 3) };
            words.add(count, octets);
            words.add(packets, 1);
            words.set(LAST, self.now.monotonic);
            let total = meter.counts[0] + meter.counts[2] + octets;
            if watch.threshold.total.is_some_and(|threshold| total >= threshold) {
                self.raise(&session, line, event::THRESHOLD);
            }
            if watch.start {
                self.raise(&session, line, event::START);
            }
        }
        true
    }

    /// Raises an event once per version, as lanes do; its message is lost.
    pub(super) fn raise(&self, session: &Session, line: u32, event: u64) -> bool {
        let state = self.memory.state::<WORDS>(table::STATE).unwrap();
        let lane = state.lane(0);
        let words = lane.at(EntryId(line));
        let version = session.version << 32;
        let old = words.get(EVENTS);
        let old = if old >> 32 == version >> 32 { old } else { version };
        words.set(EVENTS, old | event);
        if old & event == 0 {
            self.memory.pending(table::EVENTS).unwrap().lane(0).raise(EntryId(session.id.0));
        }
        old & event == 0
    }

    /// Buffers a downlink packet, with or without the lane message.
    pub(super) fn hold(&mut self, id: u32, pdr: u16, is_told: bool) {
        self.hold_in_flow(id, pdr, is_told.then_some(5));
    }

    /// Buffers a downlink packet with the lane message about a QoS flow (0: it had no container),
    /// or without a message.
    pub(super) fn hold_in_flow(&mut self, id: u32, pdr: u16, qfi: Option<u8>) {
        let session = self.session(id);
        let is_new = self.raise(&session, id, event::HELD);
        if let Some(qfi) = qfi.filter(|_| is_new) {
            let now = self.now;
            let hint = SessionEvent {
                events: event::HELD,
                version: session.version,
                pdr,
                qfi,
                dscp: 46,
                line: id,
                ..SessionEvent::about(session.id, now.monotonic)
            };
            self.process.with(now, |usage, on| usage.event(on, &hint));
        }
    }

    pub(super) fn tick(&mut self) {
        let now = self.now;
        self.process.with(now, |usage, on| usage.tick(on));
        let Process { requests, out, .. } = &mut self.process;
        let mut late = Vec::new();
        while let Some(given_up) = requests.tick(now, out) {
            late.push(given_up);
        }
        for Request { tag, sequence, .. } in late {
            let crate::pfcp::Tag::Report(id) = tag else { panic!("{tag:?}") };
            self.process.with(now, |usage, on| usage.given_up(on, id, sequence));
        }
    }

    /// Returns the datagrams sent.
    pub(super) fn sent(&mut self) -> Vec<Vec<u8>> {
        self.process.out.lanes.clear();
        std::mem::take(&mut self.process.out.datagrams).into_iter().map(|it| it.bytes).collect()
    }

    /// Decodes a request and sends a response with `cause` and the IEs of `more`.
    pub(super) fn exchange(
        &mut self,
        datagram: &[u8],
        cause: Cause,
        more: impl FnOnce(&mut Writer<'_>),
    ) -> Option<Outcome> {
        let header = self.smf.receive(datagram);
        let mut answer = Vec::new();
        let header = Header::session(MessageType::SESSION_REPORT_RESPONSE, 1, header.sequence);
        Writer::new(&mut answer).message(header, |to| {
            to.put(&CauseIe(cause.0));
            more(to);
        });
        let (message, _) = Message::parse(&answer).unwrap();
        let tag = self.process.requests.answered(SMF, header.sequence, 57)?.tag;
        let crate::pfcp::Tag::Report(id) = tag else { panic!("{tag:?}") };
        Some(self.process.with(self.now, |usage, on| usage.answered(on, id, &message, None)))
    }

    /// Decodes and accepts all requests until no more are sent.
    pub(super) fn settle(&mut self) {
        for _ in 0..1000 {
            self.wait(10);
            self.tick();
            let sent = self.sent();
            if sent.is_empty() {
                return;
            }
            for datagram in sent {
                self.exchange(&datagram, Cause::REQUEST_ACCEPTED, |_| ());
            }
        }
        panic!("it never ends: {:?}", &self.smf.requests[self.smf.requests.len() - 20..]);
    }

    pub(super) fn error_indication(&mut self, peer: Ipv4Addr, teid: u32) {
        self.error_indication6(peer.to_ipv6_mapped(), teid);
    }

    pub(super) fn error_indication6(&mut self, peer: Ipv6Addr, teid: u32) {
        let message = PathMessage {
            peer: peer.octets(),
            local: [0; 16],
            teid,
            sequence: 0,
            interface: 0,
            at: self.now.monotonic,
        };
        self.process.with(self.now, |usage, on| usage.error_indication(on, &message));
    }

    /// Returns the counts of a state slot.
    pub(super) fn counted(&self, line: u32) -> [u64; 4] {
        self.process.published.counters(line)
    }
}

impl Smf {
    /// Decodes a session report request. A retransmitted report must be identical.
    pub(super) fn receive(&mut self, datagram: &[u8]) -> Header {
        let (message, rest) = Message::parse(datagram).unwrap();
        assert!(rest.is_empty());
        message.check().unwrap();
        assert_eq!(message.header.message_type, MessageType::SESSION_REPORT_REQUEST);
        let group = message.group();
        let kind = group.need::<ReportType>().unwrap();
        self.requests.push((kind.0, message.header.sequence));
        for data in group.groups(IeType::DOWNLINK_DATA_REPORT) {
            self.notified.push(data.need::<PdrId>().unwrap().0);
            let information = data.find::<DownlinkDataServiceInformation>().unwrap();
            self.flows.push(information.and_then(|it| it.qfi));
        }
        self.read(message.header.seid.unwrap(), group, IeType::USAGE_REPORT_IN_REPORT);
        message.header
    }

    fn read(&mut self, seid: u64, group: Group<'_>, ie_type: IeType) {
        for report in group.groups(ie_type) {
            let urr = report.need::<UrrId>().unwrap().0;
            let number = report.need::<UrSeqn>().unwrap().0;
            let measured = report.find::<VolumeMeasurement>().unwrap();
            let octets = measured.map(|it| {
                let octets = it.octets;
                [octets.total.unwrap(), octets.uplink.unwrap(), octets.downlink.unwrap()]
            });
            let triggers = report.need::<UsageReportTrigger>().unwrap();
            let information = report.find::<UsageInformation>().unwrap().unwrap_or_default().0;
            let seen = ReceivedUsage { triggers, information, octets };
            let before = self.usage.insert((seid, urr, number), seen.clone());
            assert!(before.is_none_or(|before| before == seen), "{urr} {number}: said otherwise");
        }
    }

    /// Returns the reported uplink and downlink octets of a URR, and the number of reports.
    pub(super) fn sum(&self, seid: u64, urr: u32) -> ([u64; 2], u32) {
        let of = self.usage.iter().filter(|((s, u, _), _)| (*s, *u) == (seid, urr));
        let mut sum = ([0, 0], 0);
        for (number, ((.., sequence), seen)) in of.enumerate() {
            assert_eq!(*sequence as usize, number, "a number is missing");
            let [_, up, down] = seen.octets.unwrap_or_default();
            sum = ([sum.0[0] + up, sum.0[1] + down], sum.1 + 1);
        }
        sum
    }

    pub(super) fn last(&self) -> &ReceivedUsage {
        self.usage.values().next_back().unwrap()
    }
}
