//! Adoption: taking over the queues of a process that has ended (hot restart).
//!
//! The kernel continues as long as any process holds the descriptors: the steering program claims
//! frames, and the sockets receive them until the fill rings are empty. The successor maps the
//! rings again and reads from them which frames are in flight. All other frames are free, whatever
//! the predecessor was doing with them.

use std::os::fd::OwnedFd;

use fastlane_core::{Pool, PoolLayout, PortId, Queue};
use fastlane_steer::{Program, ProgramHandover, XdpMode};
use fastlane_table::SharedMemory;

use crate::frame_set::FrameSet;
use crate::in_flight::{FRAME_SIZES, FrameQuota};
use crate::kernel_state::KernelState;
use crate::mtu::TransmitLength;
use crate::queue::{BoundSocket, OpenQueue};
use crate::ring_scan::RingScan;
use crate::socket::{MapError, Socket};
use crate::steering::Steering;
use crate::{
    BoundMode, Device, DeviceDescription, Error, OpenedQueue, QueueDescription, Settings, XskQueue,
};

/// Queues of one device to be taken over by a lane.
#[derive(Debug)]
pub struct AdoptRequest<'a> {
    /// The device, [adopted](Device::adopt).
    pub device: &'a mut Device,
    /// Port number of the packets that the queues receive.
    pub port: PortId,
    /// The queues, each with the socket of the predecessor.
    pub queues: Vec<(QueueDescription, OwnedFd)>,
}

/// Takes over all AF_XDP queues of one lane, with the memory of its pool: the lane's part of a hot
/// restart. The predecessor has ended; it may have been killed at any instruction.
///
/// Frames in the receive rings are received by the successor, frames in the transmit rings are
/// sent. This works in the copy modes only, because a zero-copy driver keeps frames where nobody
/// can see them. It takes less than a millisecond per queue. If frames are in flight, it waits up
/// to half a second for them. Statistics count from the time when the predecessor opened the queue.
///
/// # Errors
/// Returns the error of the first queue that cannot be taken over. All descriptors passed in are
/// closed. When the other duplicates of the sockets and links are closed too, the device can be
/// opened anew. [`Error::AdoptionTooOld`] means Linux before 6.4, [`Error::NotAdoptable`] any other
/// reason.
pub fn adopt_lane(
    memory: SharedMemory,
    frame_size: usize,
    headroom: usize,
    lane: Vec<AdoptRequest<'_>>,
) -> Result<(Pool, Vec<OpenedQueue>), Error> {
    if !frame_size.is_power_of_two() || !FRAME_SIZES.contains(&frame_size) {
        return Err(Error::FrameSize { size: frame_size });
    }
    let frames = u32::try_from(memory.len() / frame_size).unwrap_or(0);
    let none = FrameSet::empty(frames, frame_size);
    let queues = lane.iter().map(|inheritance| inheritance.queues.len()).sum();
    let (mut in_flight, mut found) = (none.clone(), Vec::with_capacity(queues));
    for AdoptRequest { device, port, queues } in lane {
        for (description, socket) in queues {
            let device = &mut *device;
            let queue = Candidate::examine(device, port, description, socket, &none)?;
            if !in_flight.add(&queue.scan.frames) {
                let reason = "it has frames that another queue has too".to_owned();
                return Err(refused(&device.settings, &description, reason));
            }
            device.insert(description.queue, &queue.bound.socket)?;
            found.push((queue, device.settings.clone()));
        }
    }
    let pool = Pool::adopt(memory, frame_size, headroom, &|index| in_flight.contains(index));
    let mut pool = pool.map_err(|_| Error::FrameSize { size: frame_size })?;
    let quota = FrameQuota::new(&pool.layout(), queues);
    let mut opened = Vec::with_capacity(queues);
    for (queue, settings) in found {
        opened.push(queue.open(&mut pool, &settings, quota));
    }
    Ok((pool, opened))
}

/// Frames of a pool.
#[derive(Clone, Copy)]
struct PoolFrames {
    /// Size in bytes.
    size: u32,
    count: u32,
}

/// A queue of the predecessor, with its rings mapped and scanned.
struct Candidate {
    bound: BoundSocket,
    scan: RingScan,
}

