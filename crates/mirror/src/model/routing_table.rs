//! Routes of one routing table.

use std::collections::BTreeMap;

use super::super::message::{Hop, Position, Route, RouteKind};
use super::super::{FallbackReason, Prefix};

/// `RTPROT_RA`: a route from a router advertisement. Linux selects among those by reachability.
const ANNOUNCED: u8 = 9;

/// Action for packets to a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Leave the packets to Linux.
    Fallback(FallbackReason),
    /// Forward to one of these next hops.
    NextHops {
        /// Next hops, at least one.
        hops: Vec<Hop>,
        /// MTU of the route in bytes, or 0.
        mtu: u32,
    },
}

/// Routes of one table, with the number of prefixes of each length.
#[derive(Clone, Debug)]
pub(super) struct RoutingTable {
    pub(super) families: [BTreeMap<Prefix, Vec<Route>>; 2],
    lengths: [[u32; 129]; 2],
}

impl Default for RoutingTable {
    fn default() -> Self {
        Self { families: Default::default(), lengths: [[0; 129]; 2] }
    }
}

impl RoutingTable {
    pub(super) fn get(&self, destination: &Prefix) -> &[Route] {
        let family = &self.families[usize::from(destination.is_ipv6())];
        family.get(destination).map_or(&[], |routes| routes)
    }

    pub(super) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.families.iter().flat_map(BTreeMap::values).flatten()
    }

    pub(super) fn destinations(&self, ipv6: bool) -> impl Iterator<Item = &Prefix> {
        self.families[usize::from(ipv6)].keys()
    }

    /// Returns the destinations of one family from `first` to `last`.
    pub(super) fn range(&self, first: Prefix, last: Prefix) -> impl Iterator<Item = Prefix> {
        self.families[usize::from(first.is_ipv6())].range(first..=last).map(|(prefix, _)| *prefix)
    }

    /// Returns true if a route to the destination refers to a next-hop object.
    pub(super) fn uses(&self, destination: &Prefix, id: u32) -> bool {
        self.get(destination).iter().any(|route| route.next_hop == id)
    }

    /// Returns the best route to the longest prefix that covers `destination`.
    pub(super) fn covering(&self, destination: &Prefix) -> Option<&Route> {
        let lengths = &self.lengths[usize::from(destination.is_ipv6())];
        (0..=destination.length())
            .rev()
            .filter(|&length| lengths[usize::from(length)] > 0)
            .find_map(|length| self.get(&Prefix::new(destination.address(), length)).first())
    }

    /// Inserts a route at the position that Linux has given it. Returns false if the route to
    /// replace is missing.
    pub(super) fn insert(&mut self, route: Route, position: Position) -> bool {
        let family = usize::from(route.destination.is_ipv6());
        let destination = route.destination;
        let routes = self.families[family].entry(destination).or_default();
        if routes.is_empty() {
            self.lengths[family][usize::from(destination.length())] += 1;
        }
        if destination.is_ipv6() {
            insert6(routes, route, position)
        } else {
            insert4(routes, route, position)
        }
    }

    /// Removes a route. Returns false if it was not found.
    pub(super) fn remove(&mut self, route: &Route) -> bool {
        let family = usize::from(route.destination.is_ipv6());
        let Some(routes) = self.families[family].get_mut(&route.destination) else { return false };
        let found = if family == 1 { remove6(routes, route) } else { remove4(routes, route) };
        if routes.is_empty() {
            self.families[family].remove(&route.destination);
            self.lengths[family][usize::from(route.destination.length())] -= 1;
        }
        found
    }
}

/// Returns the sort key of a route: Linux selects by type of service, then by metric.
fn order(route: &Route) -> (u8, u8, u32) {
    (255 - route.selector.0, 255 - route.selector.1, route.metric)
}

/// Returns true if both routes have the same next hops as configured.
fn is_same(one: &Route, other: &Route) -> bool {
    let has_same_hops = |one: &Route, other: &Route| {
        one.hops.len() == other.hops.len()
            && one
                .hops
                .iter()
                .zip(&other.hops)
                .all(|(one, other)| one.is_same(other) && one.weight == other.weight)
    };
    order(one) == order(other)
        && (one.kind, one.origin, one.next_hop) == (other.kind, other.origin, other.next_hop)
        && has_same_hops(one, other)
}

/// Inserts an IPv4 route as `fib_table_insert` in `net/ipv4/fib_trie.c` does.
fn insert4(routes: &mut Vec<Route>, route: Route, position: Position) -> bool {
    let first = routes.partition_point(|other| order(other) < order(&route));
    let last = routes.partition_point(|other| order(other) <= order(&route));
    let same = routes[first..last].iter().position(|other| is_same(other, &route));
    match (position, same) {
        (_, Some(index)) => routes[first + index] = route,
        (Position::Replace, None) if first < last => routes[first] = route,
        (Position::Replace | Position::First, None) => routes.insert(first, route),
        (Position::Last, None) => routes.insert(last, route),
    }
    true
}

