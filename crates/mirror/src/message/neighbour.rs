//! Neighbours: `struct ndmsg` and `NDA_*`, of `linux/neighbour.h`.

use std::net::IpAddr;

use super::{Malformed, ip, is_ip, malformed};
use fastlane_netlink::attributes;

/// What Linux knows about whether a neighbour is there (`NUD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// Its address may be used (`REACHABLE`, `DELAY`, `PROBE`, `PERMANENT`, `NOARP`).
    Usable,
    /// Its address may be used, but was not confirmed lately: `STALE`. Who uses it has Linux find
    /// out.
    Stale,
    /// It did not answer, or not yet, or nobody asked (`FAILED`, `INCOMPLETE`, `NONE`).
    Unknown,
}

/// `NUD_*`.
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NOARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// `NTF_PROXY`: Linux answers for it; it is nobody's address.
const PROXY: u8 = 0x08;

/// A host on the link of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of the interface.
    pub link: u32,
    /// Its IP address.
    pub address: IpAddr,
    /// Its Ethernet address, if it is known and is one.
    pub mac: Option<[u8; 6]>,
    /// Whether it is there.
    pub state: Reachability,
}

impl Neighbour {
    /// Whether frames may be sent to its Ethernet address.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.mac.is_some() && self.state != Reachability::Unknown
    }
}

/// Reads a neighbour; `None` for proxies, and for what bridges and tunnels keep in the same form.
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
