//! Removal of sessions and of rules that count.
//!
//! The last report of a URR that a request removes is in the response, which is committed with the
//! session. Packets counted after that report would be in no report. So the lanes first receive the
//! rules without that URR. If the process is killed in between, its successor publishes what the
//! record says.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastlane_pfcp::Ie;
use fastlane_pfcp::ie::FqCsid;

use super::Sessions;
use crate::pfcp::RequestKey;
use crate::session::{Session, SessionIndex, Urr};
use crate::store::StoreError;
use crate::time::{MILLISECOND, Now};

/// A session without packets for this time has none in flight in a lane, in nanoseconds.
const QUIET: u64 = 100 * MILLISECOND;
/// Maximum time to wait for lanes, so that their last counts are in the last report.
const PATIENCE: Duration = Duration::from_millis(1);
/// Pause between two checks of the lanes.
const PAUSE: Duration = Duration::from_micros(20);

impl Sessions {
    /// Removes the sessions of an association, except those whose CP address `is_kept`. Calls
    /// `gone` for each and returns their number.
    pub fn remove_of_peer(
        &mut self,
        now: Now,
        index: u16,
        is_kept: &dyn Fn(IpAddr) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, index, &|session| !is_kept(session.cp_fseid.address), gone)
    }

    /// Removes the sessions of an association with an FQ-CSID. Calls `gone` for each and returns
    /// their number.
    pub fn remove_set(
        &mut self,
        now: Now,
        index: u16,
        set: &FqCsid<'_>,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, index, &|session| is_in(session, set), gone)
    }

    fn remove_if(
        &mut self,
        now: Now,
        index: u16,
        is_meant: &dyn Fn(&Session) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        let of_peer = self.store.places(0).filter(|(_, it)| it.is_live() && it.peer == index);
        let ids: Vec<SessionIndex> = of_peer.map(|(id, _)| id).collect();
        let mut removed = 0;
        for id in ids {
            let Some(session) = self.get(id).filter(is_meant) else { continue };
            if self.remove(&session, now) {
                removed += 1;
                gone(&session);
            }
        }
        removed
    }

    /// Removes a session without a usage report. Returns false if the removal could not be stored;
    /// the session then still exists.
    pub fn remove(&mut self, session: &Session, now: Now) -> bool {
        self.published.take_down(session);
        let done = self.commit_tombstone(session, None, now);
        if let Err(error) = &done {
            tracing::error!("session {} cannot be removed: {error}", session.id.0);
        }
        done.is_ok()
    }

    /// Withdraws a session from the lanes. If it has traffic, waits until no lane counts for it any
    /// more.
    pub(super) fn end_traffic(&mut self, session: &Session, now: Now) {
        self.published.take_down(session);
        if self.has_traffic(&session.urrs, now) {
            self.wait_for_lanes();
        }
    }

    /// Ends counting for URRs that are about to be removed, if they have traffic. Afterwards the
    /// lanes use the rules of `session`, unless publishing failed.
    pub(super) fn end_counting(&mut self, session: &Session, removed: &[Urr], now: Now) {
        // Removed keys and state slots stay until the session is committed.
        if self.has_traffic(removed, now) && self.published.publish(None, session).is_ok() {
            self.wait_for_lanes();
        }
    }

    /// Publishes the stored session again if lanes already received a version that was not stored.
    pub(super) fn fall_back(&mut self, ahead: &Session, kept: &Session) {
        let published = self.published.rules(ahead.id).map(|rules| rules.version());
        if published != Some(ahead.version as u32) {
            return;
        }
        // Their owner frees the state slots.
        let (urrs, qers) = (kept.urrs.clone(), kept.qers.clone());
        let ahead = Session { urrs, qers, ..ahead.clone() };
        if let Err(error) = self.published.publish(Some(&ahead), kept) {
            tracing::error!("session {}: {error}", kept.id.0);
        }
    }

    /// Returns true if one of the URRs counted packets so recently that others may be in flight.
    pub(super) fn has_traffic(&self, urrs: &[Urr], now: Now) -> bool {
        let last = urrs.iter().map(|urr| self.published.last(urr.progress.line)).max();
        last.is_some_and(|last| last.saturating_add(QUIET) >= now.monotonic)
    }

    /// Waits until each lane has begun another turn, up to `PATIENCE`.
    pub(super) fn wait_for_lanes(&self) {
        let readers = &self.published.tables().readers;
        let mut since = readers.snapshot();
        let begun = Instant::now();
        while !readers.passed(&mut since) && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }

    /// Commits a tombstone for a withdrawn session. If that fails, the session is published again.
    pub(super) fn commit_tombstone(
        &mut self,
        session: &Session,
        answer: Option<(&RequestKey, &[u8])>,
        now: Now,
    ) -> Result<(), StoreError> {
        let version = self.store.next_version();
        let gone = Session { is_deleted: true, version, ..session.clone() };
        let mut done = self.store.commit(&gone, answer, now.monotonic);
        if matches!(done, Err(StoreError::NoPart { .. })) {
            // Without room for the response, the session is still removed.
            done = self.store.commit(&gone, None, now.monotonic);
        }
        if let Err(error) = done {
            if let Err(error) = self.published.publish(None, session) {
                tracing::error!("session {}: {error}", session.id.0);
            }
            return Err(error);
        }
        self.published.release(session);
        self.exchange_addresses(Some(session), None, now);
        self.places.give_back(session.id);
        Ok(())
    }
}

/// Returns true if the session has an FQ-CSID in common with `set`.
#[must_use]
pub fn is_in(session: &Session, set: &FqCsid<'_>) -> bool {
    session.fq_csids.iter().any(|own| meet(own, set))
}

/// Returns true if two FQ-CSIDs are of the same node and share a CSID.
fn meet(own: &[u8], meant: &FqCsid<'_>) -> bool {
    let Ok(own) = FqCsid::decode(own) else { return false };
    (own.node_id_type, own.node) == (meant.node_id_type, meant.node)
        && own.csids().any(|number| meant.csids().any(|it| it == number))
}
