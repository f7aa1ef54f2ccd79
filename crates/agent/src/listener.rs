//! Sockets on which clients find the agent: each has a thread that accepts connections.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastlane::agent::seqpacket;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags};

use crate::Error;

/// Stack of a thread that accepts connections, in bytes.
const STACK: usize = 64 << 10;
/// Pause after an error of accept(2), for example because descriptors are exhausted.
const PAUSE: Duration = Duration::from_millis(100);

/// Socket with its thread. Dropping it ends the thread and removes the socket.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    socket: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Creates the socket and passes each connection to `admit`. Everybody may connect whom the
    /// directory lets in.
    ///
    /// # Errors
    /// The refusal of the kernel, or what is there already.
    pub(crate) fn open(
        path: &Path,
        admit: impl Fn(OwnedFd) + Send + 'static,
    ) -> Result<Self, Error> {
        let refuse = |error: io::Error| socket_error(path, error.to_string());
        let socket = Arc::new(listen(path)?);
        let accepting = Arc::clone(&socket);
        let thread = thread::Builder::new().name("listener".to_owned()).stack_size(STACK);
        let thread = thread.spawn(move || accept(&accepting, admit)).map_err(refuse)?;
        Ok(Self { path: path.to_owned(), socket, thread: Some(thread) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The next listener replaces it anyway.
        let _ = std::fs::remove_file(&self.path);
        // It ends accept(2). An error would mean that the socket does not listen.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of {} has panicked", self.path.display());
        }
    }
}

fn socket_error(path: &Path, reason: String) -> Error {
    Error::Socket { path: path.to_owned(), reason }
}

fn listen(path: &Path) -> Result<OwnedFd, Error> {
    let refuse = |error: io::Error| socket_error(path, error.to_string());
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(refuse)?;
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let reason = "another file is there; remove it, or name another `socket`";
            return Err(socket_error(path, reason.to_owned()));
        }
        Ok(_) if seqpacket::connect(path).is_ok() => {
            return Err(socket_error(path, "another agent listens there; end it first".to_owned()));
        }
        Ok(_) => std::fs::remove_file(path).map_err(refuse)?,
        Err(_) => {}
    }
    let socket = seqpacket::socket().map_err(refuse)?;
    let bound = SocketAddrUnix::new(path)
        .and_then(|address| rustix::net::bind(&socket, &address))
        .and_then(|()| rustix::net::listen(&socket, 128));
    bound.map_err(|error| refuse(error.into()))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(refuse)?;
    Ok(socket)
}

/// Accepts connections until the socket is shut down.
fn accept(socket: &OwnedFd, admit: impl Fn(OwnedFd)) {
    loop {
        match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(connection) => admit(connection),
            Err(Errno::INVAL) => return,
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(error) => {
                tracing::warn!("a client cannot be accepted: {error}");
                thread::sleep(PAUSE);
            }
        }
    }
}
