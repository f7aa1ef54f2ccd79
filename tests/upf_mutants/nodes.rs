//! CP functions that send mutants: their sockets and the messages of the UPF to them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use fastlane_pfcp::{Cause, Message, MessageType};
use fastlane_tests::upf::N4;
use fastlane_tests::{Host, PATIENCE};
use rustix::net::sockopt;

use crate::live_sessions::LiveSessions;
use crate::random::Random;
use crate::requests::{CpFunction, Requests, association, function, heartbeat};

/// Number of CP functions.
pub(crate) const CP_FUNCTIONS: u8 = 4;
/// Size of a receive buffer in octets.
const BUFFER: usize = 8 << 20;
/// Retransmission interval of heartbeats.
const RETRANSMIT: Duration = Duration::from_millis(500);
/// Maximum number of remembered requests of the UPF. Others get no response.
const MAX_REQUESTS: usize = 64;

#[derive(Debug)]
struct Node {
    function: CpFunction,
    socket: UdpSocket,
    sequence: u32,
    /// Sessions established, and establishments refused without an association, since the last
    /// check of the association.
    counts: [u64; 2],
    live: LiveSessions,
    requests: Vec<(MessageType, u32)>,
    /// Sequence number of the last heartbeat with a response.
    last_heartbeat: Option<u32>,
}

/// All CP functions.
#[derive(Debug)]
pub(crate) struct Nodes {
    all: Vec<Node>,
    turn: usize,
    requests: Requests,
    /// Number of datagrams sent.
    pub(crate) sent: u64,
    /// Number of mutants among them.
    pub(crate) mutants: u64,
    /// Messages of the UPF by type and cause.
    pub(crate) inbox: BTreeMap<(u8, u8), u64>,
}

impl Node {
    fn new(host: &Host, number: u8) -> Self {
        let function = function(number);
        let socket = host.enter(|| {
            let port = fastlane_pfcp::PORT;
            let socket = UdpSocket::bind((function.address, port)).expect("our address");
            socket.connect((N4, port)).expect("a route to the UPF");
            sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("a buffer");
            socket
        });
        Self {
            function,
            socket,
            sequence: 0,
            counts: [0, 1],
            live: LiveSessions::default(),
            requests: Vec::new(),
            last_heartbeat: None,
        }
    }

    fn next(&mut self) -> u32 {
        self.sequence = (self.sequence + 1) & 0x00ff_ffff;
        self.sequence
    }

    /// Sends a datagram. Returns false if an earlier one met a closed port.
    fn send(&self, datagram: &[u8]) -> bool {
        match self.socket.send(datagram) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
            Err(error) => panic!("a datagram of {} octets: {error}", datagram.len()),
        }
    }
}

impl Nodes {
    /// Opens the sockets on a host. `samples` are messages whose IEs are reused.
    pub(crate) fn new(host: &Host, samples: &[Vec<u8>]) -> Self {
        let all = (0..CP_FUNCTIONS).map(|number| Node::new(host, number)).collect();
        let requests = Requests::new(samples);
        Self { all, turn: 0, requests, sent: 0, mutants: 0, inbox: BTreeMap::new() }
    }

    /// Sends `count` messages of the next CP function and a heartbeat behind them. Returns the
    /// messages.
    pub(crate) fn send(&mut self, random: &mut Random, count: usize) -> Vec<Vec<u8>> {
        self.turn = (self.turn + 1) % self.all.len();
        let node = &mut self.all[self.turn];
        let mut batch = Vec::with_capacity(count);
        // A repeated setup would delete the sessions, so it is sent only without an association.
        let [set_up, refused] = std::mem::take(&mut node.counts);
        if set_up == 0 && refused > 0 {
            let sequence = node.next();
            batch.push(association(&node.function, sequence));
        }
        while batch.len() < count {
            let sequence = node.next();
            let from = node.function;
            let (octets, is_valid) =
                self.requests.next(random, &from, &mut node.live, &mut node.requests, sequence);
            self.mutants += u64::from(!is_valid);
            batch.push(octets);
        }
        self.sent += batch.iter().filter(|octets| node.send(octets)).count() as u64;
        let sequence = node.next();
        self.sent += u64::from(node.send(&heartbeat(sequence)));
        batch
    }

    /// Waits for the response to the heartbeat behind the last messages: the UPF has processed
    /// them. Returns false if there is none.
    #[must_use]
    pub(crate) fn wait(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut again = Instant::now() + RETRANSMIT;
        let (turn, wanted) = (self.turn, self.all[self.turn].sequence);
        loop {
            self.receive_from(turn, Duration::from_millis(50));
            if self.all[turn].last_heartbeat == Some(wanted) {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            if Instant::now() > again {
                again = Instant::now() + RETRANSMIT;
                self.sent += u64::from(self.all[turn].send(&heartbeat(wanted)));
            }
        }
    }

    /// Returns the number of accepted establishments, modifications and deletions.
    pub(crate) fn accepted(&self) -> [u64; 3] {
        let kinds = [
            MessageType::SESSION_ESTABLISHMENT_RESPONSE,
            MessageType::SESSION_MODIFICATION_RESPONSE,
            MessageType::SESSION_DELETION_RESPONSE,
        ];
        kinds.map(|kind| self.inbox.get(&(kind.0, 1)).copied().unwrap_or(0))
    }

    /// Returns the sessions of the CP function that has sent last.
    pub(crate) fn live(&self) -> &LiveSessions {
        &self.all[self.turn].live
    }

    /// Handles all messages of the UPF.
    pub(crate) fn drain(&mut self) {
        (0..self.all.len()).for_each(|turn| self.receive_from(turn, Duration::ZERO));
    }

    /// Handles the messages of the UPF to one CP function, waiting for up to `wait`.
    fn receive_from(&mut self, turn: usize, wait: Duration) {
        let node = &mut self.all[turn];
        let mut room = [0; 65_536];
        let is_waiting = !wait.is_zero();
        node.socket.set_nonblocking(!is_waiting).expect("a socket");
        if is_waiting {
            node.socket.set_read_timeout(Some(wait)).expect("a time limit");
        }
        match node.socket.recv(&mut room) {
            Ok(length) => self.handle(turn, &room[..length]),
            Err(_) => return,
        }
        self.all[turn].socket.set_nonblocking(true).expect("a socket");
        while let Ok(length) = self.all[turn].socket.recv(&mut room) {
            self.handle(turn, &room[..length]);
        }
    }

    /// Handles a message of the UPF, which must be well formed.
    fn handle(&mut self, turn: usize, datagram: &[u8]) {
        let node = &mut self.all[turn];
        let parsed = Message::parse(datagram);
        let (message, rest) = parsed.unwrap_or_else(|error| panic!("{error:?}: {datagram:x?}"));
        let kind = message.header.message_type;
        assert!(rest.is_empty() && message.check().is_ok(), "{kind}: {datagram:x?}");
        let cause = message.group().find::<Cause>().ok().flatten().map_or(0, |cause| cause.0);
        *self.inbox.entry((kind.0, cause)).or_default() += 1;
        if kind.response().is_some() {
            if node.requests.len() < MAX_REQUESTS {
                node.requests.push((kind, message.header.sequence));
            }
            return;
        }
        match kind {
            MessageType::HEARTBEAT_RESPONSE => node.last_heartbeat = Some(message.header.sequence),
            MessageType::SESSION_ESTABLISHMENT_RESPONSE => {
                let refused = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
                node.counts[1] += u64::from(cause == refused.0);
                node.counts[0] += u64::from(node.live.record(&message));
            }
            _ => {}
        }
    }
}
