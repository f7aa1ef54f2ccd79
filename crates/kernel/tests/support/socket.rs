//! Sockets that the standard library does not have.

use std::ffi::CString;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use fastlane_testing::Peer;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Room for every frame of a test.
const RECEIVE_BUFFER: usize = 64 << 20;

fn set<T>(socket: &impl AsRawFd, level: i32, option: i32, value: &[T]) {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel reads as many octets as `value` has.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    assert_eq!(result, 0, "option {option}: {}", io::Error::last_os_error());
}

/// A UDP socket that hears of one interface only.
pub fn bound_udp(address: &str, interface: &str) -> UdpSocket {
    let socket = super::udp(address);
    let name = CString::new(interface).expect("no NUL");
    set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes_with_nul());
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).expect("root");
    socket
}

/// Everything that arrives on an interface of the thread's namespace, and a way out of it.
pub struct Wire(OwnedFd);

impl Wire {
    pub fn new(interface: &str) -> Self {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None).expect("root");
        const IGNORE_OUTGOING: i32 = 23;
        set(&socket, libc::SOL_PACKET, IGNORE_OUTGOING, &[1_i32]);
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .expect("root");
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: super::interface(interface).index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a whole `struct sockaddr_ll` of this length.
        let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(socket)
    }
}

impl Peer for Wire {
    fn send(&mut self, frame: &[u8]) -> bool {
        rustix::net::send(&self.0, frame, SendFlags::DONTWAIT).is_ok()
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let mut frame = [0; 2048];
        let end = Instant::now() + within;
        loop {
            if let Ok((_, length)) = rustix::net::recv(&self.0, &mut frame[..], RecvFlags::DONTWAIT)
            {
                return Some(frame[..length.min(2048)].to_vec());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let timeout = Timespec::try_from(left).expect("short");
            let mut watched = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            rustix::event::poll(&mut watched, Some(&timeout)).expect("a socket");
        }
    }
}

/// A socket of Linux as one end of a port: it only receives.
pub struct Datagrams(pub UdpSocket);

impl Peer for Datagrams {
    fn send(&mut self, _: &[u8]) -> bool {
        false
    }

    fn receive(&mut self, within: Duration) -> Option<Vec<u8>> {
        let mut datagram = [0; 2048];
        self.0.set_nonblocking(within.is_zero()).expect("a socket");
        if !within.is_zero() {
            self.0.set_read_timeout(Some(within)).expect("a socket");
        }
        self.0.recv(&mut datagram).ok().map(|length| datagram[..length].to_vec())
    }
}
