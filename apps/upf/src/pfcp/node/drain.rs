//! Drain: the UPF requests the release of its associations and refuses new sessions, while it
//! serves those that exist (TS 29.244 clauses 6.2.7 and 6.2.8).
//!
//! Each control plane function gets an Association Update Request with SARR and the Graceful
//! Release Period. Only a control plane function can release an association, so a drain ends with
//! its Association Release Request. A silent one, and one that refuses, has no part in the
//! procedure: its association counts as released once it has no session.
//!
//! The state is in the node record. If the process is killed, its successor requests the release
//! again with the rest of the period.

use std::collections::BTreeMap;

use fastlane_pfcp::ie::{Duration5, GracefulReleasePeriod, PfcpAssociationReleaseRequest};
use fastlane_pfcp::{Cause, Header, Message, MessageType};

use super::drain_state::DrainState;
use super::{Node, NodeContext, node_messages};
use crate::pfcp::associations::Association;
use crate::pfcp::{Request, Tag};
use crate::time::{Now, SECOND};

/// Cause of refused sessions and associations. TS 29.244 has none for this state; the description
/// of this one in table 8.2.1-1 is a temporary lack of resources.
pub(super) const REFUSAL: Cause = Cause::NO_RESOURCES_AVAILABLE;

/// Drain of a node.
#[derive(Debug, Default)]
pub(super) struct Drain {
    state: Option<DrainState>,
    /// Release requests by association index. An association without one is due.
    requests: BTreeMap<u16, ReleaseRequest>,
}

/// Progress of a release request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseRequest {
    /// No response yet.
    Sent,
    /// The control plane function will release the association.
    Accepted,
    /// The control plane function has refused, or did not respond.
    Failed,
}

/// Drain as shown to operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainStatus {
    /// New sessions and associations are refused.
    pub is_draining: bool,
    /// The process ends after the drain.
    pub is_exiting: bool,
    /// All associations are released.
    pub is_drained: bool,
    /// Rest of the release period in nanoseconds; `None` without one.
    pub left: Option<u64>,
    /// Number of associations that are not released.
    pub associations: usize,
    /// Number of sessions.
    pub sessions: usize,
}

impl Drain {
    pub(super) fn new(state: Option<DrainState>) -> Self {
        Self { state, requests: BTreeMap::new() }
    }

    /// Returns true if new sessions and associations are refused.
    pub(super) const fn is_active(&self) -> bool {
        self.state.is_some()
    }

    pub(super) const fn state(&self) -> Option<DrainState> {
        self.state
    }

    /// Forgets the request to an association that was set up, has ended or whose peer restarted.
    pub(super) fn forget(&mut self, index: u16) {
        self.requests.remove(&index);
    }

    /// Makes the request due again, if it failed, because the peer is heard again.
    pub(super) fn retry(&mut self, index: u16) {
        if self.requests.get(&index) == Some(&ReleaseRequest::Failed) {
            self.requests.remove(&index);
        }
    }
}

impl Node {
    /// Starts a drain without end, or requests the release again with another period, in seconds.
    /// The default period is `n4.release-s`; 0 requests an immediate release. A drain before the
    /// end of the process stays as it is.
    pub fn drain(&mut self, now: Now, period_s: Option<u64>) {
        if self.drain.state.is_some_and(|state| state.is_exit) {
            return;
        }
        let until = match period_s.unwrap_or(self.settings.n4.release_s) {
            0 => u64::MAX,
            seconds => now.monotonic.saturating_add(seconds.saturating_mul(SECOND)),
        };
        tracing::info!("draining: new sessions and associations are refused");
        self.requests.cancel_association_updates();
        self.drain.requests.clear();
        self.set_drain(Some(DrainState { is_exit: false, until }));
    }

    /// Starts the drain before the end of the process, unless it has started. A period that runs
    /// already is not prolonged.
    pub fn prepare_exit(&mut self, now: Now) {
        let before = self.drain.state;
        if before.is_some_and(|state| state.is_exit) {
            return;
        }
        let release_s = self.settings.n4.release_s;
        let latest = now.monotonic.saturating_add(release_s.saturating_mul(SECOND));
        let until = before.map_or(latest, |state| state.until.min(latest));
        if before.is_some_and(|state| state.until > until) {
            self.requests.cancel_association_updates();
            self.drain.requests.clear();
        }
        if until > now.monotonic && !self.peers.is_empty() {
            let (sessions, count) = (self.sessions.len(), self.peers.len());
            tracing::info!(
                "ending: {sessions} sessions of {count} associations have {} s",
                (until - now.monotonic).div_ceil(SECOND)
            );
        }
        self.set_drain(Some(DrainState { is_exit: true, until }));
    }

    /// Ends a drain, unless the process is ending: sessions and associations are accepted again.
    /// Returns false if it is ending.
    pub fn undrain(&mut self, now: Now) -> bool {
        let Some(state) = self.drain.state else { return true };
        if state.is_exit {
            return false;
        }
        tracing::info!("draining has ended: sessions and associations are accepted again");
        self.clear_drain();
        self.initiations.resume(now);
        true
    }

    /// Removes the state of a drain: the process ends, or a successor is not to go on with it.
    pub fn clear_drain(&mut self) {
        self.requests.cancel_association_updates();
        self.drain.requests.clear();
        self.set_drain(None);
    }

