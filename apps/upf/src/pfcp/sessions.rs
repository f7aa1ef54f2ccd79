//! PFCP sessions: establishment, modification, deletion and recovery.
//!
//! A request is applied to a copy of the session. The copy is committed together with the response
//! only when all of it is valid, and is then published to the lanes. A refused request leaves
//! nothing behind. The committed record is the truth: if the process is killed before it could
//! publish, its successor publishes.
//!
//! Per session the heap holds only its index among those in use (4 bytes) and one bit for its UE
//! address.

mod draft;
mod procedures;
mod session_messages;
mod teardown;

use std::net::{IpAddr, SocketAddr};

use fastlane::table::EntryId;
use fastlane_pfcp::{Message, MessageType};

pub use self::teardown::is_in;
use super::{NodeName, Peer, RequestKey};
use crate::alloc::{Addresses, Family, SessionIndices};
use crate::config::Settings;
use crate::rules::compile::keys;
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::key::{TeidLayout, UeKey};
use crate::rules::publish::{PublishError, Published};
use crate::session::{InstanceId, Pdr, Prefix, Session, SessionIndex, Source};
pub use crate::session::{Network, Refusal};
use crate::store::record::SessionRecord;
use crate::store::{AllocatedAddresses, Store, StoreError, subscriber};
use crate::time::{MILLISECOND, Now, SECOND};
use crate::usage::{SessionBackend, StateSlots};

/// Quarantine of a session index and of a UE address beyond the time in which a request can be
/// retransmitted. It is longer than packets stay in flight.
const GRACE: u64 = 2 * SECOND;

/// Context of a session request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Current time.
    pub now: Now,
    /// Key of the request.
    pub key: RequestKey,
    /// Our address that it was sent to, used in our F-SEIDs.
    pub local: IpAddr,
    /// Association of the Node ID in the request, if there is one. For an establishment it must be
    /// up.
    pub peer: Option<&'a Peer>,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    pub answer_life: u64,
}

/// Change made by the last request: the session before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Session before the change. Absent after an establishment.
    pub before: Option<Session>,
    /// Session after the change. Absent after a deletion.
    pub after: Option<Session>,
}

/// All PFCP sessions of this node.
pub struct Sessions {
    settings: Settings,
    node_id: NodeName,
    network: Network,
    shape: TeidLayout,
    store: Store,
    places: SessionIndices,
    addresses: Addresses,
    published: Published,
    /// Lifetime of a response, N1 times T1, in nanoseconds.
    life: u64,
    change: Option<Change>,
}

