//! The agent of a process: its sockets, its pools and its grants.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fastlane::kernel::Interface;

use crate::Error;
use crate::admit;
use crate::config::{self, Configuration, Plan, Pool};
use crate::grant::{ActiveGrant, Admission, Grant, GrantUse};
use crate::listener::Listener;
use crate::map_devices::MapDevices;
use crate::orphans::Orphans;
use crate::owner::{Owner, is_grant_name};
use crate::preconditions::{check_capabilities, lock_pins};
use crate::registry::Registry;
use crate::shared::Shared;
use crate::vfio;

/// Agent that serves clients in threads of its own until it is dropped.
///
/// It acts in the network namespace of the thread that starts it. Dropping it removes its sockets;
/// clients that are connected are served until the process ends. Programs stay pinned.
///
/// A grant is in force until it is [revoked](Self::revoke) or the process ends. After a restart,
/// whoever gave a grant gives it again: applications come back through its socket and take over
/// what they had, without a new allocation.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    /// Pools of the configuration.
    pools: Vec<Arc<Pool>>,
    grants: Mutex<BTreeMap<String, OpenGrant>>,
    /// Handshakes of the pools of the configuration.
    handshakes: Vec<Handshake>,
    /// Socket for users; `None` without pools.
    _listener: Option<Listener>,
    /// Directory of the pins, locked against other agents.
    _pins: OwnedFd,
}

#[derive(Debug)]
struct OpenGrant {
    active: Arc<ActiveGrant>,
    listener: Listener,
    handshake: Option<Handshake>,
}

/// Socket of a handshake, with the interfaces whose maps it hands out.
#[derive(Debug)]
struct Handshake {
    _listener: Listener,
    devices: Arc<MapDevices>,
}

impl Handshake {
    /// Attaches the programs and opens the socket, if the pool of a grant has one.
    fn open(shared: &Arc<Shared>, grant: &Arc<ActiveGrant>) -> Result<Option<Self>, Error> {
        let Some(path) = &grant.pool.handshake else { return Ok(None) };
        let devices = MapDevices::attach(shared, &grant.owner, &grant.pool);
        let devices = devices.map(Arc::new).map_err(|reason| {
            let name = grant.pool.name.clone();
            Error::Grant { name, reason: format!("its handshake: {reason}") }
        })?;
        let (shared, entered, maps) = (Arc::clone(shared), Arc::clone(grant), Arc::clone(&devices));
        let admit = move |connection| admit::by_handshake(&shared, &entered, &maps, connection);
        let listener = Listener::open(path, admit)?;
        tracing::info!("pool `{}`: the handshake is at {}", grant.pool.name, path.display());
        Ok(Some(Self { _listener: listener, devices }))
    }
}

impl Agent {
    /// Starts an agent. Its configuration may have no pools: then only grants can be used, and
    /// `socket` is not opened.
    ///
    /// # Errors
    /// The first mistake of the configuration, or what is missing on this machine.
    pub fn start(configuration: Configuration) -> Result<Self, Error> {
        Self::start_with(config::resolve(configuration).map_err(Error::Settings)?)
    }

