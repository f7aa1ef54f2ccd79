//! Keys and values of the tables that find sessions.

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