/// Removes an IPv4 route. Linux sends all its attributes.
fn remove4(routes: &mut Vec<Route>, route: &Route) -> bool {
    let same = routes.iter().position(|other| is_same(other, route));
    let alike = || routes.iter().position(|other| order(other) == order(route));
    if let Some(index) = same.or_else(alike) {
        routes.remove(index);
    }
    same.is_some()
}

/// Returns true if Linux merges the route with similar ones into a multipath route
/// (`rt6_qualify_for_ecmp`).
fn is_multipath(route: &Route) -> bool {
    route.kind == RouteKind::Unicast
        && route.next_hop == 0
        && route.origin.0 != ANNOUNCED
        && route.hops.iter().all(|hop| hop.gateway.is_some())
}

/// Inserts an IPv6 route as `fib6_add_rt2node` in `net/ipv6/ip6_fib.c` does: routes with gateways
/// and equal metrics are one multipath route, and each message carries all hops.
fn insert6(routes: &mut Vec<Route>, route: Route, position: Position) -> bool {
    let first = routes.partition_point(|other| order(other) < order(&route));
    let last = routes.partition_point(|other| order(other) <= order(&route));
    let alike = &mut routes[first..last];
    let joins = is_multipath(&route);
    if position == Position::Replace && !alike.is_empty() {
        let index = alike.iter().position(|other| is_multipath(other) == joins).unwrap_or(0);
        let alone = alike.len() == 1;
        alike[index] = route;
        return alone;
    }
    let same = alike.iter_mut().find(|other| is_same(other, &route));
    if let Some(same) = same {
        *same = route;
    } else if let Some(other) = alike.iter_mut().find(|other| joins && is_multipath(other)) {
        for hop in route.hops {
            match other.hops.iter_mut().find(|existing| existing.is_same(&hop)) {
                Some(existing) => *existing = hop,
                None => other.hops.push(hop),
            }
        }
    } else {
        routes.insert(last, route);
    }
    true
}

/// Removes an IPv6 route. Linux names either the whole route or the removed hops.
fn remove6(routes: &mut Vec<Route>, route: &Route) -> bool {
    if let Some(index) = routes.iter().position(|other| is_same(other, route)) {
        routes.remove(index);
        return true;
    }
    let lost = |hop: &Hop| route.hops.iter().any(|lost| lost.is_same(hop));
    let alike = routes.iter_mut().position(|other| {
        order(other) == order(route) && other.kind == route.kind && other.hops.iter().any(lost)
    });
    let Some(index) = alike else { return false };
    let hops = &mut routes[index].hops;
    let before = hops.len();
    hops.retain(|hop| !lost(hop));
    let all = before - hops.len() == route.hops.len();
    if hops.is_empty() {
        routes.remove(index);
    }
    all
}

/// Resolves the routes to one destination to an action.
pub(super) fn resolve(
    routes: &[Route],
    object: impl Fn(u32) -> Result<Vec<Hop>, FallbackReason>,
) -> Target {
    let [best, rest @ ..] = routes else { return Target::Fallback(FallbackReason::NoRoute) };
    if routes.iter().any(|route| route.selector != (0, 0)) {
        return Target::Fallback(FallbackReason::Unsupported);
    }
    // Of several routes Linux selects the first in IPv4, and in IPv6 one by reachability and past
    // redirects, which the mirror does not see.
    let rivals = rest.iter().take_while(|route| route.metric == best.metric).count();
    if best.destination.is_ipv6() && rivals > 0 && best.kind == RouteKind::Unicast {
        return Target::Fallback(FallbackReason::Unsupported);
    }
    match next_hops(best, object) {
        Ok(hops) => Target::NextHops { hops, mtu: best.mtu },
        Err(reason) => Target::Fallback(reason),
    }
}

/// Returns the next hops of a route that the fast path can use.
fn next_hops(
    route: &Route,
    object: impl Fn(u32) -> Result<Vec<Hop>, FallbackReason>,
) -> Result<Vec<Hop>, FallbackReason> {
    match route.kind {
        RouteKind::Unicast => {}
        RouteKind::Local | RouteKind::Anycast => return Err(FallbackReason::Local),
        RouteKind::Broadcast => return Err(FallbackReason::Broadcast),
        RouteKind::Multicast => return Err(FallbackReason::Multicast),
        RouteKind::Blackhole => return Err(FallbackReason::Blackhole),
        RouteKind::Unreachable => return Err(FallbackReason::Unreachable),
        RouteKind::Prohibit => return Err(FallbackReason::Prohibit),
        RouteKind::Throw => return Err(FallbackReason::Throw),
        RouteKind::Other => return Err(FallbackReason::Unsupported),
    }
    let hops = if route.next_hop == 0 { route.hops.clone() } else { object(route.next_hop)? };
    if hops.is_empty() {
        return Err(FallbackReason::Incomplete);
    }
    if hops.iter().any(|hop| hop.encapsulated) {
        return Err(FallbackReason::Unsupported);
    }
    Ok(hops)
}
