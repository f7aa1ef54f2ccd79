//! The side of whoever attaches.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, LaneCounter};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SessionError;
use super::listener;
use super::protocol::{self, Kind, REQUEST_LIMIT, VERSION};
use super::requests::{Changes, NewRules, Reload, Replaced, ShardList, Shards};
use super::transfer::{Missing, Received, has_ended, receive};
use crate::capture::{Copies, Granted, Request};
use crate::config::rules::Rule;
use crate::describe::Application;
use crate::metrics::thread_time;

/// How long the application may be silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// An attachment to a running application. Reading its counters costs the application nothing.
#[derive(Debug)]
pub struct Client {
    /// What runs there.
    pub application: Application,
    /// Its counters, which can only be read. There is an entry for each lane and port of
    /// `application`, in the same order.
    pub counters: Counters,
    stream: UnixStream,
    /// One question at a time; true when an answer is missing, so that the next one may be that.
    asking: Mutex<bool>,
    path: PathBuf,
    /// Its directory in `/proc`, if this process sees it under the number that it knows itself.
    process: Option<PathBuf>,
}

impl Client {
    /// Seconds of CPU time that the thread of a lane has used; `None` when it has none (yet, or any
    /// more), or runs in a process namespace that cannot be seen from here.
    #[must_use]
    pub fn cpu_seconds(&self, lane: usize) -> Option<f64> {
        let thread = self.counters.lane(lane).load(LaneCounter::Thread);
        thread_time::seconds(self.process.as_deref()?, thread)
    }

    /// Asks for copies of packets, which come until the client is dropped. It can ask for nothing
    /// else from then on: whatever it sends ends the capture.
    ///
    /// # Errors
    /// When the application refuses, for the reason it gives, or does not answer as it should.
    pub fn capture(&self, request: &Request) -> Result<Copies, SessionError> {
        let wrong = |what: &str| self.wrong(what.to_owned());
        let (granted, rings): (Granted, _) = self.ask(Kind::Capture, request)?;
        if granted.lanes.iter().any(|lane| *lane >= self.application.lanes.len()) {
            return Err(wrong("it captures in a lane that it does not have"));
        }
        let rings = rings.into_iter().next().ok_or_else(|| wrong("it sent no rings"))?;
        Copies::attach(rings, &granted.lanes).map_err(|what| self.wrong(what))
    }

    /// Replaces the steering rules of a port while it runs: each frame is judged by the old ones or
    /// by the new ones. No rules: everything is fast.
    ///
    /// # Errors
    /// When the application refuses; then the old ones stay in force.
    pub fn replace_rules(&self, port: &str, rules: Vec<Rule>) -> Result<Replaced, SessionError> {
        let request = NewRules { port: port.to_owned(), rules };
        let (Changes { ports }, _) = self.ask(Kind::Rules, &request)?;
        ports.into_iter().next().ok_or_else(|| self.wrong("it replaced nothing".to_owned()))
    }

    /// Lets the `steer` of each port of a configuration be in force; `file` is its name and its
    /// text, or `None` for the file with which the application was started. Says which ports have
    /// other rules now.
    ///
    /// # Errors
    /// When the application refuses: the configuration is wrong, or differs in keys that can only
    /// change with a restart. Then nothing has changed.
    pub fn reload(&self, file: Option<(String, String)>) -> Result<Vec<Replaced>, SessionError> {
        let (Changes { ports }, _) = self.ask(Kind::Reload, &Reload { file })?;
        Ok(ports)
    }

    /// Where each shard is, after one was moved to a lane if that is wished. A move takes some
    /// turns of the lanes, at most about three seconds.
    ///
    /// # Errors
    /// When packets do not change lanes there, the lane has no application, or some lane does not
    /// get on; then nothing has changed.
    pub fn shards(&self, moved: Option<(u8, usize)>) -> Result<ShardList, SessionError> {
        Ok(self.ask(Kind::Shards, &Shards { moved })?.0)
    }

    /// Asks for something; the body and the descriptors of the answer.
    pub(crate) fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        kind: Kind,
        request: &Q,
    ) -> Result<(A, Vec<OwnedFd>), SessionError> {
        let body = serde_json::to_vec(request).map_err(|error| self.wrong(error.to_string()))?;
        let request = protocol::message(kind, &body, 0).filter(|_| body.len() <= REQUEST_LIMIT);
        let request = request.ok_or_else(|| {
            let message = format!("{} bytes are asked, {REQUEST_LIMIT} are taken", body.len());
            SessionError::Refused { path: self.path.clone(), message }
        })?;
        let Received { body, descriptors, .. } = self.converse(kind, &request)?;
        let answer = serde_json::from_slice(&body)
            .map_err(|error| self.wrong(format!("its answer cannot be read: {error}")))?;
        Ok((answer, descriptors))
    }

    /// Sends a request as it is.
    pub(super) fn converse(&self, kind: Kind, request: &[u8]) -> Result<Received, SessionError> {
        let mut broken = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if *broken {
            let reason = "an earlier answer is missing; attach anew".to_owned();
            return Err(SessionError::Silent { path: self.path.clone(), reason });
        }
        // An application that refuses may close before it has heard all; its reason can be read.
        let _ = (&self.stream).write_all(request);
        let answer = receive(&self.stream);
        *broken = answer.is_err();
        let answer = answer.map_err(|error| error.into_session(&self.path))?;
        match answer.header.kind {
            Kind::Refusal => Err(refused(&self.path, &answer.body)),
            other if other == kind => Ok(answer),
            _ => Err(self.wrong("it answered something else".to_owned())),
        }
    }

    fn wrong(&self, what: String) -> SessionError {
        SessionError::Protocol { path: self.path.clone(), what }
    }

    /// The path of the session.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the application still runs. The counters stay readable when it does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !has_ended(&self.stream)
    }
}

