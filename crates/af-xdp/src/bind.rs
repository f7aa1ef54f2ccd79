//! Opening the queues of a lane: each socket is bound in the best mode that its device and the
//! configuration allow.
//!
//! Zero-copy or copy, and the use of wake-up flags, are properties of a UMEM: its first socket sets
//! them and the others share them (af_xdp.rst, XDP_SHARED_UMEM). Queues that differ get a UMEM
//! each, over the same memory, so a frame may still leave by any of them.

use std::os::fd::{AsFd, OwnedFd};

use fastlane_core::{Pool, PoolLayout, PortId, Queue};
use rustix::io::Errno;

use crate::in_flight::{FRAME_SIZES, FrameQuota, is_multi_buffer};
use crate::kernel_state::KernelState;
use crate::queue::{BoundSocket, OpenQueue};
use crate::ring::Rings;
use crate::socket::{Binding, Socket};
use crate::{BoundMode, Device, Error, Mode, QueueDescription, Settings, XskQueue};

/// Queues of one device to be opened for a lane.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The device.
    pub device: &'a mut Device,
    /// Port number of the packets that the queues receive.
    pub port: PortId,
    /// Queue numbers on the device.
    pub queues: Vec<u32>,
}

/// An open queue.
#[derive(Debug)]
pub struct OpenedQueue {
    /// Port of the request.
    pub port: PortId,
    /// Queue number on the device.
    pub queue: u32,
    /// The queue, to be moved to the lane.
    pub handle: XskQueue,
    /// Mode in which the kernel bound the queue.
    pub mode: BoundMode,
    /// Modes and optional settings that the driver or the kernel refused, one text each. A mode
    /// that is refused for a device is in the notes of its first queue.
    pub notes: Vec<String>,
}

/// Opens all AF_XDP queues of one lane with its pool as their UMEM, and starts reception.
///
/// The queues are for one thread, that of the lane. Together they have at most half of the pool's
/// frames in flight for receiving and a quarter for transmitting, in equal shares. So a queue that
/// cannot send, or that nobody reads, leaves frames to the lane's other ports.
///
/// # Errors
/// Returns the error of the first queue that failed to open. The queues opened before it are closed
/// and their frames are back in the pool.
pub fn open_lane(
    pool: &mut Pool,
    requests: &mut [OpenRequest<'_>],
) -> Result<Vec<OpenedQueue>, Error> {
    let layout = pool.layout();
    let queues: usize = requests.iter().map(|request| request.queues.len()).sum();
    let mut binder = Binder::new(&layout, queues)?;
    let mut opened = Vec::with_capacity(queues);
    for OpenRequest { device, port, queues } in requests {
        for &queue in queues.iter() {
            let result = binder.open(device, *port, queue).and_then(|one| {
                opened.push(one);
                let handle = &mut opened.last_mut().expect("just pushed").handle;
                handle.start(&mut *device.steering, queue, pool)
            });
            if let Err(error) = result {
                // The binder has duplicates of the first sockets: while one is open, closing a
                // queue does not unbind its socket.
                drop(binder);
                opened.iter_mut().for_each(|one: &mut OpenedQueue| one.handle.close(pool));
                return Err(error);
            }
        }
    }
    Ok(opened)
}

/// Opens queues of a device again while a lane runs with the pool, which has `lane_queues` AF_XDP
/// queues afterwards. A queue receives once the lane has called [`Queue::receive`] and
/// [`Device::claim_for`] names its socket.
///
/// # Errors
/// Returns the error of the first queue that failed to open. The queues opened before it are
/// closed.
pub fn reopen(
    pool: &PoolLayout,
    lane_queues: usize,
    request: OpenRequest<'_>,
) -> Result<Vec<OpenedQueue>, Error> {
    let mut binder = Binder::new(pool, lane_queues)?;
    let OpenRequest { device, port, queues } = request;
    queues.into_iter().map(|queue| binder.open(device, port, queue)).collect()
}

/// A socket that is bound to a queue for another process.
#[derive(Debug)]
pub struct BoundQueue {
    /// Description of the queue, by which that process uses the socket.
    pub description: QueueDescription,
    /// The socket.
    pub socket: OwnedFd,
    /// Modes and optional settings that the driver or the kernel refused, one text each.
    pub notes: Vec<String>,
}

/// Binds the sockets of all AF_XDP queues of a lane of another process, whose pool is their UMEM.
/// No frame is claimed for them before that process has filled their fill rings and
/// [`Device::claim_for`] names them.
///
/// # Errors
/// Returns the error of the first queue that failed. The sockets bound before it are closed.
pub fn bind_lane(
    pool: &PoolLayout,
    requests: &mut [OpenRequest<'_>],
) -> Result<Vec<BoundQueue>, Error> {
    let queues = requests.iter().map(|request| request.queues.len()).sum();
    let mut binder = Binder::new(pool, queues)?;
    let mut bound = Vec::with_capacity(queues);
    for OpenRequest { device, port, queues } in requests {
        for &queue in queues.iter() {
            let (BoundSocket { socket, description, .. }, notes) =
                binder.bind_queue(device, *port, queue)?;
            bound.push(BoundQueue { description, socket: socket.into(), notes });
        }
    }
    Ok(bound)
}

/// Properties that the first socket of a UMEM sets for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UmemMode {
    zero_copy: bool,
    need_wakeup: bool,
}

impl UmemMode {
    fn as_first(self, pool: &PoolLayout) -> Binding<'static> {
        let Self { zero_copy, need_wakeup } = self;
        let multi_buffer = is_multi_buffer(pool.frame_size());
        Binding::First { zero_copy, need_wakeup, multi_buffer }
    }
}

