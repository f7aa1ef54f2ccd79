//! Packets of users that NAT translates on their way to the data network, or to the external
//! address of another user; and the external form of packets that do not reach their user.

use fastlane::Packet;
use fastlane::mirror::{NextHop, RouteLookup};
use fastlane::wire::Ipv4;
use fastlane::wire::header;

use super::classify::HoldLimits;
use super::egress::NetworkAddress;
use super::forward::Forwarder;
use super::icmp::{DueIcmpError, IcmpError};
use super::lane_tables::{BurstContext, DestinationAddress};
use super::lookup::{ClassifiedPacket, RouteBatch, RoutedPacket, UePacket};
use super::nat::{Arrival, Departure, Nat, Translation};
use super::outcome::Outcome;
use super::routes::{BATCH, Routes};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Rules;
use crate::session::{InstanceId, SessionIndex};

impl<R: Routes> Forwarder<R> {
    /// Returns the NAT of a network instance.
    #[inline(always)]
    pub(super) fn nat_of(&self, instance: InstanceId) -> Option<&Nat> {
        self.nat.as_ref()?.of(instance)
    }

    /// Returns true if a destination is an external address of the network instance.
    #[inline(always)]
    pub(super) fn is_external(&self, instance: InstanceId, to: DestinationAddress) -> bool {
        match &self.nat {
            None => false,
            Some(nat) => nat.is_external(instance, to),
        }
    }

    /// Translates a packet and forwards it to a next hop. `classified` is a copy, so that lanes
    /// without NAT may keep theirs in registers. Charging does not look into the packet, so it may
    /// follow.
    #[inline(never)]
    pub(super) fn send_translated<A: NetworkAddress>(
        &mut self,
        classified: ClassifiedPacket<'_>,
        routed: &RoutedPacket,
        hop: &NextHop,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        match self.translate(&classified, hop, packet, burst) {
            Ok(()) => self.send_to_next_hop::<A>(&classified, routed, hop, packet, burst),
            Err(outcome) => outcome,
        }
    }

