//! One direction of a session in its simple form.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::{Destination, Source};

/// Which way a packet goes; the meters, gates and counters of QERs and URRs have two of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Direction {
    /// From the user.
    Up = 0,
    /// To the user.
    Down = 1,
}

impl Direction {
    /// Of packets from this side: what does not come from the access network goes to it.
    #[inline]
    #[must_use]
    pub const fn of(source: Source) -> Self {
        if matches!(source, Source::Access) { Self::Up } else { Self::Down }
    }
}

/// Bits of [`Side::flags`] and [`Rule::flags`](super::Rule).
pub mod flag {
    /// There is a PDR.
    pub const PRESENT: u32 = 1;
    /// The FAR says drop.
    pub const DROP: u32 = 1 << 1;
    /// The FAR says buffer.
    pub const HOLD: u32 = 1 << 2;
    /// The control plane is told of what is held.
    pub const NOTIFY: u32 = 1 << 3;
    /// The gate is closed.
    pub const CLOSED: u32 = 1 << 4;
    /// There is a meter in the session's own line.
    pub const METER: u32 = 1 << 5;
    /// There is a URR in the session's own line.
    pub const COUNT: u32 = 1 << 6;
    /// It counts before QoS enforcement (MBQE).
    pub const BEFORE: u32 = 1 << 7;
    /// Its limit is one of this direction, not of both together.
    pub const ONE_WAY: u32 = 1 << 8;
    /// It ends at a time.
    pub const DEADLINE: u32 = 1 << 9;
    /// The first packet is an event.
    pub const START: u32 = 1 << 10;
    /// A dropped downlink packet is an event (DROTH).
    pub const DROPPED: u32 = 1 << 11;
    /// Packets from the user have the IPv4 address in `user4`.
    pub const USER4: u32 = 1 << 12;
    /// Packets from the user have an IPv6 address that begins with `user6`.
    pub const USER6: u32 = 1 << 13;
    /// Packets come by a tunnel.
    pub const TUNNEL: u32 = 1 << 14;
    /// Rules are in blocks. Both directions have this bit or none.
    pub const BLOCKS: u32 = 1 << 15;
    /// In a block: packets come from the access network.
    pub const UP: u32 = 1 << 16;
    /// In a block: copies go elsewhere, too.
    pub const DUPLICATE: u32 = 1 << 17;
    /// In a block: the session has users' addresses, and packets from the user must have one.
    pub const CHECKED: u32 = 1 << 18;
    /// A quota of the URR is used up already.
    pub const STOPPED: u32 = 1 << 19;
    /// Bits 24 to 31: 1 + the QoS flow that packets must belong to; 0: any.
    pub const QFI: u32 = 24;
}

/// What both directions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Side {
    /// The tunnel of ours that packets come by (`flag::TUNNEL`).
    pub tunnel: u32,
    /// Lower bits of the session's version.
    pub version: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// What an octet costs the meter: see [`Way::shift`].
    pub cost: u32,
    /// How far ahead the meter may be, in ms.
    pub burst: u16,
    /// The PDR's number.
    pub pdr: u16,
    /// Where packets go.
    pub way: Way,
}

impl Side {
    /// Without a PDR.
    #[must_use]
    pub const fn none() -> Self {
        let way = Way::none();
        Self { tunnel: 0, version: 0, flags: 0, cost: 0, burst: 0, pdr: 0, way }
    }
}

impl Side {
    /// Whether its PDR is for packets that come by this tunnel, or by none.
    #[inline]
    #[must_use]
    pub const fn is_by(&self, tunnel: Option<u32>) -> bool {
        let by = self.flags & (flag::PRESENT | flag::TUNNEL);
        match tunnel {
            Some(teid) => by == flag::PRESENT | flag::TUNNEL && self.tunnel == teid,
            None => by == flag::PRESENT,
        }
    }
}

/// Values and bits of [`Way`].
pub mod way {
    /// No network instance was named.
    pub const NO_INSTANCE: u16 = u16::MAX;
    /// Bits of `what`: the destination interface.
    pub const DESTINATION: u8 = 3;
    /// Bit of `what`: GTP-U is put on.
    pub const GTPU: u8 = 1 << 2;
    /// Bit of `what`: UDP is put on.
    pub const UDP: u8 = 1 << 3;
    /// Bit of `what`: the far end has an IPv6 address, and no IPv4 address.
    pub const V6: u8 = 1 << 4;
    /// Bit of `what`: the outer header that the packet came with is taken off.
    pub const REMOVE: u8 = 1 << 5;
    /// Bit of `what`: the PDU session container goes, too.
    pub const REMOVE_EXTENSION: u8 = 1 << 6;
    /// Bit of `what`: packets are sent elsewhere, or answered.
    pub const REDIRECT: u8 = 1 << 7;
    /// Bits of `quality`: 1 + the QoS flow; 0: none.
    pub const QFI: u16 = 0x7F;
    /// Bit of `quality`: the reflective QoS indication.
    pub const REFLECTIVE: u16 = 1 << 7;
    /// Bit of `quality`: there is a paging policy.
    pub const PAGING: u16 = 1 << 8;
    /// Bits of `quality` from this one on: the paging policy indicator, 0 to 7.
    pub const PAGING_SHIFT: u32 = 9;
}