/// A mode to try, and the one to fall back to if the kernel refuses it.
#[derive(Clone, Copy, Debug)]
struct ModeChoice {
    mode: UmemMode,
    fallback: Option<UmemMode>,
}

/// The pool, registered as a UMEM.
struct Umem {
    mode: UmemMode,
    /// Duplicate of the socket that registered it.
    first: OwnedFd,
}

/// A bound socket with its UMEM.
struct Bound {
    socket: Socket,
    rings: Rings,
    /// Index of the UMEM in the lane.
    umem: u32,
    /// True if this socket registered the UMEM.
    is_first: bool,
    /// Refusal of the mode that was tried first.
    refusal: Option<Errno>,
}

/// The UMEMs of a lane while its queues are opened.
struct Binder<'a> {
    pool: &'a PoolLayout,
    umems: Vec<Umem>,
    quota: FrameQuota,
}

impl<'a> Binder<'a> {
    /// Creates a binder for a lane with this number of queues.
    fn new(pool: &'a PoolLayout, queues: usize) -> Result<Self, Error> {
        if !pool.frame_size().is_power_of_two() || !FRAME_SIZES.contains(&pool.frame_size()) {
            return Err(Error::FrameSize { size: pool.frame_size() });
        }
        Ok(Self { pool, umems: Vec::new(), quota: FrameQuota::new(pool, queues) })
    }

    fn open(
        &mut self,
        device: &mut Device,
        port: PortId,
        queue: u32,
    ) -> Result<OpenedQueue, Error> {
        let (bound, notes) = self.bind_queue(device, port, queue)?;
        let mode = bound.description.mode;
        let open = OpenQueue::new(bound, self.pool, &device.settings, self.quota);
        Ok(OpenedQueue { port, queue, handle: XskQueue::new(open), mode, notes })
    }

    /// Binds a socket to a queue in the best mode. Returns it with the modes and settings that were
    /// refused.
    fn bind_queue(
        &mut self,
        device: &mut Device,
        port: PortId,
        queue: u32,
    ) -> Result<(BoundSocket, Vec<String>), Error> {
        let bound = self.bind_best(device, queue)?;
        let pool = self.pool;
        device.copies |= !bound.socket.is_zero_copy();
        let mut notes = std::mem::take(&mut device.fallbacks);
        notes.extend(bound.refusal.map(|it| format!("copies, because {}", refused_zero_copy(it))));
        let settings = &device.settings;
        notes.extend(settings.busy_poll.into_iter().flat_map(|it| bound.socket.set_busy_poll(it)));
        let mode = match (bound.socket.is_zero_copy(), device.is_native()) {
            (true, _) => BoundMode::ZeroCopy,
            (false, true) => BoundMode::NativeCopy,
            (false, false) => BoundMode::GenericCopy,
        };
        let Bound { socket, rings, umem, is_first, .. } = bound;
        let state = KernelState::new(&socket, &device.transmit_length, mode == BoundMode::ZeroCopy)
            .map_err(|source| kernel(&settings.interface, "duplicating the socket", source))?;
        let description = QueueDescription {
            interface: settings.index,
            queue,
            frame_size: pool.frame_size() as u32,
            frames: pool.frames() as u32,
            receive_ring: settings.receive_ring,
            transmit_ring: settings.transmit_ring,
            mode,
            need_wakeup: settings.need_wakeup,
            umem,
            is_first,
        };
        Ok((BoundSocket { socket, rings, state, port, description }, notes))
    }

    /// Binds a socket in zero-copy mode if the settings and the device allow it, otherwise in copy
    /// mode.
    fn bind_best(&mut self, device: &mut Device, queue: u32) -> Result<Bound, Error> {
        let settings = &device.settings;
        let only_copies = matches!(settings.mode, Mode::NativeCopy | Mode::GenericCopy);
        let copy = UmemMode { zero_copy: false, need_wakeup: settings.need_wakeup };
        let copying = ModeChoice { mode: copy, fallback: None };
        if only_copies || device.copies || !device.is_native() {
            return self.bind(settings, queue, copying);
        }
        let auto = settings.mode == Mode::Auto;
        let zero_copy = UmemMode { zero_copy: true, ..copy };
        let choice = ModeChoice { mode: zero_copy, fallback: auto.then_some(copy) };
        match self.bind(settings, queue, choice) {
            Err(Error::ModeUnavailable { reason, .. }) if auto => {
                device.fallbacks.push(format!("copies, because {reason}"));
                self.bind(&device.settings, queue, copying)
            }
            Err(error @ Error::LockedMemory { .. }) if auto => {
                device.fallbacks.push(format!("copies, because of locked memory: {error}"));
                self.bind(&device.settings, queue, copying)
            }
            result => result,
        }
    }

