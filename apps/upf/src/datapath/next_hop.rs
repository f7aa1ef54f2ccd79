//! Next hops: the cache of routes to tunnel endpoints, and the egress of new packets.

use std::net::{IpAddr, Ipv4Addr};

use fastlane::mirror::{NextHop, RouteLookup};
use fastlane::{Turn, Verdict};

use super::classify::Path;
use super::encap::{self, Endpoints, GtpuFields, TunnelRoute};
use super::ip_header;
use super::port_map::PortMap;
use super::routes::{Routes, drop_reason_of};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Encapsulation, PeerAddress};
use crate::session::{Destination, InstanceId};

/// Number of cached endpoints.
const CACHED_ROUTES: usize = 64;

/// Far end of tunnels, with the network instance that packets to it leave in, if one was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TunnelEndpoint {
    pub(crate) address: IpAddr,
    pub(crate) instance: Option<InstanceId>,
}

impl TunnelEndpoint {
    /// Returns the far end of the outer header that a path adds.
    #[inline(always)]
    pub(crate) fn of(path: &Path<'_>, header: Encapsulation) -> Self {
        let address = match header {
            Encapsulation::Gtpu(PeerAddress::V4(peer), _)
            | Encapsulation::Udp(PeerAddress::V4(peer), _) => peer.into(),
            Encapsulation::Gtpu(PeerAddress::V6(peer), _)
            | Encapsulation::Udp(PeerAddress::V6(peer), _) => peer.into(),
        };
        let instance = match path.forwarding.destination() {
            Destination::Control => None,
            _ => path.forwarding.instance(),
        };
        Self { address, instance }
    }

    /// Returns a hash of the address.
    #[inline]
    fn hash(&self) -> u32 {
        let hash = match self.address {
            IpAddr::V4(to) => to.to_bits(),
            IpAddr::V6(to) => {
                let bits = to.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64) as u32
            }
        };
        hash.wrapping_mul(0x9e37_79b1)
    }
}

/// Route to an endpoint in a turn.
#[derive(Clone, Copy, Debug)]
struct CachedRoute {
    turn: u64,
    endpoint: TunnelEndpoint,
    route: Result<TunnelRoute, DropReason>,
}

/// Cache of routes to tunnel endpoints. There are few of them and each is looked up once per turn.
#[derive(Clone, Debug)]
pub(crate) struct NextHopCache {
    routes: Box<[CachedRoute; CACHED_ROUTES]>,
}

impl NextHopCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        let (address, route) = (Ipv4Addr::UNSPECIFIED.into(), Err(DropReason::NoRoute));
        let endpoint = TunnelEndpoint { address, instance: None };
        Self { routes: Box::new([CachedRoute { turn: 0, endpoint, route }; CACHED_ROUTES]) }
    }

    /// Forgets all routes. No turn has the number 0.
    pub(crate) fn clear(&mut self) {
        self.routes.iter_mut().for_each(|route| route.turn = 0);
    }

    /// Returns the route to an endpoint. All tunnels to it share one route, so packets stay in
    /// order.
    ///
    /// # Errors
    /// Returns the drop reason if the endpoint is unreachable.
    #[inline]
    pub(crate) fn to<R: Routes>(
        &mut self,
        routes: &R,
        ports: &PortMap,
        turn: &Turn,
        endpoint: TunnelEndpoint,
    ) -> Result<&TunnelRoute, DropReason> {
        let hash = endpoint.hash();
        let cached = &mut self.routes[(hash >> 26) as usize];
        if cached.turn != turn.number() || cached.endpoint != endpoint {
            let route = find(routes, ports, turn, endpoint, hash);
            *cached = CachedRoute { turn: turn.number(), endpoint, route };
        }
        cached.route.as_ref().map_err(|reason| *reason)
    }
}

#[inline(never)]
fn find<R: Routes>(
    routes: &R,
    ports: &PortMap,
    turn: &Turn,
    endpoint: TunnelEndpoint,
    hash: u32,
) -> Result<TunnelRoute, DropReason> {
    let TunnelEndpoint { address, instance } = endpoint;
    if ports.is_own(address) {
        return Err(DropReason::Loop);
    }
    let is_gtpu = |role| role != Role::N6;
    let hop = match ports.route_source(instance, is_gtpu).next_hop(routes, turn, address, hash) {
        RouteLookup::Forward(hop) => hop,
        RouteLookup::Fallback(reason) => return Err(drop_reason_of(reason)),
    };
    let interface = ports.exit(hop.port, instance, is_gtpu).ok_or(DropReason::NoRoute)?;
    let endpoints = match address {
        IpAddr::V4(to) => Endpoints::V4(interface.v4.ok_or(DropReason::NoRoute)?, to),
        IpAddr::V6(to) => Endpoints::V6(interface.v6.ok_or(DropReason::NoRoute)?, to),
    };
    Ok(TunnelRoute::new(endpoints, hop, ports.source_port))
}

/// Egress of a new packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Egress {
    /// Through a tunnel.
    Tunnel(TunnelRoute, GtpuFields),
    /// Without a tunnel, to a next hop.
    NextHop(NextHop),
}

impl Egress {
    /// Sends a new packet with this IP packet as its content; false if there is no frame.
    pub(crate) fn send(&self, turn: &mut Turn, ip: &[u8]) -> bool {
        let port = match self {
            Self::Tunnel(route, _) => route.hop.port,
            Self::NextHop(hop) => hop.port,
        };
        let Some(packet) = turn.new_packet(port) else { return false };
        let is_written = packet.append(ip.len()).map(|to| to.copy_from_slice(ip)).is_some()
            && match self {
                Self::Tunnel(route, outer) => encap::encapsulate(packet, 0, ip.len(), route, outer),
                Self::NextHop(hop) => {
                    let is_v6 = ip.first().is_some_and(|first| first >> 4 == 6);
                    ip_header::send(packet, 0, ip.len(), is_v6, hop)
                }
            };
        if !is_written {
            packet.set_verdict(Verdict::Drop);
        }
        is_written
    }
}
