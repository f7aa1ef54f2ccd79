//! The shared-memory format: table names, keys, rules, counter slots and messages that the fast
//! path and the control plane share.
//!
//! All values are plain old data of fixed size. The control plane writes the tables. The lane that
//! owns a session writes its state.
//!
//! # Keys
//! TEIDs, UE addresses and networks behind UEs lead to their sessions.
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

pub mod drop_reason;
pub mod nat_tables;
pub mod session_rules;
pub mod slices;

/// Tables by name, each with its type.
pub mod table {
    /// `Array<Rules>` by session index: what lanes do with its packets, as one immutable value.
    pub const RULES: &str = "rules";
    /// `Array<Block>`: rules of sessions that exceed the simple form.
    pub const BLOCKS: &str = "blocks";
    /// `Hash<TunnelKey, SessionRef>`: tunnels whose TEID does not contain the session index.
    pub const TUNNELS: &str = "tunnels";
    /// `Hash<UeKey, SessionRef>`: UE addresses.
    pub const USERS: &str = "users";
    /// IPv4 networks behind UEs: a prefix to an index in [`FRAMED`].
    pub const FRAMED4: &str = "framed4";
    /// IPv6 networks behind UEs: a prefix to an index in [`FRAMED`].
    pub const FRAMED6: &str = "framed6";
    /// `Array<Framed>`: owners of a prefix by network instance.
    pub const FRAMED: &str = "framed";
    /// Lane state by counter slot (see [`counter_slots`](super::counter_slots)). The first slots
    /// are those of sessions.
    pub const STATE: &str = "state";
    /// Pending events by session index.
    pub const EVENTS: &str = "events";
    /// Lane state by drop reason: packets and octets.
    pub const CAUSES: &str = "causes";
    /// `Array<SessionRecord>`: sessions as the control plane function configured them, read only by
    /// the control plane.
    pub const SESSIONS: &str = "sessions";
    /// `Array<SessionPart>`: overflow of session records.
    pub const SESSION_PARTS: &str = "session-parts";
    /// `Array<ResponseRecord>`: responses to retransmitted requests.
    pub const ANSWERS: &str = "answers";
    /// `Array<AssociationRecord>`: associations.
    pub const PEERS: &str = "peers";
    /// `Record<NodeRecord>`: recovery time stamp and other state of the node.
    pub const NODE: &str = "node";
    /// `Record<ConfigurationRecord>`: the configuration that both processes work with.
    pub const CONFIGURATION: &str = "configuration";
}

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

/// Counter slots: 64 bytes of lane state that only the lane writes which owns the session.
///
/// The slot with the session's own index holds its first URR and first QER, so a session with one
/// of each touches one cache line. Further URRs and QERs use further slots, each of which holds one
/// URR and one QER. Counters never decrease while a session exists.
pub mod counter_slots {
    /// Words of a slot.
    pub const WORDS: usize = 8;
    /// Octets of uplink inner IP packets, counted by the URR of this slot.
    pub const UPLINK_OCTETS: usize = 0;
    /// Uplink packets.
    pub const UPLINK_PACKETS: usize = 1;
    /// Octets of downlink inner IP packets.
    pub const DOWNLINK_OCTETS: usize = 2;
    /// Downlink packets.
    pub const DOWNLINK_PACKETS: usize = 3;
    /// Uplink meter of the QER of this slot: theoretical arrival time of the generic cell rate
    /// algorithm (ITU-T I.371), in 1/64 ns of `CLOCK_MONOTONIC`.
    pub const UPLINK_METER: usize = 4;
    /// Downlink meter, in the same unit.
    pub const DOWNLINK_METER: usize = 5;
    /// Time when the last packet was counted, in ns of `CLOCK_MONOTONIC`; in the slot with the
    /// session's own index also when the last packet passed that no URR counted, so that the latest
    /// of all slots is that of the session. The start of traffic is an event and has no word.
    pub const LAST: usize = 6;
    /// Events, see [`event`]. The lane sets bits; a new version of the rules clears them.
    pub const EVENTS: usize = 7;

