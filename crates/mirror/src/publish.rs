//! Publishing: writes the differences of the model to the tables.
//!
//! Only differences are written. Lanes never see a path that Linux did not have: a hop is written
//! before a group that refers to it, and a group before a route that refers to it. Withdrawal goes
//! the other way round, and an id is reused only after every lane has passed a turn. Failures (an
//! interface, a neighbour) are written first.
//!
//! A route that does not fit would leave its packets to a shorter prefix with another path. So
//! if a destination cannot be written, lookups of its family in that table return
//! [`FallbackReason::Incomplete`] until it fits; the remedy is a larger table. Groups and hops that
//! do not fit affect only their own routes, which then fall back to Linux.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_table::{AnyState, ArrayWriter, HashWriter, Readers, TableError};

use super::model::{Changes, LOCAL, MAIN, Model, NeighbourId};
use super::records::{AddressKey, LinkRecord, NeighbourKey, NeighbourRecord, StatusRecord};
use super::{FallbackReason, Memories, MirrorSettings, Prefix};

mod generation;
mod id_allocator;
mod next_hop_groups;
mod next_hops;
mod prefix_table;

pub(crate) use generation::GENERATION;
use generation::GenerationWriter;
use next_hop_groups::NextHopGroups;
use next_hops::{NextHopKey, NextHops, Ports};
use prefix_table::PrefixTable;

/// Occupancy of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Number of interfaces.
    pub links: usize,
    /// Number of addresses of this host.
    pub addresses: usize,
    /// Number of usable neighbours.
    pub neighbours: usize,
    /// Number of destinations in all routing tables.
    pub routes: usize,
    /// Number of next-hop groups.
    pub groups: usize,
    /// Number of pairs of interface and gateway.
    pub hops: usize,
    /// Number of destinations that did not fit and are retried.
    pub waiting: usize,
    /// Number of writes that failed because a table was full or a lane still used the memory.
    pub refused: u64,
}

/// Writer of all tables of a mirror.
pub(super) struct Publisher {
    generation: GenerationWriter,
    status: ArrayWriter<StatusRecord>,
    links: HashWriter<u32, LinkRecord>,
    addresses: HashWriter<AddressKey, u32>,
    neighbours: HashWriter<NeighbourKey, NeighbourRecord>,
    groups: NextHopGroups,
    tables: Vec<PrefixTable>,
    ports: Ports,
    ready: bool,
    /// Entries that could not be written, with the table lengths of that moment. They are retried
    /// when a table has become shorter.
    waiting: Waiting,
    full: [usize; 6],
    refused: u64,
    notices: Notices,
}

#[derive(Debug, Default)]
struct Waiting {
    links: BTreeSet<u32>,
    addresses: BTreeSet<IpAddr>,
    neighbours: BTreeSet<NeighbourId>,
}

/// Messages for the operator, one for each kind of table.
#[derive(Debug, Default)]
struct Notices {
    shown: BTreeSet<&'static str>,
    new: Vec<String>,
}

impl Notices {
    fn add(&mut self, table: &'static str, remedy: &str, error: &str) {
        if self.shown.insert(table) {
            self.new.push(format!("kernel mirror: {error}; {remedy}"));
        }
    }
}

impl Publisher {
    /// Attaches to empty tables.
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
            generation: GenerationWriter::attach(&memories.generation)?,
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

    /// Marks the model as complete: from now on lookups are allowed.
    pub(super) fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Registers lane state that is zeroed for a route number before another route gets it.
    pub(super) fn count_in(&mut self, counts: AnyState) {
        self.groups.count_in(counts);
    }

    /// Retries entries that could not be written.
    pub(super) fn retry(&mut self, state: &Model) {
        self.generation.begin();
        self.retry_waiting(state);
        self.generation.end();
    }

    fn retry_waiting(&mut self, state: &Model) {
        let links = std::mem::take(&mut self.waiting.links);
        let addresses = std::mem::take(&mut self.waiting.addresses);
        let neighbours = std::mem::take(&mut self.waiting.neighbours);
        self.full = self.lengths();
        self.write(state, &Changes { links, addresses, neighbours, ..Changes::default() });
        for index in 0..self.tables.len() {
            for destination in self.tables[index].take_waiting() {
                if !self.write_route(index, destination, state) {
                    break; // the others will not find room either
                }
            }
        }
        self.finish(state);
    }

    /// Writes the changes of `state`.
    pub(super) fn publish(&mut self, state: &Model, changes: &Changes) {
        self.generation.begin();
        self.write(state, changes);
        self.finish(state);
        let lengths = self.lengths();
        let has_room = lengths.iter().zip(&self.full).any(|(now, then)| now < then);
        if self.has_waiting() && has_room {
            self.retry_waiting(state);
        }
        self.generation.end();
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

    /// Replaces the set of interfaces that are ports.
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
            LinkRecord::new(link, state.is_usable(index), port, state.addresses_of(index))
        });
        // Next hops come first, because the interface may be down.
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

    fn write_neighbour(&mut self, neighbour: NeighbourId, state: &Model) {
        let NeighbourId { link, address } = neighbour;
        let known = state.neighbours().get(&neighbour);
        let (key, record) =
            (NeighbourKey::new(link, address), known.and_then(NeighbourRecord::new));
        let next_hop = NextHopKey { link, gateway: Some(address) };
        let mut done = self.groups.hops.changed(next_hop, state, &self.ports);
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
            self.waiting.neighbours.insert(neighbour);
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
        for index in 0..self.tables.len() {
            let table = self.tables[index].number;
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
                self.write_route(index, destination, state);
            }
        }
    }

    /// Writes one destination. Returns false if it did not fit.
    fn write_route(&mut self, index: usize, destination: Prefix, state: &Model) -> bool {
        let (groups, table) = (&mut self.groups, &mut self.tables[index]);
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
        for (index, table) in self.tables.iter().enumerate() {
            let fallback = [false, true].map(|ipv6| {
                if !self.ready || table.lacks(ipv6) {
                    FallbackReason::Incomplete as u8
                } else if table.number == MAIN && state.has_policy(ipv6) {
                    FallbackReason::Policy as u8
                } else {
                    0
                }
            });
            let record = StatusRecord { table: table.number, fallback, reserved: 0 };
            if self.status.get(index) != Some(&record) && self.status.set(index, &record).is_err() {
                self.status.clear(index); // an empty record makes the packets go to Linux, too
            }
        }
    }

    /// Returns true if some entry could not be written.
    pub(super) fn has_waiting(&self) -> bool {
        let Waiting { links, addresses, neighbours } = &self.waiting;
        !(links.is_empty() && addresses.is_empty() && neighbours.is_empty())
            || self.tables.iter().any(PrefixTable::has_waiting)
    }

    /// Returns true if records become free when the lanes have passed a turn.
    pub(super) fn has_room_soon(&self) -> bool {
        self.groups.has_room_soon()
    }

    /// Returns true if an interface is a port.
    pub(super) fn is_port(&self, link: u32) -> bool {
        self.ports.contains_key(&link)
    }

    /// Returns true if routes use this neighbour as a gateway.
    pub(super) fn is_gateway(&self, neighbour: NeighbourId) -> bool {
        let NeighbourId { link, address } = neighbour;
        self.groups.hops.has(NextHopKey { link, gateway: Some(address) })
    }

    /// Returns the gateways of routes that have no usable neighbour.
    pub(super) fn missing_gateways(&self) -> impl Iterator<Item = NeighbourId> {
        self.groups.hops.missing()
    }

    /// Returns the new messages for the operator; each kind appears once.
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

/// Writes an entry unless the table already has it.
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
