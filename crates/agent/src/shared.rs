//! State that all clients share, and the limits of their number.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::elsewhere::Changes;
use crate::orphans::Orphans;
use crate::owner::Owner;
use crate::registry::Registry;

/// Maximum number of clients of all users, of one user, and of one grant.
const MAX_CLIENTS: usize = 256;
const MAX_CLIENTS_OF_USER: usize = 32;
const MAX_CLIENTS_OF_GRANT: usize = 8;

/// State that all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Interfaces in use.
    pub(crate) registry: Arc<Registry>,
    /// IOMMU groups in use.
    pub(crate) groups: Arc<Registry>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) changes: Changes,
    /// Directory of the pins.
    pub(crate) pins: PathBuf,
    /// Number of clients of each owner.
    clients: Mutex<BTreeMap<Owner, usize>>,
}

impl Shared {
    pub(crate) fn new(registry: Arc<Registry>, orphans: Arc<Orphans>, pins: PathBuf) -> Self {
        let (groups, changes) = (Arc::default(), Changes::follow());
        Self { registry, groups, orphans, changes, pins, clients: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Owner, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection that counts against the limits.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    owner: Owner,
}

impl Slot {
    /// Counts a connection of an owner. Returns `None` beyond a limit.
    pub(crate) fn take(shared: &Arc<Shared>, owner: &Owner) -> Option<Self> {
        let mut clients = shared.lock();
        let own = clients.get(owner).copied().unwrap_or(0);
        let is_free = match owner {
            Owner::User(_) => {
                let users = clients.iter().filter(|(owner, _)| matches!(owner, Owner::User(_)));
                let total: usize = users.map(|(_, count)| count).sum();
                total < MAX_CLIENTS && own < MAX_CLIENTS_OF_USER
            }
            // Users cannot use up what grants may have, nor one grant what others may have.
            Owner::Grant(_) => own < MAX_CLIENTS_OF_GRANT,
        };
        if !is_free {
            return None;
        }
        clients.insert(owner.clone(), own + 1);
        Some(Self { shared: Arc::clone(shared), owner: owner.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut clients = self.shared.lock();
        if let Some(count) = clients.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.owner);
            }
        }
    }
}
