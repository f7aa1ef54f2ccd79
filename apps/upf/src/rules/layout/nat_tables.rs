//! The shared-memory format of NAT44: users with their port block, owners of blocks, and a slot for
//! each external port.
//!
//! The control plane writes users and owners. Port slots are lane state: eight of them, a bucket,
//! are an entry, and only the lane that owns the session of a block writes them. A slot is one
//! word, so a mapping is never half written. A slot of another generation than its block's is free,
//! so nobody has to clear the slots of a block that changes its owner.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::SessionIndex;

/// `Array<NatUser>` by session index.
pub const NAT_USERS: &str = "nat-users";
/// `Array<NatBlock>` by block number.
pub const NAT_BLOCKS: &str = "nat-blocks";
/// Lane state by bucket: a [`PortSlot`] for each of its eight external ports.
pub const NAT_PORTS: &str = "nat-ports";

/// Generations of a block, after which they repeat. 0 is none.
pub const GENERATIONS: u16 = 1 << 11;

/// A user whose packets are translated, with the port block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NatUser {
    /// Address of the user.
    pub inside: u32,
    /// External address.
    pub external: u32,
    /// Number of the block.
    pub block: u32,
    /// Number of its first bucket.
    pub bucket: u32,
    /// Number of its buckets, a power of two.
    pub buckets: u32,
    /// Random number that decides which ports the user gets (RFC 6888, REQ-15).
    pub key: u32,
    /// First external port.
    pub first_port: u16,
    /// Generation of the block.
    pub generation: u16,
    /// Reserved, zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<NatUser>() == 32);

/// Owner of a block of external ports, or the time when it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NatBlock {
    /// Address of the user; 0 if the block is free.
    pub inside: u32,
    /// Session of the user.
    pub session: u32,
    /// Time of allocation or release, in ns of `CLOCK_MONOTONIC`.
    pub since: u64,
    /// Generation of the block, increased by each allocation.
    pub generation: u16,
    /// Reserved, zero.
    pub reserved: [u16; 3],
}

const _: () = assert!(size_of::<NatBlock>() == 24);

impl NatBlock {
    /// Returns the session that owns the block.
    #[inline]
    #[must_use]
    pub const fn owner(&self) -> Option<SessionIndex> {
        if self.inside == 0 { None } else { Some(SessionIndex(self.session)) }
    }
}

/// Protocol of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// UDP datagrams.
    Udp = 1,
    /// TCP segments.
    Tcp = 2,
    /// ICMP queries; their identifier stands for the port.
    Icmp = 3,
}

/// State of the connections of a TCP mapping.
///
/// One mapping serves all connections of an inside port, so this is the state of the one that
/// changed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// Only the user has sent.
    New = 0,
    /// The other side has answered.
    Answered = 1,
    /// The user has confirmed the answer.
    Established = 2,
    /// The user has sent FIN.
    InsideClosed = 3,
    /// The other side has sent FIN.
    OutsideClosed = 4,
    /// Both have sent FIN, or one RST.
    Closed = 5,
}

impl TcpState {
    /// Returns the state with this number; [`Closed`](Self::Closed) for others, which nobody
    /// writes.
    #[inline]
    const fn of(number: u64) -> Self {
        match number {
            0 => Self::New,
            1 => Self::Answered,
            2 => Self::Established,
            3 => Self::InsideClosed,
            4 => Self::OutsideClosed,
            _ => Self::Closed,
        }
    }

    /// Returns true if a connection is established, at least in one direction.
    #[inline]
    #[must_use]
    pub const fn is_established(self) -> bool {
        matches!(self, Self::Established | Self::InsideClosed | Self::OutsideClosed)
    }
}

/// Bits of the parts of a [`PortSlot`], from the lowest on: inside port, protocol, TCP state,
/// generation, time of the last uplink packet.
const PROTOCOL: u32 = 16;
const STATE: u32 = 18;
const GENERATION: u32 = 21;
const SEEN: u32 = 32;
/// Bits that identify a mapping: all but TCP state and time.
const IDENTITY: u64 = 0xffff | 3 << PROTOCOL | 0x7ff << GENERATION;

/// Slot of an external port: its mapping, or a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSlot(pub u64);

impl PortSlot {
    /// Creates the slot of a new mapping. `seen` is in [`ticks`].
    #[inline]
    #[must_use]
    pub const fn new(generation: u16, protocol: Protocol, inside: u16, seen: u32) -> Self {
        let identity = inside as u64
            | (protocol as u64) << PROTOCOL
            | ((generation % GENERATIONS) as u64) << GENERATION;
        Self(identity | (seen as u64) << SEEN)
    }

    /// Returns true if it is the mapping of the same inside port, protocol and generation.
    #[inline]
    #[must_use]
    pub const fn is_of(self, other: Self) -> bool {
        (self.0 ^ other.0) & IDENTITY == 0
    }

    /// Returns the mapping's protocol if there is one in this generation.
    #[inline]
    #[must_use]
    pub const fn protocol(self, generation: u16) -> Option<Protocol> {
        if self.0 >> GENERATION & 0x7ff != (generation % GENERATIONS) as u64 {
            return None;
        }
        match self.0 >> PROTOCOL & 3 {
            1 => Some(Protocol::Udp),
            2 => Some(Protocol::Tcp),
            3 => Some(Protocol::Icmp),
            _ => None,
        }
    }

