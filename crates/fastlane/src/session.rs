//! The session: the Unix socket on which a running application serves its slow path, `fastlane top`
//! and other tools.
//!
//! The application [opens](Session::open) it at a path. A [`Client`] [`connect`]s to it and
//! receives the [description](crate::describe::Application) and the counters, as a read-only
//! descriptor. The connection stays open; it ends when the application ends. A client may then
//! request [tables](crate::slow) (to read them, or as their only writer), message rings, other
//! steering rules, and copies of packets ([`Client::capture`]). Everything granted ends with the
//! connection.
//!
//! Only the user that runs the application and root may connect (`SO_PEERCRED`, unix(7)). Both
//! sides treat received bytes as hostile: lengths and times are bounded, and no side waits for a
//! silent peer.
//!
//! # Examples
//! A session that serves a description and counters, and a client of it:
//! ```
//! use fastlane::counters::{Counters, PortCounter};
//! use fastlane::describe::{Application, LaneFacts, PortFacts};
//! use fastlane::session::{Session, connect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("example.sock");
//! let application = Application {
//!     name: "example".to_owned(),
//!     version: "1.0.0".to_owned(),
//!     pid: std::process::id(),
//!     lanes: vec![LaneFacts { cpu: None, idle: "adaptive".to_owned() }],
//!     ports: vec![PortFacts {
//!         name: "wire".to_owned(),
//!         driver: "memory".to_owned(),
//!         mode: String::new(),
//!         interface: None,
//!         queues: 1,
//!         kernel: None,
//!         switches: 0,
//!     }],
//! };
//! let counters = Counters::create(1, 1)?;
//! let session = Session::open(&path, &application, &counters)?;
//!
//! let client = connect(&path)?;
//! counters.port(0, 0).add(PortCounter::ReceivedPackets, 3);
//! assert_eq!(client.application.name, "example");
//! assert_eq!(client.counters.port(0, 0).load(PortCounter::ReceivedPackets), 3);
//!
//! drop(session);
//! assert!(!client.is_alive());
//! # Ok(())
//! # }
//! ```

use std::io;
use std::path::PathBuf;

mod client;
mod listener;
mod peer;
mod protocol;
mod requests;
mod server;
mod transfer;

pub use client::{Client, connect};
pub(crate) use client::{connect_to_holder, converse};
pub(crate) use peer::{ClientIdentity, Reply, Response, Service};
pub(crate) use protocol::{Kind, LIMIT};
pub(crate) use requests::{
    Changes, HandoverRequest, MessageRingList, NewRules, Reload, SWITCH_PATIENCE, Shards, Switch,
    TableList, Write, read_request,
};
pub use requests::{ReplacedRules, ShardList, SwitchReport};
pub use server::Session;
pub(crate) use server::{Reservation, serve, serve_at};

pub use crate::session_path::{DIRECTORY, path};
pub use crate::tables::Role;

/// Error of opening a session or of a request to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The directory of the socket could not be created.
    #[error(
        "session {path}: its directory cannot be created ({source}); create it for this user, or \
         set `session` to another path"
    )]
    Directory {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The socket could not be created.
    #[error(
        "session {path}: the socket cannot be created ({source}); set `session` to another path"
    )]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// Another process listens on the socket.
    #[error("session {path}: {} listens there; stop it, or set another `name`", process(*pid))]
    InUse {
        /// Path of the socket.
        path: PathBuf,
        /// Process ID, if it is visible in this PID namespace.
        pid: Option<u32>,
    },
    /// The path exists and is not a socket.
    #[error(
        "session {path}: this file is not a socket; remove it, or set `session` to another path"
    )]
    NotASocket {
        /// Path of the socket.
        path: PathBuf,
    },
    /// A resource of the session could not be created.
    #[error("session {path}: {what}: {source}")]
    Start {
        /// Path of the socket.
        path: PathBuf,
        /// Resource that failed.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The description is longer than a client accepts.
    #[error("session {path}: the application's description is longer than {limit} bytes")]
    TooLong {
        /// Path of the socket.
        path: PathBuf,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// No application listens on the socket.
    #[error("session {path}: no application runs under this name ({source}); start it first")]
    Absent {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The socket belongs to another user.
    #[error("session {path}: it belongs to another user; run as that user, or as root")]
    Denied {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The application refused the request.
    #[error("session {path}: refused: {message}")]
    Refused {
        /// Path of the socket.
        path: PathBuf,
        /// Reason given by the application.
        message: String,
    },
    /// The application uses another version of the protocol.
    #[error(
        "session {path}: the application uses version {theirs} of the session protocol and this \
         program version {ours}; install both from one release"
    )]
    Version {
        /// Path of the socket.
        path: PathBuf,
        /// Version of the application.
        theirs: u32,
        /// Version of this program.
        ours: u32,
    },
    /// The application did not reply in time.
    #[error("session {path}: {reason}")]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        /// Missing reply, and the remedy.
        reason: String,
    },
    /// The application belongs to another user and sent memory in huge pages.
    #[error(
        "session {path}: it sent memory in huge pages of user {user}, who could end this process \
         by punching holes into it; run this command as that user"
    )]
    ForeignMemory {
        /// Path of the socket.
        path: PathBuf,
        /// User of the application.
        user: u32,
    },
    /// The peer violated the protocol.
    #[error("session {path}: the peer does not follow the session protocol: {what}")]
    Protocol {
        /// Path of the socket.
        path: PathBuf,
        /// Violation of the protocol.
        what: String,
    },
}

fn process(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests;
