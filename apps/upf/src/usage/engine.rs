//! Engine of session reports: their creation, transmission and acknowledgement.
//!
//! # Schedule
//! [`Timers`] are the deadlines of sessions. [`Parked`] sessions have reports that wait for room,
//! because their peer already has the maximum number of pending requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::detours::{Detours, redirect};
use super::measurement::StateSlots;
use super::peer_tunnels::{Remotes, tunnels};
use super::reports::error_request;
use crate::rules::layout::message::{PathMessage, SessionEvent};
use crate::session::{DownlinkData, Session, SessionIndex, UsageReport};
use crate::time::{Now, SECOND};
use crate::transactions::{Outbox, Request, Requests, Tag};

/// Maximum number of sessions evaluated in one call.
const LOOKS: usize = 512;
/// Number of session indices scanned for pending events in one call.
const SCANNED: u32 = 8192;
/// Interval between two scans for pending events, in nanoseconds.
const SCAN_EVERY: u64 = SECOND / 100;
/// Maximum number of requests of one evaluation.
pub(super) const MOST_REQUESTS: usize = 32;
/// Delay before a report without response, or a failed commit, is tried again, in nanoseconds.
pub(super) const AGAIN: u64 = 30 * SECOND;
/// Maximum number of sessions with a delayed downlink data notification.
pub(super) const DELAYED: usize = 1 << 16;

/// Counters of session reports since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageStatistics {
    /// Session report requests sent, without retransmissions.
    pub requests: u64,
    /// Usage reports sent.
    pub usage_reports: u64,
    /// Downlink data reports.
    pub downlink_reports: u64,
    /// Inactivity reports.
    pub inactivity_reports: u64,
    /// Error indication reports.
    pub error_reports: u64,
    /// Error indications for tunnels of no session.
    pub errors_ignored: u64,
    /// Error indications for tunnels with a pending report.
    pub errors_repeated: u64,
    /// Requests without response after N1 times T1; they are sent again later.
    pub unanswered: u64,
    /// Responses that refuse the report.
    pub refused: u64,
    /// Sessions that the control plane did not know any more.
    pub unknown_there: u64,
    /// Requests sent to another control plane function than that of the CP F-SEID.
    pub redirected: u64,
    /// Changes that could not be stored; they are tried again.
    pub not_kept: u64,
}

/// Engine of session reports.
#[derive(Debug)]
pub struct Usage {
    pub(super) timers: Timers,
    pub(super) remotes: Remotes,
    /// Pending requests by sequence number.
    pub(super) flying: HashMap<u32, SessionIndex>,
    /// Sessions with a pending error indication report.
    pub(super) errors: HashMap<SessionIndex, u32>,
    /// Buffered packets whose notification is delayed (BAR), with its time.
    pub(super) delayed: HashMap<SessionIndex, (DownlinkData, u64)>,
    /// Sessions whose reports wait for room at their peer.
    pub(super) parked: Parked,
    /// Other destinations of reports to silent control planes.
    pub(super) detours: Detours,
    /// Peer that was served last of those with waiting sessions.
    turn: Option<SocketAddr>,
    pub(super) statistics: UsageStatistics,
    scanned: u32,
    scan_at: u64,
}

/// Access to stored and published sessions, and to the events that lanes raise.
pub trait SessionBackend: StateSlots {
    /// Returns the number of session indices.
    fn capacity(&self) -> u32;

    /// Returns the session with an index, unless it was removed.
    fn session(&self, id: SessionIndex) -> Option<Session>;

    /// Returns a version that no session has had.
    fn next_version(&mut self) -> u64;

    /// Commits and publishes a session. A committed session survives the death of this process.
    ///
    /// # Errors
    /// There is no space; nothing has changed then.
    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String>;

    /// Returns true if lanes have this version of a session. A version may be committed and not
    /// published because the process was killed or a table was full.
    fn is_published(&self, session: &Session) -> bool;

