//! Messages between lanes and the slow path. They are hints: what must not be lost is in lane
//! state.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::session::SessionIndex;

/// Kinds of messages: 1 to 15 from lanes, 16 to 31 to lanes.
pub mod kind {
    /// A [`SessionEvent`](super::SessionEvent): an event of a session.
    pub const EVENT: u32 = 1;
    /// A [`PathMessage`](super::PathMessage): an error indication for a tunnel.
    pub const ERROR_INDICATION: u32 = 2;
    /// A [`PathMessage`](super::PathMessage): an echo response.
    pub const ECHO_RESPONSE: u32 = 3;
    /// A [`PathMessage`](super::PathMessage): Linux has not resolved this peer or the router before
    /// it. Any packet that a program sends to the peer makes Linux resolve it.
    pub const NEIGHBOUR: u32 = 4;
    /// A [`SessionEvent`](super::SessionEvent): the rules of this session have changed.
    pub const RULES: u32 = 16;
    /// A [`PathMessage`](super::PathMessage): send an echo request.
    pub const PROBE: u32 = 17;
}

/// Event of a session. The session's pending event is the reliable notification, its state the
/// content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionEvent {
    /// Session index.
    pub session: u32,
    /// Counter slot of the event.
    pub line: u32,
    /// Bits of [`state::event`](super::counter_slots::event).
    pub events: u64,
    /// Version of the rules.
    pub version: u64,
    /// Time in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
    /// PDR that the packet matched.
    pub pdr: u16,
    /// QoS flow of a held packet.
    pub qfi: u8,
    /// DSCP of a held packet, for the paging policy (clause 5.2.1A).
    pub dscp: u8,
    /// Reserved, zero.
    pub reserved: u32,
}

impl SessionEvent {
    /// Creates a message about a session without further content.
    #[must_use]
    pub fn about(session: SessionIndex, at: u64) -> Self {
        Self { session: session.0, at, ..Self::new_zeroed() }
    }
}

/// Message about a path to a peer, or one of its tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PathMessage {
    /// Peer address; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
    pub peer: [u8; 16],
    /// Local address, in the same form.
    pub local: [u8; 16],
    /// TEID at the peer, if the message is about a tunnel.
    pub teid: u32,
    /// Sequence number of an echo request.
    pub sequence: u16,
    /// Interface index in the configuration.
    pub interface: u16,
    /// Time in ns of `CLOCK_MONOTONIC`.
    pub at: u64,
}
