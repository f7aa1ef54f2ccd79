//! PFCP sessions: establishment, modification, deletion and recovery.
//!
//! A request is applied to a copy of the session. The copy is committed together with the response
//! only when all of it is valid, and is then published to the lanes. A refused request leaves
//! nothing behind. The committed record is the truth: if the process is killed before it could
//! publish, its successor publishes.
//!
//! Per session the heap holds only its index among those in use (4 bytes) and one bit for its UE
//! address.

mod ahead;
mod answer;
mod change;
mod draft;
mod far;
mod find;
mod ground;
mod network;
mod pdr;
mod qer;
mod refusal;
mod remove;
mod request;
mod urr;

pub use self::network::Network;
pub use self::refusal::Refusal;
pub use self::remove::is_in;
use self::remove::users_of;
use super::{NodeName, RequestKey};
use crate::alloc::{Addresses, Places};
use crate::config::Settings;
use crate::rules::layout::teid_layout::TeidLayout;
use crate::rules::publish::{PublishError, Published};
use crate::session::{Prefix, Session, SessionId};
use crate::store::record::SessionRecord;
use crate::store::{Given, Store, StoreError};
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// Quarantine of a session index and of a UE address beyond the time in which a request can be
/// retransmitted. It is longer than packets stay in flight.
const GRACE: u64 = 2 * SECOND;

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
    places: Places,
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
            network: Network::of(settings),
            shape: TeidLayout::of(settings.sessions as usize),
            places: Places::open(&store),
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
        let read = |id: SessionId| {
            let session = store.get(id);
            if session.is_none() && store.record(id).is_some_and(SessionRecord::is_live) {
                tracing::error!("session {} cannot be read; end it and set it up anew", id.0);
            }
            session
        };
        // Each session is read once: this process serves no request before.
        let recovered = published.recover_with(read, |session, keys| {
            let users = users_of(session, keys.users, network, addresses);
            users.iter().for_each(|key| addresses.claim(key));
            addresses.resume(&Given::to(session), None);
        });
        for (id, error) in &recovered.failed {
            tracing::error!("session {} is kept and not published: {error}", id.0);
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
