//! Why a memif port could not be opened.

use std::io;

use thiserror::Error;

/// Why a memif port could not be opened. A peer that is not there is no error: the port waits.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting is impossible.
    #[error("memif with {what}: {reason}; {remedy}")]
    Setting {
        /// The setting.
        what: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The socket has a name that no socket can have.
    #[error(
        "memif socket {socket}: the name is too long: a socket's has at most 107 octets; \
         choose a shorter one"
    )]
    NameTooLong {
        /// The name as given.
        socket: String,
    },
    /// The directory of the socket is not there.
    #[error("memif socket {socket}: no such directory; make it with `mkdir -p {directory}`")]
    NoDirectory {
        /// The socket.
        socket: String,
        /// The directory that is missing.
        directory: String,
    },
    /// Somebody listens there.
    #[error(
        "memif socket {socket}: a server listens there already; stop it, name another socket, or \
         take the role of the client"
    )]
    InUse {
        /// The socket.
        socket: String,
    },
    /// Something that is no socket is there.
    #[error("memif socket {socket}: there is a file that is no socket; name another path")]
    NoSocket {
        /// The socket.
        socket: String,
    },
    /// Permission is missing.
    #[error(
        "memif socket {socket}: not permitted; the user of this process must have the right to \
         write in the directory of the socket"
    )]
    NotPermitted {
        /// The socket.
        socket: String,
    },
    /// The kernel refused for another reason.
    #[error("memif socket {socket}: {action}: {source}")]
    Kernel {
        /// The socket.
        socket: String,
        /// What was being done.
        action: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}
