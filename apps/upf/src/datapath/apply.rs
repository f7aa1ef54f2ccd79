//! Applies the rules to each packet of a batch and labels it. Work that needs more than the packet
//! itself (new packets, messages) is deferred until all packets are labelled: see
//! [`deferred`](super::deferred).

use fastlane::Packet;
use fastlane::wire::Fragment;

use super::Datapath;
use super::charge;
use super::classify::{self, Action, Decision, ForwardDecision};
use super::deferred_queue::DeferredWork;
use super::forward::PathPacket;
use super::icmp::IcmpError;
use super::inner_packet::{self, InnerPacket};
use super::lane_tables::BurstContext;
use super::lookup::{Batch, ClassifiedPacket, PacketRules, RouteBatches, UePacket};
use super::outcome::Outcome;
use super::routes::Routes;
use super::tunnel_fields::is_ip_hop;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::SessionEvent;
use crate::rules::layout::session_rules::{Direction, Rules};
use crate::session::SessionIndex;

impl<R: Routes> Datapath<R> {
    /// Applies the rules to all packets of a batch.
    pub(super) fn apply_rules<'t>(
        &mut self,
        batch: &mut Batch,
        found: &mut PacketRules<'t>,
        packets: &mut [Packet],
        burst: BurstContext<'t>,
    ) {
        let Batch { count, ue_packets, routed, .. } = batch;
        for (ue_packet, found) in ue_packets.iter_mut().zip(found).take(*count) {
            let Some(packet) = packets.get_mut(usize::from(ue_packet.position)) else { continue };
            let octets = packet.len() as u64;
            let outcome = self.outcome(ue_packet, found, packet, routed, burst);
            self.forwarder.counters.label(burst.tables, packet, outcome, octets, *found);
        }
    }

    /// Applies the rules to a packet. Most packets finish here.
    #[inline(always)]
    fn outcome<'t>(
        &mut self,
        ue_packet: &mut UePacket,
        found: &mut Option<&'t Rules>,
        packet: &mut Packet,
        routed: &mut RouteBatches,
        burst: BurstContext<'t>,
    ) -> Outcome {
        if let Err(outcome) = self.find_session(ue_packet, found, packet, burst) {
            return outcome;
        }
        let ue_packet = &*ue_packet;
        let (Some(session), Some(rules)) = (ue_packet.session, *found) else {
            return Outcome::Drop(DropReason::UnknownUser);
        };
        if !rules.has_blocks_for(ue_packet.usual_direction())
            && let Some(inner) = inner_packet::read_usual(ue_packet.inner(packet.bytes()))
            && let Some(fields) = ue_packet.fields(&inner, &self.forwarder.ports)
            && let Some(ForwardDecision { path, direction, charge }) =
                classify::decide_simple(rules, &fields)
            && self.forwarder.buffer.is_empty()
            && inner.time_to_live > 1
        {
            let classified = ClassifiedPacket { ue_packet, session, rules, direction, charge };
            let path_packet = PathPacket { classified, inner: &inner, path: &path };
            return self.forwarder.forward(&path_packet, packet, routed, burst);
        }
        self.apply_blocks(ue_packet, rules, packet, routed, burst)
    }

    /// Applies rules in blocks to a packet. Most packets of sessions with blocks finish here.
    #[inline(never)]
    fn apply_blocks(
        &mut self,
        ue_packet: &UePacket,
        rules: &Rules,
        packet: &mut Packet,
        routed: &mut RouteBatches,
        burst: BurstContext<'_>,
    ) -> Outcome {
        if rules.has_blocks_for(ue_packet.usual_direction())
            && let Some(session) = ue_packet.session
            && let Some(inner) = inner_packet::read_usual(ue_packet.inner(packet.bytes()))
            && let Some(fields) = ue_packet.fields(&inner, &self.forwarder.ports)
            && let Some(ForwardDecision { path, direction, charge }) =
                burst.classifier(session, rules).decide_by_block(&fields)
            && self.forwarder.buffer.is_empty()
            && inner.time_to_live > 1
        {
            let classified = ClassifiedPacket { ue_packet, session, rules, direction, charge };
            let path_packet = PathPacket { classified, inner: &inner, path: &path };
            return self.forwarder.forward(&path_packet, packet, routed, burst);
        }
        self.apply_rules_slow(ue_packet, rules, packet, routed, burst)
    }

    /// Applies the rules to a packet that the short path does not handle.
    #[inline(never)]
    fn apply_rules_slow(
        &mut self,
        ue_packet: &UePacket,
        rules: &Rules,
        packet: &mut Packet,
        routed: &mut RouteBatches,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let forwarder = &mut self.forwarder;
        let Some(session) = ue_packet.session else {
            return Outcome::Drop(DropReason::UnknownUser);
        };
        let Some(mut inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        if inner.fragment != Fragment::None && rules.has_blocks() {
            self.fragments.complete(session.0, &mut inner, burst.now);
        }
        let classifier = burst.classifier(session, rules);
        let fields = match ue_packet.fields(&inner, &forwarder.ports) {
            Some(fields) => fields,
            None if ue_packet.returns(&classifier) => ue_packet.returning_fields(&inner),
            None => return Outcome::Drop(DropReason::Malformed),
        };
        let decision = classifier.decide(&fields);
        let Decision { direction, charge, .. } = decision;
        if decision.events != 0 {
            let event = charge::event_of(ue_packet, session, rules.version(), &decision.into());
            let event = SessionEvent { dscp: inner.tos >> 2, ..event };
            forwarder.queue.raise(event, burst);
        }
        if !forwarder.buffer.is_empty()
            && let Some(decision) = forwarder.buffer.decide_before(session, rules)
        {
            forwarder.queue.push(DeferredWork::EndHold(session, decision));
        }
        let path = match decision.action {
            Action::Forward(path) => path,
            Action::Drop(reason) => return Outcome::Drop(reason),
            Action::Hold(limits) => return forwarder.hold(ue_packet, rules, limits, packet, burst),
        };
        if path.redirects(direction, &fields) {
            return self.http.redirect(ue_packet, direction, &inner, &mut forwarder.queue, burst);
        }
        let path = match path.redirect {
            // From the redirect server: forwarded as if there were no redirection.
            Some(_) if direction == Direction::Downlink => match classifier.own_path(&fields) {
                Some(path) => path,
                None => return Outcome::Drop(DropReason::Redirected),
            },
            _ => path,
        };
        if inner.time_to_live <= 1 && !ue_packet.is_hairpin && is_ip_hop(ue_packet, &path) {
            let (ue_packet, icmp_error) = (ue_packet.number, IcmpError::TimeExceeded);
            let instance = path.forwarding.instance().or(forwarder.only_instance);
            forwarder.queue.push(DeferredWork::IcmpError { ue_packet, icmp_error, instance });
            return Outcome::Deferred;
        }
        let classified = ClassifiedPacket { ue_packet, session, rules, direction, charge };
        let path_packet = PathPacket { classified, inner: &inner, path: &path };
        let outcome = forwarder.forward(&path_packet, packet, routed, burst);
        if !decision.copies.is_empty() && !matches!(outcome, Outcome::Drop(_)) {
            if matches!(outcome, Outcome::Routed | Outcome::Deferred) {
                // Copies are taken from the end, so padding behind the inner packet has to go.
                let _ = packet.truncate(usize::from(ue_packet.at) + inner.length as usize);
            }
            forwarder.defer_copies(ue_packet.number, &inner, &decision, burst);
        }
        outcome
    }

    /// Finds the session of a packet if it is not known yet.
    ///
    /// # Errors
    /// Returns the outcome of a packet without a session.
    #[inline(always)]
    fn find_session<'t>(
        &mut self,
        ue_packet: &mut UePacket,
        found: &mut Option<&'t Rules>,
        packet: &Packet,
        burst: BurstContext<'t>,
    ) -> Result<(), Outcome> {
        let BurstContext { tables, turn, .. } = burst;
        match &ue_packet.tunnel {
            Some(tunnel) => {
                let blocks = tables.blocks(turn);
                let has_tunnel = |rules: &Rules| classify::has_tunnel(rules, &blocks, tunnel.teid);
                if !found.is_some_and(has_tunnel) {
                    let by = tables.by_other_tunnel(turn, tunnel.teid);
                    (ue_packet.session, *found) = by.unzip();
                }
                if found.is_none() {
                    return Err(self.unknown_tunnel(ue_packet.number, packet, burst));
                }
                if !tunnel.is_understood {
                    let ue_packet = ue_packet.number;
                    self.forwarder.queue.push(DeferredWork::Notification { ue_packet });
                    return Err(Outcome::Deferred);
                }
            }
            None if ue_packet.session.is_none() => {
                let session = self.by_address(ue_packet, packet, burst)?;
                (ue_packet.session, *found) = (Some(session), tables.rules(turn, session));
            }
            None => {}
        }
        Ok(())
    }

    /// Handles a packet for an unknown tunnel. Packets beyond the rate limit are dropped at once.
    #[inline(never)]
    fn unknown_tunnel(&mut self, number: u8, packet: &Packet, burst: BurstContext<'_>) -> Outcome {
        if self.gtpu.may_send_error_indication(burst.now) {
            self.forwarder.queue.push(DeferredWork::ErrorIndication { ue_packet: number });
            return Outcome::Deferred;
        }
        let octets = packet.len() as u64;
        burst.tables.count(DropReason::ErrorIndicationSuppressed, 1, octets);
        Outcome::Drop(DropReason::UnknownTunnel)
    }

    /// Finds the session of an IP packet by the networks behind UEs, or returns the packet's
    /// outcome.
    #[inline(never)]
    fn by_address(
        &self,
        ue_packet: &UePacket,
        packet: &Packet,
        burst: BurstContext<'_>,
    ) -> Result<SessionIndex, Outcome> {
        let inner = inner_packet::read(ue_packet.inner(packet.bytes()));
        let Some(to) = inner.as_ref().map(InnerPacket::to) else { return Err(Outcome::Linux) };
        if let Some(session) = burst.tables.behind(burst.turn, ue_packet.instance, to) {
            return Ok(session);
        }
        // Linux has no route to it and would answer with ICMP errors.
        match ue_packet.is_hairpin || self.forwarder.pools.has(ue_packet.instance, to) {
            true => Err(Outcome::Drop(DropReason::UnknownUser)),
            false => Err(Outcome::Linux),
        }
    }
}
