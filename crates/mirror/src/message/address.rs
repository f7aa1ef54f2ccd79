//! Interface addresses: `struct ifaddrmsg` and `IFA_*` of `linux/if_addr.h`.

use std::net::IpAddr;

use super::{Malformed, Prefix, ip, is_ip, malformed};
use fastlane_netlink::attributes;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Index of the interface.
    pub link: u32,
    /// IP address.
    pub address: IpAddr,
    /// On-link prefix: that of the address, or that of the other end of a point-to-point link.
    pub prefix: Prefix,
}

/// Parses an address; `None` for families other than IP.
pub(super) fn read(body: &[u8]) -> Result<Option<Address>, Malformed> {
    let wrong = malformed("an address");
    let (header, rest) = body.split_first_chunk::<8>().ok_or(wrong)?;
    let (family, length) = (header[0], header[1]);
    if !is_ip(family) {
        return Ok(None);
    }
    let (mut local, mut far) = (None, None);
    for (kind, value) in attributes(rest) {
        match kind {
            libc::IFA_LOCAL => local = Some(ip(family, value).ok_or(wrong)?),
            libc::IFA_ADDRESS => far = Some(ip(family, value).ok_or(wrong)?),
            _ => {}
        }
    }
    // On a link between two ends IFA_ADDRESS is the far one; IPv6 often gives that attribute only.
    let address = local.or(far).ok_or(wrong)?;
    let prefix = Prefix::new(far.unwrap_or(address), length);
    let link = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    Ok(Some(Address { link, address, prefix }))
}
