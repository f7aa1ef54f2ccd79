//! Runs deferred work once all packets of a batch are labelled (replies, copies, messages,
//! packets between UEs). All of it is rare or was requested.

use fastlane::{HoldKey, Packet, Turn};

use super::Datapath;
use super::deferred_queue::{ControlPacket, DeferredWork};
use super::forward::Forwarder;
use super::icmp::{self, IcmpError};
use super::inner_packet;
use super::lane_tables::{LaneTables, TurnContext};
use super::lookup::{Batch, UePacket};
use super::next_hop::Egress;
use super::outcome::Outcome;
use super::routes::Routes;
use crate::rules::layout::drop_reason::DropReason;
use crate::rules::layout::message::kind;
use crate::session::InstanceId;

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
        let context = &mut TurnContext { tables, turn };
        let spare = std::mem::take(&mut self.spare);
        let mut all = std::mem::replace(&mut self.forwarder.queue, spare);
        for deferred in all.iter() {
            match *deferred {
                DeferredWork::Event(_) | DeferredWork::Resolve(_) => {
                    self.send_message(deferred, context)
                }
                DeferredWork::EndHold(session, decision) => {
                    if let Some(key) = HoldKey::new(session.0) {
                        decision.carry_out(key, context);
                    }
                }
                DeferredWork::ToControl(ControlPacket { ue_packet, .. })
                | DeferredWork::ErrorIndication { ue_packet }
                | DeferredWork::Notification { ue_packet }
                | DeferredWork::IcmpError { ue_packet, .. }
                | DeferredWork::Redirect { ue_packet, .. }
                | DeferredWork::ToUe { ue_packet, .. }
                | DeferredWork::Fragments { ue_packet, .. }
                | DeferredWork::Copy { ue_packet, .. } => {
                    let Some(ue_packet) = batch.ue_packets.get(usize::from(ue_packet)) else {
                        continue;
                    };
                    let Some(packet) = packets.get_mut(usize::from(ue_packet.position)) else {
                        continue;
                    };
                    self.run_deferred_packet(deferred, ue_packet, packet, context);
                }
            }
        }
        all.clear();
        // Charging may have raised events, and a new packet may need a neighbour.
        std::mem::swap(&mut self.forwarder.queue, &mut all);
        for deferred in all.iter() {
            self.send_message(deferred, context);
        }
        all.clear();
        self.spare = all;
    }

    /// Sends the message to the slow path that an item asks for, if it does.
    fn send_message(&mut self, deferred: &DeferredWork, context: &mut TurnContext<'_>) {
        match *deferred {
            DeferredWork::Event(event) => {
                context.turn.send_value(kind::EVENT, &event);
            }
            DeferredWork::Resolve(peer) => self.slow_path.resolve_neighbour(peer, context.turn),
            _ => {}
        }
    }

    fn run_deferred_packet(
        &mut self,
        deferred: &DeferredWork,
        ue_packet: &UePacket,
        packet: &mut Packet,
        context: &mut TurnContext<'_>,
    ) {
        let octets = packet.len() as u64;
        let forwarder = &mut self.forwarder;
        let outcome = match *deferred {
            DeferredWork::ErrorIndication { .. } => {
                let now = context.turn.now();
                self.gtpu.send_error_indication(ue_packet, packet, context.tables, now)
            }
            DeferredWork::Notification { .. } => {
                self.gtpu.send_supported_extensions(ue_packet, packet, context)
            }
            DeferredWork::IcmpError { icmp_error, instance, .. } => {
                let instance = match ue_packet.tunnel {
                    Some(_) => instance,
                    None => Some(ue_packet.instance),
                };
                self.send_icmp_error(icmp_error, instance, ue_packet, packet, context)
            }
            DeferredWork::Redirect { .. } => {
                self.http.respond(forwarder, ue_packet, packet, context)
            }
            DeferredWork::ToControl(ref control) => {
                self.control.hand_over(forwarder, control, ue_packet, packet, context)
            }
            DeferredWork::ToUe { instance, due, .. } => {
                forwarder.send_to_ue(ue_packet, instance, due, packet, context.burst())
            }
            DeferredWork::Fragments { ref fragmentation, .. } => {
                fragmentation.send(forwarder, ue_packet, packet, context)
            }
            DeferredWork::Copy { length, route, outer, .. } => {
                let start = packet.len().saturating_sub(length as usize);
                let bytes = packet.bytes().get(start..).unwrap_or_default();
                let reason = match Egress::Tunnel(route, outer).send(context.turn, bytes) {
                    true => DropReason::Duplicated,
                    false => DropReason::NotDuplicated,
                };
                return context.tables.count(reason, 1, u64::from(length));
            }
            DeferredWork::Event(_) | DeferredWork::EndHold(..) | DeferredWork::Resolve(_) => return,
        };
        self.forwarder.restore_held(outcome, ue_packet, packet, context.burst());
        let TurnContext { tables, turn } = context;
        let rules = ue_packet.session.and_then(|session| tables.rules(turn, session));
        self.forwarder.counters.label(tables, packet, outcome, octets, rules);
    }

    /// Sends an ICMP error about a packet that cannot be forwarded.
    fn send_icmp_error(
        &mut self,
        icmp_error: IcmpError,
        instance: Option<InstanceId>,
        ue_packet: &UePacket,
        packet: &mut Packet,
        context: &mut TurnContext<'_>,
    ) -> Outcome {
        let reason = match icmp_error {
            IcmpError::TimeExceeded => DropReason::TimeToLive,
            IcmpError::TooLong(_) => DropReason::TooLong,
            IcmpError::NoRoute => DropReason::NoRoute,
            IcmpError::NoMapping(reason) => reason,
        };
        if !self.forwarder.restore(ue_packet, packet, context.burst()) {
            return Outcome::Drop(reason);
        }
        let bytes = ue_packet.inner(packet.bytes());
        let Some(inner) = inner_packet::read(bytes) else { return Outcome::Drop(reason) };
        let bytes = bytes.get(..inner.length as usize).unwrap_or_default();
        if !icmp::may_send(&inner, bytes, icmp_error) {
            return Outcome::Drop(reason);
        }
        let burst = context.burst();
        let Forwarder { routes, ports, .. } = &self.forwarder;
        let of_linux = |port| routes.address(burst.turn, port, inner.is_v6);
        let Some(source) = ports.icmp_source(instance, inner.is_v6, of_linux) else {
            context.tables.count(DropReason::IcmpNoSource, 1, 0);
            return Outcome::Drop(reason);
        };
        let mut scratch = [0; icmp::MAX_LENGTH];
        let is_due = self.icmp.take(burst.now);
        let length = if is_due {
            icmp::write(&mut scratch, icmp_error, source, &inner, bytes)
        } else {
            None
        };
        let mut error = length.and_then(|length| scratch.get_mut(..length));
        let sender = match &mut error {
            Some(error) if ue_packet.is_hairpin => {
                self.forwarder.addressee(ue_packet.instance, error, burst)
            }
            _ => None,
        };
        let error = error.as_deref();
        let out = error.and_then(|error| {
            // This UPF made it, so it is not charged.
            match (ue_packet.tunnel, ue_packet.session) {
                (Some(_), Some(session)) => self.forwarder.egress_to_ue(burst, session, error).ok(),
                (Some(_), None) => None,
                (None, _) if ue_packet.is_hairpin => {
                    self.forwarder.egress_to_ue(burst, sender?, error).ok()
                }
                (None, _) => self.forwarder.egress_to_network(burst, ue_packet, error).ok(),
            }
        });
        let is_sent = error.zip(out).is_some_and(|(error, out)| out.send(context.turn, error));
        let counted = if is_sent { DropReason::IcmpSent } else { DropReason::IcmpSuppressed };
        context.tables.count(counted, 1, error.map_or(0, |error| error.len() as u64));
        Outcome::Drop(reason)
    }
}
