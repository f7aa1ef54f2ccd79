//! Forwarding of a batch of packets by their flows.

use fastlane::mirror::{IngressInterface, NextHop};
use fastlane::{Packet, Turn, Verdict};

use super::{Batch, Context};
use crate::family::Family;
use crate::flows::{Candidate, Hop, LaneFlows, Resolver};
use crate::{BATCH, Outcome, Routes};

/// Decision about a packet of a flow.
#[derive(Clone, Copy)]
enum FlowDecision<'t> {
    /// Forward by this hop.
    Forward(Candidate<'t>, NextHop),
    /// Forward, once the hop is looked up.
    Resolve(Candidate<'t>),
    /// Pass to Linux; the number of the outcome.
    Linux(u32),
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
        let mut decisions = [FlowDecision::Linux(Outcome::FlowsPaused as u32); BATCH];
        if flows.are_permitted(turn) {
            let port = packets.first().map(Packet::port).unwrap_or_default();
            let mut found = [None; BATCH];
            flows.find(turn, port, headers, &mut found);
            // Before the lookups, so that a change of routes during them invalidates the results.
            let generation = self.routes.generation();
            let mut resolver = Resolver::new();
            for (at, headers) in headers.iter().enumerate() {
                let Some(packet) = packets.get(usize::from(batch.indexes[at])) else { continue };
                let now = turn.now();
                let examined = flows.examine(found[at].as_ref(), headers, packet.bytes(), now);
                let hop = examined.and_then(|it| Ok((it, it.hop(generation, entrance)?)));
                decisions[at] = match hop {
                    Ok((candidate, Hop::Known(hop))) => FlowDecision::Forward(candidate, hop),
                    Ok((candidate, Hop::Unknown)) => {
                        resolver.add(at, &candidate, headers.source, self.hash.of(headers));
                        FlowDecision::Resolve(candidate)
                    }
                    Err(outcome) => FlowDecision::Linux(outcome as u32),
                };
            }
            resolver.resolve(&self.routes, turn, entrance, |at, way| {
                let FlowDecision::Resolve(candidate) = decisions[at] else { return };
                decisions[at] = match candidate.check_exit(&way) {
                    Ok(hop) => {
                        if let Some(generation) = generation {
                            candidate.remember(generation, entrance, &hop);
                        }
                        FlowDecision::Forward(candidate, hop)
                    }
                    Err(outcome) => FlowDecision::Linux(outcome),
                };
            });
        }
        self.finish_flows(batch, packets, &decisions, entrance);
    }

    /// Translates and labels packets.
    #[inline]
    fn finish_flows<A: Family>(
        &self,
        batch: &Batch<A>,
        packets: &mut [Packet],
        decisions: &[FlowDecision<'_>; BATCH],
        entrance: &IngressInterface,
    ) {
        let (mut forwarded, mut octets) = (0, 0);
        for (at, decision) in decisions.iter().enumerate().take(batch.count) {
            let headers = &batch.headers[at];
            let Some(packet) = packets.get_mut(usize::from(batch.indexes[at])) else { continue };
            let length = packet.len() as u64;
            let outcome = match decision {
                FlowDecision::Forward(candidate, hop) => {
                    match self.exit_check::<A>(headers.length, hop, entrance) {
                        Some(outcome) => outcome as u32,
                        None => {
                            A::translate(packet, candidate.record, hop, headers.length);
                            packet.set_verdict(Verdict::Forward(hop.port));
                            candidate.state.count(length);
                            let to = A::from_octets(candidate.record.destination);
                            self.counts.route(hop.route, length, to);
                            forwarded += 1;
                            octets += length;
                            continue;
                        }
                    }
                }
                FlowDecision::Linux(outcome) => *outcome,
                FlowDecision::Resolve(_) => Outcome::FlowsPaused as u32, // all were resolved
            };
            packet.set_verdict(Verdict::Kernel);
            self.counts.cause(outcome, 1, length);
        }
        self.counts.cause(Outcome::Forwarded as u32, forwarded, octets);
    }
}
