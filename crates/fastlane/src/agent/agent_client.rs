//! Connection of an application to the agent, with the devices that it has through it.
//!
//! The devices last as long as a process has the connection. If the agent ends, they go on: their
//! programs are pinned. The next request connects again and takes them over.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastlane_af_xdp as af_xdp;
use fastlane_kernel::Interface;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::records::{
    self, Attach, Attached, BindLane, DeviceCounts, Request, Response, Resume, Rights, TapRequest,
    Token,
};
use super::seqpacket::{self, Received};

/// Time within which the agent must respond. Binding waits up to three seconds for each queue.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time within which the agent must respond to what the main thread asks periodically.
const SHORT_PATIENCE: Duration = Duration::from_millis(500);
/// Time between two attempts to connect again.
const RETRY: Duration = Duration::from_millis(500);

/// Connection to the agent.
#[derive(Debug)]
pub(crate) struct AgentClient {
    path: PathBuf,
    rights: Rights,
    state: Mutex<ClientState>,
    /// Number that changes when an interface in the agent's network namespace may have changed.
    changes: AtomicU64,
}

#[derive(Debug)]
struct ClientState {
    /// `None` after the agent has ended.
    connection: Option<OwnedFd>,
    /// Number of the last request.
    number: u32,
    /// Devices, as a restarted agent takes them over.
    devices: Vec<Resume>,
    /// Memory of each lane's pool.
    memory: BTreeMap<usize, OwnedFd>,
    /// Addresses of the PCI devices.
    pci: Vec<String>,
    /// A queue of each re-entry, by its number.
    reentries: BTreeMap<u32, OwnedFd>,
    /// Time of the next attempt to connect.
    retry: Instant,
}

/// Queues that the agent has bound for a lane, by device.
pub(crate) type BoundQueues = Vec<(af_xdp::QueueDescription, OwnedFd)>;

