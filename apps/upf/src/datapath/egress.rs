//! Egress of packets without a tunnel: to the data network, routed together, and to other UEs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::Packet;
use fastlane::mirror::{
    FallbackReason, Family, IngressInterface, NextHop, ReversePath, RouteLookup,
};
use fastlane::wire::Ipv4;

use super::deferred_queue::{DeferredWork, Fragmentation};
use super::forward::Forwarder;
use super::icmp::{DueIcmpError, IcmpError};
use super::inner_packet;
use super::lane_tables::{BurstContext, DestinationAddress};
use super::lookup::{
    Batch, ClassifiedPacket, PacketRules, RouteBatch, RoutedPacket, SessionCharge, UePacket,
};
use super::next_hop::Egress;
use super::outcome::Outcome;
use super::routes::{RouteSource, Routes, drop_reason_of};
use super::{ip_header, port_map};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;
use crate::session::InstanceId;

/// Linux's main routing table (`RT_TABLE_MAIN`).
const MAIN_TABLE: u32 = 254;

/// Address type of packets to the data network: `Ipv4Addr` or `Ipv6Addr`.
pub(crate) trait NetworkAddress:
    Family + Copy + Into<IpAddr> + Into<DestinationAddress>
{
    /// Returns true if Linux forwards packets that arrive there, whatever their source.
    fn is_forwarded(ingress: &IngressInterface) -> bool;
}

impl NetworkAddress for Ipv4Addr {
    fn is_forwarded(ingress: &IngressInterface) -> bool {
        // The UE pools are blackhole routes, so a reverse path check in Linux would drop the
        // packet.
        ingress.forwards4 && ingress.reverse_path == ReversePath::Any
    }
}

impl NetworkAddress for Ipv6Addr {
    fn is_forwarded(ingress: &IngressInterface) -> bool {
        ingress.forwards6
    }
}

impl<R: Routes> Forwarder<R> {
    /// Forwards all packets of the batch that leave without a tunnel.
    #[inline]
    pub(crate) fn route_all(
        &mut self,
        batch: &mut Batch,
        found: &PacketRules<'_>,
        packets: &mut [Packet],
        burst: BurstContext<'_>,
    ) {
        let Batch { ue_packets, routed, .. } = batch;
        if routed.four.count > 0 {
            self.route_batch(ue_packets, found, &mut routed.four, packets, burst);
        }
        if routed.six.count > 0 {
            self.route_batch(ue_packets, found, &mut routed.six, packets, burst);
        }
    }

    fn route_batch<A: NetworkAddress>(
        &mut self,
        ue_packets: &[UePacket],
        found: &PacketRules<'_>,
        batch: &mut RouteBatch<A>,
        packets: &mut [Packet],
        burst: BurstContext<'_>,
    ) {
        let first = batch.packets[0].instance;
        let mut is_fixed = true;
        if let RouteSource::Table(table) = self.ports.route_source(first, |role| role == Role::N6) {
            is_fixed = false;
            let count = batch.count;
            let (to, flows) = (&batch.to[..count], &batch.flows[..count]);
            let answers = &mut batch.answers[..count];
            self.routes.next_hops(burst.turn, table, to, flows, answers);
        }
        let has_nat = !A::IPV6 && self.nat.is_some();
        let mut translated = u32::MAX;
        if has_nat {
            translated = self.translate_all(ue_packets, batch, !is_fixed, packets, burst);
        }
        for at in 0..batch.count {
            let routed = &batch.packets[at];
            let number = usize::from(routed.ue_packet);
            let Some(ue_packet) = ue_packets.get(number) else { continue };
            let Some(rules) = found.get(number).copied().flatten() else { continue };
            let Some(packet) = packets.get_mut(usize::from(ue_packet.position)) else { continue };
            let octets = packet.len() as u64;
            let to = batch.to[at];
            let other;
            let mut answer = &batch.answers[at];
            if routed.instance != first || is_fixed {
                other = self.route_one(routed, to, batch.flows[at], burst);
                answer = &other;
            }
            let outcome = match answer {
                RouteLookup::Forward(hop) => {
                    let RoutedPacket { session, charge, .. } = *routed;
                    let direction = Direction::Uplink;
                    let classified =
                        ClassifiedPacket { ue_packet, session, rules, direction, charge };
                    if translated >> at & 1 == 0 {
                        self.send_translated::<A>(classified, routed, hop, packet, burst)
                    } else {
                        self.send_to_next_hop::<A>(&classified, routed, hop, packet, burst)
                    }
                }
                RouteLookup::Fallback(FallbackReason::NoNeighbour) => {
                    self.send_by_linux(ue_packet, routed, to, packet, burst)
                }
                RouteLookup::Fallback(
                    reason @ (FallbackReason::NoRoute | FallbackReason::Unreachable),
                ) => match self.unrouted(routed, to, *reason, burst) {
                    Outcome::Deferred => Outcome::Deferred,
                    _ => {
                        let instance = routed.instance.or(self.only_instance);
                        let error = DueIcmpError::new(IcmpError::NoRoute, instance);
                        self.defer_icmp_error(ue_packet, rules, routed.charge, error, burst)
                    }
                },
                RouteLookup::Fallback(reason) => self.unrouted(routed, to, *reason, burst),
            };
            self.counters.label(burst.tables, packet, outcome, octets, Some(rules));
        }
    }

