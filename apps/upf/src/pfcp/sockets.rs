//! N4 sockets: for each address of the configuration one for PFCP, and one for GTP-U unless lanes
//! have the address.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use fastlane::wire::GtpU;
use rustix::net::sockopt;

use super::neighbours::Neighbours;
use super::{N4Protocol, Outgoing};
use crate::config::Settings;
use crate::time::{Now, SECOND};

/// Receive buffer of a socket in octets, if the kernel allows it: several thousand requests.
const BUFFER: usize = 4 << 20;
/// Time to wait for an address that is in use: a killed predecessor may still be exiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two attempts.
const STEP: Duration = Duration::from_millis(20);
/// Interval between two attempts to bind the addresses for GTP-U, in nanoseconds.
const PAUSE: u64 = SECOND;

/// One socket per protocol and N4 address, so that a response leaves from the address of its
/// request.
#[derive(Debug)]
pub struct Sockets {
    all: Vec<Socket>,
    /// Addresses for GTP-U that could not be bound yet, and the time of the next attempt.
    missing: Vec<IpAddr>,
    retry_at: u64,
    /// Neighbour resolution in Linux.
    pub(super) neighbours: Neighbours,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Socket {
    protocol: N4Protocol,
    address: IpAddr,
    socket: UdpSocket,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming<'a> {
    /// Protocol of its socket.
    pub protocol: N4Protocol,
    /// Our address.
    pub local: IpAddr,
    /// Address and port of the sender.
    pub from: SocketAddr,
    /// Payload of the datagram.
    pub bytes: &'a [u8],
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
        let neighbours = Neighbours::default();
        Self { all: Vec::new(), missing: Vec::new(), retry_at: 0, neighbours, buffer: Vec::new() }
    }

    /// Binds all addresses for PFCP, without address sharing: the kernel would give our datagrams
    /// to a second listener.
    ///
    /// # Errors
    /// An address does not exist, or another program holds it for five seconds.
    pub fn bind(settings: &Settings, neighbours: Neighbours) -> Result<Self, SocketError> {
        let n4 = &settings.n4;
        let end = Instant::now() + PATIENCE;
        let bind = |address: &IpAddr| {
            let wanted = SocketAddr::new(*address, n4.port);
            let failed = |source| SocketError { address: wanted, source };
            let socket = bind_until(wanted, end).map_err(failed)?;
            Ok(Socket { protocol: N4Protocol::Pfcp, address: *address, socket })
        };
        let all = n4.addresses.iter().map(bind).collect::<Result<_, _>>()?;
        let missing = settings.n4_user_plane().collect();
        Ok(Self { all, missing, retry_at: 0, neighbours, buffer: vec![0; 1 << 16] })
    }

    /// Binds the addresses for GTP-U that are not bound yet, at most once a second. PFCP does not
    /// wait for them; a program that has the port is named once.
    pub(super) fn bind_missing(&mut self, now: Now) {
        if self.missing.is_empty() || now.monotonic < self.retry_at {
            return;
        }
        let is_first = self.retry_at == 0;
        self.retry_at = now.monotonic + PAUSE;
        for address in std::mem::take(&mut self.missing) {
            match open((address, GtpU::PORT).into()) {
                Ok(socket) => {
                    self.all.push(Socket { protocol: N4Protocol::GtpU, address, socket });
                }
                Err(source) => {
                    if is_first {
                        let port = GtpU::PORT;
                        tracing::warn!(
                            "cannot bind UDP port {port} of {address}: {source}; until the program \
                             that uses it ends, SMFs without a port of this UPF get no router \
                             solicitations of UEs"
                        );
                    }
                    self.missing.push(address);
                }
            }
        }
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

    /// Receives the next datagram of a socket. Returns `None` if there is none.
    pub fn receive(&mut self, index: usize) -> Option<Incoming<'_>> {
        let Socket { protocol, address, socket } = self.all.get(index)?;
        loop {
            match socket.recv_from(&mut self.buffer) {
                Ok((length, from)) => {
                    let (protocol, local, from) = (*protocol, *address, canonical(from));
                    let bytes = self.buffer.get(..length)?;
                    return Some(Incoming { protocol, local, from, bytes });
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
        let is_fit = |it: &&Socket| {
            it.protocol == datagram.protocol && it.address.is_ipv4() == datagram.to.is_ipv4()
        };
        let fit = || self.all.iter().filter(is_fit);
        let wanted = fit().find(|it| Some(it.address) == datagram.local);
        let found = wanted.or_else(|| fit().next());
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
        match open(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(STEP);
            }
            other => return other,
        }
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // Without CAP_NET_ADMIN the host limits it (net.core.rmem_max), which will do.
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER);
    let _ = forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, BUFFER));
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fastlane_testing::namespace::private;

