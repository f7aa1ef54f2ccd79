//! Applies the rules to each packet of a batch and labels it. Work that needs more than the packet
//! itself (new packets, messages) is deferred until all packets are labelled: see
//! [`deferred`](super::deferred).

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::table::EntryId;
use fastlane::wire::{Fragment, PduSession};
use fastlane::{HoldKey, Packet, PortId, Verdict};

use super::charge;
use super::classify::{self, Action, Charge, Decision, ForwardDecision};
use super::deferred::Deferred;
use super::dl_buffer::BufferedSession;
use super::forward::is_ip_hop;
use super::icmp::IcmpError;
use super::inner_packet::{self, InnerPacket};
use super::lane_tables::LaneTables;
use super::lookup::{Batch, PacketRules, RouteBatch, UePacket};
use super::next_hop::Routes;
use super::{BurstContext, Datapath};
use crate::config::Role;
use crate::rules::layout::counter_slots::{EVENTS, event};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::{Direction, Rules};
use crate::session::SessionIndex;

/// Result of applying the rules to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Forward as it is now, counted under this reason.
    Forward(PortId, DropReason),
    /// Routed together with other packets of the batch.
    Routed,
    /// Labelled by deferred work.
    Deferred,
    /// Held until the lane resumes the key.
    Hold(HoldKey),
    /// The packet is dropped.
    Drop(DropReason),
    /// Not claimed: goes to Linux.
    Linux,
    /// A UE's packet that Linux forwards, because its neighbour is not resolved yet.
    ForwardByLinux,
}

/// A classified packet and what its forwarding needs.
#[derive(Clone, Copy)]
pub(crate) struct PacketCase<'a> {
    /// The packet and its index in the batch.
    pub(crate) ue_packet: &'a UePacket,
    pub(crate) number: u8,
    /// The session and its rules.
    pub(crate) session: SessionIndex,
    pub(crate) rules: &'a Rules,
    pub(crate) direction: Direction,
    /// Charge that is due when the packet leaves.
    pub(crate) charge: Charge,
}

