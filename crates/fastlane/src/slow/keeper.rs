//! Keeping what a successor of the application needs.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::SlowError;
use crate::kept::{self, Description, Keepsakes};
use crate::session::{self, Answer, Asker, Client, Keep, Kind, Service, Session, read_request};

/// How often it is looked whether the application has ended, or a new one has begun.
const STEP: Duration = Duration::from_millis(20);
/// How long an application whose successor asks already may take to end.
const ENDING: Duration = Duration::from_secs(1);

/// Keeps what an application has for its successor, which finds it as it is: its tables, its
/// messages, its TAP devices, and its AF_XDP sockets with the frames in them. One application after
/// the other, until this is dropped.
///
/// The successor must be the same program of the same release with the same configuration (steering
/// rules may differ); else it begins anew and says why. Only the user of this process, and root,
/// get what is kept.
#[derive(Debug)]
pub struct Keeper {
    stop: Arc<AtomicBool>,
    held: Arc<Mutex<Held>>,
    thread: Option<JoinHandle<()>>,
    _server: Session,
}

/// What is kept now.
#[derive(Debug, Default)]
struct Held {
    /// Of whom; its end is the end of the application.
    client: Option<Client>,
    keepsakes: Option<Keepsakes>,
    /// Who takes it over.
    successor: Option<Arc<Asker>>,
}

impl Keeper {
    /// Keeps what the application of this name or session path (anything with a `/`) has, for so
    /// long after its end; then what its successor has. The application need not run yet.
    ///
    /// # Errors
    /// When somebody else keeps it, or there is no place for the socket.
    pub fn start(application: &str, hold: Duration) -> Result<Self, SlowError> {
        let session = super::path(application);
        let held = Arc::<Mutex<Held>>::default();
        let server = session::serve_at(&kept::path(&session), Waiting(Arc::clone(&held)))?;
        let stop = Arc::<AtomicBool>::default();
        let (theirs, stopped) = (Arc::clone(&held), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("keeper".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                follow(&session, &theirs, hold, &stopped);
            }
        });
        let thread = Some(thread.map_err(SlowError::Wait)?);
        Ok(Self { stop, held, thread, _server: server })
    }

    /// How many descriptors are kept now.
    #[must_use]
    pub fn kept(&self) -> usize {
        lock(&self.held).keepsakes.as_ref().map_or(0, |it| it.descriptors.len())
    }

    /// The process of the application of which something is kept, while it runs.
    #[must_use]
    pub fn attached(&self) -> Option<u32> {
        let held = lock(&self.held);
        held.client.as_ref().filter(|client| client.is_alive()).map(|it| it.application.pid)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for an application, keeps what it has, and waits for its end; after `hold` that is given
/// up, unless another has begun.
fn follow(session: &Path, held: &Mutex<Held>, hold: Duration, stop: &AtomicBool) {
    let given_up = Instant::now() + hold;
    let client = loop {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        if let Ok(client) = session::connect(session) {
            break client;
        }
        if Instant::now() >= given_up {
            lock(held).keepsakes = None;
        }
        std::thread::sleep(STEP);
    };
    match all_of(&client) {
        Ok(keepsakes) => {
            tracing::info!("keeping {} descriptors", keepsakes.descriptors.len());
            let (client, keepsakes) = (Some(client), Some(keepsakes));
            *lock(held) = Held { client, keepsakes, successor: None };
        }
        Err(error) => {
            tracing::warn!("nothing is kept: {error}");
            *lock(held) = Held { client: Some(client), ..Held::default() };
        }
    }
    let runs = || lock(held).client.as_ref().is_some_and(Client::is_alive);
    while !stop.load(Ordering::Relaxed) && runs() {
        std::thread::sleep(STEP);
    }
}

/// All that an application has to be kept.
fn all_of(client: &Client) -> Result<Keepsakes, SlowError> {
    let ask = |from| client.ask::<_, Description>(Kind::Keep, &Keep { from, give_up: false });
    let (description, mut descriptors): (Description, Vec<OwnedFd>) = ask(0)?;
    while descriptors.len() < description.descriptors {
        let (_, more) = ask(descriptors.len())?;
        if more.is_empty() {
            return Err(SlowError::Ended);
        }
        descriptors.extend(more);
    }
    let descriptors = descriptors.into_iter().map(Arc::new).collect();
    Ok(Keepsakes { description, descriptors, is_kept: true })
}

/// The side that successors ask.
struct Waiting(Arc<Mutex<Held>>);

impl Service for Waiting {
    fn welcome(&mut self) -> Answer {
        Answer { kind: Kind::Keep, body: b"{}".to_vec(), descriptors: vec![] }
    }

    fn answer(&mut self, asker: &Arc<Asker>, kind: Kind, body: &[u8]) -> Result<Answer, String> {
        if kind != Kind::Keep {
            return Err("a keeper only gives what it keeps".to_owned());
        }
        let Keep { from, give_up } = read_request(body)?;
        // Its socket may have closed a moment before its connection to us.
        let end = Instant::now() + ENDING;
        while lock(&self.0).client.as_ref().is_some_and(Client::is_alive) {
            if Instant::now() >= end {
                return Err("the application still runs".to_owned());
            }
            std::thread::sleep(STEP);
        }
        let mut held = lock(&self.0);
        let other = held.successor.as_ref().filter(|other| !Arc::ptr_eq(other, asker));
        if let Some(other) = other.filter(|other| !other.has_gone()) {
            return Err(format!("{other} takes it over"));
        }
        held.successor = Some(Arc::clone(asker));
        let keepsakes = held.keepsakes.as_ref().ok_or("nothing is kept")?;
        if give_up {
            let answer = keepsakes.answer(usize::MAX);
            held.keepsakes = None;
            return answer;
        }
        keepsakes.answer(from)
    }

    fn gone(&mut self, _asker: &Asker) {}

    fn sweep(&mut self, _now: Instant) -> Option<Instant> {
        None
    }
}
