//! Tunnels to control plane functions that no port leads to (N4-u, TS 29.244 clause 5.3): the slow
//! path exchanges their packets on N4. They are few: router solicitations, their advertisements.
//!
//! A packet to the control plane function is punted in the outer header of its tunnel, of which the
//! slow path sends the payload. A packet from it comes as a message, and the rules of its tunnel
//! apply as to one that a port received.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastlane::mirror::NextHop;
use fastlane::table::EntryId;
use fastlane::{Packet, PortId};
use zerocopy::{FromBytes, FromZeros};

use super::charge;
use super::classify::{Action, ChargeResult};
use super::deferred_queue::ControlPacket;
use super::encap::{self, Endpoints, GtpuFields, TunnelRoute};
use super::forward::Forwarder;
use super::inner_packet;
use super::ip_header;
use super::lane_tables::{BurstContext, TurnContext};
use super::lookup::UePacket;
use super::next_hop::Egress;
use super::outcome::Outcome;
use super::rate_limiter::RateLimiter;
use super::routes::Routes;
use crate::config::SourcePort;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::UserPacket;
use crate::session::SessionIndex;

/// Maximum rate of packets to control plane functions by the slow path, per second and lane.
const MAX_RATE: u32 = 1000;

/// Packets that the slow path exchanges with control plane functions.
pub(crate) struct ControlTunnels {
    rate: RateLimiter,
    /// Packet of the message that was taken last, and its header.
    header: UserPacket,
    bytes: Box<[u8; UserPacket::MAX_LENGTH]>,
    length: usize,
}

impl ControlTunnels {
    /// Creates the tunnels of a lane.
    pub(crate) fn new() -> Self {
        Self {
            rate: RateLimiter::new(MAX_RATE),
            header: UserPacket::new_zeroed(),
            bytes: Box::new([0; UserPacket::MAX_LENGTH]),
            length: 0,
        }
    }

    /// Hands a packet to the slow path.
    pub(crate) fn hand_over<R: Routes>(
        &mut self,
        forwarder: &mut Forwarder<R>,
        control: &ControlPacket,
        ue_packet: &UePacket,
        packet: &mut Packet,
        context: &mut TurnContext<'_>,
    ) -> Outcome {
        let busy = Outcome::Drop(DropReason::ToControlBusy);
        if !self.rate.take(context.turn.now()) {
            return busy;
        }
        if let Err(outcome) =
            forwarder.charge_later(ue_packet, control.due, packet, context.burst())
        {
            return outcome;
        }
        if ue_packet.tunnel.is_none() && !ue_packet.is_hairpin {
            ip_header::decrement_ttl(ue_packet.inner_mut(packet));
        }
        let route =
            TunnelRoute::new(endpoints(control), nowhere(packet.port()), SourcePort::Registered);
        let is_written = match &ue_packet.tunnel {
            Some(tunnel) if control.is_relayed => {
                let (at, length) = (usize::from(tunnel.gtp), tunnel.length());
                encap::relay(packet, at, length, &route, &control.outer)
            }
            _ => {
                let (at, length) = (usize::from(ue_packet.at), control.length as usize);
                let front = control.outer.length(route.endpoints);
                encap::has_room(packet, at, length, front)
                    && encap::encapsulate(packet, at, length, &route, &control.outer)
            }
        };
        match is_written && context.turn.punt(packet, 0) {
            true => Outcome::Drop(DropReason::ToControl),
            false => busy,
        }
    }

    /// Copies the packet of a message. False if it is malformed or too long.
    pub(crate) fn take(&mut self, body: &[u8]) -> bool {
        let Ok((header, bytes)) = UserPacket::read_from_prefix(body) else { return false };
        let Some(to) = self.bytes.get_mut(..bytes.len()) else { return false };
        to.copy_from_slice(bytes);
        (self.header, self.length) = (header, bytes.len());
        true
    }

    /// Sends the packet that was taken to the UE of its session, if this lane owns it.
    pub(crate) fn deliver<R: Routes>(
        &self,
        forwarder: &mut Forwarder<R>,
        context: &mut TurnContext<'_>,
    ) {
        if !context.turn.owns(self.header.session as u8) {
            return;
        }
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        let egress = self.egress(bytes, forwarder, context.burst());
        let is_sent = egress.is_some_and(|egress| egress.send(context.turn, bytes));
        let reason = match is_sent {
            true => DropReason::FromControl,
            false => DropReason::FromControlDropped,
        };
        context.tables.count(reason, 1, bytes.len() as u64);
    }

    /// Finds the egress of a packet by the rules of its tunnel, and charges it. `None` if they stop
    /// it, or it cannot leave now.
    fn egress<R: Routes>(
        &self,
        bytes: &[u8],
        forwarder: &mut Forwarder<R>,
        burst: BurstContext<'_>,
    ) -> Option<Egress> {
        let UserPacket { session, teid } = self.header;
        let session = SessionIndex(session);
        let rules = burst.tables.rules(burst.turn, session)?;
        let inner = inner_packet::read(bytes).filter(|it| it.length as usize == bytes.len())?;
        let classifier = burst.classifier(session, rules);
        let decision = classifier.decide(&inner.fields(Some(teid), 0, None));
        raise(&decision.into(), session, burst);
        let Action::Forward(path) = decision.action else { return None };
        let outer = forwarder.outer(inner.tos, &path, decision.direction, burst.turn);
        let (route, outer) = outer.ok().filter(|(route, outer)| fits(route, outer, bytes.len()))?;
        let charged = classifier.charge(decision.charge);
        raise(&charged, session, burst);
        charge::outcome(&charged).ok()?;
        Some(Egress::Tunnel(route, outer))
    }
}

/// Raises the session's pending event if a decision has new ones.
fn raise(decided: &ChargeResult, session: SessionIndex, burst: BurstContext<'_>) {
    if decided.events != 0 {
        burst.tables.events.raise(EntryId(session.0));
    }
}

/// Returns true if a packet of this length can leave by a route as it is.
fn fits(route: &TunnelRoute, outer: &GtpuFields, length: usize) -> bool {
    outer.length(route.endpoints) + length <= route.hop.mtu as usize
}

/// Returns the addresses of the outer header. Ours is the slow path's to choose.
fn endpoints(control: &ControlPacket) -> Endpoints {
    match control.peer {
        IpAddr::V4(peer) => Endpoints::V4(Ipv4Addr::UNSPECIFIED, peer),
        IpAddr::V6(peer) => Endpoints::V6(Ipv6Addr::UNSPECIFIED, peer),
    }
}

/// Returns the next hop of a packet that leaves by no port.
const fn nowhere(port: PortId) -> NextHop {
    let ([source, destination], [mtu, link, route]) = ([[0; 6]; 2], [0; 3]);
    NextHop { port, source, destination, mtu, link, route, is_divided: false }
}