    /// Returns the destination of requests about a session, and our address to send from.
    fn peer_address(&self, session: &Session) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::new(session.cp_fseid.address, fastlane_pfcp::PORT), None)
    }

    /// Calls `visit` for each of `count` sessions from `from` on with pending events, with the
    /// value for [`done`](Self::done).
    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionIndex, u64));

    /// Marks the events of a session up to `seen` as handled.
    fn done(&mut self, id: SessionIndex, seen: u64);
}

/// Context of a call.
pub struct ReportContext<'a, G> {
    /// Sessions of the node.
    pub backend: &'a mut G,
    /// Our pending requests.
    pub requests: &'a mut Requests,
    /// Messages to send.
    pub out: &'a mut Outbox,
    /// Current time.
    pub now: Now,
}

impl Usage {
    /// Creates an engine that continues the work of its predecessor: evaluates each session once,
    /// sends pending reports again and arms the timers.
    pub fn open<G: SessionBackend>(on: &mut ReportContext<'_, G>) -> Self {
        let mut usage = Self::begin(on.backend);
        for place in 0..on.backend.capacity() {
            if let Some(session) = on.backend.session(SessionIndex(place)) {
                usage.found(on, session);
            }
        }
        usage
    }

    /// Creates an engine without sessions; [`found`](Self::found) adds each one.
    pub fn begin<G: SessionBackend>(backend: &G) -> Self {
        Self {
            timers: Timers::new(backend.capacity()),
            remotes: Remotes::new(backend.capacity()),
            flying: HashMap::new(),
            errors: HashMap::new(),
            delayed: HashMap::new(),
            parked: Parked::new(backend.capacity()),
            detours: Detours::default(),
            turn: None,
            statistics: UsageStatistics::default(),
            scanned: 0,
            scan_at: 0,
        }
    }

    /// Adds a session of the previous process.
    pub fn found<G: SessionBackend>(&mut self, on: &mut ReportContext<'_, G>, session: Session) {
        self.follow(Some(&session));
        self.evaluate_session(on, &session.clone(), session, None);
    }

    /// Indexes the tunnels of a session. Later changes arrive by [`changed`](Self::changed).
    pub fn follow(&mut self, session: Option<&Session>) {
        self.remotes.change(None, session);
    }

