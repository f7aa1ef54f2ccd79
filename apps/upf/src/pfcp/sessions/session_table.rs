//! Sessions of the store: opening and recovery, lookup, and changes that no request makes.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use fastlane::table::{EntryId, TableError};

use super::teid_conflicts::TeidConflicts;
use super::{GRACE, LaneWait, SessionOwner, SessionTally, Sessions, owner_of, users_of};
use crate::alloc::{Addresses, SessionIndices};
use crate::config::Settings;
use crate::config::slice_limits::SmfLimits;
use crate::pfcp::NodeName;
use crate::rules::layout::counter_slots::WORDS;
use crate::rules::layout::slices::SliceGroup;
use crate::rules::layout::{TeidLayout, UeKey};
use crate::rules::publish::{PublishError, Published};
use crate::session::{InstanceId, Network, Prefix, SNssai, Session, SessionIndex};
use crate::store::record::SessionRecord;
use crate::store::{AllocatedAddresses, Store, StoreError, subscriber};
use crate::time::{MILLISECOND, Now};
use crate::usage::{SessionBackend, StateSlots};

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
            shape: TeidLayout::of(settings.session_room() as usize),
            places: SessionIndices::open(&store, settings.sessions),
            addresses: pools(settings, life.saturating_add(GRACE)),
            life,
            settings: settings.clone(),
            node_id,
            store,
            published,
            tally: SessionTally::default(),
            lane_wait: LaneWait::default(),
            reported: Vec::new(),
            markers_given_up: 0,
            conflicts: TeidConflicts::default(),
        };
        this.recover();
        this
    }

    fn recover(&mut self) {
        let Self { store, published, tally, network, addresses, .. } = self;
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
        let recovered = published.recover_with(read, |session, keys, group| {
            let (slice, peer) = (session.s_nssai, session.peer);
            tally.exchange(None, Some(SessionOwner { group, slice, peer }));
            let users = users_of(session, keys.users, network, addresses);
            users.iter().for_each(|key| addresses.claim(key));
            addresses.resume(&given_in(network, AllocatedAddresses::to(session)), None);
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
            let given = given_in(network, given);
            addresses.resume(&given, Some(at).filter(|at| at.saturating_add(rest) >= last));
        }
    }

    /// Returns the number of sessions in each of the 256 shards.
    pub fn by_shard(&self) -> impl Iterator<Item = u32> {
        self.places.by_shard()
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
        let published = self.published.publish(before.as_ref(), session);
        self.count_owners(before.as_ref(), Some(session));
        Ok(published?)
    }

    /// Returns the indices of all sessions, in order.
    pub fn ids(&self) -> impl Iterator<Item = SessionIndex> {
        self.ids_from(0)
    }

    /// Returns the session indices from `index` on, to continue an interrupted scan.
    pub fn ids_from(&self, index: u32) -> impl Iterator<Item = SessionIndex> {
        self.store.places(index).filter(|(_, record)| record.is_live()).map(|(id, _)| id)
    }

    /// Returns the sessions with an index in a range: each index with its UP SEID.
    pub fn seids_in(&self, range: Range<u32>) -> impl Iterator<Item = (SessionIndex, u64)> {
        range.filter_map(|index| {
            let id = SessionIndex(index);
            let record = self.store.record(id).filter(|record| record.is_live())?;
            Some((id, record.seid))
        })
    }

    /// Returns all sessions, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = Session> {
        self.ids().filter_map(|id| self.get(id))
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
        owner_of(&self.store, &self.published, self.shape, teid)
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

    /// Returns the number of sessions in a group.
    #[must_use]
    pub fn in_group(&self, group: SliceGroup) -> usize {
        self.tally.of_group(group)
    }

    /// Returns the number of sessions of a slice.
    #[must_use]
    pub fn of_slice(&self, slice: SNssai) -> usize {
        self.tally.of_slice(slice)
    }

    /// Returns the number of sessions of an association.
    #[must_use]
    pub fn of_peer(&self, peer: u16) -> usize {
        self.tally.of_peer(peer)
    }

    /// Sets the limit of held packets of an association by the entry of `app.n4.limits` that covers
    /// it, with the index of the entry.
    ///
    /// # Errors
    /// It could not be written, and stays as it was.
    pub fn limit_smf(
        &mut self,
        peer: u16,
        entry: Option<(usize, &SmfLimits)>,
    ) -> Result<(), TableError> {
        self.published.slices_mut().limit_smf(peer, entry)
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

/// Returns addresses with what stands for their network instance in the pools.
fn given_in(network: &Network, given: AllocatedAddresses) -> AllocatedAddresses {
    AllocatedAddresses { instance: given.instance.and_then(|it| network.domain(it)), ..given }
}

/// Creates the address pools of checked settings.
fn pools(settings: &Settings, rest: u64) -> Addresses {
    let (mut addresses, network) = (Addresses::resting(rest), settings.network());
    for pool in &settings.pools {
        let instance = settings.instance(&pool.network_instance);
        let Some(instance) = instance.and_then(|it| network.domain(it)) else { continue };
        let Some((address, length)) = pool.prefix.split_once('/') else { continue };
        if let (Ok(address), Ok(length)) = (address.parse(), length.parse()) {
            addresses.add(instance, Prefix { address, length }, pool.allocate);
        }
    }
    addresses
}
