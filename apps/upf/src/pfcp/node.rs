//! PFCP node: handling of datagrams, lane messages and timers.
//!
//! It uses neither sockets nor clocks. Peers are not trusted: each datagram costs bounded work and
//! at most one response per message in it.

mod admission;
mod association_client;
mod association_server;
mod attach;
mod discarded;
mod dispatch;
mod drain;
mod drain_state;
mod heartbeat;
mod node_messages;
mod peer_search;
mod quotas;
mod report_receivers;
mod session_followers;
mod smf_set;
mod statistics;
mod user_plane;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::DerefMut;

use fastlane::table::{RecordWriter, TableError};
use fastlane_pfcp::{Cause, Message, MessageType};

use self::admission::Refusals;
use self::association_client::Initiations;
use self::association_server::Removal;
use self::attach::{BLOCK, begin};
use self::drain::Drain;
use self::drain_state::DrainState;
use self::heartbeat::Heartbeats;
use self::quotas::Quotas;
use self::session_followers::{RecoverySet, SessionCounts};
use self::user_plane::UserPlaneRates;
use super::access_list::AccessList;
use super::associations::{Association, Associations};
use super::overload::{Limiter, Overload, VALIDITY};
use super::paths::{Markers, Paths};
use super::sessions::Sessions;
use super::{Outbox, Request, Requests};
use crate::config::Settings;
use crate::config::addresses::is_link_local;
use crate::time::{MILLISECOND, Now, SECOND};
use crate::transactions::{ResponseCache, SEQUENCES};
use crate::usage::{ReportContext, Usage, UsageStatistics};

pub use self::admission::SourceFault;
pub use self::attach::{AttachError, Keep, NodeRecord, NodeTables};
pub use self::discarded::Discarded;
pub use self::drain::DrainStatus;
pub use self::node_messages::Identity;
pub use self::quotas::{EstablishmentOutcome, LimitedSessions};
pub use self::statistics::Statistics;
pub use self::user_plane::UserPlaneOutcome;

/// Writer of the node record, owned or shared.
pub type Cell<V> = Box<dyn DerefMut<Target = RecordWriter<V>> + Send>;

/// Rate limit of Version Not Supported responses, per second (TS 29.244 clause 7.6.2).
const VERSION_ANSWERS: u32 = 10;

/// PFCP node of the UP function.
pub struct Node {
    settings: Settings,
    identity: Identity,
    record: Cell<NodeRecord>,
    peers: Associations,
    requests: Requests,
    answers: ResponseCache,
    answers_to_strangers: ResponseCache,
    access: AccessList,
    refusals: Refusals,
    heartbeats: Heartbeats,
    initiations: Initiations,
    drain: Drain,
    paths: Paths,
    markers: Markers,
    overload: Option<Overload>,
    quotas: Quotas,
    /// Time of the last refusal as congestion, in nanoseconds of `CLOCK_MONOTONIC`.
    congested_at: Option<u64>,
    versions: Limiter,
    user_plane: UserPlaneRates,
    sessions: Sessions,
    usage: Usage,
    /// Time at which `usage` has work.
    usage_at: u64,
    counts: SessionCounts,
    /// Sessions of the previous process that are not recovered yet.
    unfollowed: RecoverySet,
    /// Bulk removals of sessions, at most one per association.
    removals: VecDeque<Removal>,
    statistics: Statistics,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    life: u64,
}

/// Context of a handler: the node, the time and the messages to send.
struct NodeContext<'a> {
    node: &'a mut Node,
    now: Now,
    out: &'a mut Outbox,
}

impl NodeContext<'_> {
    /// Sends a request. Returns false if too many requests wait for a response.
    fn send(&mut self, request: Request) -> bool {
        let message_type = request.bytes.get(1).copied().unwrap_or(0);
        let is_sent = self.node.requests.send(self.now, request, self.out).is_ok();
        if is_sent {
            *self.node.statistics.requested.entry(message_type).or_default() += 1;
        }
        is_sent
    }

    /// Calls the usage reporting engine.
    fn usage<R>(
        &mut self,
        call: impl FnOnce(&mut Usage, &mut ReportContext<'_, Sessions>) -> R,
    ) -> R {
        let Node { usage, sessions, requests, .. } = &mut *self.node;
        call(
            usage,
            &mut ReportContext { backend: sessions, requests, out: &mut *self.out, now: self.now },
        )
    }
}

/// Source of a datagram and our address that it was sent to.
#[derive(Clone, Copy, Debug)]
struct RequestPath {
    from: SocketAddr,
    local: IpAddr,
}

