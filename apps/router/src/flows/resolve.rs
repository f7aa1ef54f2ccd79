//! Routes of flows whose hop is not remembered: that of the packet and that back to its source.

use fastlane::Turn;
use fastlane::mirror::flows::{FlowState, RememberedHop};
use fastlane::mirror::{FallbackReason, IngressInterface, NextHop, ReturnRoute, RouteLookup};

use super::Candidate;
use crate::family::Family;
use crate::{BATCH, Outcome, Routes, of_mirror};

/// Way of a packet that was looked up.
pub(crate) struct FlowWay {
    /// The next hop, or the number of the reason why Linux gets the packet.
    hop: Result<NextHop, u32>,
    /// Interface by which Linux sends the packet, if it gets it and that is known.
    exit: Option<u32>,
}

/// Packets of a batch whose routes are looked up together.
pub(crate) struct Resolver<'t, A> {
    count: usize,
    /// Index of each packet in the batch.
    indexes: [u8; BATCH],
    candidates: [Option<Candidate<'t>>; BATCH],
    to: [A; BATCH],
    from: [A; BATCH],
    hashes: [u32; BATCH],
}

impl<'t, A: Family> Resolver<'t, A> {
    #[inline]
    pub(crate) fn new() -> Self {
        let unset = A::from_octets([0; 16]);
        Self {
            count: 0,
            indexes: [0; BATCH],
            candidates: [None; BATCH],
            to: [unset; BATCH],
            from: [unset; BATCH],
            hashes: [0; BATCH],
        }
    }

    /// Adds the packet at an index of the batch. `from` is its source as it arrived: Linux checks
    /// that one, before it is translated.
    #[inline]
    pub(crate) fn add(&mut self, index: usize, candidate: Candidate<'t>, from: A, hash: u32) {
        let Some(slot) = self.indexes.get_mut(self.count) else { return };
        *slot = index as u8;
        self.candidates[self.count] = Some(candidate);
        self.to[self.count] = A::from_octets(candidate.record.destination());
        self.from[self.count] = from;
        self.hashes[self.count] = hash;
        self.count += 1;
    }

    /// Looks all of them up and passes the way of each to `take`.
    pub(crate) fn resolve<R: Routes>(
        &self,
        routes: &R,
        turn: &Turn,
        entrance: &IngressInterface,
        mut take: impl FnMut(usize, &Candidate<'t>, FlowWay),
    ) {
        let unset = RouteLookup::Fallback(FallbackReason::Incomplete);
        let (mut ways, mut back) = ([unset; BATCH], [ReturnRoute::UNKNOWN; BATCH]);
        let (count, hashes) = (self.count, &self.hashes[..self.count]);
        A::lookup(routes, turn, &self.to[..count], hashes, &mut ways[..count]);
        A::look_back(routes, turn, &self.from[..count], hashes, &mut back[..count]);
        for (at, (way, back)) in ways[..count].iter().zip(back).enumerate() {
            let way = match *way {
                RouteLookup::Fallback(reason) => FlowWay {
                    hop: Err(of_mirror(reason)),
                    exit: self.exit(routes, turn, at, reason),
                },
                // The rules of Linux have judged the exit that its own hash selects.
                RouteLookup::Forward(hop) if hop.is_divided => {
                    FlowWay { hop: Err(Outcome::FlowExit as u32), exit: Some(FlowState::ELSEWHERE) }
                }
                RouteLookup::Forward(hop) => {
                    FlowWay { hop: check_return(back, entrance).map(|()| hop), exit: None }
                }
            };
            let Some(candidate) = &self.candidates[at] else { continue };
            take(usize::from(self.indexes[at]), candidate, way);
        }
    }

    /// Returns the interface by which Linux sends a packet that it gets for a reason.
    #[cold]
    fn exit<R: Routes>(
        &self,
        routes: &R,
        turn: &Turn,
        at: usize,
        reason: FallbackReason,
    ) -> Option<u32> {
        match reason {
            FallbackReason::NotOurPort => Some(FlowState::ELSEWHERE),
            FallbackReason::NoNeighbour | FallbackReason::TrafficControl => {
                let mut found = [ReturnRoute::UNKNOWN];
                A::look_back(routes, turn, &self.to[at..=at], &self.hashes[at..=at], &mut found);
                match found[0].is_divided {
                    true => Some(FlowState::ELSEWHERE),
                    false => found[0].usable_link(),
                }
            }
            _ => None,
        }
    }
}

/// Checks that replies leave by the interface of arrival, as in a flow table of Linux. That Linux
/// must send them is no matter of this direction.
///
/// # Errors
/// The number of the reason why Linux gets the packet.
fn check_return(back: ReturnRoute, entrance: &IngressInterface) -> Result<(), u32> {
    match (back.usable_link(), back.reason) {
        (Some(link), _) if link == entrance.link => Ok(()),
        (Some(_), _) => Err(Outcome::FlowInterface as u32),
        (None, Some(FallbackReason::Local)) => Err(Outcome::OwnSource as u32),
        (None, reason) => Err(of_mirror(reason.unwrap_or(FallbackReason::Incomplete))),
    }
}

impl Candidate<'_> {
    /// Checks a way, which must have the exit of the first one: the rules of Linux have judged the
    /// flow by no other.
    ///
    /// # Errors
    /// The number of the reason why Linux gets the packet.
    #[inline]
    pub(crate) fn check_exit(&self, way: &FlowWay) -> Result<NextHop, u32> {
        let exit = way.hop.map_or(way.exit, |hop| Some(hop.link));
        let Some(exit) = exit else { return way.hop };
        if self.state.reroutes(exit) {
            return Err(Outcome::FlowExit as u32);
        }
        if way.hop.is_err() {
            self.state.leaves_by(exit);
        }
        way.hop
    }

    /// Remembers the hop that was looked up in a generation.
    #[inline]
    pub(crate) fn remember(&self, generation: u64, entrance: &IngressInterface, hop: &NextHop) {
        let remembered = RememberedHop { ingress: entrance.link, hop: *hop };
        self.state.remember(generation, &remembered);
    }
}
