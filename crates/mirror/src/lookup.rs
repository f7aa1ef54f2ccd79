//! Route lookups of the lanes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_core::PortId;
use fastlane_table::{
    ArrayReader, Guard, HashEntry, HashReader, Lpm4Reader, Lpm6Reader, PrefixValue, State,
    TableError,
};

use super::records::{
    AddressKey, GroupRecord, HopRecord, LinkRecord, NeighbourKey, NeighbourRecord, ON_LINK, SEND,
    StatusRecord,
};
use super::{FallbackReason, GENERATION, Memories};

mod address_family;
mod return_route;

pub use address_family::Family;
pub use return_route::ReturnRoute;

/// Number of packets that are looked up together.
const BATCH: usize = 32;

/// Result of a route lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteLookup {
    /// The packet can be forwarded out of a port.
    Forward(NextHop),
    /// The packet must be passed to Linux.
    Fallback(FallbackReason),
}

/// Next hop of a packet: everything needed to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Egress port.
    pub port: PortId,
    /// Ethernet address of the egress interface.
    pub source: [u8; 6],
    /// Ethernet address of the next hop.
    pub destination: [u8; 6],
    /// MTU of the path in bytes. Longer IP packets must go to Linux.
    pub mtu: u32,
    /// Index of the egress interface.
    pub link: u32,
    /// Route number, less than [`Mirror::route_numbers`]; constant for the life of the route.
    /// Routes with equal next hops share a number unless
    /// [`count_routes`](crate::MirrorSettings::count_routes) is set.
    pub route: u32,
    /// True if the route has next hops by other interfaces, too. Linux selects by another hash than
    /// lanes, so it may send the same packets by one of those.
    pub is_divided: bool,
}

/// Index of a routing table in the mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableId(usize);

/// Prefix tables of one routing table.
#[derive(Clone, Debug)]
pub struct PrefixReaders {
    v4: Lpm4Reader,
    v6: Lpm6Reader,
}

/// Read access of one lane to the mirror's tables. Each lane has a clone of its own.
#[derive(Clone, Debug)]
pub struct Mirror {
    generation: State<1>,
    status: ArrayReader<StatusRecord>,
    links: HashReader<u32, LinkRecord>,
    addresses: HashReader<AddressKey, u32>,
    neighbours: HashReader<NeighbourKey, NeighbourRecord>,
    hops: ArrayReader<HopRecord>,
    groups: ArrayReader<GroupRecord>,
    routes: Vec<PrefixReaders>,
}

impl Mirror {
    /// Attaches to the tables of a mirror.
    ///
    /// # Errors
    /// Returns an error if a memory does not hold the table that its name says, or one of another
    /// version.
    pub fn attach(memories: &Memories) -> Result<Self, TableError> {
        let routes = memories.routes.iter().map(|[v4, v6]| {
            Ok(PrefixReaders { v4: Lpm4Reader::attach(v4)?, v6: Lpm6Reader::attach(v6)? })
        });
        Ok(Self {
            generation: State::attach(&memories.generation)?,
            status: ArrayReader::attach(&memories.status)?,
            links: HashReader::attach(&memories.links)?,
            addresses: HashReader::attach(&memories.addresses)?,
            neighbours: HashReader::attach(&memories.neighbours)?,
            hops: ArrayReader::attach(&memories.hops)?,
            groups: ArrayReader::attach(&memories.groups)?,
            routes: routes.collect::<Result<_, TableError>>()?,
        })
    }