    /// Routes one packet: in another network instance than the first one, or where everything goes
    /// to one next hop. In the latter case packets to UEs are found here, since no route says which
    /// they are.
    #[inline(never)]
    fn route_one<A: NetworkAddress>(
        &self,
        routed: &RoutedPacket,
        to: A,
        flow: u32,
        burst: BurstContext<'_>,
    ) -> RouteLookup {
        let route_source = self.ports.route_source(routed.instance, |role| role == Role::N6);
        let is_ue = |instance| burst.tables.owner(burst.turn, instance, to.into()).is_some();
        let instance = routed.instance.or(self.only_instance);
        match route_source {
            RouteSource::Fixed(_) if instance.is_some_and(is_ue) => {
                RouteLookup::Fallback(FallbackReason::Blackhole)
            }
            _ => route_source.next_hop(&self.routes, burst.turn, to.into(), flow),
        }
    }

    /// Forwards a packet to a next hop.
    #[inline(always)]
    pub(super) fn send_to_next_hop<A: NetworkAddress>(
        &mut self,
        classified: &ClassifiedPacket<'_>,
        routed: &RoutedPacket,
        hop: &NextHop,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        // Any other interface leads to networks that UEs must not reach.
        if self.ports.exit(hop.port, routed.instance, |role| role == Role::N6).is_none() {
            return Outcome::Drop(DropReason::NoRoute);
        }
        let ClassifiedPacket { ue_packet, session, rules, charge, .. } = *classified;
        if routed.length > hop.mtu {
            let instance = routed.instance.or(self.only_instance);
            return match may_fragment(ue_packet, packet) {
                None => Outcome::Drop(DropReason::TooLong),
                Some(true) => {
                    let RoutedPacket { marking, mask, .. } = *routed;
                    let room = hop.mtu.max(Ipv4::LENGTH as u32 + 8);
                    let (out, due) = (Egress::NextHop(*hop), routed.due());
                    let direction = Direction::Uplink;
                    let fragmentation = Fragmentation { out, room, due, direction, marking, mask };
                    self.defer_fragmentation(routed.ue_packet, fragmentation)
                }
                Some(false) => {
                    let error = DueIcmpError::new(IcmpError::TooLong(hop.mtu), instance);
                    self.defer_icmp_error(ue_packet, rules, charge, error, burst)
                }
            };
        }
        if let Err(outcome) = self.queue.charge(ue_packet, session, rules, charge, burst) {
            return outcome;
        }
        let inner = ue_packet.inner_mut(packet);
        if ue_packet.tunnel.is_some() {
            ip_header::decrement_ttl(inner);
        }
        if routed.mask != 0 {
            ip_header::mark(inner, routed.marking, routed.mask);
        }
        let (at, length) = (usize::from(ue_packet.at), routed.length as usize);
        match ip_header::send(packet, at, length, A::IPV6, hop) {
            true => Outcome::Forward(hop.port, DropReason::ForwardedUplink),
            false => Outcome::Drop(DropReason::NoFrame),
        }
    }

    /// Handles a packet without a route in the mirror: it may be another UE's.
    #[cold]
    fn unrouted<A: NetworkAddress>(
        &mut self,
        routed: &RoutedPacket,
        to: A,
        reason: FallbackReason,
        burst: BurstContext<'_>,
    ) -> Outcome {
        if let Some(instance) = routed.instance.or(self.only_instance)
            && burst.tables.owner(burst.turn, instance, to.into()).is_some()
        {
            let (ue_packet, due) = (routed.ue_packet, routed.due());
            self.queue.push(DeferredWork::ToUe { ue_packet, instance, due });
            return Outcome::Deferred;
        }
        Outcome::Drop(drop_reason_of(reason))
    }