/// Error of saving a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The session could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Sessions {
    /// Opens the sessions of a store, and publishes what their records say.
    #[must_use]
    pub fn open(
        settings: &Settings,
        node_id: NodeName,
        store: Store,
        published: Published,
    ) -> Self {
        let t1 = settings.n4.t1_ms.saturating_mul(MILLISECOND);
        let life = t1.saturating_mul(settings.n4.n1.into());
        let mut this = Self {
            network: settings.network(),
            shape: TeidLayout::of(settings.sessions as usize),
            places: SessionIndices::open(&store),
            addresses: pools(settings, life.saturating_add(GRACE)),
            life,
            settings: settings.clone(),
            node_id,
            store,
            published,
            change: None,
        };
        this.recover();
        this
    }

    fn recover(&mut self) {
        let Self { store, published, network, addresses, .. } = self;
        let read = |id: SessionIndex| {
            let session = store.get(id);
            if session.is_none() && store.record(id).is_some_and(SessionRecord::is_live) {
                tracing::error!(
                    "session {} cannot be decoded; delete it and establish it again",
                    id.0
                );
            }
            session
        };
        // Each session is read once: this process serves no request before.
        let recovered = published.recover_with(read, |session, keys| {
            let users = users_of(session, keys.users, network, addresses);
            users.iter().for_each(|key| addresses.claim(key));
            addresses.resume(&AllocatedAddresses::to(session), None);
        });
        for (id, error) in &recovered.failed {
            tracing::error!("session {} is stored but not published: {error}", id.0);
        }
        // The current time is unknown, but it is not earlier than the last removal.
        let gone = || store.places(0).filter_map(|(_, record)| Some((record, record.gone_at()?)));
        let last = gone().map(|(_, at)| at).max().unwrap_or(0);
        let rest = self.life.saturating_add(GRACE);
        for (record, at) in gone() {
            let Some(given) = record.had() else { continue };
            addresses.resume(&given, Some(at).filter(|at| at.saturating_add(rest) >= last));
        }
    }

    /// Returns the number of sessions.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.places.live()
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the published rules.
    #[must_use]
    pub const fn published(&self) -> &Published {
        &self.published
    }

    /// Returns the UE address pools.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the number of sessions in each of the 256 shards.
    pub fn by_shard(&self) -> impl Iterator<Item = u32> {
        self.places.by_shard()
    }

    /// Returns the stored response to a request if it may still be retransmitted. A response sent
    /// before the session's association began (`begun`) does not count.
    #[must_use]
    pub fn answer(
        &self,
        now: Now,
        key: &RequestKey,
        begun: &dyn Fn(u16) -> u64,
    ) -> Option<Vec<u8>> {
        let since = now.monotonic.saturating_sub(self.life);
        self.store.answer(key, since, begun)
    }

    /// Stores and publishes a session after a change that no request made, such as a usage report.
    /// Its version comes from `next_version`.
    ///
    /// # Errors
    /// The session could not be stored or published. If it could not be stored, nothing has
    /// changed.
    pub fn save(&mut self, session: &Session, now: Now) -> Result<(), SessionsError> {
        let before = self.store.get(session.id);
        self.store.commit(session, None, now.monotonic)?;
        self.published.publish(before.as_ref(), session)?;
        Ok(())
    }

    /// Takes the change made by the last request.
    pub const fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }

    /// Returns the response to a request for a session that does not exist or belongs to another
    /// control plane.
    #[must_use]
    pub fn unknown(message: &Message<'_>) -> Vec<u8> {
        let answer = MessageType(message.header.message_type.0.wrapping_add(1));
        session_messages::unknown_session(message, answer)
    }

    /// Returns the session with an index.
    #[must_use]
    pub fn get(&self, id: SessionIndex) -> Option<Session> {
        self.store.get(id)
    }

    /// Returns the indices of all sessions, in order.
    pub fn ids(&self) -> impl Iterator<Item = SessionIndex> {
        self.ids_from(0)
    }

    /// Returns the session indices from `index` on, to continue an interrupted scan.
    pub fn ids_from(&self, index: u32) -> impl Iterator<Item = SessionIndex> {
        self.store.places(index).filter(|(_, record)| record.is_live()).map(|(id, _)| id)
    }

    /// Returns all sessions, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = Session> {
        self.ids().filter_map(|id| self.get(id))
    }

    /// Returns the session with one of our SEIDs.
    #[must_use]
    pub fn find(&self, seid: u64) -> Option<Session> {
        let id = SessionIndex(seid as u32);
        let record = self.store.record(id)?;
        if record.seid == seid && record.is_live() { self.store.get(id) } else { None }
    }

    /// Returns the session with a UE address in a network instance.
    #[must_use]
    pub fn find_user(&self, instance: InstanceId, address: IpAddr) -> Option<SessionIndex> {
        self.published.user(match address {
            IpAddr::V4(address) => UeKey::v4(instance, address),
            IpAddr::V6(address) => UeKey::v6(instance, address),
        })
    }

    /// Returns the session that owns one of our TEIDs.
    #[must_use]
    pub fn find_tunnel(&self, teid: u32) -> Option<SessionIndex> {
        procedures::owner_of(&self.store, &self.published, self.shape, teid)
    }

    /// Returns the sessions of a subscriber. It scans all records, so it is for operators only.
    pub fn find_supi<'a>(&'a self, supi: &'a str) -> impl Iterator<Item = Session> + 'a {
        let hash = subscriber(supi);
        let places = self.store.places(0);
        let places = places.filter(move |(_, it)| it.is_live() && it.subscriber == hash);
        let sessions = places.filter_map(|(id, _)| self.get(id));
        sessions.filter(move |session| session.supi.as_deref() == Some(supi))
    }

    /// Returns the first session of an association with an index in `from..end`, and the index at
    /// which the search continues.
    #[must_use]
    pub fn next_of_peer(&self, from: u32, end: u32, peer: u16) -> (Option<SessionIndex>, u32) {
        let end = end.min(self.capacity());
        let mut places = self.store.places(from).take_while(|(id, _)| id.0 < end);
        let found = places.find(|(_, it)| it.is_live() && it.peer == peer).map(|(id, _)| id);
        (found, found.map_or(end.max(from), |id| id.0 + 1))
    }

    /// Returns the association index of the session with one of our SEIDs.
    #[must_use]
    pub fn peer_of(&self, seid: u64) -> Option<u16> {
        let record = self.store.record(SessionIndex(seid as u32))?;
        (record.seid == seid && record.is_live()).then_some(record.peer)
    }

    /// Returns the maximum number of sessions.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    /// Claims the UE addresses after a change and puts those before it, if no longer used, into
    /// quarantine.
    fn exchange_addresses(&mut self, before: Option<&Session>, after: Option<&Session>, now: Now) {
        let had = before.map(|session| self.users_of(session)).unwrap_or_default();
        let has = after.map(|session| self.users_of(session)).unwrap_or_default();
        has.iter().for_each(|key| self.addresses.claim(key));
        let gone = had.iter().filter(|key| !has.contains(key));
        gone.for_each(|key| self.addresses.put_to_rest(key, now.monotonic));
    }

    fn users_of(&self, session: &Session) -> Vec<UeKey> {
        let users = keys(session, self.published.context()).users;
        users_of(session, users, &self.network, &self.addresses)
    }
}

