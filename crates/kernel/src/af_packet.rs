//! AF_PACKET ports: frames of an interface that stays with Linux.
//!
//! An AF_PACKET port works on every interface and needs no XDP; it costs up to half as much again
//! as AF_XDP. Sources: packet(7) and Documentation/networking/packet_mmap.rst of the kernel.
//!
//! Frames are received by a ring shared with the kernel, of version 2: version 3 delivers whole
//! blocks, so a single frame would wait for a timer. Frames are sent by sendmmsg(2): on veth that
//! costs 0.88 of a transmit ring, whose pages the kernel copies anyway, and its result tells which
//! frame was refused.
//!
//! Two programs of `fastlane-steer` divide the frames: one at the interface's ingress keeps claimed
//! frames from Linux, and a filter on the sockets keeps all others from the port.

mod packet_queue;
mod ring;
mod socket;

use std::io::ErrorKind;
use std::os::fd::AsFd;

use fastlane_core::PortId;
use fastlane_steer::{Counts, Program, Rules, Settings};

pub use packet_queue::AfPacketQueue;

use crate::error::{Error, NET_RAW};
use crate::interface::Interface;
use ring::{Geometry, Ring};
use socket::Socket;

/// Allowed numbers of frames in a ring.
const RING_FRAMES: std::ops::RangeInclusive<u32> = 64..=65536;
/// Maximum frame length in bytes.
const MOST_LENGTH: u32 = 65536;
/// Maximum number of sockets that share an interface: the default limit of a fanout group.
const MOST_QUEUES: usize = 256;

/// Settings of an AF_PACKET port.
#[derive(Clone, Debug)]
pub struct AfPacketSettings {
    /// Interface of the port.
    pub interface: Interface,
    /// Number of queues, at least one for each lane. Linux distributes flows over them by a hash of
    /// addresses and ports.
    pub queues: usize,
    /// Number of frames in the receive ring of each queue, a power of two from 64 to 65536.
    pub ring_frames: u32,
    /// Maximum length of received frames in bytes, with Ethernet header and VLAN tags: at most the
    /// room in a pool frame. Longer frames that the rules claim are left to Linux and counted.
    pub max_length: u32,
    /// True if frames for other Ethernet addresses are received too. The rules claim them like
    /// others.
    pub promiscuous: bool,
    /// Mark (SO_MARK) of frames that re-enter, see [`reentry`](crate::reentry); 0 for none.
    pub mark: u32,
}

impl AfPacketSettings {
    /// Creates the default settings for an interface, with one queue.
    #[must_use]
    pub fn new(interface: Interface) -> Self {
        let max_length = interface.mtu.saturating_add(14 + 2 * 4).min(MOST_LENGTH);
        Self { interface, queues: 1, ring_frames: 2048, max_length, promiscuous: false, mark: 0 }
    }
}

/// An open AF_PACKET interface: its queues, until lanes take them, and its steering.
///
/// Dropping it gives all frames of the interface back to Linux; its queues then receive nothing
/// that Linux does not see too, so they are closed first. Nothing is left behind when the process
/// is killed, except on kernels before 6.6 (see [`Program::attach_claim`]).
#[derive(Debug)]
pub struct Device {
    program: Program,
    queues: Vec<Option<AfPacketQueue>>,
}

impl Device {
    /// Opens all queues of the interface and claims packets by the rules.
    ///
    /// # Errors
    /// [`Error::Unfit`] for impossible settings or an interface without Ethernet header,
    /// [`Error::NoPrivilege`] without CAP_NET_RAW, [`Error::Program`], [`Error::Kernel`].
    pub fn open(settings: &AfPacketSettings, rules: &Rules) -> Result<Self, Error> {
        check(settings)?;
        let name = &settings.interface.name;
        let steering =
            Settings { max_length: settings.max_length, mark: settings.mark, reenter_ifindex: 0 };
        let mut program = Program::load(rules, steering)?;
        program.release()?;
        let mut sockets = Vec::with_capacity(settings.queues);
        for _ in 0..settings.queues {
            sockets.push(socket(settings)?);
        }
        join(&sockets, settings)?;
        // Only a whole group gives each frame to one socket. Until all programs are attached they
        // claim nothing, so no frame is lost, and none goes both to Linux and to a socket.
        for (socket, _) in &sockets {
            program.attach_select(socket.as_fd())?;
        }
        program.attach_claim(name)?;
        program.replace_rules(rules)?;
        let queues = sockets.into_iter().map(|(socket, ring)| {
            AfPacketQueue::new(socket, ring).map(Some).map_err(|error| {
                Error::kernel(format!("{name}: duplicating the AF_PACKET socket"), NET_RAW, error)
            })
        });
        Ok(Self { program, queues: queues.collect::<Result<_, _>>()? })
    }

