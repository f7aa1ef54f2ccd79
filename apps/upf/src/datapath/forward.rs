//! Forwards packets: into a tunnel, or into the batch of packets that are routed together. Packets
//! that this UPF originates find their egress here, too.

use std::net::IpAddr;

use fastlane::mirror::RouteLookup;
use fastlane::{Packet, Turn, wire};

use super::classify::{Action, Charge, Decision, Path};
use super::deferred_queue::{ControlPacket, DeferredQueue, DeferredWork, Fragmentation};
use super::dl_buffer::DlBuffer;
use super::encap::{self, GtpuFields, TunnelRoute};
use super::icmp::{DueIcmpError, IcmpError};
use super::inner_packet::{self, InnerPacket};
use super::lane_tables::BurstContext;
use super::lookup::{ClassifiedPacket, RouteBatches, RoutedPacket, SessionCharge, UePacket};
use super::nat::NatInterfaces;
use super::network_map::NetworkMap;
use super::next_hop::{Egress, NextHopCache, TunnelEndpoint};
use super::outcome::{ForwardedCounters, Outcome, forwarded};
use super::port_map::{PortMap, UePools};
use super::routes::{Routes, drop_reason_of};
use super::tunnel_fields::{congestion_to_relay, gtpu_fields, is_ip_hop, is_relayed};
use super::{charge, ip_header};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::session_rules::{Direction, Encapsulation, Rules};
use crate::session::{Destination, InstanceId, SessionIndex};

/// Forwarding and buffering of packets, as their FARs say.
pub(crate) struct Forwarder<R> {
    pub(crate) routes: R,
    pub(crate) ports: PortMap,
    pub(crate) pools: UePools,
    pub(crate) next_hops: NextHopCache,
    /// Network instances of N6.
    pub(crate) instances: Vec<InstanceId>,
    /// Network instance of N6 if there is exactly one.
    pub(crate) only_instance: Option<InstanceId>,
    /// Held downlink packets.
    pub(crate) buffer: DlBuffer,
    /// Work that is deferred until all packets of the batch are labelled.
    pub(crate) queue: DeferredQueue,
    /// NAT of N6, if an interface has it.
    pub(crate) nat: Option<NatInterfaces>,
    /// Packets forwarded in this batch.
    pub(crate) counters: ForwardedCounters,
}

/// A classified packet with its inner headers and the path that it takes.
pub(crate) struct PathPacket<'a> {
    pub(crate) classified: ClassifiedPacket<'a>,
    pub(crate) inner: &'a InnerPacket,
    pub(crate) path: &'a Path<'a>,
}

impl<R: Routes> Forwarder<R> {
    /// Exchanges what depends on the configuration with `map`, and forgets what followed from it.
    pub(crate) fn exchange(&mut self, map: &mut NetworkMap) {
        std::mem::swap(&mut self.ports, &mut map.ports);
        std::mem::swap(&mut self.pools, &mut map.pools);
        std::mem::swap(&mut self.instances, &mut map.instances);
        std::mem::swap(&mut self.only_instance, &mut map.only_instance);
        self.next_hops.clear();
    }

    /// Forwards a packet.
    #[inline(always)]
    pub(crate) fn forward(
        &mut self,
        path_packet: &PathPacket<'_>,
        packet: &mut Packet,
        routed: &mut RouteBatches,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let PathPacket { classified: ClassifiedPacket { ue_packet, .. }, path, .. } = path_packet;
        if let Some(tunnel) = &ue_packet.tunnel
            && tunnel.ecn == 3
            && !(is_relayed(ue_packet, path)
                || ip_header::copy_congestion(ue_packet.inner_mut(packet)))
        {
            return Outcome::Drop(DropReason::Congested);
        }
        match path.outer() {
            Some(header) => self.encapsulate_and_send(path_packet, header, packet, burst),
            None => self.route_later(path_packet, routed),
        }
    }

    /// Finds the tunnel route and the outer header of a packet with the inner type of service
    /// `tos`; an unresolved neighbour is requested.
    ///
    /// # Errors
    /// Returns the drop reason if the path adds no GTP-U header or its far end is unreachable.
    #[cold]
    pub(crate) fn outer(
        &mut self,
        tos: u8,
        path: &Path<'_>,
        direction: Direction,
        turn: &Turn,
    ) -> Result<(TunnelRoute, GtpuFields), DropReason> {
        let Some(header @ Encapsulation::Gtpu(_, teid)) = path.outer() else {
            return Err(DropReason::NoRoute);
        };
        let endpoint = TunnelEndpoint::of(path, header);
        match self.next_hops.to(&self.routes, &self.ports, turn, endpoint) {
            Ok(route) => Ok((*route, gtpu_fields(tos, path, teid, direction))),
            Err(reason) => {
                if reason == DropReason::NoNeighbour {
                    self.queue.push(DeferredWork::Resolve(endpoint.address));
                }
                Err(reason)
            }
        }
    }

