//! The control thread of a port: accepts or connects, runs handshakes, ends connections.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SocketAddrUnix;

use crate::MemifSettings;
use crate::agreement::Agreement;
use crate::channel::{Channel, Listener};
use crate::client::{Client, Limits};
use crate::connection::QueueMailbox;
use crate::doorbell::lower;
use crate::established::{Established, Retired};
use crate::handshake::{Handshake, Side};
use crate::message::Message;
use crate::server::Server;
use crate::state::{SharedState, State};

/// Maximum number of concurrent handshakes. Clients that connect and stay silent occupy one each
/// until its timeout; further clients are closed at once, so they cannot exhaust our descriptors.
const MAX_HANDSHAKES: usize = 8;
/// Pause after the first attempt of a client; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Maximum pause between attempts, and the pause of a server whose accept failed.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of ended connections whose memory a lane still holds. A peer that reconnects
/// faster than the lanes release memory would otherwise make us map more and more.
const MAX_RETIRED: usize = 4;
/// Interval of checks whether the lanes have released the memory of ended connections.
const RETIRED_POLL: Duration = Duration::from_millis(20);

/// The socket by which peers are found.
pub(crate) enum Endpoint {
    Listen(Listener),
    Connect(SocketAddrUnix),
}

/// State of the control thread.
pub(crate) struct Control {
    settings: MemifSettings,
    endpoint: Endpoint,
    mailboxes: Vec<Arc<QueueMailbox>>,
    shared: Arc<SharedState>,
    handshakes: Vec<Handshake>,
    established: Option<Established>,
    retired: Vec<Retired>,
    /// Time of the next attempt of a client.
    attempt: Instant,
    pause: Duration,
    /// A server whose accept failed does not accept before this time.
    accept_after: Option<Instant>,
    limits: Limits,
}

impl Control {
    pub(crate) fn new(
        settings: MemifSettings,
        endpoint: Endpoint,
        mailboxes: Vec<Arc<QueueMailbox>>,
        shared: Arc<SharedState>,
    ) -> Self {
        let limits = Limits { to_server: settings.queues, to_client: settings.queues };
        Self {
            settings,
            endpoint,
            mailboxes,
            shared,
            handshakes: Vec::new(),
            established: None,
            retired: Vec::new(),
            attempt: Instant::now(),
            pause: FIRST_PAUSE,
            accept_after: None,
            limits,
        }
    }

