//! Next hops: the table `hops`, one record for each pair of interface and gateway that a route
//! uses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use fastlane_core::PortId;
use fastlane_table::{ArrayWriter, Readers, SharedMemory, TableError};

use super::super::FallbackReason;
use super::super::message::Hop;
use super::super::model::{Model, NeighbourId};
use super::super::records::{AddressKey, HopRecord, NO_PORT, NeighbourRecord, ON_LINK, SEND};
use super::id_allocator::IdAllocator;

/// Ports by interface index.
pub(super) type Ports = BTreeMap<u32, PortId>;

/// Interface index and gateway, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NextHopKey {
    pub(super) link: u32,
    pub(super) gateway: Option<IpAddr>,
}

impl NextHopKey {
    pub(super) fn of(hop: &Hop) -> Self {
        Self { link: hop.link, gateway: hop.gateway }
    }
}

#[derive(Debug)]
struct Entry {
    number: u32,
    users: u32,
}

/// Writer of the table `hops`.
#[derive(Debug)]
pub(super) struct NextHops {
    writer: ArrayWriter<HopRecord>,
    readers: Arc<Readers>,
    numbers: IdAllocator,
    entries: HashMap<NextHopKey, Entry>,
    by_link: BTreeMap<u32, BTreeSet<NextHopKey>>,
}

impl NextHops {
    pub(super) fn attach(
        memory: &Arc<SharedMemory>,
        readers: &Arc<Readers>,
    ) -> Result<Self, TableError> {
        let writer = ArrayWriter::attach(memory, readers)?;
        let numbers = IdAllocator::new(0, writer.capacity() as u32);
        let (entries, by_link) = (HashMap::new(), BTreeMap::new());
        Ok(Self { writer, readers: Arc::clone(readers), numbers, entries, by_link })
    }

    /// Returns the number of next hops in use.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the id of a next hop and adds a user; `None` if the table is full.
    pub(super) fn acquire(&mut self, key: NextHopKey, state: &Model, ports: &Ports) -> Option<u32> {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.users += 1;
            return Some(entry.number);
        }
        let number = self.numbers.take(&self.readers)?;
        if self.writer.set(number as usize, &record(key, state, ports)).is_err() {
            self.numbers.give(number);
            return None;
        }
        self.entries.insert(key, Entry { number, users: 1 });
        self.by_link.entry(key.link).or_default().insert(key);
        Some(number)
    }

    /// Removes a user of a next hop. The last one frees the record; no table may refer to it any
    /// more.
    pub(super) fn release(&mut self, key: NextHopKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let number = entry.number;
        self.writer.clear(number as usize);
        self.numbers.give(number);
        self.entries.remove(&key);
        if let Some(keys) = self.by_link.get_mut(&key.link) {
            keys.remove(&key);
            if keys.is_empty() {
                self.by_link.remove(&key.link);
            }
        }
    }

    /// Rewrites the records of all next hops over an interface.
    ///
    /// # Errors
    /// Returns an error if no slot is free because a lane has not finished its turn. The record is
    /// empty then, and its packets go to Linux.
    pub(super) fn link_changed(
        &mut self,
        link: u32,
        state: &Model,
        ports: &Ports,
    ) -> Result<(), TableError> {
        let keys: Vec<NextHopKey> =
            self.by_link.get(&link).into_iter().flatten().copied().collect();
        keys.into_iter().try_for_each(|key| self.changed(key, state, ports))
    }

    /// Rewrites the record of a next hop if it is in use.
    ///
    /// # Errors
    /// Returns the error of [`link_changed`](Self::link_changed).
    pub(super) fn changed(
        &mut self,
        key: NextHopKey,
        state: &Model,
        ports: &Ports,
    ) -> Result<(), TableError> {
        let Some(entry) = self.entries.get(&key) else { return Ok(()) };
        let (number, record) = (entry.number as usize, record(key, state, ports));
        if self.writer.get(number) == Some(&record) {
            return Ok(());
        }
        let done = self.writer.set(number, &record);
        if done.is_err() {
            self.writer.clear(number);
        }
        done
    }

    /// Returns true if a next hop is in use.
    pub(super) fn has(&self, key: NextHopKey) -> bool {
        self.entries.contains_key(&key)
    }

    /// Returns the gateways without a usable neighbour, by which ports would send.
    pub(super) fn missing(&self) -> impl Iterator<Item = NeighbourId> {
        self.entries.iter().filter_map(|(key, entry)| {
            let record = self.writer.get(entry.number as usize)?;
            let is_missing = record.state == FallbackReason::NoNeighbour as u8;
            let address = key.gateway.filter(|_| is_missing)?;
            Some(NeighbourId { link: key.link, address })
        })
    }

    /// Returns true if freed ids wait for the lanes.
    pub(super) fn has_room_soon(&self) -> bool {
        self.numbers.are_waiting()
    }

    /// Starts the grace period of freed ids.
    pub(super) fn seal(&mut self) {
        self.numbers.seal(&self.readers);
    }
}

fn record(key: NextHopKey, state: &Model, ports: &Ports) -> HopRecord {
    let zeroes = AddressKey::new(IpAddr::from([0; 4]));
    let mut record = HopRecord {
        link: key.link,
        mtu: 0,
        mtu6: 0,
        port: NO_PORT,
        state: FallbackReason::LinkDown as u8,
        reserved: 0,
        source: [0; 6],
        destination: [0; 6],
        gateway: key.gateway.map_or(zeroes, AddressKey::new),
    };
    let Some(link) = state.links().get(&key.link) else { return record };
    record.mtu = link.mtu;
    record.mtu6 = if link.mtu6 == 0 { link.mtu } else { link.mtu6 };
    record.source = link.mac;
    let Some(port) = ports.get(&key.link).filter(|_| link.ethernet) else {
        record.state = FallbackReason::NotOurPort as u8;
        return record;
    };
    record.port = port.0;
    if !state.is_usable(key.link) {
        return record;
    }
    if state.has_traffic_control(key.link) {
        record.state = FallbackReason::TrafficControl as u8;
        return record;
    }
    let Some(gateway) = key.gateway else {
        record.state = ON_LINK;
        return record;
    };
    let neighbour = state.neighbours().get(&NeighbourId { link: key.link, address: gateway });
    match neighbour.and_then(NeighbourRecord::new) {
        Some(neighbour) => {
            record.destination = neighbour.mac;
            record.state = SEND;
        }
        None => record.state = FallbackReason::NoNeighbour as u8,
    }
    record
}
