//! MTUs of IPv4 routes. Linux keeps to them when it forwards (`ip_dst_mtu_maybe_forward` in
//! `include/net/ip.h`), but the route lookup of BPF programs tells only locked ones
//! (`ip_mtu_from_fib_result` in `net/ipv4/route.c`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Prefix;
use super::message::Route;

/// Route as Linux tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RouteId {
    table: u32,
    destination: Prefix,
    metric: u32,
    selector: (u8, u8),
}

/// Maximum number of routes without an MTU that are kept. Further ones count as if they had that of
/// the route that covers them.
const MOST_WITHOUT: usize = 2048;

/// IPv4 routes that have an MTU, and those without one that they cover.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteMtus {
    /// MTU of each route; [`u32::MAX`]: none.
    routes: HashMap<RouteId, u32>,
    /// Prefixes of the routes with an MTU.
    limited: BTreeSet<Prefix>,
    /// Number of routes without an MTU.
    without: usize,
}

impl RouteMtus {
    /// Returns true if no route has an MTU.
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Adds a route that Linux has, if it or one that covers it has an MTU. Returns false if the
    /// routes must be read anew: one with an MTU has come, which may cover others, or has been
    /// changed, and others may be like it but for what is not compared here.
    pub(crate) fn add(&mut self, route: &Route) -> bool {
        if route.destination.is_ipv6() || route.table == u32::from(libc::RT_TABLE_LOCAL) {
            return true;
        }
        let (id, mtu) = (id(route), if route.mtu == 0 { u32::MAX } else { route.mtu });
        if let Some(known) = self.routes.get(&id) {
            return *known == mtu;
        }
        if mtu != u32::MAX {
            self.routes.insert(id, mtu);
            return !self.limited.insert(route.destination);
        }
        if self.without < MOST_WITHOUT && self.is_covered(route.destination) {
            self.without += 1;
            self.routes.insert(id, mtu);
        }
        true
    }

    /// Removes a route. Returns false if the routes must be read anew, as it had an MTU.
    pub(crate) fn remove(&mut self, route: &Route) -> bool {
        match self.routes.get(&id(route)) {
            None => true,
            Some(&u32::MAX) => {
                // Another one that is like it counts as if it had the MTU.
                self.routes.remove(&id(route));
                self.without -= 1;
                true
            }
            Some(_) => false,
        }
    }

    /// Returns true if a route with an MTU covers a prefix, in whatever table.
    fn is_covered(&self, prefix: Prefix) -> bool {
        let covering = |length| self.limited.contains(&Prefix::new(prefix.address(), length));
        !self.limited.is_empty() && (0..=prefix.length()).any(covering)
    }

    /// Returns the least MTU by prefix, [`u32::MAX`] for none. It holds for the addresses of a
    /// prefix that no longer one covers, whichever routing table is asked.
    pub(crate) fn by_prefix(&self) -> BTreeMap<Prefix, u32> {
        let mut by_table: BTreeMap<(u32, Prefix), u32> = BTreeMap::new();
        for (id, mtu) in &self.routes {
            let least = by_table.entry((id.table, id.destination)).or_insert(*mtu);
            *least = (*least).min(*mtu);
        }
        let mut tables: Vec<u32> = by_table.keys().map(|(table, _)| *table).collect();
        tables.dedup();
        let mut least: BTreeMap<Prefix, u32> = BTreeMap::new();
        for (_, prefix) in by_table.keys() {
            let of_tables = tables.iter().filter_map(|table| {
                let mut covering = (0..=prefix.length()).rev();
                covering.find_map(|length| {
                    by_table.get(&(*table, Prefix::new(prefix.address(), length)))
                })
            });
            least.extend(of_tables.min().map(|mtu| (*prefix, *mtu)));
        }
        least
    }
}

fn id(route: &Route) -> RouteId {
    let Route { table, destination, metric, selector, .. } = *route;
    RouteId { table, destination, metric, selector }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::RouteKind;

    fn route(table: u32, destination: &str, mtu: u32) -> Route {
        let (address, length) = destination.split_once('/').unwrap();
        Route {
            table,
            destination: Prefix::new(address.parse().unwrap(), length.parse().unwrap()),
            kind: RouteKind::Unicast,
            metric: 0,
            origin: (0, 0),
            selector: (0, 0),
            mtu,
            next_hop: 0,
            hops: Vec::new(),
        }
    }

    #[test]
    fn the_longest_prefix_of_each_table_counts_and_the_least_of_all_tables() {
        let mut mtus = RouteMtus::default();
        let routes = [
            (254, "0.0.0.0/0", 1400),
            (254, "10.1.0.0/16", 1500),
            (254, "10.1.2.0/24", 0),
            (254, "192.0.2.0/24", 0),
            (7, "10.0.0.0/8", 1450),
            (7, "10.9.0.0/16", 1300),
            (254, "2001:db8::/32", 1280),
        ];
        // Twice, as those that cover others may come later.
        for (table, destination, mtu) in routes.into_iter().chain(routes) {
            mtus.add(&route(table, destination, mtu));
        }
        let found: Vec<(String, u32)> =
            mtus.by_prefix().iter().map(|(prefix, mtu)| (prefix.to_string(), *mtu)).collect();
        let expected = [
            ("0.0.0.0/0", 1400),
            ("10.0.0.0/8", 1400),
            ("10.1.0.0/16", 1450),
            ("10.1.2.0/24", 1450),
            ("10.9.0.0/16", 1300),
            ("192.0.2.0/24", u32::MAX),
        ];
        assert_eq!(found, expected.map(|(prefix, mtu)| (prefix.to_owned(), mtu)));
        assert!(mtus.remove(&route(254, "192.0.2.0/24", 0)));
        assert_eq!(mtus.by_prefix().len(), 5);
    }

    #[test]
    fn a_change_of_a_route_with_an_mtu_is_told() {
        let mut mtus = RouteMtus::default();
        assert!(mtus.remove(&route(254, "10.0.0.0/8", 1300)), "it is not known");
        assert!(mtus.add(&route(254, "10.1.0.0/16", 0)), "nothing covers it");
        assert!(!mtus.add(&route(254, "10.0.0.0/8", 1300)), "it may cover others");
        assert!(mtus.add(&route(254, "10.0.0.0/8", 1300)), "once more");
        assert!(!mtus.add(&route(254, "10.0.0.0/8", 0)), "replaced, or another one");
        assert!(!mtus.add(&route(254, "10.0.0.0/8", 1400)));
        assert!(!mtus.remove(&route(254, "10.0.0.0/8", 1300)));
        assert!(!mtus.is_empty());
    }
}