    /// Translates a packet that leaves to a next hop.
    ///
    /// # Errors
    /// Returns the outcome of a packet that cannot be translated.
    #[inline]
    fn translate(
        &mut self,
        classified: &ClassifiedPacket<'_>,
        hop: &NextHop,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let ClassifiedPacket { ue_packet, session, .. } = *classified;
        let exit = self.ports.exit(hop.port, None, |role| role == Role::N6);
        let instance = exit.ok_or(Outcome::Drop(DropReason::NoRoute))?.instance;
        let length = header::<Ipv4>(ue_packet.inner(packet.bytes()), 0);
        if length.is_some_and(|ip| u32::from(ip.total_length.get()) > hop.mtu) {
            return Ok(()); // the sender is told what it sent, or the fragments are translated
        }
        match self.translation(instance, ue_packet, session, packet, burst) {
            Ok(Some(translation)) => {
                translation.write(ue_packet.inner_mut(packet));
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(reason) => Err(self.not_translated(classified, instance, reason, burst)),
        }
    }

    /// Finds the translation of a packet that leaves in a network instance. `None` if it leaves as
    /// it is.
    ///
    /// # Errors
    /// Returns the drop reason if it cannot be translated.
    #[inline(always)]
    pub(super) fn translation(
        &self,
        instance: InstanceId,
        ue_packet: &UePacket,
        session: SessionIndex,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Result<Option<Translation>, DropReason> {
        match self.nat_of(instance) {
            None => Ok(None),
            Some(nat) => source(nat, ue_packet, session, packet, burst),
        }
    }

    /// Translates those packets of a batch that leave to a next hop in its first network instance,
    /// step by step, so that their cache misses overlap: the index of each user, the user, the
    /// slots. If the next hops are not known yet (`is_answered`), it only reads ahead. Returns the
    /// bits of the translated packets. The others are for
    /// [`send_translated`](Self::send_translated).
    #[inline(never)]
    pub(super) fn translate_all<A>(
        &self,
        ue_packets: &[UePacket],
        batch: &RouteBatch<A>,
        is_answered: bool,
        packets: &mut [Packet],
        burst: BurstContext<'_>,
    ) -> u32 {
        let routed = batch.packets.get(..batch.count).unwrap_or_default();
        let first = routed.first().and_then(|it| it.instance);
        let instance = first.or(self.only_instance).unwrap_or_default();
        let Some(nat) = self.nat_of(instance) else { return 0 };
        let users = &burst.tables.nat_users;
        routed.iter().for_each(|it| users.prefetch_index(it.session.0 as usize));
        routed.iter().for_each(|it| users.prefetch(it.session.0 as usize));
        let departures = read_ahead(nat, ue_packets, routed, packets, burst);
        if !is_answered {
            return 0;
        }
        let (mut done, mut exit_port) = (0, None);
        let together = routed.iter().zip(&departures).zip(&batch.answers);
        for (at, ((it, departure), answer)) in together.enumerate() {
            let (Some(departure), RouteLookup::Forward(hop)) = (departure, answer) else {
                continue;
            };
            if exit_port != Some(hop.port) {
                let exit = self.ports.exit(hop.port, None, |role| role == Role::N6);
                exit_port = exit.filter(|exit| exit.instance == instance).map(|_| hop.port);
            }
            let leaves = exit_port.is_some() && it.length <= hop.mtu;
            done |= u32::from(leaves && departure.translate(nat, packets, burst)) << at;
        }
        done
    }

    /// Returns the outcome of a packet that cannot be translated: its sender is told if there is no
    /// mapping (RFC 6888, REQ-11 B).
    #[cold]
    pub(super) fn not_translated(
        &mut self,
        classified: &ClassifiedPacket<'_>,
        instance: InstanceId,
        reason: DropReason,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let ClassifiedPacket { ue_packet, rules, charge, .. } = *classified;
        if !matches!(reason, DropReason::NatPortsExhausted | DropReason::NatNoBlock) {
            return Outcome::Drop(reason);
        }
        let error = DueIcmpError::new(IcmpError::NoMapping(reason), Some(instance));
        self.defer_icmp_error(ue_packet, rules, charge, error, burst)
    }

    /// Gives a packet that was translated on its way to a user its external form again, since it is
    /// held or the sender is told that it was dropped. Returns false if its mapping has ended.
    #[cold]
    pub(super) fn restore(
        &self,
        ue_packet: &UePacket,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> bool {
        let (None, Some(session)) = (&ue_packet.tunnel, ue_packet.session) else { return true };
        let Some(nat) = self.nat_of(ue_packet.instance) else { return true };
        let ip = header::<Ipv4>(ue_packet.inner(packet.bytes()), 0);
        if !ip.is_some_and(|ip| nat.hides(ip)) {
            return true; // it was not translated
        }
        let bytes = ue_packet.inner(packet.bytes());
        match nat.external_form(session, bytes, burst) {
            Some(translation) => {
                translation.write(ue_packet.inner_mut(packet));
                true
            }
            // Packets between UEs keep their addresses.
            None => ue_packet.is_hairpin,
        }
    }

    /// Holds a packet of a session, in its external form.
    pub(super) fn hold(
        &mut self,
        ue_packet: &UePacket,
        rules: &Rules,
        limits: HoldLimits,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let Some(session) = ue_packet.session else {
            return Outcome::Drop(DropReason::UnknownUser);
        };
        let outcome = self.buffer.hold(session, rules, limits, burst);
        self.restore_held(outcome, ue_packet, packet, burst);
        outcome
    }

    /// Gives a packet that will be held its external form, since it is translated again when it is
    /// released.
    #[inline]
    pub(super) fn restore_held(
        &self,
        outcome: Outcome,
        ue_packet: &UePacket,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) {
        if self.nat.is_some() && matches!(outcome, Outcome::Hold(_)) {
            self.restore(ue_packet, packet, burst);
        }
    }

    /// Returns the session of the user to whom the IP packet `ip` of this UPF is addressed, and
    /// translates the packet if that is an external address.
    #[cold]
    pub(super) fn addressee(
        &self,
        instance: InstanceId,
        ip: &mut [u8],
        burst: BurstContext<'_>,
    ) -> Option<SessionIndex> {
        let to = super::inner_packet::read(ip)?.to();
        if !self.is_external(instance, to) {
            return burst.tables.owner(burst.turn, instance, to);
        }
        let nat = self.nat_of(instance)?;
        let Arrival::Port(port) = nat.arrival(ip) else { return None };
        let (session, translation) = nat.destination(&port, burst).ok()?;
        translation.write(ip);
        Some(session)
    }
}

/// Packet of a batch that was read ahead.
#[derive(Clone, Copy)]
struct BatchDeparture<'t> {
    departure: Departure<'t>,
    /// Index of the packet in the burst.
    position: u8,
    /// Offset of the inner packet in the frame.
    at: u16,
}

impl BatchDeparture<'_> {
    /// Translates the packet. Returns false if it cannot be translated.
    #[inline(always)]
    fn translate(&self, nat: &Nat, packets: &mut [Packet], burst: BurstContext<'_>) -> bool {
        let Self { ref departure, position, at } = *self;
        let Some(packet) = packets.get_mut(usize::from(position)) else { return false };
        let Some(inner) = packet.bytes_mut().get_mut(usize::from(at)..) else { return false };
        nat.translate(departure, inner, burst)
    }
}

/// Reads packets ahead that leave in the network instance of the first one.
// By itself, for want of registers.
#[inline(never)]
fn read_ahead<'t>(
    nat: &Nat,
    ue_packets: &[UePacket],
    routed: &[RoutedPacket],
    packets: &[Packet],
    burst: BurstContext<'t>,
) -> [Option<BatchDeparture<'t>>; BATCH] {
    let mut departures = [None; BATCH];
    let first = routed.first().and_then(|it| it.instance);
    for (it, departure) in routed.iter().zip(&mut departures) {
        let Some(ue_packet) = ue_packets.get(usize::from(it.ue_packet)) else { continue };
        let UePacket { position, at, .. } = *ue_packet;
        let Some(packet) = packets.get(usize::from(position)) else { continue };
        if packet.partial_checksum().is_none() && it.instance == first {
            let inner = ue_packet.inner(packet.bytes());
            if let Some(read) = nat.departure(it.session, inner, burst) {
                *departure = Some(BatchDeparture { departure: read, position, at });
            }
        }
    }
    departures
}

/// Finds the translation of a packet.
#[inline(never)]
fn source(
    nat: &Nat,
    ue_packet: &UePacket,
    session: SessionIndex,
    packet: &mut Packet,
    burst: BurstContext<'_>,
) -> Result<Option<Translation>, DropReason> {
    // The sum of the pseudo header would have to change with the address.
    ue_packet.complete_checksum(packet);
    nat.source(session, ue_packet.inner(packet.bytes()), burst)
}
