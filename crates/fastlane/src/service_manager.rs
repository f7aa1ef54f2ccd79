//! Connection to the service manager (systemd): state notifications, and its file descriptor store.
//!
//! The protocol is a datagram to the socket in `NOTIFY_SOCKET`: sd_notify(3),
//! sd_pid_notify_with_fds(3).

use std::ffi::OsString;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Longest wait for the service manager.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to the service manager.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    /// Capacity of its descriptor store, if it is known (`FDSTORE`, systemd 254).
    pub(crate) limit: Option<usize>,
}

impl ServiceManager {
    /// Connects to the service manager of this process, if `NOTIFY_SOCKET` names one.
    pub(crate) fn find() -> Option<Self> {
        let address = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty())?;
        let limit = std::env::var("FDSTORE").ok().and_then(|number| number.parse().ok());
        match connect(&address) {
            Ok(socket) => Some(Self { socket, limit }),
            Err(error) => {
                let address = address.display();
                tracing::warn!(
                    "no notifications to the service manager: cannot connect to {address}: {error}"
                );
                None
            }
        }
    }

    /// Creates the connection of a test.
    #[cfg(test)]
    pub(crate) fn of(socket: UnixDatagram, limit: Option<usize>) -> Self {
        Self { socket, limit }
    }

    /// Sends a state such as `READY=1`. A failure is logged and otherwise ignored.
    pub(crate) fn notify(&self, state: &str) {
        if let Err(error) = self.send(state, None) {
            tracing::warn!("the service manager did not receive `{state}`: {error}");
        }
    }

    /// Stores a descriptor under a name of letters, digits and `-`.
    pub(crate) fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        // Without FDPOLL=0 it closes descriptors that hang up, such as a device that is down.
        self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(descriptor))
    }

    /// Closes all stored descriptors of this name.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None)
    }

    /// Waits until it has processed all previous messages: sd_notify_barrier(3).
    pub(crate) fn wait(&self) -> io::Result<()> {
        let (mut ours, theirs) = UnixStream::pair()?;
        self.send("BARRIER=1", Some(theirs.as_fd()))?;
        drop(theirs);
        ours.set_read_timeout(Some(TIMEOUT))?;
        ours.read(&mut [0]).map(drop) // returns when the service manager closes its end
    }

    fn send(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let text = [IoSlice::new(text.as_bytes())];
        sendmsg(&self.socket, &text, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

fn connect(address: &OsString) -> io::Result<UnixDatagram> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(address)?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    Ok(socket)
}
