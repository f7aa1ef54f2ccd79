//! Flows of a user through NAT that go on while something happens to the UPF: a TCP connection, UDP
//! datagrams both ways, and pings.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastlane_tests::{DropFlag, PATIENCE};
use rustix::process::Signal;

use crate::nat::{deliver, is_external, socket};
use crate::site::{SERVER, Site};

/// Interval between datagrams, and between exchanges on the connection.
const INTERVAL: Duration = Duration::from_millis(10);
/// Silence after which datagrams count as lost.
const LOST: Duration = Duration::from_secs(3);

/// The sockets of the flows.
pub(crate) struct Flows<'a> {
    site: &'a Site,
    user: &'a str,
    /// Both ends of the connection: the user's, the server's.
    connection: [TcpStream; 2],
    /// Number of exchanges so far.
    exchanges: u64,
    /// Both ends of the datagrams: the user's, the server's.
    sockets: [UdpSocket; 2],
    /// Number of datagrams so far.
    datagrams: u64,
    /// External address and port of the user's datagrams.
    mapped: SocketAddr,
    /// Socket of a user that sends nothing meanwhile, and its external address and port.
    silent: (UdpSocket, SocketAddr),
}

/// Number of packets that were sent and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
}

impl Answers {
    /// Returns the number of packets without an answer.
    pub(crate) const fn lost(self) -> u64 {
        self.sent - self.answered
    }
}

/// Observations of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    pub(crate) datagrams: Answers,
    pub(crate) pings: Answers,
    /// Exchanges on the connection.
    pub(crate) exchanges: u64,
}

impl<'a> Flows<'a> {
    /// Opens the flows of a user.
    pub(crate) fn open(site: &'a Site, user: &'a str) -> Self {
        let (access, network) = (site.access(), site.network());
        let sockets = [socket(access, user), socket(network, SERVER)];
        let to = sockets[1].local_addr().expect("an address");
        let mapped = deliver(&sockets[0], to, &sockets[1], "first");
        let silent = socket(access, user);
        let silent_at = deliver(&silent, to, &sockets[1], "once");
        let listener = network.enter(|| TcpListener::bind((SERVER, 0))).expect("a TCP port");
        let at = listener.local_addr().expect("an address");
        let client = access.enter(|| TcpStream::connect_timeout(&at, PATIENCE));
        let client = client.expect("a connection");
        let (accepted, peer) = listener.accept().expect("a client");
        for (address, what) in [(mapped, "UDP"), (silent_at, "the silent one"), (peer, "TCP")] {
            assert!(is_external(address), "{what}: {address}");
        }
        for stream in [&client, &accepted] {
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            stream.set_nodelay(true).expect("an option");
        }
        Self {
            site,
            user,
            connection: [client, accepted],
            exchanges: 0,
            sockets,
            datagrams: 0,
            mapped,
            silent: (silent, silent_at),
        }
    }

    /// Keeps all flows going while `event` happens. None may change its external port.
    ///
    /// # Panics
    /// When the connection ends, or a datagram comes from another external port than before.
    pub(crate) fn during(&mut self, event: impl FnOnce()) -> Observed {
        let words = ["ping", "-q", "-i", "0.01", "-W", "2", "-I", self.user, SERVER];
        let ping = self.site.access().start(&words);
        let over = AtomicBool::new(false);
        let Self { connection, exchanges, sockets, datagrams, mapped, .. } = self;
        let (before, sent, mapped, sockets) = (*exchanges, *datagrams, *mapped, &*sockets);
        let answered = thread::scope(|scope| {
            let _end = DropFlag(&over);
            scope.spawn(|| exchange(connection, exchanges, &over));
            scope.spawn(|| answer(&sockets[1], mapped, &over));
            scope.spawn(|| send(sockets, datagrams, &over));
            let receiver = scope.spawn(|| receive(&sockets[0], sent, &over));
            event();
            over.store(true, Ordering::SeqCst);
            receiver.join().expect("the receiver does not panic")
        });
        ping.signal(Signal::INT);
        let ended = ping.wait();
        Observed {
            datagrams: Answers { sent: self.datagrams - sent, answered },
            pings: pings(&ended.stdout),
            exchanges: self.exchanges - before,
        }
    }

    /// Sends a datagram from the server to the silent socket of the user: no new mapping could
    /// bring it there.
    pub(crate) fn reach_silent(&self, text: &str) {
        deliver(&self.sockets[1], self.silent.1, &self.silent.0, text);
    }
}

/// Exchanges numbers on a connection until it is over. TCP repeats what is lost.
fn exchange([client, server]: &mut [TcpStream; 2], number: &mut u64, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        *number += 1;
        let sent = number.to_be_bytes();
        let mut buffer = [0; 8];
        client.write_all(&sent).expect("the connection lives");
        server.read_exact(&mut buffer).expect("the connection lives");
        server.write_all(&buffer).expect("the connection lives");
        client.read_exact(&mut buffer).expect("the connection lives");
        assert_eq!(buffer, sent);
        thread::sleep(INTERVAL);
    }
}

/// Sends numbered datagrams to the server.
fn send([user, server]: &[UdpSocket; 2], number: &mut u64, over: &AtomicBool) {
    let to = server.local_addr().expect("an address");
    while !over.load(Ordering::SeqCst) {
        user.send_to(&number.to_be_bytes(), to).expect("it is sent");
        *number += 1;
        thread::sleep(INTERVAL);
    }
}

/// Sends each datagram back to its source, which must be the external address and port.
fn answer(server: &UdpSocket, mapped: SocketAddr, over: &AtomicBool) {
    let mut last = Instant::now();
    while !over.load(Ordering::SeqCst) || last.elapsed() < LOST {
        let mut buffer = [0; 64];
        if let Ok((length, from)) = server.recv_from(&mut buffer) {
            assert_eq!(from, mapped, "the external port has changed");
            // An ICMP error about an earlier answer is no error of this one.
            let _ = server.send_to(&buffer[..length], from);
            last = Instant::now();
        }
    }
}

/// Counts the answers to datagrams from number `first` on.
fn receive(user: &UdpSocket, first: u64, over: &AtomicBool) -> u64 {
    let (mut numbers, mut last) = (BTreeSet::new(), Instant::now());
    while !over.load(Ordering::SeqCst) || last.elapsed() < LOST {
        let mut buffer = [0; 64];
        if let Ok(8) = user.recv(&mut buffer) {
            let number = u64::from_be_bytes(buffer[..8].try_into().expect("eight octets"));
            assert!(number >= first, "an answer to a datagram of the last run");
            assert!(numbers.insert(number), "datagram {number} has come twice");
            last = Instant::now();
        }
    }
    numbers.len() as u64
}

/// Reads the summary of ping.
fn pings(summary: &str) -> Answers {
    let count = |words: &str| {
        let before = summary.split(words).next()?;
        before.rsplit([' ', '\n']).next()?.parse().ok()
    };
    let numbers = (count(" packets transmitted"), count(" received"));
    let (Some(sent), Some(answered)) = numbers else { panic!("{summary}") };
    Answers { sent, answered }
}