impl Candidate {
    /// Maps and scans the rings of a queue. `none` is the empty set of the pool's frames.
    fn examine(
        device: &Device,
        port: PortId,
        description: QueueDescription,
        socket: OwnedFd,
        none: &FrameSet,
    ) -> Result<Self, Error> {
        let frames = PoolFrames { size: none.frame_size() as u32, count: none.pool_frames() };
        let mut bound = BoundSocket::map(device, port, description, socket, frames)?;
        let scan = RingScan::new(&bound.socket, &mut bound.rings, none);
        let scan = scan.map_err(|reason| refused(&device.settings, &description, reason))?;
        Ok(Self { bound, scan })
    }
    /// Gives the queue its frames in flight, and refills its fill ring.
    fn open(self, pool: &mut Pool, settings: &Settings, quota: FrameQuota) -> OpenedQueue {
        let Self { bound, scan } = self;
        let notes = settings.busy_poll.map(|wanted| bound.socket.set_busy_poll(wanted));
        let BoundSocket { port, description: QueueDescription { queue, mode, .. }, .. } = bound;
        let mut open = OpenQueue::new(bound, &pool.layout(), settings, quota);
        open.inherit(pool, &scan);
        open.refill(pool);
        let handle = XskQueue::new(open);
        OpenedQueue { port, queue, handle, mode, notes: notes.unwrap_or_default() }
    }
}

impl BoundSocket {
    /// Maps the rings of a socket that another process has bound over a pool with these frames.
    fn map(
        device: &Device,
        port: PortId,
        description: QueueDescription,
        socket: OwnedFd,
        frames: PoolFrames,
    ) -> Result<Self, Error> {
        let settings = &device.settings;
        let unfit = |reason| refused(settings, &description, reason);
        check(device, &description, frames).map_err(unfit)?;
        let socket = Socket::adopt(socket);
        if socket.is_zero_copy() != (description.mode == BoundMode::ZeroCopy) {
            return Err(unfit("its socket is not in the mode that was written down".to_owned()));
        }
        let (receive, transmit) = (description.receive_ring, description.transmit_ring);
        let rings = socket.map_bound(receive, transmit);
        let rings = rings.map_err(|refusal| match refusal {
            MapError::TooOld => Error::AdoptionTooOld { interface: settings.interface.clone() },
            MapError::NoSocket => unfit("its descriptor is no AF_XDP socket".to_owned()),
            MapError::Unbound => unfit("its interface was deleted".to_owned()),
            MapError::Size => unfit("its rings do not have the sizes written down".to_owned()),
            MapError::Refused(error) => unfit(format!("mapping its rings: {error}")),
        })?;
        let zero_copy = description.mode == BoundMode::ZeroCopy;
        let state = KernelState::new(&socket, &device.transmit_length, zero_copy)
            .map_err(|error| unfit(error.to_string()))?;
        Ok(Self { socket, rings, state, port, description })
    }
}

/// Takes queues whose sockets another process has just bound for a lane, which has `lane_queues`
/// AF_XDP queues in total. No frame is in flight on them. A queue receives once the lane has called
/// [`Queue::receive`](fastlane_core::Queue::receive) and [`Device::claim_for`] names its socket.
///
/// # Errors
/// Returns the error of the first queue that cannot be used; all sockets are closed.
pub fn take_bound(
    pool: &PoolLayout,
    lane_queues: usize,
    request: AdoptRequest<'_>,
) -> Result<Vec<OpenedQueue>, Error> {
    let frame_size = pool.frame_size();
    if !FRAME_SIZES.contains(&frame_size) {
        return Err(Error::FrameSize { size: frame_size });
    }
    let frames = PoolFrames { size: frame_size as u32, count: pool.frames() as u32 };
    let quota = FrameQuota::new(pool, lane_queues);
    let AdoptRequest { device, port, queues } = request;
    let take = |(description, socket): (QueueDescription, OwnedFd)| {
        let bound = BoundSocket::map(device, port, description, socket, frames)?;
        let notes = device.settings.busy_poll.map(|wanted| bound.socket.set_busy_poll(wanted));
        let (queue, mode) = (description.queue, description.mode);
        let handle = XskQueue::new(OpenQueue::new(bound, pool, &device.settings, quota));
        Ok(OpenedQueue { port, queue, handle, mode, notes: notes.unwrap_or_default() })
    };
    queues.into_iter().map(take).collect()
}

