//! Transfer of messages with file descriptors over a Unix stream.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg,
};

use super::protocol::{DESCRIPTORS, HEADER, Header, VERSION};

const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS));

/// Sends as many of `bytes` as possible, and the descriptors with the first of them. Returns the
/// number of bytes sent.
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

/// Received message.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Reason why no message was received.
#[derive(Debug)]
pub(super) enum ReceiveError {
    /// The stream failed, ended or timed out.
    Io(io::Error),
    /// The peer violated the protocol.
    Malformed(String),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Returns true if the peer has closed its end, even if unread bytes remain.
pub(super) fn has_ended(stream: &UnixStream) -> bool {
    let mut ends = [PollFd::new(stream, PollFlags::RDHUP)];
    let looked = poll(&mut ends, Some(&Timespec::default()));
    looked.is_ok() && !ends[0].revents().is_empty()
}

/// Receives a message and its descriptors. The read timeout of the stream bounds the whole message,
/// so a peer that sends single bytes slowly fails too.
pub(super) fn receive(stream: &UnixStream) -> Result<Received, ReceiveError> {
    let patience = stream.read_timeout()?;
    let end = patience.and_then(|patience| Instant::now().checked_add(patience));
    let received = receive_until(stream, end);
    stream.set_read_timeout(patience)?;
    received
}

fn receive_until(stream: &UnixStream, end: Option<Instant>) -> Result<Received, ReceiveError> {
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    // The kernel closes descriptors for which there is no space (unix(7)).
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
    read(stream, &mut header[received..], end)?;
    let header = Header::read(&header).map_err(ReceiveError::Malformed)?;
    let mut body = vec![0; header.length];
    read(stream, &mut body, end)?;
    // In another version this field may have another meaning.
    if header.version == VERSION && descriptors.len() != header.descriptors {
        let (expected, received) = (header.descriptors, descriptors.len());
        let what = format!("{expected} descriptors were announced and {received} received");
        return Err(ReceiveError::Malformed(what));
    }
    Ok(Received { header, body, descriptors })
}

/// Fills `bytes`; fails with `TimedOut` after `end`.
fn read(mut stream: &UnixStream, mut bytes: &mut [u8], end: Option<Instant>) -> io::Result<()> {
    while !bytes.is_empty() {
        if let Some(end) = end {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        }
        match stream.read(bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::protocol::{self, Kind};
    use super::*;

    #[test]
    fn the_end_is_seen_behind_unread_bytes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"late").unwrap();
        assert!(!has_ended(&ours));
        drop(theirs);
        assert!(has_ended(&ours));
    }

    #[test]
    fn a_peer_that_sends_single_bytes_slowly_times_out() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let patience = Some(Duration::from_millis(100));
        ours.set_read_timeout(patience).unwrap();
        let drips = std::thread::spawn(move || {
            let message = protocol::message(Kind::Tables, &[b' '; 1 << 20], 0).unwrap();
            for byte in message.chunks(1) {
                if theirs.write_all(byte).is_err() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
        let missing = receive(&ours).unwrap_err();
        let timely = [ErrorKind::TimedOut, ErrorKind::WouldBlock];
        assert!(matches!(&missing, ReceiveError::Io(error) if timely.contains(&error.kind())));
        assert_eq!(ours.read_timeout().unwrap(), patience);
        drop(ours);
        assert!(drips.join().unwrap(), "the receiver gave up before the whole message");
    }
}
