//! Egress of packets without a tunnel, to the data network: they are routed together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, NextHop, RouteLookup};
use fastlane::mirror::{IngressInterface, ReversePath};
use fastlane::wire::Ipv4;
use fastlane::{Packet, Turn};

use super::apply::{Outcome, PacketCase};
use super::charge::SessionCharge;
use super::deferred::{Deferred, Egress};
use super::forward::inner_mut;
use super::icmp::IcmpError;
use super::inner_packet;
use super::ip_header;
use super::lane_tables::DestinationAddress;
use super::lookup::{Batch, PacketRules, RouteBatch, RoutedPacket, UePacket};
use super::next_hop::{Routes, drop_reason_of};
use super::port_map::RouteSource;
use super::{BurstContext, Datapath};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Direction, Rules};

/// An IP version, by its address type.
pub(crate) trait Family: Copy + Into<IpAddr> {
    /// True for IPv6.
    const IS_V6: bool;

    /// Routes all packets of a batch.
    fn next_hops<R: Routes>(
        routes: &R,
        turn: &Turn,
        table: Option<u32>,
        leaving: &mut RouteBatch<Self>,
    );

    /// Returns the address as a destination.
    fn to(self) -> DestinationAddress;

    /// Returns true if Linux forwards packets that arrive there, whatever their source.
    fn is_forwarded(entrance: &IngressInterface) -> bool;
}

impl Family for Ipv4Addr {
    const IS_V6: bool = false;

    fn next_hops<R: Routes>(
        routes: &R,
        turn: &Turn,
        table: Option<u32>,
        leaving: &mut RouteBatch<Self>,
    ) {
        let count = leaving.count;
        let (to, flows) = (&leaving.to[..count], &leaving.flows[..count]);
        routes.next_hops4(turn, table, to, flows, &mut leaving.answers[..count]);
    }

    fn to(self) -> DestinationAddress {
        DestinationAddress::V4(self)
    }

    fn is_forwarded(entrance: &IngressInterface) -> bool {
        // The UE pools are blackhole routes, so a reverse path check in Linux would drop the
        // packet.
        entrance.forwards4 && entrance.reverse_path == ReversePath::Any
    }
}

impl Family for Ipv6Addr {
    const IS_V6: bool = true;

    fn next_hops<R: Routes>(
        routes: &R,
        turn: &Turn,
        table: Option<u32>,
        leaving: &mut RouteBatch<Self>,
    ) {
        let count = leaving.count;
        let (to, flows) = (&leaving.to[..count], &leaving.flows[..count]);
        routes.next_hops6(turn, table, to, flows, &mut leaving.answers[..count]);
    }

    fn to(self) -> DestinationAddress {
        DestinationAddress::V6(self)
    }

    fn is_forwarded(entrance: &IngressInterface) -> bool {
        entrance.forwards6
    }
}

impl<R: Routes> Datapath<R> {
    /// Forwards all packets of the batch that leave without a tunnel.
    #[inline]
    pub(super) fn route_all(
        &mut self,
        batch: &mut Batch,
        found: &PacketRules<'_>,
        packets: &mut [Packet],
        burst: BurstContext<'_>,
    ) {
        let Batch { ue_packets, four, six, .. } = batch;
        if four.count > 0 {
            self.route_batch((ue_packets, found), four, packets, burst);
        }
        if six.count > 0 {
            self.route_batch((ue_packets, found), six, packets, burst);
        }
    }

