//! What a running queue needs to know of its interface.
#![allow(unsafe_code, reason = "an ioctl without a safe form")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// An Ethernet header and one VLAN tag: what a frame may be longer than the MTU
/// (`is_skb_forwardable` in the kernel's net/core/dev.c).
const BEYOND_MTU: usize = 14 + 4;

/// An interface, asked by its index in the network namespace of the thread that made this.
#[derive(Debug)]
pub(crate) struct Link {
    /// Any socket will do; AF_XDP ones take no such requests.
    socket: OwnedFd,
    index: u32,
}

impl Link {
    pub(crate) fn new(index: u32) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, index })
    }

    /// The longest frame that the interface sends, or `None` when the kernel does not tell. The
    /// kernel loses a longer one without a word to the socket. Two system calls (netdevice(7)).
    pub(crate) fn longest_sent(&self) -> Option<usize> {
        // SAFETY: ifreq is made of integers and unions of them, for which zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = i32::try_from(self.index).ok()?;
        for action in [libc::SIOCGIFNAME, libc::SIOCGIFMTU] {
            // SAFETY: both requests read and write one ifreq, which lives through the call.
            let result =
                unsafe { libc::ioctl(self.socket.as_raw_fd(), action as _, &raw mut request) };
            if result < 0 {
                return None;
            }
        }
        // SAFETY: SIOCGIFMTU has written this member; every bit pattern of it is an integer.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        usize::try_from(mtu).ok().map(|mtu| mtu + BEYOND_MTU)
    }
}
