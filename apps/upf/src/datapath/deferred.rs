//! Deferred work: what is done once all packets of a batch are labelled (replies, copies, messages,
//! packets between UEs). All of it is rare or was requested.

use std::net::IpAddr;

use fastlane::mirror::RouteLookup;
use fastlane::wire::GtpU;
use fastlane::{HoldKey, Packet, PortId, Turn, Verdict};

use super::apply::Outcome;
use super::charge::SessionCharge;
use super::classify::{self, Charge, Decision, Path};
use super::dl_buffer::BufferDecision;
use super::encap::{self, GtpuFields, TunnelRoute};
use super::forward::inner_mut;
use super::gtpu_message::{self, GtpuMessage};
use super::icmp::{self, IcmpError};
use super::inner_packet::{self, InnerPacket};
use super::ip_fragment::Fragmentation;
use super::ip_header;
use super::lane_tables::{DestinationAddress, LaneTables};
use super::lookup::{Batch, UePacket};
use super::next_hop::{Routes, drop_reason_of};
use super::{BurstContext, Datapath};
use crate::config::Role;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::{SessionEvent, kind};
use crate::rules::layout::session_rules::Direction;
use crate::session::{InstanceId, SessionIndex};

/// An item of deferred work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deferred {
    /// Error indication for a packet of an unknown tunnel.
    ErrorIndication { ue_packet: u8 },
    /// Notification that a required extension header is not supported.
    Notification { ue_packet: u8 },
    /// Message to the slow path about an event of a session.
    Event(SessionEvent),
    /// Resumes held packets ahead of those labelled now, or discards them.
    EndHold(SessionIndex, BufferDecision),
    /// ICMP error to the sender of a packet that cannot be forwarded.
    IcmpError { ue_packet: u8, session: SessionIndex, icmp_error: IcmpError },
    /// HTTP redirect response.
    Redirect { ue_packet: u8, session: SessionIndex },
    /// Packet to another UE of a network instance.
    ToUe { ue_packet: u8, instance: InstanceId, session: SessionIndex, charge: Charge },
    /// Copy of the last `length` octets of a packet (DUPL).
    Copy { ue_packet: u8, length: u32, route: TunnelRoute, outer: GtpuFields },
    /// Fragmentation of a packet into fragments of at most `room` octets.
    Fragments { ue_packet: u8, out: Egress, room: u32, session: SessionIndex, charge: Charge },
    /// Request to resolve a neighbour.
    Resolve(IpAddr),
}

/// Egress of a new packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Egress {
    /// Through a tunnel.
    Tunnel(TunnelRoute, GtpuFields),
    /// Without a tunnel, to a next hop.
    NextHop(fastlane::mirror::NextHop),
}

impl<R: Routes> Datapath<R> {
    /// Runs all deferred work.
    #[cold]
    pub(super) fn run_deferred(
        &mut self,
        tables: &LaneTables,
        batch: &Batch,
        packets: &mut [Packet],
        turn: &mut Turn,
    ) {
        let spare = std::mem::take(&mut self.spare);
        let mut all = std::mem::replace(&mut self.deferred, spare);
        for deferred in all.iter() {
            match *deferred {
                Deferred::Event(event) => {
                    turn.send_value(kind::EVENT, &event);
                }
                Deferred::EndHold(session, look) => {
                    if let Some(key) = HoldKey::new(session.0) {
                        super::end_hold(tables, key, look, turn);
                    }
                }
                Deferred::Resolve(peer) => self.resolve_neighbour(peer, turn),
                Deferred::ErrorIndication { ue_packet }
                | Deferred::Notification { ue_packet }
                | Deferred::IcmpError { ue_packet, .. }
                | Deferred::Redirect { ue_packet, .. }
                | Deferred::ToUe { ue_packet, .. }
                | Deferred::Fragments { ue_packet, .. }
                | Deferred::Copy { ue_packet, .. } => {
                    let Some(ue_packet) = batch.ue_packets.get(usize::from(ue_packet)) else {
                        continue;
                    };
                    let Some(packet) = packets.get_mut(usize::from(ue_packet.place)) else {
                        continue;
                    };
                    self.run_deferred_packet(tables, deferred, ue_packet, packet, turn);
                }
            }
        }
        all.clear();
        // Charging may have raised events, and a new packet may need a neighbour.
        std::mem::swap(&mut self.deferred, &mut all);
        for deferred in all.iter() {
            match *deferred {
                Deferred::Event(event) => {
                    turn.send_value(kind::EVENT, &event);
                }
                Deferred::Resolve(peer) => self.resolve_neighbour(peer, turn),
                _ => {}
            }
        }
        all.clear();
        self.spare = all;
    }

