//! XDP features of interfaces, by the family `netdev` of generic netlink (Linux 6.3 and later).

use std::io;

use rustix::io::Errno;

use super::Request;
use super::generic::{find, generic_family};

/// Command `NETDEV_CMD_DEV_GET` and its attributes `NETDEV_A_DEV_*`.
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// Feature `NETDEV_XDP_ACT_NDO_XMIT`.
const TRANSMITS: u64 = 4;

/// Returns true if an interface transmits frames that an XDP program redirects to it. The driver
/// may need a program on the interface, or on the other end of a veth pair.
///
/// # Errors
/// Returns the kernel's answer: `ENOENT` before Linux 6.3, which does not tell.
pub fn transmits_redirected(interface: u32) -> io::Result<bool> {
    let device = Request::new(generic_family("netdev")?, 0, &[DEVICE_GET, 1, 0, 0]);
    let device = device.attribute(DEVICE_INDEX, &interface.to_ne_bytes());
    let features = find(device, DEVICE_XDP_FEATURES)?;
    let features = features.first_chunk().map(|bits| u64::from_ne_bytes(*bits));
    Ok(features.ok_or(Errno::PROTO)? & TRANSMITS != 0)
}
