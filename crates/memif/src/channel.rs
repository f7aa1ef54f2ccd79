//! The socket between server and client: connected channels, and the server's listener.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::message::{LENGTH, Message};
use crate::{Address, Error};

/// One end of a connected socket. No operation blocks.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A received message with its descriptor.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) message: Message,
    pub(crate) file: Option<OwnedFd>,
}

impl Channel {
    /// Connects to a server.
    pub(crate) fn connect(address: &SocketAddrUnix) -> rustix::io::Result<Self> {
        let socket = socket()?;
        rustix::net::connect(&socket, address)?;
        Ok(Self(socket))
    }

    /// Sends a message. Fails if the peer's receive buffer is full: waiting for a peer that does
    /// not read would block the control thread.
    pub(crate) fn send(
        &self,
        message: &Message,
        file: Option<BorrowedFd<'_>>,
    ) -> Result<(), String> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = file.map(|file| [file]);
        if let Some(files) = &files {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        let record = message.encode();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.0, &[IoSlice::new(&record)], &mut control, flags) {
            Ok(LENGTH) => Ok(()),
            Ok(_) => Err(format!("the message {} was truncated", message.kind())),
            Err(error) => Err(format!("cannot send {}: {error}", message.kind())),
        }
    }

    /// Sends a disconnect message; ignores failures.
    pub(crate) fn disconnect(&self, reason: &str) {
        let message = Message::Disconnect { code: 0, reason: reason.to_owned() };
        let _ = self.send(&message, None);
    }

    /// Receives the next message; returns `None` if there is none at present.
    ///
    /// # Errors
    /// Returns the reason if the peer has closed the socket or sent an invalid message.
    pub(crate) fn receive(&self) -> Result<Option<Received>, String> {
        let mut record = [0; LENGTH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut record)];
        let result = rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags);
        // Take the descriptor out in any case: one that stays in the buffer leaks. A peer that
        // attaches descriptors to every message would otherwise exhaust our descriptor table.
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        match result {
            Ok(received) if received.bytes == 0 => Err("the peer closed the socket".to_owned()),
            Ok(received)
                if received.bytes == LENGTH && !received.flags.contains(ReturnFlags::TRUNC) =>
            {
                let message = Message::decode(&record).map_err(|unknown| unknown.to_string())?;
                Ok(Some(Received { message, file }))
            }
            Ok(received) => {
                Err(format!("a message has {} octets instead of {LENGTH}", received.bytes))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(format!("receiving failed: {error}")),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Listening socket of a server. Dropping it removes the socket file.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Path, device and inode of a socket in the file system.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listener {
    pub(crate) fn open(address: &Address) -> Result<Self, Error> {
        let name = || address.to_string();
        let kernel = |action| move |error: Errno| kernel(address, action, error);
        let target = resolve(address)?;
        let socket = socket().map_err(kernel("creating a socket"))?;
        match (rustix::net::bind(&socket, &target), address) {
            (Ok(()), _) => {}
            (Err(Errno::ADDRINUSE), Address::Path(path)) => {
                remove_stale(path, &target)?;
                rustix::net::bind(&socket, &target).map_err(kernel("binding"))?;
            }
            (Err(Errno::ADDRINUSE), Address::Abstract(_)) => {
                return Err(Error::InUse { socket: name() });
            }
            (Err(Errno::NOENT), Address::Path(path)) if !directory(path).exists() => {
                let directory = directory(path).display().to_string();
                return Err(Error::NoDirectory { socket: name(), directory });
            }
            (Err(Errno::ACCESS | Errno::PERM | Errno::ROFS), _) => {
                return Err(Error::NotPermitted { socket: name() });
            }
            (Err(error), _) => return Err(kernel("binding")(error)),
        }
        let file = match address {
            Address::Path(path) => std::fs::symlink_metadata(path)
                .ok()
                .map(|metadata| (path.clone(), metadata.dev(), metadata.ino())),
            Address::Abstract(_) => None,
        };
        let listener = Self { socket, file };
        rustix::net::listen(&listener.socket, 8).map_err(kernel("listening"))?;
        Ok(listener)
    }

    /// Accepts the next client; returns `None` if there is none.
    ///
    /// # Errors
    /// Returns the reason if no descriptor or memory is available. The client stays in the queue,
    /// and an immediate retry would fail again.
    pub(crate) fn accept(&self) -> Result<Option<Channel>, String> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(&self.socket, flags) {
            Ok(socket) => Ok(Some(Channel(socket))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(Errno::MFILE) => {
                Err("cannot accept: too many open files; raise `ulimit -n`".to_owned())
            }
            Err(error) => Err(format!("cannot accept: {error}")),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Remove only our own file: another process may have replaced it.
        if let Some((path, device, inode)) = &self.file
            && let Ok(metadata) = std::fs::symlink_metadata(path)
            && (metadata.dev(), metadata.ino()) == (*device, *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the directory of a file.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Removes a socket file on which no process listens.
fn remove_stale(path: &Path, target: &SocketAddrUnix) -> Result<(), Error> {
    let name = || path.display().to_string();
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if !is_socket {
        return Err(Error::NoSocket { socket: name() });
    }
    match Channel::connect(target) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => {}
        Err(Errno::ACCESS) => return Err(Error::NotPermitted { socket: name() }),
        // A socket of another type, or a busy server: the address is in use.
        Ok(_) | Err(_) => return Err(Error::InUse { socket: name() }),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Error::NotPermitted { socket: name() })
        }
        _ => Ok(()),
    }
}

/// Converts an address to the kernel's form.
pub(crate) fn resolve(address: &Address) -> Result<SocketAddrUnix, Error> {
    let resolved = match address {
        Address::Path(path) => SocketAddrUnix::new(path.as_path()),
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
    };
    resolved.map_err(|error| match error {
        Errno::NAMETOOLONG => Error::NameTooLong { socket: address.to_string() },
        other => kernel(address, "converting the name", other),
    })
}

fn kernel(address: &Address, action: &'static str, error: Errno) -> Error {
    Error::Kernel { socket: address.to_string(), action, source: error.into() }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