    /// Returns true if it is a mapping of this protocol in this generation.
    #[inline]
    #[must_use]
    pub const fn has(self, generation: u16, protocol: Protocol) -> bool {
        self.is_of(Self::new(generation, protocol, self.inside(), 0))
    }

    /// Returns the inside port or identifier.
    #[inline]
    #[must_use]
    pub const fn inside(self) -> u16 {
        self.0 as u16
    }

    /// Returns the time of the last uplink packet in [`ticks`].
    #[inline]
    #[must_use]
    pub const fn seen(self) -> u32 {
        (self.0 >> SEEN) as u32
    }

    /// Returns the TCP state.
    #[inline]
    #[must_use]
    pub const fn state(self) -> TcpState {
        TcpState::of(self.0 >> STATE & 7)
    }

    /// Returns the slot with another time.
    #[inline]
    #[must_use]
    pub const fn at(self, seen: u32) -> Self {
        Self(self.0 & ((1 << SEEN) - 1) | (seen as u64) << SEEN)
    }

    /// Returns the slot with another time and TCP state.
    #[inline]
    #[must_use]
    pub const fn with(self, seen: u32, state: TcpState) -> Self {
        Self(self.0 & IDENTITY | (state as u64) << STATE | (seen as u64) << SEEN)
    }

    /// Returns true if its time is over by these timers.
    #[inline]
    #[must_use]
    pub const fn is_expired(self, protocol: Protocol, timers: &Timers, now: u32) -> bool {
        let timer = match protocol {
            Protocol::Udp => timers.udp,
            Protocol::Icmp => timers.icmp,
            Protocol::Tcp if self.state().is_established() => timers.tcp,
            Protocol::Tcp => timers.tcp_transitory,
        };
        // A lane may use the time of its turn, which is earlier than that of another one.
        let age = now.wrapping_sub(self.seen());
        age > timer && age < u32::MAX / 2
    }
}

/// Bits of nanoseconds in a tick: 2^30 ns, 1.07 s.
const TICK: u32 = 30;

/// Converts a time of `CLOCK_MONOTONIC` in ns to ticks of 2^30 ns.
#[inline]
#[must_use]
pub const fn ticks(ns: u64) -> u32 {
    (ns >> TICK) as u32
}

/// Times after which mappings end, in [`ticks`]. Mappings end at most three ticks later than
/// the settings say, and never earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// UDP mappings.
    pub udp: u32,
    /// ICMP queries.
    pub icmp: u32,
    /// TCP with an established connection.
    pub tcp: u32,
    /// TCP without one.
    pub tcp_transitory: u32,
}

impl Timers {
    /// Creates the timers from seconds, in the order of the fields.
    #[must_use]
    pub fn of([udp, icmp, tcp, tcp_transitory]: [u32; 4]) -> Self {
        // An age of n ticks is more than n - 1 whole ones.
        let ticks = |seconds: u32| ticks(u64::from(seconds) * 1_000_000_000) + 1;
        Self {
            udp: ticks(udp),
            icmp: ticks(icmp),
            tcp: ticks(tcp),
            tcp_transitory: ticks(tcp_transitory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_its_parts() {
        let slot = PortSlot::new(2047, Protocol::Tcp, 0xfffe, u32::MAX);
        assert!(slot.has(2047, Protocol::Tcp));
        assert!(!slot.has(2047, Protocol::Udp) && !slot.has(1, Protocol::Tcp));
        assert_eq!((slot.protocol(2047), slot.protocol(1)), (Some(Protocol::Tcp), None));
        assert_eq!((slot.inside(), slot.seen(), slot.state()), (0xfffe, u32::MAX, TcpState::New));
        let later = slot.with(7, TcpState::Closed);
        assert_eq!((later.seen(), later.state(), later.inside()), (7, TcpState::Closed, 0xfffe));
        assert_eq!(later.at(9), slot.with(9, TcpState::Closed));
        assert!(later.is_of(slot) && !later.is_of(PortSlot::new(2047, Protocol::Udp, 0xfffe, 7)));
        assert_eq!(PortSlot(0).protocol(1), None);
        assert_eq!(PortSlot(0).protocol(0), None, "no block has generation 0");
    }

    /// RFC 4787, REQ-5: a mapping must not expire before its time.
    #[test]
    fn a_mapping_ends_within_three_ticks_after_its_timer() {
        let timers = Timers::of([120, 60, 7440, 240]);
        for start in [0_u64, 1, (1 << TICK) - 1, 5_000_000_000, u64::from(u32::MAX) << TICK] {
            let slot = PortSlot::new(1, Protocol::Udp, 1, ticks(start));
            let after = |ns: u64| slot.is_expired(Protocol::Udp, &timers, ticks(start + ns));
            assert!(!after(0) && !after(120_000_000_000), "{start}");
            assert!(after(120_000_000_000 + (3 << TICK)), "{start}");
        }
    }
}
