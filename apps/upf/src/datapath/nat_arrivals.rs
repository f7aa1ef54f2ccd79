//! Packets to external addresses of NAT: they are translated before their session and its rules are
//! looked up. Fragments of them are reassembled first, since only the first one has a port.

use fastlane::wire::{Ethernet, Ipv4, header};
use fastlane::{Packet, Turn};

use super::forward::Forwarder;
use super::ip_header;
use super::lane_tables::{BurstContext, LaneTables, TurnContext};
use super::lookup::{Batch, Ingress};
use super::nat::{Arrival, ArrivedPacket, Nat, NatInterfaces, PlainArrival};
use super::outcome::Outcome;
use super::port_map::{self, PortRole};
use super::reassembly::{self, Progress, Reassembler};
use super::routes::{BATCH, Routes};
use crate::rules::layout::drop_reason::DropReason;
use crate::session::{InstanceId, SessionIndex};

/// Returns the positions of the bits of a word.
fn positions(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (lowest < u32::BITS).then_some(lowest as usize)
    })
}

/// Returns true if NAT handles an IP packet without a tunnel: it is to an external address, or past
/// NAT to a user's.
#[inline(always)]
pub(super) fn is_for_nat<R: Routes>(
    forwarder: &Forwarder<R>,
    frame: &[u8],
    role: &PortRole,
    is_v6: bool,
) -> bool {
    match &forwarder.nat {
        None => false,
        Some(nat) => !is_v6 && is_translated(nat, frame, role),
    }
}

/// Returns true if NAT handles an IPv4 packet without a tunnel.
// Out of the way of packets without NAT.
#[inline(never)]
fn is_translated(nat: &NatInterfaces, frame: &[u8], role: &PortRole) -> bool {
    let ip = header::<Ipv4>(frame, Ethernet::LENGTH);
    nat.of(role.instance_of(frame)).zip(ip).is_some_and(|(nat, ip)| {
        nat.is_external(ip.destination.into()) || !role.is_hairpin && nat.hides(ip)
    })
}

/// Reads the packets at these positions ahead, so that their cache misses overlap: the index of
/// each block and the slot, then the block.
// By itself, for want of registers.
#[inline(never)]
fn read_ahead(
    nat: &Nat,
    packets: &[Packet],
    external: u32,
    tables: &LaneTables,
    ahead: &mut [Option<PlainArrival>; BATCH],
) {
    for position in positions(external) {
        let (Some(packet), Some(slot)) = (packets.get(position), ahead.get_mut(position)) else {
            return;
        };
        let ip = packet.bytes().get(Ethernet::LENGTH..).unwrap_or_default();
        if packet.partial_checksum().is_none()
            && let Some(arrival) = nat.plain_arrival(ip, tables)
        {
            *slot = Some(arrival);
        }
    }
    for arrival in ahead.iter().flatten() {
        Nat::prefetch_owner(arrival, tables);
    }
}

/// Translation of packets to external addresses.
pub(super) struct Arrivals<'a, R> {
    pub(super) forwarder: &'a mut Forwarder<R>,
    pub(super) reassembler: &'a mut Reassembler,
}

