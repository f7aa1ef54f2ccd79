//! Server side of one client connection: a state machine over a non-blocking stream.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastlane_kernel::peer::Credentials;
use rustix::event::PollFlags;
use rustix::net::SendFlags;

use super::protocol::{self, DESCRIPTORS, HEADER, HELLO, Header, Kind, REQUEST_LIMIT, VERSION};
use super::transfer;

/// Maximum number of clients; further ones are refused.
pub(super) const MAX_PEERS: usize = 32;
/// Time that a client has to send its hello or a whole request and to read the reply.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);

/// Service that replies to clients.
pub(crate) trait Service {
    /// Returns the first message to a client.
    fn greeting(&mut self) -> Reply;

    /// Handles a request. It runs in the session's thread, which serves all clients, so what waits
    /// for lanes or for the kernel is returned as [`Response::Work`].
    ///
    /// # Errors
    /// The reason of the refusal, which the client receives.
    fn reply(
        &mut self,
        client: &Arc<ClientIdentity>,
        kind: Kind,
        body: &[u8],
    ) -> Result<Response, String>;

    /// Releases everything that a client held. Called once when it disconnects.
    fn disconnected(&mut self, client: &ClientIdentity);

    /// Performs periodic work. Returns the time of the next call, if one is needed.
    fn sweep(&mut self, now: Instant) -> Option<Instant>;
}

/// Response to a request.
pub(crate) enum Response {
    /// The reply.
    Reply(Reply),
    /// Work that waits, and then returns the reply.
    Work(Work),
}

/// Work of a request that runs in a thread of its own.
pub(crate) type Work = Box<dyn FnOnce() -> Result<Reply, String> + Send>;

/// Reply to a request, with descriptors.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
    /// At most [`DESCRIPTORS`]; more are refused.
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

impl Reply {
    /// Creates a reply without descriptors.
    pub(super) fn new(kind: Kind, body: Vec<u8>) -> Self {
        Self { kind, body, descriptors: vec![] }
    }
}

/// Identity of a connected client.
#[derive(Debug)]
pub(crate) struct ClientIdentity {
    stream: UnixStream,
    /// Process ID from `SO_PEERCRED`; 0 if it is not visible in this PID namespace.
    process: u32,
    /// Program name from the hello; not verified.
    program: String,
}

impl ClientIdentity {
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Returns true if the client has closed its end. A killed process loses its memory mappings
    /// before its descriptors, so it no longer writes to shared memory when this is true.
    pub(crate) fn has_disconnected(&self) -> bool {
        transfer::has_ended(&self.stream)
    }
}

impl std::fmt::Display for ClientIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.process, self.program.as_str()) {
            (0, "") => write!(formatter, "another process"),
            (0, program) => write!(formatter, "{program}"),
            (process, "") => write!(formatter, "process {process}"),
            (process, program) => write!(formatter, "process {process} ({program})"),
        }
    }
}

/// Connection of one client.
pub(super) struct Peer {
    client: Arc<ClientIdentity>,
    stage: Stage,
    /// Received part of the current message.
    received: Vec<u8>,
    /// Reply that is being sent.
    reply: Vec<u8>,
    /// Number of bytes of `reply` that were sent.
    sent: usize,
    /// Sent with the first byte of the reply.
    descriptors: Vec<Arc<OwnedFd>>,
    /// Work of the current request that was not started yet.
    work: Option<Work>,
    /// Time by which the current exchange must end; `None` between requests.
    deadline: Option<Instant>,
}

/// Next input expected from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Hello,
    /// A name of this length.
    Name(usize),
    /// The header of a request.
    Request,
    /// The body of a request of this kind and length.
    Body(Kind, usize),
    /// Nothing: work is done for the client's request.
    Working,
    /// Nothing: any byte, like the end of the stream, ends the capture.
    Captures,
    /// Nothing: the connection ends once the refusal is sent.
    Refused,
}

impl Peer {
    /// Accepts a client, or refuses it and returns `None`.
    pub(super) fn new(stream: UnixStream, others: usize, now: Instant) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let Credentials { process, user, .. } = Credentials::of(&stream).ok()?;
        let mut peer = Self {
            client: Arc::new(ClientIdentity { stream, process, program: String::new() }),
            stage: Stage::Hello,
            received: vec![],
            reply: vec![],
            sent: 0,
            descriptors: vec![],
            work: None,
            deadline: Some(now + TIMEOUT),
        };
        let ours = rustix::process::geteuid().as_raw();
        if !may_attach(user, ours) {
            peer.end(&format!("only user {ours} and root may connect; run as one of them"));
        } else if others >= MAX_PEERS {
            peer.end("too many clients are connected; end one of them first");
        } else {
            return Some(peer);
        }
        // A refused client gets one message and takes no slot.
        let _ = rustix::net::send(&peer.client.stream, &peer.reply, SendFlags::NOSIGNAL);
        None
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.client.stream
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn interest(&self) -> PollFlags {
        match self.stage {
            _ if self.sent < self.reply.len() => PollFlags::OUT,
            Stage::Working => PollFlags::RDHUP,
            _ => PollFlags::IN,
        }
    }

    /// Returns the work of the client's request, once.
    pub(super) fn take_work(&mut self) -> Option<(Arc<ClientIdentity>, Work)> {
        Some((Arc::clone(&self.client), self.work.take()?))
    }

    /// Returns true if this is the connection of `client`.
    pub(super) fn is_of(&self, client: &Arc<ClientIdentity>) -> bool {
        Arc::ptr_eq(&self.client, client)
    }

