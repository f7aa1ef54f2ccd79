//! Messages between the halves. They are hints: what must not be lost is in lane state.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::session::SessionId;

/// Kinds of messages: 1 to 15 from lanes, 16 to 31 to lanes.
pub mod kind {
    /// A [`SessionEvent`](super::SessionEvent).
    pub const EVENT: u32 = 1;
    /// A [`PathMessage`](super::PathMessage): an error indication for a tunnel.
    pub const ERROR_INDICATION: u32 = 2;
    /// A [`PathMessage`](super::PathMessage): the answer to a probe.
    pub const ECHO_RESPONSE: u32 = 3;
    /// A [`PathMessage`](super::PathMessage): Linux does not know the Ethernet address of this
    /// peer, or of the router before it. It finds out when any program sends the peer something.
    pub const NEIGHBOUR: u32 = 4;
    /// A [`SessionEvent`](super::SessionEvent): look at the rules of this session now.
    pub const RULES: u32 = 16;
    /// A [`PathMessage`](super::PathMessage): send an echo request.
    pub const PROBE: u32 = 17;
}

/// Something happened to a session: its pending event says that, its state says what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionEvent {
    /// The session.
    pub session: u32,
    /// The line of state where it happened.
    pub line: u32,
    /// Bits of [`state::event`](super::state::event).
    pub events: u64,
    /// The version of the rules.
    pub version: u64,
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// The PDR that the packet matched.
    pub pdr: u16,
    /// The QoS flow of a packet that was held.
    pub qfi: u8,
    /// The DSCP of a packet that was held, for the paging policy (clause 5.2.1A).
    pub dscp: u8,
    /// Zero.
    pub reserved: u32,
}

impl SessionEvent {
    /// About a session, with nothing else.
    #[must_use]
    pub fn about(session: SessionId, at: u64) -> Self {
        Self { session: session.0, at, ..Self::new_zeroed() }
    }
}

/// Something about a path to a peer, or one of its tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PathMessage {
    /// The peer's address; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
    pub peer: [u8; 16],
    /// Our address, likewise.
    pub local: [u8; 16],
    /// The tunnel at the peer, if it is about one.
    pub teid: u32,
    /// The sequence number of a probe.
    pub sequence: u16,
    /// The interface, by its place in the configuration.
    pub interface: u16,
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub at: u64,
}
