//! Properties of network interfaces.

use std::io;

use crate::error::{Error, NET_ADMIN};
use crate::ffi::{Ethtool, GET_FLAGS};
use crate::link;
use fastlane_netlink::{self as netlink, Request};

/// Snapshot of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Interface name.
    pub name: String,
    /// Index, which survives renaming.
    pub index: u32,
    /// Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the interface is up and has a carrier.
    pub carrier: bool,
    /// True if its frames begin with an Ethernet header.
    pub ethernet: bool,
    /// Name of the driver; empty if unknown.
    pub driver: String,
    /// Number of receive queues in use.
    pub receive_queues: u32,
    /// Number of transmit queues in use.
    pub transmit_queues: u32,
    /// True for interfaces without a wire (veth, TAP, bridge, virtio...). Their frames may have a
    /// partial checksum and be longer than the MTU.
    pub is_virtual: bool,
    /// Offloads that the driver reports.
    pub offloads: Vec<Offload>,
}

/// State of an offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Name as in ethtool(8), for example `tx-checksumming`.
    pub name: &'static str,
    /// True if the offload is on.
    pub on: bool,
}

impl Offload {
    /// Returns the offload with this ethtool(8) name, or `None` if it is another one.
    #[must_use]
    pub fn named(name: &str, on: bool) -> Option<Self> {
        let names = OFFLOADS.iter().chain(&OFFLOAD_FLAGS).map(|(_, name)| *name);
        names.into_iter().find(|known| *known == name).map(|name| Self { name, on })
    }
}

/// Offloads with a command of their own (`ETHTOOL_GRXCSUM` etc.).
const OFFLOADS: [(u32, &str); 5] = [
    (0x14, "rx-checksumming"),
    (0x16, "tx-checksumming"),
    (0x1e, "tcp-segmentation-offload"),
    (0x23, "generic-segmentation-offload"),
    (0x2b, "generic-receive-offload"),
];

/// Offloads that are bits of `ETHTOOL_GFLAGS`.
const OFFLOAD_FLAGS: [(u32, &str); 3] =
    [(1 << 15, "large-receive-offload"), (1 << 8, "rx-vlan-offload"), (1 << 7, "tx-vlan-offload")];

/// Attributes of linux/if_link.h: the device that an interface belongs to, and its bus.
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;

/// `IFF_LOWER_UP` of linux/if.h.
const LOWER_UP: u32 = 1 << 16;

/// Paravirtual drivers: frames may come from the memory of the hypervisor's host.
const PARAVIRTUAL: [&str; 3] = ["virtio_net", "vif", "xen_netfront"];

/// Maximum number of names in an error text.
const NAMES: usize = 12;

impl Interface {
    /// Returns the properties of the interface `name` in the network namespace of the calling
    /// thread.
    ///
    /// # Errors
    /// [`Error::NoInterface`], or [`Error::Kernel`] when netlink does not answer.
    pub fn query(name: &str) -> Result<Self, Error> {
        let links = links()?;
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
            return Err(Error::NoInterface { interface: name.to_owned(), present: list(&names) });
        };
        let ethtool = Ethtool::new().map_err(|error| refused(name, error))?;
        Ok(Self::new(link.clone(), &ethtool))
    }

    /// Returns the properties of the interface with an index, which survives renaming, in the
    /// network namespace of the calling thread. `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Kernel`] when netlink does not answer.
    pub fn with_index(index: u32) -> Result<Option<Self>, Error> {
        let header = netlink::link_header(index, 0, 0);
        let answers = match netlink::ask(Request::new(libc::RTM_GETLINK, 0, &header)) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            other => other.map_err(|error| refused(&format!("interface {index}"), error))?,
        };
        let Some(link) = answers.iter().find_map(|answer| link(answer)) else { return Ok(None) };
        let ethtool = Ethtool::new().map_err(|error| refused(&link.name, error))?;
        Ok(Some(Self::new(link, &ethtool)))
    }

    /// Returns all interfaces of the network namespace of the calling thread, ordered by index.
    ///
    /// # Errors
    /// [`Error::Kernel`] when netlink does not answer.
    pub fn all() -> Result<Vec<Self>, Error> {
        let ethtool = Ethtool::new().map_err(|error| refused("the interfaces", error))?;
        let mut links = links()?;
        links.sort_by_key(|link| link.index);
        Ok(links.into_iter().map(|link| Self::new(link, &ethtool)).collect())
    }

    /// Sets the interface up.
    ///
    /// # Errors
    /// [`Error::Kernel`] or [`Error::NoPrivilege`].
    pub fn set_up(&self) -> Result<(), Error> {
        let action = || format!("setting {} up", self.name);
        link::set_flags(self.index, libc::IFF_UP, 0)
            .map_err(|error| Error::kernel(action(), NET_ADMIN, error))
    }

    /// Returns the bus and the name of the device that the interface belongs to, or `None` if it
    /// has none or the kernel does not tell (before Linux 5.14).
    pub(crate) fn parent(&self) -> Result<Option<[String; 2]>, Error> {
        let header = netlink::link_header(self.index, 0, 0);
        let answers = netlink::ask(Request::new(libc::RTM_GETLINK, 0, &header));
        let answers = answers.map_err(|error| refused(&self.name, error))?;
        let attributes = answers.first().and_then(|answer| answer.get(16..)).unwrap_or_default();
        let named = |kind| netlink::attribute(attributes, kind).map(netlink::text);
        let parent = named(IFLA_PARENT_DEV_BUS_NAME).zip(named(IFLA_PARENT_DEV_NAME));
        Ok(parent.map(|(bus, name)| [bus, name]))
    }

    /// Returns true if the offload with this ethtool(8) name is on.
    #[must_use]
    pub fn has_offload(&self, name: &str) -> bool {
        self.offloads.iter().any(|offload| offload.name == name && offload.on)
    }

    /// Returns true if the interface frees the frames in its receive ring, and counts none, when a
    /// native XDP program is detached: a veth whose ring exists for XDP only, because GRO does not
    /// need it (Linux 6.18, drivers/net/veth.c, `veth_disable_xdp`). Ask before a program is
    /// attached, which turns GRO on for as long.
    #[must_use]
    pub fn loses_frames_with_xdp(&self) -> bool {
        self.driver == "veth" && !self.has_offload("generic-receive-offload")
    }

    fn new(link: Link, ethtool: &Ethtool) -> Self {
        let driver = ethtool.driver(&link.name).unwrap_or_default();
        // Drivers without channels say that it is not supported; some answer with zeros.
        let channels = ethtool.channels(&link.name).unwrap_or_default();
        let receive = channels.receive + channels.combined;
        let transmit = channels.transmit + channels.combined;
        Self {
            receive_queues: if receive > 0 { receive } else { link.receive_queues },
            transmit_queues: if transmit > 0 { transmit } else { link.transmit_queues },
            is_virtual: link.is_virtual || PARAVIRTUAL.contains(&driver.as_str()),
            offloads: offloads(&link.name, ethtool),
            name: link.name,
            index: link.index,
            mac: link.mac,
            mtu: link.mtu,
            up: link.up,
            carrier: link.up && link.carrier,
            ethernet: link.ethernet,
            driver,
        }
    }
}

