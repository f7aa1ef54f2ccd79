//! Lines of lane state: 64 bytes that only the lane writes which owns the session.
//!
//! The line with a session's own number holds its first URR and its first QER, so that a session
//! with one of each touches one line; further URRs and QERs of a session have further lines, of
//! which each holds one URR and one QER. Counters only ever grow while a session lives.

/// Words of a line.
pub const WORDS: usize = 8;
/// Octets of inner IP packets from the user, counted by the URR of this line.
pub const UPLINK_OCTETS: usize = 0;
/// Their packets.
pub const UPLINK_PACKETS: usize = 1;
/// Octets of inner IP packets to the user.
pub const DOWNLINK_OCTETS: usize = 2;
/// Their packets.
pub const DOWNLINK_PACKETS: usize = 3;
/// The meter of the QER of this line, from the user: the theoretical arrival time of the generic
/// cell rate algorithm (ITU-T I.371), in 1/64 ns of `CLOCK_MONOTONIC`.
pub const UPLINK_METER: usize = 4;
/// The meter to the user.
pub const DOWNLINK_METER: usize = 5;
/// When the last packet was counted: nanoseconds of `CLOCK_MONOTONIC`; the first packet's time is
/// in the upper half of no word: start of traffic is an event.
pub const LAST: usize = 6;
/// Events that have happened: see [`event`]. Bits are set by the lane; a new version of the rules
/// clears them.
pub const EVENTS: usize = 7;

/// Bits of the word [`EVENTS`]; its upper 32 bits are the lower ones of the version of the rules
/// under which they happened. Bits 16 to 31 say which end marker was sent last.
pub mod event {
    /// The first packet under these rules.
    pub const START: u64 = 1;
    /// A threshold of the URR of this line was reached.
    pub const THRESHOLD: u64 = 1 << 1;
    /// A quota of the URR of this line is used up: packets are stopped.
    pub const QUOTA: u64 = 1 << 2;
    /// A packet to the user was held, of which the control plane wants to know.
    pub const HELD: u64 = 1 << 3;
    /// More was held than may be: packets were dropped.
    pub const OVERFLOW: u64 = 1 << 4;
    /// An end marker was sent as these rules ask.
    pub const END_MARKER: u64 = 1 << 5;
    /// Packets to the user were dropped that a URR wants to know of (DROTH).
    pub const DROPPED: u64 = 1 << 6;
    /// All of them.
    pub const ALL: u64 = 0xFFFF;
    /// Which end marker was sent last: bit 31, and from bit 16 on 15 bits of the version
    /// in which it became due.
    pub const MARKER: u64 = 0xFFFF << MARKER_SHIFT;
    /// Where those begin.
    pub const MARKER_SHIFT: u32 = 16;
}
