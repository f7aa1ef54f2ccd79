//! Layout of the tunnel endpoint identifiers (TEID) that this UPF allocates.
//!
//! The lower bits are the session index, the upper bits a generation. A packet needs no lookup to
//! find its session, and a late packet does not match the rules of the next session at that index.
//! The lowest 8 bits are the session's shard.

use crate::session::SessionIndex;

/// Number of bits of the session index in a TEID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeidLayout {
    bits: u32,
}

impl TeidLayout {
    /// Creates the layout for `sessions` sessions.
    #[must_use]
    pub const fn of(sessions: usize) -> Self {
        let bits = sessions.next_power_of_two().trailing_zeros();
        Self { bits: if bits < 8 { 8 } else { bits } }
    }

    /// Returns the TEID of a session in a generation, of which only the remaining bits are used.
    #[must_use]
    pub const fn teid(self, session: SessionIndex, generation: u32) -> u32 {
        generation << self.bits | session.0
    }

    /// Returns the session index in a TEID. It may be out of range, or another session's.
    #[inline]
    #[must_use]
    pub const fn session(self, teid: u32) -> SessionIndex {
        SessionIndex(teid & ((1 << self.bits) - 1))
    }

    /// Returns the number of generations.
    #[must_use]
    pub const fn generations(self) -> u32 {
        1 << (32 - self.bits)
    }
}