    fn run_deferred_packet(
        &mut self,
        tables: &LaneTables,
        deferred: &Deferred,
        ue_packet: &UePacket,
        packet: &mut Packet,
        turn: &mut Turn,
    ) {
        let octets = packet.len() as u64;
        let outcome = match *deferred {
            Deferred::ErrorIndication { .. } => {
                self.send_error_indication(tables, ue_packet, packet, turn)
            }
            Deferred::Notification { .. } => {
                self.send_supported_extensions(tables, ue_packet, packet, turn)
            }
            Deferred::IcmpError { session, icmp_error, .. } => {
                self.send_icmp_error(tables, ue_packet, session, icmp_error, packet, turn)
            }
            Deferred::Redirect { session, .. } => {
                self.send_redirect(tables, ue_packet, session, packet, turn)
            }
            Deferred::ToUe { instance, session, charge, .. } => {
                let burst = BurstContext { tables, turn, now: turn.now() };
                self.send_to_ue(
                    ue_packet,
                    instance,
                    SessionCharge { session, charge },
                    packet,
                    burst,
                )
            }
            Deferred::Fragments { ref out, room, session, charge, .. } => {
                let fragments = Fragmentation { out, room, due: SessionCharge { session, charge } };
                self.send_fragments(tables, ue_packet, &fragments, packet, turn)
            }
            Deferred::Copy { length, route, outer, .. } => {
                let start = packet.len().saturating_sub(length as usize);
                let bytes = packet.bytes().get(start..).unwrap_or_default();
                let reason = match emit(turn, bytes, &Egress::Tunnel(route, outer)) {
                    true => DropReason::Duplicated,
                    false => DropReason::NotDuplicated,
                };
                return tables.count(reason, 1, u64::from(length));
            }
            Deferred::Event(_) | Deferred::EndHold(..) | Deferred::Resolve(_) => return,
        };
        self.label(tables, packet, outcome, octets);
        if outcome == Outcome::Drop(DropReason::UnknownTunnel) && self.reflects {
            packet.set_verdict(Verdict::Reflect);
        }
        self.reflects = false;
    }

    /// Defers the copies of a packet.
    #[cold]
    pub(super) fn copy_later(
        &mut self,
        ue_packet: u8,
        inner: &InnerPacket,
        decision: &Decision<'_>,
        burst: BurstContext<'_>,
    ) {
        let (tos, length) = (inner.tos, inner.length);
        for copy in decision.copies {
            let path = Path { forwarding: &copy.forwarding, peer6: &copy.peer6, redirect: None };
            let direction = decision.direction;
            let outer = path
                .outer()
                .and_then(|put| self.outer(tos, &path, put, direction, burst.turn).ok());
            // A copy is neither fragmented nor answered with an ICMP error.
            let fits = |(route, outer): &(TunnelRoute, GtpuFields)| {
                outer.length(route.endpoints) + length as usize <= route.hop.mtu as usize
            };
            match outer.filter(|to| fits(to) && self.deferred.has_room_for_copies()) {
                Some((route, outer)) => {
                    self.deferred.push(Deferred::Copy { ue_packet, length, route, outer })
                }
                None => burst.tables.count(DropReason::NotDuplicated, 1, u64::from(length)),
            }
        }
    }

    /// Answers a packet of an unknown tunnel with an error indication (TS 29.281 clause 7.3.1), but
    /// not shortly after the start, when sessions may still be restored (TS 23.527 clause 4.2.2).
    fn send_error_indication(
        &mut self,
        tables: &LaneTables,
        ue_packet: &UePacket,
        packet: &mut Packet,
        turn: &Turn,
    ) -> Outcome {
        let Some(tunnel) = ue_packet.tunnel else {
            return Outcome::Drop(DropReason::UnknownTunnel);
        };
        let now = turn.now();
        let octets = packet.len() as u64;
        let is_sent = now >= self.error_indications_from
            && self.errors.take(now)
            && gtpu_message::back(packet, &tunnel).is_some_and(|(endpoints, hop)| {
                let local = match endpoints {
                    encap::Endpoints::V4(local, _) => IpAddr::V4(local),
                    encap::Endpoints::V6(local, _) => IpAddr::V6(local),
                };
                let teid = tunnel.teid;
                let message = GtpuMessage::error_indication(teid, local, tunnel.source_port);
                gtpu_message::write(packet, endpoints, &hop, GtpU::PORT, &message)
            });
        let reason = match is_sent {
            true => DropReason::ErrorIndicationSent,
            false => DropReason::ErrorIndicationSuppressed,
        };
        tables.count(reason, 1, octets);
        self.reflects = is_sent;
        Outcome::Drop(DropReason::UnknownTunnel)
    }