/// Opens all AF_XDP queues of one lane, whose sockets another process has just bound with the
/// lane's pool as their UMEM, and starts reception: the part of [`open_lane`](crate::open_lane)
/// that needs no privilege.
///
/// # Errors
/// Returns the error of the first queue that failed. All queues are closed then, and their frames
/// are back in the pool.
pub fn open_bound_lane(
    pool: &mut Pool,
    requests: Vec<AdoptRequest<'_>>,
) -> Result<Vec<OpenedQueue>, Error> {
    let layout = pool.layout();
    let queues = requests.iter().map(|request| request.queues.len()).sum();
    let mut opened = Vec::with_capacity(queues);
    let mut open = |AdoptRequest { device, port, queues: mine }: AdoptRequest<'_>| {
        let request = AdoptRequest { device: &mut *device, port, queues: mine };
        for mut queue in take_bound(&layout, queues, request)? {
            let number = queue.queue;
            let started = queue.handle.start(&mut *device.steering, number, pool);
            opened.push(queue);
            started?;
        }
        Ok(())
    };
    let result = requests.into_iter().try_for_each(&mut open);
    match result {
        Ok(()) => Ok(opened),
        Err(error) => {
            opened.iter_mut().for_each(|one: &mut OpenedQueue| one.handle.close(pool));
            Err(error)
        }
    }
}

/// Checks that the configuration and the pool are those that the predecessor wrote down.
fn check(device: &Device, is: &QueueDescription, frames: PoolFrames) -> Result<(), String> {
    let Settings { index, receive_ring, transmit_ring, need_wakeup, .. } = device.settings;
    let numbers = [
        ("its interface", is.interface, index),
        ("the size of its receive ring", is.receive_ring, receive_ring),
        ("the size of its transmit ring", is.transmit_ring, transmit_ring),
        ("the use of wake-up flags", is.need_wakeup.into(), need_wakeup.into()),
        ("the size of frames", is.frame_size, frames.size),
        ("the number of frames", is.frames, frames.count),
    ];
    for (what, before, now) in numbers {
        if before != now {
            return Err(format!("{what} was {before} and is {now}"));
        }
    }
    Ok(())
}

fn refused(settings: &Settings, queue: &QueueDescription, reason: String) -> Error {
    let interface = settings.interface.clone();
    Error::NotAdoptable { interface, queue: queue.queue, reason }
}

impl Device {
    /// Returns what a successor needs to take over the device, besides the queues: its description
    /// and the descriptors of its steering program. `None` if the program is attached nowhere.
    #[must_use]
    pub fn handover(
        &self,
    ) -> Option<(DeviceDescription, ProgramHandover<std::os::fd::BorrowedFd<'_>>)> {
        let description = DeviceDescription {
            interface: self.settings.index,
            is_native: self.is_native(),
            copies: self.copies,
            max_length: self.max_length,
        };
        Some((description, self.steering.handover()?))
    }

    /// Takes over a device with its steering program, which has kept running since its process
    /// ended. The rules of the predecessor apply until they are [replaced](Self::replace_rules).
    ///
    /// # Errors
    /// Returns [`Error::Program`] if the descriptors are not those of a program on this interface,
    /// for example because the interface was deleted and created again.
    pub fn adopt(
        settings: Settings,
        description: &DeviceDescription,
        kept: ProgramHandover<OwnedFd>,
    ) -> Result<Self, Error> {
        let &DeviceDescription { is_native, copies, max_length, .. } = description;
        let steering = fastlane_steer::Settings { max_length, mark: 0, reenter_ifindex: 0 };
        let program = Program::adopt(kept, settings.index, steering)?;
        let attached = if is_native { XdpMode::Native } else { XdpMode::Generic };
        let fallbacks = Vec::new();
        let transmit_length = TransmitLength::of_interface(settings.index);
        let steering: Box<dyn Steering> = Box::new(program);
        let mut device =
            Self { settings, steering, attached, copies, max_length, transmit_length, fallbacks };
        device.limit_claims()?;
        Ok(device)
    }
}
