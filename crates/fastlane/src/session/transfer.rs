//! Messages with file descriptors over a stream.

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

/// Whether the other side has closed its end, whatever it said before that nobody has heard.
pub(super) fn has_ended(stream: &UnixStream) -> bool {
    let mut ends = [PollFd::new(stream, PollFlags::RDHUP)];
    let looked = poll(&mut ends, Some(&Timespec::default()));
    looked.is_ok() && !ends[0].revents().is_empty()
}

/// Reads a message and its descriptors, in the time that the stream has for one reading: a peer
/// that says a byte now and then is given up, too.
pub(super) fn receive(stream: &UnixStream) -> Result<Received, Missing> {
    let patience = stream.read_timeout()?;
    let end = patience.and_then(|patience| Instant::now().checked_add(patience));
    let received = receive_until(stream, end);
    stream.set_read_timeout(patience)?;
    received
}

fn receive_until(stream: &UnixStream, end: Option<Instant>) -> Result<Received, Missing> {
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
    read(stream, &mut header[received..], end)?;
    let header = Header::read(&header).map_err(Missing::Nonsense)?;
    let mut body = vec![0; header.length];
    read(stream, &mut body, end)?;
    // Of another version that field may mean something else.
    if header.version == VERSION && descriptors.len() != header.descriptors {
        let (said, came) = (header.descriptors, descriptors.len());
        let what = format!("{said} descriptors were announced and {came} came");
        return Err(Missing::Nonsense(what));
    }
    Ok(Received { header, body, descriptors })
}

/// Fills `bytes`, or fails when that takes too long.
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
    fn an_end_is_seen_behind_what_nobody_has_heard() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"late").unwrap();
        assert!(!has_ended(&ours));
        drop(theirs);
        assert!(has_ended(&ours));
    }

    #[test]
    fn who_says_a_byte_now_and_then_is_given_up() {
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
        assert!(matches!(&missing, Missing::Silence(error) if timely.contains(&error.kind())));
        assert_eq!(ours.read_timeout().unwrap(), patience);
        drop(ours);
        assert!(drips.join().unwrap(), "it was given up before it had said all");
    }
}
