//! The options of AF_PACKET sockets, packet(7).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// `SOL_PACKET`, and options that are not in all headers: `linux/if_packet.h`.
const LEVEL: libc::c_int = 263;
const IGNORE_OUTGOING: libc::c_int = 23;
const FANOUT_UNIQUE_ID: u32 = 0x2000;
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
/// `ETH_P_ALL`, in the byte order of the network.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// `struct tpacket_req`: a ring's shape.
#[repr(C)]
pub(super) struct RingRequest {
    pub(super) block_size: u32,
    pub(super) blocks: u32,
    pub(super) frame_size: u32,
    pub(super) frames: u32,
}

/// An AF_PACKET socket.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
}

impl Socket {
    /// One that receives nothing before it is bound.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        Ok(Self { file })
    }

    /// Sets what all sockets of ours have.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        // Says with each frame whether its checksum is partial, and lets us say so.
        self.set(libc::PACKET_VNET_HDR, &1)?;
        self.set(IGNORE_OUTGOING, &1)?;
        // A frame that Linux refuses does not hold up those behind it.
        self.set(libc::PACKET_LOSS, &1)?;
        self.set(libc::PACKET_QDISC_BYPASS, &1)
    }

    /// The most octets of frames on their way out. More than an ordinary user may have is a wish.
    pub(super) fn set_send_buffer(&self, octets: usize) -> io::Result<()> {
        rustix::net::sockopt::set_socket_send_buffer_size_force(&self.file, octets)
            .or_else(|_| rustix::net::sockopt::set_socket_send_buffer_size(&self.file, octets))?;
        Ok(())
    }

    pub(super) fn set_receive_ring(&self, request: &RingRequest) -> io::Result<()> {
        self.set(libc::PACKET_RX_RING, request)
    }

    pub(super) fn set_transmit_ring(&self, request: &RingRequest) -> io::Result<()> {
        self.set(libc::PACKET_TX_RING, request)
    }

    /// Starts receiving, and determines where frames are sent.
    pub(super) fn bind(&self, interface: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ALL_PROTOCOLS,
            sll_ifindex: interface as libc::c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: `address` is a whole `struct sockaddr_ll` of this length, and outlives the call.
        let result =
            unsafe { libc::bind(self.file.as_raw_fd(), (&raw const address).cast(), length) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Joins a group of sockets that share the frames of an interface, or makes one; returns which.
    pub(super) fn join(&self, group: Option<u16>) -> io::Result<u16> {
        let kind = libc::PACKET_FANOUT_HASH | FANOUT_IGNORE_OUTGOING;
        match group {
            Some(group) => self.set(libc::PACKET_FANOUT, &(u32::from(group) | kind << 16))?,
            // The kernel chooses a number that no other process has.
            None => self.set(libc::PACKET_FANOUT, &((FANOUT_UNIQUE_ID | kind) << 16))?,
        }
        let mut joined = 0_u32;
        self.read(libc::PACKET_FANOUT, &mut joined)?;
        Ok(joined as u16)
    }

    /// Makes the interface promiscuous until the socket is closed.
    pub(super) fn set_promiscuous(&self, interface: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: interface as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// Frames lost because the ring was full, since the last call.
    pub(super) fn take_drops(&self) -> u64 {
        // `struct tpacket_stats`: packets, drops. Reading sets both to zero.
        let mut statistics = [0_u32; 2];
        match self.read(libc::PACKET_STATISTICS, &mut statistics) {
            Ok(()) => u64::from(statistics[1]),
            Err(_) => 0,
        }
    }

    /// Clears an error that arrived by itself (the interface went down), so that nobody who waits for
    /// the socket is woken by it again.
    pub(super) fn clear_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.file);
    }

    /// Has the kernel send what is marked in the transmit ring.
    pub(super) fn kick(&self) -> Result<usize, Errno> {
        rustix::net::send(&self.file, &[], SendFlags::DONTWAIT)
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` octets of `value`, which outlives the call; the types
        // given in this file have no padding.
        let result = unsafe {
            let value = (&raw const *value).cast();
            libc::setsockopt(self.file.as_raw_fd(), LEVEL, option, value, length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn read<T: Numbers>(&self, option: libc::c_int, value: &mut T) -> io::Result<()> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` octets into `value`, and any octets are a value
        // of a type that is `Numbers`.
        let result = unsafe {
            let value = (&raw mut *value).cast();
            libc::getsockopt(self.file.as_raw_fd(), LEVEL, option, value, &raw mut length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Types of which every octet may have every value.
trait Numbers {}
impl Numbers for u32 {}
impl Numbers for [u32; 2] {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
