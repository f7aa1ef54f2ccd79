//! Keys of the tables that find sessions, and what they find.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::{InstanceId, SessionId};

/// A session that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionRef {
    /// Its place.
    pub session: u32,
    /// Zero.
    pub reserved: u32,
}

impl SessionRef {
    /// To this session.
    #[must_use]
    pub const fn to(session: SessionId) -> Self {
        Self { session: session.0, reserved: 0 }
    }

    /// The session.
    #[must_use]
    pub const fn session(self) -> SessionId {
        SessionId(self.session)
    }
}

/// A tunnel of ours by its identifier. They are unique in the whole UPF, whatever the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct TunnelKey {
    /// The identifier.
    pub teid: u32,
}

/// A user's address in a network instance: an IPv4 address or a /64 of IPv6. Prefixes of other
/// lengths are in the tables of networks behind users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct UserKey {
    /// The upper half of an IPv6 address, or an IPv4 address and zeros.
    pub address: [u8; 8],
    /// 4 or 6.
    pub family: u16,
    /// The network instance.
    pub instance: u16,
    /// Zero.
    pub reserved: u32,
}

impl UserKey {
    /// Of an IPv4 address.
    #[must_use]
    pub const fn v4(instance: InstanceId, address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self { address: [a, b, c, d, 0, 0, 0, 0], family: 4, instance, reserved: 0 }
    }

    /// Of the /64 that an IPv6 address is in.
    #[must_use]
    pub const fn v6(instance: InstanceId, address: Ipv6Addr) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = address.octets();
        Self { address: [a, b, c, d, e, f, g, h], family: 6, instance, reserved: 0 }
    }
}