/// Readable when the application has ended.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Attaches to the application whose session is at `path` (see [`path`](super::path)).
///
/// # Errors
/// When no application runs there, it belongs to another user, or it is of another release.
pub fn connect(path: &Path) -> Result<Client, SessionError> {
    connect_as(path, VERSION)
}

pub(super) fn connect_as(path: &Path, version: u32) -> Result<Client, SessionError> {
    let protocol = |what: String| SessionError::Protocol { path: path.to_owned(), what };
    let silent = |reason: String| SessionError::Silent { path: path.to_owned(), reason };
    let failed = |error: io::Error| protocol(error.to_string());
    let mut stream = listener::connect(path).map_err(|error| match error {
        Errno::ACCESS => SessionError::Denied { path: path.to_owned() },
        Errno::AGAIN => silent("too many wait for it to answer; try again".to_owned()),
        error => SessionError::Absent { path: path.to_owned(), source: error.into() },
    })?;
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    // An application that refuses may close before it has heard us; its reason can still be read.
    let _ = stream.write_all(&protocol::hello(version, &program()));
    let Received { header, body, descriptors } =
        receive(&stream).map_err(|error| error.into_session(path))?;
    if header.version != version {
        let (theirs, ours) = (header.version, version);
        return Err(SessionError::Version { path: path.to_owned(), theirs, ours });
    }
    match header.kind {
        Kind::Application => {}
        Kind::Refusal => return Err(refused(path, &body)),
        _ => return Err(protocol("it did not say what it is".to_owned())),
    }
    let application: Application = serde_json::from_slice(&body)
        .map_err(|error| protocol(format!("its description cannot be read: {error}")))?;
    let counters = descriptors.into_iter().next();
    let counters = counters.ok_or_else(|| protocol("it sent no counters".to_owned()))?;
    let counters = SharedMemory::attach_read_only(counters).and_then(Counters::attach);
    let counters = counters.map_err(|error| protocol(error.to_string()))?;
    check(&application, &counters).map_err(protocol)?;
    let process = process(&stream, &application);
    let (path, asking) = (path.to_owned(), Mutex::default());
    Ok(Client { application, counters, stream, asking, path, process })
}

/// Connects to the keeper at `path`; `None` when there is none of this user or root's.
pub(crate) fn connect_to_keeper(path: &Path, patience: Duration) -> Option<UnixStream> {
    let stream = listener::connect(path).ok()?;
    let keeper = rustix::net::sockopt::socket_peercred(&stream).ok()?.uid;
    if !keeper.is_root() && keeper != rustix::process::geteuid() {
        return None;
    }
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(patience)).ok()?;
    stream.set_write_timeout(Some(patience)).ok()?;
    (&stream).write_all(&protocol::hello(VERSION, &program())).ok()?;
    let welcome = receive(&stream).ok()?;
    (welcome.header.version == VERSION && welcome.header.kind == Kind::Keep).then_some(stream)
}

/// Sends a request over a connection on which the greetings were said; the answer, or the reason of
/// a refusal.
pub(crate) fn converse<Q: Serialize>(
    stream: &UnixStream,
    kind: Kind,
    request: &Q,
) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
    let mut stream = stream;
    let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let request = protocol::message(kind, &body, 0).ok_or("the request is too long")?;
    stream.write_all(&request).map_err(|error| error.to_string())?;
    let answer = receive(stream).map_err(|missing| match missing {
        Missing::Silence(error) => explain(&error),
        Missing::Nonsense(what) => what,
    })?;
    match answer.header.kind {
        Kind::Refusal => Err(String::from_utf8_lossy(&answer.body).into_owned()),
        other if other == kind => Ok((answer.body, answer.descriptors)),
        _ => Err("it answered something else".to_owned()),
    }
}

/// The name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Where the kernel says that the application is, if that is where it says itself.
fn process(stream: &UnixStream, application: &Application) -> Option<PathBuf> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let pid = u32::try_from(Pid::as_raw(Some(peer.pid))).ok()?;
    (pid == application.pid).then(|| PathBuf::from(format!("/proc/{pid}")))
}

impl Missing {
    pub(super) fn into_session(self, path: &Path) -> SessionError {
        let path = path.to_owned();
        match self {
            Self::Silence(error) => SessionError::Silent { path, reason: explain(&error) },
            Self::Nonsense(what) => SessionError::Protocol { path, what },
        }
    }
}

fn refused(path: &Path, reason: &[u8]) -> SessionError {
    let message = String::from_utf8_lossy(reason).replace(char::is_control, " ");
    SessionError::Refused { path: path.to_owned(), message }
}

/// The facts must fit the counters, and be fit to be shown on a terminal.
fn check(application: &Application, counters: &Counters) -> Result<(), String> {
    let facts = (application.lanes.len(), application.ports.len());
    if facts != (counters.lanes(), counters.ports()) {
        return Err("its counters are not those of its lanes and ports".to_owned());
    }
    let ports = application.ports.iter().flat_map(|port| {
        let optional = [&port.interface, &port.kernel].into_iter().flatten();
        [&port.name, &port.driver, &port.mode].into_iter().chain(optional)
    });
    let lanes = application.lanes.iter().map(|lane| &lane.idle);
    let mut words = ports.chain(lanes).chain([&application.name, &application.version]);
    match words.find(|word| word.chars().any(char::is_control)) {
        Some(word) => Err(format!("a control character in {word:?}")),
        None => Ok(()),
    }
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = PATIENCE.as_secs();
            format!("no answer within {seconds} s: it is starting, or busy; try again")
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "it closed the connection without an answer; see what it says, or try again".to_owned()
        }
        _ => error.to_string(),
    }
}
