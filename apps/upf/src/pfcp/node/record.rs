//! Node record: the value of the table `node`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// State of this node. It lives as long as the tables: without them the sessions are lost too.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NodeRecord {
    /// Our recovery time stamp (TS 29.244 clause 8.2.65), in seconds since 1900.
    pub recovery: u32,
    /// Number of starts of the control plane process with these tables.
    pub starts: u32,
    /// End of the reserved sequence numbers. Numbers below it may have been used.
    pub sequences: u32,
    /// Context that sessions are published with
    /// ([`Context::fingerprint`](crate::rules::compile::Context)).
    pub context: u32,
}