impl Node {
    /// Opens a node on its tables. With empty tables it is a new node with a new recovery time
    /// stamp. Session reports without a response are sent again.
    ///
    /// # Errors
    /// The table `node` cannot be written.
    pub fn open(
        settings: &Settings,
        parts: NodeTables,
        keep: &mut Keep,
        now: Now,
        out: &mut Outbox,
    ) -> Result<Self, TableError> {
        let NodeTables { mut record, peers, sessions, context } = parts;
        let this = begin(&mut record, keep, now, context)?;
        let n4 = &settings.n4;
        let t1 = n4.t1_ms.saturating_mul(MILLISECOND);
        let requests = Requests::new(t1, n4.n1, this.sequences);
        let usage = Usage::begin(&sessions);
        let unfollowed = RecoverySet::new(sessions.capacity());
        let mut node = Self {
            identity: Identity::new(settings, this.recovery),
            record,
            peers: Associations::open(peers),
            requests,
            answers: ResponseCache::new(t1.saturating_mul(n4.n1.into())),
            answers_to_strangers: ResponseCache::new(t1.saturating_mul(n4.n1.into())),
            access: AccessList::new(n4),
            refusals: Refusals::new(),
            heartbeats: Heartbeats::new(n4.heartbeat_s.saturating_mul(SECOND)),
            initiations: Initiations::new(n4, now),
            drain: Drain::new(DrainState::read(this.drain, this.drain_until)),
            paths: Paths::new(settings),
            markers: Markers::default(),
            overload: n4.establishments_per_s.map(Overload::new),
            quotas: Quotas::new(settings),
            congested_at: None,
            versions: Limiter::new(VERSION_ANSWERS, VERSION_ANSWERS),
            user_plane: UserPlaneRates::new(),
            sessions,
            usage,
            usage_at: now.monotonic,
            counts: SessionCounts::default(),
            unfollowed,
            removals: VecDeque::new(),
            statistics: std::mem::take(&mut keep.statistics),
            life: t1.saturating_mul(n4.n1.into()),
            settings: settings.clone(),
        };
        node.quotas.limit_all(&node.peers, &mut node.sessions)?;
        let places: Vec<u16> = node.peers.iter().map(|found| found.peer.index).collect();
        places.into_iter().for_each(|index| node.heartbeats.begin(now, index));
        session_followers::recover_slice(&mut NodeContext { node: &mut node, now, out });
        Ok(node)
    }

    /// Closes the node and returns the state for a node on the tables of another user plane
    /// process.
    #[must_use]
    pub fn keep(self) -> Keep {
        let drain = self.drain.state();
        Keep { recovery: self.identity.recovery, statistics: self.statistics, drain }
    }

    /// Counts datagrams that could not be sent.
    pub const fn count_unsent(&mut self, datagrams: u64) {
        self.statistics.send_failed += datagrams;
    }

    /// Replaces the addresses of a peer that is configured by name.
    pub fn set_peer_addresses(&mut self, index: usize, addresses: &[IpAddr]) {
        self.access.set_peer(index, addresses.to_vec());
        let reachable = addresses.iter().copied().filter(|address| self.reaches(*address));
        let reachable = reachable.collect();
        self.initiations.set_addresses(index, reachable);
    }

    /// Returns true if N4 has an address of the same family, and this one needs no interface.
    fn reaches(&self, address: IpAddr) -> bool {
        let mut own = self.settings.n4.addresses.iter();
        !is_link_local(address) && own.any(|own| own.is_ipv4() == address.is_ipv4())
    }

