//! Passing descriptors and octets over a Unix socket (SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Maximum number of descriptors in a message.
const MAX_DESCRIPTORS: usize = 16;

/// Creates a pair of connected sockets that preserve message boundaries.
pub fn pair() -> (OwnedFd, OwnedFd) {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    rustix::net::socketpair(family, SocketType::SEQPACKET, flags, None).expect("a pair of sockets")
}

/// Sends octets and descriptors.
pub fn send(socket: impl AsFd, octets: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "too many");
    }
    let parts = [IoSlice::new(octets)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).expect("a message");
}

/// Receives the next message; returns no octets if the other end is closed.
pub fn receive(socket: impl AsFd) -> (Vec<u8>, Vec<OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut octets = vec![0; 4096];
    let mut parts = [IoSliceMut::new(&mut octets)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received =
        rustix::net::recvmsg(socket, &mut parts, &mut control, flags).expect("a message");
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    octets.truncate(received.bytes);
    (octets, descriptors)
}
