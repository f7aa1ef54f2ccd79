//! A PFCP entity that sends whatever octets it is given, and answers heartbeats.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastlane_tests::{DropFlag, Host, PATIENCE};

use crate::octets::{self, HEARTBEAT, node_message, recovery, sequence, set_sequence};

/// Interval of retransmissions.
const RETRANSMIT: Duration = Duration::from_millis(500);

/// Types of responses.
const RESPONSES: [u8; 8] = [2, 6, 8, 10, 15, 51, 53, 55];

/// Next sequence number of all nodes: a request with a number of its own is no retransmission.
static SEQUENCE: AtomicU32 = AtomicU32::new(0x1000);

/// Returns a sequence number that no other request of this process has.
pub(crate) fn next_sequence() -> u32 {
    SEQUENCE.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff
}

/// A PFCP entity at one address.
pub(crate) struct RawNode {
    socket: UdpSocket,
    upf: SocketAddr,
    /// Recovery Time Stamp in heartbeat responses.
    started: u32,
    /// Requests of the UPF other than heartbeats, with the octets as they came.
    requests: Mutex<Vec<Vec<u8>>>,
}

impl RawNode {
    /// Opens the socket of a node on a host.
    pub(crate) fn new(host: &Host, local: &str, upf: &str, started: u32) -> Self {
        let socket = host.enter(|| {
            let socket = UdpSocket::bind(local).expect("the address of the node");
            socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a read timeout");
            socket
        });
        let upf = upf.parse().expect("an address");
        Self { socket, upf, started, requests: Mutex::default() }
    }

    /// Sends a datagram, which may be lost.
    pub(crate) fn send(&self, datagram: &[u8]) {
        let _ = self.socket.send_to(datagram, self.upf);
    }

    /// Handles what arrives within 5 ms. Returns a response.
    pub(crate) fn poll(&self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let datagram = &buffer[..length];
        if RESPONSES.contains(&datagram[1]) {
            return Some(datagram.to_vec());
        }
        if datagram[1] != HEARTBEAT {
            self.requests.lock().expect("no thread panics").push(datagram.to_vec());
            return None;
        }
        let stamp = [recovery(self.started)];
        let response = node_message(HEARTBEAT + 1, sequence(datagram), &stamp);
        let _ = self.socket.send_to(&response, from);
        None
    }

    /// Waits for a request of the UPF of this type.
    #[track_caller]
    pub(crate) fn wait_for(&self, kind: u8) -> Vec<u8> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(request) = self.take(kind) {
                return request;
            }
            self.poll();
        }
        panic!("no request of type {kind}");
    }

    /// Takes a request of the UPF of this type that has arrived.
    pub(crate) fn take(&self, kind: u8) -> Option<Vec<u8>> {
        let mut requests = self.requests.lock().expect("no thread panics");
        let at = requests.iter().position(|it| it[1] == kind)?;
        Some(requests.swap_remove(at))
    }

    /// Answers heartbeats while a function runs.
    pub(crate) fn serve_while<T>(&self, function: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.poll();
                }
            });
            let _end = DropFlag(&over);
            function()
        })
    }

    /// Answers heartbeats until a condition holds.
    #[track_caller]
    pub(crate) fn serve_until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds() {
            assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
            for _ in 0..20 {
                self.poll();
            }
        }
    }

    /// Sends a request with a sequence number of its own until there is a response.
    #[track_caller]
    pub(crate) fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut request = request.to_vec();
        let number = next_sequence();
        set_sequence(&mut request, number);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            self.send(&request);
            let again = Instant::now() + RETRANSMIT;
            while Instant::now() < again {
                if let Some(response) = self.poll().filter(|it| sequence(it) == number) {
                    return response;
                }
            }
        }
        panic!("no response to {request:x?}");
    }

    /// Sends a request, which must be accepted.
    #[track_caller]
    pub(crate) fn accepted(&self, request: &[u8]) -> Vec<u8> {
        let response = self.ask(request);
        assert_eq!(octets::cause(&response), Some(1), "{request:x?}: {response:x?}");
        response
    }
}
