//! Changes of interfaces, by the multicast group RTNLGRP_LINK.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::{BUFFER, attribute, next_message, number, text};

/// An interface that was created, changed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Index of the interface.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// True if the interface was removed, or has left the network namespace. Another one may have
    /// its index by now, or itself if it has returned.
    pub is_removed: bool,
}

/// Socket that receives the changes of all interfaces in the network namespace of the thread that
/// opened it.
#[derive(Debug)]
pub struct LinkEvents {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl LinkEvents {
    /// Subscribes to the changes.
    ///
    /// # Errors
    /// Returns the error of the system call that failed.
    pub fn open() -> io::Result<Self> {
        let (family, flags) =
            (AddressFamily::NETLINK, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        // Protocol 0 is NETLINK_ROUTE.
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
        let groups = 1 << (libc::RTNLGRP_LINK - 1);
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { socket, buffer: vec![0; BUFFER].into_boxed_slice() })
    }

    /// Passes all pending changes to `take`. Returns false if some were lost, because the receive
    /// buffer was full: then any interface may have changed.
    ///
    /// # Errors
    /// Returns the error of the system call that failed.
    pub fn receive(&mut self, mut take: impl FnMut(LinkEvent)) -> io::Result<bool> {
        let mut is_complete = true;
        loop {
            let received =
                rustix::net::recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC);
            let (_, length, from) = match received {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(is_complete),
                Err(Errno::NOBUFS) => {
                    is_complete = false;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let sender = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
            if sender.is_none_or(|sender| sender.pid() != 0) {
                continue; // not from the kernel
            }
            let Some(mut rest) = self.buffer.get(..length) else {
                is_complete = false;
                continue;
            };
            while let Some((kind, body, after)) = next_message(rest) {
                rest = after;
                link_event(kind, body).into_iter().for_each(&mut take);
            }
        }
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses `struct ifinfomsg` and the name among its attributes.
fn link_event(kind: u16, body: &[u8]) -> Option<LinkEvent> {
    let (header, attributes) = body.split_first_chunk::<16>()?;
    let name = attribute(attributes, libc::IFLA_IFNAME).map(text).unwrap_or_default();
    // An interface that leaves a bridge is removed in the address family of bridges only.
    let is_removed = kind == libc::RTM_DELLINK && i32::from(header[0]) == libc::AF_UNSPEC;
    Some(LinkEvent { index: number(&header[4..])?, name, is_removed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_that_is_deleted_is_removed() {
        let body = |family: i32| {
            let mut body = [0; 24];
            body[0] = family as u8;
            body[4] = 7;
            body[16..].copy_from_slice(&[8, 0, libc::IFLA_IFNAME as u8, 0, b'a', b'b', 0, 0]);
            body
        };
        let event = |kind, family| link_event(kind, &body(family)).unwrap();
        let removed = event(libc::RTM_DELLINK, libc::AF_UNSPEC);
        assert_eq!(removed, LinkEvent { index: 7, name: "ab".to_owned(), is_removed: true });
        assert!(!event(libc::RTM_NEWLINK, libc::AF_UNSPEC).is_removed);
        assert!(!event(libc::RTM_DELLINK, libc::AF_BRIDGE).is_removed, "it has left a bridge");
        assert_eq!(link_event(libc::RTM_DELLINK, &[0; 15]), None);
    }
}
