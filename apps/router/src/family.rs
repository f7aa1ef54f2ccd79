//! Differences between IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::IngressInterface;
use fastlane::mirror::flows::FlowRecord;
use fastlane::mirror::{NextHop, ReturnRoute, RouteLookup};
use fastlane::table::FlowAddress;
use fastlane::wire::{Ipv4, Ipv6};
use fastlane::{Packet, Turn};

use crate::{Routes, rewrite, translate};

/// Address type of an IP version.
pub(crate) trait Family: FlowAddress + Into<IpAddr> {
    /// True if Linux validates sources by a reverse lookup.
    const VALIDATES_SOURCES: bool;

    /// IP version: 4 or 6.
    const VERSION: u8;
    /// Length of the IP header of a flow's packets, in bytes.
    const HEADER: usize;

    /// Returns the address as in the key of a flow.
    fn octets(self) -> [u8; 16];

    /// Returns the address in the value of a flow.
    fn from_octets(octets: [u8; 16]) -> Self;

    /// Returns the address as a number.
    fn bits(self) -> u128;

    /// Returns true for addresses of a link, with which hosts of IPv6 find each other: packets to
    /// them go no further than to Linux.
    fn is_link_local(&self) -> bool;

    /// Looks destinations up; see [`Routes`].
    fn lookup<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        lookups: &mut [RouteLookup],
    );

    /// Looks up the routes back to sources; see [`Routes`].
    fn look_back<R: Routes>(
        routes: &R,
        turn: &Turn,
        from: &[Self],
        flows: &[u32],
        returns: &mut [ReturnRoute],
    );

    /// Returns true if Linux forwards packets of this version from the interface.
    fn is_forwarded(entrance: &IngressInterface) -> bool;

    /// Rewrites a packet for its next hop.
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32);

    /// Translates a packet by its flow and rewrites it for its next hop.
    fn translate(packet: &mut Packet, record: &FlowRecord, hop: &NextHop, length: u32);
}

impl Family for Ipv4Addr {
    const VALIDATES_SOURCES: bool = true;
    const VERSION: u8 = 4;
    const HEADER: usize = Ipv4::LENGTH;

    #[inline(always)]
    fn octets(self) -> [u8; 16] {
        // Stored as two words, so that a load of a word need not wait for pieces of it.
        u128::from(u32::from_le_bytes(Self::octets(&self))).to_le_bytes()
    }

    #[inline(always)]
    fn from_octets(octets: [u8; 16]) -> Self {
        let [a, b, c, d, ..] = octets;
        Self::from([a, b, c, d])
    }

    #[inline(always)]
    fn bits(self) -> u128 {
        u128::from(self.to_bits())
    }

    #[inline]
    fn is_link_local(&self) -> bool {
        false
    }

    #[inline]
    fn lookup<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        lookups: &mut [RouteLookup],
    ) {
        routes.ways4(turn, to, flows, lookups);
    }

    #[inline]
    fn look_back<R: Routes>(
        routes: &R,
        turn: &Turn,
        from: &[Self],
        flows: &[u32],
        returns: &mut [ReturnRoute],
    ) {
        routes.returns4(turn, from, flows, returns);
    }

    #[inline]
    fn is_forwarded(entrance: &IngressInterface) -> bool {
        entrance.forwards4
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward4(packet, hop, length);
    }

    #[inline(always)]
    fn translate(packet: &mut Packet, record: &FlowRecord, hop: &NextHop, length: u32) {
        translate::translate4(packet, record, hop, length);
    }
}

impl Family for Ipv6Addr {
    const VALIDATES_SOURCES: bool = false;
    const VERSION: u8 = 6;
    const HEADER: usize = Ipv6::LENGTH;

    #[inline(always)]
    fn octets(self) -> [u8; 16] {
        Self::octets(&self)
    }

    #[inline(always)]
    fn from_octets(octets: [u8; 16]) -> Self {
        Self::from(octets)
    }

    #[inline(always)]
    fn bits(self) -> u128 {
        self.to_bits()
    }

    #[inline]
    fn is_link_local(&self) -> bool {
        self.is_unicast_link_local()
    }

    #[inline]
    fn lookup<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        lookups: &mut [RouteLookup],
    ) {
        routes.ways6(turn, to, flows, lookups);
    }

    #[inline]
    fn look_back<R: Routes>(
        routes: &R,
        turn: &Turn,
        from: &[Self],
        flows: &[u32],
        returns: &mut [ReturnRoute],
    ) {
        routes.returns6(turn, from, flows, returns);
    }

    #[inline]
    fn is_forwarded(entrance: &IngressInterface) -> bool {
        entrance.forwards6
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward6(packet, hop, length);
    }

    #[inline(always)]
    fn translate(packet: &mut Packet, record: &FlowRecord, hop: &NextHop, length: u32) {
        translate::translate6(packet, record, hop, length);
    }
}
