//! Reasons why a session cannot be published.

use fastlane::table::TableError;

use crate::rules::compile::{CompileError, FramedRoute};
use crate::rules::layout::UeKey;
use crate::session::SessionIndex;

/// Reason why a session cannot be published. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Its rules cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A table refused an entry.
    #[error(transparent)]
    Table(#[from] TableError),
    /// No free entry.
    #[error("no {0} is free; raise `app.sessions` or `app.limits.complex-sessions`")]
    Exhausted(&'static str),
    /// No free block of external ports.
    #[error(
        "no block of external ports is free; add addresses to `nat` of the N6 interface, or lower \
         its `ports-per-user`"
    )]
    NatExhausted,
    /// Another session has one of its tunnels.
    #[error("tunnel {teid:#010x} belongs to session {}; choose another", session.0)]
    Tunnel {
        /// Tunnel endpoint identifier.
        teid: u32,
        /// Session that owns it.
        session: SessionIndex,
    },
    /// Another session has one of its UE addresses in the network instance.
    #[error("a UE address of the session belongs to session {}; choose another", session.0)]
    User {
        /// Lookup key of the address.
        key: UeKey,
        /// Session that owns it.
        session: SessionIndex,
    },
    /// Another session has one of the networks behind its UE.
    #[error(
        "the network {}/{} belongs to session {}; choose another",
        route.address, route.length, session.0
    )]
    Network {
        /// Prefix and network instance.
        route: FramedRoute,
        /// Session that owns it.
        session: SessionIndex,
    },
}