    /// Returns true if a control plane function may associate from any address.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.access.is_open()
    }

    /// Returns true if a request was refused as congestion within the last 10 s (cause 74).
    #[must_use]
    pub fn is_congested(&self, now: Now) -> bool {
        self.congested_at.is_some_and(|at| now.monotonic.saturating_sub(at) < VALIDITY)
    }

    /// Returns the node's identity.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the number of starts of the control plane process with these tables.
    #[must_use]
    pub fn starts(&self) -> u32 {
        self.record.get().map_or(0, |record| record.starts)
    }

    /// Returns the counters of the node.
    #[must_use]
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns the counters of session reports.
    #[must_use]
    pub const fn reports(&self) -> &UsageStatistics {
        self.usage.statistics()
    }

    /// Returns the PFCP sessions.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns the number of sessions of an association.
    #[must_use]
    pub fn sessions_of(&self, peer: u16) -> usize {
        self.counts.of_peer(peer)
    }

    /// Returns the number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    #[must_use]
    pub const fn rules(&self) -> [u64; 5] {
        self.counts.rules()
    }

    /// Returns the sessions of each slice with limits.
    #[must_use]
    pub fn limited_slices(&self) -> Vec<LimitedSessions> {
        self.quotas.limited_slices(&self.sessions)
    }

    /// Returns the sessions of the control plane functions of each entry of `app.n4.limits`.
    #[must_use]
    pub fn limited_smfs(&self) -> Vec<LimitedSessions> {
        self.quotas.limited_smfs(&self.peers, &self.sessions)
    }

    /// Returns the associations.
    pub fn associations(&self) -> impl Iterator<Item = &Association> {
        self.peers.iter()
    }

    /// Returns the GTP-U paths and their state.
    #[must_use]
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Returns the due end markers.
    #[must_use]
    pub const fn markers(&self) -> &Markers {
        &self.markers
    }

    /// Returns the number of our requests without a response.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// Returns the time at which [`tick`](Self::tick) must be called at the latest.
    #[must_use]
    pub fn deadline(&self, now: Now) -> Option<u64> {
        let deadlines = [
            self.requests.deadline(),
            self.heartbeats.deadline(),
            self.initiations.deadline().filter(|_| !self.drain.is_active()),
            self.paths.deadline(now),
            self.markers.deadline(now),
            heartbeat::expiry(self),
            Some(self.usage_at),
            (!self.removals.is_empty() || !self.unfollowed.is_empty()).then_some(now.monotonic),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Runs all due timers. Returns the time at which it must be called again at the latest.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) -> Option<u64> {
        let cx = &mut NodeContext { node: self, now, out };
        while let Some(request) = cx.node.requests.tick(now, cx.out) {
            dispatch::given_up(cx, &request);
        }
        heartbeat::expire(cx);
        session_followers::recover_slice(cx);
        association_server::go_on_removing(cx);
        while let Some(index) = cx.node.heartbeats.next(now) {
            heartbeat::ask_whether_there(cx, index);
        }
        association_client::initiate(cx);
        drain::request_releases(cx);
        while let Some(event) = cx.node.paths.tick(now, cx.out) {
            association_client::path_event(cx, &event);
        }
        let given_up = cx.node.markers.tick(cx.node.sessions.published(), now, cx.out);
        let by_requests = cx.node.sessions.take_markers_given_up();
        cx.node.statistics.end_markers_given_up += given_up + by_requests;
        cx.node.usage_at = cx.usage(|usage, on| usage.tick(on));
        self.keep_sequences();
        self.deadline(now)
    }

    /// Handles a PFCP datagram sent by `from` to our address `local`.
    pub fn receive(
        &mut self,
        now: Now,
        local: IpAddr,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut Outbox,
    ) {
        let cx = &mut NodeContext { node: self, now, out };
        dispatch::datagram(cx, RequestPath { from, local }, datagram);
    }

    /// Handles a GTP-U datagram sent by `from` to our N4 address `local`.
    pub fn receive_gtpu(
        &mut self,
        now: Now,
        local: IpAddr,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut Outbox,
    ) {
        let cx = &mut NodeContext { node: self, now, out };
        user_plane::datagram(cx, RequestPath { from, local }, datagram);
    }

    /// Returns true if sessions of an association are being removed.
    fn is_removing(&self, index: u16) -> bool {
        self.removals.iter().any(|removal| removal.index == index)
    }

    /// Returns true if a session request must wait because sessions of its association are being
    /// removed.
    fn is_removing_session(&self, peer: Option<u16>, seid: u64) -> bool {
        let is_one = |index: Option<u16>| index.is_some_and(|index| self.is_removing(index));
        !self.removals.is_empty() && (is_one(peer) || is_one(self.sessions.peer_of(seid)))
    }

    /// Handles a lane message of a kind with its body.
    pub fn lane_message(&mut self, now: Now, of_kind: u32, body: &[u8], out: &mut Outbox) {
        dispatch::lane_message(&mut NodeContext { node: self, now, out }, of_kind, body);
    }

    /// Reserves further sequence numbers before the current block is used up.
    fn keep_sequences(&mut self) {
        let Some(mut record) = self.record.get().copied() else { return };
        let left = record.sequences.wrapping_sub(self.requests.next_sequence()) % SEQUENCES;
        if left > BLOCK / 2 && left <= BLOCK {
            return;
        }
        record.sequences = (self.requests.next_sequence() + BLOCK) % SEQUENCES;
        if self.record.set(&record).is_err() {
            self.statistics.table_failed += 1;
        }
    }

    /// Counts and logs a failed table write. The state in memory is then unchanged.
    fn check<T, E: std::fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.statistics.table_failed += 1;
                tracing::error!("{error}");
                None
            }
        }
    }

    fn count_answer(&mut self, message_type: MessageType, cause: u8) {
        *self.statistics.answered.entry((message_type.0, cause)).or_default() += 1;
    }

    /// Counts a response. Returns its cause, 0 if it has none.
    fn count_answer_of(&mut self, bytes: &[u8]) -> u8 {
        let Ok((message, _)) = Message::parse(bytes) else { return 0 };
        let cause = cause_of(&message);
        self.count_answer(message.header.message_type, cause);
        cause
    }
}

/// Returns the cause of a response; 0 if it has none.
fn cause_of(message: &Message<'_>) -> u8 {
    message.group().find::<Cause>().ok().flatten().map_or(0, |cause| cause.0)
}

impl std::fmt::Debug for Node {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Node")
            .field("identity", &self.identity)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