impl<R: Routes> Datapath<R> {
    /// Applies the rules to all packets of a batch.
    pub(super) fn apply_rules<'t>(
        &mut self,
        batch: &mut Batch,
        found: &mut PacketRules<'t>,
        packets: &mut [Packet],
        burst: BurstContext<'t>,
    ) {
        let Batch { count, ue_packets, four, six, .. } = batch;
        for (number, (ue_packet, rules)) in
            ue_packets.iter_mut().zip(found).take(*count).enumerate()
        {
            let Some(packet) = packets.get_mut(usize::from(ue_packet.place)) else { continue };
            let octets = packet.len() as u64;
            let number = number as u8;
            let outcome = self.outcome(number, ue_packet, rules, packet, (four, six), burst);
            self.label(burst.tables, packet, outcome, octets);
        }
    }

    /// Labels a packet and counts it.
    #[inline]
    pub(super) fn label(
        &mut self,
        tables: &LaneTables,
        packet: &mut Packet,
        outcome: Outcome,
        octets: u64,
    ) {
        let (verdict, reason) = match outcome {
            Outcome::Forward(port, reason) => (Verdict::Forward(port), reason),
            Outcome::Hold(key) => (Verdict::Hold(key), DropReason::Held),
            Outcome::Drop(reason) => (Verdict::Drop, reason),
            Outcome::Linux => (Verdict::Kernel, DropReason::NotOurs),
            Outcome::ForwardByLinux => (Verdict::Kernel, DropReason::ForwardedByLinux),
            // A safe label in case the deferred work is lost.
            Outcome::Routed | Outcome::Deferred => return packet.set_verdict(Verdict::Drop),
        };
        packet.set_verdict(verdict);
        match reason {
            DropReason::ForwardedUplink => self.sent.count(Direction::Uplink, octets),
            DropReason::ForwardedDownlink => self.sent.count(Direction::Downlink, octets),
            reason => tables.count(reason, 1, octets),
        }
    }

    /// Applies the rules to a packet. Most packets finish here.
    #[inline(always)]
    fn outcome<'t>(
        &mut self,
        number: u8,
        ue_packet: &mut UePacket,
        found: &mut Option<&'t Rules>,
        packet: &mut Packet,
        leaving: (&mut RouteBatch<Ipv4Addr>, &mut RouteBatch<Ipv6Addr>),
        burst: BurstContext<'t>,
    ) -> Outcome {
        if let Err(outcome) = self.find_session(number, ue_packet, found, packet, burst) {
            return outcome;
        }
        let ue_packet = &*ue_packet;
        let (Some(session), Some(rules)) = (ue_packet.session, *found) else {
            return Outcome::Drop(DropReason::UnknownUser);
        };
        let Some(inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let Some(qfi) = self.flow_of(ue_packet) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let teid = ue_packet.tunnel.map(|tunnel| tunnel.teid);
        let fields = inner.fields(teid, ue_packet.instance, qfi);
        if let Some(ForwardDecision { path, direction, charge }) =
            classify::decide_simple(rules, &fields)
            && self.held.is_empty()
            && inner.time_to_live > 1
        {
            let case = PacketCase { ue_packet, number, session, rules, direction, charge };
            return self.forward(case, &inner, &path, packet, leaving, burst);
        }
        self.apply_rules_slow(number, ue_packet, (session, rules), qfi, packet, leaving, burst)
    }

    /// Applies the rules to a packet that the short path does not handle.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "what is known of the packet by now")]
    fn apply_rules_slow(
        &mut self,
        number: u8,
        ue_packet: &UePacket,
        (session, rules): (SessionIndex, &Rules),
        qfi: Option<u8>,
        packet: &mut Packet,
        leaving: (&mut RouteBatch<Ipv4Addr>, &mut RouteBatch<Ipv6Addr>),
        burst: BurstContext<'_>,
    ) -> Outcome {
        let BurstContext { tables, turn, now } = burst;
        let Some(mut inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        if inner.fragment != Fragment::None && rules.has_blocks() {
            self.fragments.complete(session.0, &mut inner, now);
        }
        let teid = ue_packet.tunnel.map(|tunnel| tunnel.teid);
        let fields = inner.fields(teid, ue_packet.instance, qfi);
        let blocks = tables.blocks(turn);
        let decision = classify::decide(rules, &blocks, &fields, session, &tables.state, now);
        let Decision { direction, charge, .. } = decision;
        if decision.events != 0 {
            self.deferred.raise(ue_packet, inner.tos >> 2, session, rules, &decision.into(), burst);
        }
        if !self.held.is_empty() {
            self.resume_before(session, rules);
        }
        let path = match decision.action {
            Action::Forward(path) => path,
            Action::Drop(reason) => return Outcome::Drop(reason),
            Action::Hold(hold) => return self.hold(session, rules, hold, burst),
        };
        let case = PacketCase { ue_packet, number, session, rules, direction, charge };
        if path.redirects(direction, &fields) {
            return self.redirect(case, &inner, burst);
        }
        let path = match path.redirect {
            // From the redirect server: forwarded as if there were no redirection.
            Some(_) if direction == Direction::Downlink => {
                match classify::own_path(rules, &blocks, &fields, session) {
                    Some(path) => path,
                    None => return Outcome::Drop(DropReason::Redirected),
                }
            }
            _ => path,
        };
        if inner.time_to_live <= 1 && !ue_packet.is_hairpin && is_ip_hop(ue_packet, &path) {
            let (ue_packet, session, icmp_error) = (number, session, IcmpError::TimeExceeded);
            self.deferred.push(Deferred::IcmpError { ue_packet, session, icmp_error });
            return Outcome::Deferred;
        }
        let outcome = self.forward(case, &inner, &path, packet, leaving, burst);
        if !decision.copies.is_empty() && !matches!(outcome, Outcome::Drop(_)) {
            if matches!(outcome, Outcome::Routed | Outcome::Deferred) {
                // Copies are taken from the end, so padding behind the inner packet has to go.
                let _ = packet.truncate(usize::from(ue_packet.at) + inner.length as usize);
            }
            self.copy_later(number, &inner, &decision, burst);
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
        number: u8,
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
                    return Err(self.unknown_tunnel(number, packet, burst));
                }
                if !tunnel.is_understood {
                    self.deferred.push(Deferred::Notification { ue_packet: number });
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
        let BurstContext { tables, now, .. } = burst;
        if now >= self.error_indications_from && self.errors.has(now) {
            self.deferred.push(Deferred::ErrorIndication { ue_packet: number });
            return Outcome::Deferred;
        }
        tables.count(DropReason::ErrorIndicationSuppressed, 1, packet.len() as u64);
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
        match ue_packet.is_hairpin || self.pools.has(ue_packet.instance, to) {
            true => Err(Outcome::Drop(DropReason::UnknownUser)),
            false => Err(Outcome::Linux),
        }
    }

    /// Returns the QoS flow of the packet's PDU session container; `None` if the container is of
    /// the other direction.
    #[inline]
    pub(super) fn flow_of(&self, ue_packet: &UePacket) -> Option<Option<u8>> {
        let Some(tunnel) = &ue_packet.tunnel else { return Some(None) };
        let Some(container) = tunnel.pdu_session else { return Some(None) };
        let interface = self.ports.interfaces.get(usize::from(tunnel.interface));
        let is_n3 = interface.is_some_and(|interface| interface.role == Role::N3);
        (!is_n3 || container.pdu_type == PduSession::UPLINK).then_some(Some(container.qfi))
    }

    /// Resumes or discards the held packets of a session before this packet, if its rules have
    /// changed.
    #[cold]
    fn resume_before(&mut self, session: SessionIndex, rules: &Rules) {
        let Some(held) = self.held.get(session) else { return };
        if held.version != rules.version() {
            let look = held.look(Some(rules), u64::MAX);
            // Packets labelled just now are not held yet; the next turn resumes them.
            if !self.fresh.contains(&session.0) {
                self.held.remove(session);
            }
            self.deferred.push(Deferred::EndHold(session, look));
        }
    }

    /// Holds a packet if there is room.
    #[cold]
    pub(super) fn hold(
        &mut self,
        session: SessionIndex,
        rules: &Rules,
        hold: classify::HoldLimits,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let now = burst.now;
        let Some(key) = HoldKey::new(session.0) else {
            return Outcome::Drop(DropReason::HoldLimit);
        };
        let fresh = self.fresh.iter().filter(|held| **held == session.0).count();
        let most = usize::from(hold.packets);
        let mut until = now.saturating_add(u64::from(hold.ms) * 1_000_000);
        if let Some(before) = self.held.get(session) {
            until = before.until; // the limit runs from the first held packet
        }
        let held = BufferedSession { session, version: rules.version(), since: now, until };
        let is_full =
            burst.turn.held(key) + fresh >= most || self.fresh.len() == self.fresh.capacity();
        if is_full || until <= now || !self.held.add(held) {
            overflow(burst.tables, session, rules);
            return Outcome::Drop(DropReason::HoldLimit);
        }
        self.fresh.push(session.0);
        Outcome::Hold(key)
    }

    /// Defers an ICMP error for a packet that could leave otherwise.
    #[cold]
    pub(super) fn icmp_error(
        &mut self,
        case: PacketCase<'_>,
        icmp_error: IcmpError,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let PacketCase { number: ue_packet, session, rules, charge, .. } = case;
        if let Some(reason) = charge::is_stopped(session, rules, charge, burst) {
            return Outcome::Drop(reason);
        }
        self.deferred.push(Deferred::IcmpError { ue_packet, session, icmp_error });
        Outcome::Deferred
    }
}

/// Raises the overflow event, once per version of the rules.
#[cold]
fn overflow(tables: &LaneTables, session: SessionIndex, rules: &Rules) {
    let words = tables.state.at(EntryId(session.0));
    let (word, version) = (words.get(EVENTS), u64::from(rules.version()));
    let before = if word >> 32 == version { word & event::ALL } else { 0 };
    if before & event::OVERFLOW == 0 && !classify::is_later(word, rules.version()) {
        let new = before | event::OVERFLOW | word & event::MARKER;
        words.publish(EVENTS, version << 32 | new);
        tables.events.raise(EntryId(session.0));
    }
}
