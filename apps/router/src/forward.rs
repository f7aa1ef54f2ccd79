//! The application.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastlane::mirror::{Entrance, ReversePath};
use fastlane::mirror::{FallbackReason, NextHop, RouteLookup};
use fastlane::{App, Packet, Turn, Verdict};

use crate::acl::{AccessList, Action, Flow, RuleSet};
use crate::counts::Counts;
use crate::family::Family;
use crate::flow::FlowHash;
use crate::headers::{self, Headers, Network};
use crate::{BATCH, Cause, Routes, of_mirror};

/// Forwards packets; one for each lane.
pub struct Router<R> {
    parts: Parts<R>,
    four: Batch<Ipv4Addr>,
    six: Batch<Ipv6Addr>,
}

struct Parts<R> {
    routes: R,
    hash: FlowHash,
    access: Option<AccessList>,
    counts: Counts,
    same_interface: bool,
}

/// Packets of one family that are looked up together.
struct Batch<A> {
    count: usize,
    /// Of each, where it is in the burst.
    places: [u8; BATCH],
    headers: [Headers<A>; BATCH],
    flows: [u32; BATCH],
    to: [A; BATCH],
    from: [A; BATCH],
    answers: [RouteLookup; BATCH],
    /// Where packets to its source would go.
    back: [RouteLookup; BATCH],
}

/// What becomes of a packet.
enum Fate {
    Forward(NextHop),
    /// The number of the cause.
    Linux(u32),
    Drop(Cause),
}

impl<R: Routes> Router<R> {
    /// A router that asks `routes`, on a lane.
    pub fn new(routes: R, counts: Counts, hash: FlowHash) -> Self {
        let (access, same_interface) = (None, false);
        let parts = Parts { routes, hash, access, counts, same_interface };
        Self {
            parts,
            four: Batch::new(Ipv4Addr::UNSPECIFIED),
            six: Batch::new(Ipv6Addr::UNSPECIFIED),
        }
    }

    /// Drops what an access list does not permit.
    #[must_use]
    pub fn with_access_list(mut self, access: AccessList) -> Self {
        self.parts.access = Some(access);
        self
    }

    /// Also forwards by the interface that a packet came by. Else Linux does, and tells the sender
    /// of the better way (ICMP redirect).
    #[must_use]
    pub fn with_same_interface(mut self, forwards: bool) -> Self {
        self.parts.same_interface = forwards;
        self
    }

    /// Takes packets that came by one interface.
    fn arrive(&mut self, packets: &mut [Packet], turn: &Turn) {
        let Some(first) = packets.first() else { return };
        let Some(entrance) = self.parts.routes.entrance(turn, first.port()) else {
            let octets = packets.iter().map(|packet| packet.len() as u64).sum();
            let cause = Cause::UnknownInterface as u32;
            self.parts.counts.cause(cause, packets.len() as u64, octets);
            packets.iter_mut().for_each(|packet| packet.set_verdict(Verdict::Kernel));
            return;
        };
        for packets in packets.chunks_mut(BATCH) {
            self.batch(packets, &entrance, turn);
        }
    }

    fn batch(&mut self, packets: &mut [Packet], entrance: &Entrance, turn: &Turn) {
        let Self { parts, four, six } = self;
        (four.count, six.count) = (0, 0);
        for (place, packet) in packets.iter_mut().enumerate() {
            match headers::read(packet.bytes(), entrance.mac) {
                Ok(Network::Four(headers)) => four.push(place, headers, parts.hash.of(&headers)),
                Ok(Network::Six(headers)) => six.push(place, headers, parts.hash.of(&headers)),
                Err(cause) => {
                    packet.set_verdict(Verdict::Kernel);
                    parts.counts.cause(cause as u32, 1, packet.len() as u64);
                }
            }
        }
        if four.count > 0 {
            parts.carry(four, packets, entrance, turn);
        }
        if six.count > 0 {
            parts.carry(six, packets, entrance, turn);
        }
    }
}

impl<R: Routes> App for Router<R> {
    fn process(&mut self, packets: &mut [Packet], turn: &mut Turn) {
        // Most often they come by one interface; from another lane they may come by several.
        for packets in packets.chunk_by_mut(|one, other| one.port() == other.port()) {
            self.arrive(packets, turn);
        }
    }
}

