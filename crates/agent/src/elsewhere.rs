//! Clients in another network namespace than the agent: their rights, and the properties of the
//! interfaces that they cannot see.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fastlane::agent::records::{InterfaceProperties, Response, Rights};
use fastlane::kernel::tap::ClientNamespace;
use fastlane::kernel::{Interface, LinkEvents};

use crate::answer::Answer;
use crate::config::Pool;

/// Returns the rights of a client.
///
/// # Errors
/// The reason of the kernel.
pub(crate) fn rights(pools: &[Arc<Pool>], connection: &OwnedFd) -> Answer {
    let namespace = ClientNamespace::of(connection.as_fd()).map_err(|error| error.to_string())?;
    let is_elsewhere = namespace.is_elsewhere().map_err(|error| error.to_string())?;
    let interfaces = pools.iter().flat_map(|pool| pool.interfaces.keys().cloned()).collect();
    let taps = pools.iter().flat_map(|pool| pool.taps.keys().cloned()).collect();
    Ok((Response::Rights(Rights { is_elsewhere, interfaces, taps }), vec![]))
}

/// Returns the properties of an interface: of the one with `index` if the client has it, else of
/// the one of this name, if a pool has it.
///
/// # Errors
/// It is in no pool, or the reason of the kernel.
pub(crate) fn interface(
    pools: &[Arc<Pool>],
    name: &str,
    index: Option<u32>,
    has: impl Fn(u32) -> bool,
) -> Answer {
    let failed = |error: fastlane::kernel::Error| error.to_string();
    let found = match index.filter(|index| has(*index)) {
        Some(index) => Interface::with_index(index).map_err(failed)?,
        None if pools.iter().any(|pool| pool.interfaces.contains_key(name)) => {
            let named = Interface::query(name).ok();
            // Another one of this name may have taken its place.
            named.filter(|it| index.is_none_or(|index| it.index == index))
        }
        None => return Err(format!("this client may not use `{name}`")),
    };
    Ok((Response::Interface(found.map(InterfaceProperties::from)), vec![]))
}

/// Changes of interfaces in the network namespace of the agent.
#[derive(Debug)]
pub(crate) struct Changes {
    /// `None` if the kernel refuses the subscription.
    events: Mutex<Option<LinkEvents>>,
    count: AtomicU64,
}

impl Changes {
    /// Subscribes to the changes.
    pub(crate) fn follow() -> Self {
        let events = LinkEvents::open().inspect_err(|error| {
            tracing::warn!("changes of interfaces cannot be followed: {error}");
        });
        // Another number than that of the agent before this one.
        let count = AtomicU64::new(fastlane_core::now());
        Self { events: Mutex::new(events.ok()), count }
    }

    /// Returns a number that is another one if an interface may have changed since the last call.
    pub(crate) fn count(&self) -> u64 {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_changed = false;
        let is_complete = events.as_mut().map(|events| events.receive(|_| has_changed = true));
        if has_changed || !matches!(is_complete, Some(Ok(true))) {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_interfaces_are_counted() {
        let namespace = || {
            if !fastlane_testing::namespace::private("changes") {
                return;
            }
            let changes = Changes::follow();
            let before = changes.count();
            assert_eq!(changes.count(), before);
            fastlane_testing::namespace::ip("link set lo mtu 9000");
            let after = changes.count();
            assert_ne!(after, before);
            assert_eq!(changes.count(), after);
        };
        std::thread::spawn(namespace).join().unwrap();
    }
}
