//! Model of Linux's forwarding state as plain values. Dumps fill it and events update it.
//!
//! The model does no I/O. Linux makes some changes without events. When an interface goes down or
//! loses its last address, its IPv4 routes and next-hop objects vanish; when it comes up again,
//! dead hops of multipath routes revive. The model then reports an [`Inconsistency`], which
//! requests new dumps. Until they are applied, no hop over such an interface counts as usable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::message::{
    Address, Effect, Hop, Link, Message, Neighbour, NextHop, NextHopKind, Position, Route, Rule,
    TrafficControl,
};
use super::{FallbackReason, Prefix};

mod difference;
mod routing_table;
mod rules;

use routing_table::RoutingTable;
pub use routing_table::Target;

/// `RT_TABLE_LOCAL`: routes to this host's own addresses.
pub const LOCAL: u32 = 255;
/// `RT_TABLE_MAIN`: the main routing table.
pub const MAIN: u32 = 254;

/// Reason why the model may differ from Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inconsistency {
    /// An interface changed its state or lost an address: routes may have changed without an event.
    SilentChange,
    /// Linux removed or replaced a route that the model does not have.
    UnknownRoute,
}

/// Interface index and address of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeighbourId {
    /// Index of the interface.
    pub link: u32,
    /// IP address.
    pub address: IpAddr,
}

/// Addresses of an interface from which packets of this host can be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkAddresses {
    /// IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

/// Set of changed objects.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Interface indexes.
    pub links: BTreeSet<u32>,
    /// Interface addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Neighbours by interface index and address.
    pub neighbours: BTreeSet<NeighbourId>,
    /// Destination prefixes of routes by table.
    pub routes: BTreeSet<(u32, Prefix)>,
    /// True if the rules changed.
    pub rules: bool,
    /// Reason why the model may differ from Linux, if it may.
    pub inconsistency: Option<Inconsistency>,
}

impl Changes {
    /// Returns true if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = [self.links.len(), self.addresses.len(), self.neighbours.len()];
        lists == [0; 3] && self.routes.is_empty() && !self.rules
    }
}

/// Links, addresses, neighbours, next hops, routes and rules of a network namespace.
#[derive(Clone, Debug, Default)]
pub struct Model {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<Address>,
    neighbours: BTreeMap<NeighbourId, Neighbour>,
    next_hops: BTreeMap<u32, NextHopKind>,
    /// Routes that refer to a next-hop object, by its id.
    users: BTreeMap<u32, BTreeSet<(u32, Prefix)>>,
    tables: BTreeMap<u32, RoutingTable>,
    rules: BTreeSet<Rule>,
    /// Interfaces whose routes Linux has flushed without events.
    flushed: BTreeSet<u32>,
    /// Interfaces with traffic control for frames that leave.
    controlled: BTreeSet<u32>,
}

impl Model {
    /// Creates an empty model of the local table and of `tables`.
    #[must_use]
    pub fn new(tables: &[u32]) -> Self {
        let numbers = tables.iter().copied().chain([LOCAL]);
        Self {
            tables: numbers.map(|table| (table, RoutingTable::default())).collect(),
            ..Self::default()
        }
    }

