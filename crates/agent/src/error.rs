//! Errors of the agent's start and of grants.

use std::path::{Path, PathBuf};

/// Error of the agent's start, or of a grant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration cannot be read or is malformed.
    #[error(transparent)]
    Unreadable(#[from] fastlane::Error),
    /// The configuration has a value that is not allowed.
    #[error("{}: {what}", path.display())]
    Configuration {
        /// Path of the file.
        path: PathBuf,
        /// Key, reason and remedy.
        what: String,
    },
    /// Settings that a program passes are wrong, or the process lacks resources.
    #[error("{0}")]
    Settings(String),
    /// A grant cannot be given.
    #[error("grant `{name}`: {reason}")]
    Grant {
        /// Name of the grant.
        name: String,
        /// Reason and remedy.
        reason: String,
    },
    /// A capability is missing.
    #[error(
        "the agent lacks {missing}: run it as root, or by systemd with the capabilities of \
         docs/fastlane-agent.service"
    )]
    NoPrivilege {
        /// Names of the missing capabilities.
        missing: String,
    },
    /// Programs cannot be pinned.
    #[error(
        "no directory for pins at {}: {reason}; mount a BPF file system (`mount -t bpf bpf \
         /sys/fs/bpf`), or name another directory by `pins`", path.display()
    )]
    Pins {
        /// Path of the directory.
        path: PathBuf,
        /// Reason of the refusal.
        reason: String,
    },
    /// Another agent runs with the same pins.
    #[error(
        "another agent has its pins at {}; end it first, or name another `pins`", path.display()
    )]
    OtherAgent {
        /// Path of the directory.
        path: PathBuf,
    },
    /// Clients could not connect.
    #[error("the socket {}: {reason}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Reason and remedy.
        reason: String,
    },
}

impl Error {
    pub(crate) fn pins(path: &Path, reason: String) -> Self {
        Self::Pins { path: path.to_owned(), reason }
    }
}
