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

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};

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
    steering: Box<dyn Steering>,
    queues: Vec<Option<AfPacketQueue>>,
}

/// Control of the steering program of a port: by this process, which has loaded it, or by another
/// one that has the privilege. Not for lanes.
///
/// Errors of all methods are the refusals of the kernel or of the process that has the program.
#[allow(clippy::missing_errors_doc, reason = "they are the same for all methods")]
pub trait Steering: fmt::Debug + Send {
    /// Replaces the rules; on an error the old ones stay in force.
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error>;

    /// Leaves all frames to Linux from now on.
    fn release(&mut self) -> Result<(), Error>;

    /// Returns the counters.
    fn counts(&self) -> Result<Counts, Error>;

    /// Returns true if the interface of the program exists no longer, as far as this process can
    /// tell.
    fn has_lost_interface(&self) -> bool {
        false
    }

    /// Detaches the program if dropping this value does not.
    fn detach(&mut self) {}
}

impl Steering for Program {
    fn replace_rules(&mut self, rules: &Rules) -> Result<(), Error> {
        Ok(Self::replace_rules(self, rules)?)
    }

    fn release(&mut self) -> Result<(), Error> {
        Ok(Self::release(self)?)
    }

    fn counts(&self) -> Result<Counts, Error> {
        Ok(Self::counts(self)?)
    }

    fn has_lost_interface(&self) -> bool {
        Self::has_lost_interface(self).unwrap_or(false)
    }
}

impl Device {
    /// Opens all queues of the interface and claims packets by the rules.
    ///
    /// # Errors
    /// [`Error::Unfit`] for impossible settings or an interface without Ethernet header,
    /// [`Error::NoPrivilege`] without CAP_NET_RAW, [`Error::Program`], [`Error::Kernel`].
    pub fn open(settings: &AfPacketSettings, rules: &Rules) -> Result<Self, Error> {
        let mut program = load(settings, rules)?;
        let mut sockets = Vec::with_capacity(settings.queues);
        for _ in 0..settings.queues {
            sockets.push(socket(settings)?);
        }
        let joined: Vec<&Socket> = sockets.iter().map(|(socket, _)| socket).collect();
        join(&joined, settings, sockets.len() > 1)?;
        claim(&mut program, &joined, settings, rules)?;
        Self::new(settings, sockets, Box::new(program))
    }

    /// Creates the device of an interface from the sockets that another process has opened with
    /// these settings ([`open_for_client`]).
    ///
    /// # Errors
    /// [`Error::Kernel`] if a ring cannot be mapped.
    pub fn with_sockets(
        settings: &AfPacketSettings,
        sockets: Vec<OwnedFd>,
        steering: Box<dyn Steering>,
    ) -> Result<Self, Error> {
        check(settings)?;
        let geometry = Geometry::new(settings.max_length, settings.ring_frames);
        let map = |file| {
            let socket = Socket::of(file);
            let ring = Ring::map(&socket, geometry).map_err(|error| {
                let name = &settings.interface.name;
                Error::kernel(format!("{name}: mapping an AF_PACKET ring"), NET_RAW, error)
            });
            Ok((socket, ring?))
        };
        let sockets = sockets.into_iter().map(map).collect::<Result<_, Error>>()?;
        Self::new(settings, sockets, steering)
    }

    fn new(
        settings: &AfPacketSettings,
        sockets: Vec<(Socket, Ring)>,
        steering: Box<dyn Steering>,
    ) -> Result<Self, Error> {
        let queues = sockets.into_iter().map(|(socket, ring)| {
            AfPacketQueue::new(socket, ring).map(Some).map_err(|error| {
                let name = &settings.interface.name;
                Error::kernel(format!("{name}: duplicating the AF_PACKET socket"), NET_RAW, error)
            })
        });
        Ok(Self { steering, queues: queues.collect::<Result<_, _>>()? })
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
        self.steering.replace_rules(rules)
    }

    /// Leaves all frames to Linux from now on, before the queues are closed. Frames that were
    /// claimed before are in the rings when it returns.
    ///
    /// # Errors
    /// [`Error::Program`]; then the rules stay in force.
    pub fn release(&mut self) -> Result<(), Error> {
        self.steering.release()
    }

    /// Returns the steering counters over all queues.
    ///
    /// # Errors
    /// [`Error::Program`].
    pub fn counts(&self) -> Result<Counts, Error> {
        self.steering.counts()
    }

    /// Returns true if the interface exists no longer, also if another one has its index now. On
    /// kernels before 6.6, and with the steering program of another process, it cannot be told.
    #[must_use]
    pub fn has_lost_interface(&self) -> bool {
        self.steering.has_lost_interface()
    }

    /// Detaches the steering program.
    pub fn close(mut self) {
        self.steering.detach();
    }
}

