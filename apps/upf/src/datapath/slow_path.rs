//! Messages between the lane and the slow path: changed rules, paths, neighbours, and packets of
//! control plane functions.

use std::net::{IpAddr, Ipv6Addr};

use fastlane::wire::GtpU;
use fastlane::{Turn, Verdict};
use zerocopy::FromBytes;

use super::classify;
use super::control_tunnels::ControlTunnels;
use super::encap::{Endpoints, TunnelRoute};
use super::forward::Forwarder;
use super::gtpu_message::{self, GtpuMessage};
use super::lane_tables::{BurstContext, LaneTables, TurnContext};
use super::next_hop::TunnelEndpoint;
use super::outer_header::GtpuPacket;
use super::rate_limiter::RateLimiter;
use super::routes::Routes;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::{PathMessage, SessionEvent, kind};
use crate::rules::layout::session_rules::{DueEndMarker, forwarding};
use crate::session::SessionIndex;

/// Maximum rate of messages to the slow path about paths and neighbours, per second.
const MAX_REPORTS: u32 = 1000;

/// A message from the slow path.
enum ControlMessage {
    RulesChanged(SessionIndex),
    EchoRequest(PathMessage),
    /// A configuration of this generation is in shared memory.
    Configuration(u64),
    /// A packet of a control plane function, which its tunnels have copied.
    UserPacket,
    Unknown,
}

/// Messages with the slow path, at a limited rate.
pub(crate) struct SlowPath {
    reports: RateLimiter,
    /// Session and version of the rules of which some end markers are sent, and which ones: bit 0
    /// for the newest one, the next bits for the others in their order.
    markers: Option<(SessionIndex, u32, u128)>,
}

impl SlowPath {
    /// Creates the messages of a lane.
    pub(crate) fn new() -> Self {
        Self { reports: RateLimiter::new(MAX_REPORTS), markers: None }
    }

    /// Asks the slow path to make Linux resolve a neighbour.
    pub(crate) fn resolve_neighbour(&mut self, peer: IpAddr, turn: &mut Turn) {
        let now = turn.now();
        if self.reports.take(now) {
            turn.send_value(kind::NEIGHBOUR, &path_message(peer, None, now));
        }
    }

    /// Reports the response to an echo request of the slow path.
    pub(crate) fn report_echo_response(
        &mut self,
        endpoints: Endpoints,
        tunnel: &GtpuPacket,
        turn: &mut Turn,
    ) {
        let now = turn.now();
        if self.reports.take(now) {
            let (sequence, interface) = (tunnel.sequence, tunnel.interface.into());
            let base = path_message(endpoints.remote(), Some(endpoints.local()), now);
            turn.send_value(kind::ECHO_RESPONSE, &PathMessage { sequence, interface, ..base });
        }
    }

    /// Reports a tunnel that a peer does not have; false beyond the rate limit.
    pub(crate) fn report_error_indication(
        &mut self,
        endpoints: Endpoints,
        teid: u32,
        interface: u8,
        turn: &mut Turn,
    ) -> bool {
        let now = turn.now();
        let is_taken = self.reports.take(now);
        if is_taken {
            let base = path_message(endpoints.remote(), Some(endpoints.local()), now);
            let message = PathMessage { teid, interface: interface.into(), ..base };
            turn.send_value(kind::ERROR_INDICATION, &message);
        }
        is_taken
    }

