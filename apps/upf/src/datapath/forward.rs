//! Forwards packets: into a tunnel, or into the batch of packets that are routed together.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::{Packet, Turn};

use super::apply::{Outcome, PacketCase};
use super::charge::SessionCharge;
use super::classify::Path;
use super::deferred::{Deferred, Egress};
use super::encap::{self, Container, GtpuFields, TunnelRoute};
use super::gtpu_control::peer_of;
use super::icmp::IcmpError;
use super::inner_packet::InnerPacket;
use super::ip_header;
use super::lane_tables::DestinationAddress;
use super::lookup::{RouteBatch, RoutedPacket, UePacket};
use super::next_hop::Routes;
use super::{BurstContext, Datapath};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Direction, Encapsulation};
use crate::session::{Destination, InstanceId};

impl<R: Routes> Datapath<R> {
    /// Forwards a packet.
    #[inline(always)]
    pub(super) fn forward(
        &mut self,
        case: PacketCase<'_>,
        inner: &InnerPacket,
        path: &Path<'_>,
        packet: &mut Packet,
        (four, six): (&mut RouteBatch<Ipv4Addr>, &mut RouteBatch<Ipv6Addr>),
        burst: BurstContext<'_>,
    ) -> Outcome {
        let ue_packet = case.ue_packet;
        if let Some(tunnel) = &ue_packet.tunnel
            && tunnel.ecn == 3
            && !(is_relayed(ue_packet, path)
                || ip_header::copy_congestion(inner_mut(packet, ue_packet)))
        {
            return Outcome::Drop(DropReason::Congested);
        }
        match path.outer() {
            Some(put) => self.encapsulate_and_send(case, inner, path, put, packet, burst),
            None => self.route_later(case, inner, path, four, six),
        }
    }

    /// Finds the tunnel route and the outer header of a packet; an unresolved neighbour is
    /// requested.
    #[cold]
    pub(super) fn outer(
        &mut self,
        tos: u8,
        path: &Path<'_>,
        put: Encapsulation,
        direction: Direction,
        turn: &Turn,
    ) -> Result<(TunnelRoute, GtpuFields), DropReason> {
        let Encapsulation::Gtpu(_, teid) = put else { return Err(DropReason::NoRoute) };
        let (to, instance) = (peer_of(put), instance_of(path));
        match self.next_hops.to(&self.routes, &self.ports, turn, instance, to) {
            Ok(route) => Ok((*route, outer(tos, path, teid, direction))),
            Err(reason) => {
                if reason == DropReason::NoNeighbour {
                    self.deferred.push(Deferred::Resolve(to));
                }
                Err(reason)
            }
        }
    }

    /// Encapsulates a packet and forwards it to the far end of the tunnel.
    #[inline(always)]
    fn encapsulate_and_send(
        &mut self,
        case: PacketCase<'_>,
        inner: &InnerPacket,
        path: &Path<'_>,
        put: Encapsulation,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let PacketCase { ue_packet, session, rules, direction, charge, .. } = case;
        let Encapsulation::Gtpu(_, teid) = put else { return Outcome::Drop(DropReason::NoRoute) };
        let (to, instance) = (peer_of(put), instance_of(path));
        let route = match self.next_hops.to(&self.routes, &self.ports, burst.turn, instance, to) {
            Ok(route) => route,
            Err(reason) => return self.unreachable(to, reason),
        };
        let outer = outer(inner.tos, path, teid, direction);
        let is_relayed = is_relayed(ue_packet, path);
        let (at, length) = match &ue_packet.tunnel {
            Some(tunnel) if is_relayed => (usize::from(tunnel.gtp), tunnel.length()),
            _ => (usize::from(ue_packet.at), inner.length as usize),
        };
        let front = match is_relayed {
            true => route.endpoints.ip_length() + fastlane::wire::Udp::LENGTH,
            false => outer.length(route.endpoints),
        };
        if front + length > route.hop.mtu as usize {
            let overhead = (front + length) as u32 - inner.length;
            let room = route.hop.mtu.saturating_sub(overhead);
            if !inner.dont_fragment && !is_relayed {
                let out = Egress::Tunnel(*route, outer);
                return self.defer_fragmentation(
                    case.number,
                    SessionCharge { session, charge },
                    out,
                    room,
                );
            }
            return self.icmp_error(case, IcmpError::TooLong(room), burst);
        }
        if !encap::has_room(packet, at, length, front) {
            return Outcome::Drop(DropReason::NoFrame);
        }
        if let Err(outcome) = self.deferred.charge(ue_packet, session, rules, charge, burst) {
            return outcome;
        }
        if is_ip_hop(ue_packet, path) && !ue_packet.is_hairpin {
            ip_header::decrement_ttl(inner_mut(packet, ue_packet));
        }
        let fits = match is_relayed {
            true => encap::relay(packet, at, length, route, &outer),
            false => encap::encapsulate(packet, at, length, route, &outer),
        };
        match fits {
            true => Outcome::Forward(route.hop.port, sent(direction)),
            false => Outcome::Drop(DropReason::NoFrame),
        }
    }

