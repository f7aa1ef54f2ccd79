//! NAT44 on N6 (RFC 4787, 5382, 5508, 6888): users' packets leave with an external address and a
//! port of the user's block, and packets to it reach the user.
//!
//! The rules of a session see the user's inside address: packets are translated last on their way
//! out, and first on their way in. A mapping is a slot of the user's block ([`port_table`]): it
//! depends on the inside port and the protocol only, so mapping and filtering are independent of
//! the other endpoint. What of a packet is translated is in [`carrier`].
//!
//! Invariants: the lane that owns a session is the only one that writes its slots; a packet that
//! cannot be translated is dropped and counted, and never leaves with an inside address.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use fastlane::Turn;
use fastlane::table::EntryId;
use fastlane::wire::{Ipv4, header};

use self::carrier::{Carrier, Unreadable};
use self::port_table::{SlotAddress, after_segment, external_port, find, free, home};
use self::segment::{Endpoint, Segment};
use self::side::Side;
use super::lane_tables::{BurstContext, DestinationAddress, LaneTables};
use crate::config::Settings;
use crate::config::nat_plan::{AddressRange, BUCKET, NatPlan, NatPool};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::nat_tables::{NatUser, PortSlot, Protocol, TcpState, Timers, ticks};
use crate::session::{InstanceId, SessionIndex};

mod carrier;
mod port_table;
mod segment;
mod side;

/// NAT of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Nat {
    pool: NatPool,
    timers: Timers,
}

/// NAT of all interfaces.
#[derive(Clone, Debug)]
pub(crate) struct NatInterfaces {
    all: Vec<Nat>,
    /// The lowest and the highest external address.
    external: RangeInclusive<u32>,
}

/// Translation of a packet whose mapping is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Translation {
    address: u32,
    /// Port and its place; `None` for a later fragment, in which only the address changes.
    port: Option<(Carrier, u16)>,
}

impl Translation {
    /// Writes the translation to the IPv4 packet at the start of `bytes`.
    #[inline]
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        match &self.port {
            Some((carrier, port)) => {
                carrier.write(bytes, Endpoint { address: self.address, port: *port });
            }
            None => write_source(bytes, self.address),
        }
    }
}

/// Replaces the source address of a later fragment.
#[cold]
fn write_source(bytes: &mut [u8], address: u32) {
    use fastlane::wire::checksum::update_u32;
    let Some(ip) = fastlane::wire::header_mut::<Ipv4>(bytes, 0) else { return };
    let old = u32::from_be_bytes(ip.source);
    ip.header_checksum.set(update_u32(ip.header_checksum.get(), old, address));
    ip.source = address.to_be_bytes();
}

/// Packet of a user whose slots are on their way into the cache: TCP or UDP without IP options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure<'t> {
    user: &'t NatUser,
    segment: Segment,
    home: u32,
}

/// Packet to an external port, whose slot is on its way into the cache: TCP or UDP without IP
/// options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainArrival {
    port: ExternalPort,
    segment: Segment,
}

/// External port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ExternalPort {
    block: u32,
    place: SlotAddress,
}

/// Any packet to an external port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrivedPacket {
    port: ExternalPort,
    carrier: Carrier,
}

/// Kind of a packet to an external address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// For a port of a block.
    Port(ArrivedPacket),
    /// For no block: the address may be Linux's, too.
    Linux,
    /// A fragment, which is reassembled first.
    Fragment,
    /// To be dropped.
    Drop(DropReason),
}

impl NatInterfaces {
    /// Creates NAT of the settings; `None` if no interface has it.
    pub(crate) fn new(settings: &Settings) -> Option<Self> {
        let of = |pool: NatPool| Nat { timers: Timers::of(pool.timers), pool };
        let all: Vec<Nat> = NatPlan::new(settings).pools.into_iter().map(of).collect();
        let ranges = || all.iter().flat_map(|nat| &nat.pool.external);
        let lowest = ranges().map(AddressRange::lowest).min()?;
        let highest = ranges().map(AddressRange::highest).max()?;
        Some(Self { external: lowest..=highest, all })
    }

    /// Returns the NAT of a network instance.
    #[inline]
    pub(crate) fn of(&self, instance: InstanceId) -> Option<&Nat> {
        self.all.iter().find(|nat| nat.pool.instance == instance)
    }