    /// Handles an established, modified or removed session: `before` and `after` as committed.
    pub fn changed<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        before: Option<&Session>,
        after: Option<&Session>,
    ) {
        self.remotes.change(before, after);
        let Some(id) = after.or(before).map(|session| session.id) else { return };
        match after {
            Some(after) => {
                if before.is_some_and(|before| before.cp_fseid != after.cp_fseid) {
                    self.recall(on, after);
                }
                let mut session = after.clone();
                if before.is_some_and(|before| before.inactivity_s != after.inactivity_s) {
                    session.reporting.awaited_from = on.now.monotonic;
                    session.reporting.is_inactive = false;
                }
                self.evaluate_session(on, after, session, None);
            }
            None => self.forget(on, id),
        }
    }

    /// Returns the usage reports of a session that wait for another try, because nobody answered or
    /// a control plane could not take them. Those in flight are left out: they may have arrived,
    /// and would be counted twice.
    #[must_use]
    pub fn unheard(&self, session: &Session) -> Vec<UsageReport> {
        let all = session.reporting.unacknowledged.iter();
        let waiting = all.filter(|it| self.flying.get(&it.message) != Some(&session.id));
        waiting.flat_map(|it| it.usage.iter().cloned()).collect()
    }

    /// Takes back the pending reports of a session whose CP F-SEID has changed; the next evaluation
    /// sends them to the new one.
    pub(super) fn recall<G>(&mut self, on: &mut ReportContext<'_, G>, session: &Session) {
        for report in &session.reporting.unacknowledged {
            if self.flying.get(&report.message) == Some(&session.id) {
                on.requests.cancel(report.message);
                self.flying.remove(&report.message);
            }
        }
    }

    fn forget<G: SessionBackend>(&mut self, on: &mut ReportContext<'_, G>, id: SessionIndex) {
        self.timers.set(id, None);
        self.delayed.remove(&id);
        if let Some(sequence) = self.errors.remove(&id) {
            on.requests.cancel(sequence);
            self.flying.remove(&sequence);
        }
    }

    /// Handles a lane message about an event of a session.
    pub fn event<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        event: &SessionEvent,
    ) {
        let id = SessionIndex(event.session);
        if event.session >= on.backend.capacity() {
            return;
        }
        let mut seen = None;
        on.backend.raised(event.session, 1, &mut |_, it| seen = Some(it));
        self.evaluate(on, id, Some(event));
        if let Some(seen) = seen {
            on.backend.done(id, seen);
        }
    }

    /// Runs due timers and scans for events whose messages were lost. Returns the latest time of
    /// the next call.
    pub fn tick<G: SessionBackend>(&mut self, on: &mut ReportContext<'_, G>) -> u64 {
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
            self.evaluate(on, id, None);
        }
        self.timers.next().map_or(self.scan_at, |at| at.min(self.scan_at))
    }

    /// Returns a waiting session whose peer has room again. Peers take turns.
    fn unpark(&mut self, requests: &Requests) -> Option<SessionIndex> {
        let has_room = |peer| requests.room_for(peer) >= MOST_REQUESTS;
        self.turn = self.parked.next(self.turn, has_room);
        self.parked.take(self.turn?)
    }

    /// Scans the next session indices for pending events.
    fn scan<G: SessionBackend>(&mut self, on: &mut ReportContext<'_, G>) {
        let mut found = Vec::new();
        let capacity = on.backend.capacity();
        let from = if self.scanned >= capacity { 0 } else { self.scanned };
        on.backend.raised(from, SCANNED, &mut |id, seen| found.push((id, seen)));
        self.scanned = from.saturating_add(SCANNED);
        for (id, seen) in found {
            self.evaluate(on, id, None);
            on.backend.done(id, seen);
        }
    }

    /// Handles an error indication (TS 29.281 clause 7.3.1): reports it to the session's control
    /// plane (clause 5.10), unless a report is pending.
    pub fn error_indication<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        message: &PathMessage,
    ) {
        let peer = Ipv6Addr::from(message.peer).to_canonical();
        let mut is_known = false;
        for id in self.remotes.find(peer, message.teid) {
            let Some(session) = on.backend.session(id) else { continue };
            if tunnels(&session).any(|tunnel| tunnel == (peer, message.teid)) {
                is_known = true;
                self.error(on, &session, peer, message.teid);
            }
        }
        self.statistics.errors_ignored += u64::from(!is_known);
    }

    fn error<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        session: &Session,
        peer: IpAddr,
        teid: u32,
    ) {
        let room = on.requests.room_for(self.destination(on, session).0);
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

    /// Sends a session report request. Returns false if there was no room.
    pub(super) fn send<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        session: &Session,
        sequence: u32,
        bytes: Vec<u8>,
    ) -> bool {
        let (to, local) = self.destination(on, session);
        let is_redirected = to.ip() != session.cp_fseid.address;
        let bytes = if is_redirected { redirect(&bytes, session.cp_fseid) } else { bytes };
        let tag = Tag::Report(session.id);
        let request = Request { bytes, sequence, to, local, tag };
        let is_sent = on.requests.send(on.now, request, on.out).is_ok();
        if is_sent {
            self.flying.insert(sequence, session.id);
            self.statistics.requests += 1;
            self.statistics.redirected += u64::from(is_redirected);
        }
        is_sent
    }

    /// Returns the destination of reports about a session, and our address to send from.
    pub(super) fn destination<G: SessionBackend>(
        &self,
        on: &ReportContext<'_, G>,
        session: &Session,
    ) -> (SocketAddr, Option<IpAddr>) {
        let (to, local) = on.backend.peer_address(session);
        match self.detours.find(session, on.now.monotonic) {
            Some(other) => (SocketAddr::new(other, to.port()), None),
            None => (to, local),
        }
    }

    /// Returns the other destinations of reports to silent control planes.
    pub const fn detours(&mut self) -> &mut Detours {
        &mut self.detours
    }

    /// Counts a report that was sent to another control plane.
    pub const fn count_redirected(&mut self) {
        self.statistics.redirected += 1;
    }

    /// Handles a request without response. It is sent again later with the same content.
    pub fn given_up<G: SessionBackend>(
        &mut self,
        on: &mut ReportContext<'_, G>,
        id: SessionIndex,
        sequence: u32,
    ) {
        self.statistics.unanswered += 1;
        self.flying.remove(&sequence);
        if self.errors.get(&id) == Some(&sequence) {
            self.errors.remove(&id);
        }
        self.timers.sooner(id, on.now.monotonic.saturating_add(AGAIN));
    }

    /// Returns the number of indexed peer tunnels.
    #[must_use]
    pub const fn tunnels(&self) -> usize {
        self.remotes.len()
    }

    /// Returns the counters of session reports.
    #[must_use]
    pub const fn statistics(&self) -> &UsageStatistics {
        &self.statistics
    }
}

