//! A kernel tier that two parts of a slow path use: the follower of connections writes its flows,
//! the follower of interfaces and routes the rest.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastlane_mirror::flows::{FlowKey, FlowStatus, FlowTier, TierFlow, TierTotals};
use fastlane_table::EntryId;

use crate::kernel_tier::KernelTier;

/// Handle of a kernel tier. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedTier(Arc<Mutex<KernelTier>>);

impl SharedTier {
    /// Shares a tier.
    #[must_use]
    pub fn new(tier: KernelTier) -> Self {
        Self(Arc::new(Mutex::new(tier)))
    }

    /// Returns the tier, for a short time.
    pub fn lock(&self) -> MutexGuard<'_, KernelTier> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlowTier for SharedTier {
    fn insert(&mut self, flow: &TierFlow) -> io::Result<()> {
        self.lock().insert(flow)
    }

    fn remove(&mut self, key: &FlowKey) -> io::Result<()> {
        self.lock().remove(key)
    }

    fn flows(&self) -> io::Result<Vec<TierFlow>> {
        self.lock().flows()
    }

    fn totals(&self, entry: EntryId) -> io::Result<TierTotals> {
        self.lock().totals(entry)
    }

    fn publish(&mut self, status: &FlowStatus) -> io::Result<()> {
        self.lock().publish(status)
    }
}
