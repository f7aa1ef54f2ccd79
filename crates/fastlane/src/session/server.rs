//! The application's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use fastlane_table::counters::Counters;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};

use super::SessionError;
use super::host::{Host, Offers};
use super::listener::Listener;
use super::peer::{PATIENCE, Peer, Service};
use super::protocol::LIMIT;
use crate::describe::Application;

/// The session of this application. It ends, and its socket is removed, when this is dropped.
#[derive(Debug)]
pub struct Session {
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// A path that is a session's from now on: a second application of the same name is refused before
/// it touches anything. Who connects meanwhile waits.
#[derive(Debug)]
pub(crate) struct Reservation(Listener);

impl Reservation {
    pub(crate) fn new(path: &Path) -> Result<Self, SessionError> {
        Listener::bind(path).map(Self)
    }
}

impl Session {
    /// Opens the session at `path` (see [`path`](super::path)) and serves it on a thread of its
    /// own. The directory is made if it is missing; a socket that a dead process left there is
    /// replaced.
    ///
    /// # Errors
    /// When the socket cannot be made, or another process listens there.
    pub fn open(
        path: &Path,
        application: &Application,
        counters: &Counters,
    ) -> Result<Self, SessionError> {
        Self::serve(Reservation::new(path)?, application, counters, Offers::default())
    }

    /// As [`open`](Self::open), at a path that was reserved before, of an application that has more
    /// to offer.
    pub(crate) fn serve(
        Reservation(listener): Reservation,
        application: &Application,
        counters: &Counters,
        offers: Offers,
    ) -> Result<Self, SessionError> {
        let path = listener.path.clone();
        let failed = |what| {
            let path = path.clone();
            move |source| SessionError::Start { path, what, source }
        };
        let body = serde_json::to_vec(application).map_err(io::Error::other);
        let body = body.map_err(failed("the application cannot be described"))?;
        if body.len() > LIMIT {
            return Err(SessionError::TooLong { path: path.clone(), limit: LIMIT });
        }
        let counters = read_only(counters.memory().as_fd())
            .map_err(failed("the counters cannot be opened for reading through /proc"))?;
        let host = Host::new(body, counters, offers);
        serve(listener, host).map_err(failed("no event descriptor or no thread"))
    }
}

/// Serves whoever comes to `path`, until the result is dropped.
pub(crate) fn serve_at(
    path: &Path,
    service: impl Service + Send + 'static,
) -> Result<Session, SessionError> {
    serve(Listener::bind(path)?, service).map_err(|source| {
        let what = "no event descriptor or no thread";
        SessionError::Start { path: path.to_owned(), what, source }
    })
}

/// Serves whoever comes, on a thread of its own.
fn serve(listener: Listener, service: impl Service + Send + 'static) -> io::Result<Session> {
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let server = Server { wake: Arc::clone(&wake), listener, service, peers: vec![], due: None };
    let thread = std::thread::Builder::new().name("session".to_owned());
    let thread = thread.spawn(|| server.run())?;
    Ok(Session { wake, thread: Some(thread) })
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The same memory through a descriptor that cannot write. This keeps a reader from writing by
/// mistake; a process of the same user could reopen it, as it could trace this one.
pub(crate) fn read_only(memory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

struct Server<S> {
    wake: Arc<OwnedFd>,
    listener: Listener,
    service: S,
    peers: Vec<Peer>,
    /// When the service has something to do.
    due: Option<Instant>,
}

impl<S: Service> Server<S> {
    fn run(mut self) {
        while let Ok([false, arrived]) = self.wait() {
            let Self { peers, service, .. } = &mut self;
            // What one of them asks for may take a while, for which no other is to blame.
            peers.retain_mut(|peer| peer.advance(service, Instant::now()));
            self.due = self.service.sweep(Instant::now());
            if arrived {
                self.accept(Instant::now());
            }
        }
    }

    /// Waits for something to do: whether the session shall end, and whether somebody connects.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let mut events = vec![
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::new(&self.listener.socket, PollFlags::IN),
        ];
        events.extend(self.peers.iter().map(|peer| PollFd::new(peer.stream(), peer.interest())));
        let deadlines = self.peers.iter().filter_map(Peer::deadline).chain(self.due);
        let timeout = deadlines.min().map(|deadline| {
            // A millisecond later, so that the deadline has passed when the wait ends.
            let left = deadline.saturating_duration_since(Instant::now()) + PATIENCE / 1000;
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok([0, 1].map(|index: usize| !events[index].revents().is_empty()))
    }

    fn accept(&mut self, now: Instant) {
        match self.listener.socket.accept() {
            Ok((stream, _)) => self.peers.extend(Peer::new(stream, self.peers.len(), now)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Out of descriptors, most likely: try again later, but do not spin meanwhile.
            Err(_) => std::thread::sleep(PATIENCE / 100),
        }
    }
}