    /// Encapsulates a packet and forwards it to the far end of the tunnel.
    #[inline(always)]
    fn encapsulate_and_send(
        &mut self,
        path_packet: &PathPacket<'_>,
        header: Encapsulation,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let PathPacket { classified, inner, path } = path_packet;
        let ClassifiedPacket { ue_packet, session, rules, direction, charge } = *classified;
        let Encapsulation::Gtpu(_, teid) = header else {
            return Outcome::Drop(DropReason::NoRoute);
        };
        let endpoint = TunnelEndpoint::of(path, header);
        let route = match self.next_hops.to(&self.routes, &self.ports, burst.turn, endpoint) {
            Ok(route) => route,
            Err(reason) if path.forwarding.destination() == Destination::Control => {
                let control = ControlPacket {
                    ue_packet: ue_packet.number,
                    is_relayed: is_relayed(ue_packet, path),
                    length: inner.length,
                    peer: endpoint.address,
                    outer: gtpu_fields(inner.tos, path, teid, direction),
                    due: SessionCharge { session, charge },
                };
                return self.send_to_control(control, reason);
            }
            Err(reason) => return self.unreachable(endpoint.address, reason),
        };
        let mut outer = gtpu_fields(inner.tos, path, teid, direction);
        let is_relayed = is_relayed(ue_packet, path);
        let (at, length) = match &ue_packet.tunnel {
            Some(tunnel) if is_relayed => {
                outer.tos |= congestion_to_relay(tunnel.ecn);
                (usize::from(tunnel.gtp), tunnel.length())
            }
            _ => (usize::from(ue_packet.at), inner.length as usize),
        };
        let front = match is_relayed {
            true => route.endpoints.ip_length() + wire::Udp::LENGTH,
            false => outer.length(route.endpoints),
        };
        if front + length > route.hop.mtu as usize {
            let overhead = (front + length) as u32 - inner.length;
            let room = route.hop.mtu.saturating_sub(overhead);
            if !inner.dont_fragment && !is_relayed {
                let (out, due) = (Egress::Tunnel(*route, outer), SessionCharge { session, charge });
                let fragmentation = Fragmentation::tunnelled(out, room, due, direction);
                return self.defer_fragmentation(ue_packet.number, fragmentation);
            }
            let error = DueIcmpError::new(IcmpError::TooLong(room), None);
            return self.defer_icmp_error(ue_packet, rules, charge, error, burst);
        }
        if !encap::has_room(packet, at, length, front) {
            return Outcome::Drop(DropReason::NoFrame);
        }
        if let Err(outcome) = self.queue.charge(ue_packet, session, rules, charge, burst) {
            return outcome;
        }
        if is_ip_hop(ue_packet, path) && !ue_packet.is_hairpin {
            ip_header::decrement_ttl(ue_packet.inner_mut(packet));
        }
        let fits = match is_relayed {
            true => encap::relay(packet, at, length, route, &outer),
            false => encap::encapsulate(packet, at, length, route, &outer),
        };
        match fits {
            true => Outcome::Forward(route.hop.port, forwarded(direction)),
            false => Outcome::Drop(DropReason::NoFrame),
        }
    }

    /// Forwards a packet without a tunnel: to another UE, or into the batch that is routed
    /// together.
    #[inline(always)]
    fn route_later(&mut self, path_packet: &PathPacket<'_>, routed: &mut RouteBatches) -> Outcome {
        let PathPacket { classified, inner, path } = path_packet;
        let ClassifiedPacket { ue_packet, session, charge, .. } = *classified;
        let ue_packet = ue_packet.number;
        let forwarding = path.forwarding;
        if !matches!(forwarding.destination(), Destination::Core | Destination::SgiLan) {
            return Outcome::Drop(DropReason::NoRoute);
        }
        let to = inner.to();
        if let Some(instance) = forwarding.instance().or(self.only_instance)
            && (self.pools.has(instance, to) || self.is_external(instance, to))
        {
            let due = SessionCharge { session, charge };
            self.queue.push(DeferredWork::ToUe { ue_packet, instance, due });
            return Outcome::Deferred;
        }
        let packet = RoutedPacket {
            ue_packet,
            session,
            charge,
            instance: forwarding.instance(),
            marking: forwarding.marking,
            mask: forwarding.mask,
            length: inner.length,
        };
        routed.push(packet, to, inner.flow_hash());
        Outcome::Routed
    }

