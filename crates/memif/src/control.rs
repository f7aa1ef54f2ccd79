//! The thread that connects.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketAddrUnix;

use crate::MemifSettings;
use crate::channel::{Channel, Listener};
use crate::client::{Client, Limits};
use crate::connection::{Post, lower};
use crate::handshake::{Agreed, Handshake, Side};
use crate::link::State;
use crate::live::{Live, Retired};
use crate::message::Message;
use crate::server::Server;

/// The most clients that may be in the handshake at once.
const MOST_HANDSHAKES: usize = 8;
/// After a first attempt that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Between attempts, at most; and of a server that could not accept.
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// Connections that are over and that somebody still has: with more, no peer is let in.
const MOST_RETIRED: usize = 4;
/// How often it looks whether the lanes have let go of memory.
const RETIREMENT: Duration = Duration::from_millis(20);

/// How peers are found.
pub(crate) enum Meeting {
    Listen(Listener),
    Connect(SocketAddrUnix),
}

/// What the thread knows.
pub(crate) struct Control {
    pub(crate) settings: MemifSettings,
    pub(crate) meeting: Meeting,
    pub(crate) posts: Vec<Arc<Post>>,
    pub(crate) wake: Arc<OwnedFd>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) state: Arc<Mutex<State>>,
    handshakes: Vec<Handshake>,
    live: Option<Live>,
    retired: Vec<Retired>,
    attempt: Instant,
    pause: Duration,
    /// A server that could not accept does not look for clients before.
    deaf_until: Option<Instant>,
    limits: Limits,
}

impl Control {
    pub(crate) fn new(
        settings: MemifSettings,
        meeting: Meeting,
        posts: Vec<Arc<Post>>,
        wake: Arc<OwnedFd>,
        stop: Arc<AtomicBool>,
        state: Arc<Mutex<State>>,
    ) -> Self {
        let limits = Limits { to_server: settings.queues, to_client: settings.queues };
        Self {
            settings,
            meeting,
            posts,
            wake,
            stop,
            state,
            handshakes: Vec::new(),
            live: None,
            retired: Vec::new(),
            attempt: Instant::now(),
            pause: FIRST_PAUSE,
            deaf_until: None,
            limits,
        }
    }

    /// Connects, and connects again, until it is told to stop.
    pub(crate) fn run(mut self) {
        while !self.stop.load(Ordering::Acquire) {
            self.connect();
            self.wait();
            self.look_after_live();
            self.accept();
            self.shake_hands();
            self.retired.retain_mut(|retired| !retired.is_released());
        }
        self.end_live("the port is closed");
    }

    /// Waits until there is something to do. What it is the rest finds by itself.
    fn wait(&self) {
        let mut files = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let mut due: Vec<_> = self.handshakes.iter().map(|handshake| handshake.deadline).collect();
        match (&self.meeting, self.deaf_until) {
            (Meeting::Listen(_), Some(until)) => due.push(until),
            (Meeting::Listen(listener), None) => files.push(PollFd::new(listener, PollFlags::IN)),
            (Meeting::Connect(_), _) => {}
        }
        files.extend(self.live.iter().map(|live| PollFd::new(&live.channel, PollFlags::IN)));
        let handshakes = self.handshakes.iter();
        files.extend(handshakes.map(|handshake| PollFd::new(&handshake.channel, PollFlags::IN)));
        if self.wants_to_connect() {
            due.push(self.attempt);
        }
        if !self.retired.is_empty() {
            due.push(Instant::now() + RETIREMENT);
        }
        let timeout = due.into_iter().min().map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            let tv_nsec = left.subsec_nanos().into();
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec }
        });
        let _ = poll(&mut files, timeout.as_ref());
        lower(&self.wake);
    }

    fn wants_to_connect(&self) -> bool {
        matches!(self.meeting, Meeting::Connect(_))
            && self.live.is_none()
            && self.handshakes.is_empty()
    }

    /// A client without a connection tries to get one.
    fn connect(&mut self) {
        let Meeting::Connect(address) = &self.meeting else { return };
        if !self.wants_to_connect() || Instant::now() < self.attempt {
            return;
        }
        match Channel::connect(address) {
            Ok(channel) => {
                let client = Client::new(&self.settings, self.limits);
                self.handshakes.push(Handshake::ask(channel, client));
            }
            Err(error) => self.note_failure(format!("cannot connect: {error}")),
        }
        self.attempt = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }

    fn accept(&mut self) {
        let Meeting::Listen(listener) = &self.meeting else { return };
        if self.deaf_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.deaf_until = None;
        for _ in 0..MOST_HANDSHAKES {
            let channel = match listener.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(reason) => {
                    self.deaf_until = Some(Instant::now() + LAST_PAUSE);
                    return self.note_failure(reason);
                }
            };
            if self.handshakes.len() >= MOST_HANDSHAKES {
                continue; // which closes it
            }
            if let Ok(handshake) = Handshake::serve(channel, Server::new(&self.settings)) {
                self.handshakes.push(handshake);
            }
        }
    }

    fn shake_hands(&mut self) {
        let now = Instant::now();
        for mut handshake in std::mem::take(&mut self.handshakes) {
            let result = handshake.advance();
            if let Side::Client(client) = &handshake.side {
                self.limits = client.limits();
            }
            match result {
                Ok(None) if now < handshake.deadline => self.handshakes.push(handshake),
                Ok(None) => self.note_failure("the peer was silent for too long".to_owned()),
                Ok(Some(_)) if self.live.is_some() => {
                    handshake.channel.disconnect("already connected");
                }
                Ok(Some(_)) if self.retired.len() >= MOST_RETIRED => {
                    let reason = "earlier connections are not let go of yet";
                    handshake.channel.disconnect(reason);
                    self.note_failure(reason.to_owned());
                }
                Ok(Some(agreed)) => self.establish(handshake.channel, agreed),
                Err(reason) => self.note_failure(reason),
            }
        }
    }

    /// Makes what was agreed on the connection that there is.
    fn establish(&mut self, channel: Channel, agreed: Agreed) {
        match Live::new(channel, agreed, &self.posts, &self.wake) {
            Ok((live, facts)) => {
                self.live = Some(live);
                (self.attempt, self.pause) = (Instant::now(), FIRST_PAUSE);
                self.note(|state| {
                    let connections = state.connections + 1;
                    *state = State { connections, last_end: state.last_end.take(), ..facts };
                });
            }
            Err(reason) => self.note_failure(reason),
        }
    }

    /// Ends the connection when the peer has, or when it broke the rules.
    fn look_after_live(&mut self) {
        let Some(live) = &self.live else { return };
        if live.connection.is_accused() {
            return self.end_live("the rings were broken");
        }
        let reason = match live.channel.receive() {
            Ok(None) => return,
            Ok(Some(received)) => match received.message {
                Message::Disconnect { reason, .. } => format!("the peer disconnected: {reason}"),
                message => format!("{} in a connection", message.kind()),
            },
            Err(reason) => reason,
        };
        self.end_live(&reason);
    }

    fn end_live(&mut self, reason: &str) {
        let Some(live) = self.live.take() else { return };
        self.retired.push(live.end(reason, &self.posts));
        self.limits = Limits { to_server: self.settings.queues, to_client: self.settings.queues };
        (self.attempt, self.pause) = (Instant::now() + FIRST_PAUSE, FIRST_PAUSE);
        self.note(|state| {
            let (connections, last_end) = (state.connections, Some(reason.to_owned()));
            *state = State { connections, last_end, ..State::default() };
        });
    }

    fn note_failure(&self, reason: String) {
        self.note(|state| state.last_end = Some(reason));
    }

    fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
