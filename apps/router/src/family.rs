//! What differs between IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::Entrance;
use fastlane::mirror::{NextHop, RouteLookup};
use fastlane::{Packet, Turn};

use crate::{Routes, rewrite};

/// The addresses of a version of IP.
pub(crate) trait Family: Copy + Into<IpAddr> {
    /// Whether Linux asks for a way back to sources.
    const LOOKS_BACK: bool;

    /// The address as a number.
    fn bits(self) -> u128;

    fn ways<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        answers: &mut [RouteLookup],
    );

    /// Whether Linux forwards what comes in there.
    fn is_forwarded(entrance: &Entrance) -> bool;

    /// Sends a packet on its way.
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32);
}

impl Family for Ipv4Addr {
    const LOOKS_BACK: bool = true;

    #[inline(always)]
    fn bits(self) -> u128 {
        u128::from(self.to_bits())
    }

    #[inline]
    fn ways<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        routes.ways4(turn, to, flows, answers);
    }

    #[inline]
    fn is_forwarded(entrance: &Entrance) -> bool {
        entrance.forwards4
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward4(packet, hop, length);
    }
}

impl Family for Ipv6Addr {
    const LOOKS_BACK: bool = false;

    #[inline(always)]
    fn bits(self) -> u128 {
        self.to_bits()
    }

    #[inline]
    fn ways<R: Routes>(
        routes: &R,
        turn: &Turn,
        to: &[Self],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        routes.ways6(turn, to, flows, answers);
    }

    #[inline]
    fn is_forwarded(entrance: &Entrance) -> bool {
        entrance.forwards6
    }

    #[inline]
    fn forward(packet: &mut Packet, hop: &NextHop, length: u32) {
        rewrite::forward6(packet, hop, length);
    }
}
