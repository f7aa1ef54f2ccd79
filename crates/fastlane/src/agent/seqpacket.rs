//! Records with descriptors over a SOCK_SEQPACKET socket, one record in one message.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::records::{DESCRIPTORS, RECORD_LIMIT};

const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS));

/// Received record.
#[derive(Debug)]
pub struct Received {
    /// The record.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// Creates a socket.
///
/// # Errors
/// The refusal of the kernel.
pub fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Connects to the agent that listens at `path`.
///
/// # Errors
/// The refusal of the kernel: nobody listens there, or this user may not connect.
pub fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Sends a record with its descriptors, within `limit`.
///
/// # Errors
/// The refusal of the kernel, or `TimedOut`.
pub fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    limit: Duration,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let end = Instant::now() + limit;
    loop {
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(socket, PollFlags::OUT, Some(end))?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives a record with at most [`DESCRIPTORS`] descriptors; the kernel closes further ones. Ends
/// at `end`, or waits for ever. Returns `None` if the peer has closed the connection.
///
/// # Errors
/// The refusal of the kernel, `TimedOut`, or `InvalidData` for a record that is longer than
/// [`RECORD_LIMIT`].
pub fn receive(socket: &OwnedFd, end: Option<Instant>) -> io::Result<Option<Received>> {
    wait(socket, PollFlags::IN, end)?;
    let mut bytes = vec![0; RECORD_LIMIT];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let mut was_reset = false;
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            // The peer has ended with our records unread. Its last one may still be there.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        let what = format!("a record has more than {RECORD_LIMIT} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    bytes.truncate(received.bytes);
    bytes.shrink_to_fit();
    Ok(Some(Received { bytes, descriptors }))
}

/// Waits until the socket is ready.
fn wait(socket: impl AsFd, flags: PollFlags, end: Option<Instant>) -> io::Result<()> {
    let mut files = [PollFd::new(&socket, flags)];
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut files, left.as_ref()) {
            Ok(0) => return Err(ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) if end.is_none_or(|end| Instant::now() < end) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