    /// Ends the work for the client's request with a reply, or the reason of a refusal.
    pub(super) fn finish_work(&mut self, result: Result<Reply, String>) {
        let refusal = |reason: String| Reply::new(Kind::Refusal, reason.into_bytes());
        self.send_reply(result.unwrap_or_else(refusal), Stage::Request);
    }

    /// Continues the exchange as far as the stream allows. Returns false if the connection ends.
    pub(super) fn advance(&mut self, service: &mut impl Service, now: Instant) -> bool {
        let stays = match self.converse(service, now) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.deadline.is_none_or(|deadline| now < deadline)
            }
            Err(_) => false,
        };
        if !stays {
            service.disconnected(&self.client);
        }
        stays
    }

    /// Runs the exchange up to the reply to one request, so that clients take turns. Returns
    /// `WouldBlock` where the client must act first.
    fn converse(&mut self, service: &mut impl Service, now: Instant) -> io::Result<()> {
        let mut replied = false;
        loop {
            while self.sent < self.reply.len() {
                self.sent += self.send()?;
                self.descriptors.clear();
            }
            match self.stage {
                Stage::Refused => return Ok(()),
                Stage::Working if self.client.has_disconnected() => return Ok(()),
                Stage::Working => {
                    self.deadline = None;
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Stage::Captures => {
                    self.deadline = None;
                    let _ = (&self.client.stream).read(&mut [0])?;
                    return Ok(());
                }
                Stage::Request if self.received.is_empty() => self.deadline = None,
                _ => {}
            }
            if replied {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !self.read(now)? {
                return Ok(());
            }
            replied = matches!(self.stage, Stage::Body(..));
            self.process(service);
        }
    }

    /// Reads the expected input. Returns false at the end of the stream.
    fn read(&mut self, now: Instant) -> io::Result<bool> {
        let expected = match self.stage {
            Stage::Hello => HELLO,
            Stage::Name(length) | Stage::Body(_, length) => length,
            _ => HEADER,
        };
        let mut part = [0; 4096];
        while self.received.len() < expected {
            let room = part.len().min(expected - self.received.len());
            // The kernel closes descriptors that are not received (unix(7)).
            match (&self.client.stream).read(&mut part[..room])? {
                0 => return Ok(false),
                count => self.received.extend_from_slice(&part[..count]),
            }
            self.deadline.get_or_insert(now + TIMEOUT);
        }
        Ok(true)
    }

    /// Handles a complete input.
    fn process(&mut self, service: &mut impl Service) {
        let received = std::mem::take(&mut self.received);
        match self.stage {
            Stage::Hello => match received.first_chunk().map(protocol::check_hello) {
                Some(Ok(length)) => self.stage = Stage::Name(length),
                Some(Err(reason)) => self.end(&reason),
                None => self.end("no hello"), // unreachable: a whole hello was received
            },
            Stage::Name(_) => {
                self.set_program(&received);
                self.send_reply(service.greeting(), Stage::Request);
            }
            Stage::Request => match received.first_chunk().map(request) {
                Some(Ok((kind, length))) => self.stage = Stage::Body(kind, length),
                Some(Err(reason)) => self.end(&reason),
                None => self.end("no request"), // unreachable: a whole header was received
            },
            Stage::Body(kind, _) => match service.reply(&self.client, kind, &received) {
                Ok(Response::Reply(reply)) if kind == Kind::Capture => {
                    self.send_reply(reply, Stage::Captures);
                }
                Ok(Response::Reply(reply)) => self.send_reply(reply, Stage::Request),
                Ok(Response::Work(work)) => (self.work, self.stage) = (Some(work), Stage::Working),
                Err(reason) => self.finish_work(Err(reason)),
            },
            Stage::Working | Stage::Captures | Stage::Refused => {}
        }
    }

    /// Stores the program name of the client.
    fn set_program(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name).replace(char::is_control, " ");
        if let Some(client) = Arc::get_mut(&mut self.client) {
            client.program = name;
        }
    }

    /// Sends a refusal, after which the connection ends.
    fn end(&mut self, reason: &str) {
        self.send_reply(Reply::new(Kind::Refusal, reason.as_bytes().to_vec()), Stage::Refused);
    }

    fn send_reply(&mut self, reply: Reply, next: Stage) {
        let Reply { kind, body, descriptors } = reply;
        let count = descriptors.len().min(DESCRIPTORS + 1);
        (self.sent, self.stage, self.descriptors) = (0, next, descriptors);
        self.reply = protocol::message(kind, &body, count).unwrap_or_else(|| {
            self.descriptors.clear();
            let reason = b"the reply exceeds the maximum length of a message";
            protocol::message(Kind::Refusal, reason, 0).unwrap_or_default()
        });
    }

    fn send(&self) -> io::Result<usize> {
        let descriptors: Vec<_> = self.descriptors.iter().map(|it| it.as_fd()).collect();
        transfer::send(&self.client.stream, &self.reply[self.sent..], &descriptors)
    }
}

/// Returns kind and body length of a request.
///
/// # Errors
/// The reason to end the connection.
fn request(header: &[u8; HEADER]) -> Result<(Kind, usize), String> {
    let Header { version, kind, length, .. } = Header::read(header)?;
    match kind {
        _ if version != VERSION => Err(format!(
            "the request has version {version}; install both programs from one release"
        )),
        kind if !kind.is_request() => Err("the message is not a request".to_owned()),
        kind if length <= REQUEST_LIMIT => Ok((kind, length)),
        _ => Err(format!("the request has {length} bytes; at most {REQUEST_LIMIT} are accepted")),
    }
}

/// Returns true if `user` may connect to an application that runs as the user `ours`.
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
