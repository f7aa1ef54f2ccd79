//! PFCP node: handling of datagrams, lane messages and timers.
//!
//! It uses neither sockets nor clocks. Peers are not trusted: each datagram costs bounded work and
//! at most one response per message in it.

mod answer;
mod associate;
mod expire;
mod follow;
mod identity;
mod initiate;
mod parts;
mod receive;
pub mod record;
mod removal;
mod report;
pub mod statistics;
mod wake;

use std::collections::{BTreeMap, VecDeque};
use std::ops::DerefMut;

use fastlane::table::{RecordWriter, TableError};

pub use self::identity::Identity;
use self::initiate::Initiations;
pub use self::parts::{Parts, PartsError};
use self::record::NodeRecord;
use self::removal::Removal;
use self::statistics::Statistics;
use self::wake::Unfollowed;
use super::heartbeat::Heartbeats;
use super::overload::{Limiter, Overload};
use super::path::{PathEvent, Paths};
use super::peer::peers::{Association, Peers};
use super::transaction::answers::Answers;
use super::transaction::requests::SEQUENCES;
use super::{Outbox, Requests};
use crate::config::Settings;
use crate::pfcp::end_marker::Markers;
use crate::pfcp::sessions::Sessions;
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};
use crate::usage::{Usage, UsageStatistics};

/// Writer of the node record, owned or shared.
pub type Cell<V> = Box<dyn DerefMut<Target = RecordWriter<V>> + Send>;

/// Number of sequence numbers reserved at a time. After a restart the reserved block is skipped,
/// because its requests may still be in flight.
const BLOCK: u32 = 1 << 16;
/// Rate limit of Version Not Supported responses, per second (TS 29.244 clause 7.6.2).
const VERSION_ANSWERS: u32 = 10;

/// State in the memory of this process that outlives a user plane process.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// Recovery time stamp.
    recovery: u32,
    statistics: Statistics,
}

impl Keep {
    /// Returns true if there was no user plane process before.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.recovery == 0
    }
}

/// PFCP node of the UP function.
pub struct Node {
    settings: Settings,
    identity: Identity,
    record: Cell<NodeRecord>,
    peers: Peers,
    requests: Requests,
    answers: Answers,
    heartbeats: Heartbeats,
    initiations: Initiations,
    paths: Paths,
    markers: Markers,
    overload: Option<Overload>,
    versions: Limiter,
    sessions: Sessions,
    usage: Usage,
    /// Time at which `usage` has work.
    usage_at: u64,
    /// Number of sessions of each association.
    by_peer: BTreeMap<u16, usize>,
    /// Number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    rules: [u64; 5],
    /// Sessions of the previous process that are not recovered yet.
    unfollowed: Unfollowed,
    /// Bulk removals of sessions, at most one per association.
    removals: VecDeque<Removal>,
    statistics: Statistics,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    life: u64,
}

impl Node {
    /// Opens a node on its tables. With empty tables it is a new node with a new recovery time
    /// stamp. Session reports without a response are sent again.
    ///
    /// # Errors
    /// The table `node` cannot be written.
    pub fn open(
        settings: &Settings,
        parts: Parts,
        keep: &mut Keep,
        now: Now,
        out: &mut Outbox,
    ) -> Result<Self, TableError> {
        let Parts { mut record, peers, sessions, context } = parts;
        let this = begin(&mut record, keep, now, context)?;
        let n4 = &settings.n4;
        let t1 = n4.t1_ms.saturating_mul(MILLISECOND);
        let requests = Requests::new(t1, n4.n1, this.sequences);
        let usage = Usage::begin(&sessions);
        let unfollowed = Unfollowed::new(sessions.capacity());
        let mut node = Self {
            identity: Identity::new(settings, this.recovery),
            record,
            peers: Peers::open(peers),
            requests,
            answers: Answers::new(t1.saturating_mul(n4.n1.into())),
            heartbeats: Heartbeats::new(n4.heartbeat_s.saturating_mul(SECOND)),
            initiations: Initiations::new(&n4.peers, now),
            paths: Paths::new(settings),
            markers: Markers::default(),
            overload: n4.establishments_per_s.map(Overload::new),
            versions: Limiter::new(VERSION_ANSWERS, VERSION_ANSWERS),
            sessions,
            usage,
            usage_at: now.monotonic,
            by_peer: BTreeMap::new(),
            rules: [0; 5],
            unfollowed,
            removals: VecDeque::new(),
            statistics: std::mem::take(&mut keep.statistics),
            life: t1.saturating_mul(n4.n1.into()),
            settings: settings.clone(),
        };
        let places: Vec<u16> = node.peers.iter().map(|found| found.peer.place).collect();
        places.into_iter().for_each(|place| node.heartbeats.begin(now, place));
        node.wake(now, out);
        Ok(node)
    }

