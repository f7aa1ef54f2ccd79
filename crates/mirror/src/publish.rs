//! From the model to the tables.
//!
//! Only what differs is written. A lane never finds a way that Linux has not had: a hop is written
//! before a group that has it, a group before a route that has it; what is withdrawn goes the other
//! way round, and its number is not used again before every lane has passed a turn. What does not
//! work any more (an interface, a neighbour) is written first.
//!
//! A route that finds no room would leave its packets to a shorter prefix, whose way is another. So
//! where a destination cannot be written, its whole family in that table asks Linux until there is
//! room; the remedy is a larger table. NextHopGroups and hops that find no room cost only their own
//! routes, which then ask Linux.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_table::{AnyState, ArrayWriter, HashWriter, Readers, TableError};

use super::model::{Changes, LOCAL, MAIN, Model};
use super::records::{AddressKey, LinkRecord, NeighbourKey, NeighbourRecord, StatusRecord};
use super::{FallbackReason, Memories, MirrorSettings, Prefix};

mod id_allocator;
mod next_hop_groups;
mod next_hops;
mod prefix_table;

use next_hop_groups::NextHopGroups;
use next_hops::{NextHopKey, NextHops, Ports};
use prefix_table::PrefixTable;

/// How many groups are taken by reasons.
pub(super) const REASONS: usize = next_hop_groups::FIRST as usize;

/// How full the tables are, and what did not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Interfaces.
    pub links: usize,
    /// Addresses of this host.
    pub addresses: usize,
    /// Neighbours that frames may be sent to.
    pub neighbours: usize,
    /// Destinations, of all tables.
    pub routes: usize,
    /// NextHopGroups of next hops.
    pub groups: usize,
    /// Pairs of interface and router.
    pub hops: usize,
    /// Destinations that found no room and wait for it.
    pub waiting: usize,
    /// How often something was not written because a table was full, or a lane held memory back.
    pub refused: u64,
}

/// Writes the tables of a mirror.
pub(super) struct Publisher {
    status: ArrayWriter<StatusRecord>,
    links: HashWriter<u32, LinkRecord>,
    addresses: HashWriter<AddressKey, u32>,
    neighbours: HashWriter<NeighbourKey, NeighbourRecord>,
    groups: NextHopGroups,
    tables: Vec<PrefixTable>,
    ports: Ports,
    ready: bool,
    /// What could not be written, and how full the tables were then: it is tried again when there
    /// is less in one of them.
    waiting: Waiting,
    full: [usize; 6],
    refused: u64,
    notices: Notices,
}

#[derive(Debug, Default)]
struct Waiting {
    links: BTreeSet<u32>,
    addresses: BTreeSet<IpAddr>,
    neighbours: BTreeSet<(u32, IpAddr)>,
}

/// What is to be told, once for each kind of table.
#[derive(Debug, Default)]
struct Notices {
    told: HashMap<&'static str, ()>,
    new: Vec<String>,
}

impl Notices {
    fn add(&mut self, table: &'static str, remedy: &str, error: &str) {
        if self.told.insert(table, ()).is_none() {
            self.new.push(format!("kernel mirror: {error}; {remedy}"));
        }
    }
}

impl Publisher {
    /// Takes tables that are empty.
    pub(super) fn attach(
        memories: &Memories,
        settings: &MirrorSettings,
        readers: &Arc<Readers>,
    ) -> Result<Self, TableError> {
        let hops = NextHops::attach(&memories.hops, readers)?;
        let shared = !settings.count_routes;
        let pairs = settings.tables.iter().zip(&memories.routes);
        let tables = pairs.map(|(table, memories)| PrefixTable::attach(*table, memories, readers));
        let mut publisher = Self {
            status: ArrayWriter::attach(&memories.status, readers)?,
            links: HashWriter::attach(&memories.links, readers)?,
            addresses: HashWriter::attach(&memories.addresses, readers)?,
            neighbours: HashWriter::attach(&memories.neighbours, readers)?,
            groups: NextHopGroups::attach(&memories.groups, hops, shared, readers)?,
            tables: tables.collect::<Result<_, TableError>>()?,
            ports: Ports::new(),
            ready: false,
            waiting: Waiting::default(),
            full: [0; 6],
            refused: 0,
            notices: Notices::default(),
        };
        publisher.set_status(&Model::default());
        Ok(publisher)
    }