    pub(crate) fn start_with(plan: Plan) -> Result<Self, Error> {
        let Plan { socket, pins, pools } = plan;
        check_capabilities()?;
        let locked = lock_pins(&pins)?;
        vfio::close_all(&pools);
        let registry = Arc::<Registry>::default();
        let orphans = Orphans::find(&pins, &registry);
        let orphans = orphans.map_err(|error| Error::pins(&pins, error.to_string()))?;
        let shared = Arc::new(Shared::new(registry, Arc::new(orphans), pins));
        let listener = match pools.is_empty() {
            true => None,
            false => {
                let (shared, pools) = (Arc::clone(&shared), pools.clone());
                let admit = move |connection| admit::by_user(&shared, &pools, connection);
                Some(Listener::open(&socket, admit)?)
            }
        };
        let handshakes = pools.iter().filter(|pool| pool.handshake.is_some()).map(|pool| {
            let admission: Arc<dyn Admission> = Arc::clone(pool) as _;
            let owner = Owner::Grant(pool.name.clone());
            let active = ActiveGrant::new(owner, Arc::clone(pool), Some(admission));
            Handshake::open(&shared, &Arc::new(active))
        });
        let handshakes = handshakes.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let orphans = Arc::clone(&shared.orphans);
        let thread = thread::Builder::new().name("orphans".to_owned());
        let spawned = thread.spawn(move || orphans.expire());
        spawned.map_err(|error| Error::Settings(format!("no thread: {error}")))?;
        if listener.is_some() {
            tracing::info!("the agent listens at {}", socket.display());
        }
        let grants = Mutex::default();
        Ok(Self { shared, pools, grants, handshakes, _listener: listener, _pins: locked })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenGrant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets whoever connects through the socket of `grant` use its pool. The name is a path-safe
    /// identifier, such as the UID of a claim: 1 to 64 letters, digits, `-` and `_`. Give a grant
    /// the same name again after a restart.
    ///
    /// # Errors
    /// A name that cannot be one or is in force already, a mistake in the pool, an interface or
    /// TAP device that is in another pool, or a socket that cannot be made.
    pub fn grant(&self, name: &str, grant: Grant) -> Result<(), Error> {
        let refuse = |reason: String| Error::Grant { name: name.to_owned(), reason };
        if !is_grant_name(name) {
            let reason = "its name must have 1 to 64 letters, digits, `-` and `_`";
            return Err(refuse(reason.to_owned()));
        }
        let Grant { pool, socket, admission } = grant;
        if !pool.users.is_empty() || !pool.groups.is_empty() {
            let reason = "it has `users` or `groups`, but its socket tells who may use it";
            return Err(refuse(reason.to_owned()));
        }
        let pool = config::resolve_pool(name, pool).map_err(refuse)?;
        let owner = Owner::Grant(name.to_owned());
        let mut grants = self.lock();
        if grants.contains_key(name) {
            return Err(refuse("it is in force already; revoke it first".to_owned()));
        }
        let mut others = self.pools.iter().chain(grants.values().map(|other| &other.active.pool));
        if let Some(what) = others.find_map(|other| pool.shared_with(other)) {
            return Err(refuse(what));
        }
        if self.pools.iter().any(|other| other.handshake.is_some() && other.name == name) {
            return Err(refuse("a pool with a `handshake` has this name".to_owned()));
        }
        let active = Arc::new(ActiveGrant::new(owner.clone(), Arc::new(pool), admission));
        let (shared, entered) = (Arc::clone(&self.shared), Arc::clone(&active));
        let admit = move |connection| admit::by_grant(&shared, &entered, connection);
        let listener = Listener::open(&socket, admit)?;
        let handshake = Handshake::open(&self.shared, &active)?;
        grants.insert(name.to_owned(), OpenGrant { active, listener, handshake });
        self.shared.orphans.expect(&owner);
        tracing::info!("grant `{name}`: the agent listens at {}", socket.display());
        Ok(())
    }

    /// Takes a grant back: removes its socket, ends its connections and detaches its steering
    /// programs, so that its interfaces are free. Returns false if there is no such grant.
    ///
    /// Sockets and TAP devices that an application has stay with it: the next application waits
    /// until it has closed them.
    pub fn revoke(&self, name: &str) -> bool {
        let active = {
            let mut grants = self.lock();
            let Some(open) = grants.remove(name) else { return false };
            // Under the lock: a new grant of this name may have the same sockets.
            drop((open.listener, open.handshake));
            open.active
        };
        if !active.revoke() {
            tracing::warn!("grant `{name}`: a connection has not ended in time");
        }
        self.shared.orphans.give_up(&active.owner);
        tracing::info!("grant `{name}` is revoked");
        true
    }

    /// Returns the use of each grant that is in force.
    #[must_use]
    pub fn grants(&self) -> Vec<GrantUse> {
        let grants = self.lock();
        let uses = grants.iter().map(|(name, OpenGrant { active, .. })| {
            let interfaces = self.shared.registry.of_owner(&active.owner);
            let interfaces = interfaces.into_iter().filter_map(|index| {
                Interface::with_index(index).ok().flatten().map(|interface| interface.name)
            });
            let (name, connections) = (name.clone(), active.connections());
            GrantUse { name, connections, interfaces: interfaces.collect() }
        });
        uses.collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Their programs stay attached and pinned, as those of connected clients do.
        let grants = std::mem::take(&mut *self.lock());
        let of_grants = grants.values().filter_map(|grant| grant.handshake.as_ref());
        for handshake in self.handshakes.iter().chain(of_grants) {
            std::mem::forget(Arc::clone(&handshake.devices));
        }
    }
}
