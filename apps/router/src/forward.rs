//! The router as an application.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{FallbackReason, NextHop, ReturnRoute, RouteLookup};
use fastlane::mirror::{IngressInterface, ReversePath};
use fastlane::{App, Packet, Turn, Verdict};

use crate::acl::Action;
use crate::acl::compiled::{AccessList, key};
use crate::acl::police::Arrival;
use crate::counts::Counts;
use crate::family::Family;
use crate::flow::FlowHash;
use crate::flows::LaneFlows;
use crate::headers::{self, Headers, Network};
use crate::{BATCH, Outcome, Routes, of_mirror};

mod flow_batch;

/// Packet forwarder of one lane.
pub struct Router<R> {
    context: Context<R>,
    four: Batch<Ipv4Addr>,
    six: Batch<Ipv6Addr>,
}

struct Context<R> {
    routes: R,
    hash: FlowHash,
    access: Option<AccessList>,
    flows: Option<LaneFlows>,
    counts: Counts,
    same_interface: bool,
}

/// Packets of one family that are looked up together.
struct Batch<A> {
    count: usize,
    /// Index of each packet in the burst.
    indexes: [u8; BATCH],
    headers: [Headers<A>; BATCH],
    flows: [u32; BATCH],
    to: [A; BATCH],
    from: [A; BATCH],
    lookups: [RouteLookup; BATCH],
    /// Routes back to the sources.
    returns: [ReturnRoute; BATCH],
}

/// Decision about a packet.
enum Decision {
    Forward(NextHop),
    /// Pass to Linux; the number of the outcome.
    Linux(u32),
    Drop(Outcome),
}

