//! Messages with file descriptors over a stream.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg,
};

use super::protocol::{DESCRIPTORS, HEADER, Header, VERSION};

const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS));

/// Sends what it can of `bytes`, and these descriptors with the first of them.
pub(super) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    Ok(rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// A message as it came.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Why no message came.
#[derive(Debug)]
pub(super) enum Missing {
    Silence(io::Error),
    Nonsense(String),
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
        Self::Silence(error)
    }
}

/// Reads a message and its descriptors.
pub(super) fn receive(stream: &UnixStream) -> Result<Received, Missing> {
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    // Descriptors beyond those that there is space for are closed by the kernel (unix(7)).
    let received = loop {
        match recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map_err(io::Error::from)?.bytes,
        }
    };
    if received == 0 {
        return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
    }
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    let mut stream = stream;
    stream.read_exact(&mut header[received..])?;
    let header = Header::read(&header).map_err(Missing::Nonsense)?;
    let mut body = vec![0; header.length];
    stream.read_exact(&mut body)?;
    // Of another version that field may mean something else.
    if header.version == VERSION && descriptors.len() != header.descriptors {
        let (said, came) = (header.descriptors, descriptors.len());
        let what = format!("{said} descriptors were announced and {came} came");
        return Err(Missing::Nonsense(what));
    }
    Ok(Received { header, body, descriptors })
}
