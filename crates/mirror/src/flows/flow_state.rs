//! Lane state of one direction of a flow: one cache line that the lane of its packets writes.
//!
//! ```text
//! 0  packets that the lane forwarded     1  their bytes
//! 2  time of the last packet, also if Linux got it, in nanoseconds of CLOCK_MONOTONIC
//! 3  ingress interface of the remembered hop (upper half), flags (lower half)
//! 4  generation of the mirror in which the hop was looked up, plus 1; 0: none
//! 5  Ethernet address of the next hop (48 bits), port (16 bits)
//! 6  Ethernet address of the exit (48 bits), MTU (16 bits)
//! 7  egress interface (32 bits), the first of the flow; route number (32 bits)
//! ```

use fastlane_core::PortId;
use fastlane_table::StateWords;

use super::TierTotals;
use crate::NextHop;

/// Number of words.
pub const FLOW_WORDS: usize = 8;

const PACKETS: usize = 0;
const OCTETS: usize = 1;
const LAST_SEEN: usize = 2;
const INGRESS: usize = 3;
const GENERATION: usize = 4;
const DESTINATION: usize = 5;
const SOURCE: usize = 6;
const LINK: usize = 7;

/// Flags: a packet that closes the connection was seen; the route leads to another exit.
const CLOSING: u64 = 1;
const REROUTED: u64 = 2;

/// Lane state of one direction of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowState<'a>(StateWords<'a, FLOW_WORDS>);

/// Next hop of a flow as a lane remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedHop {
    /// Interface on which packets must arrive.
    pub ingress: u32,
    /// The next hop.
    pub hop: NextHop,
}

impl<'a> FlowState<'a> {
    /// Number in place of an interface that is no port.
    pub const ELSEWHERE: u32 = u32::MAX;

    /// Wraps the words of an entry.
    #[inline(always)]
    #[must_use]
    pub fn new(words: StateWords<'a, FLOW_WORDS>) -> Self {
        Self(words)
    }

    /// Counts a packet that was forwarded.
    #[inline(always)]
    pub fn count(self, octets: u64) {
        self.0.add(PACKETS, 1);
        self.0.add(OCTETS, octets);
    }

    /// Notes that a packet arrived, at a time in nanoseconds of `CLOCK_MONOTONIC`.
    #[inline(always)]
    pub fn see(self, now: u64) {
        self.0.set(LAST_SEEN, now);
    }

    /// Notes that a packet closes the connection: later packets of this direction are for Linux.
    #[inline]
    pub fn close(self) {
        self.0.set(INGRESS, self.0.get(INGRESS) | CLOSING);
    }

    /// Returns true if a packet that closes the connection was seen.
    #[inline(always)]
    #[must_use]
    pub fn is_closing(self) -> bool {
        self.0.get(INGRESS) & CLOSING != 0
    }

    /// Notes that Linux sends the flow by an interface, unless the first exit is known.
    #[inline]
    pub fn leaves_by(self, link: u32) {
        if self.0.get(LINK) >> 32 == 0 {
            self.0.set(LINK, u64::from(link) << 32);
        }
    }

    /// Returns true if the flow must not leave by an interface, as its first exit was another one:
    /// the rules of Linux have judged it there only. All later packets are for Linux.
    #[inline]
    #[must_use]
    pub fn reroutes(self, link: u32) -> bool {
        let first = self.0.get(LINK) >> 32;
        let is_other = first != 0 && first != u64::from(link);
        if is_other {
            self.0.set(INGRESS, self.0.get(INGRESS) | REROUTED);
        }
        is_other
    }

    /// Returns true if the route has led to another exit than the first one.
    #[inline(always)]
    #[must_use]
    pub fn is_rerouted(self) -> bool {
        self.0.get(INGRESS) & REROUTED != 0
    }

    /// Returns true if later packets are for Linux: it is closing or rerouted.
    #[inline(always)]
    #[must_use]
    pub fn is_linuxs(self) -> bool {
        self.0.get(INGRESS) & (CLOSING | REROUTED) != 0
    }

    /// Returns the totals of the direction in this lane.
    #[must_use]
    pub fn totals(self) -> TierTotals {
        let [packets, octets, last_seen] =
            [PACKETS, OCTETS, LAST_SEEN].map(|word| self.0.get(word));
        let (is_closing, is_rerouted) = (self.is_closing(), self.is_rerouted());
        TierTotals { packets, octets, last_seen, is_closing, is_rerouted }
    }

    /// Returns the hop that was looked up in this generation, if one was.
    #[inline(always)]
    #[must_use]
    pub fn remembered(self, generation: u64) -> Option<RememberedHop> {
        if self.0.get(GENERATION) != generation.wrapping_add(1) {
            return None;
        }
        let [ingress, destination, source, link] =
            [INGRESS, DESTINATION, SOURCE, LINK].map(|word| self.0.get(word));
        let hop = NextHop {
            port: PortId(destination as u16),
            source: mac(source),
            destination: mac(destination),
            mtu: u32::from(source as u16),
            link: (link >> 32) as u32,
            route: link as u32,
            is_divided: false, // what Linux may send elsewhere is not remembered
        };
        Some(RememberedHop { ingress: (ingress >> 32) as u32, hop })
    }

    /// Remembers the hop that was looked up in a generation.
    #[inline]
    pub fn remember(self, generation: u64, remembered: &RememberedHop) {
        let RememberedHop { ingress, hop } = remembered;
        let mtu = hop.mtu.min(u32::from(u16::MAX));
        let flags = self.0.get(INGRESS) & u64::from(u32::MAX);
        self.0.set(INGRESS, u64::from(*ingress) << 32 | flags);
        self.0.set(DESTINATION, bits(hop.destination) | u64::from(hop.port.0));
        self.0.set(SOURCE, bits(hop.source) | u64::from(mtu));
        self.0.set(LINK, u64::from(hop.link) << 32 | u64::from(hop.route));
        self.0.set(GENERATION, generation.wrapping_add(1));
    }
}

/// Returns an Ethernet address in the upper 48 bits.
#[inline]
fn bits(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([a, b, c, d, e, f, 0, 0])
}

/// Returns the Ethernet address in the upper 48 bits.
#[inline(always)]
fn mac(word: u64) -> [u8; 6] {
    // As a whole: single bytes would be stored one by one where a frame gets them.
    let [mac @ .., _, _] = word.to_be_bytes();
    mac
}