impl<R: Routes> Router<R> {
    /// Creates a router for a lane with a source of routes.
    pub fn new(routes: R, counts: Counts, hash: FlowHash) -> Self {
        let (access, flows, same_interface) = (None, None, false);
        let context = Context { routes, hash, access, flows, counts, same_interface };
        Self {
            context,
            four: Batch::new(Ipv4Addr::UNSPECIFIED),
            six: Batch::new(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Drops packets that the access list does not permit.
    #[must_use]
    pub fn with_access_list(mut self, access: AccessList) -> Self {
        self.context.access = Some(access);
        self
    }

    /// Forwards only packets of flows, and leaves all others to the rules of Linux.
    #[must_use]
    pub fn with_flows(mut self, flows: LaneFlows) -> Self {
        self.context.flows = Some(flows);
        self
    }

    /// Forwards also by the ingress interface. Otherwise Linux does and sends an ICMP redirect.
    #[must_use]
    pub fn with_same_interface(mut self, forwards: bool) -> Self {
        self.context.same_interface = forwards;
        self
    }

    /// Handles packets from one interface.
    fn process_port(&mut self, packets: &mut [Packet], turn: &Turn) {
        let Some(first) = packets.first() else { return };
        let entrance = match self.context.routes.ingress(turn, first.port()) {
            Some(entrance) if !entrance.is_in_vrf => entrance,
            other => {
                let reason = other.map_or(Outcome::UnknownInterface, |_| Outcome::Vrf);
                return self.pass_all(packets, reason);
            }
        };
        for packets in packets.chunks_mut(BATCH) {
            self.batch(packets, &entrance, turn);
        }
    }

    /// Passes packets to Linux.
    fn pass_all(&mut self, packets: &mut [Packet], reason: Outcome) {
        let octets = packets.iter().map(|packet| packet.len() as u64).sum();
        self.context.counts.cause(reason as u32, packets.len() as u64, octets);
        packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
    }

    fn batch(&mut self, packets: &mut [Packet], entrance: &IngressInterface, turn: &Turn) {
        let Self { context, four, six } = self;
        (four.count, six.count) = (0, 0);
        for (index, packet) in packets.iter_mut().enumerate() {
            let network = match headers::read(packet.bytes(), entrance.mac) {
                Err(Outcome::EtherType) if context.access.is_some() => {
                    headers::read_tagged(packet.bytes())
                }
                network => network,
            };
            match network {
                Ok(Network::Four(headers)) => four.push(index, headers),
                Ok(Network::Six(headers)) => six.push(index, headers),
                Err(cause) => {
                    packet.set_verdict(match cause {
                        Outcome::AclNoPorts => Verdict::Drop,
                        _ => Verdict::Kernel,
                    });
                    context.counts.cause(cause as u32, 1, packet.len() as u64);
                }
            }
        }
        if four.count > 0 {
            context.forward_batch(four, packets, entrance, turn);
        }
        if six.count > 0 {
            context.forward_batch(six, packets, entrance, turn);
        }
    }
}

impl<R: Routes> Context<R> {
    #[inline]
    fn forward_batch<A: Family>(
        &self,
        batch: &mut Batch<A>,
        packets: &mut [Packet],
        entrance: &IngressInterface,
        turn: &Turn,
    ) {
        match &self.flows {
            Some(flows) => self.forward_flows(flows, batch, packets, entrance, turn),
            None => self.forward_routed(batch, packets, entrance, turn),
        }
    }
}

impl<R: Routes> App for Router<R> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        // Most often they come by one interface; from another lane they may come by several.
        for packets in packets.chunk_by_mut(|one, other| one.port() == other.port()) {
            self.process_port(packets, turn);
        }
    }
}

impl<R: Routes> Context<R> {
    /// Looks packets up and labels them.
    fn forward_routed<A: Family>(
        &self,
        batch: &mut Batch<A>,
        packets: &mut [Packet],
        entrance: &IngressInterface,
        turn: &Turn,
    ) {
        batch.spread(&self.hash);
        let count = batch.count;
        let flows = &batch.flows[..count];
        A::lookup(&self.routes, turn, &batch.to[..count], flows, &mut batch.lookups[..count]);
        let validates_sources = A::VALIDATES_SOURCES && entrance.reverse_path != ReversePath::Any;
        if validates_sources {
            let returns = &mut batch.returns[..count];
            A::look_back(&self.routes, turn, &batch.from[..count], flows, returns);
        }
        let mut refusals = [None; BATCH];
        if let Some(access) = &self.access {
            judge(access, batch, packets, turn, &mut refusals);
        }
        let (mut forwarded, mut octets) = (0, 0);
        for (at, refusal) in refusals.into_iter().enumerate().take(count) {
            let headers = &batch.headers[at];
            let Some(packet) = batch.packet(at, packets) else { continue };
            let length = packet.len() as u64;
            let mut decision = self.decide(headers, &batch.lookups[at], refusal, entrance);
            if let Decision::Forward(_) = decision
                && A::VALIDATES_SOURCES
            {
                let back = validates_sources.then_some(batch.returns[at]);
                if let Some(cause) = self.source_check(headers, back, entrance, turn) {
                    decision = Decision::Linux(cause as u32);
                }
            }
            match decision {
                Decision::Forward(hop) => {
                    A::forward(packet, &hop, headers.length);
                    packet.set_verdict(Verdict::Forward(hop.port));
                    self.counts.route(hop.route, length, headers.destination);
                    forwarded += 1;
                    octets += length;
                }
                Decision::Linux(cause) => {
                    packet.set_verdict(Verdict::Kernel);
                    self.counts.cause(cause, 1, length);
                }
                Decision::Drop(cause) => {
                    packet.set_verdict(Verdict::Drop);
                    self.counts.cause(cause as u32, 1, length);
                }
            }
        }
        self.counts.cause(Outcome::Forwarded as u32, forwarded, octets);
    }

    /// Decides about a packet, assuming that its source is valid.
    #[inline]
    fn decide<A: Family>(
        &self,
        headers: &Headers<A>,
        lookup: &RouteLookup,
        refusal: Option<Outcome>,
        entrance: &IngressInterface,
    ) -> Decision {
        // What is for Linux itself is not forwarded, so no matter of the access list.
        if let RouteLookup::Fallback(reason) = lookup
            && is_for_linux(*reason)
        {
            return Decision::Linux(of_mirror(*reason));
        }
        // All else is, also by Linux: it must not get what the list drops.
        if let Some(cause) = refusal {
            return Decision::Drop(cause);
        }
        if headers.fallback != Outcome::Forwarded {
            return Decision::Linux(headers.fallback as u32);
        }
        let hop = match lookup {
            RouteLookup::Forward(hop) => hop,
            RouteLookup::Fallback(reason) => return Decision::Linux(of_mirror(*reason)),
        };
        match self.exit_check::<A>(headers.length, hop, entrance) {
            Some(cause) => Decision::Linux(cause as u32),
            None => Decision::Forward(*hop),
        }
    }

