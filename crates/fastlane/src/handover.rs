//! Handover (hot restart): passing the tables, message rings, AF_XDP sockets, TAP devices and frame
//! pools of a fast path that ended to the next one.
//!
//! In between they are held by a [`HandoverHolder`](crate::slow::HandoverHolder) or by the file
//! descriptor store of the service manager. A successor takes them over only if it is the same
//! program of the same release with the same configuration (steering rules may differ). Otherwise
//! it starts with new resources, logs the reason and makes the holder close what it has.
//!
//! [`Handover`] is what a running application offers; [`Takeover`] is what it received itself.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::config::plan::Plan;
use crate::message_rings::{InheritedRings, MessageRings};
use crate::open::{InheritedPorts, PortHandover};
use crate::service_manager::ServiceManager;
use crate::session::{HandoverRequest, Kind, Reply, connect_to_holder, converse};
use crate::tables::{InheritedPart, Tables};

mod fd_store;
mod manifest;

use fd_store::FdStore;
pub(crate) use manifest::Manifest;

/// Longest wait for a reply of a holder.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of descriptors in one reply.
const DESCRIPTORS_PER_REPLY: usize = 200;

/// Returns the path of the socket on which a holder serves the successor of the application whose
/// session is at `session`.
pub(crate) fn path(session: &Path) -> PathBuf {
    session.with_extension("kept")
}

/// Descriptors with their meaning.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) manifest: Manifest,
    /// The descriptors, in the order of the manifest.
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

/// Resources that a running application offers to its successor.
#[derive(Debug)]
pub(crate) struct Handover {
    offer: Mutex<Offer>,
    /// True if all tables and message rings were themselves inherited.
    pub(crate) is_inherited: bool,
    /// True while a holder that has the descriptors is connected.
    has_holder: AtomicBool,
    /// Session of the application, beside which a holder listens; empty in a holder.
    session: PathBuf,
    /// Service manager that stores the descriptors.
    stored_by: OnceLock<Arc<ServiceManager>>,
}

impl Offer {
    fn has_ports(&self) -> bool {
        self.manifest.messages.unwrap_or(self.descriptors.len()) > self.manifest.ports.1
    }

    /// Drops the ports and their descriptors.
    pub(crate) fn withdraw_ports(&mut self) {
        let Self { manifest, descriptors } = self;
        let (_, first) = std::mem::take(&mut manifest.ports);
        let end = manifest.messages.unwrap_or(descriptors.len());
        descriptors.drain(first..end);
        manifest.ports.1 = first;
        manifest.messages = manifest.messages.map(|_| first);
        manifest.descriptors = descriptors.len();
    }
}

impl Handover {
    /// Collects the tables, ports and message rings of an application that runs `plan`.
    pub(crate) fn new(
        plan: &Plan,
        tables: &Tables,
        ports: PortHandover,
        messages: Option<&MessageRings>,
    ) -> Self {
        let is_inherited =
            tables.are_inherited() && messages.is_none_or(|rings| rings.is_inherited);
        let (tables, mut descriptors) = tables.to_hand_over();
        let ours = Manifest::of(plan);
        let ports_and_offset = (ports.manifest, descriptors.len());
        descriptors.extend(ports.descriptors);
        let messages = messages.map(|rings| {
            let offset = descriptors.len();
            descriptors.extend(rings.parts().1);
            offset
        });
        let (ports, count) = (ports_and_offset, descriptors.len());
        let manifest = Manifest { tables, ports, messages, descriptors: count, ..ours };
        let handover = Self::of(Offer { manifest, descriptors });
        Self { is_inherited, session: plan.session.clone(), ..handover }
    }

    /// Creates the handover of a holder.
    pub(crate) fn of(offer: Offer) -> Self {
        let (offer, has_holder) = (Mutex::new(offer), AtomicBool::new(false));
        let (session, stored_by) = (PathBuf::new(), OnceLock::new());
        Self { offer, is_inherited: true, has_holder, session, stored_by }
    }

