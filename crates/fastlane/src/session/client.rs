//! Client side of a session.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fastlane_kernel::peer::Credentials;
use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, LaneCounter};
use rustix::fs::{SealFlags, fcntl_get_seals, fstatfs};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SessionError;
use super::listener;
use super::protocol::{self, Kind, REQUEST_LIMIT, VERSION};
use super::requests::{
    Changes, NewRules, Reload, ReplacedRules, SWITCH_PATIENCE, ShardList, Shards, Switch,
    SwitchReport,
};
use super::transfer::{ReceiveError, Received, has_ended, receive};
use crate::capture::{CaptureGrant, CaptureStream, Request};
use crate::config::raw::Driver;
use crate::config::rules::Rule;
use crate::describe::Application;
use crate::threads;

/// Longest wait for a reply of the application.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to a running application. Reading the counters costs the application nothing.
#[derive(Debug)]
pub struct Client {
    /// Description of the application.
    pub application: Application,
    /// Counters of the application, read-only, with one block for each lane and port of
    /// `application` in the same order.
    pub counters: Counters,
    stream: UnixStream,
    /// Serialises requests. True once a reply is missing: the next message might be that reply.
    in_request: Mutex<bool>,
    path: PathBuf,
    /// User of the application, if it is neither root nor this process's.
    foreign_user: Option<u32>,
    /// Directory of the application in `/proc`, if both processes see it under the same PID.
    process: Option<PathBuf>,
}

impl Client {
    /// Returns the CPU time of a lane's thread in seconds. `None` if the thread does not run or is
    /// in a PID namespace that is not visible here.
    #[must_use]
    pub fn cpu_seconds(&self, lane: usize) -> Option<f64> {
        let thread = self.counters.lane(lane).load(LaneCounter::Thread);
        threads::cpu_seconds(self.process.as_deref()?, thread)
    }

    /// Starts a capture, which ends when the client is dropped. The client cannot send other
    /// requests meanwhile: any byte ends the capture.
    ///
    /// # Errors
    /// Fails if the application refuses or violates the protocol.
    pub fn capture(&self, request: &Request) -> Result<CaptureStream, SessionError> {
        let wrong = |what: &str| self.wrong(what.to_owned());
        let (granted, rings): (CaptureGrant, _) = self.ask(Kind::Capture, request)?;
        if granted.lanes.iter().any(|lane| *lane >= self.application.lanes.len()) {
            return Err(wrong("it captures in a lane that it does not have"));
        }
        let rings = rings.into_iter().next().ok_or_else(|| wrong("it sent no rings"))?;
        CaptureStream::attach(rings, &granted.lanes).map_err(|what| self.wrong(what))
    }

    /// Replaces the steering rules of a port while it runs. Each frame is matched against either
    /// the old or the new list. An empty list claims every frame.
    ///
    /// # Errors
    /// Fails if the application refuses; the old rules then stay in force.
    pub fn replace_rules(
        &self,
        port: &str,
        rules: Vec<Rule>,
    ) -> Result<ReplacedRules, SessionError> {
        let request = NewRules { port: port.to_owned(), rules };
        let (Changes { ports }, _) = self.ask(Kind::Rules, &request)?;
        ports.into_iter().next().ok_or_else(|| self.wrong("it replaced nothing".to_owned()))
    }

    /// Applies the `steer` lists of a configuration. `file` is its name and text, or `None` for the
    /// file with which the application was started. Returns the ports whose rules have changed.
    ///
    /// # Errors
    /// Fails if the configuration is wrong or differs in keys that need a restart; nothing has
    /// changed then.
    pub fn reload(
        &self,
        file: Option<(String, String)>,
    ) -> Result<Vec<ReplacedRules>, SessionError> {
        let (Changes { ports }, _) = self.ask(Kind::Reload, &Reload { file })?;
        Ok(ports)
    }

    /// Returns the lane of each shard, after moving one if `moved` names a shard and a lane. A move
    /// takes a few turns of the lanes, at most about three seconds.
    ///
    /// # Errors
    /// Fails if no port passes packets between lanes, the lane has no application, or a lane makes
    /// no progress; nothing has changed then.
    pub fn shards(&self, moved: Option<(u8, usize)>) -> Result<ShardList, SessionError> {
        Ok(self.ask(Kind::Shards, &Shards { moved })?.0)
    }

    /// Switches a port to another driver while it runs, and returns once the former one is closed.
    /// Sessions, tables, and held packets stay as they are.
    ///
    /// # Errors
    /// Fails if the application refuses; the port then stays on its driver.
    pub fn switch(&self, port: &str, driver: Driver) -> Result<SwitchReport, SessionError> {
        let wrong = |error: io::Error| self.wrong(error.to_string());
        self.stream.set_read_timeout(Some(SWITCH_PATIENCE)).map_err(wrong)?;
        let report = self.ask(Kind::Switch, &Switch { port: port.to_owned(), driver });
        self.stream.set_read_timeout(Some(TIMEOUT)).map_err(wrong)?;
        Ok(report?.0)
    }