    /// Takes a queue out for the port `port`; `None` if it does not exist or was taken before.
    #[must_use]
    pub fn queue(&mut self, port: PortId, number: usize) -> Option<AfPacketQueue> {
        self.queues.get_mut(number)?.take().map(|queue| queue.with_port(port))
    }

    /// Replaces the rules while frames arrive. Each frame is judged by the old or the new list, and
    /// none goes both to this port and to Linux ([`Program::replace_rules`]).
    ///
    /// # Errors
    /// [`Error::Program`]; then the old rules stay in force.
    pub fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        Ok(self.program.replace_rules(rules)?)
    }

    /// Leaves all frames to Linux from now on, before the queues are closed. Frames that were
    /// claimed before are in the rings when it returns.
    ///
    /// # Errors
    /// [`Error::Program`]; then the rules stay in force.
    pub fn release(&mut self) -> Result<(), Error> {
        Ok(self.program.release()?)
    }

    /// Returns the steering counters over all queues.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn counts(&self) -> Result<Counts, Error> {
        Ok(self.program.counts()?)
    }
}

fn check(settings: &AfPacketSettings) -> Result<(), Error> {
    let interface = &settings.interface.name;
    let unfit = |subject: String, reason: &str, remedy: &str| {
        let (reason, remedy) = (reason.to_owned(), remedy.to_owned());
        Err(Error::Unfit { subject, reason, remedy })
    };
    if !settings.interface.ethernet {
        let remedy = "use an Ethernet interface";
        return unfit(interface.clone(), "its frames have no Ethernet header", remedy);
    }
    if !settings.ring_frames.is_power_of_two() || !RING_FRAMES.contains(&settings.ring_frames) {
        let subject = format!("{interface}: a ring of {} frames", settings.ring_frames);
        return unfit(subject, "not a power of two from 64 to 65536", "use 2048");
    }
    if !(1..=MOST_QUEUES).contains(&settings.queues) {
        let subject = format!("{interface}: {} queues by AF_PACKET", settings.queues);
        return unfit(subject, "Linux allows 1 to 256", "use one for each lane");
    }
    if !(64..=MOST_LENGTH).contains(&settings.max_length) {
        let subject = format!("{interface}: frames of up to {} octets", settings.max_length);
        return unfit(subject, "they must be from 64 to 65536", "use frames of 2048 octets");
    }
    Ok(())
}

/// Creates a socket and its ring. It receives nothing before a steering program is attached, even
/// if bound.
fn socket(settings: &AfPacketSettings) -> Result<(Socket, Ring), Error> {
    let name = &settings.interface.name;
    let refused = |action: &str, error| Error::kernel(format!("{name}: {action}"), NET_RAW, error);
    let socket = Socket::open().map_err(|error| refused("opening an AF_PACKET socket", error))?;
    socket
        .prepare()
        .and_then(|()| socket.refuse_all())
        .map_err(|error| refused("setting AF_PACKET options", error))?;
    let geometry = Geometry::new(settings.max_length, settings.ring_frames);
    let ring = Ring::new(&socket, geometry).map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => Error::Unfit {
            subject: format!("{name}: an AF_PACKET ring of {} octets", geometry.length()),
            reason: "the kernel has no memory for it".to_owned(),
            remedy: "use a ring of fewer frames, or frames of fewer octets".to_owned(),
        },
        _ => refused("making an AF_PACKET ring", error),
    })?;
    Ok((socket, ring))
}

/// Binds the sockets; several share the interface as one fanout group.
fn join(sockets: &[(Socket, Ring)], settings: &AfPacketSettings) -> Result<(), Error> {
    let Interface { name, index, .. } = &settings.interface;
    let mut group = None;
    for (socket, _) in sockets {
        let refused =
            |action: &str, error| Error::kernel(format!("{name}: {action}"), NET_RAW, error);
        socket.bind(*index).map_err(|error| refused("binding the AF_PACKET socket", error))?;
        if sockets.len() > 1 {
            let joined = socket.join(group).map_err(|error| {
                refused("sharing the interface among queues (PACKET_FANOUT; is it up?)", error)
            })?;
            group = Some(joined);
        }
        if settings.promiscuous {
            socket
                .set_promiscuous(*index)
                .map_err(|error| refused("setting the interface promiscuous", error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