    /// Returns the descriptors with their meaning.
    pub(crate) fn offer(&self) -> MutexGuard<'_, Offer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops offering the ports, because one of them is replaced, and makes those who hold their
    /// descriptors close them: a device queue accepts one socket only. A successor opens all ports
    /// itself. May wait for the holder and the service manager.
    pub(crate) fn withdraw_ports(&self) {
        let before = self.offer().descriptors.len();
        self.offer().withdraw_ports();
        if !self.is_held() {
            return;
        }
        if before > self.offer().descriptors.len()
            && let Some(service_manager) = self.stored_by.get()
        {
            fd_store::store_again(service_manager, before, self);
        }
        if let Some(holder) = connect_to_holder(&path(&self.session), TIMEOUT)
            && let Err(reason) = request(&holder, HandoverRequest::withdraw_ports())
        {
            tracing::warn!("the holder of the handover has not closed the ports: {reason}");
        }
    }

    /// Leaves the ports of an application that ends to a successor, if it has started and someone
    /// holds them. Otherwise drops the duplicates, because a zero-copy device keeps a queue as long
    /// as one is open. Returns true if a successor may continue with the ports.
    pub(crate) fn leave_ports(&self, has_started: bool) -> bool {
        let mut offer = self.offer();
        let are_held = has_started && self.is_held() && offer.has_ports();
        if !are_held {
            offer.withdraw_ports();
        }
        are_held
    }

    /// Returns true if a holder or the service manager has the descriptors, so that a successor may
    /// continue with them.
    pub(crate) fn is_held(&self) -> bool {
        self.has_holder.load(Ordering::Relaxed) || self.stored_by.get().is_some()
    }

    /// Records that the holder has disconnected, and its descriptors are closed.
    pub(crate) fn holder_disconnected(&self) {
        self.has_holder.store(false, Ordering::Relaxed);
    }

    /// Returns the reply to a holder, or of a holder: the manifest and the descriptors from number
    /// `from` on, at most [`DESCRIPTORS_PER_REPLY`].
    pub(crate) fn reply(&self, from: usize) -> Result<Reply, String> {
        let offer = self.offer();
        let body = serde_json::to_vec(&offer.manifest).map_err(|error| error.to_string())?;
        let descriptors = offer.descriptors.iter().skip(from).take(DESCRIPTORS_PER_REPLY);
        self.has_holder.store(true, Ordering::Relaxed);
        Ok(Reply { kind: Kind::Handover, body, descriptors: descriptors.cloned().collect() })
    }
}

/// Gives up what the service manager has kept for this process, if nothing took it: the start ended
/// before the resources were asked for.
pub(crate) fn give_up_stored() {
    let (mut store, descriptors) = FdStore::take();
    drop(descriptors);
    store.give_up(ServiceManager::find().as_ref());
}

/// Resources that this application received from its predecessor. Dropping it before
/// [`finish`](Self::finish) makes the service manager close its copies.
#[derive(Debug, Default)]
pub(crate) struct Takeover {
    pub(crate) tables: Vec<InheritedPart>,
    pub(crate) ports: Option<InheritedPorts>,
    pub(crate) messages: Option<InheritedRings>,
    session: PathBuf,
    /// Connection to the holder. The holder keeps its copies until this closes, in case the start
    /// fails.
    holder: Option<UnixStream>,
    service_manager: Option<ServiceManager>,
    store: FdStore,
}

impl Takeover {
    /// Asks the service manager, then a holder, for the resources of the previous process. The
    /// caller must already own the session path, so no other process can ask at the same time.
    pub(crate) fn ask(plan: &Plan) -> Self {
        let mut takeover = Self::default();
        takeover.service_manager = ServiceManager::find();
        takeover.session.clone_from(&plan.session);
        let ours = Manifest::of(plan);
        let (store, descriptors) = FdStore::take();
        takeover.store = store;
        if !takeover.store.is_empty() {
            let used = descriptors.and_then(|descriptors| takeover.use_stored(descriptors, &ours));
            let Err(reason) = used else { return takeover };
            warn(&reason);
            takeover.discard_stored();
        }
        if let Some(stream) = connect_to_holder(&path(&plan.session), TIMEOUT)
            && let Err(reason) = takeover.receive(stream, &ours)
        {
            warn(&reason);
        }
        takeover
    }

