//! Sessions: what control plane functions ask, kept and published.
//!
//! A request is done to a copy of the session. Only when all of it is sound is the copy committed,
//! together with the answer, and then published to the lanes; a request that is refused leaves
//! nothing behind. What is committed is the truth: a process that is killed before it could publish
//! is followed by one that does.
//!
//! Nothing of a session is in the heap but its place among those in use (4 bytes) and a bit for its
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
use crate::rules::layout::identifier::TeidShape;
use crate::rules::publish::{PublishError, Published};
use crate::session::{Prefix, Session, SessionId};
use crate::store::record::SessionRecord;
use crate::store::{Given, Store, StoreError};
use crate::time::Now;
use crate::time::{MILLISECOND, SECOND};

/// How long a place and a user's address rest beyond the time in which a request can be repeated:
/// longer than packets are on their way.
const GRACE: u64 = 2 * SECOND;

/// What a request has changed: the session as it was and as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Absent when it was established.
    pub before: Option<Session>,
    /// Absent when it was deleted.
    pub after: Option<Session>,
}

/// All sessions.
pub struct Sessions {
    settings: Settings,
    node_id: NodeName,
    network: Network,
    shape: TeidShape,
    store: Store,
    places: Places,
    addresses: Addresses,
    published: Published,
    /// N1 times T1, in nanoseconds.
    life: u64,
    change: Option<Change>,
}

/// Why sessions cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// A session cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A session cannot be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl Sessions {
    /// Goes on with what a store holds: what is published becomes what the records say.
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
            shape: TeidShape::of(settings.sessions as usize),
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
        // All are read once: this process answers nobody before.
        let recovered = published.recover_with(read, |session, keys| {
            let users = users_of(session, keys.users, network, addresses);
            users.iter().for_each(|key| addresses.claim(key));
            addresses.resume(&Given::to(session), None);
        });
        for (id, error) in &recovered.failed {
            tracing::error!("session {} is kept and not published: {error}", id.0);
        }
        // When it is now is not known, but not before the last one went.
        let gone = || store.places(0).filter_map(|(_, record)| Some((record, record.gone_at()?)));
        let last = gone().map(|(_, at)| at).max().unwrap_or(0);
        let rest = self.life.saturating_add(GRACE);
        for (record, at) in gone() {
            let Some(given) = record.had() else { continue };
            addresses.resume(&given, Some(at).filter(|at| at.saturating_add(rest) >= last));
        }
    }

    /// How many sessions there are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.places.live()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is published.
    #[must_use]
    pub const fn published(&self) -> &Published {
        &self.published
    }

    /// Users' addresses.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// How many sessions each of the 256 shards has.
    pub fn by_shard(&self) -> impl Iterator<Item = u32> {
        self.places.by_shard()
    }

    /// The answer that a request had, if it may still be asked for: it was given since the
    /// association of its session had `begun`.
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

    /// Keeps what was found of a session's usage, or changed in it otherwise than by a request, and
    /// publishes it. Its version is one of `next_version`.
    ///
    /// # Errors
    /// When it cannot be kept; then nothing has changed.
    pub fn save(&mut self, session: &Session, now: Now) -> Result<(), SessionsError> {
        let before = self.store.get(session.id);
        self.store.commit(session, None, now.monotonic)?;
        self.published.publish(before.as_ref(), session)?;
        Ok(())
    }

    /// What the last request has changed, once.
    pub const fn take_change(&mut self) -> Option<Change> {
        self.change.take()
    }
}

/// The pools of the settings, which have been checked.
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
