//! Opening the queues of a lane, each in the best mode that its device and configuration allow.
//!
//! Zero-copy or copy, and the use of wake-up flags, belong to a UMEM: its first socket settles them
//! and the others share (af_xdp.rst, XDP_SHARED_UMEM). Queues that differ get a UMEM each, on the same
//! memory: a frame may still leave by any of them.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use fastlane_core::{Pool, PortId, Queue};
use rustix::io::Errno;

use crate::active::Active;
use crate::link::Link;
use crate::socket::{Binding, Rings, Socket};
use crate::{Device, Error, Mode, Obtained, Settings, XskQueue};

/// How long another socket on the queue is waited for: a closed one goes a little later.
const BUSY_WAITS: [u64; 32] = {
    let mut waits = [100; 32];
    (waits[0], waits[1], waits[2]) = (20, 40, 80);
    waits
};

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
/// The queues are for one thread, that of the lane. They lend at most half of the pool's frames for
/// receiving, in equal shares.
///
/// # Errors
/// Says for the first queue that could not be opened why. All others are closed again then, and their
/// frames are back in the pool.
pub fn open_lane(pool: &mut Pool, requests: &mut [Request<'_>]) -> Result<Vec<Opened>, Error> {
    let page = rustix::param::page_size();
    if !(2048..=page).contains(&pool.frame_size()) {
        return Err(Error::FrameSize { size: pool.frame_size(), most: page });
    }
    let queues: usize = requests.iter().map(|request| request.queues.len()).sum();
    let share = (pool.frames() / 2 / queues.max(1)).max(1);
    let mut ladder = Ladder { pool, umems: Vec::new(), share };
    let mut opened = Vec::with_capacity(queues);
    for request in requests {
        for &queue in &request.queues {
            match ladder.open(request.device, request.port, queue) {
                Ok(queue) => opened.push(queue),
                Err(error) => {
                    opened.iter_mut().for_each(|one: &mut Opened| one.handle.close(ladder.pool));
                    return Err(error);
                }
            }
        }
    }
    Ok(opened)
}

/// The pool, registered.
struct Umem {
    zero_copy: bool,
    need_wakeup: bool,
    /// The socket that registered it.
    first: OwnedFd,
}

struct Ladder<'a> {
    pool: &'a mut Pool,
    umems: Vec<Umem>,
    share: usize,
}

impl Ladder<'_> {
    fn open(&mut self, device: &mut Device, port: PortId, queue: u32) -> Result<Opened, Error> {
        let settings = &device.settings;
        let copies = device.copies || matches!(settings.mode, Mode::NativeCopy | Mode::GenericCopy);
        let (socket, rings) = match copies || !device.is_native() {
            true => self.bind(settings, queue, false)?,
            false => match self.bind(settings, queue, true) {
                Err(Error::ModeUnavailable { .. }) if settings.mode == Mode::Auto => {
                    device.copies = true;
                    self.bind(settings, queue, false)?
                }
                result => result?,
            },
        };
        let notes = settings.busy_poll.map(|wanted| socket.set_busy_poll(wanted));
        let mode = match (socket.is_zero_copy(), device.is_native()) {
            (true, _) => Obtained::ZeroCopy,
            (false, true) => Obtained::NativeCopy,
            (false, false) => Obtained::GenericCopy,
        };
        let link = Link::new(settings.index)
            .map_err(|source| kernel(&settings.interface, "asking for its MTU", source))?;
        let parts = (socket, rings, link);
        let active = Active::new(parts, self.pool, port, settings, mode, self.share);
        let mut handle = XskQueue::new(active);
        if let Err(error) = handle.start(&mut device.program, queue, self.pool) {
            handle.close(self.pool);
            return Err(error.into());
        }
        Ok(Opened { port, queue, handle, mode, notes: notes.unwrap_or_default() })
    }

    /// A socket on the queue, on a UMEM of this kind; makes one when there is none yet.
    fn bind(
        &mut self,
        settings: &Settings,
        queue: u32,
        zero_copy: bool,
    ) -> Result<(Socket, Rings), Error> {
        let need_wakeup = settings.need_wakeup;
        let interface = &settings.interface;
        let socket = Socket::new().map_err(|errno| no_socket(interface, errno))?;
        let umem = self
            .umems
            .iter()
            .find(|umem| umem.zero_copy == zero_copy && umem.need_wakeup == need_wakeup);
        if umem.is_none() {
            socket
                .register(self.pool)
                .map_err(|errno| not_registered(interface, self.pool, errno))?;
        }
        let rings = socket
            .rings(settings.receive_ring, settings.transmit_ring)
            .map_err(|source| kernel(interface, "making the rings", source))?;
        let binding = match umem {
            Some(umem) => Binding::Sharing(umem.first.as_fd()),
            None => Binding::First { zero_copy, need_wakeup },
        };
        bind_when_free(&socket, settings, queue, binding)
            .map_err(|errno| not_bound(settings, queue, zero_copy, errno))?;
        if umem.is_none() {
            let first = socket
                .as_fd()
                .try_clone_to_owned()
                .map_err(|source| kernel(interface, "keeping the UMEM", source))?;
            self.umems.push(Umem { zero_copy, need_wakeup, first });
        }
        Ok((socket, rings))
    }
}

fn bind_when_free(
    socket: &Socket,
    settings: &Settings,
    queue: u32,
    binding: Binding<'_>,
) -> Result<(), Errno> {
    for wait in BUSY_WAITS {
        match socket.bind(settings.index, queue, binding) {
            Err(Errno::BUSY) => thread::sleep(Duration::from_millis(wait)),
            result => return result,
        }
    }
    Err(Errno::BUSY)
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
        Errno::NOBUFS | Errno::NOMEM => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
            Error::LockedMemory {
                limit: limit.current.unwrap_or(u64::MAX) / 1024,
                needed: (pool.frames() * pool.frame_size() / 1024) as u64,
            }
        }
        _ => kernel(interface, "registering the pool as UMEM", errno.into()),
    }
}

fn not_bound(settings: &Settings, queue: u32, zero_copy: bool, errno: Errno) -> Error {
    let interface = settings.interface.clone();
    match errno {
        Errno::BUSY => Error::QueueBusy { interface, queue },
        Errno::NODEV | Errno::NXIO => Error::NoInterface { interface },
        Errno::PERM | Errno::ACCESS => Error::NoPrivilege { interface },
        // What a driver answers that cannot do zero-copy, or not in the present setting, varies.
        _ if zero_copy => Error::ModeUnavailable {
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
