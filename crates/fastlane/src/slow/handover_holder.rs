//! Holder of a handover: holds the resources of an application for its successor.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::SlowError;
use crate::handover::{self, Handover, Manifest, Offer};
use crate::session::{
    self, Client, ClientIdentity, HandoverRequest, Kind, Reply, Response, Service, Session,
    read_request,
};

/// Interval of the checks whether the application has ended or a new one has started.
const INTERVAL: Duration = Duration::from_millis(20);
/// Longest wait for an application to end once its successor asks.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Holds the resources of an application for its successor: tables, message rings, TAP devices, and
/// AF_XDP sockets with the frames in them. It serves one application after the other until it is
/// dropped.
///
/// The successor must be the same program of the same release with the same configuration (steering
/// rules may differ). Otherwise it starts with new resources and logs the reason. Only root and the
/// user of this process can take the handover.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// # fn main() -> Result<(), fastlane::slow::SlowError> {
/// // Resources are closed if no successor starts within a minute.
/// let holder = fastlane::slow::HandoverHolder::start("firewall", Duration::from_secs(60))?;
/// println!("{} descriptors", holder.descriptors());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HandoverHolder {
    stop: Arc<AtomicBool>,
    contents: Arc<Mutex<Contents>>,
    thread: Option<JoinHandle<()>>,
    _server: Session,
}

/// Current contents of a holder.
#[derive(Debug, Default)]
struct Contents {
    /// Connection to the application; it ends with the application.
    client: Option<Client>,
    handover: Option<Handover>,
    /// Client that takes the handover.
    successor: Option<Arc<ClientIdentity>>,
}

impl HandoverHolder {
    /// Starts to hold the resources of the application with this name or session path (any argument
    /// with a `/`), for `timeout` after its end, and then those of its successor. The application
    /// need not run yet.
    ///
    /// # Errors
    /// Fails if another process is its holder, or the socket cannot be created.
    pub fn start(application: &str, timeout: Duration) -> Result<Self, SlowError> {
        let session = super::path(application);
        let contents = Arc::<Mutex<Contents>>::default();
        let server =
            session::serve_at(&handover::path(&session), HolderService(Arc::clone(&contents)))?;
        let stop = Arc::<AtomicBool>::default();
        let (theirs, stopped) = (Arc::clone(&contents), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("holder".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                follow(&session, &theirs, timeout, &stopped);
            }
        });
        let thread = Some(thread.map_err(SlowError::Wait)?);
        Ok(Self { stop, contents, thread, _server: server })
    }

    /// Returns the number of descriptors held.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        lock(&self.contents).handover.as_ref().map_or(0, |it| it.offer().descriptors.len())
    }

    /// Returns the process ID of the application while it runs.
    #[must_use]
    pub fn application(&self) -> Option<u32> {
        let held = lock(&self.contents);
        held.client.as_ref().filter(|client| client.is_alive()).map(|it| it.application.pid)
    }
}

impl Drop for HandoverHolder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(held: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for an application, takes its handover, and waits for its end. Closes the previous
/// handover if no application starts within `timeout`.
fn follow(session: &Path, held: &Mutex<Contents>, timeout: Duration, stop: &AtomicBool) {
    let deadline = Instant::now() + timeout;
    let client = loop {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(client) = session::connect(session) {
            break client;
        }
        if Instant::now() >= deadline {
            lock(held).handover = None;
        }
        std::thread::sleep(INTERVAL);
    };
    match request_handover(&client) {
        Ok(handover) => {
            tracing::info!("holding {} descriptors", handover.offer().descriptors.len());
            let (client, handover) = (Some(client), Some(handover));
            *lock(held) = Contents { client, handover, successor: None };
        }
        Err(error) => {
            tracing::warn!("nothing can be held: {error}");
            *lock(held) = Contents { client: Some(client), ..Contents::default() };
        }
    }
    let runs = || lock(held).client.as_ref().is_some_and(Client::is_alive);
    while !stop.load(Ordering::Relaxed) && runs() {
        std::thread::sleep(INTERVAL);
    }
}

/// Asks an application for its whole handover.
fn request_handover(client: &Client) -> Result<Handover, SlowError> {
    let ask = |from| client.ask::<_, Manifest>(Kind::Handover, &HandoverRequest::from(from));
    let (manifest, mut descriptors): (Manifest, Vec<OwnedFd>) = ask(0)?;
    while descriptors.len() < manifest.descriptors {
        let (_, more) = ask(descriptors.len())?;
        if more.is_empty() {
            return Err(SlowError::Ended);
        }
        descriptors.extend(more);
    }
    let descriptors = descriptors.into_iter().map(Arc::new).collect();
    Ok(Handover::of(Offer { manifest, descriptors }))
}

/// Service for successors.
struct HolderService(Arc<Mutex<Contents>>);

impl Service for HolderService {
    fn greeting(&mut self) -> Reply {
        Reply { kind: Kind::Handover, body: b"{}".to_vec(), descriptors: vec![] }
    }

    fn reply(
        &mut self,
        client: &Arc<ClientIdentity>,
        kind: Kind,
        body: &[u8],
    ) -> Result<Response, String> {
        if kind != Kind::Handover {
            return Err("a holder replies only to handover requests".to_owned());
        }
        let HandoverRequest { from, give_up, withdraws_ports } = read_request(body)?;
        if withdraws_ports {
            let held = lock(&self.0);
            let handover = held.handover.as_ref().ok_or("no handover is held")?;
            handover.offer().withdraw_ports();
            return handover.reply(from).map(Response::Reply);
        }
        // The application closes its session socket shortly before its connection to the holder.
        let end = Instant::now() + END_TIMEOUT;
        while lock(&self.0).client.as_ref().is_some_and(Client::is_alive) {
            if Instant::now() >= end {
                return Err("the application still runs; end it first".to_owned());
            }
            std::thread::sleep(INTERVAL);
        }
        let mut held = lock(&self.0);
        let other = held.successor.as_ref().filter(|other| !Arc::ptr_eq(other, client));
        if let Some(other) = other.filter(|other| !other.has_disconnected()) {
            return Err(format!("{other} already takes the handover"));
        }
        held.successor = Some(Arc::clone(client));
        let handover = held.handover.as_ref().ok_or("no handover is held")?;
        if give_up {
            let reply = handover.reply(usize::MAX);
            held.handover = None;
            return reply.map(Response::Reply);
        }
        handover.reply(from).map(Response::Reply)
    }

    fn disconnected(&mut self, _client: &ClientIdentity) {}

    fn sweep(&mut self, _now: Instant) -> Option<Instant> {
        None
    }
}
