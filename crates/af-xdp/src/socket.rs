//! AF_XDP sockets: creation, binding and options.
#![allow(unsafe_code, reason = "socket options without a safe form")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use fastlane_core::PoolLayout;
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpOptionsFlags,
    XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::BusyPoll;
use crate::in_flight::chunk_size;
use crate::ring::{Consumer, Descriptor, Mapped, Producer, Rings};

/// XDP_MAX_TX_SKB_BUDGET: maximum number of frames that one call sends in copy mode; 32 unless set
/// (Linux 6.17).
const MAX_TX_SKB_BUDGET: i32 = 9;
/// SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET of asm-generic/socket.h.
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// Waits for a queue to become free, in milliseconds, about three seconds in total. The kernel
/// releases a queue a little after its socket was closed.
const BUSY_WAITS: [u64; 35] = {
    let mut waits = [100; 35];
    (waits[0], waits[1], waits[2], waits[3], waits[4]) = (5, 10, 20, 40, 80);
    waits
};

/// Time that a driver may take to release a queue, used when that cannot be observed.
const RELEASE: Duration = Duration::from_millis(50);

/// Role of a socket in its UMEM when it is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding<'a> {
    /// The first socket of a UMEM, which sets its properties.
    First { zero_copy: bool, need_wakeup: bool, multi_buffer: bool },
    /// Sharing the UMEM, and its properties, of a bound socket.
    Sharing(BorrowedFd<'a>),
}