fn offloads(name: &str, ethtool: &Ethtool) -> Vec<Offload> {
    let own = OFFLOADS.iter().filter_map(|&(command, offload)| {
        let on = ethtool.value(name, command).ok()? != 0;
        Some(Offload { name: offload, on })
    });
    let flags = ethtool.value(name, GET_FLAGS).ok();
    let flagged = OFFLOAD_FLAGS.iter().filter_map(|&(flag, offload)| {
        let on = flags? & flag != 0;
        Some(Offload { name: offload, on })
    });
    own.chain(flagged).collect()
}

/// Interface attributes from rtnetlink.
#[derive(Clone, Default)]
struct Link {
    name: String,
    index: u32,
    mac: [u8; 6],
    mtu: u32,
    up: bool,
    carrier: bool,
    ethernet: bool,
    receive_queues: u32,
    transmit_queues: u32,
    is_virtual: bool,
}

fn links() -> Result<Vec<Link>, Error> {
    let header = netlink::link_header(0, 0, 0);
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &header);
    let answers = netlink::ask(request).map_err(|error| refused("the interfaces", error))?;
    Ok(answers.iter().filter_map(|answer| link(answer)).collect())
}

/// Parses `struct ifinfomsg` and its attributes.
fn link(answer: &[u8]) -> Option<Link> {
    let (header, attributes) = answer.split_first_chunk::<16>()?;
    let flags = netlink::number(&header[8..])?;
    let hardware = u16::from_ne_bytes([header[2], header[3]]);
    let mut link = Link {
        index: netlink::number(&header[4..])?,
        up: flags & libc::IFF_UP as u32 != 0,
        carrier: flags & LOWER_UP != 0,
        // The loopback's frames have an Ethernet header too.
        ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware),
        is_virtual: hardware == libc::ARPHRD_LOOPBACK,
        ..Link::default()
    };
    for (kind, value) in netlink::attributes(attributes) {
        match kind {
            libc::IFLA_IFNAME => link.name = netlink::text(value),
            libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            libc::IFLA_MTU => link.mtu = netlink::number(value)?,
            libc::IFLA_NUM_RX_QUEUES => link.receive_queues = netlink::number(value)?,
            libc::IFLA_NUM_TX_QUEUES => link.transmit_queues = netlink::number(value)?,
            // Only interfaces that are made by software have a kind.
            libc::IFLA_LINKINFO => {
                link.is_virtual |= netlink::attribute(value, libc::IFLA_INFO_KIND).is_some();
            }
            _ => {}
        }
    }
    Some(link)
}

fn list(names: &[&str]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        1..=NAMES => names.join(", "),
        count => format!("{} and {} more", names[..NAMES].join(", "), count - NAMES),
    }
}

fn refused(subject: &str, error: io::Error) -> Error {
    Error::kernel(format!("asking the kernel about {subject}"), NET_ADMIN, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_known() {
        let loopback = Interface::query("lo").unwrap();
        assert_eq!((loopback.index, loopback.mac), (1, [0; 6]));
        assert!(loopback.is_virtual && loopback.ethernet);
        assert!(loopback.mtu >= 1500 && loopback.receive_queues >= 1);
        assert!(Interface::all().unwrap().iter().any(|interface| interface.name == "lo"));
        assert_eq!(Interface::with_index(1).unwrap(), Some(loopback));
        assert_eq!(Interface::with_index(i32::MAX as u32).unwrap(), None);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_refused_with_those_that_do() {
        let message = Interface::query("nowhere0").unwrap_err().to_string();
        assert!(message.starts_with("no interface nowhere0 in this network namespace; there are "));
        assert!(message.contains("lo"), "{message}");
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let names = vec!["x"; NAMES + 3];
        assert!(list(&names).ends_with("x and 3 more"));
        assert_eq!(list(&["lo", "eth0"]), "lo, eth0");
        assert_eq!(list(&[]), "none");
    }
}
