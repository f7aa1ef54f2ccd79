//! The side of whoever attaches.

use std::io::{self, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastlane_table::SharedMemory;
use fastlane_table::counters::{Counters, LaneCounter};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Pid;

use super::SessionError;
use super::listener;
use super::protocol::{self, HEADER, Header, Kind, VERSION};
use crate::capture::{Copies, Granted, Request};
use crate::describe::Application;
use crate::metrics::thread_time;

/// How long the application may be silent before it is given up.
const PATIENCE: Duration = Duration::from_secs(3);

/// An attachment to a running application. Reading its counters costs the application nothing.
#[derive(Debug)]
pub struct Client {
    /// What runs there.
    pub application: Application,
    /// Its counters, which can only be read. There is an entry for each lane and port of
    /// `application`, in the same order.
    pub counters: Counters,
    stream: UnixStream,
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

    /// Asks for copies of packets, which come until the client is dropped. A client asks once: the
    /// application ends the connection when it refuses.
    ///
    /// # Errors
    /// When the application refuses, for the reason it gives, or does not answer as it should.
    pub fn capture(&self, request: &Request) -> Result<Copies, SessionError> {
        let wrong = |what: String| SessionError::Protocol { path: self.path.clone(), what };
        let body = serde_json::to_vec(request).map_err(|error| wrong(error.to_string()))?;
        let request = protocol::message(Kind::Capture, &body);
        let request = request.ok_or_else(|| wrong("the request is too long".to_owned()))?;
        let (body, rings) = self.ask(&request)?;
        let granted: Granted = serde_json::from_slice(&body)
            .map_err(|error| wrong(format!("its answer cannot be read: {error}")))?;
        if granted.lanes.iter().any(|lane| *lane >= self.application.lanes.len()) {
            return Err(wrong("it captures in a lane that it does not have".to_owned()));
        }
        let rings = rings.ok_or_else(|| wrong("it sent no rings".to_owned()))?;
        Copies::attach(rings, &granted.lanes).map_err(wrong)
    }

    /// Sends a request; the body and the descriptor of its answer.
    pub(super) fn ask(&self, request: &[u8]) -> Result<(Vec<u8>, Option<OwnedFd>), SessionError> {
        // An application that refuses may close before it has heard all; its reason can be read.
        let _ = (&self.stream).write_all(request);
        let (header, body, descriptor) =
            receive(&self.stream).map_err(|error| error.into_session(&self.path))?;
        match header.kind {
            Kind::Capture => Ok((body, descriptor)),
            Kind::Refusal => Err(refused(&self.path, &body)),
            Kind::Application => {
                let what = "it said again what it is".to_owned();
                Err(SessionError::Protocol { path: self.path.clone(), what })
            }
        }
    }

    /// Whether the application still runs. The counters stay readable when it does not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.stream, &mut [0_u8; 1], flags) {
            Ok((_, bytes)) => bytes > 0,
            Err(error) => error == Errno::AGAIN || error == Errno::INTR,
        }
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
    let silent = |error: io::Error| protocol(explain(&error));
    let mut stream = listener::connect(path).map_err(|error| match error {
        Errno::ACCESS => SessionError::Denied { path: path.to_owned() },
        Errno::AGAIN => protocol("too many wait for it to answer".to_owned()),
        error => SessionError::Absent { path: path.to_owned(), source: error.into() },
    })?;
    stream.set_nonblocking(false).map_err(silent)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(silent)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(silent)?;
    // An application that refuses may close before it has heard us; its reason can still be read.
    let _ = stream.write_all(&protocol::hello(version));
    let (header, body, counters) = receive(&stream).map_err(|error| error.into_session(path))?;
    if header.version != version {
        let (theirs, ours) = (header.version, version);
        return Err(SessionError::Version { path: path.to_owned(), theirs, ours });
    }
    if header.kind == Kind::Refusal {
        return Err(refused(path, &body));
    }
    let application: Application = serde_json::from_slice(&body)
        .map_err(|error| protocol(format!("its description cannot be read: {error}")))?;
    let counters = counters.ok_or_else(|| protocol("it sent no counters".to_owned()))?;
    let counters = SharedMemory::attach_read_only(counters).and_then(Counters::attach);
    let counters = counters.map_err(|error| protocol(error.to_string()))?;
    check(&application, &counters).map_err(protocol)?;
    let process = process(&stream, &application);
    Ok(Client { application, counters, stream, path: path.to_owned(), process })
}

/// Where the kernel says that the application is, if that is where it says itself.
fn process(stream: &UnixStream, application: &Application) -> Option<PathBuf> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let pid = u32::try_from(Pid::as_raw(Some(peer.pid))).ok()?;
    (pid == application.pid).then(|| PathBuf::from(format!("/proc/{pid}")))
}

/// Why no message came.
enum Missing {
    Silence(io::Error),
    Nonsense(String),
}

impl Missing {
    fn into_session(self, path: &Path) -> SessionError {
        let what = match self {
            Self::Silence(error) => explain(&error),
            Self::Nonsense(what) => what,
        };
        SessionError::Protocol { path: path.to_owned(), what }
    }
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
        Self::Silence(error)
    }
}

fn refused(path: &Path, reason: &[u8]) -> SessionError {
    let message = String::from_utf8_lossy(reason).replace(char::is_control, " ");
    SessionError::Refused { path: path.to_owned(), message }
}

/// Reads a message, and the descriptor that comes with its first byte.
fn receive(stream: &UnixStream) -> Result<(Header, Vec<u8>, Option<OwnedFd>), Missing> {
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    // Descriptors beyond the one there is space for are closed by the kernel (unix(7)).
    let received = loop {
        match recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map_err(io::Error::from)?.bytes,
        }
    };
    if received == 0 {
        return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.flatten().next();
    let mut stream = stream;
    stream.read_exact(&mut header[received..])?;
    let header = Header::read(&header).map_err(Missing::Nonsense)?;
    let mut body = vec![0; header.length];
    stream.read_exact(&mut body)?;
    Ok((header, body, descriptor))
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
            format!("no answer within {} s", PATIENCE.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
            "it closed the connection without an answer".to_owned()
        }
        _ => error.to_string(),
    }
}
