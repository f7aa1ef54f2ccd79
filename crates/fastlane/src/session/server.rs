//! The application's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_table::counters::Counters;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};

use super::SessionError;
use super::listener::Listener;
use super::peer::{Host, PATIENCE, Peer};
use super::protocol::{self, Kind, LIMIT};
use crate::capture::Captures;
use crate::describe::Application;

/// How often it is looked whether the lanes have let go of a capture that has ended.
const SWEEP: Duration = Duration::from_millis(50);

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
        Self::serve(Reservation::new(path)?, application, counters, Captures::default())
    }

    /// As [`open`](Self::open), at a path that was reserved before, of an application whose packets
    /// can be captured.
    pub(crate) fn serve(
        Reservation(listener): Reservation,
        application: &Application,
        counters: &Counters,
        captures: Captures,
    ) -> Result<Self, SessionError> {
        let path = listener.path.clone();
        let failed = |what| {
            let path = path.clone();
            move |source| SessionError::Start { path, what, source }
        };
        let body = serde_json::to_vec(application).map_err(io::Error::other);
        let body = body.map_err(failed("the application cannot be described"))?;
        let welcome = protocol::message(Kind::Application, &body)
            .ok_or_else(|| SessionError::TooLong { path: path.clone(), limit: LIMIT })?;
        let counters = read_only(counters.memory().as_fd())
            .map_err(failed("the counters cannot be opened for reading through /proc"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
        let wake = Arc::new(wake.map_err(failed("no event descriptor"))?);
        let host = Host { welcome, counters: Arc::new(counters), captures };
        let server = Server { wake: Arc::clone(&wake), listener, host, peers: vec![] };
        let thread = std::thread::Builder::new().name("session".to_owned());
        let thread = thread.spawn(|| server.run()).map_err(failed("no thread"))?;
        Ok(Self { wake, thread: Some(thread) })
    }
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
fn read_only(memory: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

struct Server {
    wake: Arc<OwnedFd>,
    listener: Listener,
    host: Host,
    peers: Vec<Peer>,
}

impl Server {
    fn run(mut self) {
        while let Ok([false, arrived]) = self.wait() {
            let Self { peers, host, .. } = &mut self;
            let now = Instant::now();
            peers.retain_mut(|peer| peer.advance(host, now));
            host.captures.sweep();
            if arrived {
                self.accept(now);
            }
        }
        self.host.captures.stop();
    }

    /// Waits for something to do: whether the session shall end, and whether somebody connects.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let mut events = vec![
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::new(&self.listener.socket, PollFlags::IN),
        ];
        events.extend(self.peers.iter().map(|peer| PollFd::new(peer.stream(), peer.interest())));
        let sweep = self.host.captures.are_held().then(|| Instant::now() + SWEEP);
        let deadlines = self.peers.iter().filter_map(Peer::deadline).chain(sweep);
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
