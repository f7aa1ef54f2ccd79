//! Errors of the start.

use std::io;
use std::path::PathBuf;

/// Error of the start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The agent does not start.
    #[error(transparent)]
    Agent(#[from] fastlane_agent::Error),
    /// The configuration has no section `kubernetes`.
    #[error("the configuration of the agent has no section `kubernetes`; write it")]
    NoSection,
    /// The table of allocations cannot be used.
    #[error(
        "the table of allocations in {}: {error}; the agent needs this directory of kubelet's for \
         writing", path.display()
    )]
    Table {
        /// Path of the directory.
        path: PathBuf,
        /// Reason of the kernel.
        error: io::Error,
    },
    /// The API server cannot be used.
    #[error("API server: {0}")]
    ApiServer(String),
    /// DRA needs the API server.
    #[error("DRA needs the API server; run in a pod that mounts the token of a service account")]
    NoApiServer,
    /// DRA needs the name of the node.
    #[error("DRA needs the name of the node; set {variable}")]
    NoNode {
        /// Name of the variable.
        variable: &'static str,
    },
    /// The process lacks resources.
    #[error("threads and signals: {0}")]
    System(#[from] io::Error),
}