    /// Has the slow path send a packet to a control plane function that no port leads to.
    #[cold]
    fn send_to_control(&mut self, control: ControlPacket, reason: DropReason) -> Outcome {
        let is_elsewhere = matches!(reason, DropReason::NoRoute | DropReason::Loop);
        if !is_elsewhere || self.ports.is_own(control.peer) {
            return self.unreachable(control.peer, reason);
        }
        self.queue.push(DeferredWork::ToControl(control));
        Outcome::Deferred
    }

    /// Drops a packet whose tunnel endpoint is unreachable now.
    #[cold]
    fn unreachable(&mut self, to: IpAddr, reason: DropReason) -> Outcome {
        if reason == DropReason::NoNeighbour {
            self.queue.push(DeferredWork::Resolve(to));
        }
        Outcome::Drop(reason)
    }

    /// Defers the fragmentation of a packet.
    #[cold]
    pub(crate) fn defer_fragmentation(
        &mut self,
        ue_packet: u8,
        fragmentation: Fragmentation,
    ) -> Outcome {
        self.queue.push(DeferredWork::Fragments { ue_packet, fragmentation });
        Outcome::Deferred
    }

    /// Defers an ICMP error for a packet that could leave otherwise.
    // Its parts, since a reference to all of them would keep each packet's in memory.
    #[cold]
    pub(crate) fn defer_icmp_error(
        &mut self,
        ue_packet: &UePacket,
        rules: &Rules,
        charge: Charge,
        due: DueIcmpError,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let Some(session) = ue_packet.session else {
            return Outcome::Drop(DropReason::UnknownUser);
        };
        // Quotas and meters may stop it, as far as is known.
        if let Some(reason) = burst.classifier(session, rules).is_stopped(charge) {
            return Outcome::Drop(reason);
        }
        let DueIcmpError { icmp_error, instance } = due;
        let ue_packet = ue_packet.number;
        self.queue.push(DeferredWork::IcmpError { ue_packet, icmp_error, instance });
        Outcome::Deferred
    }

    /// Charges a packet that leaves unchanged, after all packets of its batch are labelled.
    ///
    /// # Errors
    /// Returns the outcome if quota or rate are used up.
    pub(crate) fn charge_later(
        &mut self,
        ue_packet: &UePacket,
        due: SessionCharge,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let SessionCharge { session, charge } = due;
        let rules = burst.tables.rules(burst.turn, session);
        match rules.filter(|rules| rules.version() == charge.version()) {
            Some(rules) => self.queue.charge(ue_packet, session, rules, charge, burst),
            None => self.charge_by_current_rules(ue_packet, session, packet, burst),
        }
    }