    /// Sends a request. Returns the body and the descriptors of the reply.
    pub(crate) fn ask<Q: Serialize, A: DeserializeOwned>(
        &self,
        kind: Kind,
        request: &Q,
    ) -> Result<(A, Vec<OwnedFd>), SessionError> {
        let body = serde_json::to_vec(request).map_err(|error| self.wrong(error.to_string()))?;
        let request = protocol::message(kind, &body, 0).filter(|_| body.len() <= REQUEST_LIMIT);
        let request = request.ok_or_else(|| {
            let message = format!(
                "the request has {} bytes; at most {REQUEST_LIMIT} are accepted",
                body.len()
            );
            SessionError::Refused { path: self.path.clone(), message }
        })?;
        let Received { body, descriptors, .. } = self.converse(kind, &request)?;
        // A holder passes a handover on without mapping it.
        let is_mapped = kind != Kind::Handover;
        let foreign_user = self.foreign_user.filter(|_| is_mapped);
        if let Some(user) = foreign_user.filter(|_| descriptors.iter().any(in_huge_pages)) {
            return Err(SessionError::ForeignMemory { path: self.path.clone(), user });
        }
        let reply = serde_json::from_slice(&body)
            .map_err(|error| self.wrong(format!("its reply cannot be read: {error}")))?;
        Ok((reply, descriptors))
    }

    /// Sends an encoded request and receives the reply.
    pub(super) fn converse(&self, kind: Kind, request: &[u8]) -> Result<Received, SessionError> {
        let mut broken = self.in_request.lock().unwrap_or_else(PoisonError::into_inner);
        if *broken {
            let reason = "the reply to an earlier request is missing; connect again".to_owned();
            return Err(SessionError::Silent { path: self.path.clone(), reason });
        }
        // An application that refuses may close before it has read everything. Its refusal can
        // still be read, so a failed write is ignored.
        let _ = (&self.stream).write_all(request);
        let reply = receive(&self.stream);
        *broken = reply.is_err();
        let reply = reply.map_err(|error| error.into_session(&self.path))?;
        match reply.header.kind {
            Kind::Refusal => Err(refused(&self.path, &reply.body)),
            other if other == kind => Ok(reply),
            _ => Err(self.wrong("its reply is of another kind".to_owned())),
        }
    }

    fn wrong(&self, what: String) -> SessionError {
        SessionError::Protocol { path: self.path.clone(), what }
    }

    /// Returns the path of the session.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true while the application runs. The counters stay readable afterwards.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !has_ended(&self.stream)
    }
}

/// The descriptor becomes readable when the application ends.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Connects to the application whose session is at `path` (see [`path`](super::path)).
///
/// # Errors
/// Fails if no application runs there, or it belongs to another user or another release.
pub fn connect(path: &Path) -> Result<Client, SessionError> {
    connect_as(path, VERSION)
}

pub(super) fn connect_as(path: &Path, version: u32) -> Result<Client, SessionError> {
    let protocol = |what: String| SessionError::Protocol { path: path.to_owned(), what };
    let silent = |reason: String| SessionError::Silent { path: path.to_owned(), reason };
    let failed = |error: io::Error| protocol(error.to_string());
    let mut stream = listener::connect(path).map_err(|error| match error {
        Errno::ACCESS => SessionError::Denied { path: path.to_owned() },
        Errno::AGAIN => silent("too many clients wait to be accepted; try again".to_owned()),
        error => SessionError::Absent { path: path.to_owned(), source: error.into() },
    })?;
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    // An application that refuses may close before it has read the hello. Its refusal can still be
    // read, so a failed write is ignored.
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
        _ => return Err(protocol("it sent no description".to_owned())),
    }
    let application: Application = serde_json::from_slice(&body)
        .map_err(|error| protocol(format!("its description cannot be read: {error}")))?;
    let counters = descriptors.into_iter().next();
    let counters = counters.ok_or_else(|| protocol("it sent no counters".to_owned()))?;
    if !is_sealed(&counters) {
        return Err(protocol("its counters are not sealed against other writers".to_owned()));
    }
    let counters = SharedMemory::attach_read_only(counters).and_then(Counters::attach);
    let counters = counters.map_err(|error| protocol(error.to_string()))?;
    check(&application, &counters).map_err(protocol)?;
    let process = process(&stream, &application);
    let user = Credentials::of(&stream).map_err(failed)?.user;
    let foreign_user = (!is_trusted(user)).then_some(user);
    let (path, in_request) = (path.to_owned(), Mutex::default());
    Ok(Client { application, counters, stream, in_request, path, foreign_user, process })
}