    /// The model is what Linux has from now on, not only a part of it.
    pub(super) fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Zeroes what lanes have counted under the number of a route before another has it.
    pub(super) fn count_in(&mut self, counts: AnyState) {
        self.groups.count_in(counts);
    }

    /// Writes what could not be written before.
    pub(super) fn retry(&mut self, state: &Model) {
        let links = std::mem::take(&mut self.waiting.links);
        let addresses = std::mem::take(&mut self.waiting.addresses);
        let neighbours = std::mem::take(&mut self.waiting.neighbours);
        self.full = self.lengths();
        self.write(state, &Changes { links, addresses, neighbours, ..Changes::default() });
        for place in 0..self.tables.len() {
            for destination in self.tables[place].take_waiting() {
                if !self.write_route(place, destination, state) {
                    break; // the others will not find room either
                }
            }
        }
        self.finish(state);
    }

    /// Writes what has changed in `state`.
    pub(super) fn publish(&mut self, state: &Model, changes: &Changes) {
        self.write(state, changes);
        self.finish(state);
        let lengths = self.lengths();
        let has_room = lengths.iter().zip(&self.full).any(|(now, then)| now < then);
        if self.has_waiting() && has_room {
            self.retry(state);
        }
    }

    fn lengths(&self) -> [usize; 6] {
        let all = self.occupancy();
        [all.links, all.addresses, all.neighbours, all.routes, all.groups, all.hops]
    }

    fn write(&mut self, state: &Model, changes: &Changes) {
        if changes.rules {
            self.set_status(state); // before anything is sent by routes that rules overrule
        }
        for link in &changes.links {
            self.write_link(*link, state);
        }
        for key in &changes.neighbours {
            self.write_neighbour(*key, state);
        }
        for address in &changes.addresses {
            self.write_address(*address, state);
        }
        self.write_routes(state, changes);
    }

    fn finish(&mut self, state: &Model) {
        for (table, remedy) in self.groups.take_refusals() {
            self.refused += 1;
            self.full = self.lengths();
            self.notices.add(table, remedy, &format!("its table '{table}' is full"));
        }
        self.groups.seal();
        self.set_status(state);
    }

    /// Which interfaces are ports from now on.
    pub(super) fn set_ports(&mut self, ports: &[(u32, PortId)], state: &Model) {
        let ports: Ports = ports.iter().copied().collect();
        let old = std::mem::replace(&mut self.ports, ports);
        let is_same = |link: &u32| old.get(link) == self.ports.get(link);
        let changed: BTreeSet<u32> = old.keys().chain(self.ports.keys()).copied().collect();
        let links = changed.into_iter().filter(|link| !is_same(link)).collect();
        self.publish(state, &Changes { links, ..Changes::default() });
    }

    fn write_link(&mut self, index: u32, state: &Model) {
        let record = state.links().get(&index).map(|link| {
            let port = self.ports.get(&index).copied();
            LinkRecord::new(link, state.is_usable(index), port)
        });
        // What leaves by it comes first: it may be down.
        let mut done = self.groups.link_changed(index, state, &self.ports);
        match record {
            Some(record) => done = done.and(put(&mut self.links, &index, &record)),
            None => {
                self.links.remove(&index);
            }
        }
        if let Err(error) = done {
            self.waiting.links.insert(index);
            self.refuse("links", "raise the mirror's number of links", &error);
        }
    }

    fn write_neighbour(&mut self, (link, address): (u32, IpAddr), state: &Model) {
        let known = state.neighbours().get(&(link, address));
        let (key, record) =
            (NeighbourKey::new(link, address), known.and_then(NeighbourRecord::new));
        let way = NextHopKey { link, gateway: Some(address) };
        let mut done = self.groups.hops.changed(way, state, &self.ports);
        match record {
            Some(record) => {
                let put = put(&mut self.neighbours, &key, &record);
                if put.is_err() {
                    self.neighbours.remove(&key);
                }
                done = done.and(put);
            }
            None => {
                self.neighbours.remove(&key);
            }
        }
        if let Err(error) = done {
            self.waiting.neighbours.insert((link, address));
            self.refuse("neighbours", "raise the mirror's number of neighbours", &error);
        }
    }

