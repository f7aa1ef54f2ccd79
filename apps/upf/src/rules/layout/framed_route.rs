//! Networks behind UEs (framed routes, TS 29.244 clause 5.16).
//!
//! The prefix tables have no network instances. Each prefix therefore leads to its owner in every
//! instance: that of this prefix, or of the longest one in that instance that contains it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::{InstanceId, SessionIndex};

/// Maximum number of network instances that share a prefix or one that contains it.
pub const INSTANCES: usize = 7;

/// Reserved entry in the table of owners that exists while there is any network. While it is empty,
/// lanes skip the prefix tables, whose roots are large.
pub const ANY: usize = 0;

/// Owners of a prefix by network instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Framed {
    /// Number of valid entries in the arrays.
    pub count: u16,
    /// Network instances.
    pub instances: [InstanceId; INSTANCES],
    /// Sessions, in the same order.
    pub sessions: [u32; INSTANCES],
    /// Reserved, zero.
    pub reserved: u32,
}

impl Framed {
    /// Creates an entry from up to [`INSTANCES`] owners.
    #[must_use]
    pub fn of(owners: &[(InstanceId, SessionIndex)]) -> Self {
        let owners = owners.get(..INSTANCES).unwrap_or(owners);
        let mut framed = Self {
            count: owners.len() as u16,
            instances: [0; INSTANCES],
            sessions: [0; INSTANCES],
            reserved: 0,
        };
        for (place, (instance, session)) in owners.iter().enumerate() {
            framed.instances[place] = *instance;
            framed.sessions[place] = session.0;
        }
        framed
    }

    /// Returns the session in a network instance.
    #[inline]
    #[must_use]
    pub fn session(&self, instance: InstanceId) -> Option<SessionIndex> {
        let count = usize::from(self.count).min(INSTANCES);
        let place = self.instances[..count].iter().position(|it| *it == instance)?;
        Some(SessionIndex(self.sessions[place]))
    }
}

const _: () = assert!(size_of::<Framed>() == 48);
