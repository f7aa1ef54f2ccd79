//! The session: the Unix socket where a running application meets its slow path, `top` and others.
//!
//! The application [opens](Session::open) it under a path; a [`Client`] [`connect`]s to it and gets
//! the [`Application`](crate::describe::Application) and its counters, as a file descriptor that it
//! cannot write through. The connection then stays open: its end is the application's end. A client
//! may ask for more, as often as it likes: for [tables](crate::slow), to read them or as their one
//! writer, for messages, for other steering rules, for copies of packets ([`Client::capture`]).
//! What it was granted ends with the connection.
//!
//! Only the user that runs the application, and root, are let in (`SO_PEERCRED`, unix(7)). Both
//! sides take what they read for hostile: sizes and times are bounded, and nobody waits for a
//! silent peer.

use std::io;
use std::path::PathBuf;

mod client;
mod host;
mod leases;
mod listener;
mod peer;
mod protocol;
mod requests;
mod server;
mod transfer;

pub use client::{Client, connect};
pub(crate) use client::{connect_to_keeper, converse};
pub(crate) use host::{Offers, read as read_request};
pub(crate) use peer::{Answer, Asker, Service};
pub(crate) use protocol::Kind;
pub(crate) use requests::{Keep, MessageRings, PartFacts, TableFacts, TableList, Write};
pub use requests::{Replaced, Role, ShardList};
pub use server::Session;
pub(crate) use server::{Reservation, read_only, serve_at};

/// Where the sessions of root's applications are found by their names.
pub const DIRECTORY: &str = "/run/fastlane";

/// The path of the session of the application `name`: `/run/fastlane/NAME.sock`, or of a user other
/// than root who has a runtime directory, `$XDG_RUNTIME_DIR/fastlane/NAME.sock`.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = runtime.filter(|path| path.is_absolute() && !rustix::process::geteuid().is_root());
    let directory = own.map_or_else(|| PathBuf::from(DIRECTORY), |path| path.join("fastlane"));
    directory.join(format!("{name}.sock"))
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The directory of the socket could not be made.
    #[error(
        "session {path}: its directory cannot be made: {source}; make it for this user, or write \
         another path as `session`"
    )]
    Directory {
        /// The path of the socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket could not be made.
    #[error("session {path}: the socket cannot be made: {source}; write another path as `session`")]
    Bind {
        /// The path of the socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A live process listens there.
    #[error("session {path}: {} listens there; end it, or write another `name`", process(*pid))]
    InUse {
        /// The path of the socket.
        path: PathBuf,
        /// The process, if it can be seen from here.
        pid: Option<i32>,
    },
    /// Something that is no socket is there.
    #[error("session {path}: there is a file that is no socket; remove it, or choose another path")]
    NotASocket {
        /// The path of the socket.
        path: PathBuf,
    },
    /// A resource of the session could not be made.
    #[error("session {path}: {what}: {source}")]
    Start {
        /// The path of the socket.
        path: PathBuf,
        /// What was being made.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The facts are longer than a client accepts.
    #[error("session {path}: the application's description is longer than {limit} bytes")]
    TooLong {
        /// The path of the socket.
        path: PathBuf,
        /// The most, in bytes.
        limit: usize,
    },
    /// Nobody listens there.
    #[error("session {path}: no application runs under this name ({source}); start it first")]
    Absent {
        /// The path of the socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error("session {path}: it belongs to another user; run as that user, or as root")]
    Denied {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The application refused, for the reason it gives.
    #[error("session {path}: refused: {message}")]
    Refused {
        /// The path of the socket.
        path: PathBuf,
        /// The application's words.
        message: String,
    },
    /// The application speaks another version of the protocol.
    #[error(
        "session {path}: the application speaks version {theirs} of the session, this program \
         version {ours}; use both of one release"
    )]
    Version {
        /// The path of the socket.
        path: PathBuf,
        /// The version of the application.
        theirs: u32,
        /// The version of this program.
        ours: u32,
    },
    /// Nobody answered in time.
    #[error("session {path}: {reason}")]
    Silent {
        /// The path of the socket.
        path: PathBuf,
        /// What was missing, and what to do.
        reason: String,
    },
    /// The peer did not answer as an application does.
    #[error("session {path}: what listens there is no Fastlane application: {what}")]
    Protocol {
        /// The path of the socket.
        path: PathBuf,
        /// What was wrong.
        what: String,
    },
}

fn process(pid: Option<i32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests;
