//! Taking over the queues of a process that has ended.
//!
//! The kernel goes on as long as somebody has the descriptors: the steering program claims frames,
//! and the sockets receive them until the fill rings are empty. The successor maps the rings again
//! and reads from them which frames the kernel has; all others are free, whatever the predecessor
//! had been doing with them.

use std::os::fd::OwnedFd;

use fastlane_core::{Pool, PortId};
use fastlane_steer::{Kept, Program, XdpMode};
use fastlane_table::SharedMemory;

use crate::active::{Active, Share};
use crate::census::{Census, Frames};
use crate::link::Link;
use crate::socket::{Rings, Socket, Unmapped};
use crate::{
    Device, DeviceDescription, Error, Obtained, Opened, QueueDescription, Settings, XskQueue,
};

/// The queues of one device that a lane shall take over.
#[derive(Debug)]
pub struct Inheritance<'a> {
    /// The device, [adopted](Device::adopt).
    pub device: &'a mut Device,
    /// The port that its packets are said to come from.
    pub port: PortId,
    /// The queues, with their sockets.
    pub queues: Vec<(QueueDescription, OwnedFd)>,
}

/// Takes over all AF_XDP queues of one lane, with the memory of its pool. It is the lane's part of
/// a hot restart: the predecessor may have been killed at any instruction, and has ended.
///
/// What waits in the receive rings is received by the successor, what waits to be sent is sent. In
/// copy mode only: of a driver without copies nobody can tell which frames it has. It takes less
/// than a millisecond for each queue, unless frames are on their way: for these it waits half a
/// second. Statistics count from when the predecessor opened the queue.
///
/// # Errors
/// Says for the first queue that cannot be taken over why. Then all descriptors given here are
/// closed; once the others of the same sockets and links are closed too, everything can be opened
/// anew. [`Error::AdoptionTooOld`] is that of Linux before 6.4, [`Error::NotAdoptable`] any other.
pub fn adopt_lane(
    memory: SharedMemory,
    frame_size: usize,
    headroom: usize,
    lane: Vec<Inheritance<'_>>,
) -> Result<(Pool, Vec<Opened>), Error> {
    let most = rustix::param::page_size();
    if !frame_size.is_power_of_two() || !(2048..=most).contains(&frame_size) {
        return Err(Error::FrameSize { size: frame_size, most });
    }
    let frames = u32::try_from(memory.len() / frame_size).unwrap_or(0);
    let none = Frames::none(frames, frame_size);
    let queues = lane.iter().map(|inheritance| inheritance.queues.len()).sum();
    let (mut lent, mut found) = (none.clone(), Vec::with_capacity(queues));
    for Inheritance { device, port, queues } in lane {
        for (description, socket) in queues {
            let device = &mut *device;
            let queue = Inherited::examine(device, port, (description, socket), &none)?;
            if !lent.add(&queue.census.frames) {
                let reason = "it has frames that another queue has too".to_owned();
                return Err(refused(&device.settings, &description, reason));
            }
            device.insert(description.queue, &queue.socket)?;
            found.push((queue, device.settings.clone()));
        }
    }
    let pool = Pool::adopt(memory, frame_size, headroom, &|index| lent.contains(index));
    let mut pool = pool.ok_or(Error::FrameSize { size: frame_size, most })?;
    let share = Share::new(&pool, queues);
    let mut opened = Vec::with_capacity(queues);
    for (queue, settings) in found {
        opened.push(queue.open(&mut pool, &settings, share));
    }
    Ok((pool, opened))
}

/// A queue whose rings are mapped and read.
struct Inherited {
    description: QueueDescription,
    port: PortId,
    socket: Socket,
    rings: Rings,
    link: Link,
    census: Census,
}

