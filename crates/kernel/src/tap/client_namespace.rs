//! TAP devices for another process, in the network namespace of its connection.
//!
//! In another namespace than that of the calling thread a device is made here, configured, and
//! moved. What changes later is set by requests through sockets of that namespace, which the kernel
//! checks against the capabilities of the caller: an accepted Unix socket is in the namespace of
//! its client, and for addresses the client passes a socket of each family. All this takes
//! CAP_NET_ADMIN only; setns(2) would take CAP_SYS_ADMIN.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, sockopt};

use super::{TapSettings, TapSwitch, configure, files, open, refused};
use crate::error::Error;
use crate::ffi::{self, Ethtool, Property};
use crate::link;

/// Client with its network namespace, as its connection tells it.
#[derive(Debug)]
pub struct ClientNamespace<'a> {
    connection: BorrowedFd<'a>,
    namespace: OwnedFd,
}

impl<'a> ClientNamespace<'a> {
    /// Returns the namespace of the client of `connection`, an accepted Unix socket.
    ///
    /// # Errors
    /// [`Error::NoPrivilege`] without CAP_NET_ADMIN over the namespace.
    pub fn of(connection: BorrowedFd<'a>) -> Result<Self, Error> {
        let namespace = ffi::socket_namespace(connection).map_err(asking)?;
        Ok(Self { connection, namespace })
    }

    /// Returns true if it is not the namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Kernel`].
    pub fn is_elsewhere(&self) -> Result<bool, Error> {
        is_own(self.namespace.as_fd()).map(|own| !own).map_err(asking)
    }