    use super::*;

    fn settings(addresses: &[&str], port: u16) -> Settings {
        serde_json::from_value(serde_json::json!({
            "node-id": "upf.example",
            "n4": { "addresses": addresses, "port": port },
            "interfaces": { "n3": { "port": "n3", "role": "n3", "addresses": ["127.0.0.3"] } },
        }))
        .unwrap()
    }

    /// Returns a free port.
    fn free_port() -> u16 {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
    }

    fn receive(sockets: &mut Sockets, index: usize) -> (IpAddr, SocketAddr, Vec<u8>) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(Incoming { local, from, bytes, .. }) = sockets.receive(index) {
                return (local, from, bytes.to_owned());
            }
            assert!(Instant::now() < end, "nothing comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_answer_leaves_from_the_address_that_the_request_went_to() {
        let settings = settings(&["127.0.0.1", "127.0.0.2"], free_port());
        let mut sockets = Sockets::bind(&settings, Neighbours::default()).unwrap();
        let port = sockets.all[0].socket.local_addr().unwrap().port();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (index, address) in ["127.0.0.1", "127.0.0.2"].into_iter().enumerate() {
            client.send_to(b"request", (address, port)).unwrap();
            let (local, from, bytes) = receive(&mut sockets, index);
            assert_eq!(local, address.parse::<IpAddr>().unwrap());
            assert_eq!((from, &bytes[..]), (client.local_addr().unwrap(), &b"request"[..]));
            let (protocol, bytes) = (N4Protocol::Pfcp, b"answer".to_vec());
            let answer = Outgoing { protocol, local: Some(local), to: from, bytes };
            assert!(sockets.send(&answer));
            let (length, from) = client.recv_from(&mut [0; 100]).unwrap();
            assert_eq!((length, from.ip()), (6, local));
        }
    }

    /// PFCP does not wait for the port of GTP-U, and lanes have that of N3.
    #[test]
    fn gtp_u_has_the_addresses_of_n4_once_they_are_free() {
        let name = "pfcp::sockets::tests::gtp_u_has_the_addresses_of_n4_once_they_are_free";
        if !private(name) {
            return;
        }
        let at = |second| Now { monotonic: second * SECOND, real: 0 };
        let taken = UdpSocket::bind(("127.0.0.1", GtpU::PORT)).unwrap();
        let settings = settings(&["127.0.0.1", "127.0.0.2", "127.0.0.3"], 8805);
        let mut sockets = Sockets::bind(&settings, Neighbours::default()).unwrap();
        assert_eq!(sockets.len(), 3);
        sockets.bind_missing(at(1));
        assert_eq!(sockets.len(), 4);
        drop(taken);
        sockets.bind_missing(at(1));
        assert_eq!(sockets.len(), 4, "at most once a second");
        sockets.bind_missing(at(2));
        let all = sockets.all.iter().filter(|it| it.protocol == N4Protocol::GtpU);
        let addresses: Vec<String> = all.map(|it| it.address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.2", "127.0.0.1"]);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"gtp", ("127.0.0.1", GtpU::PORT)).unwrap();
        assert_eq!(receive(&mut sockets, 4).2, b"gtp");
        let (protocol, bytes) = (N4Protocol::GtpU, b"answer".to_vec());
        let to = client.local_addr().unwrap();
        assert!(sockets.send(&Outgoing { protocol, local: None, to, bytes }));
        let (_, from) = client.recv_from(&mut [0; 100]).unwrap();
        assert_eq!(from.port(), GtpU::PORT);
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
            Sockets::bind(&settings(&["127.0.0.1"], port), Neighbours::default())
        });
        std::thread::sleep(Duration::from_millis(100));
        drop(taken);
        assert_eq!(waiting.join().unwrap().unwrap().len(), 1);
        let error = Sockets::bind(&settings(&["192.0.2.77"], port), Neighbours::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("192.0.2.77") && error.contains("app.n4.addresses"), "{error}");
    }
}
