//! Registry of the interfaces and IOMMU groups that clients have, and the pins of their devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_steer::unpin;

use crate::owner::Owner;

/// Time that a client waits for an interface: a previous one may be about to end.
const PATIENCE: Duration = Duration::from_secs(7);

/// Holder of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) owner: Owner,
    /// Process id; 0 for a client that has not come back since the agent was started.
    pub(crate) process: u32,
}

/// Interfaces in use, by index, or IOMMU groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    taken: Mutex<BTreeMap<u32, Holder>>,
    freed: Condvar,
}

/// Right to use an interface or a group. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    registry: Arc<Registry>,
    interface: u32,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Holder>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the indices of the interfaces that an owner has.
    pub(crate) fn of_owner(&self, owner: &Owner) -> Vec<u32> {
        let taken = self.lock();
        let mine = taken.iter().filter(|(_, holder)| holder.owner == *owner);
        mine.map(|(interface, _)| *interface).collect()
    }

    /// Takes an interface; waits if somebody has it.
    ///
    /// # Errors
    /// Returns the holder that keeps it.
    pub(crate) fn take(self: &Arc<Self>, interface: u32, taker: Holder) -> Result<Lease, Holder> {
        let end = Instant::now() + PATIENCE;
        let mut taken = self.lock();
        while let Some(holder) = taken.get(&interface) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(holder.clone());
            }
            let waited = self.freed.wait_timeout(taken, left);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.insert(interface, taker);
        Ok(Lease { registry: Arc::clone(self), interface })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.interface);
        self.registry.freed.notify_all();
    }
}

/// Pins of a device. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Pins(PathBuf);

impl Pins {
    /// Wraps the directory of a device whose program is pinned.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = unpin(&self.0) {
            tracing::warn!("a pin stays at {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_free_once_its_lease_is_dropped() {
        let registry = Arc::<Registry>::default();
        let holder = |process| Holder { owner: Owner::User(5), process };
        let lease = registry.take(7, holder(1)).unwrap();
        let other = registry.take(8, holder(1)).unwrap();
        assert_eq!(registry.of_owner(&Owner::User(5)), [7, 8]);
        assert!(registry.of_owner(&Owner::User(6)).is_empty());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| registry.take(7, holder(2)).map(drop));
            drop(lease);
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
        drop(other);
        assert!(registry.lock().is_empty());
    }
}
