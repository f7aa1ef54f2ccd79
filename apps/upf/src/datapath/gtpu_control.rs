//! GTP-U messages without user data, and replies to packets that no tunnel accepts.

use fastlane::wire::{GtpMessageType, GtpU};
use fastlane::{Packet, Turn, Verdict};

use super::encap;
use super::forward::Forwarder;
use super::gtpu_message::{self, GtpuMessage};
use super::lane_tables::{BurstContext, LaneTables, TurnContext};
use super::lookup::UePacket;
use super::outcome::Outcome;
use super::outer_header::GtpuPacket;
use super::rate_limiter::RateLimiter;
use super::routes::Routes;
use super::slow_path::SlowPath;
use crate::config::Gtp;
use crate::rules::layout::TeidLayout;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::session_rules::Direction;

/// Replies to GTP-U messages and their rates.
pub(crate) struct GtpuControl {
    teid_layout: TeidLayout,
    echoes: RateLimiter,
    errors: RateLimiter,
    /// No error indication is sent before this time, in ns of `CLOCK_MONOTONIC`.
    error_indications_from: u64,
}

impl GtpuControl {
    /// Creates the control of a lane that starts now.
    pub(crate) fn new(settings: &Gtp, teid_layout: TeidLayout) -> Self {
        Self {
            teid_layout,
            echoes: RateLimiter::new(settings.echoes_per_s),
            errors: RateLimiter::new(settings.errors_per_s),
            error_indications_from: fastlane::now()
                .saturating_add(settings.quiet_s.saturating_mul(1_000_000_000)),
        }
    }

    /// Returns true for echo requests beyond the rate limit: a flood of them must cost little.
    #[inline]
    pub(crate) fn exceeds_echo_rate(&self, tunnel: &GtpuPacket, now: u64) -> bool {
        tunnel.message_type == GtpMessageType::ECHO_REQUEST && !self.echoes.has(now)
    }

    /// Returns true if an error indication may be sent now.
    #[inline]
    pub(crate) fn may_send_error_indication(&self, now: u64) -> bool {
        now >= self.error_indications_from && self.errors.has(now)
    }

