//! Next hop cache: Linux's routes to tunnel endpoints, looked up once per turn and endpoint.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, RouteLookup, TableId};
use fastlane::mirror::{IngressInterface, Mirror};
use fastlane::{PortId, Turn};

use super::encap::{Endpoints, TunnelRoute};
use super::port_map::PortMap;
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::session::InstanceId;

/// Maximum number of packets that are looked up together.
pub(crate) const BATCH: usize = 32;
/// Number of cached endpoints.
const CACHED_ROUTES: usize = 64;

/// Route lookup. Results are valid for one turn. A table is a Linux routing table by number; `None`
/// is the first one that is mirrored.
pub trait Routes {
    /// Returns the Linux interface of a port; `None` if it is unknown.
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface>;

    /// Routes a packet. The flow hash selects among equal-cost paths.
    fn next_hop(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup;

    /// Routes up to 32 IPv4 packets; all slices have the same length.
    fn next_hops4(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv4Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.next_hop(turn, table, IpAddr::V4(*to), *flow);
        }
    }

    /// Routes up to 32 IPv6 packets; all slices have the same length.
    fn next_hops6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        for ((to, flow), answer) in to.iter().zip(flows).zip(answers) {
            *answer = self.next_hop(turn, table, IpAddr::V6(*to), *flow);
        }
    }
}

fn table_of(mirror: &Mirror, turn: &Turn, number: Option<u32>) -> Option<TableId> {
    match number {
        None => Some(TableId::default()),
        Some(number) => mirror.table(turn, number),
    }
}

impl Routes for Mirror {
    #[inline]
    fn ingress(&self, turn: &Turn, port: PortId) -> Option<IngressInterface> {
        Self::ingress(self, turn, port)
    }

    fn next_hop(&self, turn: &Turn, table: Option<u32>, to: IpAddr, flow: u32) -> RouteLookup {
        let Some(table) = table_of(self, turn, table) else {
            return RouteLookup::Fallback(FallbackReason::NoTable);
        };
        match to {
            IpAddr::V4(to) => self.route(turn, table, to, flow),
            IpAddr::V6(to) => self.route(turn, table, to, flow),
        }
    }

    #[inline]
    fn next_hops4(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv4Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(RouteLookup::Fallback(FallbackReason::NoTable)),
        }
    }

    #[inline]
    fn next_hops6(
        &self,
        turn: &Turn,
        table: Option<u32>,
        to: &[Ipv6Addr],
        flows: &[u32],
        answers: &mut [RouteLookup],
    ) {
        match table_of(self, turn, table) {
            Some(table) => self.route_many(turn, table, to, flows, answers),
            None => answers.fill(RouteLookup::Fallback(FallbackReason::NoTable)),
        }
    }
}

/// Route to an endpoint in a turn.
#[derive(Clone, Copy, Debug)]
struct CachedRoute {
    turn: u64,
    instance: Option<InstanceId>,
    to: IpAddr,
    route: Result<TunnelRoute, DropReason>,
}

/// Cache of routes to tunnel endpoints. There are few of them and each is looked up once per turn.
#[derive(Clone, Debug)]
pub(crate) struct NextHopCache {
    remembered: Box<[CachedRoute; CACHED_ROUTES]>,
}

impl NextHopCache {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        let (to, route) = (Ipv4Addr::UNSPECIFIED.into(), Err(DropReason::NoRoute));
        let nothing = CachedRoute { turn: 0, instance: None, to, route };
        Self { remembered: Box::new([nothing; CACHED_ROUTES]) }
    }

    /// Returns the route to an endpoint. All tunnels to it share one route, so packets stay in
    /// order.
    #[inline]
    pub(crate) fn to<R: Routes>(
        &mut self,
        routes: &R,
        ports: &PortMap,
        turn: &Turn,
        instance: Option<InstanceId>,
        to: IpAddr,
    ) -> Result<&TunnelRoute, DropReason> {
        let hash = match to {
            IpAddr::V4(to) => to.to_bits(),
            IpAddr::V6(to) => {
                let bits = to.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64) as u32
            }
        };
        let hash = hash.wrapping_mul(0x9e37_79b1);
        let place = &mut self.remembered[(hash >> 26) as usize];
        if place.turn != turn.number() || place.to != to || place.instance != instance {
            let route = find(routes, ports, turn, instance, to, hash);
            *place = CachedRoute { turn: turn.number(), instance, to, route };
        }
        place.route.as_ref().map_err(|reason| *reason)
    }
}

#[inline(never)]
fn find<R: Routes>(
    routes: &R,
    ports: &PortMap,
    turn: &Turn,
    instance: Option<InstanceId>,
    to: IpAddr,
    hash: u32,
) -> Result<TunnelRoute, DropReason> {
    if ports.is_own(to) {
        return Err(DropReason::Loop);
    }
    let is_gtpu = |role| role != Role::N6;
    let hop = match ports.route_source(instance, is_gtpu).next_hop(routes, turn, to, hash) {
        RouteLookup::Forward(hop) => hop,
        RouteLookup::Fallback(reason) => return Err(drop_reason_of(reason)),
    };
    let interface = ports.exit(hop.port, instance, is_gtpu).ok_or(DropReason::NoRoute)?;
    let endpoints = match to {
        IpAddr::V4(to) => Endpoints::V4(interface.v4.ok_or(DropReason::NoRoute)?, to),
        IpAddr::V6(to) => Endpoints::V6(interface.v6.ok_or(DropReason::NoRoute)?, to),
    };
    Ok(TunnelRoute::new(endpoints, hop))
}

/// Returns the drop reason for a route lookup that failed.
pub(crate) const fn drop_reason_of(reason: FallbackReason) -> DropReason {
    match reason {
        FallbackReason::NoNeighbour => DropReason::NoNeighbour,
        FallbackReason::Local => DropReason::Loop,
        FallbackReason::LinkDown => DropReason::LinkDown,
        _ => DropReason::NoRoute,
    }
}
