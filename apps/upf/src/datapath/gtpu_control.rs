//! GTP-U messages without user data, and messages from the slow path.

use std::net::IpAddr;

use fastlane::wire::{GtpMessageType, GtpU};
use fastlane::{Packet, Turn, Verdict};
use zerocopy::FromBytes;

use super::apply::Outcome;
use super::classify::{self, Path};
use super::encap::{self, Endpoints, TunnelRoute};
use super::gtpu_message::{self, GtpuMessage};
use super::lane_tables::LaneTables;
use super::next_hop::Routes;
use super::outer_header::GtpuPacket;
use super::{BurstContext, Datapath};
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::{PathMessage, SessionEvent, kind};
use crate::rules::layout::session_rules::{
    CHAIN, Encapsulation, PeerAddress, Rules, flag, forwarding,
};
use crate::session::SessionIndex;

/// A message from the slow path.
enum ControlMessage {
    RulesChanged(SessionIndex),
    EchoRequest(PathMessage),
    Unknown,
}

impl<R: Routes> Datapath<R> {
    /// Handles a GTP-U message without user data.
    #[cold]
    pub(super) fn control(
        &mut self,
        tables: &LaneTables,
        tunnel: &GtpuPacket,
        packet: &mut Packet,
        turn: &mut Turn,
    ) {
        let octets = packet.len() as u64;
        let outcome = match tunnel.message_type {
            GtpMessageType::ECHO_REQUEST => self.echo(tables, tunnel, packet, turn),
            GtpMessageType::ECHO_RESPONSE => self.echo_response(tunnel, packet, turn),
            GtpMessageType::ERROR_INDICATION => self.error_indication(tunnel, packet, turn),
            GtpMessageType::END_MARKER => self.end_marker(tables, tunnel, packet, turn),
            _ => Outcome::Drop(DropReason::GtpMessage),
        };
        self.label(tables, packet, outcome, octets);
        if std::mem::take(&mut self.reflects) {
            packet.set_verdict(Verdict::Reflect);
        }
    }

    /// Answers an echo request, to its source port (TS 29.281 clauses 4.4.2.2, 7.2.1).
    fn echo(
        &mut self,
        tables: &LaneTables,
        tunnel: &GtpuPacket,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let sequence = tunnel.sequence;
        let octets = packet.len() as u64;
        let is_answered = self.echoes.take(turn.now())
            && gtpu_message::answer(
                packet,
                tunnel,
                tunnel.source_port,
                &GtpuMessage::echo_response(sequence),
            );
        if !is_answered {
            return Outcome::Drop(DropReason::EchoSuppressed);
        }
        self.reflects = true;
        tables.count(DropReason::EchoAnswered, 1, octets);
        Outcome::Deferred // labelled and counted already
    }

    /// Passes the response to an echo request on to the slow path.
    fn echo_response(&mut self, tunnel: &GtpuPacket, packet: &Packet, turn: &mut Turn) -> Outcome {
        let now = turn.now();
        if let Some((endpoints, _)) =
            gtpu_message::back(packet, tunnel).filter(|_| self.reports.take(now))
        {
            let (local, peer) = addresses(endpoints);
            let sequence = tunnel.sequence;
            let interface = tunnel.interface.into();
            let base = path_message(peer, Some(local), now);
            let message = PathMessage { sequence, interface, ..base };
            turn.send_value(kind::ECHO_RESPONSE, &message);
        }
        Outcome::Drop(DropReason::EchoResponse)
    }

    /// Tells the slow path that a peer does not have a tunnel. The sender must be the peer that
    /// packets went to (TS 29.281 clause 7.3.1). The slow path checks if such a tunnel exists.
    fn error_indication(
        &mut self,
        tunnel: &GtpuPacket,
        packet: &Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let elements = packet.bytes().get(tunnel.range()).unwrap_or_default();
        let read = gtpu_message::read_error_indication(elements);
        let (Some(indication), Some((endpoints, _))) = (read, gtpu_message::back(packet, tunnel))
        else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let (local, peer) = addresses(endpoints);
        let now = turn.now();
        if indication.peer != peer || indication.teid == 0 || !self.reports.take(now) {
            return Outcome::Drop(DropReason::ErrorIndicationIgnored);
        }
        let interface = tunnel.interface.into();
        let base = path_message(peer, Some(local), now);
        let message = PathMessage { teid: indication.teid, interface, ..base };
        turn.send_value(kind::ERROR_INDICATION, &message);
        Outcome::Drop(DropReason::ErrorIndicationReceived)
    }