    /// Drops a packet with an unsupported extension header and sends the list of supported ones (TS
    /// 29.281 clause 5.2.1).
    fn send_supported_extensions(
        &mut self,
        tables: &LaneTables,
        ue_packet: &UePacket,
        packet: &mut Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let Some(tunnel) = ue_packet.tunnel else { return Outcome::Drop(DropReason::GtpExtension) };
        let is_due = self.errors.take(turn.now());
        if let Some((endpoints, hop)) = gtpu_message::back(packet, &tunnel).filter(|_| is_due)
            && let Some(new) = turn.new_packet(packet.port())
        {
            let message = GtpuMessage::supported_extension_headers();
            let is_sent = gtpu_message::write(new, endpoints, &hop, GtpU::PORT, &message);
            if is_sent {
                tables.count(DropReason::ExtensionNotification, 1, new.len() as u64);
            } else {
                new.set_verdict(Verdict::Drop);
            }
        }
        Outcome::Drop(DropReason::GtpExtension)
    }

    /// Sends an ICMP error about a packet that cannot be forwarded.
    fn send_icmp_error(
        &mut self,
        tables: &LaneTables,
        ue_packet: &UePacket,
        session: SessionIndex,
        icmp_error: IcmpError,
        packet: &mut Packet,
        turn: &mut Turn,
    ) -> Outcome {
        let reason = match icmp_error {
            IcmpError::TimeExceeded => DropReason::TimeToLive,
            IcmpError::TooLong(_) => DropReason::TooLong,
        };
        let bytes = ue_packet.inner(packet.bytes());
        let Some(inner) = inner_packet::read(bytes) else { return Outcome::Drop(reason) };
        let bytes = bytes.get(..inner.length as usize).unwrap_or_default();
        if !icmp::may_send(&inner, bytes, icmp_error) {
            return Outcome::Drop(reason);
        }
        let now = turn.now();
        let mut scratch = [0; icmp::MAX_LENGTH];
        let own = self.icmp_sources[usize::from(inner.is_v6)].filter(|_| self.icmp.take(now));
        let length = own.and_then(|own| icmp::write(&mut scratch, icmp_error, own, &inner, bytes));
        let error = length.and_then(|length| scratch.get(..length));
        let is_sent = error.is_some_and(|error| {
            let burst = BurstContext { tables, turn, now };
            let out = match ue_packet.tunnel {
                // This UPF made it, so it is not charged.
                Some(_) => self.egress_to_ue(burst, session, error),
                None => self.egress_to_network(burst, ue_packet, error),
            };
            out.is_ok_and(|out| emit(turn, error, &out))
        });
        let counted = if is_sent { DropReason::IcmpSent } else { DropReason::IcmpSuppressed };
        tables.count(counted, 1, error.map_or(0, |error| error.len() as u64));
        Outcome::Drop(reason)
    }

