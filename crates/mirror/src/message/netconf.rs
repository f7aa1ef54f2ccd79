//! Forwarding settings: `struct netconfmsg` and `NETCONFA_*` of `linux/netconf.h`.

use super::{Malformed, is_ip, malformed};
use fastlane_netlink::{attributes, number};

/// Attributes `NETCONFA_*`.
const IFINDEX: u16 = 1;
const FORWARDING: u16 = 2;
const RP_FILTER: u16 = 3;

/// Forwarding settings of an interface, as under `/proc/sys/net/ipv4/conf` and
/// `/proc/sys/net/ipv6/conf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netconf {
    /// Index of the interface, [`ALL`](Self::ALL), or -2 for the defaults of new interfaces.
    pub link: i32,
    /// True for IPv6 settings.
    pub ipv6: bool,
    /// True if packets received on the interface are forwarded; `None` if unchanged.
    pub forwards: Option<bool>,
    /// `rp_filter`: 0 (off), 1 (strict) or 2 (loose); `None` if unchanged. Larger numbers count as
    /// 2.
    pub reverse_path: Option<u8>,
}

impl Netconf {
    /// Pseudo index of the settings for all interfaces (`NETCONFA_IFINDEX_ALL`).
    pub const ALL: i32 = -1;
}

/// Parses settings; `None` for other families (MPLS).
pub(super) fn read(body: &[u8]) -> Result<Option<Netconf>, Malformed> {
    let wrong = malformed("a setting of forwarding");
    // `struct netconfmsg` is one octet; attributes begin at a multiple of four.
    let (header, rest) = body.split_first_chunk::<4>().ok_or(wrong)?;
    if !is_ip(header[0]) {
        return Ok(None);
    }
    let (mut link, mut forwards, mut reverse_path) = (None, None, None);
    for (kind, value) in attributes(rest) {
        let value = || number(value).map(u32::cast_signed).ok_or(wrong);
        match kind {
            IFINDEX => link = Some(value()?),
            FORWARDING => forwards = Some(value()? != 0),
            RP_FILTER => reverse_path = Some(value()?.clamp(0, 2) as u8),
            _ => {}
        }
    }
    let ipv6 = i32::from(header[0]) == libc::AF_INET6;
    Ok(Some(Netconf { link: link.ok_or(wrong)?, ipv6, forwards, reverse_path }))
}
