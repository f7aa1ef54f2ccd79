//! Registry of the interfaces that clients have, and of the devices that a restarted agent found
//! pinned and whose clients have not come back yet.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_steer::{ProgramHandover, unpin};

/// Time that clients have to come back after a restart of the agent. They try twice a second.
const RETURN: Duration = Duration::from_secs(5);
/// Time that a client waits for an interface: a previous one may be about to end.
const PATIENCE: Duration = Duration::from_secs(7);

/// Interfaces in use, by index.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    taken: Mutex<BTreeMap<u32, u32>>,
    freed: Condvar,
}

/// Right to use an interface. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    registry: Arc<Registry>,
    interface: u32,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an interface for a process; waits if another one has it.
    ///
    /// # Errors
    /// Returns the process that keeps it.
    pub(crate) fn take(self: &Arc<Self>, interface: u32, process: u32) -> Result<Lease, u32> {
        let end = Instant::now() + PATIENCE;
        let mut taken = self.lock();
        while let Some(holder) = taken.get(&interface) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(*holder);
            }
            let waited = self.freed.wait_timeout(taken, left);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        taken.insert(interface, process);
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
}

impl Drop for Pins {
    fn drop(&mut self) {
        if let Err(error) = unpin(&self.0) {
            tracing::warn!("a pin stays at {}: {error}", self.0.display());
        }
    }
}

/// Returns the directory of the pins of a device.
pub(crate) fn directory(pins: &Path, user: u32, token: &str) -> PathBuf {
    pins.join(format!("{user}-{token}"))
}

/// Returns true if `token` has the form of a token: 32 hexadecimal digits.
pub(crate) fn is_token(token: &str) -> bool {
    token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes a token of random digits.
///
/// # Errors
/// The kernel has no random numbers.
pub(crate) fn new_token() -> Result<String, String> {
    let mut bytes = [0_u8; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    let count = rustix::rand::getrandom(&mut bytes, flags);
    match count {
        Ok(16) => Ok(bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}"); // a string takes everything
            text
        })),
        _ => Err("the kernel has no random numbers".to_owned()),
    }
}

/// Pinned device whose client has not come back.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) program: ProgramHandover<OwnedFd>,
    pub(crate) interface: u32,
    pub(crate) pins: Pins,
    pub(crate) lease: Lease,
}

/// Pinned devices by user and token, until their clients come back or the time is over.
#[derive(Debug)]
pub(crate) struct Orphans {
    waiting: Mutex<BTreeMap<(u32, String), Orphan>>,
    end: Instant,
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
            let Some((user, token)) = name.split_once('-') else { continue };
            let Ok(user) = user.parse::<u32>() else { continue };
            if !is_token(token) {
                continue;
            }
            let key = (user, token.to_owned());
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
            let Ok(lease) = registry.take(interface, 0) else { continue };
            tracing::info!("interface {interface}: waiting for its client, of user {user}");
            waiting.insert(key, Orphan { program, interface, pins, lease });
        }
        Ok(Self { waiting: Mutex::new(waiting), end: Instant::now() + RETURN })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u32, String), Orphan>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the device of a client that has come back.
    pub(crate) fn take(&self, user: u32, token: &str) -> Option<Orphan> {
        self.lock().remove(&(user, token.to_owned()))
    }

    /// Gives up the devices whose clients have not come back in time. Returns the time until then,
    /// or `None` if there are none.
    pub(crate) fn expire(&self) -> Option<Duration> {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return None;
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        let late = std::mem::take(&mut *waiting);
        drop(waiting);
        for orphan in late.into_values() {
            tracing::info!("interface {}: its client has not come back", orphan.interface);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_no_path() {
        assert!(is_token("0123456789abcdef0123456789abcdef"));
        for wrong in ["", "../../../../etc/passwd/aaaaaaaaaa", "0123456789abcdef0123456789abcde/"] {
            assert!(!is_token(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_interface_is_free_once_its_lease_is_dropped() {
        let registry = Arc::<Registry>::default();
        let lease = registry.take(7, 1).unwrap();
        let other = registry.take(8, 1).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| registry.take(7, 2).map(drop));
            drop(lease);
            assert_eq!(waiting.join().unwrap(), Ok(()));
        });
        drop(other);
        assert!(registry.lock().is_empty());
    }
}
