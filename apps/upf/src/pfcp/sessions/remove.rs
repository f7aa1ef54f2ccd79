//! The end of sessions.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use fastlane_pfcp::Ie;
use fastlane_pfcp::ie::FqCsid;

use super::{Network, Sessions};
use crate::alloc::{Addresses, Family};
use crate::pfcp::RequestKey;
use crate::rules::compile::keys;
use crate::rules::layout::key::UserKey;
use crate::session::{Pdr, Session, SessionId, Source, Urr};
use crate::store::StoreError;
use crate::time::MILLISECOND;
use crate::time::Now;

/// A session without a packet for so long has none on its way in a lane.
const QUIET: u64 = 100 * MILLISECOND;
/// How long lanes are waited for, so that what they count is in the last report.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long is slept between two looks.
const PAUSE: Duration = Duration::from_micros(20);

impl Sessions {
    /// Removes the sessions of an association, but for those that are to stay: of control plane
    /// addresses that `is_kept`. Calls `gone` for each, and says how many.
    pub fn remove_of_peer(
        &mut self,
        now: Now,
        place: u16,
        is_kept: &dyn Fn(IpAddr) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, place, &|session| !is_kept(session.control.address), gone)
    }

    /// Removes the sessions of an association that are in a set (FQ-CSID). Calls `gone` for each,
    /// and says how many.
    pub fn remove_set(
        &mut self,
        now: Now,
        place: u16,
        set: &FqCsid<'_>,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        self.remove_if(now, place, &|session| is_in(session, set), gone)
    }

    fn remove_if(
        &mut self,
        now: Now,
        place: u16,
        is_meant: &dyn Fn(&Session) -> bool,
        gone: &mut dyn FnMut(&Session),
    ) -> u64 {
        let of_peer = self.store.places(0).filter(|(_, it)| it.is_live() && it.peer == place);
        let ids: Vec<SessionId> = of_peer.map(|(id, _)| id).collect();
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

    /// The first session of an association in the places from `from` until before `end`, and where
    /// the search for the next one goes on.
    #[must_use]
    pub fn next_of_peer(&self, from: u32, end: u32, peer: u16) -> (Option<SessionId>, u32) {
        let end = end.min(self.capacity());
        let mut places = self.store.places(from).take_while(|(id, _)| id.0 < end);
        let found = places.find(|(_, it)| it.is_live() && it.peer == peer).map(|(id, _)| id);
        (found, found.map_or(end.max(from), |id| id.0 + 1))
    }

    /// The place of the association of the session with one of our SEIDs.
    #[must_use]
    pub fn peer_of(&self, seid: u64) -> Option<u16> {
        let record = self.store.record(SessionId(seid as u32))?;
        (record.seid == seid && record.is_live()).then_some(record.peer)
    }

    /// How many sessions there can be.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    /// Removes a session without a report of its usage; false when that could not be kept, and so
    /// it is still there.
    pub fn remove(&mut self, session: &Session, now: Now) -> bool {
        self.published.take_down(session);
        let done = self.bury(session, None, now);
        if let Err(error) = &done {
            tracing::error!("session {} cannot be removed: {error}", session.id.0);
        }
        done.is_ok()
    }

    /// Takes a session from the lanes, and waits until none of them counts for it any more, if it
    /// has traffic.
    pub(super) fn end_traffic(&mut self, session: &Session, now: Now) {
        self.published.take_down(session);
        if self.has_traffic(&session.urrs, now) {
            self.wait_for_lanes();
        }
    }

    /// Whether packets were counted by these URRs so lately that others may be on their way.
    pub(super) fn has_traffic(&self, urrs: &[Urr], now: Now) -> bool {
        let last = urrs.iter().map(|urr| self.published.last(urr.progress.line)).max();
        last.is_some_and(|last| last.saturating_add(QUIET) >= now.monotonic)
    }

    /// Waits until each lane has begun another turn, but not for long.
    pub(super) fn wait_for_lanes(&self) {
        let readers = &self.published.tables().readers;
        let mut since = readers.snapshot();
        let begun = Instant::now();
        while !readers.passed(&mut since) && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
    }

    /// Commits that a session is gone, which was withdrawn; if that fails, it is published again.
    pub(super) fn bury(
        &mut self,
        session: &Session,
        answer: Option<(&RequestKey, &[u8])>,
        now: Now,
    ) -> Result<(), StoreError> {
        let version = self.store.next_version();
        let gone = Session { is_deleted: true, version, ..session.clone() };
        let mut done = self.store.commit(&gone, answer, now.monotonic);
        if matches!(done, Err(StoreError::NoPart { .. })) {
            // Where there is no room for the answer, the session goes all the more.
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

    /// Notes which addresses users have: those of a session before and after a change.
    pub(super) fn exchange_addresses(
        &mut self,
        before: Option<&Session>,
        after: Option<&Session>,
        now: Now,
    ) {
        let had = before.map(|session| self.users_of(session)).unwrap_or_default();
        let has = after.map(|session| self.users_of(session)).unwrap_or_default();
        has.iter().for_each(|key| self.addresses.claim(key));
        let gone = had.iter().filter(|key| !has.contains(key));
        gone.for_each(|key| self.addresses.put_to_rest(key, now.monotonic));
    }

    fn users_of(&self, session: &Session) -> Vec<UserKey> {
        let users = keys(session, self.published.context()).users;
        users_of(session, users, &self.network, &self.addresses)
    }
}

/// The addresses of a session: those that packets find it by, `users`, and those from pools that
/// none does yet.
pub(super) fn users_of(
    session: &Session,
    mut users: Vec<UserKey>,
    network: &Network,
    addresses: &Addresses,
) -> Vec<UserKey> {
    let is_from_there = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
    let of_others = session.pdrs.iter().filter(is_from_there).find_map(|pdr| pdr.instance);
    for pdr in &session.pdrs {
        let Some(user) = pdr.user.filter(|user| user.is_ours) else { continue };
        let pool = |family| network.pool(pdr.instance, of_others, addresses, family);
        if let Some(v4) = user.v4 {
            users.extend(pool(Family::V4).map(|it| UserKey::v4(it, v4)));
        }
        if let Some((v6, 64)) = user.v6 {
            users.extend(pool(Family::V6).map(|it| UserKey::v6(it, v6)));
        }
    }
    users
}

/// Whether a session is in a set (FQ-CSID).
#[must_use]
pub fn is_in(session: &Session, set: &FqCsid<'_>) -> bool {
    session.sets.iter().any(|own| meet(own, set))
}

/// Whether a session's set is one of those that are meant: of the same node, with a number in
/// common.
fn meet(own: &[u8], meant: &FqCsid<'_>) -> bool {
    let Ok(own) = FqCsid::decode(own) else { return false };
    (own.node_id_type, own.node) == (meant.node_id_type, meant.node)
        && own.csids().any(|number| meant.csids().any(|it| it == number))
}