/// Opens the sockets of an interface for another process, which maps their rings
/// ([`Device::with_sockets`]), and claims packets by the rules. Frames wait in the rings from then
/// on. Returns the steering program and the sockets.
///
/// The other process can neither change their filters nor bind them to another interface. It can
/// send on any interface of this network namespace, since sendto(2) names one.
///
/// # Errors
/// Those of [`Device::open`]; [`Error::Unfit`] before Linux 6.6, where the program could not be
/// pinned.
pub fn open_for_client(
    settings: &AfPacketSettings,
    rules: &Rules,
) -> Result<(Program, Vec<OwnedFd>), Error> {
    let mut program = load(settings, rules)?;
    let mut sockets = Vec::with_capacity(settings.queues);
    for _ in 0..settings.queues {
        sockets.push(unmapped_socket(settings)?);
    }
    let joined: Vec<&Socket> = sockets.iter().collect();
    // The kernel does not bind a member of a group to another interface.
    join(&joined, settings, true)?;
    claim(&mut program, &joined, settings, rules)?;
    let name = &settings.interface.name;
    if program.handover().is_none() {
        return Err(Error::Unfit {
            subject: format!("{name}: AF_PACKET for another process"),
            reason: "this kernel is older than 6.6".to_owned(),
            remedy: "use the driver `af-xdp`".to_owned(),
        });
    }
    for socket in &sockets {
        socket.lock_filter().map_err(|error| {
            Error::kernel(format!("{name}: locking the filter of a socket"), NET_RAW, error)
        })?;
    }
    Ok((program, sockets.into_iter().map(Socket::into_file).collect()))
}

/// Returns the memory of the rings of a port in bytes.
///
/// # Errors
/// [`Error::Unfit`] for impossible settings.
pub fn ring_memory(settings: &AfPacketSettings) -> Result<u64, Error> {
    check(settings)?;
    let geometry = Geometry::new(settings.max_length, settings.ring_frames);
    Ok(settings.queues as u64 * geometry.length() as u64)
}

/// Loads the steering program, which claims nothing yet.
fn load(settings: &AfPacketSettings, rules: &Rules) -> Result<Program, Error> {
    check(settings)?;
    let steering =
        Settings { max_length: settings.max_length, mark: settings.mark, reenter_ifindex: 0 };
    let mut program = Program::load(rules, steering)?;
    program.release()?;
    Ok(program)
}

/// Attaches the program to a whole group of sockets and to their interface, and puts the rules in
/// force. Only a whole group gives each frame to one socket. Until all programs are attached they
/// claim nothing, so no frame is lost, and none goes both to Linux and to a socket.
fn claim(
    program: &mut Program,
    sockets: &[&Socket],
    settings: &AfPacketSettings,
    rules: &Rules,
) -> Result<(), Error> {
    for socket in sockets {
        program.attach_select(socket.as_fd())?;
    }
    program.attach_claim(&settings.interface.name)?;
    Ok(program.replace_rules(rules)?)
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
    let socket = unmapped_socket(settings)?;
    let geometry = Geometry::new(settings.max_length, settings.ring_frames);
    let ring = Ring::map(&socket, geometry).map_err(|error| {
        let name = &settings.interface.name;
        Error::kernel(format!("{name}: mapping an AF_PACKET ring"), NET_RAW, error)
    })?;
    Ok((socket, ring))
}

/// Creates a socket and its ring, which is not mapped yet.
fn unmapped_socket(settings: &AfPacketSettings) -> Result<Socket, Error> {
    let name = &settings.interface.name;
    let refused = |action: &str, error| Error::kernel(format!("{name}: {action}"), NET_RAW, error);
    let socket = Socket::open().map_err(|error| refused("opening an AF_PACKET socket", error))?;
    socket
        .prepare()
        .and_then(|()| socket.refuse_all())
        .map_err(|error| refused("setting AF_PACKET options", error))?;
    let geometry = Geometry::new(settings.max_length, settings.ring_frames);
    Ring::create(&socket, geometry).map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => Error::Unfit {
            subject: format!("{name}: an AF_PACKET ring of {} octets", geometry.length()),
            reason: "the kernel has no memory for it".to_owned(),
            remedy: "use a ring of fewer frames, or frames of fewer octets".to_owned(),
        },
        _ => refused("making an AF_PACKET ring", error),
    })?;
    Ok(socket)
}

/// Binds the sockets, which share the interface as one fanout group if `is_group`.
fn join(sockets: &[&Socket], settings: &AfPacketSettings, is_group: bool) -> Result<(), Error> {
    let Interface { name, index, .. } = &settings.interface;
    let mut group = None;
    for socket in sockets {
        let refused =
            |action: &str, error| Error::kernel(format!("{name}: {action}"), NET_RAW, error);
        socket.bind(*index).map_err(|error| refused("binding the AF_PACKET socket", error))?;
        if is_group {
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