    /// Returns true if a destination is an external address of a network instance.
    #[inline(always)]
    pub(crate) fn is_external(&self, instance: InstanceId, to: DestinationAddress) -> bool {
        let DestinationAddress::V4(to) = to else { return false };
        self.external.contains(&to.to_bits()) && self.has_external(instance, to)
    }

    /// Returns true if an address is an external one of a network instance.
    #[inline(never)]
    fn has_external(&self, instance: InstanceId, to: Ipv4Addr) -> bool {
        self.of(instance).is_some_and(|nat| nat.is_external(to))
    }
}

fn contains(ranges: &[AddressRange], address: u32) -> bool {
    ranges.iter().any(|range| range.has(address))
}

impl Nat {
    /// Returns true if an address is an external one.
    #[inline]
    pub(crate) fn is_external(&self, address: Ipv4Addr) -> bool {
        self.pool.is_external(address.to_bits())
    }

    /// Returns true if a packet to a user's inside address must not pass: it comes from a network
    /// that sees external addresses only.
    #[inline]
    pub(crate) fn hides(&self, ip: &Ipv4) -> bool {
        let address = |octets| u32::from_be_bytes(octets);
        contains(&self.pool.inside, address(ip.destination))
            && !contains(&self.pool.untranslated, address(ip.source))
    }

    /// Returns the kind of an IPv4 packet to an external address, and the port that it is for.
    pub(crate) fn arrival(&self, bytes: &[u8]) -> Arrival {
        let Some(ip) = header::<Ipv4>(bytes, 0) else {
            return Arrival::Drop(DropReason::Malformed);
        };
        if ip.is_fragment() {
            return Arrival::Fragment;
        }
        match Carrier::read(bytes, Side::Destination) {
            Ok(carrier) => match self.external_port(ip, carrier.segment.port) {
                Some(port) => Arrival::Port(ArrivedPacket { port, carrier }),
                None => Arrival::Linux,
            },
            Err(Unreadable::Protocol) => Arrival::Linux,
            Err(Unreadable::Fragment) => Arrival::Fragment,
            Err(Unreadable::Malformed) => Arrival::Drop(DropReason::Malformed),
        }
    }

    /// Returns the external port that a packet is for, `None` if it is for no block.
    #[inline(always)]
    fn external_port(&self, ip: &Ipv4, port: u16) -> Option<ExternalPort> {
        let pool = &self.pool;
        let block = pool.block_of(u32::from_be_bytes(ip.destination), port)?;
        let offset = u32::from(port - pool.first_port) & (pool.ports - 1);
        let first = pool.first_bucket + (block - pool.first_block) * (pool.ports / BUCKET);
        let bucket = first + offset / BUCKET;
        let place = SlotAddress { bucket, index: (offset % BUCKET) as usize };
        Some(ExternalPort { block, place })
    }

    /// Finds the user of an external port and the translation of a packet to it.
    ///
    /// # Errors
    /// Returns the drop reason if there is no mapping.
    pub(crate) fn destination(
        &self,
        to: &ArrivedPacket,
        burst: BurstContext<'_>,
    ) -> Result<(SessionIndex, Translation), DropReason> {
        let ArrivedPacket { port, carrier } = to;
        let (session, user) = self.user(port, &carrier.segment, carrier.is_error(), burst)?;
        let Endpoint { address, port } = user;
        Ok((session, Translation { address, port: Some((*carrier, port)) }))
    }

    /// Reads a packet to an external address ahead of
    /// [`translate_arrival`](Self::translate_arrival), and prefetches the index of the block's
    /// owner and the slot. `None` if that cannot translate it.
    #[inline(always)]
    pub(crate) fn plain_arrival(&self, bytes: &[u8], tables: &LaneTables) -> Option<PlainArrival> {
        let segment = Segment::read_plain(bytes, Side::Destination)?;
        let ip: &Ipv4 = header(bytes, 0)?;
        if ip.is_fragment() {
            return None;
        }
        let port = self.external_port(ip, segment.port)?;
        tables.nat_blocks.prefetch_index(port.block as usize);
        tables.nat_ports.prefetch(EntryId(port.place.bucket));
        Some(PlainArrival { port, segment })
    }