/// Error of mapping the rings of a bound socket.
#[derive(Debug)]
pub(crate) enum MapError {
    /// The descriptor is not an AF_XDP socket.
    NoSocket,
    /// The socket is no longer bound.
    Unbound,
    /// The rings have other sizes.
    Size,
    /// Linux before 6.4.
    TooOld,
    /// The kernel refused for another reason.
    Refused(io::Error),
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// Sets busy polling on an AF_XDP socket that another process has opened.
///
/// # Errors
/// The options that the kernel refused, with its reasons.
pub fn set_busy_poll(socket: BorrowedFd<'_>, wanted: BusyPoll) -> Result<(), String> {
    let socket = socket.try_clone_to_owned().map_err(|error| error.to_string())?;
    let refused = Socket::of(socket).set_busy_poll(wanted);
    if refused.is_empty() { Ok(()) } else { Err(refused.join("; ")) }
}

impl Socket {
    pub(crate) fn new() -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC;
        rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).map(Self)
    }

    /// Registers the pool's memory as a UMEM. The kernel pins its pages.
    pub(crate) fn register(&self, pool: &PoolLayout) -> Result<(), Errno> {
        let registration = XdpUmemReg {
            addr: pool.start() as u64,
            len: (pool.frames() * pool.frame_size()) as u64,
            chunk_size: chunk_size(pool.frame_size()) as u32,
            // The kernel reserves KERNEL_HEADROOM in addition.
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&self.0, registration)
    }

    /// Creates and maps the rings.
    pub(crate) fn rings(&self, receive: u32, transmit: u32) -> io::Result<Rings> {
        sockopt::set_xdp_umem_fill_ring_size(&self.0, receive)?;
        sockopt::set_xdp_umem_completion_ring_size(&self.0, transmit)?;
        sockopt::set_xdp_rx_ring_size(&self.0, receive)?;
        sockopt::set_xdp_tx_ring_size(&self.0, transmit)?;
        let rings = self.map(receive, transmit)?;
        // Older kernels refuse the option and send 32 frames per call; `flush` calls again.
        let _ = self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, transmit);
        Ok(rings)
    }

    /// Maps the rings. Their ends start at the present indices.
    fn map(&self, receive: u32, transmit: u32) -> io::Result<Rings> {
        let offsets = sockopt::xdp_mmap_offsets(&self.0)?;
        let socket = self.0.as_fd();
        let received = Mapped::new(socket, XDP_PGOFF_RX_RING, &offsets.rx, receive)?;
        let sending = Mapped::new(socket, XDP_PGOFF_TX_RING, &offsets.tx, transmit)?;
        let fill = Mapped::new(socket, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr, receive)?;
        let completion =
            Mapped::new(socket, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr, transmit)?;
        Ok(Rings {
            fill: Producer::new(fill),
            completion: Consumer::new(completion),
            receive: Consumer::new(received),
            transmit: Producer::new(sending),
        })
    }

    /// Wraps a socket that another process has bound.
    pub(crate) fn adopt(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Maps the rings of a socket that another process has bound. The kernel does not report their
    /// sizes, but maps no more pages than a ring has: exactly the pages of the given sizes must be
    /// mappable.
    pub(crate) fn map_bound(&self, receive: u32, transmit: u32) -> Result<Rings, MapError> {
        let offsets = sockopt::xdp_mmap_offsets(&self.0).map_err(|_| MapError::NoSocket)?;
        let socket = self.0.as_fd();
        for (page, ring, size) in
            [(XDP_PGOFF_RX_RING, &offsets.rx, receive), (XDP_PGOFF_TX_RING, &offsets.tx, transmit)]
        {
            match Mapped::<Descriptor>::new(socket, page, ring, size) {
                // The interface was deleted, which unbound the socket.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    return Err(MapError::Unbound);
                }
                Ok(mapped) if !mapped.is_part(socket, page) => {}
                _ => return Err(MapError::Size),
            }
        }
        // The rings of the socket could be mapped, so the failing ones are the fill and the
        // completion ring. After bind they belong to the UMEM, where Linux finds them since 6.4.
        self.map(receive, transmit).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => MapError::TooOld,
            _ => MapError::Refused(error),
        })
    }

    /// Binds the socket to a queue of an interface.
    pub(crate) fn bind(&self, index: u32, queue: u32, binding: Binding<'_>) -> Result<(), Errno> {
        match binding {
            Binding::First { zero_copy, need_wakeup, multi_buffer } => {
                let mut flags = match zero_copy {
                    true => SocketAddrXdpFlags::XDP_ZEROCOPY,
                    false => SocketAddrXdpFlags::XDP_COPY,
                };
                flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, need_wakeup);
                flags.set(SocketAddrXdpFlags::XDP_USE_SG, multi_buffer);
                rustix::net::bind(&self.0, &SocketAddrXdp::new(flags, index, queue))
            }
            Binding::Sharing(first) => {
                let flags = SocketAddrXdpFlags::XDP_SHARED_UMEM;
                let addr = SocketAddrXdp::new(flags, index, queue);
                let address = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: first };
                rustix::net::bind(&self.0, &address)
            }
        }
    }

    /// Binds the socket as soon as no other socket is on the queue. Fails after about three
    /// seconds.
    pub(crate) fn bind_when_free(
        &self,
        index: u32,
        queue: u32,
        binding: Binding<'_>,
    ) -> Result<(), Errno> {
        for wait in BUSY_WAITS {
            match self.bind(index, queue, binding) {
                Err(Errno::BUSY) => thread::sleep(Duration::from_millis(wait)),
                result => return result,
            }
        }
        Err(Errno::BUSY)
    }

    /// Waits until the driver has released a queue whose socket was closed. Until then a zero-copy
    /// device may still read and write the frames. The queue can be bound again afterwards.
    pub(crate) fn await_release(pool: &PoolLayout, index: u32, queue: u32) {
        let binding = Binding::First { zero_copy: false, need_wakeup: false, multi_buffer: false };
        let free = Self::new().map_err(io::Error::from).and_then(|socket| {
            socket.register(pool)?;
            let _rings = socket.rings(64, 64)?;
            Ok(socket.bind_when_free(index, queue, binding)?)
        });
        if free.is_err() {
            // No permission to bind, or the interface was deleted: the driver releases within
            // milliseconds.
            thread::sleep(RELEASE);
        }
    }

    /// Returns true if the kernel reports zero-copy mode.
    pub(crate) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.0)
            .is_ok_and(|flags| flags.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// Duplicates the descriptor.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Returns the kernel's drop counters.
    pub(crate) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.0).ok()
    }

    /// Takes a socket that another process has opened.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self(file)
    }

    /// Sets the busy-poll options that differ; returns one text for each that the kernel refused.
    pub(crate) fn set_busy_poll(&self, wanted: BusyPoll) -> Vec<String> {
        let options = [
            ("SO_PREFER_BUSY_POLL", SO_PREFER_BUSY_POLL, 1),
            ("SO_BUSY_POLL", libc::SO_BUSY_POLL, wanted.microseconds),
            ("SO_BUSY_POLL_BUDGET", SO_BUSY_POLL_BUDGET, wanted.budget),
        ];
        let refused = options.into_iter().filter_map(|(name, option, value)| {
            // Setting a value needs CAP_NET_ADMIN even if it does not change, so read first.
            if self.read(libc::SOL_SOCKET, option).is_ok_and(|present| present == value) {
                return None;
            }
            let refusal = self.set(libc::SOL_SOCKET, option, value).err()?;
            Some(format!("{name} = {value} was refused: {refusal}"))
        });
        refused.collect()
    }

    fn set(&self, level: i32, option: i32, value: u32) -> io::Result<()> {
        let length = size_of::<u32>() as u32;
        // SAFETY: the pointer and the length describe `value`, which outlives the call.
        let result = unsafe {
            let value = (&raw const value).cast();
            libc::setsockopt(self.0.as_raw_fd(), level, option, value, length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn read(&self, level: i32, option: i32) -> io::Result<u32> {
        let (mut value, mut length) = (0_u32, size_of::<u32>() as u32);
        // SAFETY: the pointers and the length describe `value`, which outlives the call.
        let result = unsafe {
            let value = (&raw mut value).cast();
            libc::getsockopt(self.0.as_raw_fd(), level, option, value, &raw mut length)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
