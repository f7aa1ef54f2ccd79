//! A compiled FAR: where a packet leaves to, and the outer header that it is given.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::Destination;

/// Values and bits of [`ForwardingAction`].
pub mod forwarding {
    /// No network instance.
    pub const NO_INSTANCE: u16 = u16::MAX;
    /// Mask in `what`: destination interface.
    pub const DESTINATION: u8 = 3;
    /// Bit of `what`: add a GTP-U header.
    pub const GTPU: u8 = 1 << 2;
    /// Bit of `what`: add a UDP header.
    pub const UDP: u8 = 1 << 3;
    /// Bit of `what`: the far end has an IPv6 address and no IPv4 address.
    pub const V6: u8 = 1 << 4;
    /// Bit of `what`: remove the received outer header.
    pub const REMOVE: u8 = 1 << 5;
    /// Bit of `what`: remove the PDU session container, too.
    pub const REMOVE_EXTENSION: u8 = 1 << 6;
    /// Bit of `what`: redirect packets.
    pub const REDIRECT: u8 = 1 << 7;
    /// Mask in `quality`: 1 + QoS flow; 0: none.
    pub const QFI: u16 = 0x7F;
    /// Bit of `quality`: reflective QoS indication.
    pub const REFLECTIVE: u16 = 1 << 7;
    /// Bit of `quality`: a paging policy is present.
    pub const PAGING: u16 = 1 << 8;
    /// First bit of the paging policy indicator (0 to 7) in `quality`.
    pub const PAGING_SHIFT: u32 = 9;
}

/// Compiled FAR: destination and outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ForwardingAction {
    /// IPv4 address of the far end.
    pub peer: [u8; 4],
    /// TEID of the far end, or the UDP port.
    pub teid: u32,
    /// Network instance of the egress, or [`forwarding::NO_INSTANCE`].
    pub instance: u16,
    /// QoS flow, reflective QoS and paging policy, see [`forwarding`].
    pub quality: u16,
    /// Type of service of the outer header, or of the inner one if there is none.
    pub marking: u8,
    /// Mask of the type of service.
    pub mask: u8,
    /// Destination interface and outer header, see [`forwarding`].
    pub what: u8,
    /// Scale: a packet of n octets costs the meter `n * cost >> shift` units of 1/64 ns.
    pub shift: u8,
}

/// Address of the far end of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// IPv4 address.
    V4(Ipv4Addr),
    /// IPv6 address.
    V6(Ipv6Addr),
}

/// Outer header to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    /// GTP-U to a peer and TEID.
    Gtpu(PeerAddress, u32),
    /// UDP to a peer and port.
    Udp(PeerAddress, u16),
}

impl ForwardingAction {
    /// Forwards to the access network without an outer header.
    #[must_use]
    pub const fn none() -> Self {
        let (peer, teid, instance) = ([0; 4], 0, forwarding::NO_INSTANCE);
        Self { peer, teid, instance, quality: 0, marking: 0, mask: 0, what: 0, shift: 0 }
    }

    /// Returns the destination interface.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Destination {
        match self.what & forwarding::DESTINATION {
            0 => Destination::Access,
            1 => Destination::Core,
            2 => Destination::SgiLan,
            _ => Destination::Control,
        }
    }

    /// Returns the network instance of the egress, if one was named.
    #[inline]
    #[must_use]
    pub const fn instance(&self) -> Option<u16> {
        if self.instance == forwarding::NO_INSTANCE { None } else { Some(self.instance) }
    }

    /// Returns the QoS flow of the PDU session container to add.
    #[inline]
    #[must_use]
    pub const fn qfi(&self) -> Option<u8> {
        ((self.quality & forwarding::QFI) as u8).checked_sub(1)
    }

    /// Returns true if packets carry the reflective QoS indication.
    #[inline]
    #[must_use]
    pub const fn is_reflective(&self) -> bool {
        self.quality & forwarding::REFLECTIVE != 0
    }

    /// Returns the paging policy indicator.
    #[inline]
    #[must_use]
    pub const fn paging_policy(&self) -> Option<u8> {
        let policy = (self.quality >> forwarding::PAGING_SHIFT & 7) as u8;
        if self.quality & forwarding::PAGING != 0 { Some(policy) } else { None }
    }

    /// Returns true if the received outer header is removed.
    #[inline]
    #[must_use]
    pub const fn removes(&self) -> bool {
        self.what & forwarding::REMOVE != 0
    }

    /// Returns true if the received PDU session container is removed.
    #[inline]
    #[must_use]
    pub const fn removes_extension(&self) -> bool {
        self.what & forwarding::REMOVE_EXTENSION != 0
    }

    /// Returns the type of service of the outer header for that of the inner one.
    #[inline]
    #[must_use]
    pub const fn marked(&self, tos: u8) -> u8 {
        tos & !self.mask | self.marking & self.mask
    }

    /// Returns the outer header to add; `peer6` is the IPv6 address stored next to this value.
    // A call costs 30 instructions per downlink packet, and `inline` alone does not prevent it.
    #[inline(always)]
    #[must_use]
    pub fn outer(&self, peer6: &[u8; 16]) -> Option<Encapsulation> {
        let peer = || match self.what & forwarding::V6 {
            0 => PeerAddress::V4(self.peer.into()),
            _ => PeerAddress::V6((*peer6).into()),
        };
        match self.what & (forwarding::GTPU | forwarding::UDP) {
            0 => None,
            forwarding::UDP => Some(Encapsulation::Udp(peer(), self.teid as u16)),
            _ => Some(Encapsulation::Gtpu(peer(), self.teid)),
        }
    }
}

/// A compiled FAR with the IPv6 address that it may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OuterPath {
    /// Compiled FAR.
    pub forwarding: ForwardingAction,
    /// IPv6 address of the far end. For `forwarding::REDIRECT` without an outer header: offset of
    /// the [`RedirectEntry`](super::RedirectEntry) in the text (first two bytes).
    pub peer6: [u8; 16],
}