/// Returns true if a user is root or the one of this process.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Connects to the holder of a handover at `path`. `None` if there is none that runs as root or as
/// this user.
pub(crate) fn connect_to_holder(path: &Path, timeout: Duration) -> Option<UnixStream> {
    let stream = listener::connect(path).ok()?;
    if !is_trusted(Credentials::of(&stream).ok()?.user) {
        return None;
    }
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    stream.set_write_timeout(Some(timeout)).ok()?;
    (&stream).write_all(&protocol::hello(VERSION, &program())).ok()?;
    let greeting = receive(&stream).ok()?;
    (greeting.header.version == VERSION && greeting.header.kind == Kind::Handover).then_some(stream)
}

/// Sends a request over a connection after hello and greeting. Returns the body and the descriptors
/// of the reply.
///
/// # Errors
/// The reason of a refusal, or of a missing reply.
pub(crate) fn converse<Q: Serialize>(
    stream: &UnixStream,
    kind: Kind,
    request: &Q,
) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
    let mut stream = stream;
    let body = serde_json::to_vec(request).map_err(|error| error.to_string())?;
    let request = protocol::message(kind, &body, 0).ok_or("the request is too long")?;
    stream.write_all(&request).map_err(|error| error.to_string())?;
    let reply = receive(stream).map_err(|error| match error {
        ReceiveError::Io(error) => explain(&error),
        ReceiveError::Malformed(what) => what,
    })?;
    match reply.header.kind {
        Kind::Refusal => Err(String::from_utf8_lossy(&reply.body).into_owned()),
        other if other == kind => Ok((reply.body, reply.descriptors)),
        _ => Err("its reply is of another kind".to_owned()),
    }
}

/// Returns true if only its creator can write the memory. This also keeps it from punching holes
/// (fcntl(2), "File sealing").
fn is_sealed(memory: &OwnedFd) -> bool {
    let seals = fcntl_get_seals(memory).unwrap_or(SealFlags::empty());
    seals.contains(SealFlags::FUTURE_WRITE)
}

/// Returns true if the descriptor is memory in huge pages. Access to a hole there is a SIGBUS if no
/// huge page is free, while tmpfs fills it with zeros.
fn in_huge_pages(memory: &OwnedFd) -> bool {
    /// `HUGETLBFS_MAGIC` of linux/magic.h.
    const HUGETLBFS: u64 = 0x9584_58f6;
    // An error is not expected; the descriptor is not mapped then either.
    fstatfs(memory).is_ok_and(|system| system.f_type as u64 & 0xffff_ffff == HUGETLBFS)
}

/// Returns the file name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the application's directory in `/proc`, if `SO_PEERCRED` and the description name the
/// same PID.
fn process(stream: &UnixStream, application: &Application) -> Option<PathBuf> {
    let pid = Credentials::of(stream).ok()?.process;
    (pid == application.pid).then(|| PathBuf::from(format!("/proc/{pid}")))
}

impl ReceiveError {
    pub(super) fn into_session(self, path: &Path) -> SessionError {
        let path = path.to_owned();
        match self {
            Self::Io(error) => SessionError::Silent { path, reason: explain(&error) },
            Self::Malformed(what) => SessionError::Protocol { path, what },
        }
    }
}

fn refused(path: &Path, reason: &[u8]) -> SessionError {
    let message = String::from_utf8_lossy(reason).replace(char::is_control, " ");
    SessionError::Refused { path: path.to_owned(), message }
}

/// Checks that the description matches the counters and contains no control characters, since it is
/// shown on terminals.
fn check(application: &Application, counters: &Counters) -> Result<(), String> {
    let facts = (application.lanes.len(), application.ports.len());
    if facts != (counters.lanes(), counters.ports()) {
        return Err("its counters do not match its lanes and ports".to_owned());
    }
    let ports = application.ports.iter().flat_map(|port| {
        let optional = [&port.interface, &port.kernel].into_iter().flatten();
        [&port.name, &port.driver, &port.mode].into_iter().chain(optional)
    });
    let lanes = application.lanes.iter().map(|lane| &lane.idle);
    let mut words = ports.chain(lanes).chain([&application.name, &application.version]);
    match words.find(|word| word.chars().any(char::is_control)) {
        Some(word) => Err(format!("its description contains a control character: {word:?}")),
        None => Ok(()),
    }
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            let seconds = TIMEOUT.as_secs();
            format!("no reply within {seconds} s: the application is starting or busy; try again")
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "the application closed the connection without a reply; read its log, or try again"
                .to_owned()
        }
        _ => error.to_string(),
    }
}
