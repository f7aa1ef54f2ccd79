//! The memif control protocol, version 2.0, as far as a client needs it
//! (`drivers/net/memif/memif.h` of DPDK, `src/plugins/memif/memif.h` of VPP).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::IoSlice;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with, sockopt,
};

use crate::Result;

/// Length of each message in bytes.
const MESSAGE: usize = 128;
const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;
/// Protocol version 2.0: the major version is in the upper byte.
const VERSION: u16 = 2 << 8;
/// Value of `flags` for a ring from the client to the server.
const TO_SERVER: u16 = 1;

/// Position and size of a ring in the memory of the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    /// Offset from the start of the memory, in bytes.
    pub(super) offset: u32,
    /// Base-2 logarithm of the number of slots.
    pub(super) log2_size: u8,
}

/// Established connection. It is closed on drop.
#[derive(Debug)]
pub(super) struct Connection {
    _socket: OwnedFd,
    /// Eventfd that wakes the server.
    pub(super) bell: OwnedFd,
    _own_bell: OwnedFd,
}

/// Connects to the server at `path` as interface `id` and offers `memory` of `length` bytes with
/// one ring in each direction.
pub(super) fn open(
    path: &Path,
    id: u32,
    memory: BorrowedFd<'_>,
    length: usize,
    [to_server, to_client]: [RingLayout; 2],
) -> Result<Connection> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let patience = Some(Duration::from_secs(5));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    expect(&socket, HELLO)?;

    let mut init = Message::new(INIT);
    init.put(&VERSION.to_ne_bytes()).put(&id.to_ne_bytes()).put(&[0]); // mode 0: Ethernet
    init.put(&[0; 24]).put(b"fastlane-bench");
    init.send(&socket, None)?;
    expect(&socket, ACK)?;

    let mut region = Message::new(ADD_REGION);
    region.put(&0_u16.to_ne_bytes()).put(&(length as u64).to_ne_bytes());
    region.send(&socket, Some(memory))?;
    expect(&socket, ACK)?;

    let bells = [eventfd(0, EventfdFlags::NONBLOCK)?, eventfd(0, EventfdFlags::NONBLOCK)?];
    for (place, flags, bell) in [(to_server, TO_SERVER, &bells[0]), (to_client, 0, &bells[1])] {
        let mut ring = Message::new(ADD_RING);
        ring.put(&flags.to_ne_bytes()).put(&0_u16.to_ne_bytes()).put(&0_u16.to_ne_bytes());
        ring.put(&place.offset.to_ne_bytes()).put(&[place.log2_size]).put(&0_u16.to_ne_bytes());
        ring.send(&socket, Some(bell.as_fd()))?;
        expect(&socket, ACK)?;
    }
    Message::new(CONNECT).put(b"fastlane-bench").send(&socket, None)?;
    expect(&socket, CONNECTED)?;
    let [bell, own] = bells;
    Ok(Connection { _socket: socket, bell, _own_bell: own })
}

/// Message under construction: packed fields after a type of two bytes.
struct Message {
    bytes: [u8; MESSAGE],
    length: usize,
}

impl Message {
    fn new(kind: u16) -> Self {
        let mut message = Self { bytes: [0; MESSAGE], length: 0 };
        message.put(&kind.to_ne_bytes());
        message
    }

    fn put(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.length..self.length + field.len()].copy_from_slice(field);
        self.length += field.len();
        self
    }

    fn send(&self, socket: &OwnedFd, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        sendmsg(socket, &[IoSlice::new(&self.bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Waits for a message of type `kind`.
fn expect(socket: &OwnedFd, kind: u16) -> Result<()> {
    let mut bytes = [0; MESSAGE];
    let (length, _) = recv(socket, &mut bytes[..], RecvFlags::empty())?;
    let got = u16::from_ne_bytes([bytes[0], bytes[1]]);
    match got {
        _ if length != MESSAGE => Err(format!("memif: a message of {length} bytes").into()),
        DISCONNECT => {
            let reason = String::from_utf8_lossy(&bytes[6..102]);
            let reason = reason.trim_end_matches('\0');
            Err(format!("memif: the server refuses: {reason}").into())
        }
        got if got == kind => Ok(()),
        got => Err(format!("memif: message {got} instead of {kind}").into()),
    }
}
