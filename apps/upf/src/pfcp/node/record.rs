//! What the slow half keeps of itself: the value of the table `node`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// This node. It lives as long as the tables do, for whoever loses them loses the sessions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct NodeRecord {
    /// Our recovery time stamp (TS 29.244 clause 8.2.65): seconds since 1900.
    pub recovery: u32,
    /// How often the slow half has been started with these tables.
    pub starts: u32,
    /// Sequence numbers of requests of ours below this one may have been used.
    pub sequences: u32,
    /// What sessions are published with ([`Context::fingerprint`](crate::rules::compile::Context)).
    pub context: u32,
}