    /// Relays an end marker to the next tunnel if the tunnel's rules lead to one; otherwise it ends
    /// here (TS 23.501 clause 5.8.2.9). An end marker for an unknown tunnel is dropped without an
    /// error indication (clause 7.3.2).
    fn end_marker(
        &mut self,
        tables: &LaneTables,
        tunnel: &GtpuPacket,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let done = Outcome::Drop(DropReason::EndMarkerReceived);
        let teid = tunnel.teid;
        let found = tables.by_tunnel(turn, self.teid_layout, teid);
        let Some((_, rules)) = found else { return Outcome::Drop(DropReason::UnknownTunnel) };
        let burst = BurstContext { tables, turn, now: turn.now() };
        let Some(path) = path_of(burst, rules, teid) else { return done };
        let Some(put @ Encapsulation::Gtpu(..)) = path.outer() else { return done };
        let direction = crate::rules::layout::session_rules::Direction::Downlink;
        let Ok((route, outer)) = self.outer(0, &path, put, direction, turn) else { return done };
        let (at, length) = (usize::from(tunnel.gtp), tunnel.length());
        match encap::relay(packet, at, length, &route, &outer) {
            true => Outcome::Forward(route.hop.port, DropReason::EndMarkerReceived),
            false => done,
        }
    }

    /// Handles messages from the slow path and sends the packets that they request.
    pub(super) fn receive_messages(&mut self, tables: &LaneTables, turn: &mut Turn) {
        loop {
            let message = match turn.receive() {
                None => return,
                Some(message) => match message.kind {
                    kind::RULES => SessionEvent::read_from_prefix(message.body)
                        .map_or(ControlMessage::Unknown, |(it, _)| {
                            ControlMessage::RulesChanged(SessionIndex(it.session))
                        }),
                    kind::PROBE => PathMessage::read_from_prefix(message.body)
                        .map_or(ControlMessage::Unknown, |(it, _)| ControlMessage::EchoRequest(it)),
                    _ => ControlMessage::Unknown,
                },
            };
            match message {
                ControlMessage::RulesChanged(session) => self.rules_changed(tables, session, turn),
                ControlMessage::EchoRequest(probe) => self.probe(tables, &probe, turn),
                ControlMessage::Unknown => {}
            }
        }
    }

    /// Handles a change of a session's rules: resumes held packets and sends the end marker that is
    /// due. Every earlier packet has been labelled and leaves before the packets made here.
    fn rules_changed(&mut self, tables: &LaneTables, session: SessionIndex, turn: &mut Turn) {
        let Some(rules) = tables.rules(turn, session).copied() else { return };
        let held = self.held.get(session).filter(|held| held.version != rules.version());
        if let Some(look) = held.map(|held| held.look(Some(&rules), turn.now())) {
            self.held.remove(session);
            if let Some(key) = fastlane::HoldKey::new(session.0) {
                super::end_hold(tables, key, look, turn);
            }
        }
        // All lanes receive the message. Only the lane that sent packets by the old tunnel knows
        // the last one.
        let marker = classify::marker_due(&rules, session, &tables.state);
        let Some(marker) = marker.filter(|_| turn.owns(session.0 as u8)) else { return };
        let peer = std::net::Ipv6Addr::from(marker.peer).to_canonical();
        let instance = (marker.instance != forwarding::NO_INSTANCE).then_some(marker.instance);
        let route = self.next_hops.to(&self.routes, &self.ports, turn, instance, peer);
        let message = GtpuMessage::end_marker(marker.teid);
        match route {
            Ok(route) => {
                if send(turn, route, &message) {
                    classify::marker_sent(marker, session, &tables.state);
                    tables.count(DropReason::EndMarkerSent, 1, message.bytes().len() as u64);
                }
            }
            Err(DropReason::NoNeighbour) => self.resolve_neighbour(peer, turn),
            Err(_) => {}
        }
    }