    /// Prefetches the owner of the block, ahead of [`translate_arrival`](Self::translate_arrival).
    #[inline]
    pub(crate) fn prefetch_owner(arrival: &PlainArrival, tables: &LaneTables) {
        tables.nat_blocks.prefetch(arrival.port.block as usize);
    }

    /// Translates a packet that was read ahead and returns the session of its user.
    ///
    /// # Errors
    /// Returns the drop reason if there is no mapping.
    #[inline(always)]
    pub(crate) fn translate_arrival(
        &self,
        arrival: &PlainArrival,
        bytes: &mut [u8],
        burst: BurstContext<'_>,
    ) -> Result<SessionIndex, DropReason> {
        let PlainArrival { port, segment } = arrival;
        let (session, user) = self.user(port, segment, false, burst)?;
        segment.write_plain(bytes, Side::Destination, user);
        Ok(session)
    }

    /// Finds the user of an external port, with the inside address and port.
    ///
    /// # Errors
    /// Returns the drop reason if there is no mapping.
    #[inline(always)]
    fn user(
        &self,
        to: &ExternalPort,
        segment: &Segment,
        is_error: bool,
        burst: BurstContext<'_>,
    ) -> Result<(SessionIndex, Endpoint), DropReason> {
        let BurstContext { tables, turn, now } = burst;
        let ExternalPort { block, place } = *to;
        let none = DropReason::NatNoMapping;
        let block = tables.nat_blocks.get(turn, block as usize).ok_or(none)?;
        let session = block.owner().ok_or(none)?;
        let words = tables.nat_ports.at(EntryId(place.bucket));
        let slot = PortSlot(words.get(place.index));
        if !slot.has(block.generation, segment.protocol)
            || slot.is_expired(segment.protocol, &self.timers, ticks(now))
        {
            return Err(none);
        }
        // Packets from outside do not prolong a mapping (RFC 4787, REQ-6).
        if segment.protocol == Protocol::Tcp && !is_error {
            let state = after_segment(slot.state(), segment, false);
            if state != slot.state() {
                words.set(place.index, slot.with(slot.seen(), state).0);
            }
        }
        Ok((session, Endpoint { address: block.inside, port: slot.inside() }))
    }

    /// Finds the translation of a user's packet to the data network, and makes the mapping if there
    /// is none. `None` if the packet leaves as it is.
    ///
    /// # Errors
    /// Returns the drop reason if it cannot be translated.
    #[inline]
    pub(crate) fn source(
        &self,
        session: SessionIndex,
        bytes: &[u8],
        burst: BurstContext<'_>,
    ) -> Result<Option<Translation>, DropReason> {
        let ip: &Ipv4 = header(bytes, 0).ok_or(DropReason::Malformed)?;
        let [from, to] = [ip.source, ip.destination].map(u32::from_be_bytes);
        if contains(&self.pool.untranslated, to) {
            return Ok(None);
        }
        let user = burst.tables.nat_users.get(burst.turn, session.0 as usize);
        let Some(user) = user.filter(|user| user.inside == from) else {
            let is_inside = contains(&self.pool.inside, from);
            return if is_inside { Err(DropReason::NatNoBlock) } else { Ok(None) };
        };
        let address = user.external;
        let carrier = match Carrier::read(bytes, Side::Source) {
            Ok(carrier) => carrier,
            Err(Unreadable::Fragment) => return Ok(Some(Translation { address, port: None })),
            Err(Unreadable::Protocol) => return Err(DropReason::NatProtocol),
            Err(Unreadable::Malformed) => return Err(DropReason::Malformed),
        };
        let segment = carrier.segment;
        let home = home(user, &segment);
        let departure = Departure { user, segment, home };
        let port = self.mapped(&departure, carrier.is_error(), burst)?;
        Ok(Some(Translation { address, port: Some((carrier, port)) }))
    }

