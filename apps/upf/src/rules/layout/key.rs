//! Lookup of sessions: TEIDs, UE addresses and networks behind UEs, as keys and values of tables.
//!
//! The lower bits of a TEID that this UPF allocates are the session index, the upper bits a
//! generation. A packet needs no lookup to find its session, and a late packet does not match the
//! rules of the next session at that index. The lowest 8 bits are the session's shard.
//!
//! The prefix tables have no network instances. Each prefix of a network behind a UE (framed route,
//! TS 29.244 clause 5.16) therefore leads to its owner in every instance: that of this prefix, or
//! of the longest one in that instance that contains it.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::{InstanceId, SessionIndex};

/// Reference to a session, the value of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionRef {
    /// Session index.
    pub session: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

impl SessionRef {
    /// Creates a reference to a session.
    #[must_use]
    pub const fn to(session: SessionIndex) -> Self {
        Self { session: session.0, reserved: 0 }
    }

    /// Returns the session.
    #[must_use]
    pub const fn session(self) -> SessionIndex {
        SessionIndex(self.session)
    }
}

/// A local tunnel by its TEID, which is unique in the whole UPF, whatever the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct TunnelKey {
    /// Tunnel endpoint identifier.
    pub teid: u32,
}

/// A UE address in a network instance: an IPv4 address or an IPv6 /64. Prefixes of other lengths
/// are in the tables of networks behind UEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct UeKey {
    /// Upper half of an IPv6 address, or an IPv4 address and zeros.
    pub address: [u8; 8],
    /// IP version, 4 or 6.
    pub family: u16,
    /// Network instance.
    pub instance: u16,
    /// Reserved, zero.
    pub reserved: u32,
}

impl UeKey {
    /// Creates the key of an IPv4 address.
    #[must_use]
    pub const fn v4(instance: InstanceId, address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self { address: [a, b, c, d, 0, 0, 0, 0], family: 4, instance, reserved: 0 }
    }

    /// Creates the key of the /64 of an IPv6 address.
    #[must_use]
    pub const fn v6(instance: InstanceId, address: Ipv6Addr) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = address.octets();
        Self { address: [a, b, c, d, e, f, g, h], family: 6, instance, reserved: 0 }
    }
}

/// Maximum number of network instances that share a prefix or one that contains it.
pub const FRAMED_INSTANCES: usize = 7;

/// Reserved entry in the table of owners that exists while there is any network. While it is empty,
/// lanes skip the prefix tables, whose roots are large.
pub const FRAMED_ANY: usize = 0;

/// Owners of a prefix by network instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Framed {
    /// Number of valid entries in the arrays.
    pub count: u16,
    /// Network instances.
    pub instances: [InstanceId; FRAMED_INSTANCES],
    /// Sessions, in the same order.
    pub sessions: [u32; FRAMED_INSTANCES],
    /// Reserved, zero.
    pub reserved: u32,
}

impl Framed {
    /// Creates an entry from up to [`FRAMED_INSTANCES`] owners.
    #[must_use]
    pub fn of(owners: &[(InstanceId, SessionIndex)]) -> Self {
        let owners = owners.get(..FRAMED_INSTANCES).unwrap_or(owners);
        let mut framed = Self {
            count: owners.len() as u16,
            instances: [0; FRAMED_INSTANCES],
            sessions: [0; FRAMED_INSTANCES],
            reserved: 0,
        };
        for (slot, (instance, session)) in owners.iter().enumerate() {
            framed.instances[slot] = *instance;
            framed.sessions[slot] = session.0;
        }
        framed
    }

    /// Returns the session in a network instance.
    #[inline]
    #[must_use]
    pub fn session(&self, instance: InstanceId) -> Option<SessionIndex> {
        let count = usize::from(self.count).min(FRAMED_INSTANCES);
        let slot = self.instances[..count].iter().position(|it| *it == instance)?;
        Some(SessionIndex(self.sessions[slot]))
    }
}

const _: () = assert!(size_of::<Framed>() == 48);

/// Layout of the TEIDs that this UPF allocates: the number of bits of the session index.
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