/// Returns the UE addresses of a session: the lookup keys `users`, and pool addresses that no key
/// contains yet.
fn users_of(
    session: &Session,
    mut users: Vec<UeKey>,
    network: &Network,
    addresses: &Addresses,
) -> Vec<UeKey> {
    let is_from_there = |pdr: &&Pdr| matches!(pdr.source, Source::Core | Source::SgiLan);
    let of_others = session.pdrs.iter().filter(is_from_there).find_map(|pdr| pdr.instance);
    for pdr in &session.pdrs {
        let Some(user) = pdr.user.filter(|user| user.is_ours) else { continue };
        let pool = |family| addresses.pool_of(network, pdr.instance, of_others, family);
        if let Some(v4) = user.v4 {
            users.extend(pool(Family::V4).map(|it| UeKey::v4(it, v4)));
        }
        if let Some((v6, 64)) = user.v6 {
            users.extend(pool(Family::V6).map(|it| UeKey::v6(it, v6)));
        }
    }
    users
}

impl StateSlots for Sessions {
    fn line(&self, line: u32) -> [u64; WORDS] {
        self.published.tables().state.read(EntryId(line))
    }
}

impl SessionBackend for Sessions {
    fn capacity(&self) -> u32 {
        self.store.capacity()
    }

    fn session(&self, id: SessionIndex) -> Option<Session> {
        self.get(id)
    }

    fn next_version(&mut self) -> u64 {
        self.store.next_version()
    }

    fn commit(&mut self, session: &Session, now: Now) -> Result<(), String> {
        self.save(session, now).map_err(|error| error.to_string())
    }

    fn peer_address(&self, session: &Session) -> (SocketAddr, Option<IpAddr>) {
        (SocketAddr::new(session.cp_fseid.address, self.settings.n4.port), None)
    }

    fn is_published(&self, session: &Session) -> bool {
        let rules = self.published.rules(session.id);
        rules.is_some_and(|rules| u64::from(rules.version()) == session.version & 0xFFFF_FFFF)
    }

    fn raised(&self, from: u32, count: u32, visit: &mut dyn FnMut(SessionIndex, u64)) {
        let places = from as usize..(from as usize).saturating_add(count as usize);
        let events = &self.published.tables().events;
        events.scan_range(places, |id, seen| visit(SessionIndex(id.0), seen));
    }

    fn done(&mut self, id: SessionIndex, seen: u64) {
        self.published.tables().events.done(EntryId(id.0), seen);
    }
}

/// Creates the address pools of checked settings.
fn pools(settings: &Settings, rest: u64) -> Addresses {
    let mut addresses = Addresses::resting(rest);
    for pool in &settings.pools {
        let Some(instance) = settings.instance(&pool.network_instance) else { continue };
        let Some((address, length)) = pool.prefix.split_once('/') else { continue };
        if let (Ok(address), Ok(length)) = (address.parse(), length.parse()) {
            addresses.add(instance, Prefix { address, length }, pool.allocate);
        }
    }
    addresses
}

#[cfg(test)]
mod tests;
