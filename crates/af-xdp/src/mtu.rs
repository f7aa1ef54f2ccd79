//! The MTU of an interface, which limits the frames that a queue may transmit.
#![allow(unsafe_code, reason = "an ioctl without a safe form")]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Length of an Ethernet header and one VLAN tag: the excess of a frame over the MTU that the
/// kernel accepts (`is_skb_forwardable` in net/core/dev.c).
const BEYOND_MTU: usize = 14 + VLAN_TAG;
const VLAN_TAG: usize = 4;

/// Maximum length of a frame that an interface transmits. The kernel drops a longer one without an
/// error on the socket. The thread that follows the interface writes it; all queues of the device
/// read it.
#[derive(Clone, Debug)]
pub(crate) struct TransmitLength(Arc<AtomicUsize>);

impl TransmitLength {
    /// Creates the length for an interface of the network namespace of the calling thread. If the
    /// kernel does not tell the MTU, no frame is too long.
    pub(crate) fn of_interface(index: u32) -> Self {
        let length = Self(Arc::new(AtomicUsize::new(usize::MAX)));
        query(index).into_iter().for_each(|mtu| length.set_mtu(mtu));
        length
    }

    /// Creates the length for an MTU in octets.
    pub(crate) fn of_mtu(mtu: u32) -> Self {
        Self(Arc::new(AtomicUsize::new(mtu as usize + BEYOND_MTU)))
    }

    /// Follows another MTU, in octets.
    pub(crate) fn set_mtu(&self, mtu: u32) {
        self.0.store(mtu as usize + BEYOND_MTU, Ordering::Relaxed);
    }

    /// Returns the length in octets of a frame with two VLAN tags.
    pub(crate) fn with_two_tags(&self) -> usize {
        self.get().saturating_add(VLAN_TAG)
    }

    /// Returns the length in octets.
    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the MTU of an interface, or `None` if the kernel refuses the request (netdevice(7)).
fn query(index: u32) -> Option<u32> {
    // A Unix socket: AF_XDP sockets do not accept interface requests.
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None).ok()?;
    // SAFETY: ifreq consists of integers and unions of integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = i32::try_from(index).ok()?;
    for action in [libc::SIOCGIFNAME, libc::SIOCGIFMTU] {
        // SAFETY: both requests read and write one ifreq, which lives through the call.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), action as _, &raw mut request) };
        if result < 0 {
            return None;
        }
    }
    // SAFETY: SIOCGIFMTU has written this member, and every bit pattern is a valid integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok()
}
