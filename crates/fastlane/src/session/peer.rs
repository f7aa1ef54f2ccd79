//! A client, as the application sees it.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::SendFlags;
use rustix::process::Pid;

use super::protocol::{self, DESCRIPTORS, HEADER, HELLO, Header, Kind, REQUEST_LIMIT, VERSION};
use super::transfer;

/// The most clients at once; one more is refused.
const MOST_PEERS: usize = 32;
/// How long a client may take to say hello and to take its answer, and for a request likewise.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What is there for clients.
pub(crate) trait Service {
    /// What a client hears first.
    fn welcome(&mut self) -> Answer;

    /// Answers a request, or says why not.
    fn answer(&mut self, asker: &Arc<Asker>, kind: Kind, body: &[u8]) -> Result<Answer, String>;

    /// A client has gone.
    fn gone(&mut self, asker: &Asker);

    /// Does what there is to do from time to time; when next, if at all.
    fn sweep(&mut self, now: Instant) -> Option<Instant>;
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
    /// At most [`DESCRIPTORS`].
    pub(crate) descriptors: Vec<Arc<OwnedFd>>,
}

impl Answer {
    /// One without descriptors.
    pub(super) fn new(kind: Kind, body: Vec<u8>) -> Self {
        Self { kind, body, descriptors: vec![] }
    }
}

/// Who asks.
#[derive(Debug)]
pub(crate) struct Asker {
    stream: UnixStream,
    /// The process, as the kernel says; 0 when it cannot be seen from here.
    pub(super) process: i32,
    /// The program, as it says itself.
    program: String,
}

impl Asker {
    /// Whether its end of the connection is closed. A process that is killed loses its memory
    /// before its descriptors, so it writes nowhere any more when this is true.
    pub(crate) fn has_gone(&self) -> bool {
        transfer::has_ended(&self.stream)
    }
}

impl std::fmt::Display for Asker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.process, self.program.as_str()) {
            (0, "") => write!(formatter, "another process"),
            (0, program) => write!(formatter, "{program}"),
            (process, "") => write!(formatter, "process {process}"),
            (process, program) => write!(formatter, "process {process} ({program})"),
        }
    }
}

/// A client: it says hello and takes its answer; then it is silent, or asks, as often as it likes,
/// until it goes.
pub(super) struct Peer {
    asker: Arc<Asker>,
    stage: Stage,
    /// What was heard of the message in hand.
    heard: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    /// Go with the first byte of the answer.
    descriptors: Vec<Arc<OwnedFd>>,
    /// When it must have said what it began to say and taken the answer; `None` while it is silent.
    deadline: Option<Instant>,
}

/// What is awaited of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Hello,
    /// So many bytes of a name.
    Name(usize),
    /// The header of a request.
    Request,
    /// So many bytes of a request.
    Body(Kind, usize),
    /// Nothing: a byte ends it as much as its end does.
    Captures,
    /// That it takes its refusal.
    Refused,
}