    /// Creates a TAP device there. Returns a descriptor of each queue, and the switch of a device
    /// in the namespace of the calling thread.
    ///
    /// `sockets` are datagram sockets of the client, by which addresses are set in another
    /// namespace: one of IPv4, IPv6 or each. Of IPv4 a device has one address there.
    ///
    /// # Errors
    /// Those of [`open`]; [`Error::Unfit`] if a socket is missing or of another namespace.
    pub fn open_tap(
        &self,
        settings: TapSettings,
        sockets: &[OwnedFd],
    ) -> Result<(Vec<OwnedFd>, Option<TapSwitch>), Error> {
        if !self.is_elsewhere()? {
            let duplicate = |it| refused("duplicating a queue of a TAP device".to_owned(), it);
            let tap = open(settings)?;
            let files = tap.queues.iter().filter_map(|queue| queue.kept());
            let files = files.map(|file| file.try_clone_to_owned().map_err(duplicate));
            return Ok((files.collect::<Result<_, _>>()?, Some(tap.switch())));
        }
        let addresses = self.addresses(&settings, sockets)?;
        // The wanted name may be taken here.
        let (wanted, up) = (settings.name.clone(), false);
        let settings = TapSettings { name: None, up, addresses: vec![], ..settings };
        let (name, files) = files(&settings)?;
        let subject = |action: &str| format!("{action} of the TAP device {name}");
        let found = |error| refused(subject("finding the index"), error);
        let index = link::index(&name).map_err(found)?;
        configure(index, &settings).map_err(|(action, error)| refused(subject(&action), error))?;
        let moved = link::move_to(index, self.namespace.as_fd(), wanted.as_deref());
        moved.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Error::NameTaken { interface: wanted.clone().unwrap_or_default() }
            }
            _ => refused(subject("the move to the client's network namespace"), error),
        })?;
        let name = wanted.unwrap_or(name);
        for Address { socket, address, prefix } in addresses {
            self.add_address(&name, socket, address, prefix).map_err(|error| {
                refused(format!("setting the address {address}/{prefix} of {name}"), error)
            })?;
        }
        Ok((files, None))
    }

    /// Finds the socket for each address.
    fn addresses<'s>(
        &self,
        settings: &TapSettings,
        sockets: &'s [OwnedFd],
    ) -> Result<Vec<Address<'s>>, Error> {
        let unfit = |reason: &str, remedy: &str| Error::Unfit {
            subject: "addresses of a TAP device in another network namespace".to_owned(),
            reason: reason.to_owned(),
            remedy: remedy.to_owned(),
        };
        let there = rustix::fs::fstat(&self.namespace).map_err(|error| asking(error.into()))?;
        for socket in sockets {
            let namespace = ffi::socket_namespace(socket.as_fd()).map_err(asking)?;
            let other = rustix::fs::fstat(namespace).map_err(|error| asking(error.into()))?;
            if (other.st_dev, other.st_ino) != (there.st_dev, there.st_ino) {
                return Err(unfit("a socket is of a third one", "pass sockets of its own"));
            }
        }
        let addresses = settings.addresses.iter();
        if addresses.filter(|(address, _)| address.is_ipv4()).count() > 1 {
            return Err(unfit("there are two of IPv4", "leave one, or use one network namespace"));
        }
        let addresses = settings.addresses.iter().map(|&(address, prefix)| {
            let family = match address {
                IpAddr::V4(_) => AddressFamily::INET,
                IpAddr::V6(_) => AddressFamily::INET6,
            };
            let is_mine = |socket: &&OwnedFd| sockopt::socket_domain(socket) == Ok(family);
            let socket = sockets.iter().find(is_mine);
            let socket = socket.ok_or_else(|| unfit("a socket is missing", "pass one"))?;
            Ok(Address { socket: socket.as_fd(), address, prefix })
        });
        addresses.collect()
    }

    fn add_address(
        &self,
        name: &str,
        socket: BorrowedFd<'_>,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        match address {
            IpAddr::V4(address) => {
                let bits = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
                ffi::set_property(socket, name, Property::Address(address))?;
                ffi::set_property(socket, name, Property::Netmask(Ipv4Addr::from_bits(bits)))
            }
            IpAddr::V6(address) => {
                let index = ffi::index_there(self.connection, name)?;
                ffi::add_ipv6_address(socket, index, address, prefix)
            }
        }
    }

    /// Gives a TAP device there an Ethernet address and an MTU.
    ///
    /// # Errors
    /// [`Error::Unfit`] if it is no TAP device, [`Error::Kernel`].
    pub fn change_tap(&self, name: &str, mac: [u8; 6], mtu: u32) -> Result<(), Error> {
        self.check_tap(name)?;
        let set = |property| ffi::set_property(self.connection, name, property);
        let has_mac = mac != [0; 6];
        let changed = set(Property::Mtu(mtu));
        let changed = changed.and_then(|()| if has_mac { set(Property::Mac(mac)) } else { Ok(()) });
        changed.map_err(|error| refused(format!("changing the TAP device {name}"), error))
    }

    /// Sets a TAP device there down.
    ///
    /// # Errors
    /// [`Error::Unfit`] if it is no TAP device, [`Error::Kernel`].
    pub fn set_tap_down(&self, name: &str) -> Result<(), Error> {
        self.check_tap(name)?;
        let down = ffi::flags_there(self.connection, name).and_then(|flags| {
            let down = Property::Flags(flags & !(libc::IFF_UP as libc::c_short));
            ffi::set_property(self.connection, name, down)
        });
        down.map_err(|error| refused(format!("setting the TAP device {name} down"), error))
    }

    /// Checks that an interface there is a TAP device: others are none of the caller's business.
    fn check_tap(&self, name: &str) -> Result<(), Error> {
        let subject = || format!("asking for the driver of {name}");
        let socket = self.connection.try_clone_to_owned();
        let socket = socket.map_err(|error| refused(subject(), error))?;
        let driver = Ethtool::through(socket).driver(name);
        match driver.map_err(|error| refused(subject(), error))?.as_str() {
            "tun" => Ok(()),
            _ => Err(Error::Unfit {
                subject: name.to_owned(),
                reason: "it is no TAP device".to_owned(),
                remedy: "name a device that the agent has made".to_owned(),
            }),
        }
    }
}

/// Address with the socket by which it is set.
struct Address<'s> {
    socket: BorrowedFd<'s>,
    address: IpAddr,
    prefix: u8,
}

/// Returns true if a network namespace is that of the calling thread.
pub(super) fn is_own(namespace: BorrowedFd<'_>) -> io::Result<bool> {
    let own = rustix::fs::stat("/proc/thread-self/ns/net")?;
    let there = rustix::fs::fstat(namespace)?;
    Ok((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
}

fn asking(error: io::Error) -> Error {
    refused("asking for the network namespace of a client".to_owned(), error)
}