    /// Runs until the owner of the port is dropped.
    pub(crate) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.connect();
            self.wait();
            self.check_established();
            self.accept();
            self.advance_handshakes();
            self.retired.retain_mut(|retired| !retired.is_released());
        }
        self.end_established("the port is closed");
    }

    /// Waits for an event or the next deadline. The caller checks all sources afterwards.
    fn wait(&self) {
        let mut files = vec![PollFd::new(&*self.shared.wake, PollFlags::IN)];
        let mut due: Vec<_> = self.handshakes.iter().map(|handshake| handshake.deadline).collect();
        match (&self.endpoint, self.accept_after) {
            (Endpoint::Listen(_), Some(until)) => due.push(until),
            (Endpoint::Listen(listener), None) => files.push(PollFd::new(listener, PollFlags::IN)),
            (Endpoint::Connect(_), _) => {}
        }
        files.extend(self.established.iter().map(|one| PollFd::new(&one.channel, PollFlags::IN)));
        let handshakes = self.handshakes.iter();
        files.extend(handshakes.map(|handshake| PollFd::new(&handshake.channel, PollFlags::IN)));
        if self.wants_to_connect() {
            due.push(self.attempt);
        }
        if !self.retired.is_empty() {
            due.push(Instant::now() + RETIRED_POLL);
        }
        let timeout = due.into_iter().min().map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            let tv_nsec = left.subsec_nanos().into();
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec }
        });
        let _ = poll(&mut files, timeout.as_ref());
        lower(&self.shared.wake);
    }

    fn wants_to_connect(&self) -> bool {
        matches!(self.endpoint, Endpoint::Connect(_))
            && self.established.is_none()
            && self.handshakes.is_empty()
    }

    /// Starts a handshake if this is a client without a connection and the pause is over.
    fn connect(&mut self) {
        let Endpoint::Connect(address) = &self.endpoint else { return };
        if !self.wants_to_connect() || Instant::now() < self.attempt {
            return;
        }
        match Channel::connect(address) {
            Ok(channel) => {
                let client = Client::new(&self.settings, self.limits);
                self.handshakes.push(Handshake::as_client(channel, client));
            }
            Err(error) => self.record_failure(format!("cannot connect: {error}")),
        }
        self.attempt = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    fn accept(&mut self) {
        let Endpoint::Listen(listener) = &self.endpoint else { return };
        if self.accept_after.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.accept_after = None;
        for _ in 0..MAX_HANDSHAKES {
            let channel = match listener.accept() {
                Ok(Some(channel)) => channel,
                Ok(None) => return,
                Err(reason) => {
                    self.accept_after = Some(Instant::now() + MAX_PAUSE);
                    return self.record_failure(reason);
                }
            };
            if self.handshakes.len() >= MAX_HANDSHAKES {
                continue; // dropping the channel closes it
            }
            if let Ok(handshake) = Handshake::as_server(channel, Server::new(&self.settings)) {
                self.handshakes.push(handshake);
            }
        }
    }

    fn advance_handshakes(&mut self) {
        let now = Instant::now();
        for mut handshake in std::mem::take(&mut self.handshakes) {
            let result = handshake.advance();
            if let Side::Client(client) = &handshake.side {
                self.limits = client.limits();
            }
            match result {
                Ok(None) if now < handshake.deadline => self.handshakes.push(handshake),
                Ok(None) => self
                    .record_failure("the peer did not complete the handshake in time".to_owned()),
                Ok(Some(_)) if self.established.is_some() => {
                    handshake.channel.disconnect("already connected");
                }
                Ok(Some(_)) if self.retired.len() >= MAX_RETIRED => {
                    let reason = "the lanes still hold the memory of earlier connections";
                    handshake.channel.disconnect(reason);
                    self.record_failure(reason.to_owned());
                }
                Ok(Some(agreement)) => self.establish(handshake.channel, agreement),
                Err(reason) => self.record_failure(reason),
            }
        }
    }

    /// Makes an agreement the port's connection.
    fn establish(&mut self, channel: Channel, agreement: Agreement) {
        match Established::new(channel, agreement, &self.mailboxes, &self.shared.wake) {
            Ok((established, reached)) => {
                self.established = Some(established);
                (self.attempt, self.pause) = (Instant::now(), FIRST_PAUSE);
                self.update_state(|state| {
                    let connections = state.connections + 1;
                    *state = State { connections, last_end: state.last_end.take(), ..reached };
                });
            }
            Err(reason) => self.record_failure(reason),
        }
    }

    /// Ends the connection if the peer has disconnected or violated the protocol.
    fn check_established(&mut self) {
        let Some(established) = &self.established else { return };
        if established.connection.is_violated() {
            return self.end_established("the rings were broken");
        }
        let reason = match established.channel.receive() {
            Ok(None) => return,
            Ok(Some(received)) => match received.message {
                Message::Disconnect { reason, .. } => format!("the peer disconnected: {reason}"),
                message => format!("unexpected message {} in a connection", message.kind()),
            },
            Err(reason) => reason,
        };
        self.end_established(&reason);
    }

    fn end_established(&mut self, reason: &str) {
        let Some(established) = self.established.take() else { return };
        self.retired.push(established.end(reason, &self.mailboxes));
        self.limits = Limits { to_server: self.settings.queues, to_client: self.settings.queues };
        (self.attempt, self.pause) = (Instant::now() + FIRST_PAUSE, FIRST_PAUSE);
        self.update_state(|state| {
            let (connections, last_end) = (state.connections, Some(reason.to_owned()));
            *state = State { connections, last_end, ..State::default() };
        });
    }

    fn record_failure(&self, reason: String) {
        self.update_state(|state| state.last_end = Some(reason));
    }

    fn update_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
