//! The UDP sockets of N4.

pub mod outbox;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::Outgoing;
use crate::config::N4;
use crate::pfcp::neighbours::Neighbours;

/// Octets that the kernel keeps for a socket, if it may: some thousand requests.
const BUFFER: usize = 4 << 20;
/// How long it is tried to get an address that somebody has: one who was killed may still go.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long between two tries.
const STEP: Duration = Duration::from_millis(20);

/// One for each address of N4, so that an answer leaves from where the request went.
#[derive(Debug)]
pub struct Sockets {
    all: Vec<Socket>,
    /// Neighbours that Linux is to find out.
    pub(super) neighbours: Neighbours,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Socket {
    address: IpAddr,
    socket: UdpSocket,
}

/// An address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "app.n4.addresses: {address} cannot be listened at: {source}; give this host the address, or \
     end what listens there"
)]
pub struct SocketError {
    /// The address.
    pub address: SocketAddr,
    /// What the kernel said.
    pub source: io::Error,
}

impl Sockets {
    /// Listens at all addresses. There is no second listener at any of them: the kernel would
    /// give it what is ours.
    ///
    /// # Errors
    /// When an address is not there, or somebody else has it and keeps it for five seconds.
    pub fn bind(n4: &N4, neighbours: Neighbours) -> Result<Self, SocketError> {
        let end = Instant::now() + PATIENCE;
        let bind = |address: &IpAddr| {
            let wanted = SocketAddr::new(*address, n4.port);
            let failed = |source| SocketError { address: wanted, source };
            let socket = bind_until(wanted, end).map_err(failed)?;
            Ok(Socket { address: *address, socket })
        };
        let all = n4.addresses.iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Self { all, neighbours, buffer: vec![0; 1 << 16] })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What to wait for.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all.iter().map(|it| it.socket.as_fd())
    }

    /// The next datagram of a socket: to which address of ours, from where, and what. None when
    /// there is none now.
    pub fn receive(&mut self, place: usize) -> Option<(IpAddr, SocketAddr, &[u8])> {
        let Socket { address, socket } = self.all.get(place)?;
        loop {
            match socket.recv_from(&mut self.buffer) {
                Ok((length, from)) => {
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    return Some((*address, from, self.buffer.get(..length)?));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // Errors of what was sent before (ICMP) are of no use here, and are read once.
                Err(error) if is_passing(&error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a datagram. False when it cannot be sent now: its peer will ask again.
    #[must_use]
    pub fn send(&self, datagram: &Outgoing) -> bool {
        let same_family = |it: &&Socket| it.address.is_ipv4() == datagram.to.is_ipv4();
        let wanted = self.all.iter().find(|it| Some(it.address) == datagram.local);
        let found = wanted.filter(same_family).or_else(|| self.all.iter().find(same_family));
        found.is_some_and(|it| it.socket.send_to(&datagram.bytes, datagram.to).is_ok())
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | Interrupted)
}

fn bind_until(address: SocketAddr, end: Instant) -> io::Result<UdpSocket> {
    loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(STEP);
            }
            Err(error) => return Err(error),
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                // Less is a limit of this host (net.core.rmem_max), and will do.
                let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
                return Ok(socket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn n4(addresses: &[&str], port: u16) -> N4 {
        serde_json::from_value(serde_json::json!({ "addresses": addresses, "port": port })).unwrap()
    }

    /// A port that nobody has at the moment.
    fn free_port() -> u16 {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    fn receive(sockets: &mut Sockets, place: usize) -> (IpAddr, SocketAddr, Vec<u8>) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some((local, from, bytes)) = sockets.receive(place) {
                return (local, from, bytes.to_owned());
            }
            assert!(Instant::now() < end, "nothing comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_answer_leaves_from_the_address_that_the_request_went_to() {
        let n4 = n4(&["127.0.0.1", "127.0.0.2"], free_port());
        let mut sockets = Sockets::bind(&n4, Neighbours::default()).unwrap();
        let port = sockets.all[0].socket.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (place, address) in ["127.0.0.1", "127.0.0.2"].into_iter().enumerate() {
            client.send_to(b"request", (address, port)).unwrap();
            let (local, from, bytes) = receive(&mut sockets, place);
            assert_eq!(local, address.parse::<IpAddr>().unwrap());
            assert_eq!((from, &bytes[..]), (client.local_addr().unwrap(), &b"request"[..]));
            let answer = Outgoing { local: Some(local), to: from, bytes: b"answer".to_vec() };
            assert!(sockets.send(&answer));
            let (length, from) = client.recv_from(&mut [0; 100]).unwrap();
            assert_eq!((length, from.ip()), (6, local));
        }
    }

    #[test]
    fn a_taken_address_is_had_when_it_becomes_free_and_named_when_it_does_not() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let waiting = std::thread::spawn(move || {
            Sockets::bind(&n4(&["127.0.0.1"], port), Neighbours::default())
        });
        std::thread::sleep(Duration::from_millis(100));
        drop(taken);
        assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
        let error = Sockets::bind(&n4(&["192.0.2.77"], port), Neighbours::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("192.0.2.77") && error.contains("app.n4.addresses"), "{error}");
    }
}