    /// Removes the state of a process that was killed while it was ending, if its period is over:
    /// this process was started for another reason.
    pub fn clear_obsolete_exit(&mut self, now: Now) {
        let is_over = |state: &DrainState| state.is_exit && state.until <= now.monotonic;
        if self.drain.state.as_ref().is_some_and(is_over) {
            tracing::info!("a predecessor was killed while it was ending; its period is over");
            self.clear_drain();
        }
    }

    /// Returns true if the process shall end now: all associations are released, or the period is
    /// over.
    #[must_use]
    pub fn may_exit(&self, now: Now) -> bool {
        let Some(state) = self.drain.state.filter(|state| state.is_exit) else { return false };
        state.until <= now.monotonic || self.is_drained()
    }

    /// Returns the state of the drain.
    #[must_use]
    pub fn drain_status(&self, now: Now) -> DrainStatus {
        let state = self.drain.state;
        let limit = state.map(|state| state.until).filter(|until| *until != u64::MAX);
        DrainStatus {
            is_draining: state.is_some(),
            is_exiting: state.is_some_and(|state| state.is_exit),
            is_drained: state.is_some() && self.is_drained(),
            left: limit.map(|until| until.saturating_sub(now.monotonic)),
            associations: self.peers.len(),
            sessions: self.sessions.len() as usize,
        }
    }

    /// Returns true if every association is released, or has no session and is not released by its
    /// control plane function.
    fn is_drained(&self) -> bool {
        let is_over = |found: &Association| {
            let index = found.peer.index;
            let has_failed = self.drain.requests.get(&index) == Some(&ReleaseRequest::Failed);
            self.counts.of_peer(index) == 0 && (has_failed || !found.peer.is_up)
        };
        // Before recovery has ended, sessions of the previous process are not counted.
        let is_idle = self.removals.is_empty() && self.unfollowed.is_empty();
        self.peers.is_empty() || is_idle && self.peers.iter().all(is_over)
    }

    fn set_drain(&mut self, state: Option<DrainState>) {
        self.drain.state = state;
        let Some(mut record) = self.record.get().copied() else { return };
        (record.drain, record.drain_until) = DrainState::values(state);
        let stored = self.record.set(&record);
        self.check(stored);
    }
}

/// Requests the release of associations that have no request yet.
pub(super) fn request_releases(cx: &mut NodeContext<'_>) {
    let Some(state) = cx.node.drain.state else { return };
    let requests = &cx.node.drain.requests;
    let is_due = |found: &&Association| {
        found.peer.is_up && !found.is_ending && !requests.contains_key(&found.peer.index)
    };
    let due: Vec<u16> = cx.node.peers.iter().filter(is_due).map(|it| it.peer.index).collect();
    for index in due {
        request_release(cx, index, state);
    }
}

/// Sends an association update with a release request (table 7.4.4.3-1).
fn request_release(cx: &mut NodeContext<'_>, index: u16, state: DrainState) {
    let Some(found) = cx.node.peers.get(index) else { return };
    let (to, local) = (found.peer.address, found.peer.local);
    let left = state.until.saturating_sub(cx.now.monotonic).div_ceil(SECOND);
    let left = if state.until == u64::MAX { 0 } else { u32::try_from(left).unwrap_or(u32::MAX) };
    // The period that is announced is not longer than the one that it has.
    let period = Duration5::at_most(left);
    let period = (period.seconds() != Some(0)).then_some(GracefulReleasePeriod(period));
    tracing::info!("{} is asked to release its association within {left} s", found.peer.node_id);
    let sequence = cx.node.requests.sequence();
    let header = Header::node(MessageType::ASSOCIATION_UPDATE_REQUEST, sequence);
    let bytes = node_messages::message(header, |to| {
        to.put(&cx.node.identity.node_id.ie());
        to.put(&PfcpAssociationReleaseRequest::SARR);
        to.maybe(period.as_ref());
    });
    // If it cannot be sent, it stays due.
    if cx.send(Request { bytes, sequence, to, local, tag: Tag::Association(index) }) {
        cx.node.drain.requests.insert(index, ReleaseRequest::Sent);
    }
}

/// Handles the response to a release request.
pub(super) fn answered(cx: &mut NodeContext<'_>, index: u16, message: &Message<'_>) {
    match message.group().need::<Cause>() {
        Ok(cause) if cause.is_accepted() => {
            cx.node.drain.requests.insert(index, ReleaseRequest::Accepted);
        }
        Ok(cause) => failed(cx, index, &format!("refuses ({cause})")),
        Err(fault) => failed(cx, index, &format!("sends a wrong response ({fault})")),
    }
}

/// Handles a release request without response.
pub(super) fn given_up(cx: &mut NodeContext<'_>, index: u16) {
    failed(cx, index, "does not respond");
}

fn failed(cx: &mut NodeContext<'_>, index: u16, why: &str) {
    cx.node.drain.requests.insert(index, ReleaseRequest::Failed);
    if let Some(found) = cx.node.peers.get(index) {
        let node_id = &found.peer.node_id;
        tracing::warn!("{node_id} {why} when asked to release its association");
    }
}
