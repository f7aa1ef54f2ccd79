//! State that all clients share, and the limits of their number.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::registry::{Orphans, Registry};

/// Maximum number of clients, and of clients of one user.
const MAX_CLIENTS: usize = 256;
const MAX_CLIENTS_OF_USER: usize = 32;

/// State that all clients share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) registry: Arc<Registry>,
    pub(crate) orphans: Orphans,
    /// Directory of the pins.
    pub(crate) pins: PathBuf,
    /// Number of clients of each user.
    pub(crate) clients: Mutex<BTreeMap<u32, usize>>,
}

/// Connection that counts against the limits.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    user: u32,
}

impl Slot {
    /// Counts a connection of a user. Returns `None` beyond a limit.
    pub(crate) fn take(shared: &Arc<Shared>, user: u32) -> Option<Self> {
        let mut clients = shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = clients.values().sum();
        let own = clients.entry(user).or_default();
        if total >= MAX_CLIENTS || *own >= MAX_CLIENTS_OF_USER {
            return None;
        }
        *own += 1;
        Some(Self { shared: Arc::clone(shared), user })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.user);
            }
        }
    }
}
