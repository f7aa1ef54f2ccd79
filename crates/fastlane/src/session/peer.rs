//! A client, as the application sees it.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;

use super::protocol::{self, HEADER, HELLO, Header, Kind, REQUEST_LIMIT, VERSION};
use crate::capture::Captures;

/// The most clients at once; one more is refused.
const MOST_PEERS: usize = 32;
/// How long a client may take to say hello and to take its answer, and for a request likewise.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// What there is for clients.
pub(super) struct Host {
    pub(super) welcome: Vec<u8>,
    pub(super) counters: Arc<OwnedFd>,
    pub(super) captures: Captures,
}

/// A client: it says hello and takes its answer; it may ask for a capture and take that answer.
/// Then it is silent until it goes.
pub(super) struct Peer {
    stream: UnixStream,
    process: i32,
    stage: Stage,
    /// What was heard of the message in hand.
    heard: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    /// Goes with the first byte of the answer.
    descriptor: Option<Arc<OwnedFd>>,
    /// When it must have said what it began to say and taken the answer; `None` while it is silent.
    deadline: Option<Instant>,
}

/// What is awaited of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Hello,
    /// The header of a request.
    Request,
    /// So many bytes of a request.
    Body(usize),
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
        let mut peer = Self {
            stream,
            process: Pid::as_raw(Some(credentials.pid)),
            stage: Stage::Hello,
            heard: vec![],
            answer: vec![],
            sent: 0,
            descriptor: None,
            deadline: Some(now + PATIENCE),
        };
        let ours = rustix::process::geteuid();
        if !may_attach(credentials.uid.as_raw(), ours.as_raw()) {
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

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn interest(&self) -> PollFlags {
        if self.sent < self.answer.len() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Goes on with a client as far as it lets us; false when it is done with.
    pub(super) fn advance(&mut self, host: &mut Host, now: Instant) -> bool {
        let stays = match self.converse(host, now) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.deadline.is_none_or(|deadline| now < deadline)
            }
            Err(_) => false,
        };
        if !stays && self.stage == Stage::Captures {
            host.captures.stop();
        }
        stays
    }

    /// The whole conversation; it is left with `WouldBlock` wherever the client must act first.
    fn converse(&mut self, host: &mut Host, now: Instant) -> io::Result<()> {
        loop {
            while self.sent < self.answer.len() {
                self.sent += self.send()?;
            }
            match self.stage {
                Stage::Refused => return Ok(()),
                Stage::Captures => {
                    self.deadline = None;
                    let _ = self.stream.read(&mut [0])?;
                    return Ok(());
                }
                Stage::Request if self.heard.is_empty() => self.deadline = None,
                _ => {}
            }
            if !self.hear(now)? {
                return Ok(());
            }
            self.answer(host);
        }
    }

    /// Hears what is awaited; false when the client has ended.
    fn hear(&mut self, now: Instant) -> io::Result<bool> {
        let awaited = match self.stage {
            Stage::Hello => HELLO,
            Stage::Body(length) => length,
            _ => HEADER,
        };
        let mut part = [0; 4096];
        while self.heard.len() < awaited {
            let room = part.len().min(awaited - self.heard.len());
            match self.stream.read(&mut part[..room])? {
                0 => return Ok(false),
                count => self.heard.extend_from_slice(&part[..count]),
            }
            self.deadline.get_or_insert(now + PATIENCE);
        }
        Ok(true)
    }

    /// Answers what was heard.
    fn answer(&mut self, host: &mut Host) {
        let heard = std::mem::take(&mut self.heard);
        match self.stage {
            Stage::Hello => match heard.first_chunk().and_then(protocol::refusal) {
                Some(reason) => self.refuse(&reason),
                None => {
                    let welcome = host.welcome.clone();
                    self.say(welcome, Some(Arc::clone(&host.counters)), Stage::Request);
                }
            },
            Stage::Request => match heard.first_chunk().map(request) {
                Some(Ok(length)) => self.stage = Stage::Body(length),
                Some(Err(reason)) => self.refuse(&reason),
                None => self.refuse("no request"), // not reached: a header was heard
            },
            Stage::Body(_) => match host.captures.start(&heard, self.process) {
                Ok((granted, rings)) => {
                    let answer = protocol::message(Kind::Capture, &granted).unwrap_or_default();
                    self.say(answer, Some(Arc::new(rings)), Stage::Captures);
                }
                Err(reason) => self.refuse(&reason),
            },
            Stage::Captures | Stage::Refused => {}
        }
    }

    fn refuse(&mut self, reason: &str) {
        let answer = protocol::message(Kind::Refusal, reason.as_bytes()).unwrap_or_default();
        self.say(answer, None, Stage::Refused);
    }

    fn say(&mut self, answer: Vec<u8>, descriptor: Option<Arc<OwnedFd>>, next: Stage) {
        (self.answer, self.sent) = (answer, 0);
        (self.descriptor, self.stage) = (descriptor, next);
    }

    fn send(&self) -> io::Result<usize> {
        let descriptors: Vec<_> =
            self.descriptor.iter().map(|descriptor| descriptor.as_fd()).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && self.sent == 0 {
            let fits = control.push(SendAncillaryMessage::ScmRights(&descriptors));
            debug_assert!(fits, "the space was made for one descriptor");
        }
        let rest = [IoSlice::new(&self.answer[self.sent..])];
        Ok(rustix::net::sendmsg(&self.stream, &rest, &mut control, SendFlags::NOSIGNAL)?)
    }
}

/// How long the body of a request is, or why there will be none.
fn request(header: &[u8; HEADER]) -> Result<usize, String> {
    let Header { version, kind, length } = Header::read(header)?;
    match kind {
        _ if version != VERSION => Err(format!("a request of version {version}")),
        Kind::Capture if length <= REQUEST_LIMIT => Ok(length),
        Kind::Capture => Err(format!("a request of {length} bytes; {REQUEST_LIMIT} are taken")),
        Kind::Application | Kind::Refusal => Err("a message that is no request".to_owned()),
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
