//! Errors of the kernel tier.

use std::io;
use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::ProgramError as AyaError;
use fastlane_steer::ProgramError;
use thiserror::Error;

/// Reason why the kernel tier could not be opened, attached or read.
#[derive(Debug, Error)]
pub enum TierError {
    /// The program or a table was refused.
    #[error("the kernel tier of flows: {0}")]
    Program(#[from] ProgramError),
    /// The pins cannot be made or read.
    #[error(
        "the kernel tier of flows: no pins at {}: {reason}; mount a BPF file system (`mount -t bpf \
         bpf /sys/fs/bpf`), or name a directory of another one by `app.flows.pins`",
        path.display()
    )]
    Pins {
        /// Directory of the pins.
        path: PathBuf,
        /// Refusal of the kernel.
        reason: io::Error,
    },
    /// The tables of a running tier cannot be read.
    #[error(
        "the kernel tier of flows cannot be read at {} ({reason}): run this as root, where its BPF \
         file system is mounted",
        path.display()
    )]
    Unreadable {
        /// Directory of the pins.
        path: PathBuf,
        /// Refusal of the kernel.
        reason: io::Error,
    },
}

/// Converts an error of a table into the error of the kernel.
pub(crate) fn system(error: MapError) -> io::Error {
    match error {
        MapError::SyscallError(error) => error.io_error,
        MapError::IoError(error) | MapError::CreateError { io_error: error, .. } => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Converts an error of a table.
pub(crate) fn table(action: &str, error: MapError) -> TierError {
    ProgramError::new(action, AyaError::MapError(error)).into()
}
