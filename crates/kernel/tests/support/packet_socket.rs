//! Sockets that the standard library lacks.
#![allow(unsafe_code, reason = "a socket option without a safe form")]

use std::ffi::CString;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

use fastlane_testing::Peer;

/// Receive buffer for all frames of a test, in bytes.
const RECEIVE_BUFFER: usize = 64 << 20;

fn set<T>(socket: &impl AsRawFd, level: i32, option: i32, value: &[T]) {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the kernel reads as many octets as `value` has.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    assert_eq!(result, 0, "option {option}: {}", io::Error::last_os_error());
}

/// Opens a UDP socket bound to one interface.
pub fn bound_udp(address: &str, interface: &str) -> UdpSocket {
    let socket = super::udp(address);
    let name = CString::new(interface).expect("no NUL");
    set(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes_with_nul());
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).expect("root");
    socket
}

/// UDP socket as the receiving end of a port.
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