    /// Forwards a packet without a tunnel: to another UE, or into the batch that is routed
    /// together.
    #[inline(always)]
    fn route_later(
        &mut self,
        case: PacketCase<'_>,
        inner: &InnerPacket,
        path: &Path<'_>,
        four: &mut RouteBatch<Ipv4Addr>,
        six: &mut RouteBatch<Ipv6Addr>,
    ) -> Outcome {
        let (forwarding, ue_packet) = (path.forwarding, case.number);
        if !matches!(forwarding.destination(), Destination::Core | Destination::SgiLan) {
            return Outcome::Drop(DropReason::NoRoute);
        }
        let to = inner.to();
        let PacketCase { session, charge, .. } = case;
        if let Some(instance) = forwarding.instance().or(self.only_instance)
            && self.pools.has(instance, to)
        {
            self.deferred.push(Deferred::ToUe { ue_packet, instance, session, charge });
            return Outcome::Deferred;
        }
        let plain = RoutedPacket {
            ue_packet,
            session,
            charge,
            instance: forwarding.instance(),
            marking: forwarding.marking,
            mask: forwarding.mask,
            length: inner.length,
        };
        let flow = inner.flow_hash();
        match to {
            DestinationAddress::V4(to) => four.push(plain, to, flow),
            DestinationAddress::V6(to) => six.push(plain, to, flow),
        }
        Outcome::Routed
    }

    /// Drops a packet whose tunnel endpoint is unreachable now.
    #[cold]
    fn unreachable(&mut self, to: IpAddr, reason: DropReason) -> Outcome {
        if reason == DropReason::NoNeighbour {
            self.deferred.push(Deferred::Resolve(to));
        }
        Outcome::Drop(reason)
    }
}

/// Builds the per-packet fields of the outer header.
#[inline(always)]
fn outer(tos: u8, path: &Path<'_>, teid: u32, direction: Direction) -> GtpuFields {
    let forwarding = path.forwarding;
    let container = match (forwarding.qfi(), direction) {
        (None, _) => Container::NONE,
        (Some(qfi), Direction::Downlink) => {
            Container::downlink(qfi, forwarding.is_reflective(), forwarding.paging_policy())
        }
        (Some(qfi), Direction::Uplink) => Container::uplink(qfi),
    };
    GtpuFields { tos: forwarding.marked(tos), teid, container }
}

/// Returns the network instance that packets of a tunnel leave in, if one was named.
#[inline(always)]
fn instance_of(path: &Path<'_>) -> Option<InstanceId> {
    match path.forwarding.destination() {
        Destination::Control => None,
        _ => path.forwarding.instance(),
    }
}

/// Returns the counter of forwarded packets of a direction.
pub(crate) const fn sent(direction: Direction) -> DropReason {
    match direction {
        Direction::Uplink => DropReason::ForwardedUplink,
        Direction::Downlink => DropReason::ForwardedDownlink,
    }
}

/// Returns true if a GTP-U message is relayed with its extension headers: between tunnels, unless
/// the rules remove or replace its container.
#[inline]
pub(crate) fn is_relayed(ue_packet: &UePacket, path: &Path<'_>) -> bool {
    let forwarding = path.forwarding;
    ue_packet.tunnel.is_some()
        && matches!(path.outer(), Some(Encapsulation::Gtpu(..)))
        && forwarding.qfi().is_none()
        && !forwarding.removes_extension()
}

/// Returns true if this UPF is an IP hop of the packet: decapsulated or encapsulated, but not both.
/// Between tunnels the inner packet is not changed (TS 23.501 clause 5.6.4: the UE's IP link ends
/// at the anchor).
#[inline]
pub(crate) fn is_ip_hop(ue_packet: &UePacket, path: &Path<'_>) -> bool {
    ue_packet.tunnel.is_some() != path.outer().is_some()
}

/// Returns the inner packet for modification.
#[inline]
pub(crate) fn inner_mut<'a>(packet: &'a mut Packet, ue_packet: &UePacket) -> &'a mut [u8] {
    let range = usize::from(ue_packet.at)..ue_packet.end as usize;
    packet.bytes_mut().get_mut(range).unwrap_or_default()
}