    /// Applies a message. Ends of dumps, acknowledgements and forwarding settings are ignored.
    pub fn apply(&mut self, message: Message, changes: &mut Changes) {
        match message {
            Message::Link(link) => self.link_is(link, changes),
            Message::LinkRemoved(index) => self.link_gone(index, changes),
            Message::Address(address) => {
                changes.addresses.insert(address.address);
                if self.addresses.insert(address) {
                    changes.links.insert(address.link);
                }
            }
            Message::AddressRemoved(address) => self.address_gone(address, changes),
            Message::Neighbour(neighbour) => {
                let key = NeighbourId { link: neighbour.link, address: neighbour.address };
                if self.neighbours.insert(key, neighbour) != Some(neighbour) {
                    changes.neighbours.insert(key);
                }
            }
            Message::NeighbourRemoved(neighbour) => {
                let key = NeighbourId { link: neighbour.link, address: neighbour.address };
                if self.neighbours.remove(&key).is_some() {
                    changes.neighbours.insert(key);
                }
            }
            Message::Route(route, position) => self.route_is(route, position, changes),
            Message::RouteRemoved(route) => self.route_gone(&route, changes),
            Message::NextHop(next_hop) => self.next_hop_is(next_hop, changes),
            Message::NextHopRemoved(id) => {
                if self.next_hops.remove(&id).is_some() {
                    self.mark_users(id, changes);
                    changes.inconsistency = Some(Inconsistency::SilentChange);
                }
            }
            Message::Rule(rule) => {
                changes.rules |= self.rules.insert(rule);
            }
            Message::RuleRemoved(rule) => self.rule_gone(rule, changes),
            Message::TrafficControl(TrafficControl { link, effect: Effect::Control }) => {
                if self.controlled.insert(link) {
                    changes.links.insert(link);
                }
            }
            Message::TrafficControlRemoved(TrafficControl { link, effect }) => {
                // Others may be left. What is removed with its parent has no event.
                if effect != Effect::None && self.controlled.contains(&link) {
                    changes.inconsistency = Some(Inconsistency::SilentChange);
                }
            }
            Message::TrafficControl(_) => {}
            Message::Netconf(_) | Message::NetconfRemoved(_) => {}
            Message::Done(_) | Message::Ack(_) | Message::Overrun | Message::Other => {}
        }
    }

    fn link_is(&mut self, link: Link, changes: &mut Changes) {
        let index = link.index;
        let was = self.links.get(&index);
        if was == Some(&link) {
            return;
        }
        if was.is_some_and(|was| was.up != link.up) {
            if !link.up {
                self.flushed.insert(index);
            }
            changes.inconsistency = Some(Inconsistency::SilentChange);
        }
        // With `ignore_routes_with_linkdown` hops without a carrier are dead, and revive with it.
        if was.is_some_and(|was| !was.running) && link.running && self.has_dead_hop(index) {
            changes.inconsistency = Some(Inconsistency::SilentChange);
        }
        self.links.insert(index, link);
        changes.links.insert(index);
    }

    /// Returns true if Linux has reported a hop over an interface as dead.
    fn has_dead_hop(&self, link: u32) -> bool {
        let routes = self.tables.values().flat_map(RoutingTable::routes);
        let of_routes = routes.flat_map(|route| &route.hops);
        let of_objects = self.next_hops.values().filter_map(|kind| match kind {
            NextHopKind::Hop(hop) => Some(hop),
            _ => None,
        });
        of_routes.chain(of_objects).any(|hop| hop.dead && hop.link == link)
    }

    /// Removes a rule. Rules that differ only in what they select are one here, so one of them may
    /// be left: policy routing ends only after all was read anew.
    fn rule_gone(&mut self, rule: Rule, changes: &mut Changes) {
        let had_policy = self.has_policy(rule.ipv6);
        if !self.rules.remove(&rule) {
            return;
        }
        changes.inconsistency = Some(Inconsistency::SilentChange);
        if had_policy && !self.has_policy(rule.ipv6) {
            self.rules.insert(rule);
        } else {
            changes.rules = true;
        }
    }

    fn link_gone(&mut self, index: u32, changes: &mut Changes) {
        self.controlled.remove(&index);
        if self.links.remove(&index).is_some() {
            self.flushed.insert(index);
            changes.links.insert(index);
            changes.inconsistency = Some(Inconsistency::SilentChange);
        }
    }

    fn address_gone(&mut self, address: Address, changes: &mut Changes) {
        if !self.addresses.remove(&address) {
            return;
        }
        changes.addresses.insert(address.address);
        changes.links.insert(address.link);
        if address.address.is_ipv6() {
            return; // Linux says what becomes of the routes
        }
        let is_last = !self.has_ipv4(address.link);
        if is_last {
            self.flushed.insert(address.link);
        }
        changes.inconsistency = Some(Inconsistency::SilentChange);
    }