    /// Charges by the current rules, since they changed after the packet was classified. The
    /// current rules decide whether it may leave, the former ones where to.
    #[cold]
    fn charge_by_current_rules(
        &mut self,
        ue_packet: &UePacket,
        session: SessionIndex,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Result<(), Outcome> {
        let rules = burst.tables.rules(burst.turn, session);
        let rules = rules.ok_or(Outcome::Drop(DropReason::UnknownUser))?;
        let malformed = Outcome::Drop(DropReason::Malformed);
        let inner = inner_packet::read(ue_packet.inner(packet.bytes())).ok_or(malformed)?;
        let fields = ue_packet.fields(&inner, &self.ports);
        let fields = fields.unwrap_or_else(|| ue_packet.returning_fields(&inner));
        let classifier = burst.classifier(session, rules);
        let decision = classifier.decide(&fields);
        let charged = match decision.action {
            Action::Hold(limits) => return Err(self.buffer.hold(session, rules, limits, burst)),
            Action::Drop(_) => decision.into(),
            Action::Forward(path) if path.redirects(decision.direction, &fields) => {
                return Err(Outcome::Drop(DropReason::Redirected));
            }
            Action::Forward(_) => classifier.charge(decision.charge),
        };
        if charged.events != 0 {
            let event = charge::event_of(ue_packet, session, rules.version(), &charged);
            let event = SessionEvent { dscp: inner.tos >> 2, ..event };
            self.queue.raise(event, burst);
        }
        charge::outcome(&charged)
    }

    /// Finds the egress of the IP packet `ip` of this UPF to the UE: the rules of the first network
    /// instance of N6 that forward it, or else of a tunnel from another UPF. The instance that the
    /// original packet went to is not known here.
    ///
    /// # Errors
    /// Returns the drop reason of the last instance if none forwards it.
    pub(crate) fn egress_to_ue(
        &mut self,
        burst: BurstContext<'_>,
        session: SessionIndex,
        ip: &[u8],
    ) -> Result<Egress, DropReason> {
        let mut out = Err(DropReason::UnknownUser);
        for index in 0..self.instances.len() {
            let instance = self.instances.get(index).copied();
            let tunnel = self.tunnel_to_session(burst, session, instance, ip);
            out = tunnel.map(|(route, outer)| Egress::Tunnel(route, outer));
            if out.is_ok() {
                return out;
            }
        }
        let tunnel = self.tunnel_through_session(burst, session, ip);
        tunnel.map_or(out, |(route, outer)| Ok(Egress::Tunnel(route, outer)))
    }

    /// Finds the tunnel of a packet of this UPF to the UE of a session. URRs and meters do not
    /// apply to it.
    fn tunnel_to_session(
        &mut self,
        burst: BurstContext<'_>,
        session: SessionIndex,
        instance: Option<InstanceId>,
        ip: &[u8],
    ) -> Result<(TunnelRoute, GtpuFields), DropReason> {
        let rules = burst.tables.rules(burst.turn, session).ok_or(DropReason::UnknownUser)?;
        let inner = inner_packet::read(ip).ok_or(DropReason::Malformed)?;
        let fields = inner.fields(None, instance.unwrap_or_default(), None);
        let path = burst.classifier(session, rules).own_path(&fields);
        let path = path.ok_or(DropReason::NoRule)?;
        self.fitting_tunnel(&inner, &path, burst.turn)
    }

    /// Finds the tunnel to the UE that packets from another UPF take.
    fn tunnel_through_session(
        &mut self,
        burst: BurstContext<'_>,
        session: SessionIndex,
        ip: &[u8],
    ) -> Option<(TunnelRoute, GtpuFields)> {
        let rules = burst.tables.rules(burst.turn, session)?;
        let classifier = burst.classifier(session, rules);
        let path = classifier.tunnel_path(classifier.downlink_tunnel()?)?;
        self.fitting_tunnel(&inner_packet::read(ip)?, &path, burst.turn).ok()
    }

    /// Finds the tunnel of a path for a packet of this UPF, which is not fragmented.
    fn fitting_tunnel(
        &mut self,
        inner: &InnerPacket,
        path: &Path<'_>,
        turn: &Turn,
    ) -> Result<(TunnelRoute, GtpuFields), DropReason> {
        let (route, outer) = self.outer(inner.tos, path, Direction::Downlink, turn)?;
        let length = outer.length(route.endpoints) + inner.length as usize;
        match length <= route.hop.mtu as usize {
            true => Ok((route, outer)),
            false => Err(DropReason::TooLong),
        }
    }

    /// Finds the next hop of the IP packet `ip` of this UPF into the network that a packet came
    /// from. A sender can forge an address in another network; it gets nothing there.
    ///
    /// # Errors
    /// Returns the drop reason if there is no route.
    pub(crate) fn egress_to_network(
        &self,
        burst: BurstContext<'_>,
        ue_packet: &UePacket,
        ip: &[u8],
    ) -> Result<Egress, DropReason> {
        let inner = inner_packet::read(ip).ok_or(DropReason::Malformed)?;
        let instance = Some(ue_packet.instance);
        let route_source = self.ports.route_source(instance, |role| role == Role::N6);
        let (to, flow) = (inner.to().ip(), inner.flow_hash());
        match route_source.next_hop(&self.routes, burst.turn, to, flow) {
            RouteLookup::Forward(hop) => {
                let exit = self.ports.exit(hop.port, instance, |role| role == Role::N6);
                exit.map(|_| Egress::NextHop(hop)).ok_or(DropReason::NoRoute)
            }
            RouteLookup::Fallback(reason) => Err(drop_reason_of(reason)),
        }
    }

    /// Defers the copies of a packet.
    #[cold]
    pub(crate) fn defer_copies(
        &mut self,
        ue_packet: u8,
        inner: &InnerPacket,
        decision: &Decision<'_>,
        burst: BurstContext<'_>,
    ) {
        let (tos, length) = (inner.tos, inner.length);
        for copy in decision.copies {
            let path = Path { forwarding: &copy.forwarding, peer6: &copy.peer6, redirect: None };
            let outer = self.outer(tos, &path, decision.direction, burst.turn).ok();
            // A copy is neither fragmented nor answered with an ICMP error.
            let fits = |(route, outer): &(TunnelRoute, GtpuFields)| {
                outer.length(route.endpoints) + length as usize <= route.hop.mtu as usize
            };
            match outer.filter(|to| fits(to) && self.queue.has_room_for_copies()) {
                Some((route, outer)) => {
                    self.queue.push(DeferredWork::Copy { ue_packet, length, route, outer })
                }
                None => burst.tables.count(DropReason::NotDuplicated, 1, u64::from(length)),
            }
        }
    }
}