    /// Bits of the word [`EVENTS`]. Its upper 32 bits are the lower 32 bits of the rules' version
    /// under which the events were raised. Bits 16 to 31 identify the end marker sent last.
    pub mod event {
        /// First packet under these rules.
        pub const START: u64 = 1;
        /// A threshold of the URR of this slot was reached.
        pub const THRESHOLD: u64 = 1 << 1;
        /// A quota of the URR of this slot is used up: packets are dropped.
        pub const QUOTA: u64 = 1 << 2;
        /// A downlink packet was held, which the control plane function wants to know.
        pub const HELD: u64 = 1 << 3;
        /// The hold limit was exceeded: packets were dropped.
        pub const OVERFLOW: u64 = 1 << 4;
        /// An end marker was sent as the rules request.
        pub const END_MARKER: u64 = 1 << 5;
        /// Downlink packets were dropped that a URR reports (DROTH).
        pub const DROPPED: u64 = 1 << 6;
        /// The time was over for which packets are held: they were discarded.
        pub const EXPIRED: u64 = 1 << 7;
        /// All event bits.
        pub const ALL: u64 = 0xFFFF;
        /// Identification of the end marker sent last: bit 31, and from bit 16 on 15 bits of the
        /// version in which it became due.
        pub const MARKER: u64 = 0xFFFF << MARKER_SHIFT;
        /// First bit of [`MARKER`].
        pub const MARKER_SHIFT: u32 = 16;
    }
}

/// Messages between lanes and the slow path. They are hints: what must not be lost is in lane
/// state.
pub mod message {
    use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

    use crate::session::SessionIndex;

    /// Kinds of messages: 1 to 15 from lanes, 16 to 31 to lanes.
    pub mod kind {
        /// A [`SessionEvent`](super::SessionEvent): an event of a session.
        pub const EVENT: u32 = 1;
        /// A [`PathMessage`](super::PathMessage): an error indication for a tunnel.
        pub const ERROR_INDICATION: u32 = 2;
        /// A [`PathMessage`](super::PathMessage): an echo response.
        pub const ECHO_RESPONSE: u32 = 3;
        /// A [`PathMessage`](super::PathMessage): Linux has not resolved this peer or the router
        /// before it. Any packet that a program sends to the peer makes Linux resolve it.
        pub const NEIGHBOUR: u32 = 4;
        /// A [`SessionEvent`](super::SessionEvent): the rules of this session have changed.
        pub const RULES: u32 = 16;
        /// A [`PathMessage`](super::PathMessage): send an echo request.
        pub const PROBE: u32 = 17;
        /// A number (u64): the configuration of this generation is in the table `configuration`.
        pub const CONFIGURATION: u32 = 18;
        /// A [`UserPacket`](super::UserPacket), and behind it an IP packet of a control plane
        /// function for the UE of a session.
        pub const USER_PACKET: u32 = 19;
    }

    /// Event of a session. The session's pending event is the reliable notification, its state the
    /// content.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct SessionEvent {
        /// Session index.
        pub session: u32,
        /// Counter slot of the event.
        pub line: u32,
        /// Bits of [`counter_slots::event`](super::counter_slots::event).
        pub events: u64,
        /// Version of the rules.
        pub version: u64,
        /// Time in ns of `CLOCK_MONOTONIC`.
        pub at: u64,
        /// PDR that the packet matched.
        pub pdr: u16,
        /// QoS flow of a held packet.
        pub qfi: u8,
        /// DSCP of a held packet, for the paging policy (clause 5.2.1A).
        pub dscp: u8,
        /// Reserved, zero.
        pub reserved: u32,
    }

    impl SessionEvent {
        /// Creates a message about a session without further content.
        #[must_use]
        pub fn about(session: SessionIndex, at: u64) -> Self {
            Self { session: session.0, at, ..Self::new_zeroed() }
        }
    }

    /// Header of a packet that a control plane function sent in a tunnel of a session.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct UserPacket {
        /// Session index.
        pub session: u32,
        /// TEID in which it arrived.
        pub teid: u32,
    }

    impl UserPacket {
        /// Maximum length of the packet, in octets.
        pub const MAX_LENGTH: usize = 2048;
    }

    /// Message about a path to a peer, or one of its tunnels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    pub struct PathMessage {
        /// Peer address; an IPv4 address is mapped into IPv6 (RFC 4291 clause 2.5.5.2).
        pub peer: [u8; 16],
        /// Local address, in the same form.
        pub local: [u8; 16],
        /// TEID at the peer, if the message is about a tunnel.
        pub teid: u32,
        /// Sequence number of an echo request.
        pub sequence: u16,
        /// Interface index in the configuration.
        pub interface: u16,
        /// Time in ns of `CLOCK_MONOTONIC`.
        pub at: u64,
    }
}
