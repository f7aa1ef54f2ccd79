//! Counter slots: 64 bytes of lane state that only the lane writes which owns the session.
//!
//! The slot with the session's own index holds its first URR and first QER, so a session with one
//! of each touches one cache line. Further URRs and QERs use further slots, each of which holds one
//! URR and one QER. Counters never decrease while a session exists.

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
/// Time when the last packet was counted, in ns of `CLOCK_MONOTONIC`. The start of traffic is an
/// event and has no word.
pub const LAST: usize = 6;
/// Events, see [`event`]. The lane sets bits; a new version of the rules clears them.
pub const EVENTS: usize = 7;

/// Bits of the word [`EVENTS`]. Its upper 32 bits are the lower 32 bits of the rules' version under
/// which the events were raised. Bits 16 to 31 identify the end marker sent last.
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
    /// All event bits.
    pub const ALL: u64 = 0xFFFF;
    /// Identification of the end marker sent last: bit 31, and from bit 16 on 15 bits of the
    /// version in which it became due.
    pub const MARKER: u64 = 0xFFFF << MARKER_SHIFT;
    /// First bit of [`MARKER`].
    pub const MARKER_SHIFT: u32 = 16;
}
