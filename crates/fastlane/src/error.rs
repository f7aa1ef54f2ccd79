//! Why an application does not start.

use std::fmt::Display;

use crate::config::Diagnostic;

/// Why an application does not start or did not end well: the thing, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be read.
    #[error("cannot read {path}: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system says.
        reason: String,
    },
    /// The configuration is not of the right form.
    #[error("{0}")]
    Configuration(Diagnostic),
    /// A `--set` that cannot be applied.
    #[error("--set {change}: {reason}; write PATH=VALUE, as in ports.wire.driver=af-packet")]
    Override {
        /// As it was given.
        change: String,
        /// Why not.
        reason: String,
    },
    /// A value of the configuration that is not allowed.
    #[error("{path}: {what}")]
    Value {
        /// The keys on the way to it, joined by dots.
        path: String,
        /// What is wrong and what is allowed.
        what: String,
        /// What was probably meant.
        meant: Option<String>,
    },
    /// A lane cannot run as configured.
    #[error("lane {lane}: {reason}")]
    Lane {
        /// Its place in `lanes.cpus`.
        lane: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// A port cannot be opened.
    #[error("port `{port}`: {reason}")]
    Port {
        /// Its name.
        port: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The session socket, the metrics endpoint or shared memory cannot be had.
    #[error("{reason}")]
    Service {
        /// Which: `session`, `metrics`, `counters`, `tables` or `messages`.
        what: &'static str,
        /// Which one, why, and what to do.
        reason: String,
    },
    /// The application refuses.
    #[error("{0}")]
    Application(String),
    /// The application ran, but something is wrong with what it did.
    #[error("{0}")]
    Run(String),
}

impl Error {
    /// An error of the application's own.
    pub fn application(reason: impl Display) -> Self {
        Self::Application(reason.to_string())
    }

    pub(crate) fn port(port: &str, reason: impl Display) -> Self {
        Self::Port { port: port.to_owned(), reason: reason.to_string() }
    }

    /// The exit status that tells this kind of error: 3 the configuration is wrong, 4 the machine
    /// or its state does not allow it, 5 the run went wrong.
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
