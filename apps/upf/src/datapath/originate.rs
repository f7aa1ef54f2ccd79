//! Packets that this UPF originates: their egress, and copies of UE packets.

use fastlane::mirror::RouteLookup;

use super::classify::{Decision, Path};
use super::deferred_queue::DeferredWork;
use super::encap::{GtpuFields, TunnelRoute};
use super::forward::Forwarder;
use super::inner_packet::{self, InnerPacket};
use super::lane_tables::BurstContext;
use super::lookup::UePacket;
use super::next_hop::Egress;
use super::routes::{Routes, drop_reason_of};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;
use crate::session::{InstanceId, SessionIndex};

impl<R: Routes> Forwarder<R> {
    /// Finds the egress of the IP packet `ip` of this UPF to the UE: the rules of the first network
    /// instance of N6 that forward it. The instance that the original packet went to is not known
    /// here.
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
                break;
            }
        }
        out
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
        let (route, outer) = self.outer(inner.tos, &path, Direction::Downlink, burst.turn)?;
        if outer.length(route.endpoints) + ip.len() > route.hop.mtu as usize {
            return Err(DropReason::TooLong);
        }
        Ok((route, outer))
    }

    /// Finds the next hop of the IP packet `ip` of this UPF into the network that a packet came
    /// from.
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
            RouteLookup::Forward(hop) => Ok(Egress::NextHop(hop)),
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
