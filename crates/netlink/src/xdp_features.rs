//! XDP features of interfaces, by the family `netdev` of generic netlink (Linux 6.3 and later).

use std::io;

use rustix::io::Errno;

use super::{Request, ask_generic, attribute};

/// Type of messages to the controller of generic netlink, `GENL_ID_CTRL`, and its command
/// `CTRL_CMD_GETFAMILY`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Command `NETDEV_CMD_DEV_GET` and its attributes `NETDEV_A_DEV_*`.
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// Feature `NETDEV_XDP_ACT_NDO_XMIT`.
const TRANSMITS: u64 = 4;
/// Length of `struct genlmsghdr`.
const HEADER: usize = 4;

/// Returns true if an interface transmits frames that an XDP program redirects to it. The driver
/// may need a program on the interface, or on the other end of a veth pair.
///
/// # Errors
/// Returns the kernel's answer: `ENOENT` before Linux 6.3, which does not tell.
pub fn transmits_redirected(interface: u32) -> io::Result<bool> {
    let name = Request::new(CONTROLLER, 0, &[GET_FAMILY, 1, 0, 0]);
    let family = find(name.attribute(FAMILY_NAME, b"netdev\0"), FAMILY_ID)?;
    let family = family.first_chunk().map(|id| u16::from_ne_bytes(*id)).ok_or(Errno::PROTO)?;
    let device = Request::new(family, 0, &[DEVICE_GET, 1, 0, 0]);
    let device = device.attribute(DEVICE_INDEX, &interface.to_ne_bytes());
    let features = find(device, DEVICE_XDP_FEATURES)?;
    let features = features.first_chunk().map(|bits| u64::from_ne_bytes(*bits));
    Ok(features.ok_or(Errno::PROTO)? & TRANSMITS != 0)
}

/// Returns an attribute of the reply to a request.
fn find(request: Request, kind: u16) -> io::Result<Vec<u8>> {
    let replies = ask_generic(request)?;
    let found = replies.first().and_then(|reply| attribute(reply.get(HEADER..)?, kind));
    Ok(found.ok_or(Errno::PROTO)?.to_vec())
}
