//! The lanes' side: where a packet goes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane_core::PortId;
use fastlane_table::{
    ArrayReader, Guard, HashEntry, HashReader, Lpm4Reader, Lpm6Reader, TableError,
};

use super::records::{
    AddressKey, GroupRecord, HopRecord, LinkRecord, NeighbourKey, NeighbourRecord, ON_LINK, SEND,
    StatusRecord,
};
use super::{FallbackReason, Memories};

mod address_family;

pub use address_family::Family;

/// How many packets are looked up together.
const BATCH: usize = 32;

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteLookup {
    /// Out of a port.
    Forward(NextHop),
    /// To Linux, which knows.
    Fallback(FallbackReason),
}

/// What a packet needs to go out of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The port.
    pub port: PortId,
    /// The Ethernet address of the interface.
    pub source: [u8; 6],
    /// The Ethernet address of the next hop.
    pub destination: [u8; 6],
    /// The longest IP packet that may go this way, in octets. Longer ones are Linux's.
    pub mtu: u32,
    /// The number of the interface.
    pub link: u32,
    /// The number of the route, less than [`Mirror::route_numbers`]; it stays as long as the route
    /// does. Unless routes are counted one by one, those that go the same ways have the same.
    pub route: u32,
}

/// One of the routing tables of a mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableId(usize);

/// What Linux knows of forwarding, as a lane sees it. Each lane has a clone of its own.
#[derive(Clone, Debug)]
pub struct Mirror {
    status: ArrayReader<StatusRecord>,
    links: HashReader<u32, LinkRecord>,
    addresses: HashReader<AddressKey, u32>,
    neighbours: HashReader<NeighbourKey, NeighbourRecord>,
    hops: ArrayReader<HopRecord>,
    groups: ArrayReader<GroupRecord>,
    routes: Vec<(Lpm4Reader, Lpm6Reader)>,
}

impl Mirror {
    /// Reads the tables of a mirror.
    ///
    /// # Errors
    /// When a memory holds something else, or what another version has made.
    pub fn attach(memories: &Memories) -> Result<Self, TableError> {
        let routes = memories
            .routes
            .iter()
            .map(|[four, six]| Ok((Lpm4Reader::attach(four)?, Lpm6Reader::attach(six)?)));
        Ok(Self {
            status: ArrayReader::attach(&memories.status)?,
            links: HashReader::attach(&memories.links)?,
            addresses: HashReader::attach(&memories.addresses)?,
            neighbours: HashReader::attach(&memories.neighbours)?,
            hops: ArrayReader::attach(&memories.hops)?,
            groups: ArrayReader::attach(&memories.groups)?,
            routes: routes.collect::<Result<_, TableError>>()?,
        })
    }

    /// The routing table that Linux has under a number, if it is mirrored.
    #[must_use]
    pub fn table<G>(&self, turn: &G, number: u32) -> Option<TableId>
    where
        G: AsRef<Guard> + ?Sized,
    {
        let is_it = |place: &usize| {
            self.status.get(turn, *place).is_some_and(|status| status.table == number)
        };
        (0..self.routes.len()).find(is_it).map(TableId)
    }

    /// One more than the greatest number of a route.
    #[must_use]
    pub fn route_numbers(&self) -> usize {
        self.groups.capacity()
    }

