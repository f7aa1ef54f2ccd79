//! What a forwarder asks of whoever knows the routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::RouteLookup;
use fastlane::mirror::{Entrance, Mirror};
use fastlane::{PortId, Turn};

/// The most packets that are looked up together.
pub const BATCH: usize = 32;

/// Who knows the routes. What it says holds for one turn.
pub trait Routes {
    /// The interface behind a port; `None` when it is not known.
    fn entrance(&self, turn: &Turn, port: PortId) -> Option<Entrance>;

    /// The ways of IPv4 packets, of which flow hashes choose where there are several. There are as
    /// many of each, at most [`BATCH`].
    fn ways4(&self, turn: &Turn, to: &[Ipv4Addr], flows: &[u32], answers: &mut [RouteLookup]);

    /// The ways of IPv6 packets.
    fn ways6(&self, turn: &Turn, to: &[Ipv6Addr], flows: &[u32], answers: &mut [RouteLookup]);

    /// Whether an address is one of this host.
    fn is_own(&self, turn: &Turn, address: IpAddr) -> bool;
}

impl Routes for Mirror {
    #[inline]
    fn entrance(&self, turn: &Turn, port: PortId) -> Option<Entrance> {
        Self::entrance(self, turn, port)
    }

    #[inline]
    fn ways4(&self, turn: &Turn, to: &[Ipv4Addr], flows: &[u32], answers: &mut [RouteLookup]) {
        self.route4_many(turn, to, flows, answers);
    }

    #[inline]
    fn ways6(&self, turn: &Turn, to: &[Ipv6Addr], flows: &[u32], answers: &mut [RouteLookup]) {
        self.route6_many(turn, to, flows, answers);
    }

    #[inline]
    fn is_own(&self, turn: &Turn, address: IpAddr) -> bool {
        self.is_local(turn, address)
    }
}
