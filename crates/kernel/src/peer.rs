//! Process at the other end of a Unix socket, as the kernel tells it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ffi;

/// Credentials of the process at the other end of a Unix socket (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id; 0 if the process is outside of the PID namespace of this one, as that of another
    /// container of a pod is.
    pub process: u32,
    /// Effective user id when it connected. For a process in another user namespace this is the id
    /// to which its own one is mapped.
    pub user: u32,
    /// Effective group id when it connected, mapped likewise.
    pub group: u32,
}

impl Credentials {
    /// Returns those of the peer of a connection. The peer of a connected socket is the process
    /// that listened.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn of(connection: impl AsFd) -> io::Result<Self> {
        let found = ffi::peer_credentials(connection.as_fd())?;
        let process = u32::try_from(found.pid).unwrap_or(0);
        Ok(Self { process, user: found.uid, group: found.gid })
    }
}

/// Process that connected to a Unix socket.
#[derive(Debug)]
pub struct Peer {
    /// Process id; 0 if the process is outside of the PID namespace of this one.
    pub process: u32,
    /// Effective user id when it connected. For a process in another user namespace this is the id
    /// to which its own one is mapped.
    pub user: u32,
    /// Effective group id when it connected, mapped likewise.
    pub group: u32,
    /// Descriptor of the process; `None` before Linux 6.5.
    pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Returns the peer of an accepted connection.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn of(connection: impl AsFd) -> io::Result<Self> {
        let Credentials { process, user, group } = Credentials::of(&connection)?;
        let pidfd = ffi::peer_pidfd(connection.as_fd()).ok();
        Ok(Self { process, user, group, pidfd })
    }

    /// Returns the descriptor of the process, or `None` before Linux 6.5.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Returns the contents of `/proc/PID/cgroup` of the process: one line for each hierarchy.
    ///
    /// # Errors
    /// Returns an error if the process has ended, since another one may have its id by now, if it
    /// is outside of the PID namespace of this one, or before Linux 6.5.
    pub fn cgroups(&self) -> io::Result<String> {
        let pidfd = self.pidfd.as_ref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "SO_PEERPIDFD needs Linux 6.5")
        })?;
        if self.process == 0 {
            let what = "the process is in another PID namespace; run with that of the host";
            return Err(io::Error::new(io::ErrorKind::NotFound, what));
        }
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.process))?;
        // The process runs, so it had this id all the time.
        match has_ended(pidfd)? {
            false => Ok(cgroups),
            true => Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended")),
        }
    }
}

fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut files = [PollFd::new(pidfd, PollFlags::IN)];
    Ok(poll(&mut files, Some(&Timespec::default()))? > 0)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::process::Command;

    use rustix::process::Pid;

    use super::*;

    #[test]
    fn a_peer_is_known_with_its_control_groups() {
        let name = format!("fastlane-peer-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let _client = UnixStream::connect_addr(&address).unwrap();
        let peer = Peer::of(listener.accept().unwrap().0).unwrap();
        assert_eq!(peer.process, std::process::id());
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        if peer.pidfd().is_some() {
            let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
            assert_eq!(peer.cgroups().unwrap(), own);
        }
    }

    #[test]
    fn a_process_that_has_ended_is_not_taken_for_another_one() {
        // The id of a process that runs, with the descriptor of one that has ended.
        let mut ended = Command::new("true").spawn().unwrap();
        let id = Pid::from_raw(i32::try_from(ended.id()).unwrap()).unwrap();
        let flags = rustix::process::PidfdFlags::empty();
        let pidfd = rustix::process::pidfd_open(id, flags).unwrap();
        ended.wait().unwrap();
        let process = std::process::id();
        let peer = Peer { process, user: 0, group: 0, pidfd: Some(pidfd) };
        assert_eq!(peer.cgroups().unwrap_err().to_string(), "the process has ended");
    }
}
