//! Differences between IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::IngressInterface;
use fastlane::mirror::{NextHop, RouteLookup};
use fastlane::table::FlowAddress;
use fastlane::{Packet, Turn};

use crate::{Routes, rewrite};

/// Address type of an IP version.
pub(crate) trait Family: FlowAddress + Into<IpAddr> {
    /// True if Linux validates sources by a reverse lookup.
    const VALIDATES_SOURCES: bool;

    /// Returns the address as a number.
    fn bits(self) -> u128;

    /// Looks destinations up; see [`Routes`].
    fn lookup<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        lookups: &mut [RouteLookup],
    );

    /// Returns true if Linux forwards packets of this version from the interface.
    fn is_forwarded(entrance: &IngressInterface) -> bool;

    /// Rewrites a packet for its next hop.
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32);
}

impl Family for Ipv4Addr {
    const VALIDATES_SOURCES: bool = true;

    #[inline(always)]
    fn bits(self) -> u128 {
        u128::from(self.to_bits())
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
    fn is_forwarded(entrance: &IngressInterface) -> bool {
        entrance.forwards4
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward4(packet, hop, length);
    }
}

impl Family for Ipv6Addr {
    const VALIDATES_SOURCES: bool = false;

    #[inline(always)]
    fn bits(self) -> u128 {
        self.to_bits()
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
    fn is_forwarded(entrance: &IngressInterface) -> bool {
        entrance.forwards6
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward6(packet, hop, length);
    }
}
