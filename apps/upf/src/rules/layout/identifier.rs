//! Tunnel endpoint identifiers that say whose they are.
//!
//! The lower bits of one that this UPF chooses are the place of its session, the upper bits a
//! generation: a packet needs no lookup to find its session, and one that comes too late does not
//! match the rules of the next session in that place. The lowest 8 bits are the session's shard.

use crate::session::SessionId;

/// How many bits of an identifier are a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeidShape {
    bits: u32,
}

impl TeidShape {
    /// For so many sessions.
    #[must_use]
    pub const fn of(sessions: usize) -> Self {
        let bits = sessions.next_power_of_two().trailing_zeros();
        Self { bits: if bits < 8 { 8 } else { bits } }
    }

    /// The identifier of a session in a generation; of the generation only the bits that are left
    /// count.
    #[must_use]
    pub const fn teid(self, session: SessionId, generation: u32) -> u32 {
        generation << self.bits | session.0
    }

    /// The place that an identifier names. It may be beyond the tables, or of another session.
    #[inline]
    #[must_use]
    pub const fn session(self, teid: u32) -> SessionId {
        SessionId(teid & ((1 << self.bits) - 1))
    }

    /// How many generations there are.
    #[must_use]
    pub const fn generations(self) -> u32 {
        1 << (32 - self.bits)
    }
}