/// Where packets go, and what is put on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Way {
    /// The far end's IPv4 address.
    pub peer: [u8; 4],
    /// The tunnel there; of UDP the port.
    pub teid: u32,
    /// The network instance that packets leave in, or [`way::NO_INSTANCE`].
    pub instance: u16,
    /// QoS flow, reflective QoS, paging policy: see [`way`].
    pub quality: u16,
    /// Type of service of the outer header, or of the inner one when there is none.
    pub marking: u8,
    /// Which bits of it are set.
    pub mask: u8,
    /// Destination interface and outer header: see [`way`].
    pub what: u8,
    /// A packet of n octets costs the meter `n * cost >> shift` units of 1/64 ns.
    pub shift: u8,
}

/// The far end of an outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// By IPv4.
    V4(Ipv4Addr),
    /// By IPv6.
    V6(Ipv6Addr),
}

/// An outer header that is put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// GTP-U with this tunnel.
    Gtpu(PeerAddress, u32),
    /// UDP to this port.
    Udp(PeerAddress, u16),
}

impl Way {
    /// To the access network, as it is.
    #[must_use]
    pub const fn none() -> Self {
        let (peer, teid, instance) = ([0; 4], 0, way::NO_INSTANCE);
        Self { peer, teid, instance, quality: 0, marking: 0, mask: 0, what: 0, shift: 0 }
    }

    /// The side that packets leave by.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> Destination {
        match self.what & way::DESTINATION {
            0 => Destination::Access,
            1 => Destination::Core,
            2 => Destination::SgiLan,
            _ => Destination::Control,
        }
    }

    /// The network instance that they leave in, if one was named.
    #[inline]
    #[must_use]
    pub const fn instance(&self) -> Option<u16> {
        if self.instance == way::NO_INSTANCE { None } else { Some(self.instance) }
    }

    /// The QoS flow that GTP-U packets are marked with.
    #[inline]
    #[must_use]
    pub const fn qfi(&self) -> Option<u8> {
        ((self.quality & way::QFI) as u8).checked_sub(1)
    }

    /// Whether they carry the reflective QoS indication.
    #[inline]
    #[must_use]
    pub const fn is_reflective(&self) -> bool {
        self.quality & way::REFLECTIVE != 0
    }

    /// The paging policy indicator.
    #[inline]
    #[must_use]
    pub const fn paging_policy(&self) -> Option<u8> {
        let policy = (self.quality >> way::PAGING_SHIFT & 7) as u8;
        if self.quality & way::PAGING != 0 { Some(policy) } else { None }
    }

    /// Whether the outer header that a packet came with is taken off.
    #[inline]
    #[must_use]
    pub const fn removes(&self) -> bool {
        self.what & way::REMOVE != 0
    }

    /// Whether its PDU session container is not passed on.
    #[inline]
    #[must_use]
    pub const fn removes_extension(&self) -> bool {
        self.what & way::REMOVE_EXTENSION != 0
    }

    /// The type of service of the outer header, made of that of the inner one.
    #[inline]
    #[must_use]
    pub const fn marked(&self, tos: u8) -> u8 {
        tos & !self.mask | self.marking & self.mask
    }

    /// What is put on; `peer6` is the address beside this way.
    #[inline]
    #[must_use]
    pub fn outer(&self, peer6: &[u8; 16]) -> Option<Outer> {
        let peer = || match self.what & way::V6 {
            0 => PeerAddress::V4(self.peer.into()),
            _ => PeerAddress::V6((*peer6).into()),
        };
        match self.what & (way::GTPU | way::UDP) {
            0 => None,
            way::UDP => Some(Outer::Udp(peer(), self.teid as u16)),
            _ => Some(Outer::Gtpu(peer(), self.teid)),
        }
    }
}

const _: () = assert!(size_of::<Way>() == 16 && size_of::<Side>() == 36);
