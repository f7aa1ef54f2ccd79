//! The application's side.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_table::counters::Counters;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::SessionError;
use super::listener::Listener;
use super::protocol::{self, HELLO, Kind, LIMIT};
use crate::describe::Application;

/// The most clients at once; one more is refused.
const MOST_PEERS: usize = 32;
/// How long a client may take to say hello and to take its answer.
const PATIENCE: Duration = Duration::from_secs(1);

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
        Self::serve(Reservation::new(path)?, application, counters)
    }

    /// As [`open`](Self::open), at a path that was reserved before.
    pub(crate) fn serve(
        Reservation(listener): Reservation,
        application: &Application,
        counters: &Counters,
    ) -> Result<Self, SessionError> {
        let path = listener.path.clone();
        let failed = |what| {
            let path = path.clone();
            move |source| SessionError::Start { path, what, source }
        };
        let body = serde_json::to_vec(application).map_err(io::Error::other);
        let body = body.map_err(failed("the application cannot be described"))?;
        let welcome = protocol::answer(Kind::Application, &body)
            .ok_or_else(|| SessionError::TooLong { path: path.clone(), limit: LIMIT })?;
        let counters = read_only(counters.memory().as_fd())
            .map_err(failed("the counters cannot be opened for reading through /proc"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from);
        let wake = Arc::new(wake.map_err(failed("no event descriptor"))?);
        let server = Server { wake: Arc::clone(&wake), listener, welcome, counters, peers: vec![] };
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
    welcome: Vec<u8>,
    counters: OwnedFd,
    peers: Vec<Peer>,
}

impl Server {
    fn run(mut self) {
        while let Ok([false, arrived]) = self.wait() {
            let Self { peers, welcome, counters, .. } = &mut self;
            let now = Instant::now();
            peers.retain_mut(|peer| peer.advance(welcome, counters.as_fd(), now));
            if arrived {
                self.accept(now);
            }
        }
    }

    /// Waits for something to do: whether the session shall end, and whether somebody connects.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let mut events = vec![
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::new(&self.listener.socket, PollFlags::IN),
        ];
        events.extend(self.peers.iter().map(|peer| PollFd::new(&peer.stream, peer.interest())));
        let next = self.peers.iter().filter_map(|peer| peer.deadline).min();
        let timeout = next.map(|deadline| {
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

/// A client: it says hello, takes its answer, and then is silent until it goes.
struct Peer {
    stream: UnixStream,
    hello: [u8; HELLO],
    received: usize,
    answer: Vec<u8>,
    sent: usize,
    admitted: bool,
    /// When it must have done both; `None` once it has.
    deadline: Option<Instant>,
}

impl Peer {
    fn new(stream: UnixStream, others: usize, now: Instant) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let mut peer = Self {
            stream,
            hello: [0; HELLO],
            received: 0,
            answer: vec![],
            sent: 0,
            admitted: false,
            deadline: Some(now + PATIENCE),
        };
        let user = rustix::net::sockopt::socket_peercred(&peer.stream).ok()?.uid;
        let ours = rustix::process::geteuid();
        if !may_attach(user.as_raw(), ours.as_raw()) {
            let ours = ours.as_raw();
            peer.refuse(&format!("only user {ours} and root may attach; run as one of them"));
        } else if others >= MOST_PEERS {
            peer.refuse("too many clients are attached; end one of them first");
        } else {
            return Some(peer);
        }
        // Whoever is not let in costs one answer and no place.
        let _ = rustix::net::send(&peer.stream, &peer.answer, SendFlags::NOSIGNAL);
        None
    }

    fn refuse(&mut self, reason: &str) {
        self.answer = protocol::answer(Kind::Refusal, reason.as_bytes()).unwrap_or_default();
    }

    fn interest(&self) -> PollFlags {
        if self.sent < self.answer.len() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Goes on with a client as far as it lets us; false when it is done with.
    fn advance(&mut self, welcome: &[u8], counters: BorrowedFd<'_>, now: Instant) -> bool {
        match self.converse(welcome, counters) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.deadline.is_none_or(|deadline| now < deadline)
            }
            Err(_) => false,
        }
    }

    /// The whole conversation; it is left with `WouldBlock` wherever the client must act first.
    fn converse(&mut self, welcome: &[u8], counters: BorrowedFd<'_>) -> io::Result<()> {
        while self.received < HELLO {
            match self.stream.read(&mut self.hello[self.received..])? {
                0 => return Ok(()),
                count => self.received += count,
            }
        }
        if self.answer.is_empty() {
            match protocol::refusal(&self.hello) {
                Some(reason) => self.refuse(&reason),
                None => {
                    self.answer = welcome.to_vec();
                    self.admitted = true;
                }
            }
        }
        while self.sent < self.answer.len() {
            self.sent += self.send(counters)?;
        }
        if self.admitted {
            self.deadline = None;
            // A client has nothing more to say: a byte ends it as much as its end does.
            let _ = self.stream.read(&mut [0])?;
        }
        Ok(())
    }

    fn send(&self, counters: BorrowedFd<'_>) -> io::Result<usize> {
        let descriptors = [counters];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if self.admitted && self.sent == 0 {
            let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
            debug_assert!(fits, "the space was made for one descriptor");
        }
        let rest = [IoSlice::new(&self.answer[self.sent..])];
        Ok(rustix::net::sendmsg(&self.stream, &rest, &mut control, SendFlags::NOSIGNAL)?)
    }
}

/// Whether `user` may see what an application of the user `ours` does.
fn may_attach(user: u32, ours: u32) -> bool {
    user == ours || user == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_and_root_may_attach() {
        assert!(may_attach(1000, 1000) && may_attach(0, 1000) && may_attach(0, 0));
        assert!(!may_attach(1001, 1000) && !may_attach(1000, 0));
    }
}