    /// Handles a GTP-U message without user data.
    #[cold]
    pub(crate) fn handle<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        slow_path: &mut SlowPath,
        tunnel: &GtpuPacket,
        packet: &mut Packet,
        context: &mut TurnContext<'_>,
    ) {
        let octets = packet.len() as u64;
        let outcome = match tunnel.message_type {
            GtpMessageType::ECHO_REQUEST => self.echo(tunnel, packet, context.turn.now()),
            GtpMessageType::ECHO_RESPONSE => echo_response(slow_path, tunnel, packet, context.turn),
            GtpMessageType::ERROR_INDICATION => {
                error_indication(slow_path, tunnel, packet, context.turn)
            }
            GtpMessageType::END_MARKER => {
                self.end_marker(forwarder, tunnel, packet, context.burst())
            }
            _ => Outcome::Drop(DropReason::GtpMessage),
        };
        forwarder.counters.label(context.tables, packet, outcome, octets, None);
    }

    /// Answers an echo request, to its source port (TS 29.281 clauses 4.4.2.2, 7.2.1).
    fn echo(&mut self, tunnel: &GtpuPacket, packet: &mut Packet, now: u64) -> Outcome {
        let response = GtpuMessage::echo_response(tunnel.sequence);
        let is_answered = self.echoes.take(now)
            && gtpu_message::answer(packet, tunnel, tunnel.source_port, &response);
        match is_answered {
            true => Outcome::Reflect(DropReason::EchoAnswered),
            false => Outcome::Drop(DropReason::EchoSuppressed),
        }
    }

    /// Relays an end marker to the next tunnel if the tunnel's rules lead to one; otherwise it ends
    /// here (TS 23.501 clause 5.8.2.9). An end marker for an unknown tunnel is dropped without an
    /// error indication (clause 7.3.2).
    fn end_marker<R: Routes>(
        &self,
        forwarder: &mut Forwarder<R>,
        tunnel: &GtpuPacket,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        let done = Outcome::Drop(DropReason::EndMarkerReceived);
        let teid = tunnel.teid;
        let found = burst.tables.by_tunnel(burst.turn, self.teid_layout, teid);
        let Some((session, rules)) = found else {
            return Outcome::Drop(DropReason::UnknownTunnel);
        };
        let path = burst.classifier(session, rules).tunnel_path(teid);
        let Some(path) = path else { return done };
        let relayed = forwarder.outer(0, &path, Direction::Downlink, burst.turn);
        let Ok((route, outer)) = relayed else { return done };
        let (at, length) = (usize::from(tunnel.gtp), tunnel.length());
        match encap::relay(packet, at, length, &route, &outer) {
            true => Outcome::Forward(route.hop.port, DropReason::EndMarkerReceived),
            false => done,
        }
    }

    /// Answers a packet of an unknown tunnel with an error indication (TS 29.281 clause 7.3.1), but
    /// not shortly after the start, when sessions may still be restored (TS 23.527 clause 4.2.2).
    pub(crate) fn send_error_indication(
        &mut self,
        ue_packet: &UePacket,
        packet: &mut Packet,
        tables: &LaneTables,
        now: u64,
    ) -> Outcome {
        let Some(tunnel) = ue_packet.tunnel else {
            return Outcome::Drop(DropReason::UnknownTunnel);
        };
        let octets = packet.len() as u64;
        let is_sent = now >= self.error_indications_from
            && self.errors.take(now)
            && gtpu_message::back(packet, &tunnel).is_some_and(|(endpoints, hop)| {
                let (local, teid) = (endpoints.local(), tunnel.teid);
                let message = GtpuMessage::error_indication(teid, local, tunnel.source_port);
                gtpu_message::write(packet, endpoints, &hop, GtpU::PORT, &message)
            });
        let (reason, outcome) = match is_sent {
            true => (DropReason::ErrorIndicationSent, Outcome::Reflect(DropReason::UnknownTunnel)),
            false => {
                (DropReason::ErrorIndicationSuppressed, Outcome::Drop(DropReason::UnknownTunnel))
            }
        };
        tables.count(reason, 1, octets);
        outcome
    }

    /// Drops a packet with an unsupported extension header and sends the list of supported ones (TS
    /// 29.281 clause 5.2.1).
    pub(crate) fn send_supported_extensions(
        &mut self,
        ue_packet: &UePacket,
        packet: &Packet,
        context: &mut TurnContext<'_>,
    ) -> Outcome {
        let Some(tunnel) = ue_packet.tunnel else { return Outcome::Drop(DropReason::GtpExtension) };
        let is_due = self.errors.take(context.turn.now());
        if let Some((endpoints, hop)) = gtpu_message::back(packet, &tunnel).filter(|_| is_due)
            && let Some(new) = context.turn.new_packet(packet.port())
        {
            let message = GtpuMessage::supported_extension_headers();
            let is_sent = gtpu_message::write(new, endpoints, &hop, GtpU::PORT, &message);
            if is_sent {
                let octets = new.len() as u64;
                context.tables.count(DropReason::ExtensionNotification, 1, octets);
            } else {
                new.set_verdict(Verdict::Drop);
            }
        }
        Outcome::Drop(DropReason::GtpExtension)
    }
}

/// Passes the response to an echo request on to the slow path.
fn echo_response(
    slow_path: &mut SlowPath,
    tunnel: &GtpuPacket,
    packet: &Packet,
    turn: &mut Turn,
) -> Outcome {
    if let Some((endpoints, _)) = gtpu_message::back(packet, tunnel) {
        slow_path.report_echo_response(endpoints, tunnel, turn);
    }
    Outcome::Drop(DropReason::EchoResponse)
}

/// Tells the slow path that a peer does not have a tunnel. The sender must be the peer that packets
/// went to (TS 29.281 clause 7.3.1). The slow path checks if such a tunnel exists.
fn error_indication(
    slow_path: &mut SlowPath,
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
    let is_sound = indication.peer == endpoints.remote() && indication.teid != 0;
    let is_reported = is_sound
        && slow_path.report_error_indication(endpoints, indication.teid, tunnel.interface, turn);
    match is_reported {
        true => Outcome::Drop(DropReason::ErrorIndicationReceived),
        false => Outcome::Drop(DropReason::ErrorIndicationIgnored),
    }
}
