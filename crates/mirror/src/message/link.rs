//! Interfaces: `struct ifinfomsg` and `IFLA_*`, of `linux/if_link.h`.

use super::{Malformed, malformed};
use fastlane_netlink::{attribute, attributes, number, text};

/// `IFF_LOWER_UP` of `linux/if.h`: carrier present.
const LOWER_UP: u32 = 1 << 16;
/// `IF_OPER_UNKNOWN`, which many drivers never leave, and `IF_OPER_UP` (RFC 2863).
const GOOD_STATES: [u8; 2] = [0, 6];
/// Attributes `IFLA_VLAN_ID` and `IFLA_VLAN_PROTOCOL`, and the EtherType of 802.1Q in it.
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;
const TAG: [u8; 2] = [0x81, 0x00];
/// Attribute `IFLA_VRF_TABLE`.
const VRF_TABLE: u16 = 1;
/// `IFLA_INET6_CONF`, and the index of the IPv6 MTU in it.
const INET6_CONF: u16 = 2;
const INET6_CONF_MTU: usize = 2;

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Index, which survives renaming.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// IPv6 MTU in bytes if it is less than the MTU, else 0.
    pub mtu6: u32,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the interface has a carrier and its lower device works.
    pub running: bool,
    /// Index of the master device (bridge, bond, VRF), or 0.
    pub master: u32,
    /// Kind of a virtual device, as in `ip link add type`; empty for others.
    pub kind: String,
    /// Routing table of a VRF, or 0.
    pub vrf_table: u32,
    /// Index of the interface that carries a VLAN (IEEE 802.1Q) in the same namespace, or 0.
    pub carrier: u32,
    /// VLAN identifier of a VLAN, or 0.
    pub vlan: u16,
    /// True if its frames begin with an Ethernet header.
    pub ethernet: bool,
}

impl Link {
    /// Returns true if packets can leave by this interface.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && self.running
    }
}

/// Parses an interface index; `None` for a bridge's message about one of its ports.
pub(super) fn read_gone(body: &[u8]) -> Result<Option<u32>, Malformed> {
    let header = body.first_chunk::<16>().ok_or(malformed("a message about an interface"))?;
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    Ok((i32::from(header[0]) == libc::AF_UNSPEC).then_some(index))
}

/// Parses an interface; `None` for messages that do not describe one: from a bridge about its port,
/// or from a wireless driver.
pub(super) fn read(body: &[u8]) -> Result<Option<Link>, Malformed> {
    let Some(index) = read_gone(body)? else { return Ok(None) };
    let (header, rest) = body.split_first_chunk::<16>().ok_or(malformed("an interface"))?;
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let hardware = u16::from_ne_bytes([header[2], header[3]]);
    let mut link = Link {
        index,
        up: flags & libc::IFF_UP as u32 != 0,
        running: flags & LOWER_UP != 0,
        ethernet: [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware),
        ..Link::default()
    };
    let (mut mtu, mut is_foreign) = (None, false);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.mac = <[u8; 6]>::try_from(value).unwrap_or_default(),
            libc::IFLA_MTU => mtu = number(value),
            libc::IFLA_LINK => link.carrier = number(value).unwrap_or(0),
            libc::IFLA_LINK_NETNSID => is_foreign = true,
            libc::IFLA_MASTER => link.master = number(value).unwrap_or(0),
            libc::IFLA_OPERSTATE => {
                link.running &= value.first().is_some_and(|state| GOOD_STATES.contains(state));
            }
            libc::IFLA_LINKINFO => read_kind(&mut link, value),
            libc::IFLA_AF_SPEC => link.mtu6 = own_mtu(value).unwrap_or(0),
            _ => {}
        }
    }
    let Some(mtu) = mtu.filter(|_| !link.name.is_empty()) else { return Ok(None) };
    // The index is one of another namespace, or of the other end of a veth pair.
    if is_foreign || link.vlan == 0 {
        (link.carrier, link.vlan) = (0, 0);
    }
    link.mtu = mtu;
    link.mtu6 = if link.mtu6 < mtu { link.mtu6 } else { 0 };
    Ok(Some(link))
}

fn read_kind(link: &mut Link, value: &[u8]) {
    link.kind = attribute(value, libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
    let data = attribute(value, libc::IFLA_INFO_DATA).unwrap_or_default();
    match &*link.kind {
        "vrf" => link.vrf_table = attribute(data, VRF_TABLE).and_then(number).unwrap_or(0),
        "vlan" if attribute(data, VLAN_PROTOCOL) == Some(&TAG) => {
            let id = attribute(data, VLAN_ID).and_then(|id| id.first_chunk());
            link.vlan = id.map_or(0, |id| u16::from_ne_bytes(*id));
        }
        _ => {}
    }
}

fn own_mtu(families: &[u8]) -> Option<u32> {
    let settings = attribute(attribute(families, libc::AF_INET6 as u16)?, INET6_CONF)?;
    number(settings.get(4 * INET6_CONF_MTU..)?)
}
