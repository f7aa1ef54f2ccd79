//! Errors of opening a memif port.

use std::io;

use thiserror::Error;

/// Error of opening a memif port. A missing peer is no error: the port waits for it.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("memif with {what}: {reason}; {remedy}")]
    Setting {
        /// Description of the setting.
        what: String,
        /// Reason of the refusal.
        reason: String,
        /// Remedy for the operator.
        remedy: String,
    },
    /// The socket name is too long.
    #[error(
        "memif socket {socket}: the name is too long: the maximum is 107 octets; \
         choose a shorter one"
    )]
    NameTooLong {
        /// Configured name.
        socket: String,
    },
    /// The directory of the socket does not exist.
    #[error(
        "memif socket {socket}: the directory does not exist; create it with `mkdir -p {directory}`"
    )]
    NoDirectory {
        /// Name of the socket.
        socket: String,
        /// The missing directory.
        directory: String,
    },
    /// Another server listens on the socket.
    #[error(
        "memif socket {socket}: another server listens on it; stop that one, configure another \
         socket, or set the role to client"
    )]
    InUse {
        /// Name of the socket.
        socket: String,
    },
    /// The path exists and is not a socket.
    #[error("memif socket {socket}: the path is a file and not a socket; configure another path")]
    NoSocket {
        /// Name of the socket.
        socket: String,
    },
    /// Permission to create the socket is missing.
    #[error(
        "memif socket {socket}: permission denied; the user of this process needs write \
         permission for the directory of the socket"
    )]
    NotPermitted {
        /// Name of the socket.
        socket: String,
    },
    /// A system call failed for another reason.
    #[error("memif socket {socket}: {action}: {source}")]
    Kernel {
        /// Name of the socket.
        socket: String,
        /// Action that failed.
        action: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}