    /// Returns the index of a Linux routing table, if it is mirrored.
    #[must_use]
    pub fn table<G>(&self, turn: &G, number: u32) -> Option<TableId>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let has_number = |index: &usize| {
            self.status.get(turn, *index).is_some_and(|status| status.table == number)
        };
        (0..self.routes.len()).find(has_number).map(TableId)
    }

    /// Returns the generation of the tables, or `None` while they are written. Read it before a
    /// lookup: the result may be remembered as long as this method returns the same number.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> Option<u64> {
        let number = self.generation.read(GENERATION.0)[GENERATION.1];
        number.is_multiple_of(2).then_some(number)
    }

    /// Returns the number of route numbers, which is one more than the greatest.
    #[must_use]
    pub fn route_numbers(&self) -> usize {
        self.groups.capacity()
    }

    /// Looks up an IPv4 destination in the first table. Packets with equal hashes take the same
    /// path.
    #[inline]
    pub fn route4<G>(&self, turn: &G, destination: Ipv4Addr, flow_hash: u32) -> RouteLookup
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.route(turn, TableId(0), destination, flow_hash)
    }

    /// Looks up an IPv6 destination in the first table.
    #[inline]
    pub fn route6<G>(&self, turn: &G, destination: Ipv6Addr, flow_hash: u32) -> RouteLookup
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.route(turn, TableId(0), destination, flow_hash)
    }

    /// Looks up a destination in a table.
    #[inline]
    pub fn route<G, A>(
        &self,
        turn: &G,
        table: TableId,
        destination: A,
        flow_hash: u32,
    ) -> RouteLookup
    where
        G: AsRef<Guard> + ?Sized,
        A: Family,
    {
        let mut lookup = [RouteLookup::Fallback(FallbackReason::Incomplete)];
        self.route_many(turn, table, &[destination], &[flow_hash], &mut lookup);
        lookup[0]
    }

    /// Looks up IPv4 destinations in the first table; see [`route_many`](Self::route_many).
    #[inline]
    pub fn route4_many<G>(
        &self,
        turn: &G,
        destinations: &[Ipv4Addr],
        flow_hashes: &[u32],
        lookups: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
    {
        self.route_many(turn, TableId(0), destinations, flow_hashes, lookups);
    }

    /// Looks up IPv6 destinations in the first table; see [`route_many`](Self::route_many).
    #[inline]
    pub fn route6_many<G>(
        &self,
        turn: &G,
        destinations: &[Ipv6Addr],
        flow_hashes: &[u32],
        lookups: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
    {
        self.route_many(turn, TableId(0), destinations, flow_hashes, lookups);
    }

    /// Looks up many destinations in a table, so that their cache misses overlap. The number of
    /// results is the shortest length of the three slices.
    pub fn route_many<G, A>(
        &self,
        turn: &G,
        table: TableId,
        destinations: &[A],
        flow_hashes: &[u32],
        lookups: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
        A: Family,
    {
        let guard = turn.as_ref();
        let routes = match self.prefix_readers(guard, table, A::IPV6) {
            Ok(routes) => routes,
            Err(reason) => {
                let count = destinations.len().min(flow_hashes.len()).min(lookups.len());
                lookups[..count].fill(RouteLookup::Fallback(reason));
                return;
            }
        };
        let both = destinations.chunks(BATCH).zip(flow_hashes.chunks(BATCH));
        for ((destinations, hashes), lookups) in both.zip(lookups.chunks_mut(BATCH)) {
            self.batch(guard, A::readers(routes), destinations, hashes, lookups);
        }
    }

    /// Returns the prefix tables, or the reason why all packets go to Linux.
    #[inline]
    fn prefix_readers(
        &self,
        guard: &Guard,
        table: TableId,
        ipv6: bool,
    ) -> Result<&PrefixReaders, FallbackReason> {
        let routes = self.routes.get(table.0).ok_or(FallbackReason::NoTable)?;
        let status = self.status.get(guard, table.0).ok_or(FallbackReason::Incomplete)?;
        match status.fallback[usize::from(ipv6)] {
            0 => Ok(routes),
            reason => Err(FallbackReason::from_number(reason)),
        }
    }

    #[inline]
    fn batch<A: Family>(
        &self,
        guard: &Guard,
        routes: &fastlane_table::LpmReader<A>,
        destinations: &[A],
        hashes: &[u32],
        lookups: &mut [RouteLookup],
    ) {
        let count = destinations.len().min(hashes.len()).min(lookups.len());
        let SelectedHops { numbers, found } =
            self.select_hops(guard, routes, &destinations[..count], &hashes[..count]);
        let mut on_link = OnLink::new();
        for (index, destination) in destinations[..count].iter().enumerate() {
            let number = numbers[index].map(PrefixValue::get);
            let group =
                found[index].map(|(group, hop)| (group, self.hops.get(guard, hop as usize)));
            lookups[index] = match resolve(*destination, number, group) {
                Ok(next_hop) => RouteLookup::Forward(next_hop),
                Err(Some(reason)) => RouteLookup::Fallback(reason),
                Err(None) => {
                    let hop = group.and_then(|(_, hop)| hop);
                    on_link.add(index, hop.map_or(0, |hop| hop.link), destination.key());
                    RouteLookup::Fallback(FallbackReason::NoNeighbour)
                }
            };
        }
        if on_link.count > 0 {
            self.resolve_on_link::<A>(guard, &on_link, &numbers, &found, lookups);
        }
    }

    /// Looks up the routes of as many destinations as there are hashes, at most [`BATCH`], and
    /// selects a next hop of each.
    #[inline(always)]
    fn select_hops<'t, A: Family>(
        &'t self,
        guard: &'t Guard,
        routes: &fastlane_table::LpmReader<A>,
        destinations: &[A],
        hashes: &[u32],
    ) -> SelectedHops<'t> {
        let count = hashes.len();
        let mut numbers = [None; BATCH];
        routes.lookup_many(guard, destinations, &mut numbers[..count]);
        for number in numbers[..count].iter().flatten() {
            self.groups.prefetch(number.get() as usize);
        }
        let mut found: [Option<(&GroupRecord, u32)>; BATCH] = [None; BATCH];
        for (index, number) in numbers[..count].iter().enumerate() {
            let group = number.and_then(|number| self.groups.get(guard, number.get() as usize));
            found[index] = group.map(|group| {
                let hop = group.pick(hashes[index]);
                self.hops.prefetch(hop as usize);
                (group, hop)
            });
        }
        SelectedHops { numbers, found }
    }

    /// Completes the lookups whose destination is itself the neighbour.
    fn resolve_on_link<A: Family>(
        &self,
        guard: &Guard,
        on_link: &OnLink,
        numbers: &[Option<PrefixValue>; BATCH],
        groups: &[Option<(&GroupRecord, u32)>; BATCH],
        lookups: &mut [RouteLookup],
    ) {
        let mut found: [Option<HashEntry<'_, NeighbourRecord>>; BATCH] = [None; BATCH];
        self.neighbours.get_many(guard, &on_link.keys[..on_link.count], &mut found);
        for (index, neighbour) in on_link.indexes[..on_link.count].iter().zip(found) {
            let index = usize::from(*index);
            let (Some(neighbour), Some((group, hop)), Some(route)) =
                (neighbour, groups[index], numbers[index])
            else {
                continue;
            };
            if let Some(hop) = self.hops.get(guard, hop as usize).filter(|hop| hop.state == ON_LINK)
            {
                let next_hop = next_hop(group, hop, neighbour.value.mac, route.get(), A::IPV6);
                lookups[index] = RouteLookup::Forward(next_hop);
            }
        }
    }

    /// Returns true if `address` is an address of this host.
    #[inline]
    pub fn is_local<G>(&self, turn: &G, address: IpAddr) -> bool
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.addresses.get(turn, &AddressKey::new(address)).is_some()
    }

    /// Returns an interface by its index.
    #[inline]
    pub fn link<'t, G>(&'t self, turn: &'t G, index: u32) -> Option<&'t LinkRecord>
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.links.get(turn, &index).map(|found| found.value)
    }

    /// Returns the Ethernet address of a usable neighbour on the link of an interface.
    #[inline]
    pub fn neighbour<G>(&self, turn: &G, link: u32, address: IpAddr) -> Option<[u8; 6]>
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.neighbours.get(turn, &NeighbourKey::new(link, address)).map(|found| found.value.mac())
    }
}

