//! AF_PACKET socket calls: packet(7).
#![allow(unsafe_code, reason = "socket calls without a safe form")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use fastlane_core::Packet;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{ffi, virtio};

/// `SOL_PACKET`, and options that some headers lack: `linux/if_packet.h`.
const LEVEL: libc::c_int = 263;
const IGNORE_OUTGOING: libc::c_int = 23;
const FANOUT_UNIQUE_ID: u32 = 0x2000;
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
/// `ETH_P_ALL` in network byte order.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Maximum number of packets in one system call.
pub(super) const BATCH: usize = 32;
/// Size of the send buffer in bytes: about a millisecond at 40 Gbit/s.
const SEND_BUFFER: usize = 4 << 20;

/// `struct tpacket_req`: dimensions of a ring.
#[repr(C)]
pub(super) struct RingRequest {
    pub(super) block_size: u32,
    pub(super) blocks: u32,
    pub(super) frame_size: u32,
    pub(super) frames: u32,
}

/// AF_PACKET socket.
#[derive(Debug)]
pub(super) struct Socket {
    file: OwnedFd,
}

impl Socket {
    /// Opens a socket that receives nothing before it is bound.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let file = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        Ok(Self { file })
    }

    /// Duplicates the descriptor.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Sets the options that all sockets need.
    pub(super) fn prepare(&self) -> io::Result<()> {
        self.set(libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        // Says with each frame whether its checksum is partial, and lets us say so.
        self.set(libc::PACKET_VNET_HDR, &1)?;
        self.set(IGNORE_OUTGOING, &1)?;
        self.set(libc::PACKET_QDISC_BYPASS, &1)?;
        rustix::net::sockopt::set_socket_send_buffer_size_force(&self.file, SEND_BUFFER)
            .or_else(|_| rustix::net::sockopt::set_socket_send_buffer_size(&self.file, SEND_BUFFER))
            .map_err(Into::into)
    }

    pub(super) fn set_receive_ring(&self, request: &RingRequest) -> io::Result<()> {
        self.set(libc::PACKET_RX_RING, request)
    }

    /// Attaches a filter that rejects every frame until another filter replaces it.
    pub(super) fn refuse_all(&self) -> io::Result<()> {
        ffi::refuse_all(self.file.as_fd())
    }

    /// Locks the filter, so that whoever gets the socket cannot change it.
    pub(super) fn lock_filter(&self) -> io::Result<()> {
        self.set_at(libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1)
    }

    /// Takes a socket that another process has opened.
    pub(super) fn of(file: OwnedFd) -> Self {
        Self { file }
    }

    /// Returns the descriptor.
    pub(super) fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Binds the socket to an interface: it receives from there and sends to there.
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

    /// Joins a fanout group of sockets that share an interface, or creates one; returns its id.
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

    /// Returns the number of frames dropped since the last call because the ring was full.
    pub(super) fn take_drops(&self) -> u64 {
        // `struct tpacket_stats`: packets, drops. Reading sets both to zero.
        let mut statistics = [0_u32; 2];
        match self.read(libc::PACKET_STATISTICS, &mut statistics) {
            Ok(()) => u64::from(statistics[1]),
            Err(_) => 0,
        }
    }

    /// Clears a pending socket error (the interface went down), so that it does not wake poll
    /// again.
    pub(super) fn clear_error(&self) {
        let _ = rustix::net::sockopt::socket_error(&self.file);
    }

    /// Sends up to [`BATCH`] packets with their virtio headers; returns how many were sent from the
    /// first on, at least one.
    ///
    /// # Errors
    /// Why the first could not be sent.
    pub(super) fn send(
        &self,
        packets: &[Packet],
        headers: &[[u8; virtio::LENGTH]],
    ) -> Result<usize, Errno> {
        const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut parts = [[EMPTY; 2]; BATCH];
        // SAFETY: null pointers and zeros are a valid, empty `struct mmsghdr`.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for ((packet, header), (parts, message)) in
            packets.iter().zip(headers).zip(parts.iter_mut().zip(&mut messages))
        {
            parts[0] = part(header);
            parts[1] = part(packet.bytes());
            message.msg_hdr.msg_iov = parts.as_mut_ptr();
            message.msg_hdr.msg_iovlen = parts.len() as _;
            count += 1;
        }
        // SAFETY: the first `count` messages point to their two parts, and these to the header and
        // the bytes of a packet; all of it outlives the call, and the kernel only reads the bytes.
        let sent = unsafe {
            let file = self.file.as_raw_fd();
            libc::sendmmsg(file, messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        let number = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        usize::try_from(sent).map_err(|_| number(io::Error::last_os_error()))
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        self.set_at(LEVEL, option, value)
    }

    fn set_at<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` octets of `value`, which outlives the call; the types
        // given in this file have no padding.
        let result = unsafe {
            let value = (&raw const *value).cast();
            libc::setsockopt(self.file.as_raw_fd(), level, option, value, length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn read<T: Numbers>(&self, option: libc::c_int, value: &mut T) -> io::Result<()> {
        let mut length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` octets into `value`, and any octets are a
        // value of a type that is `Numbers`.
        let result = unsafe {
            let value = (&raw mut *value).cast();
            libc::getsockopt(self.file.as_raw_fd(), LEVEL, option, value, &raw mut length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn part(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Marker of types for which every bit pattern is valid.
trait Numbers {}
impl Numbers for u32 {}
impl Numbers for [u32; 2] {}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