impl Peer {
    /// Greets a client, or sends it away.
    pub(super) fn new(stream: UnixStream, others: usize, now: Instant) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let credentials = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        let process = Pid::as_raw(Some(credentials.pid));
        let mut peer = Self {
            asker: Arc::new(Asker { stream, process, program: String::new() }),
            stage: Stage::Hello,
            heard: vec![],
            answer: vec![],
            sent: 0,
            descriptors: vec![],
            deadline: Some(now + PATIENCE),
        };
        let ours = rustix::process::geteuid();
        if !may_attach(credentials.uid.as_raw(), ours.as_raw()) {
            let ours = ours.as_raw();
            peer.end(&format!("only user {ours} and root may attach; run as one of them"));
        } else if others >= MOST_PEERS {
            peer.end("too many clients are attached; end one of them first");
        } else {
            return Some(peer);
        }
        // Whoever is not let in costs one answer and no place.
        let _ = rustix::net::send(&peer.asker.stream, &peer.answer, SendFlags::NOSIGNAL);
        None
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.asker.stream
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn interest(&self) -> PollFlags {
        if self.sent < self.answer.len() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Goes on with a client as far as it lets us; false when it is done with.
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
            service.gone(&self.asker);
        }
        stays
    }

    /// The conversation, to the answer of one request: then it is the next client's turn. It is
    /// left with `WouldBlock` wherever the client must act first.
    fn converse(&mut self, service: &mut impl Service, now: Instant) -> io::Result<()> {
        let mut answered = false;
        loop {
            while self.sent < self.answer.len() {
                self.sent += self.send()?;
                self.descriptors.clear();
            }
            match self.stage {
                Stage::Refused => return Ok(()),
                Stage::Captures => {
                    self.deadline = None;
                    let _ = (&self.asker.stream).read(&mut [0])?;
                    return Ok(());
                }
                Stage::Request if self.heard.is_empty() => self.deadline = None,
                _ => {}
            }
            if answered {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !self.hear(now)? {
                return Ok(());
            }
            answered = matches!(self.stage, Stage::Body(..));
            self.answer(service);
        }
    }

    /// Hears what is awaited; false when the client has ended.
    fn hear(&mut self, now: Instant) -> io::Result<bool> {
        let awaited = match self.stage {
            Stage::Hello => HELLO,
            Stage::Name(length) | Stage::Body(_, length) => length,
            _ => HEADER,
        };
        let mut part = [0; 4096];
        while self.heard.len() < awaited {
            let room = part.len().min(awaited - self.heard.len());
            // Descriptors that come with it are closed by the kernel: nobody takes them (unix(7)).
            match (&self.asker.stream).read(&mut part[..room])? {
                0 => return Ok(false),
                count => self.heard.extend_from_slice(&part[..count]),
            }
            self.deadline.get_or_insert(now + PATIENCE);
        }
        Ok(true)
    }

    /// Answers what was heard.
    fn answer(&mut self, service: &mut impl Service) {
        let heard = std::mem::take(&mut self.heard);
        match self.stage {
            Stage::Hello => match heard.first_chunk().map(protocol::greeting) {
                Some(Ok(length)) => self.stage = Stage::Name(length),
                Some(Err(reason)) => self.end(&reason),
                None => self.end("no hello"), // not reached: a hello was heard
            },
            Stage::Name(_) => {
                self.introduce(&heard);
                self.say(service.welcome(), Stage::Request);
            }
            Stage::Request => match heard.first_chunk().map(request) {
                Some(Ok((kind, length))) => self.stage = Stage::Body(kind, length),
                Some(Err(reason)) => self.end(&reason),
                None => self.end("no request"), // not reached: a header was heard
            },
            Stage::Body(kind, _) => match service.answer(&self.asker, kind, &heard) {
                Ok(answer) if kind == Kind::Capture => self.say(answer, Stage::Captures),
                Ok(answer) => self.say(answer, Stage::Request),
                Err(reason) => {
                    let answer = Answer::new(Kind::Refusal, reason.into_bytes());
                    self.say(answer, Stage::Request);
                }
            },
            Stage::Captures | Stage::Refused => {}
        }
    }

    /// Remembers by which name a client goes.
    fn introduce(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name).replace(char::is_control, " ");
        if let Some(asker) = Arc::get_mut(&mut self.asker) {
            asker.program = name;
        }
    }

    /// Says why not, and no more.
    fn end(&mut self, reason: &str) {
        self.say(Answer::new(Kind::Refusal, reason.as_bytes().to_vec()), Stage::Refused);
    }

    fn say(&mut self, answer: Answer, next: Stage) {
        let Answer { kind, body, descriptors } = answer;
        let count = descriptors.len().min(DESCRIPTORS + 1);
        (self.sent, self.stage, self.descriptors) = (0, next, descriptors);
        self.answer = protocol::message(kind, &body, count).unwrap_or_else(|| {
            self.descriptors.clear();
            let reason = b"the answer is longer than a message can be";
            protocol::message(Kind::Refusal, reason, 0).unwrap_or_default()
        });
    }

    fn send(&self) -> io::Result<usize> {
        let descriptors: Vec<_> = self.descriptors.iter().map(|it| it.as_fd()).collect();
        transfer::send(&self.asker.stream, &self.answer[self.sent..], &descriptors)
    }
}

/// What a request is and how long its body, or why there will be none.
fn request(header: &[u8; HEADER]) -> Result<(Kind, usize), String> {
    let Header { version, kind, length, .. } = Header::read(header)?;
    match kind {
        _ if version != VERSION => Err(format!("a request of version {version}")),
        kind if !kind.is_request() => Err("a message that is no request".to_owned()),
        kind if length <= REQUEST_LIMIT => Ok((kind, length)),
        _ => Err(format!("a request of {length} bytes; {REQUEST_LIMIT} are taken")),
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
