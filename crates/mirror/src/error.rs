//! Errors of opening and following.

use std::io;

use fastlane_table::TableError;
use rustix::io::Errno;
use thiserror::Error;

/// Reason why the mirror could not be opened or followed.
#[derive(Debug, Error)]
pub enum Error {
    /// The process lacks a capability.
    #[error(
        "{action}: the capability CAP_NET_ADMIN is missing: run as root, or \
         by systemd with `AmbientCapabilities=CAP_NET_ADMIN`"
    )]
    NoPrivilege {
        /// The refused operation.
        action: String,
    },
    /// The kernel refused an operation for another reason.
    #[error("{action}: {source}")]
    Kernel {
        /// The refused operation.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A table could not be created or attached.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Error {
    /// Converts an error of the kernel: a missing privilege gets the remedy.
    pub(crate) fn kernel(action: impl Into<String>, error: impl Into<io::Error>) -> Self {
        let (action, source) = (action.into(), error.into());
        match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NoPrivilege { action },
            _ => Self::Kernel { action, source },
        }
    }
}