    /// Finds the egress of a packet of this UPF to the UE: the rules of the first network instance
    /// of N6 that forward it. The instance that the original packet went to is not known here.
    pub(super) fn egress_to_ue(
        &mut self,
        burst: BurstContext<'_>,
        session: SessionIndex,
        error: &[u8],
    ) -> Result<Egress, DropReason> {
        let BurstContext { tables, turn, now } = burst;
        let mut out = Err(DropReason::UnknownUser);
        for place in 0..self.instances.len() {
            let instance = self.instances.get(place).copied();
            let tunnel = self.tunnel_to_session(
                BurstContext { tables, turn, now },
                session,
                instance,
                error,
            );
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
        bytes: &[u8],
    ) -> Result<(TunnelRoute, GtpuFields), DropReason> {
        let BurstContext { tables, turn, .. } = burst;
        let rules = tables.rules(turn, session).ok_or(DropReason::UnknownUser)?;
        let inner = inner_packet::read(bytes).ok_or(DropReason::Malformed)?;
        let fields = inner.fields(None, instance.unwrap_or_default(), None);
        let path = classify::own_path(rules, &tables.blocks(turn), &fields, session);
        let path = path.ok_or(DropReason::NoRule)?;
        let put = path.outer().ok_or(DropReason::NoRoute)?;
        let (route, outer) = self.outer(inner.tos, &path, put, Direction::Downlink, turn)?;
        if outer.length(route.endpoints) + bytes.len() > route.hop.mtu as usize {
            return Err(DropReason::TooLong);
        }
        Ok((route, outer))
    }

    /// Finds the next hop of a packet of this UPF into the network that a packet came from.
    fn egress_to_network(
        &self,
        burst: BurstContext<'_>,
        ue_packet: &UePacket,
        bytes: &[u8],
    ) -> Result<Egress, DropReason> {
        let inner = inner_packet::read(bytes).ok_or(DropReason::Malformed)?;
        let instance = Some(ue_packet.instance);
        let route_source = self.ports.route_source(instance, |role| role == Role::N6);
        let to = match inner.to() {
            DestinationAddress::V4(to) => IpAddr::V4(to),
            DestinationAddress::V6(to) => IpAddr::V6(to),
        };
        match route_source.next_hop(&self.routes, burst.turn, to, inner.flow_hash()) {
            RouteLookup::Forward(hop) => Ok(Egress::NextHop(hop)),
            RouteLookup::Fallback(reason) => Err(drop_reason_of(reason)),
        }
    }

    /// Sends a packet to another UE of the same network instance. The sender's half of the path
    /// ends here and is charged. The packet goes to the lane of the other UE, even if it is this
    /// one, and is handled there as a packet from the data network.
    fn send_to_ue(
        &mut self,
        ue_packet: &UePacket,
        instance: InstanceId,
        due: SessionCharge,
        packet: &mut Packet,
        burst: BurstContext<'_>,
    ) -> Outcome {
        if ue_packet.is_hairpin {
            // The receiving UE's rules forward it to a UE again.
            return Outcome::Drop(DropReason::Loop);
        }
        let Some(port) = self.ports.hairpin else { return Outcome::Drop(DropReason::NoHairpin) };
        let Some(inner) = inner_packet::read(ue_packet.inner(packet.bytes())) else {
            return Outcome::Drop(DropReason::Malformed);
        };
        let to = inner.to();
        if burst.tables.owner(burst.turn, &to.key(instance), to).is_none() {
            return Outcome::Drop(DropReason::UnknownUser);
        }
        if let Err(outcome) = self.charge_later(ue_packet, due.session, due.charge, packet, burst) {
            return outcome;
        }
        burst.tables.count(DropReason::UserToUser, 1, u64::from(inner.length));
        send_to_hairpin(packet, ue_packet, &inner, instance, port)
    }

    /// Asks the slow path to make Linux resolve a neighbour.
    pub(super) fn resolve_neighbour(&mut self, peer: IpAddr, turn: &mut Turn) {
        if !self.reports.take(turn.now()) {
            return;
        }
        let message = super::gtpu_control::path_message(peer, None, turn.now());
        turn.send_value(kind::NEIGHBOUR, &message);
    }
}

/// Sends a packet to the lane of another UE, behind an Ethernet header whose destination carries
/// the network instance.
fn send_to_hairpin(
    packet: &mut Packet,
    ue_packet: &UePacket,
    inner: &InnerPacket,
    instance: InstanceId,
    port: PortId,
) -> Outcome {
    ip_header::decrement_ttl(inner_mut(packet, ue_packet));
    let [high, low] = instance.to_be_bytes();
    let addresses = [[2, 0, 0, 0, high, low], [2, 0, 0, 0, 0, 0]];
    let (at, length) = (usize::from(ue_packet.at), inner.length as usize);
    match ip_header::send_between(packet, at, length, inner.is_v6, addresses) {
        true => Outcome::Forward(port, DropReason::ForwardedUplink),
        false => Outcome::Drop(DropReason::NoFrame),
    }
}

/// Sends a new packet with this IP packet as its content; false if there is no frame.
pub(super) fn emit(turn: &mut Turn, bytes: &[u8], out: &Egress) -> bool {
    let port = match out {
        Egress::Tunnel(route, _) => route.hop.port,
        Egress::NextHop(hop) => hop.port,
    };
    let Some(packet) = turn.new_packet(port) else { return false };
    let is_written = packet.append(bytes.len()).map(|place| place.copy_from_slice(bytes)).is_some()
        && match out {
            Egress::Tunnel(route, outer) => {
                encap::encapsulate(packet, 0, bytes.len(), route, outer)
            }
            Egress::NextHop(hop) => {
                let is_v6 = bytes.first().is_some_and(|first| first >> 4 == 6);
                ip_header::send(packet, 0, bytes.len(), is_v6, hop)
            }
        };
    if !is_written {
        packet.set_verdict(Verdict::Drop);
    }
    is_written
}
