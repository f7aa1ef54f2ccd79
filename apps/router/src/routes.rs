//! Source of routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{IngressInterface, Mirror, ReturnRoute, RouteLookup, TableId};
use fastlane::{PortId, Turn};

/// Maximum number of packets that are looked up together.
pub const BATCH: usize = 32;

/// Source of routes. Results are valid for one turn.
pub trait Routes {
    /// Returns the Linux interface of a port; `None` if it is unknown.
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface>;

    /// Looks up IPv4 destinations. Flow hashes select among several next hops. All slices have the
    /// same length, at most [`BATCH`].
    fn ways4(&self, turn: &Turn, to: &[Ipv4Addr], flows: &[u32], lookups: &mut [RouteLookup]);

    /// Looks up IPv6 destinations; see [`ways4`](Self::ways4).
    fn ways6(&self, turn: &Turn, to: &[Ipv6Addr], flows: &[u32], lookups: &mut [RouteLookup]);

    /// Looks up the routes back to IPv4 sources; see [`ways4`](Self::ways4).
    fn returns4(&self, turn: &Turn, from: &[Ipv4Addr], flows: &[u32], returns: &mut [ReturnRoute]);

    /// Looks up the routes back to IPv6 sources; see [`ways4`](Self::ways4).
    fn returns6(&self, turn: &Turn, from: &[Ipv6Addr], flows: &[u32], returns: &mut [ReturnRoute]);

    /// Returns the generation of the routes, or `None` while they change. A lookup after the call
    /// may be remembered as long as the number stays.
    fn generation(&self) -> Option<u64>;

    /// Returns true if `address` is an address of this host.
    fn is_own(&self, turn: &Turn, address: IpAddr) -> bool;
}

impl Routes for Mirror {
    #[inline]
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface> {
        Self::ingress(self, turn, port)
    }

    #[inline]
    fn ways4(&self, turn: &Turn, to: &[Ipv4Addr], flows: &[u32], lookups: &mut [RouteLookup]) {
        self.route4_many(turn, to, flows, lookups);
    }

    #[inline]
    fn ways6(&self, turn: &Turn, to: &[Ipv6Addr], flows: &[u32], lookups: &mut [RouteLookup]) {
        self.route6_many(turn, to, flows, lookups);
    }

    #[inline]
    fn returns4(&self, turn: &Turn, from: &[Ipv4Addr], flows: &[u32], returns: &mut [ReturnRoute]) {
        self.return_routes(turn, TableId::default(), from, flows, returns);
    }

    #[inline]
    fn returns6(&self, turn: &Turn, from: &[Ipv6Addr], flows: &[u32], returns: &mut [ReturnRoute]) {
        self.return_routes(turn, TableId::default(), from, flows, returns);
    }

    #[inline]
    fn generation(&self) -> Option<u64> {
        (**self).generation()
    }

    #[inline]
    fn is_own(&self, turn: &Turn, address: IpAddr) -> bool {
        self.is_local(turn, address)
    }
}
