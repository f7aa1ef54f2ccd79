//! The control plane functions of the mutants: their sockets, and what the UPF says to them.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use fastlane_pfcp::{Cause, Message, MessageType};
use fastlane_tests::{Host, PATIENCE};
use rustix::net::sockopt;

use crate::chance::Chance;
use crate::live::Live;
use crate::place::N4;
use crate::requests::{Function, Requests, association, function, heartbeat};

/// How many there are.
pub(crate) const COUNT: u8 = 4;
/// Octets for what the UPF says to one of them.
const BUFFER: usize = 8 << 20;
/// After so long what is not answered is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// Requests of the UPF that are remembered; others are not answered.
const ASKED: usize = 64;

#[derive(Debug)]
struct Node {
    function: Function,
    socket: UdpSocket,
    sequence: u32,
    /// Sessions set up, and establishments refused for want of an association, since it was seen
    /// to whether there is one.
    counts: [u64; 2],
    live: Live,
    asked: Vec<(MessageType, u32)>,
    /// The number of the last heartbeat that was answered.
    beaten: Option<u32>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Nodes {
    all: Vec<Node>,
    turn: usize,
    requests: Requests,
    /// Datagrams that were sent, and those of them that are mutants.
    pub(crate) sent: u64,
    pub(crate) mutants: u64,
    /// What the UPF has said: messages by type and cause.
    pub(crate) heard: BTreeMap<(u8, u8), u64>,
}

impl Node {
    fn new(host: &Host, number: u8) -> Self {
        let function = function(number);
        let socket = host.enter(|| {
            let port = fastlane_pfcp::PORT;
            let socket = UdpSocket::bind((function.address, port)).expect("our address");
            socket.connect((N4, port)).expect("a way to the UPF");
            sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).expect("a buffer");
            socket
        });
        Self {
            function,
            socket,
            sequence: 0,
            counts: [0, 1],
            live: Live::default(),
            asked: Vec::new(),
            beaten: None,
        }
    }

    fn next(&mut self) -> u32 {
        self.sequence = (self.sequence + 1) & 0x00ff_ffff;
        self.sequence
    }

    /// False when Linux says that nobody listens there.
    fn send(&self, datagram: &[u8]) -> bool {
        match self.socket.send(datagram) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => false,
            Err(error) => panic!("a datagram of {} octets: {error}", datagram.len()),
        }
    }
}

impl Nodes {
    /// On this host. `samples` are messages of which elements are taken.
    pub(crate) fn new(host: &Host, samples: &[Vec<u8>]) -> Self {
        let all = (0..COUNT).map(|number| Node::new(host, number)).collect();
        let requests = Requests::new(samples);
        Self { all, turn: 0, requests, sent: 0, mutants: 0, heard: BTreeMap::new() }
    }

    /// Sends so many messages of the next function, and asks behind them whether the UPF is there.
    /// Returns them.
    pub(crate) fn send(&mut self, chance: &mut Chance, count: usize) -> Vec<Vec<u8>> {
        self.turn = (self.turn + 1) % self.all.len();
        let node = &mut self.all[self.turn];
        let mut batch = Vec::with_capacity(count);
        // Mutants are refused, too; an association that is asked for again loses its sessions.
        let [set_up, refused] = std::mem::take(&mut node.counts);
        if set_up == 0 && refused > 0 {
            let sequence = node.next();
            batch.push(association(&node.function, sequence));
        }
        while batch.len() < count {
            let sequence = node.next();
            let from = node.function;
            let (octets, is_valid) =
                self.requests.next(chance, &from, &mut node.live, &mut node.asked, sequence);
            self.mutants += u64::from(!is_valid);
            batch.push(octets);
        }
        self.sent += batch.iter().filter(|octets| node.send(octets)).count() as u64;
        let sequence = node.next();
        self.sent += u64::from(node.send(&heartbeat(sequence)));
        batch
    }

    /// Waits until the heartbeat behind the last messages is answered: the UPF has dealt with them.
    /// False when it is not.
    #[must_use]
    pub(crate) fn wait(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut again = Instant::now() + AGAIN;
        let (turn, wanted) = (self.turn, self.all[self.turn].sequence);
        loop {
            self.turn_to(turn, Duration::from_millis(50));
            if self.all[turn].beaten == Some(wanted) {
                return true;
            }
            if Instant::now() > end {
                return false;
            }
            if Instant::now() > again {
                again = Instant::now() + AGAIN;
                self.sent += u64::from(self.all[turn].send(&heartbeat(wanted)));
            }
        }
    }

    /// Establishments, modifications and deletions that were carried out.
    pub(crate) fn accepted(&self) -> [u64; 3] {
        let kinds = [
            MessageType::SESSION_ESTABLISHMENT_RESPONSE,
            MessageType::SESSION_MODIFICATION_RESPONSE,
            MessageType::SESSION_DELETION_RESPONSE,
        ];
        kinds.map(|kind| self.heard.get(&(kind.0, 1)).copied().unwrap_or(0))
    }

    /// The sessions of the function that has sent last.
    pub(crate) fn live(&self) -> &Live {
        &self.all[self.turn].live
    }

    /// Takes what the UPF has said to all.
    pub(crate) fn drain(&mut self) {
        (0..self.all.len()).for_each(|turn| self.turn_to(turn, Duration::ZERO));
    }

    /// Takes what the UPF has said to one; when there is nothing it waits for that long.
    fn turn_to(&mut self, turn: usize, wait: Duration) {
        let node = &mut self.all[turn];
        let mut room = [0; 65_536];
        let is_waiting = !wait.is_zero();
        node.socket.set_nonblocking(!is_waiting).expect("a socket");
        if is_waiting {
            node.socket.set_read_timeout(Some(wait)).expect("a time limit");
        }
        match node.socket.recv(&mut room) {
            Ok(length) => self.hear(turn, &room[..length]),
            Err(_) => return,
        }
        self.all[turn].socket.set_nonblocking(true).expect("a socket");
        while let Ok(length) = self.all[turn].socket.recv(&mut room) {
            self.hear(turn, &room[..length]);
        }
    }

    /// Whatever the UPF was told, what it says is well formed.
    fn hear(&mut self, turn: usize, datagram: &[u8]) {
        let node = &mut self.all[turn];
        let parsed = Message::parse(datagram);
        let (message, rest) = parsed.unwrap_or_else(|error| panic!("{error:?}: {datagram:x?}"));
        let kind = message.header.message_type;
        assert!(rest.is_empty() && message.check().is_ok(), "{kind}: {datagram:x?}");
        let cause = message.group().find::<Cause>().ok().flatten().map_or(0, |cause| cause.0);
        *self.heard.entry((kind.0, cause)).or_default() += 1;
        if kind.answer().is_some() {
            if node.asked.len() < ASKED {
                node.asked.push((kind, message.header.sequence));
            }
            return;
        }
        match kind {
            MessageType::HEARTBEAT_RESPONSE => node.beaten = Some(message.header.sequence),
            MessageType::SESSION_ESTABLISHMENT_RESPONSE => {
                let refused = Cause::NO_ESTABLISHED_PFCP_ASSOCIATION;
                node.counts[1] += u64::from(cause == refused.0);
                node.counts[0] += u64::from(node.live.learn(&message));
            }
            _ => {}
        }
    }
}
