//! Session reports: when they are made, and what becomes of their answers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::ground::Ground;
use super::look::MOST_REQUESTS;
use super::parked::Parked;
use super::remotes::{Remotes, tunnels};
use super::timers::Timers;
use super::write::error_request;
use crate::pfcp::{Outbox, Request, Requests, Tag};
use crate::rules::layout::message::{PathMessage, SessionEvent};
use crate::session::{DownlinkData, Session, SessionId};
use crate::time::Now;
use crate::time::SECOND;

/// Sessions that one call looks at, at most.
const LOOKS: usize = 512;
/// Places of which one call looks whether events are pending.
const SCANNED: u32 = 8192;
/// From one scan of pending events to the next, in nanoseconds.
const SCAN_EVERY: u64 = SECOND / 100;
/// When a report that nobody answered, or that could not be kept, is tried again.
pub(super) const AGAIN: u64 = 30 * SECOND;
/// The most sessions of which the notification of held packets waits for its delay.
pub(super) const DELAYED: usize = 1 << 16;

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStatistics {
    /// Session report requests sent, each once however often it was repeated.
    pub requests: u64,
    /// Usage reports in them.
    pub usage_reports: u64,
    /// Downlink data reports.
    pub downlink_reports: u64,
    /// Inactivity reports.
    pub inactivity_reports: u64,
    /// Error indication reports.
    pub error_reports: u64,
    /// Error indications for tunnels that no session has.
    pub errors_ignored: u64,
    /// Error indications for tunnels of which a report is on its way.
    pub errors_repeated: u64,
    /// Requests that were not answered N1 times T1; they are sent again later.
    pub unanswered: u64,
    /// Answers that refuse.
    pub refused: u64,
    /// Sessions that the control plane did not know any more.
    pub unknown_there: u64,
    /// Changes that could not be kept; they are tried again.
    pub not_kept: u64,
}

/// Makes session reports.
#[derive(Debug)]
pub struct Usage {
    pub(super) timers: Timers,
    pub(super) remotes: Remotes,
    /// Requests that wait for an answer, by their sequence number.
    pub(super) flying: HashMap<u32, SessionId>,
    /// Sessions of which an error indication report waits for an answer.
    pub(super) errors: HashMap<SessionId, u32>,
    /// Held packets of which the control plane is told later (BAR), and when.
    pub(super) delayed: HashMap<SessionId, (DownlinkData, u64)>,
    /// Sessions whose reports have no room yet.
    pub(super) parked: Parked,
    /// The peer that had its turn last of those for which sessions wait.
    turn: Option<SocketAddr>,
    pub(super) statistics: UsageStatistics,
    scanned: u32,
    scan_at: u64,
}

/// What a call works with.
pub struct On<'a, G> {
    /// Sessions.
    pub ground: &'a mut G,
    /// Requests of ours.
    pub requests: &'a mut Requests,
    /// What is to be sent.
    pub out: &'a mut Outbox,
    /// The time.
    pub now: Now,
}

impl Usage {
    /// Begins, or goes on after whoever was here before: looks at each session once, sends again
    /// what was not answered, and arms the timers.
    pub fn open<G: Ground>(on: &mut On<'_, G>) -> Self {
        let mut usage = Self::begin(on.ground);
        for place in 0..on.ground.capacity() {
            if let Some(session) = on.ground.session(SessionId(place)) {
                usage.found(on, session);
            }
        }
        usage
    }

    /// Begins without a look at what is there: [`found`](Self::found) is called with each session.
    pub fn begin<G: Ground>(ground: &G) -> Self {
        Self {
            timers: Timers::new(ground.capacity()),
            remotes: Remotes::default(),
            flying: HashMap::new(),
            errors: HashMap::new(),
            delayed: HashMap::new(),
            parked: Parked::new(ground.capacity()),
            turn: None,
            statistics: UsageStatistics::default(),
            scanned: 0,
            scan_at: 0,
        }
    }

    /// A session of whoever was here before, as its record says now.
    pub fn found<G: Ground>(&mut self, on: &mut On<'_, G>, session: Session) {
        self.follow(Some(&session));
        self.look_at(on, &session.clone(), session, None);
    }

    /// Its tunnels are known from now on, as long as [`changed`](Self::changed) tells of it.
    pub fn follow(&mut self, session: Option<&Session>) {
        self.remotes.change(None, session);
    }

    /// A session was established, modified or removed: `before` and `after` as they were committed.
    /// What is to be looked at follows from the records; this says that it has changed.
    pub fn changed<G: Ground>(
        &mut self,
        on: &mut On<'_, G>,
        before: Option<&Session>,
        after: Option<&Session>,
    ) {
        self.remotes.change(before, after);
        let Some(id) = after.or(before).map(|session| session.id) else { return };
        match after {
            Some(after) => {
                let mut session = after.clone();
                if before.is_some_and(|before| before.inactivity_s != after.inactivity_s) {
                    session.reporting.awaited_from = on.now.monotonic;
                    session.reporting.is_inactive = false;
                }
                self.look_at(on, after, session, None);
            }
            None => self.forget(on, id),
        }
    }