/// Routes of a batch, and the next hop that each packet takes.
struct SelectedHops<'t> {
    /// Number of each route.
    numbers: [Option<PrefixValue>; BATCH],
    /// Group of each route, and the index of the hop.
    found: [Option<(&'t GroupRecord, u32)>; BATCH],
}

/// Packets of a batch whose destination is itself the neighbour (on-link routes).
struct OnLink {
    count: usize,
    indexes: [u8; BATCH],
    keys: [NeighbourKey; BATCH],
}

impl OnLink {
    #[inline]
    fn new() -> Self {
        let unset = NeighbourKey::on_link(0, AddressKey::v4([0; 4]));
        Self { count: 0, indexes: [0; BATCH], keys: [unset; BATCH] }
    }

    #[inline]
    fn add(&mut self, index: usize, link: u32, address: AddressKey) {
        self.indexes[self.count] = index as u8;
        self.keys[self.count] = NeighbourKey::on_link(link, address);
        self.count += 1;
    }
}

/// Resolves one packet; `Err(None)` if the destination itself is the neighbour.
#[inline]
fn resolve<A: Family>(
    destination: A,
    number: Option<u32>,
    found: Option<(&GroupRecord, Option<&HopRecord>)>,
) -> Result<NextHop, Option<FallbackReason>> {
    if let Some(reason) = destination.unroutable() {
        return Err(Some(reason));
    }
    let number = number.ok_or(Some(FallbackReason::NoRoute))?;
    let (group, hop) = found.ok_or(Some(FallbackReason::Incomplete))?;
    if group.reason != 0 {
        return Err(Some(FallbackReason::from_number(group.reason)));
    }
    let hop = hop.ok_or(Some(FallbackReason::Incomplete))?;
    match hop.state {
        SEND => Ok(next_hop(group, hop, hop.destination, number, A::IPV6)),
        ON_LINK => Err(None),
        reason => Err(Some(FallbackReason::from_number(reason))),
    }
}

#[inline]
fn next_hop(
    group: &GroupRecord,
    hop: &HopRecord,
    destination: [u8; 6],
    route: u32,
    ipv6: bool,
) -> NextHop {
    let mtu = if ipv6 { hop.mtu6 } else { hop.mtu };
    let mtu = if group.mtu == 0 { mtu } else { mtu.min(group.mtu) };
    let (port, source, link) = (PortId(hop.port), hop.source, hop.link);
    let is_divided = group.is_divided != 0;
    NextHop { port, source, destination, mtu, link, route, is_divided }
}