    /// Where a packet to an IPv4 address goes, by the first table of the mirror. Packets with the
    /// same hash go the same way.
    #[inline]
    pub fn route4<G>(&self, turn: &G, destination: Ipv4Addr, flow_hash: u32) -> RouteLookup
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.route(turn, TableId(0), destination, flow_hash)
    }

    /// Where a packet to an IPv6 address goes, by the first table of the mirror.
    #[inline]
    pub fn route6<G>(&self, turn: &G, destination: Ipv6Addr, flow_hash: u32) -> RouteLookup
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.route(turn, TableId(0), destination, flow_hash)
    }

    /// Where a packet goes, by one of the tables.
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
        let mut answer = [RouteLookup::Fallback(FallbackReason::Incomplete)];
        self.route_many(turn, table, &[destination], &[flow_hash], &mut answer);
        answer[0]
    }

    /// Where packets to IPv4 addresses go, by the first table of the mirror; see
    /// [`route_many`](Self::route_many).
    #[inline]
    pub fn route4_many<G>(
        &self,
        turn: &G,
        destinations: &[Ipv4Addr],
        flow_hashes: &[u32],
        answers: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
    {
        self.route_many(turn, TableId(0), destinations, flow_hashes, answers);
    }

    /// Where packets to IPv6 addresses go, by the first table of the mirror; see
    /// [`route_many`](Self::route_many).
    #[inline]
    pub fn route6_many<G>(
        &self,
        turn: &G,
        destinations: &[Ipv6Addr],
        flow_hashes: &[u32],
        answers: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
    {
        self.route_many(turn, TableId(0), destinations, flow_hashes, answers);
    }

    /// Where many packets go, by one of the tables: their cache misses overlap. `answers` gets one
    /// for each destination that has a hash and room for the answer.
    pub fn route_many<G, A>(
        &self,
        turn: &G,
        table: TableId,
        destinations: &[A],
        flow_hashes: &[u32],
        answers: &mut [RouteLookup],
    ) where
        G: AsRef<Guard> + ?Sized,
        A: Family,
    {
        let guard = turn.as_ref();
        let routes = match self.asked(guard, table, A::IPV6) {
            Ok(routes) => routes,
            Err(reason) => {
                let count = destinations.len().min(flow_hashes.len()).min(answers.len());
                answers[..count].fill(RouteLookup::Fallback(reason));
                return;
            }
        };
        let both = destinations.chunks(BATCH).zip(flow_hashes.chunks(BATCH));
        for ((destinations, hashes), answers) in both.zip(answers.chunks_mut(BATCH)) {
            self.batch(guard, A::of(routes), destinations, hashes, answers);
        }
    }

    /// The prefix tables, unless Linux has to be asked about everything.
    #[inline]
    fn asked(
        &self,
        guard: &Guard,
        table: TableId,
        ipv6: bool,
    ) -> Result<&(Lpm4Reader, Lpm6Reader), FallbackReason> {
        let routes = self.routes.get(table.0).ok_or(FallbackReason::NoTable)?;
        let status = self.status.get(guard, table.0).ok_or(FallbackReason::Incomplete)?;
        match status.ask[usize::from(ipv6)] {
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
        answers: &mut [RouteLookup],
    ) {
        let count = destinations.len().min(hashes.len()).min(answers.len());
        let mut numbers = [None; BATCH];
        routes.lookup_many(guard, &destinations[..count], &mut numbers[..count]);
        for number in numbers[..count].iter().flatten() {
            self.groups.prefetch(*number as usize);
        }
        let mut found: [Option<(&GroupRecord, u32)>; BATCH] = [None; BATCH];
        for (place, number) in numbers[..count].iter().enumerate() {
            let group = number.and_then(|number| self.groups.get(guard, number as usize));
            found[place] = group.map(|group| {
                let hop = group.pick(hashes[place]);
                self.hops.prefetch(hop as usize);
                (group, hop)
            });
        }
        let mut on_link = OnLink::new();
        for (place, destination) in destinations[..count].iter().enumerate() {
            let number = numbers[place];
            let group =
                found[place].map(|(group, hop)| (group, self.hops.get(guard, hop as usize)));
            answers[place] = match resolve(*destination, number, group) {
                Ok(next_hop) => RouteLookup::Forward(next_hop),
                Err(Some(reason)) => RouteLookup::Fallback(reason),
                Err(None) => {
                    let hop = group.and_then(|(_, hop)| hop);
                    on_link.add(place, hop.map_or(0, |hop| hop.link), destination.key());
                    RouteLookup::Fallback(FallbackReason::NoNeighbour)
                }
            };
        }
        if on_link.count > 0 {
            self.neighbours(guard, &on_link, &numbers, &found, A::IPV6, answers);
        }
    }

    /// Completes the answers whose destination is itself on the link.
    fn neighbours(
        &self,
        guard: &Guard,
        on_link: &OnLink,
        numbers: &[Option<u32>; BATCH],
        groups: &[Option<(&GroupRecord, u32)>; BATCH],
        ipv6: bool,
        answers: &mut [RouteLookup],
    ) {
        let mut found: [Option<HashEntry<'_, NeighbourRecord>>; BATCH] = [None; BATCH];
        self.neighbours.get_many(guard, &on_link.keys[..on_link.count], &mut found);
        for (place, neighbour) in on_link.places[..on_link.count].iter().zip(found) {
            let place = usize::from(*place);
            let (Some(neighbour), Some((group, hop)), Some(route)) =
                (neighbour, groups[place], numbers[place])
            else {
                continue;
            };
            if let Some(hop) = self.hops.get(guard, hop as usize).filter(|hop| hop.state == ON_LINK)
            {
                let next_hop = next_hop(group, hop, neighbour.value.mac, route, ipv6);
                answers[place] = RouteLookup::Forward(next_hop);
            }
        }
    }

    /// Whether an address is one of this host's own.
    #[inline]
    pub fn is_local<G>(&self, turn: &G, address: IpAddr) -> bool
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.addresses.get(turn, &AddressKey::new(address)).is_some()
    }

    /// An interface, by its number.
    #[inline]
    pub fn link<'t, G>(&'t self, turn: &'t G, index: u32) -> Option<&'t LinkRecord>
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.links.get(turn, &index).map(|found| found.value)
    }

    /// The Ethernet address of a neighbour that frames may be sent to, on the link of an interface
    /// that is given by its number.
    #[inline]
    pub fn neighbour<G>(&self, turn: &G, link: u32, address: IpAddr) -> Option<[u8; 6]>
    where
        G: AsRef<Guard> + ?Sized,
    {
        self.neighbours.get(turn, &NeighbourKey::new(link, address)).map(|found| found.value.mac())
    }
}

/// The packets of a batch whose destination is itself on the link.
struct OnLink {
    count: usize,
    places: [u8; BATCH],
    keys: [NeighbourKey; BATCH],
}

impl OnLink {
    #[inline]
    fn new() -> Self {
        let nobody = NeighbourKey::on_link(0, AddressKey::v4([0; 4]));
        Self { count: 0, places: [0; BATCH], keys: [nobody; BATCH] }
    }

    #[inline]
    fn add(&mut self, place: usize, link: u32, address: AddressKey) {
        self.places[self.count] = place as u8;
        self.keys[self.count] = NeighbourKey::on_link(link, address);
        self.count += 1;
    }
}

/// The answer; `Err(None)` when the destination itself is the neighbour.
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
    NextHop { port, source, destination, mtu, link, route }
}
