//! GTP-U messages without user data, and messages from the slow path.

use std::net::IpAddr;

use fastlane::wire::{GtpMessageType, GtpU};
use fastlane::{Packet, Turn, Verdict};
use zerocopy::FromBytes;

use super::answer::{self, Message};
use super::decide::{self, Path};
use super::encapsulate::{self, Ends, Exit};
use super::judge::Outcome;
use super::outer::Tunnel;
use super::tables::Tables;
use super::ways::Routes;
use super::{Parts, World};
use crate::rules::layout::cause::Cause;
use crate::rules::layout::message::{PathMessage, SessionEvent, kind};
use crate::rules::layout::rules::{CHAIN, Outer as Put, PeerAddress, Rules, flag, way};
use crate::session::SessionId;

/// A message from the slow path.
enum Told {
    Rules(SessionId),
    Probe(PathMessage),
    Nothing,
}

impl<R: Routes> Parts<R> {
    /// Handles a GTP-U message without user data.
    #[cold]
    pub(super) fn control(
        &mut self,
        tables: &Tables,
        tunnel: &Tunnel,
        packet: &mut Packet,
        turn: &mut Turn,
    ) {
        let octets = packet.len() as u64;
        let outcome = match tunnel.message_type {
            GtpMessageType::ECHO_REQUEST => self.echo(tables, tunnel, packet, turn),
            GtpMessageType::ECHO_RESPONSE => self.echo_response(tunnel, packet, turn),
            GtpMessageType::ERROR_INDICATION => self.error_indication(tunnel, packet, turn),
            GtpMessageType::END_MARKER => self.end_marker(tables, tunnel, packet, turn),
            _ => Outcome::Drop(Cause::GtpMessage),
        };
        self.settle(tables, packet, outcome, octets);
        if std::mem::take(&mut self.reflects) {
            packet.set_verdict(Verdict::Reflect);
        }
    }

    /// Answers an echo request, to its source port (TS 29.281 clauses 4.4.2.2, 7.2.1).
    fn echo(
        &mut self,
        tables: &Tables,
        tunnel: &Tunnel,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let sequence = tunnel.sequence;
        let octets = packet.len() as u64;
        let is_answered = self.echoes.take(turn.now())
            && answer::answer(
                packet,
                tunnel,
                tunnel.source_port,
                &Message::echo_response(sequence),
            );
        if !is_answered {
            return Outcome::Drop(Cause::EchoSuppressed);
        }
        self.reflects = true;
        tables.count(Cause::EchoAnswered, 1, octets);
        Outcome::Later // labelled and counted already
    }

    /// Passes the response to an echo request on to the slow path.
    fn echo_response(&mut self, tunnel: &Tunnel, packet: &Packet, turn: &mut Turn) -> Outcome {
        let now = turn.now();
        if let Some((ends, _)) = answer::back(packet, tunnel).filter(|_| self.reports.take(now)) {
            let (local, peer) = addresses(ends);
            let sequence = tunnel.sequence;
            let message = path(peer, Some(local), 0, sequence, tunnel.interface.into(), now);
            turn.send_value(kind::ECHO_RESPONSE, &message);
        }
        Outcome::Drop(Cause::EchoResponse)
    }

    /// Tells the slow path that a peer does not have a tunnel. The sender must be the peer that
    /// packets went to (TS 29.281 clause 7.3.1). The slow path checks if such a tunnel exists.
    fn error_indication(&mut self, tunnel: &Tunnel, packet: &Packet, turn: &mut Turn) -> Outcome {
        let elements = packet.bytes().get(tunnel.range()).unwrap_or_default();
        let read = answer::read_error_indication(elements);
        let (Some(indication), Some((ends, _))) = (read, answer::back(packet, tunnel)) else {
            return Outcome::Drop(Cause::Malformed);
        };
        let (local, peer) = addresses(ends);
        let now = turn.now();
        if indication.peer != peer || indication.teid == 0 || !self.reports.take(now) {
            return Outcome::Drop(Cause::ErrorIndicationIgnored);
        }
        let interface = tunnel.interface.into();
        let message = path(peer, Some(local), indication.teid, 0, interface, now);
        turn.send_value(kind::ERROR_INDICATION, &message);
        Outcome::Drop(Cause::ErrorIndicationReceived)
    }

    /// Relays an end marker to the next tunnel if the tunnel's rules lead to one; otherwise it ends
    /// here (TS 23.501 clause 5.8.2.9). An end marker for an unknown tunnel is dropped without an
    /// error indication (clause 7.3.2).
    fn end_marker(
        &mut self,
        tables: &Tables,
        tunnel: &Tunnel,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let done = Outcome::Drop(Cause::EndMarkerReceived);
        let teid = tunnel.teid;
        let found = tables.by_tunnel(turn, self.shape, teid);
        let Some((_, rules)) = found else { return Outcome::Drop(Cause::UnknownTunnel) };
        let world = World { tables, turn, now: turn.now() };
        let Some(path) = path_of(world, rules, teid) else { return done };
        let Some(put @ Put::Gtpu(..)) = path.outer() else { return done };
        let direction = crate::rules::layout::rules::Direction::Down;
        let Ok((exit, outer)) = self.outer(0, &path, put, direction, turn) else { return done };
        let (at, length) = (usize::from(tunnel.gtp), tunnel.length());
        match encapsulate::relay(packet, at, length, &exit, &outer) {
            true => Outcome::Leaves(exit.hop.port, Cause::EndMarkerReceived),
            false => done,
        }
    }