/// Heap of deadlines, at most one valid per session. Setting one and taking the earliest cost
/// logarithmic time; no operation visits all sessions.
///
/// Memory: 8 bytes per session index in pages with deadlines, and 16 per deadline.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// Valid deadline of each session; 0 if none. Other heap entries are obsolete.
    set: Vec<u64>,
}

impl Timers {
    /// Creates an empty heap for `capacity` session indices.
    #[must_use]
    pub(super) fn new(capacity: u32) -> Self {
        Self { heap: BinaryHeap::new(), set: vec![0; capacity as usize] }
    }

    /// Replaces the deadline of a session. `None` removes it.
    pub(super) fn set(&mut self, session: SessionIndex, at: Option<u64>) {
        let Some(slot) = self.set.get_mut(session.0 as usize) else { return };
        let at = at.map_or(0, |at| at.max(1));
        // A page that only has zeros takes no memory as long as nothing is written.
        if *slot == at {
            return;
        }
        *slot = at;
        if at != 0 {
            self.heap.push(Reverse((at, session.0)));
        }
        if self.heap.len() > 64 + 4 * self.set.len() {
            self.sweep();
        }
    }

    /// Moves the deadline of a session forward to `at`, if it is later or absent.
    pub(super) fn sooner(&mut self, session: SessionIndex, at: u64) {
        let set = self.set.get(session.0 as usize).copied().filter(|set| *set != 0);
        self.set(session, Some(set.map_or(at, |set| set.min(at))));
    }

    /// Takes a session whose deadline has passed.
    pub(super) fn take(&mut self, now: u64) -> Option<SessionIndex> {
        while let Some(&Reverse((at, session))) = self.heap.peek() {
            let slot = self.set.get_mut(session as usize);
            let Some(slot) = slot.filter(|slot| **slot == at) else {
                self.heap.pop();
                continue;
            };
            if at > now {
                return None;
            }
            *slot = 0;
            self.heap.pop();
            return Some(SessionIndex(session));
        }
        None
    }

    /// Returns the earliest deadline, or an earlier obsolete one.
    #[must_use]
    pub(super) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes obsolete entries.
    fn sweep(&mut self) {
        let set = &self.set;
        self.heap.retain(|Reverse((at, session))| set.get(*session as usize) == Some(at));
    }
}

/// Waiting sessions by peer, in the order of their arrival, each once.
///
/// Memory: one bit per session index, and 4 octets per waiting session.
#[derive(Debug, Default)]
pub(super) struct Parked {
    by_peer: BTreeMap<SocketAddr, VecDeque<SessionIndex>>,
    is_in: Vec<u64>,
}