impl AgentClient {
    /// Connects to the agent at `path`. Returns `Ok(Err)` with its reason if it refuses.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(crate) fn connect(path: &Path) -> std::io::Result<Result<Self, String>> {
        let mut client = Self::new(path, seqpacket::connect(path)?, Rights::default(), vec![]);
        Ok(match client.request(&Request::Rights, &[], PATIENCE) {
            Ok((Response::Rights(rights), _)) => {
                client.rights = rights;
                Ok(client)
            }
            Ok(_) => Err(unexpected()),
            Err(reason) => Err(reason),
        })
    }

    /// Takes over the connection of a process that has ended, with its rights and devices.
    pub(crate) fn adopt(
        path: &Path,
        connection: OwnedFd,
        rights: Rights,
        devices: Vec<Resume>,
    ) -> Self {
        Self::new(path, connection, rights, devices)
    }

    fn new(path: &Path, connection: OwnedFd, rights: Rights, devices: Vec<Resume>) -> Self {
        // Late responses to the process before have other numbers.
        let number = fastlane_core::now() as u32;
        let (connection, memory, retry) = (Some(connection), BTreeMap::new(), Instant::now());
        let (reentries, pci) = (BTreeMap::new(), Vec::new());
        let state = ClientState { connection, number, devices, memory, pci, reentries, retry };
        let changes = AtomicU64::new(0);
        Self { path: path.to_owned(), rights, state: Mutex::new(state), changes }
    }

    /// Returns what the agent lets this process use.
    pub(crate) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Returns a number that changes when an interface in the agent's network namespace may have
    /// changed, as of the last reading of counters.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the properties of an interface in the agent's network namespace: with the index if
    /// there is one, else with the name. `None` if it does not exist.
    ///
    /// # Errors
    /// The reason of the agent, or that it does not run.
    pub(crate) fn interface(
        &self,
        name: &str,
        index: Option<u32>,
    ) -> Result<Option<Interface>, String> {
        let request = Request::Interface { name: name.to_owned(), index };
        match self.request(&request, &[], SHORT_PATIENCE)? {
            (Response::Interface(properties), _) => Ok(properties.map(Interface::from)),
            _ => Err(unexpected()),
        }
    }

    /// Returns what a successor needs to continue with the connection: a duplicate of it and the
    /// devices. `None` if the agent has ended.
    pub(crate) fn handover(&self) -> Option<(OwnedFd, Vec<Resume>)> {
        let state = self.lock();
        let connection = state.connection.as_ref()?.try_clone().ok()?;
        Some((connection, state.devices.clone()))
    }

    /// Stores the memory of a lane's pool, which becomes the UMEM of its sockets.
    pub(crate) fn set_memory(&self, lane: usize, pool: OwnedFd) {
        self.lock().memory.insert(lane, pool);
    }

    /// Returns the token of the device on an interface.
    pub(crate) fn token(&self, interface: u32) -> Option<Token> {
        let state = self.lock();
        let device = state.devices.iter().rev().find(|device| device.words[0] == interface);
        device.map(|device| device.device.clone())
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches a steering program. Returns it with the sockets, which AF_PACKET has at once.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn attach(&self, attach: Attach) -> Result<(Attached, Vec<OwnedFd>), String> {
        let (request, count) = (Request::Attach(attach.clone()), attach.sockets as usize);
        let response = self.request(&request, &[], PATIENCE)?;
        let (Response::Attached(attached), sockets) = response else { return Err(unexpected()) };
        if sockets.len() != count {
            return Err(unexpected());
        }
        let (device, words) = (attached.device.clone(), attached.words);
        self.lock().devices.push(Resume { device, words, attach, is_released: false });
        Ok((attached, sockets))
    }

    /// Binds sockets of a lane with its pool as their memory. Returns the queues of each device
    /// of the request, and the modes and settings that were refused.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn bind_lane(
        &self,
        lane: usize,
        request: BindLane,
    ) -> Result<(Vec<BoundQueues>, Vec<String>), String> {
        let pool = self.lock().memory.get(&lane).map(|pool| pool.try_clone());
        let pool = pool.and_then(Result::ok).ok_or("the memory of a lane is missing")?;
        seal(pool.as_fd())?;
        let counts: Vec<usize> = request.devices.iter().map(|it| it.queues.len()).collect();
        let request = Request::BindLane(request);
        let (response, sockets) = self.request(&request, &[pool.as_fd()], PATIENCE)?;
        let Response::Bound(bound) = response else { return Err(unexpected()) };
        if bound.len() != sockets.len() || bound.len() != counts.iter().sum::<usize>() {
            return Err(unexpected());
        }
        let (mut queues, mut notes) = (Vec::with_capacity(bound.len()), Vec::new());
        for (queue, socket) in bound.into_iter().zip(sockets) {
            notes.extend(queue.notes);
            let description = af_xdp::QueueDescription::from_words(&queue.words);
            queues.push((description.ok_or_else(unexpected)?, socket));
        }
        let mut queues = queues.into_iter();
        let by_device = counts.into_iter().map(|count| queues.by_ref().take(count).collect());
        Ok((by_device.collect(), notes))
    }

    /// Lets this process open the device node of a PCI device's IOMMU group.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn open_vfio(&self, address: &str) -> Result<(), String> {
        self.change(&Request::Vfio { address: address.to_owned() }, &[])?;
        let mut state = self.lock();
        if !state.pci.iter().any(|known| known == address) {
            state.pci.push(address.to_owned());
        }
        Ok(())
    }

    /// Sends a request about a device that has no result.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn change(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), String> {
        match self.request(request, descriptors, PATIENCE)? {
            (Response::Done, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Reads the counters of a device.
    ///
    /// # Errors
    /// The reason of the agent, or that it does not respond.
    pub(crate) fn counts(&self, device: &str) -> Result<[u64; 5], String> {
        let request = Request::Counts { device: device.to_owned() };
        match self.request(&request, &[], SHORT_PATIENCE) {
            Ok((Response::Counts(DeviceCounts { counts, changes }), _)) => {
                self.changes.store(changes, Ordering::Relaxed);
                Ok(counts)
            }
            Ok(_) => Err(unexpected()),
            Err(reason) => {
                // Of an agent that is away nothing is known, and a restarted one may have refused
                // the device because its interface was removed.
                self.changes.fetch_add(1, Ordering::Relaxed);
                Err(reason)
            }
        }
    }

    /// Opens queues by which frames re-enter Linux on the interface of a device. Returns the number
    /// of the re-entry and the queues.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn reenter(
        &self,
        interface: u32,
        queues: usize,
    ) -> Result<(u32, Vec<OwnedFd>), String> {
        let device = self.token(interface).ok_or("the agent has no device on its interface")?;
        let queues = u32::try_from(queues).unwrap_or(u32::MAX);
        match self.request(&Request::Reenter { device, queues }, &[], PATIENCE)? {
            (Response::Reentry(number), files) if files.len() == queues as usize => {
                let queue = files.first().map(|file| file.try_clone());
                let queue = queue.ok_or_else(unexpected)?;
                let queue = queue.map_err(|error| format!("duplicating a descriptor: {error}"))?;
                self.lock().reentries.insert(number, queue);
                Ok((number, files))
            }
            _ => Err(unexpected()),
        }
    }

    /// Lets a re-entry follow its interface, or another one that has taken its place.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn redirect(&self, reentry: u32, interface: u32) -> Result<(), String> {
        let device = self.token(interface).ok_or("the agent has no device on its interface")?;
        let queue = self.lock().reentries.get(&reentry).map(|queue| queue.try_clone());
        let queue = queue.and_then(Result::ok).ok_or("the queue of a re-entry is missing")?;
        self.change(&Request::Redirect { reentry, device }, &[queue.as_fd()])
    }

    /// Creates a TAP device in the network namespace of this process. Returns its queues.
    ///
    /// # Errors
    /// The reason of the agent.
    pub(crate) fn tap(&self, tap: TapRequest) -> Result<Vec<OwnedFd>, String> {
        let queues = tap.queues as usize;
        // The agent acts on this namespace through sockets of it.
        let families = [AddressFamily::INET, AddressFamily::INET6].into_iter().filter(|family| {
            let is_ipv4 = *family == AddressFamily::INET;
            self.rights.is_elsewhere && tap.addresses.iter().any(|it| it.0.is_ipv4() == is_ipv4)
        });
        let socket = |family| {
            let flags = SocketFlags::CLOEXEC;
            rustix::net::socket_with(family, SocketType::DGRAM, flags, None)
        };
        let sockets: Vec<OwnedFd> = families.map(socket).collect::<Result<_, _>>().map_err(
            |error: rustix::io::Errno| format!("a socket for the addresses of a TAP: {error}"),
        )?;
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        match self.request(&Request::Tap(tap), &sockets, PATIENCE)? {
            (Response::Tap, files) if files.len() == queues => Ok(files),
            _ => Err(unexpected()),
        }
    }

    /// Changes what a restarted agent learns about a device.
    pub(crate) fn remember(&self, device: &str, change: impl FnOnce(&mut Resume)) {
        if let Some(known) = self.lock().devices.iter_mut().find(|it| it.device == device) {
            change(known);
        }
    }

    /// Gives a device up.
    pub(crate) fn detach(&self, device: &Token) {
        self.lock().devices.retain(|it| it.device != *device);
        // An agent that has ended detaches it, because nobody takes it over.
        let request = Request::Detach { device: device.clone() };
        let _ = self.request(&request, &[], SHORT_PATIENCE);
    }

    /// Sends a request and receives its response; connects again if the agent was restarted.
    fn request(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<(Response, Vec<OwnedFd>), String> {
        let mut state = self.lock();
        for _ in 0..2 {
            if state.connection.is_none() {
                state.reconnect(&self.path)?;
            }
            match state.converse(request, descriptors, patience)? {
                Some((Response::Refused(reason), _)) => return Err(reason),
                Some(response) => return Ok(response),
                None => state.connection = None,
            }
        }
        Err(format!("the agent at {} ends each connection; see its log", self.path.display()))
    }
}

