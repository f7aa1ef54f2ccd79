//! The MTU of an interface, which limits the frames that a queue may transmit.
#![allow(unsafe_code, reason = "an ioctl without a safe form")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Length of an Ethernet header and one VLAN tag: the excess of a frame over the MTU that the
/// kernel accepts (`is_skb_forwardable` in net/core/dev.c).
const BEYOND_MTU: usize = 14 + 4;

/// Query for the MTU of an interface, in the network namespace of the thread that created it.
#[derive(Debug)]
pub(crate) struct MtuQuery {
    /// A Unix socket: AF_XDP sockets do not accept interface requests.
    socket: OwnedFd,
    index: u32,
}

impl MtuQuery {
    pub(crate) fn new(index: u32) -> io::Result<Self> {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        Ok(Self { socket, index })
    }

    /// Returns the maximum length of a frame that the interface transmits, or `None` if the kernel
    /// refuses the request. The kernel drops a longer frame without an error on the socket. Makes
    /// two system calls (netdevice(7)).
    pub(crate) fn max_frame_length(&self) -> Option<usize> {
        // SAFETY: ifreq consists of integers and unions of integers, for which zero is valid.
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
        // SAFETY: SIOCGIFMTU has written this member, and every bit pattern is a valid integer.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        usize::try_from(mtu).ok().map(|mtu| mtu + BEYOND_MTU)
    }
}
