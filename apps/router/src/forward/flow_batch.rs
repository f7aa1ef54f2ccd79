//! Forwarding of a batch of packets by their flows.

use fastlane::mirror::{IngressInterface, NextHop};
use fastlane::{Packet, Turn, Verdict};

use super::{Batch, Context};
use crate::counts::Counts;
use crate::family::Family;
use crate::flows::{Candidate, LaneFlows, Resolver};
use crate::headers::Headers;
use crate::{BATCH, Outcome, Routes};

/// Number of packets that were forwarded, and of their octets, to be counted together.
#[derive(Default)]
struct Forwarded {
    packets: u64,
    octets: u64,
}

impl<R: Routes> Context<R> {
    /// Looks up the flows of packets, translates those that have one, and labels all.
    pub(super) fn forward_flows<A: Family>(
        &self,
        flows: &LaneFlows,
        batch: &Batch<A>,
        packets: &mut [Packet],
        entrance: &IngressInterface,
        turn: &Turn,
    ) {
        let headers = &batch.headers[..batch.count];
        let (mut forwarded, is_permitted) = (Forwarded::default(), flows.are_permitted(turn));
        let port = packets.first().map(Packet::port).unwrap_or_default();
        let mut found = [None; BATCH];
        if is_permitted {
            flows.find(turn, port, headers, &mut found);
        }
        // Before the lookups, so that a change of routes during them invalidates the results.
        let generation = self.routes.generation();
        let (mut resolver, now) = (None, turn.now());
        for (at, (headers, found)) in headers.iter().zip(&found).enumerate() {
            let Some(packet) = batch.packet(at, packets) else { continue };
            let examined = match is_permitted {
                true => flows.examine(found.as_ref(), headers, packet.bytes(), now),
                false => Err(Outcome::FlowsPaused),
            };
            // Packets whose hop is known are sent at once and by a path of their own: to keep the
            // hop, or to join the paths before it is used, costs more than to look it up.
            let sent = match examined {
                Err(outcome) => Err(outcome as u32),
                Ok(candidate) => match candidate.remembered(generation) {
                    Some(remembered) if remembered.ingress == entrance.link => {
                        self.send(packet, headers, &candidate, &remembered.hop, entrance)
                    }
                    Some(_) => Err(Outcome::FlowInterface as u32),
                    None => {
                        let resolver = resolver.get_or_insert_with(Resolver::new);
                        resolver.add(at, candidate, headers.source, self.hash.of(headers));
                        continue;
                    }
                },
            };
            forwarded.label(packet, sent, &self.counts);
        }
        if let Some(resolver) = resolver {
            resolver.resolve(&self.routes, turn, entrance, |at, candidate, way| {
                let Some(packet) = batch.packet(at, packets) else { return };
                let sent = candidate.check_exit(&way).and_then(|hop| {
                    if let Some(generation) = generation {
                        candidate.remember(generation, entrance, &hop);
                    }
                    self.send(packet, &headers[at], candidate, &hop, entrance)
                });
                forwarded.label(packet, sent, &self.counts);
            });
        }
        self.counts.cause(Outcome::Forwarded as u32, forwarded.packets, forwarded.octets);
    }

    /// Translates a packet and sends it by a hop. Returns its length before.
    ///
    /// # Errors
    /// The number of the reason why Linux gets it.
    #[inline(always)]
    fn send<A: Family>(
        &self,
        packet: &mut Packet,
        headers: &Headers<A>,
        candidate: &Candidate<'_>,
        hop: &NextHop,
        entrance: &IngressInterface,
    ) -> Result<u64, u32> {
        if let Some(outcome) = self.exit_check::<A>(headers.length, hop, entrance) {
            return Err(outcome as u32);
        }
        let length = packet.len() as u64;
        A::translate(packet, candidate.record, hop, headers.length);
        packet.set_verdict(Verdict::Forward(hop.port));
        candidate.state.count(length);
        self.counts.route(hop.route, length, A::from_octets(candidate.record.destination()));
        Ok(length)
    }
}

impl Forwarded {
    /// Adds a packet that was sent, or labels and counts one for Linux.
    #[inline(always)]
    fn label(&mut self, packet: &mut Packet, sent: Result<u64, u32>, counts: &Counts) {
        match sent {
            Ok(octets) => {
                self.packets += 1;
                self.octets += octets;
            }
            Err(outcome) => {
                packet.set_verdict(Verdict::Kernel);
                counts.cause(outcome, 1, packet.len() as u64);
            }
        }
    }
}
