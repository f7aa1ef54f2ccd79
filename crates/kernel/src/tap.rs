//! TAP devices: Linux interfaces whose other end is a port.
//!
//! Linux's kernel document networking/tuntap; the header before each frame is that of virtio 1.2
//! section 5.1.6, in the byte order of the machine.

mod adopt;
mod client_namespace;
mod drop_counter;
mod tap_queue;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use adopt::adopt;
pub(crate) use adopt::name_here;
pub use client_namespace::ClientNamespace;
pub use tap_queue::{Carrier, TapQueue, TapWatch};

use crate::error::{Error, NET_ADMIN};
use crate::{ffi, link};
use drop_counter::DropCounter;

/// Offload flag that lets Linux send frames with partial checksums: `TUN_F_CSUM`.
const CHECKSUM_OFFLOAD: u32 = 1;
/// Maximum number of queues of a TAP device, `MAX_TAP_QUEUES`.
const MOST_QUEUES: usize = 256;
/// Time to wait for a name that was just released: Linux removes interfaces with a delay.
const NAME_WAIT: Duration = Duration::from_secs(1);

/// Settings of a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapSettings {
    /// Name of the interface, at most 15 bytes; `None` lets the kernel choose one such as `fl0`.
    pub name: Option<String>,
    /// Ethernet address of the interface; `None` lets the kernel choose one.
    pub mac: Option<[u8; 6]>,
    /// MTU of the interface in bytes; `None` leaves it at 1500.
    pub mtu: Option<u32>,
    /// Number of queues, 1 to 256.
    pub queues: usize,
    /// True to set the interface up.
    pub up: bool,
    /// True to suppress Linux's own traffic on it: no IPv6 address generation, ARP or multicast.
    pub quiet: bool,
    /// Addresses of the interface with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Default for TapSettings {
    fn default() -> Self {
        Self {
            name: None,
            mac: None,
            mtu: None,
            queues: 1,
            up: true,
            quiet: false,
            addresses: Vec::new(),
        }
    }
}

/// A TAP device. It is removed when its last queue is closed, even if the process is killed, unless
/// another process holds [duplicates](TapQueue::kept) of the descriptors.
#[derive(Debug)]
pub struct Tap {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
    /// Queues, each for one lane.
    pub queues: Vec<TapQueue>,
}

impl Tap {
    /// Returns the switch of the device, for use in another thread.
    #[must_use]
    pub fn switch(&self) -> TapSwitch {
        TapSwitch { name: self.name.clone(), index: self.index }
    }
}

/// Switch of a TAP device, by which its arrivals end before its queues are closed.
#[derive(Clone, Debug)]
pub struct TapSwitch {
    name: String,
    index: u32,
}

impl TapSwitch {
    /// Returns the name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the interface down. Linux then refuses or counts what is sent on it; what was sent
    /// before is still received. Closing a device frees what it holds, and counts nothing.
    ///
    /// # Errors
    /// [`Error::Kernel`]; the interface stays up.
    pub fn set_down(&self) -> Result<(), Error> {
        link::set_flags(self.index, 0, libc::IFF_UP)
            .map_err(|error| refused(format!("setting the TAP device {} down", self.name), error))
    }
}

/// Creates a TAP device in the network namespace of the calling thread.
///
/// # Errors
/// [`Error::NoPrivilege`] without CAP_NET_ADMIN, [`Error::NameTaken`], [`Error::Unfit`] when there
/// is no TUN driver or a setting is impossible, [`Error::Kernel`].
pub fn open(settings: TapSettings) -> Result<Tap, Error> {
    if !(1..=MOST_QUEUES).contains(&settings.queues) {
        return Err(Error::Unfit {
            subject: format!("TAP device with {} queues", settings.queues),
            reason: format!("Linux allows 1 to {MOST_QUEUES}"),
            remedy: "set another number".to_owned(),
        });
    }
    let (name, files) = files(&settings)?;
    let subject = |action: &str| format!("{action} of the TAP device {name}");
    let index = link::index(&name).map_err(|error| refused(subject("finding the index"), error))?;
    configure(index, &settings).map_err(|(action, error)| refused(subject(&action), error))?;
    let mut drops = Some(
        DropCounter::new(&name).map_err(|error| refused(subject("watching the losses"), error))?,
    );
    let queues = files.into_iter().map(|file| TapQueue::new(file, drops.take())).collect();
    Ok(Tap { name, index, queues })
}

pub(crate) fn refused(action: String, error: io::Error) -> Error {
    Error::kernel(action, NET_ADMIN, error)
}

/// Opens one file for each queue.
fn files(settings: &TapSettings) -> Result<(String, Vec<OwnedFd>), Error> {
    let several = if settings.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several;
    let first = device()?;
    let name = create(&first, settings.name.as_deref(), flags)?;
    let mut files = vec![first];
    while files.len() < settings.queues {
        let file = device()?;
        ffi::tun_attach(file.as_fd(), &name, flags).map_err(|error| {
            refused(format!("opening queue {} of the TAP device {name}", files.len()), error)
        })?;
        files.push(file);
    }
    for file in &files {
        ffi::tun_set_offloads(file.as_fd(), CHECKSUM_OFFLOAD).map_err(|error| {
            refused(format!("setting the offloads of the TAP device {name}"), error)
        })?;
    }
    Ok((name, files))
}

pub(crate) fn device() -> Result<OwnedFd, Error> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => Error::Unfit {
            subject: "/dev/net/tun".to_owned(),
            reason: "this system has no TUN/TAP driver".to_owned(),
            remedy: "load it with `modprobe tun`; a container needs the device passed in"
                .to_owned(),
        },
        _ => refused("opening /dev/net/tun".to_owned(), error.into()),
    })
}

/// Creates the interface with its first queue. It must be new: otherwise the file would become a
/// queue of an existing device.
pub(crate) fn create(file: &OwnedFd, name: Option<&str>, flags: i32) -> Result<String, Error> {
    let flags = flags | libc::IFF_TUN_EXCL;
    let wanted = name.unwrap_or("fl%d");
    let deadline = Instant::now() + NAME_WAIT;
    loop {
        let error = match ffi::tun_attach(file.as_fd(), wanted, flags) {
            Ok(name) => return Ok(name),
            Err(error) => error,
        };
        let interface = wanted.to_owned();
        match Errno::from_io_error(&error) {
            Some(Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Some(Errno::BUSY | Errno::EXIST) => return Err(Error::NameTaken { interface }),
            _ => return Err(refused(format!("making the TAP device {interface}"), error)),
        }
    }
}

/// Applies the settings. An error names the setting that failed.
fn configure(index: u32, settings: &TapSettings) -> Result<(), (String, io::Error)> {
    let named = |action: String| move |error| (action, error);
    if let Some(mac) = settings.mac {
        link::set_mac(index, mac).map_err(named("setting the MAC address".to_owned()))?;
    }
    if let Some(mtu) = settings.mtu {
        link::set_mtu(index, mtu).map_err(named(format!("setting the MTU {mtu}")))?;
    }
    if settings.quiet {
        link::generate_no_addresses(index)
            .map_err(named("setting the address generation".to_owned()))?;
        link::set_flags(index, libc::IFF_NOARP, libc::IFF_MULTICAST)
            .map_err(named("setting the flags".to_owned()))?;
    }
    if settings.up {
        link::set_flags(index, libc::IFF_UP, 0).map_err(named("setting the state".to_owned()))?;
    }
    for &(address, prefix) in &settings.addresses {
        link::add_address(index, address, prefix)
            .map_err(named(format!("setting the address {address}/{prefix}")))?;
    }
    Ok(())
}
