//! Opening the queues of a lane, each in the best mode that its device and configuration allow.
//!
//! Zero-copy or copy, and the use of wake-up flags, belong to a UMEM: its first socket settles them
//! and the others share (af_xdp.rst, XDP_SHARED_UMEM). Queues that differ get a UMEM each, on the
//! same memory: a frame may still leave by any of them.

use std::os::fd::{AsFd, OwnedFd};

use fastlane_core::{Pool, PortId, Queue};
use rustix::io::Errno;

use crate::active::{Active, Share};
use crate::link::Link;
use crate::socket::{Binding, Rings, Socket};
use crate::{Device, Error, Mode, Obtained, QueueDescription, Settings, XskQueue};

/// The queues of one device that a lane shall own.
#[derive(Debug)]
pub struct Request<'a> {
    /// The device.
    pub device: &'a mut Device,
    /// The port that its packets are said to come from.
    pub port: PortId,
    /// The numbers of the queues.
    pub queues: Vec<u32>,
}

/// A queue that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The port of the request.
    pub port: PortId,
    /// The number of the queue on its device.
    pub queue: u32,
    /// The queue, to be moved to the lane.
    pub handle: XskQueue,
    /// How frames come from the driver.
    pub mode: Obtained,
    /// What was wished for and refused, but is not needed.
    pub notes: Vec<String>,
}

/// Opens all AF_XDP queues of one lane, with its pool as their memory, and lets the frames come.
///
/// The queues are for one thread, that of the lane. Together they lend at most half of the pool's
/// frames for receiving and a quarter for sending, in equal shares, so that whatever one of them
/// cannot send, or nobody fetches, there are frames for the lane's other ports.
///
/// # Errors
/// Says for the first queue that could not be opened why. All others are closed again then, and
/// their frames are back in the pool.
pub fn open_lane(pool: &mut Pool, requests: &mut [Request<'_>]) -> Result<Vec<Opened>, Error> {
    let page = rustix::param::page_size();
    if !(2048..=page).contains(&pool.frame_size()) {
        return Err(Error::FrameSize { size: pool.frame_size(), most: page });
    }
    let queues: usize = requests.iter().map(|request| request.queues.len()).sum();
    let mut ladder = Ladder { umems: Vec::new(), share: Share::new(pool, queues) };
    let mut opened = Vec::with_capacity(queues);
    for Request { device, port, queues } in requests {
        for &queue in queues.iter() {
            let result = ladder.open(device, *port, queue, pool).and_then(|one| {
                opened.push(one);
                let handle = &mut opened.last_mut().expect("just pushed").handle;
                Ok(handle.start(&mut device.program, queue, pool)?)
            });
            if let Err(error) = result {
                // The first sockets, so that closing the queues closes them.
                drop(ladder);
                opened.iter_mut().for_each(|one: &mut Opened| one.handle.close(pool));
                return Err(error);
            }
        }
    }
    Ok(opened)
}

/// What the first socket of a UMEM settles for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    zero_copy: bool,
    need_wakeup: bool,
}

impl Kind {
    fn as_first(self) -> Binding<'static> {
        Binding::First { zero_copy: self.zero_copy, need_wakeup: self.need_wakeup }
    }
}

/// The pool, registered.
struct Umem {
    kind: Kind,
    /// The socket that registered it.
    first: OwnedFd,
}

struct Ladder {
    umems: Vec<Umem>,
    share: Share,
}

impl Ladder {
    fn open(
        &mut self,
        device: &mut Device,
        port: PortId,
        queue: u32,
        pool: &Pool,
    ) -> Result<Opened, Error> {
        let settings = &device.settings;
        let only_copies = matches!(settings.mode, Mode::NativeCopy | Mode::GenericCopy);
        let copy = Kind { zero_copy: false, need_wakeup: settings.need_wakeup };
        let (socket, rings, (umem, is_first)) =
            match only_copies || device.copies || !device.is_native() {
                true => self.bind(settings, queue, (copy, None), pool)?,
                false => {
                    let zero_copy = Kind { zero_copy: true, ..copy };
                    let auto = settings.mode == Mode::Auto;
                    match self.bind(settings, queue, (zero_copy, auto.then_some(copy)), pool) {
                        Err(Error::ModeUnavailable { .. } | Error::LockedMemory { .. }) if auto => {
                            self.bind(settings, queue, (copy, None), pool)?
                        }
                        result => result?,
                    }
                }
            };
        device.copies |= !socket.is_zero_copy();
        let settings = &device.settings;
        let notes = settings.busy_poll.map(|wanted| socket.set_busy_poll(wanted));
        let mode = match (socket.is_zero_copy(), device.is_native()) {
            (true, _) => Obtained::ZeroCopy,
            (false, true) => Obtained::NativeCopy,
            (false, false) => Obtained::GenericCopy,
        };
        let link = Link::new(settings.index)
            .map_err(|source| kernel(&settings.interface, "asking for its MTU", source))?;
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
        let parts = (socket, rings, link);
        let active = Active::new(parts, pool, (port, description), settings, self.share);
        let handle = XskQueue::new(active);
        Ok(Opened { port, queue, handle, mode, notes: notes.unwrap_or_default() })
    }