    /// Closes the node and returns the state for a node on the tables of another user plane
    /// process.
    #[must_use]
    pub fn keep(self) -> Keep {
        Keep { recovery: self.identity.recovery, statistics: self.statistics }
    }

    /// Counts datagrams that could not be sent.
    pub const fn count_unsent(&mut self, datagrams: u64) {
        self.statistics.send_failed += datagrams;
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

    /// Returns the counters of session reports.
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
        self.by_peer.get(&peer).copied().unwrap_or(0)
    }

    /// Returns the number of PDRs, FARs, QERs, URRs and BARs of all sessions.
    #[must_use]
    pub const fn rules(&self) -> [u64; 5] {
        self.rules
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
            self.initiations.deadline(),
            self.paths.deadline(now),
            self.markers.deadline(now),
            self.expiry(),
            Some(self.usage_at),
            (!self.removals.is_empty() || !self.unfollowed.is_empty()).then_some(now.monotonic),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Runs all due timers. Returns the time at which it must be called again at the latest.
    pub fn tick(&mut self, now: Now, out: &mut Outbox) -> Option<u64> {
        while let Some((tag, sequence)) = self.requests.tick(now, out) {
            self.given_up(now, tag, sequence, out);
        }
        self.expire(now, out);
        self.wake(now, out);
        self.go_on_removing(now, out);
        while let Some(place) = self.heartbeats.next(now) {
            self.ask_whether_there(now, place, out);
        }
        self.initiate(now, out);
        while let Some(event) = self.paths.tick(now, out) {
            self.path_event(now, &event, out);
        }
        let given_up = self.markers.tick(self.sessions.published(), now, out);
        self.statistics.end_markers_given_up += given_up;
        self.usage_at = self.usage(now, out, |usage, on| usage.tick(on));
        self.keep_sequences();
        self.deadline(now)
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

    /// Logs a path failure or recovery and reports it to the control planes that use the path.
    fn path_event(&mut self, now: Now, event: &PathEvent, out: &mut Outbox) {
        let (counter, what) = if event.has_failed {
            (&mut self.statistics.paths_failed, "does not answer any more")
        } else {
            (&mut self.statistics.paths_recovered, "answers again")
        };
        *counter += 1;
        tracing::info!("GTP-U path to {}: the peer {what}", event.route.remote);
        for place in &event.peers {
            self.report_path(now, *place, event, out);
        }
    }
}

/// Updates the node record at a start. Returns it with the first sequence number to use.
fn begin(
    record: &mut Cell<NodeRecord>,
    keep: &Keep,
    now: Now,
    context: u32,
) -> Result<NodeRecord, TableError> {
    // With empty tables the time stamp exceeds the previous one, whatever the clock says.
    let is_later = keep.recovery == 0 || expire::is_newer(now.ntp(), keep.recovery);
    let recovery = if is_later { now.ntp() } else { keep.recovery.wrapping_add(1) };
    let kept = record.get().copied();
    let mut this = kept.unwrap_or(NodeRecord { recovery, ..Default::default() });
    let first = this.sequences;
    this.starts = this.starts.wrapping_add(1);
    // Recovered sessions have been published with this context.
    this.context = context;
    this.sequences = (first + BLOCK) % SEQUENCES;
    record.set(&this)?;
    Ok(NodeRecord { sequences: first, ..this })
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