    /// Reads a user's packet ahead of [`translate`](Self::translate), and prefetches the slots in
    /// which its mapping is searched. `None` if that cannot translate it.
    #[inline(always)]
    pub(crate) fn departure<'t>(
        &self,
        session: SessionIndex,
        bytes: &[u8],
        burst: BurstContext<'t>,
    ) -> Option<Departure<'t>> {
        let BurstContext { tables, turn, .. } = burst;
        let segment = Segment::read_plain(bytes, Side::Source)?;
        let ip: &Ipv4 = header(bytes, 0)?;
        let user = tables.nat_users.get(turn, session.0 as usize)?;
        let [from, to] = [ip.source, ip.destination].map(u32::from_be_bytes);
        if user.inside != from || contains(&self.pool.untranslated, to) {
            return None;
        }
        let home = home(user, &segment);
        tables.nat_ports.prefetch(EntryId(user.bucket + home));
        Some(Departure { user, segment, home })
    }

    /// Translates a packet that was read ahead. Returns false if it cannot be translated, for a
    /// reason that [`source`](Self::source) finds again.
    #[inline(always)]
    pub(crate) fn translate(
        &self,
        departure: &Departure<'_>,
        bytes: &mut [u8],
        burst: BurstContext<'_>,
    ) -> bool {
        let Departure { user, segment, .. } = departure;
        let Ok(port) = self.mapped(departure, false, burst) else { return false };
        let new = Endpoint { address: user.external, port };
        segment.write_plain(bytes, Side::Source, new);
        true
    }

    /// Returns the external port of an inside port, and refreshes or makes its mapping, unless it
    /// is an ICMP error that needs it.
    #[inline(always)]
    fn mapped(
        &self,
        departure: &Departure<'_>,
        is_error: bool,
        burst: BurstContext<'_>,
    ) -> Result<u16, DropReason> {
        let Departure { user, ref segment, home } = *departure;
        let ports = &burst.tables.nat_ports;
        let now = ticks(burst.now);
        let Segment { protocol, port, .. } = *segment;
        let wanted = PortSlot::new(user.generation, protocol, port, now);
        if let Some((place, slot)) = find(ports, user, wanted, home) {
            if is_error {
                return Ok(external_port(user, place));
            }
            let refreshed = match protocol {
                Protocol::Tcp => {
                    let is_expired = slot.is_expired(protocol, &self.timers, now);
                    let state = if is_expired { TcpState::New } else { slot.state() };
                    slot.with(now, after_segment(state, segment, true))
                }
                _ => slot.at(now),
            };
            if refreshed != slot {
                ports.at(EntryId(place.bucket)).set(place.index, refreshed.0);
            }
            return Ok(external_port(user, place));
        }
        if is_error {
            return Err(DropReason::NatNoMapping);
        }
        let place = free(ports, user, wanted, home, &self.timers);
        let place = place.ok_or(DropReason::NatPortsExhausted)?;
        ports.at(EntryId(place.bucket)).set(place.index, wanted.0);
        burst.tables.count(DropReason::NatMappingMade, 1, 0);
        Ok(external_port(user, place))
    }

    /// Returns the external form of a packet that was translated on its way to a user: the
    /// opposite of [`destination`](Self::destination). `None` if its mapping has ended.
    #[cold]
    pub(crate) fn external_form(
        &self,
        session: SessionIndex,
        bytes: &[u8],
        burst: BurstContext<'_>,
    ) -> Option<Translation> {
        let user = burst.tables.nat_users.get(burst.turn, session.0 as usize)?;
        let ip: &Ipv4 = header(bytes, 0)?;
        if u32::from_be_bytes(ip.destination) != user.inside {
            return None;
        }
        let carrier = Carrier::read(bytes, Side::Destination).ok()?;
        let Segment { protocol, port, .. } = carrier.segment;
        let wanted = PortSlot::new(user.generation, protocol, port, 0);
        let home = home(user, &carrier.segment);
        let (place, _) = find(&burst.tables.nat_ports, user, wanted, home)?;
        let port = Some((carrier, external_port(user, place)));
        Some(Translation { address: user.external, port })
    }

    /// Returns the session of the block that a packet to an external address is for.
    pub(crate) fn owner(
        &self,
        bytes: &[u8],
        tables: &LaneTables,
        turn: &Turn,
    ) -> Option<SessionIndex> {
        let Arrival::Port(to) = self.arrival(bytes) else { return None };
        tables.nat_blocks.get(turn, to.port.block as usize)?.owner()
    }
}
