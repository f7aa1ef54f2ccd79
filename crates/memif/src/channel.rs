//! The socket between server and client.

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

/// One end of a connected socket. It never waits.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A message and the descriptor that came with it.
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

    /// Sends a message. A peer that does not read what it is told is an error.
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
            Ok(_) => Err(format!("the message {} was cut", message.kind())),
            Err(error) => Err(format!("cannot send {}: {error}", message.kind())),
        }
    }

    /// Tells the peer that it is over, if it listens.
    pub(crate) fn disconnect(&self, reason: &str) {
        let message = Message::Disconnect { code: 0, reason: reason.to_owned() };
        let _ = self.send(&message, None);
    }

    /// The next message; nothing when there is none now.
    pub(crate) fn receive(&self) -> Result<Option<Received>, String> {
        let mut record = [0; LENGTH];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(&mut record)];
        let result = rustix::net::recvmsg(&self.0, &mut parts, &mut control, flags);
        // Taken out in any case: what nobody keeps is closed.
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        match result {
            Ok(received) if received.bytes == 0 => Err("the peer has gone".to_owned()),
            Ok(received)
                if received.bytes == LENGTH && !received.flags.contains(ReturnFlags::TRUNC) =>
            {
                let message = Message::decode(&record).map_err(|unknown| unknown.to_string())?;
                Ok(Some(Received { message, file }))
            }
            Ok(received) => Err(format!("a message of {} octets", received.bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(format!("the peer has gone: {error}")),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Where clients knock. The file of the socket goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Path, device and inode, of a socket in the file system.
    file: Option<(PathBuf, u64, u64)>,
}

impl Listener {
    pub(crate) fn open(address: &Address) -> Result<Self, Error> {
        let name = || address.to_string();
        let kernel = |action| move |error: Errno| kernel(address, action, error);
        let target = resolve(address)?;
        let socket = socket().map_err(kernel("making a socket"))?;
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

    /// The next client, if there is one. After an error there may still be one, and to ask again at
    /// once is of no use: too many files are open, or the kernel has no memory.
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
        // Only ours: somebody may have removed it and made another.
        if let Some((path, device, inode)) = &self.file
            && let Ok(metadata) = std::fs::symlink_metadata(path)
            && (metadata.dev(), metadata.ino()) == (*device, *inode)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The directory of a file.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    }
}

/// Removes a socket that nobody listens at.
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
        // Of another kind, or too busy to answer: there is somebody.
        Ok(_) | Err(_) => return Err(Error::InUse { socket: name() }),
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Error::NotPermitted { socket: name() })
        }
        _ => Ok(()),
    }
}

/// The address as the kernel takes it.
pub(crate) fn resolve(address: &Address) -> Result<SocketAddrUnix, Error> {
    let resolved = match address {
        Address::Path(path) => SocketAddrUnix::new(path.as_path()),
        Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
    };
    resolved.map_err(|error| match error {
        Errno::NAMETOOLONG => Error::NameTooLong { socket: address.to_string() },
        other => kernel(address, "reading the name", other),
    })
}

fn kernel(address: &Address, action: &'static str, error: Errno) -> Error {
    Error::Kernel { socket: address.to_string(), action, source: error.into() }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