    fn use_stored(&mut self, from: Vec<OwnedFd>, ours: &Manifest) -> Result<(), String> {
        let manifest = self.store.manifest.clone().ok_or("the manifest is missing")?;
        manifest.check(ours)?;
        self.distribute(&manifest, from);
        Ok(())
    }

    fn receive(&mut self, stream: UnixStream, ours: &Manifest) -> Result<(), String> {
        let (manifest, mut descriptors) = request(&stream, HandoverRequest::from(0))?;
        if let Err(reason) = manifest.check(ours) {
            drop(descriptors);
            request(&stream, HandoverRequest::give_up())?;
            return Err(reason);
        }
        while descriptors.len() < manifest.descriptors {
            let from = descriptors.len();
            let (_, more) = request(&stream, HandoverRequest::from(from))?;
            if more.is_empty() {
                return Err("the holder sent fewer descriptors than its manifest names".to_owned());
            }
            descriptors.extend(more);
        }
        self.distribute(&manifest, descriptors);
        self.holder = Some(stream);
        Ok(())
    }

    /// Splits the descriptors into those of tables, ports and message rings.
    fn distribute(&mut self, manifest: &Manifest, mut descriptors: Vec<OwnedFd>) {
        if let Some(offset) = manifest.messages {
            let of_messages = descriptors.split_off(offset.min(descriptors.len()));
            self.messages = Some(InheritedRings(of_messages));
        }
        let (ports, offset) = manifest.ports.clone();
        let of_ports = descriptors.split_off(offset.min(descriptors.len()));
        self.ports = InheritedPorts::new(ports, of_ports.into_iter().map(Some).collect());
        let mut descriptors: Vec<_> = descriptors.into_iter().map(Some).collect();
        for table in &manifest.tables {
            for part in &table.parts {
                let descriptor = descriptors.get_mut(part.descriptor).and_then(Option::take);
                let (table, role) = (table.name.clone(), part.role);
                self.tables.extend(descriptor.map(|it| InheritedPart {
                    table,
                    role,
                    descriptor: it,
                }));
            }
        }
    }

    /// Makes the service manager and the holder close their copies: a device queue accepts one
    /// socket only.
    pub(crate) fn discard(&mut self) {
        self.discard_stored();
        let holder = self.holder.take();
        let holder = holder.or_else(|| connect_to_holder(&path(&self.session), TIMEOUT));
        if let Some(holder) = holder {
            // An error means that the holder has nothing.
            let _ = request(&holder, HandoverRequest::give_up());
        }
    }

    fn discard_stored(&mut self) {
        if let Some(service_manager) = &self.service_manager {
            self.store.remove(service_manager);
        }
    }

    /// Ends the takeover, as the last step of a start that can fail: everything received is in use.
    /// The service manager now stores `current` for the next process. Returns the connection to the
    /// service manager, if there is one.
    pub(crate) fn finish(mut self, current: &Handover) -> Option<Arc<ServiceManager>> {
        let mut store = std::mem::take(&mut self.store);
        let service_manager = Arc::new(self.service_manager.take()?);
        if store.replace(&service_manager, current) {
            let _ = current.stored_by.set(Arc::clone(&service_manager)); // there is one start
        }
        Some(service_manager)
    }
}

impl Drop for Takeover {
    fn drop(&mut self) {
        // After `finish` there is nothing in it.
        self.store.give_up(self.service_manager.as_ref());
    }
}

fn warn(reason: &str) {
    tracing::warn!("the handover of the previous process is not used: {reason}");
}

fn request(
    stream: &UnixStream,
    request: HandoverRequest,
) -> Result<(Manifest, Vec<OwnedFd>), String> {
    let (body, descriptors) = converse(stream, Kind::Handover, &request)?;
    let manifest = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
    Ok((manifest, descriptors))
}
