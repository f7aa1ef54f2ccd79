//! Networks behind users (TS 29.244 clause 5.16).
//!
//! The tables of prefixes know no network instances, so what a prefix leads to says for each
//! instance whose it is: that of this prefix, or of the longest one in that instance that holds
//! it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::{InstanceId, SessionId};

/// The most network instances that have a prefix, or one that holds it.
pub const INSTANCES: usize = 7;

/// The place in the table of owners that is taken while there is any network, and by none of them:
/// as long as it is empty lanes need not look at the tables of prefixes, whose roots are large.
pub const ANY: usize = 0;

/// Whose a prefix is, by network instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Framed {
    /// How many of those that follow count.
    pub count: u16,
    /// Network instances.
    pub instances: [InstanceId; INSTANCES],
    /// The session of each.
    pub sessions: [u32; INSTANCES],
    /// Zero.
    pub reserved: u32,
}

impl Framed {
    /// Of some instances, as many as there is room for.
    #[must_use]
    pub fn of(owners: &[(InstanceId, SessionId)]) -> Self {
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

    /// The session in a network instance.
    #[inline]
    #[must_use]
    pub fn session(&self, instance: InstanceId) -> Option<SessionId> {
        let count = usize::from(self.count).min(INSTANCES);
        let place = self.instances[..count].iter().position(|it| *it == instance)?;
        Some(SessionId(self.sessions[place]))
    }
}

const _: () = assert!(size_of::<Framed>() == 48);