    /// Returns the reason why Linux must forward a packet of this length by a hop, if there is one.
    #[inline]
    fn exit_check<A: Family>(
        &self,
        length: u32,
        hop: &NextHop,
        entrance: &IngressInterface,
    ) -> Option<Outcome> {
        if !A::is_forwarded(entrance) {
            Some(Outcome::ForwardingOff)
        } else if length > hop.mtu {
            Some(Outcome::TooLong)
        } else if hop.link == entrance.link && !self.same_interface {
            Some(Outcome::SameInterface)
        } else {
            None
        }
    }

    /// Returns the reason why Linux might reject an IPv4 source (`fib_validate_source` in
    /// `net/ipv4/fib_frontend.c`). Linux then decides.
    #[inline]
    fn source_check<A: Family>(
        &self,
        headers: &Headers<A>,
        back: Option<ReturnRoute>,
        entrance: &IngressInterface,
        turn: &Turn,
    ) -> Option<Outcome> {
        let Some(back) = back else {
            let is_own = self.routes.is_own(turn, headers.source.into());
            return is_own.then_some(Outcome::OwnSource);
        };
        if back.reason == Some(FallbackReason::Local) {
            return Some(Outcome::OwnSource);
        }
        let is_valid = match entrance.reverse_path {
            ReversePath::Strict => back.usable_link() == Some(entrance.link),
            ReversePath::Loose | ReversePath::Any => back.usable_link().is_some(),
        };
        (!is_valid).then_some(Outcome::ReversePath)
    }
}

impl<A: Family> Batch<A> {
    fn new(nowhere: A) -> Self {
        let nobody = Headers::new(nowhere);
        Self {
            count: 0,
            indexes: [0; BATCH],
            headers: [nobody; BATCH],
            flows: [0; BATCH],
            to: [nowhere; BATCH],
            from: [nowhere; BATCH],
            lookups: [RouteLookup::Fallback(FallbackReason::Incomplete); BATCH],
            returns: [ReturnRoute::UNKNOWN; BATCH],
        }
    }

    #[inline(always)]
    fn push(&mut self, index: usize, headers: Headers<A>) {
        let at = self.count;
        self.indexes[at] = index as u8;
        self.headers[at] = headers;
        self.count = at + 1;
    }

    /// Returns the packet at an index of the batch.
    #[inline(always)]
    fn packet<'p>(&self, at: usize, packets: &'p mut [Packet]) -> Option<&'p mut Packet> {
        packets.get_mut(usize::from(*self.indexes.get(at)?))
    }

    /// Copies from the headers what routes are looked up by. Flows do without.
    #[inline]
    fn spread(&mut self, hash: &FlowHash) {
        let Self { count, headers, flows, to, from, .. } = self;
        let places = flows.iter_mut().zip(to).zip(from);
        for (headers, ((flow, to), from)) in headers.iter().take(*count).zip(places) {
            *flow = hash.of(headers);
            *to = headers.destination;
            *from = headers.source;
        }
    }
}

/// Asks the access list about the packets of a batch that are not for Linux itself. Writes the
/// reason of each packet that it drops.
fn judge<A: Family>(
    access: &AccessList,
    batch: &Batch<A>,
    packets: &[Packet],
    turn: &Turn,
    refusals: &mut [Option<Outcome>; BATCH],
) {
    let count = batch.count.min(BATCH);
    let keys = batch.headers.each_ref().map(|headers| {
        let ports = headers.shows_ports.then_some(headers.ports);
        key(headers.source, headers.destination, headers.protocol, ports)
    });
    let (rules, mut decisions) = (access.current(turn), [None; BATCH]);
    rules.lookup_many(&keys[..count], &mut decisions);
    for at in 0..count {
        let headers = &batch.headers[at];
        if let RouteLookup::Fallback(reason) = batch.lookups[at]
            && (is_for_linux(reason) || headers.destination.is_link_local())
        {
            continue;
        }
        if headers.hides_protocol {
            refusals[at] = Some(Outcome::AclNoPorts);
            continue;
        }
        let octets = packets.get(usize::from(batch.indexes[at])).map_or(0, |it| it.len() as u64);
        let arrival = Arrival { octets, traffic_class: headers.traffic_class };
        let action = access.decide(&rules, &keys[at], decisions[at], arrival, || turn.now());
        if let Action::Drop(cause) = action {
            refusals[at] = Some(cause);
        }
    }
}

/// Returns true if packets with this reason are for Linux itself.
fn is_for_linux(reason: FallbackReason) -> bool {
    use FallbackReason::{Broadcast, Local, Multicast};
    matches!(reason, Local | Broadcast | Multicast)
}
