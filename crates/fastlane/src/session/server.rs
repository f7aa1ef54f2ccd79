//! Server side of a session: a thread that accepts clients and passes their requests to a service.

use std::io;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastlane_table::Doorbell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::SessionError;
use super::listener::Listener;
use super::peer::{ClientIdentity, MAX_PEERS, Peer, Reply, Service, TIMEOUT, Work};

/// Pause after an error of poll(2), such as ENOMEM.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of threads that work: as many as there may be clients. The work of a client that
/// has left goes on, so clients that come and leave would start any number of threads.
const MAX_WORKERS: usize = MAX_PEERS;

/// Session of this application. Dropping it ends all connections and removes the socket.
#[derive(Debug)]
pub struct Session {
    wake: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

/// Socket that is bound but not served yet. It refuses a second application of the same name before
/// that one touches any interface. Clients that connect meanwhile wait.
#[derive(Debug)]
pub(crate) struct Reservation(Listener);

impl Reservation {
    pub(crate) fn new(path: &Path) -> Result<Self, SessionError> {
        Listener::bind(path).map(Self)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }
}

/// Binds `path` and serves clients with `service` until the result is dropped.
pub(crate) fn serve_at(
    path: &Path,
    service: impl Service + Send + 'static,
) -> Result<Session, SessionError> {
    serve(Reservation::new(path)?, service).map_err(|source| {
        let what = "no eventfd or thread could be created";
        SessionError::Start { path: path.to_owned(), what, source }
    })
}

/// Serves clients on a thread of its own until the result is dropped.
pub(crate) fn serve(
    Reservation(listener): Reservation,
    service: impl Service + Send + 'static,
) -> io::Result<Session> {
    let wake = Arc::new(Doorbell::create()?);
    let workers = Workers::new()?;
    let (peers, due, wake_server) = (vec![], None, Arc::clone(&wake));
    let server = Server { wake: wake_server, listener, service, peers, workers, due };
    let thread = std::thread::Builder::new().name("session".to_owned());
    let thread = thread.spawn(|| server.run())?;
    Ok(Session { wake, thread: Some(thread) })
}

impl Drop for Session {
    fn drop(&mut self) {
        self.wake.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Threads that do the work of requests, each for one request.
struct Workers {
    threads: Vec<JoinHandle<()>>,
    sender: mpsc::Sender<(Arc<ClientIdentity>, Result<Reply, String>)>,
    results: mpsc::Receiver<(Arc<ClientIdentity>, Result<Reply, String>)>,
    /// Rung after each result.
    bell: Arc<Doorbell>,
}

impl Workers {
    fn new() -> io::Result<Self> {
        let (sender, results) = mpsc::channel();
        Ok(Self { threads: vec![], sender, results, bell: Arc::new(Doorbell::create()?) })
    }

    /// Starts the work of a client's request.
    fn start(&mut self, client: Arc<ClientIdentity>, work: Work) {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MAX_WORKERS {
            let reason = format!(
                "the application still works on {MAX_WORKERS} requests, most of clients that have \
                 left; ask again when its lanes run"
            );
            return self.refuse(client, reason);
        }
        let (sender, bell, theirs) =
            (self.sender.clone(), Arc::clone(&self.bell), Arc::clone(&client));
        let thread = std::thread::Builder::new().name("session-work".to_owned());
        let thread = thread.spawn(move || {
            // The receiver is gone once the session has ended.
            let _ = sender.send((theirs, work()));
            bell.ring();
        });
        match thread {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.refuse(client, format!("the application cannot start a thread: {error}"));
            }
        }
    }

    /// Answers a client's request with the reason why it is not worked on.
    fn refuse(&self, client: Arc<ClientIdentity>, reason: String) {
        let _ = self.sender.send((client, Err(reason)));
        self.bell.ring();
    }

    /// Passes the results to their clients. Those of clients that have gone are dropped.
    fn deliver(&self, peers: &mut [Peer]) {
        self.bell.drain();
        for (client, result) in self.results.try_iter() {
            if let Some(peer) = peers.iter_mut().find(|peer| peer.is_of(&client)) {
                peer.finish_work(result);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Server<S> {
    wake: Arc<Doorbell>,
    listener: Listener,
    service: S,
    peers: Vec<Peer>,
    workers: Workers,
    /// Time of the next sweep of the service.
    due: Option<Instant>,
}

impl<S: Service> Server<S> {
    fn run(mut self) {
        let mut is_reported = false;
        loop {
            let arrived = match self.wait() {
                Ok([true, _]) => return,
                Ok([false, arrived]) => arrived,
                Err(error) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::error!(
                            "the session cannot wait for its clients ({error}); it tries again \
                             every {} ms; free memory or descriptors of this process",
                            ERROR_PAUSE.as_millis()
                        );
                    }
                    // The session may end meanwhile; waiting would not say so.
                    if self.wake.drain() {
                        return;
                    }
                    std::thread::sleep(ERROR_PAUSE);
                    continue;
                }
            };
            is_reported = false;
            let Self { peers, service, workers, .. } = &mut self;
            workers.deliver(peers);
            // A request may take long, so each client's deadline is checked against a fresh time.
            peers.retain_mut(|peer| {
                let stays = peer.advance(service, Instant::now());
                if let Some((client, work)) = peer.take_work() {
                    workers.start(client, work);
                }
                stays
            });
            self.due = self.service.sweep(Instant::now());
            if arrived {
                self.accept(Instant::now());
            }
        }
    }

    /// Waits for an event. Returns whether the session ends and whether a client connects.
    fn wait(&self) -> io::Result<[bool; 2]> {
        let mut events = vec![
            PollFd::new(&*self.wake, PollFlags::IN),
            PollFd::new(&self.listener.socket, PollFlags::IN),
            PollFd::new(&*self.workers.bell, PollFlags::IN),
        ];
        events.extend(self.peers.iter().map(|peer| PollFd::new(peer.stream(), peer.interest())));
        let deadlines = self.peers.iter().filter_map(Peer::deadline).chain(self.due);
        let timeout = deadlines.min().map(|deadline| {
            // One millisecond more, so that the deadline has passed when the wait ends.
            let left = deadline.saturating_duration_since(Instant::now()) + TIMEOUT / 1000;
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
            // Most likely EMFILE: try again later without spinning.
            Err(_) => std::thread::sleep(TIMEOUT / 100),
        }
    }
}
