//! The listening socket: its file, permissions and removal.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastlane_kernel::peer::Credentials;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::SessionError;

/// Maximum number of attempts to lock the directory, [`LOCK_STEP`] apart.
const LOCK_STEPS: u32 = 100;
/// Interval between two attempts to lock the directory.
const LOCK_STEP: Duration = Duration::from_millis(10);

/// Listening socket. Its file is removed on drop.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: UnixListener,
    pub(super) path: PathBuf,
    /// Device and inode, so that drop does not remove the socket of a successor.
    identity: (u64, u64),
}

impl Listener {
    /// Creates the directory and the socket. A socket that a dead process left is replaced.
    pub(super) fn bind(path: &Path) -> Result<Self, SessionError> {
        let failed = |source| SessionError::Bind { path: path.to_owned(), source };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(|source| SessionError::Directory { path: path.to_owned(), source })?;
        // Two processes that start at once must not find the same dead socket and then remove each
        // other's new one.
        let _lock = lock(directory).map_err(failed)?;
        let socket = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_stale(path)?;
                UnixListener::bind(path)
            }
            other => other,
        };
        let socket = socket.map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        let identity = identity(path).map_err(failed)?;
        Ok(Self { socket, path: path.to_owned(), identity })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Locks the directory for as long as the result lives. After a timeout it returns without the
/// lock: any user who may read the directory can hold it and must not block the start.
fn lock(directory: &Path) -> io::Result<OwnedFd> {
    let file =
        open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for _ in 0..LOCK_STEPS {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_STEP),
            _ => break,
        }
    }
    Ok(file)
}

/// Removes the socket of a process that no longer listens.
fn remove_stale(path: &Path) -> Result<(), SessionError> {
    let failed = |source| SessionError::Bind { path: path.to_owned(), source };
    let kind = std::fs::symlink_metadata(path).map_err(failed)?.file_type();
    if !kind.is_socket() {
        return Err(SessionError::NotASocket { path: path.to_owned() });
    }
    match connect(path) {
        Ok(stream) => {
            let pid = Credentials::of(&stream).ok().map(|peer| peer.process);
            // 0 if the process is in a PID namespace that is not visible here.
            Err(SessionError::InUse { path: path.to_owned(), pid: pid.filter(|pid| *pid > 0) })
        }
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(Errno::AGAIN) => Err(SessionError::InUse { path: path.to_owned(), pid: None }),
        Err(error) => Err(failed(error.into())),
    }
}

/// Connects without blocking; a full backlog gives `AGAIN`. The stream is non-blocking too.
pub(super) fn connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}
