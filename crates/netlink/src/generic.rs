//! Generic netlink: families of messages, each with a type that the kernel selects.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink;

use super::{Request, attribute, exchange};

/// Type of messages to the controller of generic netlink, `GENL_ID_CTRL`, and its command
/// `CTRL_CMD_GETFAMILY`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Length of `struct genlmsghdr`.
const HEADER: usize = 4;

/// Returns the type of messages of a family.
///
/// # Errors
/// Returns the kernel's answer: `ENOENT` for a family that it does not have.
pub fn generic_family(name: &str) -> io::Result<u16> {
    let request = Request::new(CONTROLLER, 0, &[GET_FAMILY, 1, 0, 0]);
    let id = find(request.attribute(FAMILY_NAME, &[name.as_bytes(), b"\0"].concat()), FAMILY_ID)?;
    Ok(id.first_chunk().map(|id| u16::from_ne_bytes(*id)).ok_or(Errno::PROTO)?)
}

/// Sends a request of a family and returns the bodies of the replies, which begin with
/// `struct genlmsghdr`.
///
/// # Errors
/// Returns the kernel's answer.
pub fn ask_generic(request: Request) -> io::Result<Vec<Vec<u8>>> {
    let mut bodies = Vec::new();
    exchange(Some(netlink::GENERIC), request, |body| bodies.push(body.to_vec()))?;
    Ok(bodies)
}

/// Returns an attribute of the first reply to a request.
pub(crate) fn find(request: Request, kind: u16) -> io::Result<Vec<u8>> {
    let replies = ask_generic(request)?;
    let found = replies.first().and_then(|reply| attribute(reply.get(HEADER..)?, kind));
    Ok(found.ok_or(Errno::PROTO)?.to_vec())
}