    fn forget<G: Ground>(&mut self, on: &mut On<'_, G>, id: SessionId) {
        self.timers.set(id, None);
        self.delayed.remove(&id);
        if let Some(sequence) = self.errors.remove(&id) {
            on.requests.cancel(sequence);
            self.flying.remove(&sequence);
        }
    }

    /// A lane's message: something has happened to a session.
    pub fn event<G: Ground>(&mut self, on: &mut On<'_, G>, event: &SessionEvent) {
        let id = SessionId(event.session);
        if event.session >= on.ground.capacity() {
            return;
        }
        let mut seen = None;
        on.ground.raised(event.session, 1, &mut |_, it| seen = Some(it));
        self.look(on, id, Some(event));
        if let Some(seen) = seen {
            on.ground.done(id, seen);
        }
    }

    /// Does what is due, of so many sessions at most, and looks for events whose messages were
    /// lost. Returns when it is to be called again, at the latest.
    pub fn tick<G: Ground>(&mut self, on: &mut On<'_, G>) -> u64 {
        if self.scan_at <= on.now.monotonic {
            self.scan_at = on.now.monotonic.saturating_add(SCAN_EVERY);
            self.scan(on);
        }
        for _ in 0..LOOKS {
            if on.requests.room() == 0 {
                return self.scan_at;
            }
            let parked = self.unpark(on.requests);
            let Some(id) = parked.or_else(|| self.timers.take(on.now.monotonic)) else { break };
            self.look(on, id, None);
        }
        self.timers.next().map_or(self.scan_at, |at| at.min(self.scan_at))
    }

    /// A session that has waited for room at its peer, where there is some. Peers take turns.
    fn unpark(&mut self, requests: &Requests) -> Option<SessionId> {
        let has_room = |peer| requests.room_for(peer) >= MOST_REQUESTS;
        self.turn = self.parked.next(self.turn, has_room);
        self.parked.take(self.turn?)
    }

    /// Looks for pending events in the next places.
    fn scan<G: Ground>(&mut self, on: &mut On<'_, G>) {
        let mut found = Vec::new();
        let capacity = on.ground.capacity();
        let from = if self.scanned >= capacity { 0 } else { self.scanned };
        on.ground.raised(from, SCANNED, &mut |id, seen| found.push((id, seen)));
        self.scanned = from.saturating_add(SCANNED);
        for (id, seen) in found {
            self.look(on, id, None);
            on.ground.done(id, seen);
        }
    }

    /// A peer does not know a tunnel (TS 29.281 clause 7.3.1): the session's control plane function
    /// is told (clause 5.10), unless it was just told and has not answered yet.
    pub fn error_indication<G: Ground>(&mut self, on: &mut On<'_, G>, message: &PathMessage) {
        let peer = Ipv6Addr::from(message.peer).to_canonical();
        let mut is_known = false;
        for id in self.remotes.find(peer, message.teid) {
            let Some(session) = on.ground.session(id) else { continue };
            if tunnels(&session).any(|tunnel| tunnel == (peer, message.teid)) {
                is_known = true;
                self.error(on, &session, peer, message.teid);
            }
        }
        self.statistics.errors_ignored += u64::from(!is_known);
    }

    fn error<G: Ground>(&mut self, on: &mut On<'_, G>, session: &Session, peer: IpAddr, teid: u32) {
        let room = on.requests.room_for(on.ground.way(session).0);
        if self.errors.contains_key(&session.id) || room == 0 {
            self.statistics.errors_repeated += 1;
            return;
        }
        let sequence = on.requests.sequence();
        let bytes = error_request(session, sequence, peer, teid);
        if self.send(on, session, sequence, bytes) {
            self.errors.insert(session.id, sequence);
            self.statistics.error_reports += 1;
        }
    }

    /// Sends a request about a session; whether there was room.
    pub(super) fn send<G: Ground>(
        &mut self,
        on: &mut On<'_, G>,
        session: &Session,
        sequence: u32,
        bytes: Vec<u8>,
    ) -> bool {
        let (to, local) = on.ground.way(session);
        let tag = Tag::Report(session.id);
        let request = Request { bytes, sequence, to, local, tag };
        let is_sent = on.requests.send(on.now, request, on.out).is_ok();
        if is_sent {
            self.flying.insert(sequence, session.id);
            self.statistics.requests += 1;
        }
        is_sent
    }

    /// A request with this number was not answered. It is sent again later, with what it says.
    pub fn given_up<G: Ground>(&mut self, on: &mut On<'_, G>, id: SessionId, sequence: u32) {
        self.statistics.unanswered += 1;
        self.flying.remove(&sequence);
        if self.errors.get(&id) == Some(&sequence) {
            self.errors.remove(&id);
        }
        self.timers.sooner(id, on.now.monotonic.saturating_add(AGAIN));
    }

    /// How many tunnels at peers are known, by which error indications are told apart.
    #[must_use]
    pub const fn tunnels(&self) -> usize {
        self.remotes.len()
    }

    /// What was counted.
    #[must_use]
    pub const fn statistics(&self) -> &UsageStatistics {
        &self.statistics
    }
}
