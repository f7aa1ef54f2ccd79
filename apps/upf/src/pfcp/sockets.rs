//! N4 sockets: one for each address of the configuration.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::Outgoing;
use super::neighbours::Neighbours;
use crate::config::N4;

/// Receive buffer of a socket in octets, if the kernel allows it: several thousand requests.
const BUFFER: usize = 4 << 20;
/// Time to wait for an address that is in use: a killed predecessor may still be exiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two attempts.
const STEP: Duration = Duration::from_millis(20);

/// One socket per N4 address, so that a response leaves from the address of its request.
#[derive(Debug)]
pub struct Sockets {
    all: Vec<Socket>,
    /// Neighbour resolution in Linux.
    pub(super) neighbours: Neighbours,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Socket {
    address: IpAddr,
    socket: UdpSocket,
}

/// An N4 address cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "app.n4.addresses: cannot bind {address}: {source}; assign the address to this host, or stop \
     the program that uses it"
)]
pub struct SocketError {
    /// Address that cannot be used.
    pub address: SocketAddr,
    /// Error of the kernel.
    pub source: io::Error,
}

impl Sockets {
    /// Creates a set without sockets.
    #[must_use]
    pub fn unbound() -> Self {
        Self { all: Vec::new(), neighbours: Neighbours::default(), buffer: Vec::new() }
    }

    /// Binds all addresses, without address sharing: the kernel would give our datagrams to a
    /// second listener.
    ///
    /// # Errors
    /// An address does not exist, or another program holds it for five seconds.
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

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the descriptors to poll.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all.iter().map(|it| it.socket.as_fd())
    }

    /// Receives the next datagram of a socket: our address, its source and its payload. Returns
    /// `None` if there is none.
    pub fn receive(&mut self, index: usize) -> Option<(IpAddr, SocketAddr, &[u8])> {
        let Socket { address, socket } = self.all.get(index)?;
        loop {
            match socket.recv_from(&mut self.buffer) {
                Ok((length, from)) => {
                    return Some((*address, canonical(from), self.buffer.get(..length)?));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // ICMP errors of earlier datagrams are reported once and ignored.
                Err(error) if is_passing(&error) => {}
                Err(_) => return None,
            }
        }
    }

    /// Sends a datagram. Returns false if that is impossible now; the peer retransmits.
    #[must_use]
    pub fn send(&self, datagram: &Outgoing) -> bool {
        let same_family = |it: &&Socket| it.address.is_ipv4() == datagram.to.is_ipv4();
        let wanted = self.all.iter().find(|it| Some(it.address) == datagram.local);
        let found = wanted.filter(same_family).or_else(|| self.all.iter().find(same_family));
        found.is_some_and(|it| it.socket.send_to(&datagram.bytes, datagram.to).is_ok())
    }
}

/// Returns the address of a sender by which it is known. An IPv4-mapped one is IPv4. A link-local
/// one keeps its interface (scope ID), without which no response can be sent.
fn canonical(from: SocketAddr) -> SocketAddr {
    match from {
        SocketAddr::V6(from) if from.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*from.ip(), from.port(), 0, from.scope_id()).into()
        }
        _ => SocketAddr::new(from.ip().to_canonical(), from.port()),
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
                // Without CAP_NET_ADMIN the host limits it (net.core.rmem_max), which will do.
                let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
                let _ = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
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

    /// Returns a free port.
    fn free_port() -> u16 {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    fn receive(sockets: &mut Sockets, index: usize) -> (IpAddr, SocketAddr, Vec<u8>) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some((local, from, bytes)) = sockets.receive(index) {
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
        for (index, address) in ["127.0.0.1", "127.0.0.2"].into_iter().enumerate() {
            client.send_to(b"request", (address, port)).unwrap();
            let (local, from, bytes) = receive(&mut sockets, index);
            assert_eq!(local, address.parse::<IpAddr>().unwrap());
            assert_eq!((from, &bytes[..]), (client.local_addr().unwrap(), &b"request"[..]));
            let answer = Outgoing { local: Some(local), to: from, bytes: b"answer".to_vec() };
            assert!(sockets.send(&answer));
            let (length, from) = client.recv_from(&mut [0; 100]).unwrap();
            assert_eq!((length, from.ip()), (6, local));
        }
    }

    #[test]
    fn a_sender_is_known_by_its_address_and_a_link_local_one_by_its_interface_too() {
        let v6 = |text: &str, flow, scope| -> SocketAddr {
            SocketAddrV6::new(text.parse().unwrap(), 8805, flow, scope).into()
        };
        assert_eq!(canonical(v6("::ffff:192.0.2.1", 0, 0)), "192.0.2.1:8805".parse().unwrap());
        assert_eq!(canonical(v6("2001:db8::1", 7, 3)), v6("2001:db8::1", 0, 0));
        assert_eq!(canonical(v6("fe80::1", 7, 3)), v6("fe80::1", 0, 3));
        assert_ne!(canonical(v6("fe80::1", 0, 3)), canonical(v6("fe80::1", 0, 4)));
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
