//! Interfaces: `struct ifinfomsg` and `IFLA_*`, of `linux/if_link.h`.

use super::{Malformed, malformed};
use fastlane_netlink::{attribute, attributes, number, text};

/// `IFF_LOWER_UP`, of `linux/if.h`: there is a carrier.
const LOWER_UP: u32 = 1 << 16;
/// `IF_OPER_UNKNOWN`, which many drivers leave it at, and `IF_OPER_UP` (RFC 2863).
const GOOD_STATES: [u8; 2] = [0, 6];
/// `IFLA_VRF_TABLE`.
const VRF_TABLE: u16 = 1;
/// `IFLA_INET6_CONF`, and the place in it of the MTU that IPv6 has of its own.
const INET6_CONF: u16 = 2;
const INET6_CONF_MTU: usize = 2;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number, which stays when it is renamed.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; zeros when it has none.
    pub mac: [u8; 6],
    /// The longest IP packet that it sends, in octets.
    pub mtu: u32,
    /// The longest IPv6 packet that it sends when that is less than the MTU, else 0.
    pub mtu6: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it has a carrier and what is below it works.
    pub running: bool,
    /// The number of the interface that it is a part of (bridge, bond, VRF), or 0.
    pub master: u32,
    /// What it is, as `ip link add type` calls it; empty for what is no virtual device.
    pub kind: String,
    /// The routing table of a VRF, or 0.
    pub vrf_table: u32,
    /// Whether its frames begin with an Ethernet header.
    pub ethernet: bool,
}

impl Link {
    /// Whether packets can leave by it.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && self.running
    }
}

/// Reads the number of an interface, unless the message is a bridge's about one of its ports.
pub(super) fn read_gone(body: &[u8]) -> Result<Option<u32>, Malformed> {
    let header = body.first_chunk::<16>().ok_or(malformed("a message about an interface"))?;
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    Ok((i32::from(header[0]) == libc::AF_UNSPEC).then_some(index))
}

/// Reads an interface. `None` for what does not describe it: a message of a bridge about its port,
/// or of a wireless driver about its own matters.
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
    let mut mtu = None;
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.mac = <[u8; 6]>::try_from(value).unwrap_or_default(),
            libc::IFLA_MTU => mtu = number(value),
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
    link.mtu = mtu;
    link.mtu6 = if link.mtu6 < mtu { link.mtu6 } else { 0 };
    Ok(Some(link))
}

fn read_kind(link: &mut Link, value: &[u8]) {
    link.kind = attribute(value, libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
    if link.kind == "vrf" {
        let data = attribute(value, libc::IFLA_INFO_DATA).unwrap_or_default();
        link.vrf_table = attribute(data, VRF_TABLE).and_then(number).unwrap_or(0);
    }
}

fn own_mtu(families: &[u8]) -> Option<u32> {
    let settings = attribute(attribute(families, libc::AF_INET6 as u16)?, INET6_CONF)?;
    number(settings.get(4 * INET6_CONF_MTU..)?)
}
