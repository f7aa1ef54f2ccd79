//! Errors of opening interfaces and devices, with remedies.

use std::io;

use fastlane_steer::ProgramError;
use rustix::io::Errno;
use thiserror::Error;

/// Reason why an interface or device could not be opened.
#[derive(Debug, Error)]
pub enum Error {
    /// The network namespace of the calling thread has no interface of this name.
    #[error("no interface {interface} in this network namespace; there are {present}")]
    NoInterface {
        /// The requested name.
        interface: String,
        /// Names of the existing interfaces.
        present: String,
    },
    /// The name for a new interface is in use.
    #[error("the interface name {interface} is taken: choose another, or remove that interface")]
    NameTaken {
        /// The requested name.
        interface: String,
    },
    /// The process lacks a capability.
    #[error(
        "{action}: the capability {capability} is missing: run as root, or by systemd with \
         `AmbientCapabilities={capability}`"
    )]
    NoPrivilege {
        /// The refused operation.
        action: String,
        /// The required capability.
        capability: &'static str,
    },
    /// A setting or an interface is unsuitable.
    #[error("{subject}: {reason}; {remedy}")]
    Unfit {
        /// The interface or setting.
        subject: String,
        /// Reason why it is unsuitable.
        reason: String,
        /// Remedy for the operator.
        remedy: String,
    },
    /// The kernel refused an operation for another reason.
    #[error("{action}: {source}")]
    Kernel {
        /// The refused operation and its interface.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The agent, which opened the port, has refused.
    #[error("the agent refuses: {0}")]
    Agent(String),
    /// A steering program could not be loaded or attached.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl Error {
    /// Converts an error of the kernel: a missing privilege gets the remedy.
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

/// Capability to create and configure interfaces.
pub(crate) const NET_ADMIN: &str = "CAP_NET_ADMIN";
/// Capability to open AF_PACKET sockets.
pub(crate) const NET_RAW: &str = "CAP_NET_RAW";
