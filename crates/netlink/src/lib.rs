//! Requests to rtnetlink(7) and the attributes of its replies, by netlink(7).

#![forbid(unsafe_code)]

mod generic;
mod link_events;
mod xdp_features;

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

pub use generic::{ask_generic, generic_family};
pub use link_events::{LinkEvent, LinkEvents};
pub use xdp_features::{has_generic_xdp, runs_xdp, transmits_redirected, xdp_program};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Receive size for any message of a dump (the kernel makes none above 32 KiB).
const BUFFER: usize = 65536;

/// A request, built front to back.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// Creates a request of a type (`RTM_*`) with flags (`NLM_F_*`) and the type's fixed header.
    /// Unless it is a dump, the kernel is asked to acknowledge it.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let ends = if flags & libc::NLM_F_DUMP == libc::NLM_F_DUMP { 0 } else { libc::NLM_F_ACK };
        let flags = (flags | libc::NLM_F_REQUEST | ends) as u16;
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self { bytes }
    }

    /// Appends an attribute.
    pub fn attribute(self, kind: u16, value: &[u8]) -> Self {
        self.nest(kind, |inside| inside.raw(value))
    }

    /// Appends an attribute that contains attributes.
    pub fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let mut filled = fill(self);
        let length = (filled.bytes.len() - start) as u16;
        filled.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        filled.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        filled.bytes.resize(filled.bytes.len().next_multiple_of(4), 0);
        filled
    }

    fn raw(mut self, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// Returns the whole message.
    pub fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

/// Builds the fixed header of link requests, `struct ifinfomsg`: an interface index, and the values
/// of the flags that `change` selects.
pub fn link_header(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

/// Sends a request in the network namespace of the calling thread and returns the bodies of the
/// replies, without the netlink header.
///
/// # Errors
/// The kernel's answer.
pub fn ask(request: Request) -> io::Result<Vec<Vec<u8>>> {
    let mut bodies = Vec::new();
    each(request, |body| bodies.push(body.to_vec()))?;
    Ok(bodies)
}

/// Sends a request in the network namespace of the calling thread and passes the body of each reply
/// to `take`.
///
/// # Errors
/// The kernel's answer.
pub fn each(request: Request, take: impl FnMut(&[u8])) -> io::Result<()> {
    // Protocol 0 is NETLINK_ROUTE.
    exchange(None, request, take)
}

fn exchange(
    protocol: Option<Protocol>,
    request: Request,
    take: impl FnMut(&[u8]),
) -> io::Result<()> {
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
    // A socket that was not connected talks to the kernel.
    rustix::net::send(&socket, &request.finish(), SendFlags::empty())?;
    answers(&socket, take)
}

fn answers(socket: &OwnedFd, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let (_, length) = match rustix::net::recv(socket, &mut buffer[..], RecvFlags::TRUNC) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if length > BUFFER {
            return Err(Errno::MSGSIZE.into());
        }
        let mut rest = &buffer[..length];
        while let Some((kind, body, after)) = next_message(rest) {
            rest = after;
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    return match body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
                        0 => Ok(()),
                        code => Err(io::Error::from_raw_os_error(-code)),
                    };
                }
                _ => take(body),
            }
        }
    }
}

/// Splits off the first message: its type, its body and the rest.
fn next_message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
    let body = bytes.get(HEADER..length)?;
    let after = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, after))
}

/// Returns the attributes in `bytes` as pairs of type and value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & libc::NLA_TYPE_MASK as u16, value))
    })
}

/// Returns the first attribute of a type.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(is, _)| *is == kind).map(|(_, value)| value)
}

/// Parses a 32-bit number.
pub fn number(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Parses a text with or without a final NUL.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_read_back() {
        let request = Request::new(1, 0, &[7; 4])
            .attribute(3, b"abcde")
            .nest(4, |inside| inside.attribute(1, &9_u32.to_ne_bytes()).attribute(2, &[]));
        let body = &request.bytes[HEADER + 4..];
        assert_eq!(body.len() % 4, 0);
        assert_eq!(attribute(body, 3), Some(&b"abcde"[..]));
        let inside = attribute(body, 4).unwrap();
        assert_eq!(number(attribute(inside, 1).unwrap()), Some(9));
        assert_eq!(attribute(inside, 2), Some(&[][..]));
        assert_eq!(attribute(body, 5), None);
    }

    #[test]
    fn broken_octets_end_the_reading() {
        for length in 0..40_usize {
            for value in [0, 1, 3, 4, 5, 255] {
                let bytes = vec![value; length];
                assert!(attributes(&bytes).count() <= length);
                let mut rest = &bytes[..];
                let mut messages = 0;
                while let Some((_, _, after)) = next_message(rest) {
                    assert!(after.len() < rest.len());
                    rest = after;
                    messages += 1;
                }
                assert!(messages <= length);
            }
        }
    }

    #[test]
    fn the_kernels_refusal_comes_back() {
        let header = link_header(u32::MAX >> 1, 0, 0);
        let error = ask(Request::new(libc::RTM_GETLINK, 0, &header)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NODEV));
    }
}
