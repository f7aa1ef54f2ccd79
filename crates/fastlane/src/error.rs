//! Errors of starting and running an application.

use std::fmt::Display;

use crate::diagnostic::Diagnostic;

/// Error of starting or running an application. Each message names the object, the reason and the
/// remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Error of the system call.
        reason: String,
    },
    /// The configuration is malformed.
    #[error("{0}")]
    Configuration(Diagnostic),
    /// A `--set` that cannot be applied.
    #[error("--set {change}: {reason}; write PATH=VALUE, as in ports.wire.driver=af-packet")]
    Override {
        /// The override as given.
        change: String,
        /// Reason of the refusal.
        reason: String,
    },
    /// A value in the configuration is not allowed.
    #[error("{path}: {what}")]
    Value {
        /// Path of keys to the value, joined by dots.
        path: String,
        /// Error and allowed values.
        what: String,
        /// Nearest valid word.
        meant: Option<String>,
    },
    /// A lane cannot run as configured.
    #[error("lane {lane}: {reason}")]
    Lane {
        /// Index of the lane in `lanes.cpus`.
        lane: usize,
        /// Reason and remedy.
        reason: String,
    },
    /// A port cannot be opened.
    #[error("port `{port}`: {reason}")]
    Port {
        /// Name of the port.
        port: String,
        /// Reason and remedy.
        reason: String,
    },
    /// The session, the metrics endpoint or shared memory cannot be created.
    #[error("{reason}")]
    Service {
        /// Service: `session`, `metrics`, `counters`, `tables`, `messages`, `lanes` or `mirror`.
        what: &'static str,
        /// Object, reason and remedy.
        reason: String,
    },
    /// The application refuses to start.
    #[error("{0}")]
    Application(String),
    /// The run failed, for example because frames are missing.
    #[error("{0}")]
    Run(String),
}

impl Error {
    /// Creates an error of the application itself.
    pub fn application(reason: impl Display) -> Self {
        Self::Application(reason.to_string())
    }

    pub(crate) fn port(port: &str, reason: impl Display) -> Self {
        Self::Port { port: port.to_owned(), reason: reason.to_string() }
    }

    /// Returns the exit status of the process: 3 for a wrong configuration, 4 if the machine or its
    /// state does not allow the start, 5 if the run failed.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Unreadable { .. }
            | Self::Configuration(_)
            | Self::Override { .. }
            | Self::Value { .. } => 3,
            Self::Lane { .. } | Self::Port { .. } | Self::Service { .. } | Self::Application(_) => {
                4
            }
            Self::Run(_) => 5,
        }
    }
}
