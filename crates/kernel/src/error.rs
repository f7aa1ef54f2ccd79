//! Why something of the kernel's could not be opened, in words that say what to do.

use std::io;

use fastlane_steer::ProgramError;
use rustix::io::Errno;
use thiserror::Error;

/// Why something of the kernel's could not be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no interface of this name in the network namespace of the calling thread.
    #[error("no interface {interface} in this network namespace; there are {present}")]
    NoInterface {
        /// The name as given.
        interface: String,
        /// The names of those that exist.
        present: String,
    },
    /// The name of a new interface is taken.
    #[error("the interface name {interface} is taken: choose another, or remove that interface")]
    NameTaken {
        /// The name as given.
        interface: String,
    },
    /// A capability is missing.
    #[error(
        "{action}: the capability {capability} is missing: run as root, or \
         `setcap {lowercase}+ep PROGRAM`", lowercase = capability.to_lowercase()
    )]
    NoPrivilege {
        /// What was being done.
        action: String,
        /// The capability that the kernel asks for.
        capability: &'static str,
    },
    /// What was asked for cannot be.
    #[error("{subject}: {reason}; {remedy}")]
    Unfit {
        /// The interface or setting.
        subject: String,
        /// Why not.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The kernel refused for another reason.
    #[error("{action}: {source}")]
    Kernel {
        /// What was being done, and to which interface.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A steering program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Error {
    /// Sorts an answer of the kernel.
    pub(crate) fn kernel(
        action: impl Into<String>,
        capability: &'static str,
        error: impl Into<io::Error>,
    ) -> Self {
        let (action, source) = (action.into(), error.into());
        match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::ACCESS) => Self::NoPrivilege { action, capability },
            _ => Self::Kernel { action, source },
        }
    }
}

/// What it takes to make and change interfaces.
pub(crate) const NET_ADMIN: &str = "CAP_NET_ADMIN";
/// What it takes to open an AF_PACKET socket.
pub(crate) const NET_RAW: &str = "CAP_NET_RAW";