    fn route_is(&mut self, route: Route, position: Position, changes: &mut Changes) {
        let Some(table) = self.tables.get_mut(&route.table) else { return };
        let (key, next_hop) = ((route.table, route.destination), route.next_hop);
        if next_hop != 0 {
            self.users.entry(next_hop).or_default().insert(key);
        }
        if !table.insert(route, position) {
            changes.inconsistency = Some(Inconsistency::UnknownRoute);
        }
        changes.routes.insert(key);
    }

    fn route_gone(&mut self, route: &Route, changes: &mut Changes) {
        let Some(table) = self.tables.get_mut(&route.table) else { return };
        let key = (route.table, route.destination);
        if !table.remove(route) {
            changes.inconsistency = Some(Inconsistency::UnknownRoute);
        }
        if route.next_hop != 0 && !table.uses(&route.destination, route.next_hop) {
            self.users.entry(route.next_hop).and_modify(|users| {
                users.remove(&key);
            });
        }
        changes.routes.insert(key);
    }

    fn next_hop_is(&mut self, next_hop: NextHop, changes: &mut Changes) {
        let NextHop { id, kind } = next_hop;
        if self.next_hops.get(&id) != Some(&kind) {
            self.next_hops.insert(id, kind);
            self.mark_users(id, changes);
        }
    }

    /// Marks the routes that refer to a next-hop object or to a group with it.
    fn mark_users(&self, id: u32, changes: &mut Changes) {
        let holds = |kind: &NextHopKind| match kind {
            NextHopKind::Group(members) => members.iter().any(|member| member.id == id),
            _ => false,
        };
        let groups = self.next_hops.iter().filter(|(_, kind)| holds(kind)).map(|(id, _)| *id);
        for id in groups.chain([id]) {
            changes.routes.extend(self.users.get(&id).into_iter().flatten().copied());
        }
    }