impl ClientState {
    /// Connects again and takes the devices over.
    fn reconnect(&mut self, path: &Path) -> Result<(), String> {
        let absent = |reason: String| {
            format!("the agent at {} does not run ({reason}); start it", path.display())
        };
        if Instant::now() < self.retry {
            return Err(absent("tried a moment ago".to_owned()));
        }
        self.retry = Instant::now() + RETRY;
        let connection = seqpacket::connect(path).map_err(|error| absent(error.to_string()))?;
        self.connection = Some(connection);
        let resume =
            |device: Resume| (device.attach.driver.interface().to_owned(), Request::Resume(device));
        let open = |address: String| (address.clone(), Request::Vfio { address });
        let devices = self.devices.clone().into_iter().map(resume);
        for (name, request) in devices.chain(self.pci.clone().into_iter().map(open)) {
            match self.converse(&request, &[], PATIENCE)? {
                Some((Response::Done, _)) => {
                    tracing::info!("{name}: the restarted agent has taken over");
                }
                Some((Response::Refused(reason), _)) => {
                    tracing::warn!("{name}: the restarted agent refuses it: {reason}");
                }
                _ => {
                    self.connection = None;
                    return Err(absent("it ended the connection".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Sends a request and receives its response. Returns `None` if the connection has ended.
    fn converse(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<Option<(Response, Vec<OwnedFd>)>, String> {
        let Some(connection) = &self.connection else { return Ok(None) };
        self.number = self.number.wrapping_add(1).max(1);
        let bytes = records::encode(self.number, request);
        let bytes = bytes.ok_or("the request is too long; use fewer steering rules")?;
        match seqpacket::send(connection, &bytes, descriptors, patience) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(silent()),
            // The agent may have said why it ended the connection.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(_) => return Ok(None),
        }
        let end = Instant::now() + patience;
        loop {
            let received = match seqpacket::receive(connection, Some(end)) {
                Ok(Some(received)) => received,
                Err(error) if error.kind() == ErrorKind::TimedOut => return Err(silent()),
                Ok(None) | Err(_) => return Ok(None),
            };
            let Received { bytes, descriptors } = received;
            let (number, response) = records::decode(&bytes)?;
            // 0 is the reason for the end of the connection. Others are late responses to requests
            // that were given up.
            if number == self.number || number == 0 {
                return Ok(Some((response, descriptors)));
            }
        }
    }
}

/// Seals the memory of a pool as the agent wants it.
fn seal(pool: BorrowedFd<'_>) -> Result<(), String> {
    use rustix::fs::SealFlags;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let present = rustix::fs::fcntl_get_seals(pool).map_err(|error| error.to_string())?;
    if present.contains(seals) {
        return Ok(());
    }
    rustix::fs::fcntl_add_seals(pool, seals)
        .map_err(|error| format!("sealing the memory of the pool: {error}"))
}

fn unexpected() -> String {
    "the agent responded with something else; install it and the application from one release"
        .to_owned()
}

fn silent() -> String {
    "the agent does not respond; see whether it runs".to_owned()
}