    fn route_batch<A: Family>(
        &mut self,
        (ue_packets, found): (&[UePacket], &PacketRules<'_>),
        leaving: &mut RouteBatch<A>,
        packets: &mut [Packet],
        burst: BurstContext<'_>,
    ) {
        let first = leaving.packets[0].instance;
        let mut is_fixed = true;
        if let RouteSource::Table(table) = self.ports.route_source(first, |role| role == Role::N6) {
            is_fixed = false;
            A::next_hops(&self.routes, burst.turn, table, leaving);
        }
        for at in 0..leaving.count {
            let plain = &leaving.packets[at];
            let Some(ue_packet) = ue_packets.get(usize::from(plain.ue_packet)) else { continue };
            let Some(rules) = found.get(usize::from(plain.ue_packet)).copied().flatten() else {
                continue;
            };
            let Some(packet) = packets.get_mut(usize::from(ue_packet.place)) else { continue };
            let octets = packet.len() as u64;
            let other;
            let mut answer = &leaving.answers[at];
            if plain.instance != first || is_fixed {
                other = self.route_one(plain, leaving.to[at], leaving.flows[at], burst);
                answer = &other;
            }
            let outcome = match answer {
                RouteLookup::Forward(hop) => {
                    self.send_to_next_hop::<A>(ue_packet, plain, rules, hop, packet, burst)
                }
                RouteLookup::Fallback(reason) => {
                    self.unrouted(ue_packet, plain, leaving.to[at], *reason, packet, burst)
                }
            };
            self.label(burst.tables, packet, outcome, octets);
        }
    }

    /// Routes one packet: in another network instance than the first one, or where everything goes
    /// to one next hop. In the latter case packets to UEs are found here, since no route says which
    /// they are.
    #[inline(never)]
    fn route_one<A: Family>(
        &self,
        plain: &RoutedPacket,
        to: A,
        flow: u32,
        burst: BurstContext<'_>,
    ) -> RouteLookup {
        let route_source = self.ports.route_source(plain.instance, |role| role == Role::N6);
        let is_ue =
            |instance| burst.tables.owner(burst.turn, &to.to().key(instance), to.to()).is_some();
        let instance = plain.instance.or(self.only_instance);
        match route_source {
            RouteSource::Fixed(_) if instance.is_some_and(is_ue) => {
                RouteLookup::Fallback(FallbackReason::Blackhole)
            }
            _ => route_source.next_hop(&self.routes, burst.turn, to.into(), flow),
        }
    }

    /// Forwards a packet to a next hop.
    #[inline(always)]
    fn send_to_next_hop<A: Family>(
        &mut self,
        ue_packet: &UePacket,
        plain: &RoutedPacket,
        rules: &Rules,
        hop: &NextHop,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        // Any other interface leads to networks that UEs must not reach.
        if self.ports.exit(hop.port, plain.instance, |role| role == Role::N6).is_none() {
            return Outcome::Drop(DropReason::NoRoute);
        }
        if plain.length > hop.mtu {
            return self.too_long(ue_packet, plain, rules, hop, packet, burst);
        }
        let charged = self.deferred.charge(ue_packet, plain.session, rules, plain.charge, burst);
        if let Err(outcome) = charged {
            return outcome;
        }
        let inner = inner_mut(packet, ue_packet);
        if ue_packet.tunnel.is_some() {
            ip_header::decrement_ttl(inner);
        }
        if plain.mask != 0 {
            ip_header::mark(inner, plain.marking, plain.mask);
        }
        match ip_header::send(
            packet,
            usize::from(ue_packet.at),
            plain.length as usize,
            A::IS_V6,
            hop,
        ) {
            true => Outcome::Forward(hop.port, DropReason::ForwardedUplink),
            false => Outcome::Drop(DropReason::NoFrame),
        }
    }

    #[cold]
    fn too_long(
        &mut self,
        ue_packet: &UePacket,
        plain: &RoutedPacket,
        rules: &Rules,
        hop: &NextHop,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let Some(inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::TooLong);
        };
        let RoutedPacket { ue_packet: number, session, charge, .. } = *plain;
        if !inner.dont_fragment {
            let room = hop.mtu.max(Ipv4::LENGTH as u32 + 8);
            return self.defer_fragmentation(
                number,
                SessionCharge { session, charge },
                Egress::NextHop(*hop),
                room,
            );
        }
        let case =
            PacketCase { ue_packet, number, session, rules, direction: Direction::Uplink, charge };
        self.icmp_error(case, IcmpError::TooLong(hop.mtu), burst)
    }

    /// Handles a packet without a route in the mirror: it may be another UE's, or Linux has to
    /// resolve its neighbour. Linux receives the UE's packet unchanged in an Ethernet frame.
    #[cold]
    fn unrouted<A: Family>(
        &mut self,
        ue_packet: &UePacket,
        plain: &RoutedPacket,
        to: A,
        reason: FallbackReason,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let instance = plain.instance.or(self.only_instance);
        if reason != FallbackReason::NoNeighbour
            && let Some(instance) = instance
            && burst.tables.owner(burst.turn, &to.to().key(instance), to.to()).is_some()
        {
            let RoutedPacket { ue_packet, session, charge, .. } = *plain;
            self.deferred.push(Deferred::ToUe { ue_packet, instance, session, charge });
            return Outcome::Deferred;
        }
        if reason != FallbackReason::NoNeighbour {
            return Outcome::Drop(drop_reason_of(reason));
        }
        let entrance = self.routes.ingress(burst.turn, packet.port());
        let Some(entrance) = entrance.filter(A::is_forwarded) else {
            self.deferred.push(Deferred::Resolve(to.into()));
            return Outcome::Drop(DropReason::NoNeighbour);
        };
        let charged = self.charge_later(ue_packet, plain.session, plain.charge, packet, burst);
        if let Err(outcome) = charged {
            return outcome;
        }
        let addresses = [entrance.mac, [2, 0, 0, 0, 0, 0]];
        let (at, length) = (usize::from(ue_packet.at), plain.length as usize);
        match ip_header::send_between(packet, at, length, A::IS_V6, addresses) {
            true => Outcome::ForwardByLinux,
            false => Outcome::Drop(DropReason::NoNeighbour),
        }
    }
}