impl<R: Routes> Arrivals<'_, R> {
    /// Translates the packets at these positions and adds them to the batch; those that cannot be
    /// translated are finished.
    #[inline(never)]
    pub(super) fn translate(
        &mut self,
        batch: &mut Batch,
        packets: &mut [Packet],
        external: u32,
        context: &mut TurnContext<'_>,
    ) {
        // All came by one port, but frames between lanes carry the network instance.
        let first = packets.first().map(|packet| self.ingress(packet)).unwrap_or_default();
        let mut ahead = [None; BATCH];
        if let Some(nat) = self.forwarder.nat_of(first.instance).filter(|_| !first.is_hairpin) {
            read_ahead(nat, packets, external, context.tables, &mut ahead);
        }
        for position in positions(external) {
            let Some(packet) = packets.get_mut(position) else { return };
            let octets = packet.len() as u64;
            let plain = ahead.get(position).copied().flatten();
            let (ingress, session) = match plain {
                Some(arrival) => {
                    let session = self.translate_plain(packet, first.instance, &arrival, context);
                    (first, session.map(Some))
                }
                None => self.translate_alone(packet, context),
            };
            match session {
                Ok(Some(session)) => {
                    let length = packet.len();
                    batch.push_translated(position, length, ingress, session, context.tables);
                }
                Ok(None) => {}
                Err(outcome) => {
                    self.forwarder.counters.label(context.tables, packet, outcome, octets, None);
                }
            }
        }
    }

    /// Translates a packet that was read ahead and returns the session of its user.
    ///
    /// # Errors
    /// Returns the outcome of a packet that cannot be translated.
    #[inline(always)]
    fn translate_plain(
        &self,
        packet: &mut Packet,
        instance: InstanceId,
        arrival: &PlainArrival,
        context: &mut TurnContext<'_>,
    ) -> Result<SessionIndex, Outcome> {
        let drop = Outcome::Drop;
        let nat = self.forwarder.nat_of(instance).ok_or(drop(DropReason::NatNoMapping))?;
        let ip = packet.bytes_mut().get_mut(Ethernet::LENGTH..).unwrap_or_default();
        nat.translate_arrival(arrival, ip, context.burst()).map_err(drop)
    }

    /// Translates a packet that could not be read ahead and returns the session of its user; `None`
    /// if the packet is a fragment and has its verdict.
    ///
    /// # Errors
    /// Returns the outcome of a packet that cannot be translated.
    #[inline(never)]
    fn translate_alone(
        &mut self,
        packet: &mut Packet,
        context: &mut TurnContext<'_>,
    ) -> (Ingress, Result<Option<SessionIndex>, Outcome>) {
        let ingress = self.ingress(packet);
        let session = match self.external_port(packet, ingress, context) {
            Ok(None) => Ok(None),
            Ok(Some(port)) => {
                let session = self.translate_arrival(packet, ingress, &port, context.burst());
                session.map(Some).map_err(Outcome::Drop)
            }
            Err(outcome) => Err(outcome),
        };
        (ingress, session)
    }

    /// Returns the ingress of a packet without a tunnel.
    fn ingress(&self, packet: &Packet) -> Ingress {
        let role = self.forwarder.ports.of(packet.port());
        role.map_or_else(Ingress::default, |role| Ingress {
            instance: role.instance_of(packet.bytes()),
            is_hairpin: role.is_hairpin,
        })
    }

    /// Returns the external port that a packet is for. `None` if the packet is a fragment and has
    /// its verdict.
    ///
    /// # Errors
    /// Returns the outcome of a packet that is for no port.
    fn external_port(
        &mut self,
        packet: &mut Packet,
        ingress: Ingress,
        context: &mut TurnContext<'_>,
    ) -> Result<Option<ArrivedPacket>, Outcome> {
        let no_mapping = Outcome::Drop(DropReason::NatNoMapping);
        let Ingress { instance, is_hairpin } = ingress;
        let nat = self.forwarder.nat_of(instance).ok_or(no_mapping)?;
        let ip = packet.bytes().get(Ethernet::LENGTH..).unwrap_or_default();
        let is_external = |ip: &Ipv4| nat.is_external(ip.destination.into());
        match nat.arrival(ip) {
            Arrival::Port(port) => Ok(Some(port)),
            // Past NAT to a user's address.
            _ if !header::<Ipv4>(ip, 0).is_some_and(is_external) => Err(no_mapping),
            Arrival::Linux if is_hairpin => Err(no_mapping),
            Arrival::Linux => Err(Outcome::Linux),
            Arrival::Fragment => self.reassemble_external(packet, instance, context),
            Arrival::Drop(reason) => Err(Outcome::Drop(reason)),
        }
    }

    /// Adds a fragment to its packet, which it may complete.
    #[cold]
    fn reassemble_external(
        &mut self,
        packet: &mut Packet,
        instance: InstanceId,
        context: &mut TurnContext<'_>,
    ) -> Result<Option<ArrivedPacket>, Outcome> {
        let (tables, octets) = (context.tables, packet.len() as u64);
        match self.reassembler.add_any(packet, context.turn.now(), tables) {
            Progress::Whole => {}
            Progress::Incomplete | Progress::Linux => {
                let outcome = Outcome::Drop(DropReason::OuterFragment);
                self.forwarder.counters.label(tables, packet, outcome, octets, None);
                return Ok(None);
            }
            Progress::Refused => return Err(Outcome::Drop(DropReason::OuterFragmentRefused)),
        }
        let nat = self.forwarder.nat_of(instance);
        let nat = nat.ok_or(Outcome::Drop(DropReason::NatNoMapping))?;
        let ip = packet.bytes().get(Ethernet::LENGTH..).unwrap_or_default();
        match nat.arrival(ip) {
            Arrival::Port(port) => {
                let session = nat.owner(ip, tables, context.turn);
                match session.and_then(|it| self.pass_to_owner(packet, instance, it, context.turn))
                {
                    Some(outcome) => {
                        self.forwarder.counters.label(tables, packet, outcome, octets, None);
                        Ok(None)
                    }
                    None => Ok(Some(port)),
                }
            }
            Arrival::Linux => Err(Outcome::Linux),
            Arrival::Fragment => Err(Outcome::Drop(DropReason::Malformed)),
            Arrival::Drop(reason) => Err(Outcome::Drop(reason)),
        }
    }

    /// Passes a packet that this lane has reassembled to the lane of its session, as fragments
    /// find their lane by their addresses. `None` if that is this lane.
    fn pass_to_owner(
        &self,
        packet: &mut Packet,
        instance: InstanceId,
        session: SessionIndex,
        turn: &Turn,
    ) -> Option<Outcome> {
        let hairpin = self.forwarder.ports.hairpin.filter(|_| !turn.owns(session.0 as u8))?;
        let ip = packet.bytes_mut().get_mut(Ethernet::LENGTH..)?;
        if header::<Ipv4>(ip, 0)?.time_to_live <= 1 {
            return Some(Outcome::Drop(DropReason::TimeToLive));
        }
        // The other lane does not count as a hop.
        ip_header::decrement_ttl(ip);
        packet.header::<Ethernet>()?.destination.0 = port_map::between_ues(instance);
        Some(Outcome::Forward(hairpin, DropReason::OuterFragment))
    }

    /// Translates a packet and returns the session of its user.
    ///
    /// # Errors
    /// Returns the drop reason if there is no mapping.
    #[inline]
    fn translate_arrival(
        &self,
        packet: &mut Packet,
        ingress: Ingress,
        port: &ArrivedPacket,
        burst: BurstContext<'_>,
    ) -> Result<SessionIndex, DropReason> {
        let nat = self.forwarder.nat_of(ingress.instance).ok_or(DropReason::NatNoMapping)?;
        let (session, translation) = nat.destination(port, burst)?;
        if !packet.complete_checksum() {
            return Err(DropReason::Malformed);
        }
        let frame = packet.bytes_mut();
        translation.write(frame.get_mut(Ethernet::LENGTH..).unwrap_or_default());
        Ok(session)
    }
}

/// Returns the shard of a packet to an external address: that of the user's session, or of the
/// packet whose fragment it is. `None` if it is for no user.
pub(super) fn shard_of<R: Routes>(
    forwarder: &Forwarder<R>,
    frame: &[u8],
    instance: InstanceId,
    tables: &LaneTables,
    turn: &Turn,
) -> Option<u8> {
    let nat = forwarder.nat_of(instance)?;
    let bytes = frame.get(Ethernet::LENGTH..)?;
    let ip = header::<Ipv4>(bytes, 0)?;
    if !nat.is_external(ip.destination.into()) {
        return None;
    }
    match nat.arrival(bytes) {
        Arrival::Fragment => Some(reassembly::shard(frame)),
        Arrival::Port(_) => nat.owner(bytes, tables, turn).map(|session| session.0 as u8),
        Arrival::Linux | Arrival::Drop(_) => None,
    }
}
