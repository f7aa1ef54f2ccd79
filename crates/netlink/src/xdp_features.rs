//! XDP of interfaces: the attached program by rtnetlink, and features by the family `netdev` of
//! generic netlink (Linux 6.3 and later).

use std::io;

use rustix::io::Errno;

use super::generic::{find, generic_family};
use super::{Request, ask, attribute, link_header, number};

/// Attribute of linux/if_link.h with the programs of an interface, and those inside it with the ids
/// by mode: native, generic, offloaded.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_IDS: [u16; 3] = [5, GENERIC_ID, 7];
const GENERIC_ID: u16 = 6;
/// Length of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;

/// Command `NETDEV_CMD_DEV_GET` and its attributes `NETDEV_A_DEV_*`.
const DEVICE_GET: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// Feature `NETDEV_XDP_ACT_BASIC`.
const RUNS: u64 = 1;
/// Feature `NETDEV_XDP_ACT_NDO_XMIT`.
const TRANSMITS: u64 = 4;

/// Returns the id of the XDP program that is attached to an interface; `None`: there is none.
///
/// # Errors
/// Returns the kernel's answer.
pub fn xdp_program(interface: u32) -> io::Result<Option<u32>> {
    program_of(interface, &IFLA_XDP_IDS)
}

/// Returns true if the XDP program of an interface is in generic mode: it gets packets from Linux
/// and not from the driver, and what it redirects is transmitted as packets of Linux are.
///
/// # Errors
/// Returns the kernel's answer.
pub fn has_generic_xdp(interface: u32) -> io::Result<bool> {
    Ok(program_of(interface, &[GENERIC_ID])?.is_some())
}

fn program_of(interface: u32, kinds: &[u16]) -> io::Result<Option<u32>> {
    let replies = ask(Request::new(libc::RTM_GETLINK, 0, &link_header(interface, 0, 0)))?;
    let xdp = replies.iter().find_map(|body| attribute(body.get(LINK_HEADER..)?, IFLA_XDP));
    let id = |xdp, kind| attribute(xdp, kind).and_then(number).filter(|id| *id > 0);
    Ok(xdp.and_then(|xdp| kinds.iter().find_map(|kind| id(xdp, *kind))))
}

/// Returns true if an interface transmits frames that an XDP program redirects to it. The driver
/// may need a program on the interface, or on the other end of a veth pair.
///
/// # Errors
/// Returns the kernel's answer: `ENOENT` before Linux 6.3, which does not tell.
pub fn transmits_redirected(interface: u32) -> io::Result<bool> {
    Ok(features(interface)? & TRANSMITS != 0)
}

/// Returns true if the driver of an interface runs XDP programs.
///
/// # Errors
/// Returns the kernel's answer: `ENOENT` before Linux 6.3, which does not tell.
pub fn runs_xdp(interface: u32) -> io::Result<bool> {
    Ok(features(interface)? & RUNS != 0)
}

/// Returns the features of a driver, `enum netdev_xdp_act` of linux/netdev.h.
fn features(interface: u32) -> io::Result<u64> {
    let device = Request::new(generic_family("netdev")?, 0, &[DEVICE_GET, 1, 0, 0]);
    let device = device.attribute(DEVICE_INDEX, &interface.to_ne_bytes());
    let features = find(device, DEVICE_XDP_FEATURES)?;
    let features = features.first_chunk().map(|bits| u64::from_ne_bytes(*bits));
    Ok(features.ok_or(Errno::PROTO)?)
}
