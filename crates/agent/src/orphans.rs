//! Devices that an agent found pinned at its start and whose clients have not come back yet.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_steer::ProgramHandover;

use crate::owner::Owner;
use crate::registry::{Holder, Lease, Pins, Registry};

/// Time that clients have to come back. They try twice a second.
const RETURN: Duration = Duration::from_secs(5);
/// Time after the start within which a grant must be in force again, so that its clients can come
/// back.
const GRANT_RETURN: Duration = Duration::from_secs(60);

/// Pinned device whose client has not come back.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) program: ProgramHandover<OwnedFd>,
    pub(crate) interface: u32,
    pub(crate) pins: Pins,
    pub(crate) lease: Lease,
    /// Time until which it waits.
    end: Instant,
}

/// Pinned devices by owner and token, until their clients come back or the time is over.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    waiting: Mutex<BTreeMap<(Owner, String), Orphan>>,
    changed: Condvar,
}

impl Orphans {
    /// Finds the pinned devices of an agent that has ended. Pins that are damaged, or whose
    /// interface was removed, are removed.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub(crate) fn find(pins: &Path, registry: &Arc<Registry>) -> std::io::Result<Self> {
        let mut waiting = BTreeMap::new();
        for entry in std::fs::read_dir(pins)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let Some((owner, token)) = Owner::of_directory(name) else { continue };
            let token = token.to_owned();
            let pins = Pins::new(path.clone());
            let program = ProgramHandover::from_pins(&path);
            let found = program.and_then(|program| Ok((program.interface()?, program)));
            let (Some(interface), program) = (match found {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!("{}: {error}; the pins are removed", path.display());
                    continue;
                }
            }) else {
                continue;
            };
            let holder = Holder { owner: owner.clone(), process: 0 };
            let Ok(lease) = registry.take(interface, holder) else { continue };
            tracing::info!("interface {interface}: waiting for its client, of {owner}");
            let patience = match owner {
                Owner::User(_) => RETURN,
                Owner::Grant(_) => GRANT_RETURN,
            };
            let end = Instant::now() + patience;
            waiting.insert((owner, token), Orphan { program, interface, pins, lease, end });
        }
        Ok(Self { waiting: Mutex::new(waiting), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Owner, String), Orphan>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device of a client that has come back.
    pub(crate) fn take(&self, owner: &Owner, token: &str) -> Option<Orphan> {
        self.lock().remove(&(owner.clone(), token.to_owned()))
    }

    /// Returns a device of an owner: the one on an interface, or any.
    pub(crate) fn take_any(&self, owner: &Owner, interface: Option<u32>) -> Option<Orphan> {
        let mut waiting = self.lock();
        let is_wanted = |orphan: &Orphan| interface.is_none_or(|it| it == orphan.interface);
        let mut mine = waiting.iter().filter(|((it, _), orphan)| it == owner && is_wanted(orphan));
        let key = mine.next()?.0.clone();
        waiting.remove(&key)
    }

    /// Waits from now on for the clients of an owner, which can connect now.
    pub(crate) fn expect(&self, owner: &Owner) {
        let mut waiting = self.lock();
        let mine = waiting.iter_mut().filter(|((it, _), _)| it == owner);
        mine.for_each(|(_, orphan)| orphan.end = Instant::now() + RETURN);
        self.changed.notify_all();
    }

    /// Gives up the devices of an owner.
    pub(crate) fn give_up(&self, owner: &Owner) {
        let mine: Vec<_> = self.lock().extract_if(.., |(it, _), _| it == owner).collect();
        drop(mine);
    }

    /// Gives up each device whose client has not come back in time. Returns once none waits.
    pub(crate) fn expire(&self) {
        let mut waiting = self.lock();
        while let Some(end) = waiting.values().map(|orphan| orphan.end).min() {
            let left = end.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let waited = self.changed.wait_timeout(waiting, left);
                waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let now = Instant::now();
            let late: Vec<_> = waiting.extract_if(.., |_, orphan| orphan.end <= now).collect();
            drop(waiting);
            for ((owner, _), orphan) in late {
                let interface = orphan.interface;
                tracing::info!("interface {interface}: its client, of {owner}, has not come back");
            }
            waiting = self.lock();
        }
    }
}