    /// Handles messages from the slow path and sends the packets that they request.
    pub(super) fn listen(&mut self, tables: &Tables, turn: &mut Turn) {
        loop {
            let told = match turn.receive() {
                None => return,
                Some(message) => match message.kind {
                    kind::RULES => SessionEvent::read_from_prefix(message.body)
                        .map_or(Told::Nothing, |(it, _)| Told::Rules(SessionId(it.session))),
                    kind::PROBE => PathMessage::read_from_prefix(message.body)
                        .map_or(Told::Nothing, |(it, _)| Told::Probe(it)),
                    _ => Told::Nothing,
                },
            };
            match told {
                Told::Rules(session) => self.look_at(tables, session, turn),
                Told::Probe(probe) => self.probe(tables, &probe, turn),
                Told::Nothing => {}
            }
        }
    }

    /// Handles a change of a session's rules: resumes held packets and sends the end marker that is
    /// due. Every earlier packet has been labelled and leaves before the packets made here.
    fn look_at(&mut self, tables: &Tables, session: SessionId, turn: &mut Turn) {
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
        let marker = decide::marker_due(&rules, session, &tables.state);
        let Some(marker) = marker.filter(|_| turn.owns(session.0 as u8)) else { return };
        let peer = std::net::Ipv6Addr::from(marker.peer).to_canonical();
        let instance = (marker.instance != way::NO_INSTANCE).then_some(marker.instance);
        let exit = self.ways.to(&self.routes, &self.sides, turn, instance, peer);
        let message = Message::end_marker(marker.teid);
        match exit {
            Ok(exit) => {
                if send(turn, exit, &message) {
                    decide::marker_sent(marker, session, &tables.state);
                    tables.count(Cause::EndMarkerSent, 1, message.bytes().len() as u64);
                }
            }
            Err(Cause::NoNeighbour) => self.ask_linux(peer, turn),
            Err(_) => {}
        }
    }

    /// Sends an echo request.
    fn probe(&mut self, tables: &Tables, probe: &PathMessage, turn: &mut Turn) {
        let peer = std::net::Ipv6Addr::from(probe.peer).to_canonical();
        let interface = self.sides.interfaces.get(usize::from(probe.interface));
        let instance = interface.map(|interface| interface.instance);
        match self.ways.to(&self.routes, &self.sides, turn, instance, peer) {
            Ok(exit) => {
                if !send(turn, exit, &Message::echo_request(probe.sequence)) {
                    tables.count(Cause::NoFrame, 1, 0);
                }
            }
            Err(Cause::NoNeighbour) => self.ask_linux(peer, turn),
            Err(_) => {}
        }
    }
}

/// Sends a GTP-U message of this UPF.
fn send(turn: &mut Turn, exit: &Exit, message: &Message) -> bool {
    let Some(packet) = turn.new_packet(exit.hop.port) else { return false };
    let is_written = answer::write(packet, exit.ends, &exit.hop, GtpU::PORT, message);
    if !is_written {
        packet.set_verdict(Verdict::Drop);
    }
    is_written
}

/// Returns the path of a tunnel's packets by its first rule; `None` if they are dropped or held.
fn path_of<'t>(world: World<'t>, rules: &'t Rules, teid: u32) -> Option<Path<'t>> {
    const STOPPED: u32 = flag::DROP | flag::HOLD;
    if !rules.has_blocks() {
        let up = (&rules.up.side, &[0; 16]);
        let down = (&rules.down.side, &rules.down.peer6);
        let (side, peer6) = [up, down].into_iter().find(|(side, _)| side.is_by(Some(teid)))?;
        let path = Path { way: &side.way, peer6, redirect: None };
        return (side.flags & STOPPED == 0).then_some(path);
    }
    let mut next = rules.cold.block;
    for _ in 0..CHAIN {
        let block = world.tables.blocks.get(world.turn, next.checked_sub(1)? as usize)?;
        if block.version != rules.version() {
            return None;
        }
        let is_it = |rule: &&crate::rules::layout::rules::Rule| {
            rule.flags & flag::TUNNEL != 0 && rule.tunnel == teid
        };
        if let Some(rule) = block.rules().iter().find(is_it) {
            let path = block.paths().get(usize::from(rule.path))?;
            let path = Path { way: &path.way, peer6: &path.peer6, redirect: None };
            return (rule.flags & STOPPED == 0).then_some(path);
        }
        next = block.next;
    }
    None
}

fn addresses(ends: Ends) -> (IpAddr, IpAddr) {
    match ends {
        Ends::Four(local, remote) => (local.into(), remote.into()),
        Ends::Six(local, remote) => (local.into(), remote.into()),
    }
}

/// Builds a message about a path.
pub(super) fn path(
    peer: IpAddr,
    local: Option<IpAddr>,
    teid: u32,
    sequence: u16,
    interface: u16,
    at: u64,
) -> PathMessage {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let (peer, local) = (mapped(peer), local.map_or([0; 16], mapped));
    PathMessage { peer, local, teid, sequence, interface, at }
}

/// Returns the far end of an outer header.
pub(super) fn peer_of(put: Put) -> IpAddr {
    match put {
        Put::Gtpu(PeerAddress::V4(peer), _) | Put::Udp(PeerAddress::V4(peer), _) => peer.into(),
        Put::Gtpu(PeerAddress::V6(peer), _) | Put::Udp(PeerAddress::V6(peer), _) => peer.into(),
    }
}