    fn write_address(&mut self, address: IpAddr, state: &Model) {
        let key = AddressKey::new(address);
        let link = state.link_of(address);
        let done = match link {
            Some(link) => put(&mut self.addresses, &key, &link),
            None => {
                self.addresses.remove(&key);
                Ok(())
            }
        };
        if let Err(error) = done {
            self.waiting.addresses.insert(address);
            self.refuse("addresses", "raise the mirror's number of addresses", &error);
        }
    }

    fn write_routes(&mut self, state: &Model, changes: &Changes) {
        for place in 0..self.tables.len() {
            let table = self.tables[place].number;
            let mut dirty: BTreeSet<Prefix> = BTreeSet::new();
            for (of, destination) in &changes.routes {
                if *of == LOCAL && !destination.is_host() {
                    dirty.extend(state.covered(table, destination));
                }
                if [table, LOCAL].contains(of) {
                    dirty.insert(*destination);
                }
            }
            for destination in dirty {
                self.write_route(place, destination, state);
            }
        }
    }

    /// False when there was no room.
    fn write_route(&mut self, place: usize, destination: Prefix, state: &Model) -> bool {
        let (groups, table) = (&mut self.groups, &mut self.tables[place]);
        let target = state.target(table.number, &destination);
        let done = table.write(destination, target, groups, state, &self.ports);
        if let Err(error) = &done {
            self.refuse("routes", "raise the mirror's number of routes", error);
        }
        done.is_ok()
    }

    fn refuse(&mut self, table: &'static str, remedy: &str, error: &TableError) {
        self.refused += 1;
        self.full = self.lengths();
        self.notices.add(table, remedy, &error.to_string());
    }

    fn set_status(&mut self, state: &Model) {
        for (place, table) in self.tables.iter().enumerate() {
            let ask = [false, true].map(|ipv6| {
                if !self.ready || table.lacks(ipv6) {
                    FallbackReason::Incomplete as u8
                } else if table.number == MAIN && state.has_policy(ipv6) {
                    FallbackReason::Policy as u8
                } else {
                    0
                }
            });
            let record = StatusRecord { table: table.number, ask, reserved: 0 };
            if self.status.get(place) != Some(&record) && self.status.set(place, &record).is_err() {
                self.status.clear(place); // which asks Linux, too
            }
        }
    }

    /// Whether something could not be written.
    pub(super) fn has_waiting(&self) -> bool {
        let Waiting { links, addresses, neighbours } = &self.waiting;
        !(links.is_empty() && addresses.is_empty() && neighbours.is_empty())
            || self.tables.iter().any(PrefixTable::has_waiting)
    }

    /// Whether there will be room as soon as the lanes have passed a turn.
    pub(super) fn has_room_soon(&self) -> bool {
        self.groups.has_room_soon()
    }

    /// Whether an interface is a port.
    pub(super) fn is_port(&self, link: u32) -> bool {
        self.ports.contains_key(&link)
    }

    /// Whether routes name this router.
    pub(super) fn is_router(&self, link: u32, address: IpAddr) -> bool {
        self.groups.hops.has(NextHopKey { link, gateway: Some(address) })
    }

    /// What is to be told, each kind once.
    pub(super) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices.new)
    }

    pub(super) fn occupancy(&self) -> Occupancy {
        Occupancy {
            links: self.links.len(),
            addresses: self.addresses.len(),
            neighbours: self.neighbours.len(),
            routes: self.tables.iter().map(PrefixTable::len).sum(),
            groups: self.groups.len(),
            hops: self.groups.hops.len(),
            waiting: self.tables.iter().map(PrefixTable::waiting).sum(),
            refused: self.refused,
        }
    }
}

/// Writes an entry unless it is there already.
fn put<K: fastlane_table::Key, V: fastlane_table::Value + PartialEq>(
    table: &mut HashWriter<K, V>,
    key: &K,
    value: &V,
) -> Result<(), TableError> {
    if table.get(key).is_some_and(|found| *found.value == *value) {
        return Ok(());
    }
    table.insert(key, value).map(drop)
}