impl<R: Routes> Parts<R> {
    /// Looks packets up, and labels them.
    fn carry<A: Family>(
        &self,
        batch: &mut Batch<A>,
        packets: &mut [Packet],
        entrance: &Entrance,
        turn: &Turn,
    ) {
        let count = batch.count;
        let flows = &batch.flows[..count];
        A::ways(&self.routes, turn, &batch.to[..count], flows, &mut batch.answers[..count]);
        let looks_back = A::LOOKS_BACK && entrance.reverse_path != ReversePath::Any;
        if looks_back {
            A::ways(&self.routes, turn, &batch.from[..count], flows, &mut batch.back[..count]);
        }
        let rules = self.access.as_ref().and_then(|access| access.rules(turn));
        let (mut forwarded, mut octets) = (0, 0);
        for at in 0..count {
            let headers = &batch.headers[at];
            let Some(packet) = packets.get_mut(usize::from(batch.places[at])) else { continue };
            let length = packet.len() as u64;
            let mut fate = self.fate(headers, &batch.answers[at], rules, entrance, length);
            if let Fate::Forward(_) = fate
                && A::LOOKS_BACK
            {
                let back = looks_back.then_some(&batch.back[at]);
                if let Some(cause) = self.objection(headers, back, entrance, turn) {
                    fate = Fate::Linux(cause as u32);
                }
            }
            match fate {
                Fate::Forward(hop) => {
                    A::forward(packet, &hop, headers.length);
                    packet.set_verdict(Verdict::Forward(hop.port));
                    self.counts.route(hop.route, length, headers.destination);
                    forwarded += 1;
                    octets += length;
                }
                Fate::Linux(cause) => {
                    packet.set_verdict(Verdict::Kernel);
                    self.counts.cause(cause, 1, length);
                }
                Fate::Drop(cause) => {
                    packet.set_verdict(Verdict::Drop);
                    self.counts.cause(cause as u32, 1, length);
                }
            }
        }
        self.counts.cause(Cause::Forwarded as u32, forwarded, octets);
    }

    /// What becomes of a packet, if there is nothing against its source.
    #[inline]
    fn fate<A: Family>(
        &self,
        headers: &Headers<A>,
        answer: &RouteLookup,
        rules: Option<&RuleSet>,
        entrance: &Entrance,
        octets: u64,
    ) -> Fate {
        // What is for Linux itself is not forwarded, so no matter of the access list.
        if let RouteLookup::Fallback(
            reason
            @ (FallbackReason::Local | FallbackReason::Broadcast | FallbackReason::Multicast),
        ) = answer
        {
            return Fate::Linux(of_mirror(*reason));
        }
        // All else is, also by Linux: it must not get what the list drops.
        if let (Some(rules), Some(access)) = (rules, &self.access)
            && let Action::Drop(cause) = access.decide(rules, &flow(headers), octets)
        {
            return Fate::Drop(cause);
        }
        if headers.aside != Cause::Forwarded {
            return Fate::Linux(headers.aside as u32);
        }
        let hop = match answer {
            RouteLookup::Forward(hop) => hop,
            RouteLookup::Fallback(reason) => return Fate::Linux(of_mirror(*reason)),
        };
        let cause = if !A::is_forwarded(entrance) {
            Cause::ForwardingOff
        } else if headers.length > hop.mtu {
            Cause::TooLong
        } else if hop.link == entrance.link && !self.same_interface {
            Cause::SameInterface
        } else {
            return Fate::Forward(*hop);
        };
        Fate::Linux(cause as u32)
    }

    /// Why Linux would perhaps not believe an IPv4 source (`fib_validate_source` in
    /// `net/ipv4/fib_frontend.c`). It decides.
    #[inline]
    fn objection<A: Family>(
        &self,
        headers: &Headers<A>,
        back: Option<&RouteLookup>,
        entrance: &Entrance,
        turn: &Turn,
    ) -> Option<Cause> {
        match (back, entrance.reverse_path) {
            (None, _) | (_, ReversePath::Any) => {
                let is_own = self.routes.is_own(turn, headers.source.into());
                is_own.then_some(Cause::OwnSource)
            }
            (Some(RouteLookup::Fallback(FallbackReason::Local)), _) => Some(Cause::OwnSource),
            (Some(RouteLookup::Forward(hop)), ReversePath::Strict) => {
                (hop.link != entrance.link).then_some(Cause::ReversePath)
            }
            (
                Some(RouteLookup::Forward(_) | RouteLookup::Fallback(FallbackReason::NoNeighbour)),
                ReversePath::Loose,
            ) => None,
            _ => Some(Cause::ReversePath),
        }
    }
}

impl<A: Copy> Batch<A> {
    fn new(nowhere: A) -> Self {
        let nobody = Headers::new(nowhere);
        Self {
            count: 0,
            places: [0; BATCH],
            headers: [nobody; BATCH],
            flows: [0; BATCH],
            to: [nowhere; BATCH],
            from: [nowhere; BATCH],
            answers: [RouteLookup::Fallback(FallbackReason::Incomplete); BATCH],
            back: [RouteLookup::Fallback(FallbackReason::Incomplete); BATCH],
        }
    }

    #[inline(always)]
    fn push(&mut self, place: usize, headers: Headers<A>, flow: u32) {
        let at = self.count;
        self.places[at] = place as u8;
        self.headers[at] = headers;
        self.flows[at] = flow;
        self.to[at] = headers.destination;
        self.from[at] = headers.source;
        self.count = at + 1;
    }
}

fn flow<A: Family>(headers: &Headers<A>) -> Flow {
    Flow::new(
        headers.source.into(),
        headers.destination.into(),
        headers.protocol,
        headers.shows_ports.then_some(headers.ports),
    )
}