    /// Handles messages from the slow path and sends the packets that they request. Returns the
    /// generation of a configuration that was announced.
    pub(crate) fn receive<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        control: &mut ControlTunnels,
        context: &mut TurnContext<'_>,
    ) -> Option<u64> {
        let mut announced = None;
        loop {
            let message = match context.turn.receive() {
                None => return announced,
                Some(message) => match message.kind {
                    kind::RULES => SessionEvent::read_from_prefix(message.body)
                        .map_or(ControlMessage::Unknown, |(it, _)| {
                            ControlMessage::RulesChanged(SessionIndex(it.session))
                        }),
                    kind::PROBE => PathMessage::read_from_prefix(message.body)
                        .map_or(ControlMessage::Unknown, |(it, _)| ControlMessage::EchoRequest(it)),
                    kind::CONFIGURATION => u64::read_from_prefix(message.body)
                        .map_or(ControlMessage::Unknown, |(generation, _)| {
                            ControlMessage::Configuration(generation)
                        }),
                    kind::USER_PACKET if control.take(message.body) => ControlMessage::UserPacket,
                    _ => ControlMessage::Unknown,
                },
            };
            match message {
                ControlMessage::RulesChanged(session) => {
                    self.rules_changed(forwarder, session, context);
                }
                ControlMessage::EchoRequest(request) => {
                    self.send_echo_request(forwarder, &request, context);
                }
                ControlMessage::Configuration(generation) => announced = Some(generation),
                ControlMessage::UserPacket => control.deliver(forwarder, context),
                ControlMessage::Unknown => {}
            }
        }
    }

    /// Handles a change of a session's rules: resumes held packets and sends the end marker that is
    /// due. Every earlier packet has been labelled and leaves before the packets made here.
    fn rules_changed<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        session: SessionIndex,
        context: &mut TurnContext<'_>,
    ) {
        let Some(rules) = context.tables.rules(context.turn, session).copied() else { return };
        forwarder.buffer.on_change(session, &rules, context);
        let (tables, turn) = (context.tables, &mut *context.turn);
        // All lanes receive the message. Only the lane that sent packets by the old tunnel knows
        // the last one.
        let newest = classify::marker_due(&rules, session, &tables.state);
        let Some(newest) = newest.filter(|_| turn.owns(session.0 as u8)) else { return };
        let mut sent = match self.markers {
            Some((of, version, sent)) if (of, version) == (session, rules.version()) => sent,
            _ => 0,
        };
        // One whose tunnel is unreachable delays no other. Reminders complete them.
        let mut are_all_sent = true;
        for index in 0.. {
            let next = || {
                let burst = BurstContext { tables, turn, now: turn.now() };
                let classifier = burst.classifier(session, &rules);
                classifier.end_markers().nth(index)
            };
            let Some(marker) = (rules.cold.block != 0).then(next).flatten() else { break };
            let bit = u32::try_from(index + 1).ok().and_then(|bit| 1_u128.checked_shl(bit));
            let bit = bit.unwrap_or(0);
            if sent & bit == 0 {
                let is_sent = self.send_end_marker(forwarder, marker, tables, turn);
                sent |= if is_sent { bit } else { 0 };
                are_all_sent &= is_sent;
            }
        }
        if sent & 1 == 0 && self.send_end_marker(forwarder, newest, tables, turn) {
            sent |= 1;
        }
        if are_all_sent && sent & 1 != 0 {
            classify::marker_sent(newest, session, &tables.state);
            self.markers = None;
        } else {
            self.markers = Some((session, rules.version(), sent));
        }
    }

    /// Sends an end marker; false if it cannot be sent now.
    fn send_end_marker<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        marker: DueEndMarker,
        tables: &LaneTables,
        turn: &mut Turn,
    ) -> bool {
        let address = Ipv6Addr::from(marker.peer).to_canonical();
        let instance = (marker.instance != forwarding::NO_INSTANCE).then_some(marker.instance);
        let Forwarder { routes, ports, next_hops, .. } = forwarder;
        match next_hops.to(routes, ports, turn, TunnelEndpoint { address, instance }) {
            Ok(route) => {
                let message = GtpuMessage::end_marker(marker.teid);
                let is_sent = send(turn, route, &message);
                if is_sent {
                    tables.count(DropReason::EndMarkerSent, 1, message.bytes().len() as u64);
                }
                is_sent
            }
            Err(reason) => {
                if reason == DropReason::NoNeighbour {
                    self.resolve_neighbour(address, turn);
                }
                false
            }
        }
    }

    /// Sends an echo request.
    fn send_echo_request<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        request: &PathMessage,
        context: &mut TurnContext<'_>,
    ) {
        let TurnContext { tables, turn } = context;
        let address = Ipv6Addr::from(request.peer).to_canonical();
        let Forwarder { routes, ports, next_hops, .. } = forwarder;
        let interface = ports.interfaces.get(usize::from(request.interface));
        let instance = interface.map(|interface| interface.instance);
        match next_hops.to(routes, ports, turn, TunnelEndpoint { address, instance }) {
            Ok(route) => {
                if !send(turn, route, &GtpuMessage::echo_request(request.sequence)) {
                    tables.count(DropReason::NoFrame, 1, 0);
                }
            }
            Err(DropReason::NoNeighbour) => self.resolve_neighbour(address, turn),
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

/// Builds a message about a path, without tunnel, sequence number and interface.
fn path_message(peer: IpAddr, local: Option<IpAddr>, at: u64) -> PathMessage {
    let mapped = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let (peer, local) = (mapped(peer), local.map_or([0; 16], mapped));
    PathMessage { peer, local, teid: 0, sequence: 0, interface: 0, at }
}