    /// A socket on the queue, on a UMEM of the first kind; else, if no socket must share, of the
    /// second. Makes the UMEM when there is none yet. Also the UMEM's number, and whether this is
    /// its first socket.
    fn bind(
        &mut self,
        settings: &Settings,
        queue: u32,
        (mut kind, lower): (Kind, Option<Kind>),
        pool: &Pool,
    ) -> Result<(Socket, Rings, (u32, bool)), Error> {
        let interface = &settings.interface;
        let socket = Socket::new().map_err(|errno| no_socket(interface, errno))?;
        let number = self.umems.iter().position(|umem| umem.kind == kind);
        let umem = number.map(|number| &self.umems[number]);
        if umem.is_none() {
            socket.register(pool).map_err(|errno| not_registered(interface, pool, errno))?;
        }
        let rings = socket
            .rings(settings.receive_ring, settings.transmit_ring)
            .map_err(|source| kernel(interface, "making the rings", source))?;
        let first = umem.map(|umem| umem.first.as_fd());
        let binding = first.map_or(kind.as_first(), Binding::Sharing);
        let mut bound = socket.bind_when_free(settings.index, queue, binding);
        // The same socket again: a closed one would count as locked memory for a while yet.
        let lower = lower.filter(|kind| self.umems.iter().all(|umem| umem.kind != *kind));
        let refused = bound.is_err_and(|errno| !matches!(errno, Errno::BUSY | Errno::NODEV));
        if let (true, true, Some(lower)) = (refused, first.is_none(), lower) {
            kind = lower;
            bound = socket.bind_when_free(settings.index, queue, kind.as_first());
        }
        bound.map_err(|errno| not_bound(settings, queue, kind, errno))?;
        let is_first = first.is_none();
        let number = number.unwrap_or(self.umems.len()) as u32;
        if is_first {
            let first = socket
                .as_fd()
                .try_clone_to_owned()
                .map_err(|source| kernel(interface, "keeping the UMEM", source))?;
            self.umems.push(Umem { kind, first });
        }
        Ok((socket, rings, (number, is_first)))
    }
}

fn no_socket(interface: &str, errno: Errno) -> Error {
    let interface = interface.to_owned();
    match errno {
        Errno::PERM | Errno::ACCESS => Error::NoPrivilege { interface },
        Errno::AFNOSUPPORT => Error::NoAfXdp { interface },
        _ => kernel(&interface, "making an AF_XDP socket", errno.into()),
    }
}

fn not_registered(interface: &str, pool: &Pool, errno: Errno) -> Error {
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

fn not_bound(settings: &Settings, queue: u32, kind: Kind, errno: Errno) -> Error {
    let interface = settings.interface.clone();
    match errno {
        Errno::BUSY => Error::QueueBusy { interface, queue },
        Errno::NODEV | Errno::NXIO => Error::NoInterface { interface },
        Errno::PERM | Errno::ACCESS => Error::NoPrivilege { interface },
        // What a driver answers that cannot do zero-copy, or not in the present setting, varies.
        _ if kind.zero_copy => Error::ModeUnavailable {
            interface,
            mode: Mode::ZeroCopy,
            reason: format!("the driver refuses: {errno}"),
        },
        Errno::INVAL => Error::NoQueue { interface, queue },
        _ => kernel(&interface, &format!("binding to queue {queue}"), errno.into()),
    }
}

fn kernel(interface: &str, action: &str, source: std::io::Error) -> Error {
    Error::Kernel { interface: interface.to_owned(), action: action.to_owned(), source }
}