    /// Sends an echo request.
    fn probe(&mut self, tables: &LaneTables, probe: &PathMessage, turn: &mut Turn) {
        let peer = std::net::Ipv6Addr::from(probe.peer).to_canonical();
        let interface = self.ports.interfaces.get(usize::from(probe.interface));
        let instance = interface.map(|interface| interface.instance);
        match self.next_hops.to(&self.routes, &self.ports, turn, instance, peer) {
            Ok(route) => {
                if !send(turn, route, &GtpuMessage::echo_request(probe.sequence)) {
                    tables.count(DropReason::NoFrame, 1, 0);
                }
            }
            Err(DropReason::NoNeighbour) => self.resolve_neighbour(peer, turn),
            Err(_) => {}
        }
    }
}

/// Sends a GTP-U message of this UPF.
fn send(turn: &mut Turn, route: &TunnelRoute, message: &GtpuMessage) -> bool {
    let Some(packet) = turn.new_packet(route.hop.port) else { return false };
    let is_written = gtpu_message::write(packet, route.endpoints, &route.hop, GtpU::PORT, message);
    if !is_written {
        packet.set_verdict(Verdict::Drop);
    }
    is_written
}

/// Returns the path of a tunnel's packets by its first rule; `None` if they are dropped or held.
fn path_of<'t>(burst: BurstContext<'t>, rules: &'t Rules, teid: u32) -> Option<Path<'t>> {
    const STOPPED: u32 = flag::DROP | flag::HOLD;
    if !rules.has_blocks() {
        let up = (&rules.uplink.common, &[0; 16]);
        let down = (&rules.downlink.common, &rules.downlink.peer6);
        let (side, peer6) = [up, down].into_iter().find(|(side, _)| side.is_by(Some(teid)))?;
        let path = Path { forwarding: &side.forwarding, peer6, redirect: None };
        return (side.flags & STOPPED == 0).then_some(path);
    }
    let mut next = rules.cold.block;
    for _ in 0..CHAIN {
        let block = burst.tables.blocks.get(burst.turn, next.checked_sub(1)? as usize)?;
        if block.version != rules.version() {
            return None;
        }
        let is_it = |rule: &&crate::rules::layout::session_rules::Rule| {
            rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid
        };
        if let Some(rule) = block.rules().iter().find(is_it) {
            let path = block.paths().get(usize::from(rule.path))?;
            let path = Path { forwarding: &path.forwarding, peer6: &path.peer6, redirect: None };
            return (rule.flags & STOPPED == 0).then_some(path);
        }
        next = block.next;
    }
    None
}

fn addresses(endpoints: Endpoints) -> (IpAddr, IpAddr) {
    match endpoints {
        Endpoints::V4(local, remote) => (local.into(), remote.into()),
        Endpoints::V6(local, remote) => (local.into(), remote.into()),
    }
}

/// Builds a message about a path, without tunnel, sequence number and interface.
pub(super) fn path_message(peer: IpAddr, local: Option<IpAddr>, at: u64) -> PathMessage {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let (peer, local) = (mapped(peer), local.map_or([0; 16], mapped));
    PathMessage { peer, local, teid: 0, sequence: 0, interface: 0, at }
}

/// Returns the far end of an outer header.
pub(super) fn peer_of(put: Encapsulation) -> IpAddr {
    match put {
        Encapsulation::Gtpu(PeerAddress::V4(peer), _)
        | Encapsulation::Udp(PeerAddress::V4(peer), _) => peer.into(),
        Encapsulation::Gtpu(PeerAddress::V6(peer), _)
        | Encapsulation::Udp(PeerAddress::V6(peer), _) => peer.into(),
    }
}
