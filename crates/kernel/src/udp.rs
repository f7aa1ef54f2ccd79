//! UDP socket as a port, for tunnels that end at an address of Linux.
//!
//! A datagram is shown as the frame that it could have come in: Ethernet, IP and UDP headers are
//! made of what the socket says. What is transmitted must be a datagram from the socket's own
//! address; its payload is sent. It is the slowest of the mechanisms and needs no privilege at all.

mod frame;
mod udp_queue;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

pub use udp_queue::UdpQueue;

use crate::Error;

/// Destination Ethernet address of received frames: the local end.
pub const LOCAL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Source Ethernet address of received frames: the remote end.
pub const REMOTE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Receive buffer of each socket in bytes, if the system's limit allows.
const BUFFER: usize = 4 << 20;

/// Opens a port with `queues` sockets at one address, over which the kernel distributes flows.
///
/// # Errors
/// When the address is not this host's, or taken.
pub fn open(address: SocketAddr, queues: usize) -> Result<Vec<UdpQueue>, Error> {
    let socket = || socket(address, queues > 1).map_err(|error| refuse(address, error));
    (0..queues).map(|_| socket().map(|(socket, local)| UdpQueue::new(socket, local))).collect()
}

fn socket(address: SocketAddr, shared: bool) -> Result<(OwnedFd, SocketAddr), Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Less than that is no error: what does not fit is counted.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
    bind(&socket, &address)?;
    let local = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, local))
}

fn refuse(address: SocketAddr, error: Errno) -> Error {
    let remedy = match error {
        Errno::ADDRNOTAVAIL => "give an interface of this host the address first",
        Errno::ADDRINUSE => "end the program that has it (`ss -ulpn` names it)",
        _ => "choose another address or port",
    };
    Error::Unfit {
        subject: format!("UDP socket at {address}"),
        reason: std::io::Error::from(error).to_string(),
        remedy: remedy.to_owned(),
    }
}