impl Parked {
    /// Creates an empty set for `capacity` session indices.
    pub(super) fn new(capacity: u32) -> Self {
        Self { by_peer: BTreeMap::new(), is_in: vec![0; capacity.div_ceil(64) as usize] }
    }

    /// Returns true if a session waits.
    pub(super) fn has(&self, id: SessionIndex) -> bool {
        let word = self.is_in.get(id.0 as usize / 64);
        word.is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }

    /// Adds a session that waits for room at a peer.
    pub(super) fn add(&mut self, peer: SocketAddr, id: SessionIndex) {
        if self.has(id) {
            return;
        }
        if let Some(word) = self.is_in.get_mut(id.0 as usize / 64) {
            *word |= 1 << (id.0 % 64);
            self.by_peer.entry(peer).or_default().push_back(id);
        }
    }

    /// Returns the next peer after `after`, or the first, with a waiting session and `has_room`.
    pub(super) fn next(
        &self,
        after: Option<SocketAddr>,
        has_room: impl Fn(SocketAddr) -> bool,
    ) -> Option<SocketAddr> {
        let all = || self.by_peer.keys().copied();
        let later = all().find(|peer| Some(*peer) > after && has_room(*peer));
        later.or_else(|| all().find(|peer| has_room(*peer)))
    }

    /// Takes the session that has waited longest for a peer.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<SessionIndex> {
        let waiting = self.by_peer.get_mut(&peer)?;
        let id = waiting.pop_front();
        if waiting.is_empty() {
            self.by_peer.remove(&peer);
        }
        let word = id.and_then(|id| self.is_in.get_mut(id.0 as usize / 64));
        if let (Some(id), Some(word)) = (id, word) {
            *word &= !(1 << (id.0 % 64));
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_session_is_taken_at_its_last_deadline_and_once(
            steps in prop::collection::vec((0..8u32, prop::option::of(1..100u64)), 1..200),
            now in 0..100u64,
        ) {
            let mut timers = Timers::new(8);
            let mut model = [None; 8];
            for (session, at) in steps {
                timers.set(SessionIndex(session), at);
                model[session as usize] = at;
            }
            let mut taken = Vec::new();
            while let Some(SessionIndex(session)) = timers.take(now) {
                prop_assert!(model[session as usize].is_some_and(|at| at <= now));
                taken.push((model[session as usize].take(), session));
            }
            prop_assert!(taken.is_sorted());
            prop_assert!(model.iter().flatten().all(|at| *at > now));
            prop_assert_eq!(timers.next(), model.iter().flatten().copied().min());
        }
    }

    #[test]
    fn old_deadlines_do_not_pile_up() {
        let mut timers = Timers::new(4);
        for at in 1..100_000 {
            timers.set(SessionIndex(1), Some(at));
        }
        assert!(timers.heap.len() < 200);
        assert_eq!((timers.take(u64::MAX), timers.take(u64::MAX)), (Some(SessionIndex(1)), None));
        timers.set(SessionIndex(9), Some(1)); // no such index
        assert_eq!(timers.take(u64::MAX), None);
    }

    #[test]
    fn peers_take_turns_and_each_session_is_there_once() {
        let mut parked = Parked::new(100);
        let peer = |host| SocketAddr::from(([10, 0, 0, host], 8805));
        for id in [5, 7, 5, 500, 9] {
            parked.add(peer(1), SessionIndex(id));
        }
        parked.add(peer(2), SessionIndex(6));
        parked.add(peer(2), SessionIndex(7));
        let mut taken = Vec::new();
        let mut last = None;
        while let Some(next) = parked.next(last, |_| true) {
            taken.push(parked.take(next).unwrap().0);
            last = Some(next);
        }
        assert_eq!(taken, [5, 6, 7, 9]);
        assert!((0..100).all(|id| !parked.has(SessionIndex(id))));
        parked.add(peer(1), SessionIndex(5));
        assert_eq!(parked.next(None, |other| other != peer(1)), None);
        assert_eq!(parked.take(peer(2)), None);
    }
}