    /// Returns true if packets to a network instance take the routes that Linux takes for them.
    /// Where the interface has a table of its own, Linux's rules do not lead there.
    fn is_routed_by_main(&self, instance: Option<InstanceId>) -> bool {
        let source = self.ports.route_source(instance, |role| role == Role::N6);
        matches!(source, RouteSource::Table(None | Some(MAIN_TABLE)))
    }

    /// Sends a packet by Linux, which resolves its neighbour. Linux receives the UE's packet in an
    /// Ethernet frame.
    #[cold]
    fn send_by_linux<A: NetworkAddress>(
        &mut self,
        ue_packet: &UePacket,
        routed: &RoutedPacket,
        to: A,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let ingress = self.routes.ingress(burst.turn, packet.port());
        // Linux would take a packet from an external address for a spoofed one of its own.
        let instance = routed.instance.or(self.only_instance).unwrap_or_default();
        let is_translated = !A::IPV6 && self.nat_of(instance).is_some();
        let is_its_route = self.is_routed_by_main(routed.instance) && !is_translated;
        let Some(ingress) = ingress.filter(A::is_forwarded).filter(|_| is_its_route) else {
            self.queue.push(DeferredWork::Resolve(to.into()));
            return Outcome::Drop(DropReason::NoNeighbour);
        };
        if let Err(outcome) = self.charge_later(ue_packet, routed.due(), packet, burst) {
            return outcome;
        }
        if routed.mask != 0 {
            ip_header::mark(ue_packet.inner_mut(packet), routed.marking, routed.mask);
        }
        let addresses = [ingress.mac, [2, 0, 0, 0, 0, 0]];
        let (at, length) = (usize::from(ue_packet.at), routed.length as usize);
        match ip_header::send_between(packet, at, length, A::IPV6, addresses) {
            true => Outcome::ForwardByLinux,
            false => Outcome::Drop(DropReason::NoNeighbour),
        }
    }

    /// Sends a packet to another UE of the same network instance. The sender's half of the path
    /// ends here and is charged. The packet goes to the lane of the other UE, even if it is this
    /// one, and is handled there as a packet from the data network. It travels behind an Ethernet
    /// header whose destination carries the network instance.
    pub(crate) fn send_to_ue(
        &mut self,
        ue_packet: &UePacket,
        instance: InstanceId,
        due: SessionCharge,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        if ue_packet.is_hairpin {
            // The receiving UE's rules forward it to a UE again.
            return Outcome::Drop(DropReason::Loop);
        }
        let Some(port) = self.ports.hairpin else { return Outcome::Drop(DropReason::NoHairpin) };
        let Some(inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let mut translation = None;
        if self.is_external(instance, inner.to()) {
            match self.translation(instance, ue_packet, due.session, packet, burst) {
                Ok(found) => translation = found,
                Err(reason) => return Outcome::Drop(reason),
            }
        } else if burst.tables.owner(burst.turn, instance, inner.to()).is_none() {
            return Outcome::Drop(DropReason::UnknownUser);
        }
        if let Err(outcome) = self.charge_later(ue_packet, due, packet, burst) {
            return outcome;
        }
        if let Some(translation) = translation {
            translation.write(ue_packet.inner_mut(packet));
        }
        burst.tables.count(DropReason::UserToUser, 1, u64::from(inner.length));
        ip_header::decrement_ttl(ue_packet.inner_mut(packet));
        let addresses = [port_map::between_ues(instance), [2, 0, 0, 0, 0, 0]];
        let (at, length) = (usize::from(ue_packet.at), inner.length as usize);
        match ip_header::send_between(packet, at, length, inner.is_v6, addresses) {
            true => Outcome::Forward(port, DropReason::ForwardedUplink),
            false => Outcome::Drop(DropReason::NoFrame),
        }
    }
}

/// Returns true if routers may fragment a packet; `None` if it is malformed.
#[cold]
fn may_fragment(ue_packet: &UePacket, packet: &Packet) -> Option<bool> {
    let inner = inner_packet::read(ue_packet.inner(packet.bytes()))?;
    Some(!inner.dont_fragment)
}