impl Inherited {
    fn examine(
        device: &Device,
        port: PortId,
        (description, socket): (QueueDescription, OwnedFd),
        none: &Frames,
    ) -> Result<Self, Error> {
        let settings = &device.settings;
        let unfit = |reason| refused(settings, &description, reason);
        check(device, &description, none).map_err(unfit)?;
        let socket = Socket::adopt(socket);
        if socket.is_zero_copy() != (description.mode == Obtained::ZeroCopy) {
            return Err(unfit("its socket is not in the mode that was written down".to_owned()));
        }
        let (receive, transmit) = (description.receive_ring, description.transmit_ring);
        let rings = socket.map_bound(receive, transmit);
        let mut rings = rings.map_err(|refusal| match refusal {
            Unmapped::TooOld => Error::AdoptionTooOld { interface: settings.interface.clone() },
            Unmapped::NoSocket => unfit("its descriptor is no AF_XDP socket".to_owned()),
            Unmapped::Unbound => unfit("its interface is gone".to_owned()),
            Unmapped::Size => unfit("its rings do not have the sizes written down".to_owned()),
            Unmapped::Refused(error) => unfit(format!("mapping its rings: {error}")),
        })?;
        let census = Census::take(&socket, &mut rings, none).map_err(unfit)?;
        let link = Link::new(settings.index).map_err(|error| unfit(error.to_string()))?;
        Ok(Self { description, port, socket, rings, link, census })
    }

    fn open(self, pool: &mut Pool, settings: &Settings, share: Share) -> Opened {
        let Self { description, port, socket, rings, link, census } = self;
        let notes = settings.busy_poll.map(|wanted| socket.set_busy_poll(wanted));
        let mut active =
            Active::new((socket, rings, link), pool, (port, description), settings, share);
        active.inherit(pool, &census);
        active.refill(pool);
        let (queue, mode) = (description.queue, description.mode);
        let handle = XskQueue::new(active);
        Opened { port, queue, handle, mode, notes: notes.unwrap_or_default() }
    }
}

/// What the configuration and the memory say must be what was written down.
fn check(device: &Device, is: &QueueDescription, none: &Frames) -> Result<(), String> {
    let Settings { index, receive_ring, transmit_ring, need_wakeup, .. } = device.settings;
    let numbers = [
        ("its interface", is.interface, index),
        ("the size of its receive ring", is.receive_ring, receive_ring),
        ("the size of its transmit ring", is.transmit_ring, transmit_ring),
        ("the use of wake-up flags", is.need_wakeup.into(), need_wakeup.into()),
        ("the size of frames", is.frame_size, none.frame_size() as u32),
        ("the number of frames", is.frames, none.all()),
    ];
    for (what, before, now) in numbers {
        if before != now {
            return Err(format!("{what} was {before} and is {now}"));
        }
    }
    Ok(())
}

pub(crate) fn refused(settings: &Settings, queue: &QueueDescription, reason: String) -> Error {
    let interface = settings.interface.clone();
    Error::NotAdoptable { interface, queue: queue.queue, reason }
}

impl Device {
    /// What must be kept of the device for a successor to take it over, besides the queues.
    #[must_use]
    pub fn kept(&self) -> Option<(DeviceDescription, Kept<std::os::fd::BorrowedFd<'_>>)> {
        let description = DeviceDescription {
            interface: self.settings.index,
            is_native: self.is_native(),
            copies: self.copies,
            max_length: self.max_length,
        };
        Some((description, self.program.kept()?))
    }

    /// Takes over a device with its steering program, which has run on since its process ended. The
    /// rules are those of the predecessor until they are [replaced](Self::replace_rules).
    ///
    /// # Errors
    /// [`Error::Program`] when the descriptors are not those of a program on this interface, or
    /// the interface is another one now.
    pub fn adopt(
        settings: Settings,
        description: &DeviceDescription,
        kept: Kept<OwnedFd>,
    ) -> Result<Self, Error> {
        let &DeviceDescription { is_native, copies, max_length, .. } = description;
        let steering = fastlane_steer::Settings { max_length, mark: 0, reenter_ifindex: 0 };
        let program = Program::adopt(kept, settings.index, steering)?;
        let attached = if is_native { XdpMode::Native } else { XdpMode::Generic };
        Ok(Self { settings, program, attached, copies, max_length })
    }
}