    /// Returns the interfaces by index.
    #[must_use]
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.links
    }

    /// Returns the interface addresses.
    #[must_use]
    pub fn addresses(&self) -> &BTreeSet<Address> {
        &self.addresses
    }

    /// Returns the lowest IPv4 and the lowest IPv6 address of an interface that are not link-local.
    #[must_use]
    pub fn addresses_of(&self, link: u32) -> LinkAddresses {
        let address = IpAddr::from([0; 4]);
        let start = Address { link, address, prefix: Prefix::new(address, 0) };
        let own = || self.addresses.range(start..).take_while(|own| own.link == link);
        let v4 = own().find_map(|own| match own.address {
            IpAddr::V4(v4) => (!v4.is_link_local() && !v4.is_loopback()).then_some(v4),
            IpAddr::V6(_) => None,
        });
        let v6 = own().find_map(|own| match own.address {
            IpAddr::V6(v6) => (!v6.is_unicast_link_local() && !v6.is_loopback()).then_some(v6),
            IpAddr::V4(_) => None,
        });
        LinkAddresses { v4, v6 }
    }

    fn has_ipv4(&self, link: u32) -> bool {
        // The smallest address that the interface could have; those of IPv4 come first.
        let address = IpAddr::from([0; 4]);
        let start = Address { link, address, prefix: Prefix::new(address, 0) };
        let next = self.addresses.range(start..).next();
        next.is_some_and(|next| next.link == link && next.address.is_ipv4())
    }

    /// Returns the neighbours by interface index and address.
    #[must_use]
    pub fn neighbours(&self) -> &BTreeMap<NeighbourId, Neighbour> {
        &self.neighbours
    }

    /// Returns the destinations of a table and family in order.
    pub fn destinations(&self, table: u32, ipv6: bool) -> impl Iterator<Item = &Prefix> {
        self.tables.get(&table).into_iter().flat_map(move |routes| routes.destinations(ipv6))
    }

    /// Returns the destinations of a table that `by` covers.
    pub fn covered(&self, table: u32, by: &Prefix) -> impl Iterator<Item = Prefix> {
        let (first, last) = (*by, Prefix::host(by.last()));
        let routes = self.tables.get(&table).into_iter();
        routes.flat_map(move |routes| routes.range(first, last))
    }

    /// Returns the index of an interface that has `address`.
    #[must_use]
    pub fn link_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.iter().find(|own| own.address == address).map(|own| own.link)
    }

    /// Returns all routes to a destination in a table, the best first.
    #[must_use]
    pub fn routes(&self, table: u32, destination: &Prefix) -> &[Route] {
        self.tables.get(&table).map_or(&[], |routes| routes.get(destination))
    }

    /// Returns true if Linux takes IPv6 packets from an interface. No event tells of `disable_ipv6`
    /// but that of the route to all multicast groups.
    #[must_use]
    pub fn takes_ipv6(&self, link: u32) -> bool {
        let mut hops = self.routes(LOCAL, &Route::all_groups()).iter().flat_map(|it| &it.hops);
        hops.any(|hop| hop.link == link)
    }

    /// Returns true if packets can leave by an interface and its known routes are still valid.
    #[must_use]
    pub fn is_usable(&self, link: u32) -> bool {
        !self.flushed.contains(&link) && self.links.get(&link).is_some_and(Link::is_usable)
    }

    /// Returns true if an interface has traffic control for frames that leave by it.
    #[must_use]
    pub fn has_traffic_control(&self, link: u32) -> bool {
        self.controlled.contains(&link)
    }

    /// Returns the action for packets to a destination of a table, by the best route. A covering
    /// route of the local table wins, even over longer prefixes: whether Linux prefers those
    /// depends on whether a routing rule ever existed (`fib_unmerge` in `net/ipv4/fib_trie.c`). So
    /// packets that both cover go to Linux.
    #[must_use]
    pub fn target(&self, table: u32, destination: &Prefix) -> Option<Target> {
        let own = self.routes(table, destination);
        let local = self.tables.get(&LOCAL).and_then(|local| local.covering(destination));
        if let Some(local) = local {
            let is_here = local.destination == *destination;
            return (is_here || !own.is_empty()).then(|| self.resolve(std::slice::from_ref(local)));
        }
        (!own.is_empty()).then(|| self.resolve(own))
    }

    fn resolve(&self, routes: &[Route]) -> Target {
        routing_table::resolve(routes, |id| self.object(id))
    }

    /// Resolves a next-hop object to its hops.
    fn object(&self, id: u32) -> Result<Vec<Hop>, FallbackReason> {
        match self.next_hops.get(&id) {
            Some(NextHopKind::Hop(hop)) => Ok(vec![*hop]),
            Some(NextHopKind::Blackhole) => Err(FallbackReason::Blackhole),
            Some(NextHopKind::Group(members)) => {
                let mut hops = Vec::with_capacity(members.len());
                for member in members {
                    match self.next_hops.get(&member.id) {
                        Some(NextHopKind::Hop(hop)) => {
                            hops.push(Hop { weight: member.weight, ..*hop });
                        }
                        Some(NextHopKind::Blackhole) => return Err(FallbackReason::Blackhole),
                        _ => return Err(FallbackReason::Incomplete),
                    }
                }
                Ok(hops)
            }
            Some(NextHopKind::Other) => Err(FallbackReason::Unsupported),
            None => Err(FallbackReason::Incomplete),
        }
    }

    /// Returns true if routing rules consult more than the local and the main table, so that one
    /// table alone does not decide.
    #[must_use]
    pub fn has_policy(&self, ipv6: bool) -> bool {
        rules::have_policy(&self.rules, ipv6)
    }
}

#[cfg(test)]
mod tests;