    /// Binds a socket to the queue on the UMEM of the chosen mode, which is registered if there is
    /// none yet. The fallback is used only for a first socket, while no UMEM of that mode exists.
    fn bind(
        &mut self,
        settings: &Settings,
        queue: u32,
        choice: ModeChoice,
    ) -> Result<Bound, Error> {
        let ModeChoice { mut mode, fallback } = choice;
        let interface = &settings.interface;
        let socket = Socket::new().map_err(|errno| no_socket(interface, errno))?;
        let number = self.umems.iter().position(|umem| umem.mode == mode);
        let umem = number.map(|number| &self.umems[number]);
        if umem.is_none() {
            socket
                .register(self.pool)
                .map_err(|errno| not_registered(interface, self.pool, errno))?;
        }
        let rings = socket
            .rings(settings.receive_ring, settings.transmit_ring)
            .map_err(|source| kernel(interface, "creating the rings", source))?;
        let first = umem.map(|umem| umem.first.as_fd());
        let binding = first.map_or(mode.as_first(self.pool), Binding::Sharing);
        let mut bound = socket.bind_when_free(settings.index, queue, binding);
        // The fallback reuses the socket: the memory of a closed one counts as locked for a while.
        let fallback = fallback.filter(|mode| self.umems.iter().all(|umem| umem.mode != *mode));
        let refused = bound.is_err_and(|errno| !matches!(errno, Errno::BUSY | Errno::NODEV));
        let mut refusal = None;
        if let (true, true, Some(fallback)) = (refused, first.is_none(), fallback) {
            (mode, refusal) = (fallback, bound.err());
            bound = socket.bind_when_free(settings.index, queue, mode.as_first(self.pool));
        }
        bound.map_err(|errno| self.not_bound(settings, queue, mode, errno))?;
        let is_first = first.is_none();
        let umem = number.unwrap_or(self.umems.len()) as u32;
        if is_first {
            let first = socket
                .as_fd()
                .try_clone_to_owned()
                .map_err(|source| kernel(interface, "duplicating the socket", source))?;
            self.umems.push(Umem { mode, first });
        }
        Ok(Bound { socket, rings, umem, is_first, refusal })
    }

    /// Returns the error of a refused bind(2).
    fn not_bound(&self, settings: &Settings, queue: u32, mode: UmemMode, errno: Errno) -> Error {
        let interface = settings.interface.clone();
        match errno {
            Errno::BUSY => Error::QueueBusy { interface, queue },
            Errno::NODEV | Errno::NXIO => Error::NoInterface { interface },
            Errno::PERM | Errno::ACCESS => Error::NoPrivilege { interface },
            // Drivers report in different ways that they cannot do zero-copy, or not as configured.
            _ if mode.zero_copy => Error::ModeUnavailable {
                interface,
                mode: Mode::ZeroCopy,
                reason: refused_zero_copy(errno),
            },
            Errno::INVAL if is_multi_buffer(self.pool.frame_size()) => {
                Error::NoMultiBuffer { interface, queue, size: self.pool.frame_size() }
            }
            Errno::INVAL => Error::NoQueue { interface, queue },
            _ => kernel(&interface, &format!("binding to queue {queue}"), errno.into()),
        }
    }
}

fn refused_zero_copy(errno: Errno) -> String {
    format!("the driver refuses zero-copy as it is configured now: {errno}")
}

fn no_socket(interface: &str, errno: Errno) -> Error {
    let interface = interface.to_owned();
    match errno {
        Errno::PERM | Errno::ACCESS => Error::NoPrivilege { interface },
        Errno::AFNOSUPPORT => Error::NoAfXdp { interface },
        _ => kernel(&interface, "creating an AF_XDP socket", errno.into()),
    }
}

fn not_registered(interface: &str, pool: &PoolLayout, errno: Errno) -> Error {
    match errno {
        Errno::NOBUFS => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
            Error::LockedMemory {
                limit: limit.current.unwrap_or(u64::MAX) / 1024,
                needed: (pool.frames() * pool.frame_size() / 1024) as u64,
            }
        }
        _ => kernel(interface, "registering the pool as UMEM", errno.into()),
    }
}

fn kernel(interface: &str, action: &str, source: std::io::Error) -> Error {
    Error::Kernel { interface: interface.to_owned(), action: action.to_owned(), source }
}
