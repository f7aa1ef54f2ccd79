//! Neighbours: `struct ndmsg` and `NDA_*`, of `linux/neighbour.h`.

use std::net::IpAddr;

use super::{Malformed, ip, is_ip, malformed};
use fastlane_netlink::attributes;

/// Reachability of a neighbour (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// The Ethernet address may be used (`REACHABLE`, `DELAY`, `PROBE`, `PERMANENT`, `NOARP`).
    Usable,
    /// The Ethernet address may be used but was not confirmed recently (`STALE`). Users must have
    /// Linux probe it.
    Stale,
    /// The Ethernet address is unknown (`FAILED`, `INCOMPLETE`, `NONE`).
    Unknown,
}

/// Neighbour states `NUD_*`.
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// `NTF_PROXY`: an address for which Linux answers itself.
const PROXY: u8 = 0x08;

/// A neighbour on the link of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub link: u32,
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address, if it is known.
    pub mac: Option<[u8; 6]>,
    /// Reachability of the Ethernet address.
    pub state: Reachability,
}

impl Neighbour {
    /// Returns true if frames may be sent to the neighbour's Ethernet address.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.mac.is_some() && self.state != Reachability::Unknown
    }
}

/// Parses a neighbour; `None` for proxies and for entries of bridges and tunnels in the same
/// format.
pub(super) fn read(body: &[u8]) -> Result<Option<Neighbour>, Malformed> {
    let wrong = malformed("a neighbour");
    let (header, rest) = body.split_first_chunk::<12>().ok_or(wrong)?;
    let (family, flags) = (header[0], header[10]);
    if !is_ip(family) || flags & PROXY != 0 {
        return Ok(None);
    }
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::NDA_DST => address = Some(ip(family, value).ok_or(wrong)?),
            libc::NDA_LLADDR => mac = <[u8; 6]>::try_from(value).ok(),
            _ => {}
        }
    }
    let state = match u16::from_ne_bytes([header[8], header[9]]) {
        state if state & (REACHABLE | DELAY | PROBE | NOARP | PERMANENT) != 0 => {
            Reachability::Usable
        }
        state if state & STALE != 0 => Reachability::Stale,
        _ => Reachability::Unknown,
    };
    let link = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    Ok(Some(Neighbour { link, address: address.ok_or(wrong)?, mac, state }))
}
