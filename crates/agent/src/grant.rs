//! Grants: rights of whoever connects through a socket, which are given and taken while the agent
//! runs.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastlane::kernel::peer::Peer;
use rustix::net::Shutdown;

use crate::config::{Pool, PoolSettings};
use crate::owner::Owner;

/// Time that a revocation waits for the ends of connections. A client may be binding sockets.
const PATIENCE: Duration = Duration::from_secs(10);

/// Right of whoever connects through a socket to use a pool.
///
/// The socket is the identity: it is in a directory that only one pod or container mounts, so user
/// ids mean nothing, which those of other user namespaces do not anyway.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Interfaces, rules and TAP devices that may be used, without `users` and `groups`.
    pub pool: PoolSettings,
    /// Path of the socket. The agent makes it, and the directory if it does not exist.
    pub socket: PathBuf,
    /// Second check of each process that connects; `None` if the socket is enough.
    pub admission: Option<Arc<dyn Admission>>,
}

/// Check of a process that connects through the socket of a grant.
///
/// It runs in a thread of the connection and may take its time.
pub trait Admission: fmt::Debug + Send + Sync {
    /// Checks a process, for example by its control groups.
    ///
    /// # Errors
    /// The reason why it may not use the grant, which it is told.
    fn admit(&self, peer: &Peer) -> Result<(), String>;
}

/// Admission of the users and groups of a pool.
impl Admission for Pool {
    fn admit(&self, peer: &Peer) -> Result<(), String> {
        match self.admits(peer.user, peer.group) {
            true => Ok(()),
            false => Err(format!("user {} may not use pool `{}`", peer.user, self.name)),
        }
    }
}

/// Use of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantUse {
    /// Name of the grant.
    pub name: String,
    /// Number of open connections.
    pub connections: usize,
    /// Names of the interfaces that a client has, or had when the agent was restarted and may take
    /// over again.
    pub interfaces: Vec<String>,
}

/// Grant that is in force, or was until it was revoked.
#[derive(Debug)]
pub(crate) struct ActiveGrant {
    pub(crate) owner: Owner,
    pub(crate) pool: Arc<Pool>,
    pub(crate) admission: Option<Arc<dyn Admission>>,
    connections: Mutex<Connections>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Connections {
    is_revoked: bool,
    open: BTreeMap<u64, Arc<OwnedFd>>,
    /// Number of the next connection.
    next: u64,
}

impl ActiveGrant {
    pub(crate) fn new(
        owner: Owner,
        pool: Arc<Pool>,
        admission: Option<Arc<dyn Admission>>,
    ) -> Self {
        Self { owner, pool, admission, connections: Mutex::default(), ended: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.lock().open.len()
    }

    /// Adds a connection. Returns `None` if the grant is revoked.
    pub(crate) fn enter(self: &Arc<Self>, socket: &Arc<OwnedFd>) -> Option<Connection> {
        let mut connections = self.lock();
        if connections.is_revoked {
            return None;
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, Arc::clone(socket));
        Some(Connection { grant: Arc::clone(self), number })
    }

    /// Ends all connections, and waits until what they had is released. Returns false if a
    /// connection has not ended in time; it ends later.
    pub(crate) fn revoke(&self) -> bool {
        let mut connections = self.lock();
        connections.is_revoked = true;
        for socket in connections.open.values() {
            // An error means that the client has closed it.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        let is_open = |connections: &mut Connections| !connections.open.is_empty();
        let waited = self.ended.wait_timeout_while(connections, PATIENCE, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Open connection of a grant. Dropping it tells that everything is released.
#[derive(Debug)]
pub(crate) struct Connection {
    grant: Arc<ActiveGrant>,
    number: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.grant.lock().open.remove(&self.number);
        self.grant.ended.notify_all();
    }
}
